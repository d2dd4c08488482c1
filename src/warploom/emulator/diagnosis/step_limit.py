"""The report of a kernel that reached its instruction limit: which warps still run, where, and in which loop."""

from __future__ import annotations

from collections import defaultdict

from ...errors import SourceLocation, StepLimitError
from ..machine.machine import Cta, Machine
from ..machine.operation import BRANCH, Operation

SHOWN = 4
"""Places, and CTAs at each of them, that are listed individually."""


def report_step_limit(machine: Machine, max_steps: int) -> StepLimitError:
    """The error for a machine that has run more than `max_steps` warp instructions."""
    standing: dict[int, dict[Cta, list[int]]] = defaultdict(lambda: defaultdict(list))
    for cluster in machine.resident:
        for cta in cluster.ctas:
            for warp in cta.warps:
                for fragment in warp.fragments:
                    if fragment.wait is None:
                        standing[fragment.pc][cta].append(warp.index)
    # Warps that have not started, or wait for their turn, are not the endless ones: warps in a loop come first.
    loops = {pc: _loop(machine, pc) for pc in standing}
    places = sorted(standing, key=lambda pc: (loops[pc] is None, pc))
    lines = [_line(machine, pc, standing[pc], loops[pc]) for pc in places[:SHOWN]]
    if len(places) > SHOWN:
        lines.append(f"and warps at {len(places) - SHOWN} more places")
    operation = machine.code.operations[places[0]] if places else None
    error = StepLimitError(
        f"the kernel has not finished after {machine.steps} emulated warp instructions: a loop in it may never end",
        where=f"{_place(operation)}  {operation.text}" if operation else None,
        expected=f"at most max_steps = {max_steps}",
        got="; ".join(lines) or "no runnable warp",
        consequence="a loop that never ends hangs on hardware",
        hint="check what ends the loop; if the kernel is merely long, raise max_steps (check --max-steps N)",
    )
    error.location = operation.instruction.location if operation else None
    return error


def _line(machine: Machine, pc: int, ctas: dict[Cta, list[int]], loop: tuple[Operation, Operation] | None) -> str:
    """The warps at an instruction, in words."""
    cta, warps = next(iter(ctas.items()))
    where = ", ".join(one.describe() for one in list(ctas)[:SHOWN])
    where += f" and {len(ctas) - SHOWN} more CTAs" if len(ctas) > SHOWN else ""
    operation = machine.code.operations[pc]
    text = f"{cta.describe_warps(sorted(set(warps)))} in {where} at {_place(operation)} `{operation.text}`"
    if loop is not None:
        first, last = (_place(one) for one in loop)
        text += f", in the loop from {first} to {last}" if first != last else f", in the loop at {first}"
    return text


def _loop(machine: Machine, pc: int) -> tuple[Operation, Operation] | None:
    """First and last instruction of the smallest loop around an instruction; None if there is none."""
    operations = machine.code.operations
    around = [
        (at - target, target, at)
        for at, operation in enumerate(operations)
        if operation.kind == BRANCH
        for target in operation.targets
        if target <= pc <= at
    ]
    if not around:
        return None
    _, target, at = min(around)
    return operations[target], operations[at]


def _place(operation: Operation) -> SourceLocation | str:
    return operation.instruction.location or "an unknown line"
