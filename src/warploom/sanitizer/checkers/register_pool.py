"""The registers that warpgroups exchange with setmaxnreg. PTX ISA 9.7.19.5."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...emulator.machine.events import Observer
from ...errors import DeadlockError, StepLimitError
from ...isa.effects import Allocates
from ..report.findings import at
from ..report.words import actor
from ..rules import WARNING

if TYPE_CHECKING:
    from ...emulator.machine.frame import Frame
    from ...emulator.machine.machine import Cta, Warp
    from ...emulator.machine.operation import Operation
    from ...errors import EmulationError
    from ..context import Context


class RegisterPool(Observer):
    """See the module's docstring."""

    rules = ("setmaxnreg-without-cap", "setmaxnreg-budget", "setmaxnreg-not-by-warpgroup")

    def __init__(self, context: Context) -> None:
        self.context = context
        self.findings = context.findings
        self._counts: dict[Cta, dict[int, tuple[int, Operation]]] = {}

    def took(self, frame: Frame, pool: str, amount: int, effective: bool) -> None:
        code = frame.operation
        if not effective and not self.findings.seen("setmaxnreg-without-cap", (code,)):
            self.findings.add(
                "setmaxnreg-without-cap",
                f"{at(code)} is in a kernel whose text does not fix the registers at launch: ptxas 13.0 ignores "
                "it (note C7508)",
                (code,),
                frame.cta,
                frame.first_warp,
            )
        threads = int(np.count_nonzero(frame.active))
        if threads < frame.lanes and not self.findings.seen("setmaxnreg-not-by-warpgroup", (code,)):
            self.findings.add(
                "setmaxnreg-not-by-warpgroup",
                f"{actor(frame.cta, frame.first_warp)} executes {at(code)} with {threads} of its {frame.lanes} "
                "threads: what that does is undefined (.aligned); chips set the count of the whole warp",
                (code,),
                frame.cta,
                frame.first_warp,
            )
        self._counts.setdefault(frame.cta, {})[frame.first_warp] = (amount, code)

    gave = took

    # -- the ends --------------------------------------------------------------------------------------------------

    def stopped(self, error: EmulationError) -> None:
        if not isinstance(error, (DeadlockError, StepLimitError)):
            return  # it may have kept another warp from giving registers back
        for cluster in self.context.machine.resident:
            for cta in cluster.ctas:
                self._check_waits(cta)

    def _check_waits(self, cta: Cta) -> None:
        """Report a warp that waits for registers that no warp will release."""
        operations = self.context.machine.code.operations
        for warp in cta.warps:
            for fragment in warp.fragments:
                here = [operations[pc] for pc in (fragment.pc, fragment.pc - 1) if takes_registers(operations[pc])]
                if fragment.wait is None or fragment.wait.kind != "registers" or not here:
                    continue
                if self.findings.seen("setmaxnreg-budget", (here[0],)):
                    continue
                self.findings.add(
                    "setmaxnreg-budget",
                    f"{actor(cta, warp.index)} waits at {at(here[0])} for ever: {fragment.wait.describe()}",
                    (here[0],),
                    cta,
                    warp.index,
                )

    def exited(self, warp: Warp) -> None:
        if warp.cta.exited:
            self._check_counts(warp.cta)

    def _check_counts(self, cta: Cta) -> None:
        """Check that the four warps of each warpgroup, or as many as the CTA has, set the same count."""
        counts = self._counts.pop(cta, {})
        for warpgroup in {warp // 4 for warp in counts}:
            mine = {warp: counts[warp] for warp in range(warpgroup * 4, warpgroup * 4 + 4) if warp in counts}
            code = next(iter(mine.values()))[1]
            everyone = len(mine) == min(4, len(cta.warps) - warpgroup * 4)
            if len(mine) == 4 and len({count for count, _ in mine.values()}) == 1:
                continue
            # FlashAttention-4 and CUTLASS choose roles by warp, and CuTe DSL's kernels for sm_120 have a last warp of
            # its own: chips exchange registers warp by warp
            severity = WARNING if everyone and not self.context.strict else None
            if self.findings.seen("setmaxnreg-not-by-warpgroup", (code,), severity):
                continue
            self.findings.add(
                "setmaxnreg-not-by-warpgroup",
                f"warpgroup {warpgroup} of {cta.describe()} does not have four warps that set the same register count: "
                + ", ".join(f"warp {warp} sets {count}" for warp, (count, _) in sorted(mine.items())),
                (code,),
                cta,
                severity=severity,
            )


def takes_registers(code: Operation) -> bool:
    return any(isinstance(effect, Allocates) and effect.pool == "registers" for effect in code.effects)
