"""How many registers a thread has at launch, which ptxas decides and `setmaxnreg` starts from.

What is said here was read off builds of small kernels by ptxas 13.0 for sm_90a: its count of registers, and its note
C7508 ("'setmaxnreg' ignored; unable to determine register count at entry").
`tests/emulator/test_register_budget.py` builds some of them again.
"""

from __future__ import annotations

import numpy as np

from ...asm.nodes import Integer, Vector
from ...isa.effects import Takes
from ...isa.launch import registers_for
from ..machine.image import Image
from ..machine.registers import WARP

MOST = 255
UNIT = 8
"""Registers are given out in multiples of this: a thread that may use 255 has 256."""
BESIDE_ACCUMULATORS = 26
"""Registers that ptxas wants for an MMA besides accumulators and A (its error C7602: 154 for 128 accumulators)."""


def launch_registers(code: Image, threads: int) -> int | None:
    """Registers of each thread at launch; None where ptxas ignores setmaxnreg.

    `.maxnreg` says it, and so does a block size (`.reqntid`, `.maxntid`) together with `.minnctapersm`: as many as fit.
    A block size alone is enough where the kernel has an MMA so large that two CTAs do not fit an SM. It is never more
    than the largest count an `inc` asks for ("the largest temporal register count" of ptxas' error C7406).
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
    """The largest count that `setmaxnreg.inc` asks for; MOST where none does."""
    counts = [
        operand.value
        for operation in code.operations
        if any(isinstance(effect, Takes) and effect.pool == "registers" for effect in operation.effects)
        for operand in operation.instruction.operands
        if isinstance(operand, Integer)
    ]
    return max(counts, default=MOST)


def _largest_product(code: Image) -> int:
    """Registers that ptxas wants for the largest MMA of a kernel; 0 where there is none."""
    return max(
        (
            BESIDE_ACCUMULATORS
            + sum(len(operand.elements) for operand in operation.instruction.operands if isinstance(operand, Vector))
            for operation in code.operations
            if operation.bound is not None and operation.bound.match.form.converged == "warpgroup"
        ),
        default=0,
    )
