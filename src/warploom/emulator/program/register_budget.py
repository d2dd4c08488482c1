"""The registers of a thread at launch, which ptxas decides and `setmaxnreg` starts from.

These rules were derived from builds of small kernels by ptxas 13.0 for sm_90a: its count of registers, and its note
C7508 ("'setmaxnreg' ignored; unable to determine register count at entry").
`tests/emulator/test_register_budget.py` repeats some of them.
"""

from __future__ import annotations

import numpy as np

from ...asm.nodes import Integer, Vector
from ...isa.effects import Allocates
from ...isa.launch import registers_for
from ..machine.image import Image
from ..machine.registers import WARP

MOST = 255
UNIT = 8
"""Registers are allocated in multiples of this: a thread that may use 255 has 256."""
BESIDE_ACCUMULATORS = 26
"""Registers that ptxas needs for an MMA besides accumulators and A (its error C7602: 154 for 128 accumulators)."""


def launch_registers(code: Image, threads: int) -> int | None:
    """Registers of each thread at launch; None if ptxas ignores setmaxnreg.

    `.maxnreg` gives it, and so does a block size (`.reqntid`, `.maxntid`) together with `.minnctapersm`: as many as
    fit. A block size alone is enough if the kernel has an MMA so large that two CTAs do not fit on an SM. It is never
    more than the largest count that an `inc` requests ("the largest temporal register count" of ptxas' error C7406).
    """
    entry = code.entry
    asked = _asked(code)
    named = entry.directive("maxnreg")
    if named:
        return -(-min(named[0], asked) // UNIT) * UNIT
    sizes, ctas = entry.directive("reqntid") or entry.directive("maxntid"), entry.directive("minnctapersm")
    if not sizes:
        return None
    block = max(int(np.prod(sizes)), threads)
    if ctas is None and _largest_product(code) <= registers_for(code.arch, block, 2):
        return None
    if ctas and -(-block // WARP) * ctas[0] > code.arch.warps_per_sm:
        return None
    return min(registers_for(code.arch, block, ctas[0] if ctas else 1), asked)


def _asked(code: Image) -> int:
    """The largest count that `setmaxnreg.inc` requests; MOST if there is none."""
    counts = [
        operand.value
        for operation in code.operations
        if any(isinstance(effect, Allocates) and effect.pool == "registers" for effect in operation.effects)
        for operand in operation.instruction.operands
        if isinstance(operand, Integer)
    ]
    return max(counts, default=MOST)


def _largest_product(code: Image) -> int:
    """Registers that ptxas needs for the largest MMA of a kernel; 0 if there is none."""
    return max(
        (
            BESIDE_ACCUMULATORS
            + sum(len(operand.elements) for operand in operation.instruction.operands if isinstance(operand, Vector))
            for operation in code.operations
            if operation.bound is not None and operation.bound.match.form.converged == "warpgroup"
        ),
        default=0,
    )
