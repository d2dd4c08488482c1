"""Shapes of MMAs that the ISA lists but no production kernel uses: libraries refuse them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ...emulator.machine.events import Observer
from ...isa.instruction_descriptor import KINDS
from ...isa.instructions.tcgen05_mma import kind_of
from ..report.findings import at

if TYPE_CHECKING:
    from ...emulator.machine.async_operation import AsyncOperation
    from ..context import Context


GROUP = 64
"""Columns of B whose scale factors libraries load at a time."""


class TensorShapes(Observer):
    """See the module's docstring.

    Except 128 rows with N an odd multiple of 8, which CUTLASS refuses: programs by NVIDIA multiply 128 x 8.
    """

    rules = ("unusual-tensor-shape",)
    only_with = "tcgen05"

    def __init__(self, context: Context) -> None:
        self.context = context

    def issued(self, operation: AsyncOperation) -> None:
        issuer = operation.issuer
        bound = issuer.operation.bound
        if bound is None or not bound.match.form.key.startswith("tcgen05.mma"):
            return
        m, n = cast("tuple[int, ...]", operation.pipeline[0])[2:]  # after column and lane
        half_a_group = KINDS[kind_of(bound.match.modifiers)].scaled and n > GROUP // 2 and n % GROUP == GROUP // 2
        codes = (issuer.operation,)
        if half_a_group and not self.context.findings.seen("unusual-tensor-shape", codes):
            self.context.findings.add(
                "unusual-tensor-shape",
                f"{at(issuer.operation)} multiplies {m} x {n} with scale factors, but those of B come in groups of "
                f"{GROUP} columns",
                codes, issuer.frame.cta, issuer.frame.first_warp,
            )  # fmt: skip
