"""Does a step of a butterfly reduction give the same number whichever lane's values come first?

    shfl.sync.bfly.b32 %f3, %f1, 1, 31, -1;     %f3, %f4: the partner's mean and count
    shfl.sync.bfly.b32 %f4, %f2, 1, 31, -1;
    add.f32 %f5, %f2, %f4;
    div.full.f32 %f6, %f4, %f5;
    sub.f32 %f7, %f3, %f1;
    fma.rn.f32 %f8, %f7, %f6, %f1;              the mean of both: the same number in both lanes, up to rounding

The text between the exchanges and the result is a formula in the values of a lane and of its partner. It is computed
for a few numbers and for the same with the two lanes exchanged: if the results agree, both lanes have one number.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping

from ..asm.constants import number
from ..asm.nodes import Float, Integer, Operand
from ..emulator.machine.operation import Operation

TRIALS = 4
TOLERANCE = 1e-9
FORMULAS: dict[str, Callable[..., float]] = {
    "mov": lambda a: a, "cvt": lambda a: a, "neg": lambda a: -a, "abs": abs,
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
    "fma": lambda a, b, c: a * b + c, "mad": lambda a, b, c: a * b + c,
    "min": min, "max": max, "selp": lambda a, b, chosen: a if chosen else b,
    "sqrt": math.sqrt, "rsqrt": lambda a: 1 / math.sqrt(a), "rcp": lambda a: 1 / a,
    "ex2": lambda a: 2.0**a, "lg2": math.log2, "tanh": math.tanh,
}  # fmt: skip
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip
Writer = Callable[[Operand, Operation], "Operation | None"]


def in_either_order(result: Operation, partners: Mapping[int, int], writer: Writer) -> bool:
    """True if the result of an operation does not depend on which of two lanes is which.

    partners: of a lane's own values, the pc of what writes each -> that of its exchange. writer: what writes an operand
    that an operation reads.
    """
    draw = random.Random(0)
    for _ in range(TRIALS):
        own = {pc: draw.uniform(0.5, 2) for pc in partners}
        other = {pc: draw.uniform(0.5, 2) for pc in partners}
        first, second = (
            _value(result, {**mine, **{partners[pc]: value for pc, value in theirs.items()}}, writer)
            for mine, theirs in ((own, other), (other, own))
        )
        if first is None or second is None or not math.isclose(first, second, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            return False
    return True


def _value(operation: Operation, known: dict[int, float], writer: Writer) -> float | None:
    """The result of an operation where some results are known, by pc; None where the text does not say it."""
    if operation.pc in known:
        return known[operation.pc]
    modifiers = operation.instruction.modifiers
    formula = FORMULAS.get(modifiers[0]) or (COMPARISONS.get(modifiers[1]) if modifiers[0] == "setp" else None)
    if formula is None or operation.guard >= 0:
        return None
    numbers = []
    for operand in operation.instruction.operands[1:]:
        if isinstance(operand, (Integer, Float)):
            numbers.append(float(operand.value if isinstance(operand, Integer) else number(operand)))
            continue
        written = writer(operand, operation)
        value = None if written is None else _value(written, known, writer)
        if value is None:
            return None
        numbers.append(value)
    try:
        known[operation.pc] = formula(*numbers)
    except (ArithmeticError, TypeError, ValueError):
        return None
    return known[operation.pc]
