"""Does a step of a butterfly reduction give the same number in both of the lanes that exchange their values?

    shfl.sync.bfly.b32 %f3, %f1, 1, 31, -1;     %f3, %f4: the partner's mean and count
    shfl.sync.bfly.b32 %f4, %f2, 1, 31, -1;
    add.f32 %f5, %f2, %f4;
    div.full.f32 %f6, %f4, %f5;
    sub.f32 %f7, %f3, %f1;
    fma.rn.f32 %f8, %f7, %f6, %f1;              the mean of both: the same number in both lanes, up to rounding

The text is a formula in what each of the two lanes had before. It is computed for both lanes and for a few numbers
that are drawn: if the results agree, the lanes have one number whatever they had.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Container, Hashable
from dataclasses import dataclass, field

from ..asm.constants import number
from ..asm.nodes import Float, Integer, Operand
from ..emulator.machine.operation import Operation

TRIALS = 4
TOLERANCE = 1e-9
MANY = 512
"""Results in a formula beyond which it is not computed."""
LEAST_BITS = 1 << 23
"""`mov.b32 %f1, 1065353216` moves 1.0: integers from here on are taken for the bits of a number."""
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


@dataclass(frozen=True)
class Step:
    """An exchange at a distance. writer: what writes an operand that an operation reads, or None; place: a name for the
    operand's value where that is None; distance_of: of an exchange, 0 for others; drawn: results that are not computed.
    """

    distance: int
    writer: Callable[[Operand, Operation], Operation | None]
    place: Callable[[Operand, Operation], Hashable]
    distance_of: Callable[[Operation], int]
    drawn: Container[int] = ()

    def same_in_both(self, result: Operation) -> bool:
        """True if an operation has one result in the two lanes."""
        draw = random.Random(0)
        for _ in range(TRIALS):
            lanes = _Lanes(self, draw)
            try:
                first, second = lanes.result(result, 0), lanes.result(result, 1)
            except (ArithmeticError, TypeError, ValueError, OverflowError):
                return False
            if not math.isclose(first, second, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
                return False
        return True


@dataclass
class _Lanes:
    """What the results and other values are in each of two lanes."""

    step: Step
    draw: random.Random
    known: dict[Hashable, float] = field(default_factory=dict)

    def result(self, operation: Operation, lane: int) -> float:
        """Raises ValueError if the formula is too long."""
        key = operation.pc, lane
        if key not in self.known:
            if len(self.known) > MANY:
                raise ValueError
            self.known[key] = self._computed(operation, lane)
        return self.known[key]

    def _computed(self, operation: Operation, lane: int) -> float:
        modifiers, operands = operation.instruction.modifiers, operation.instruction.operands[1:]
        if self.step.distance_of(operation) == self.step.distance:
            return self._operand(operands[0], operation, 1 - lane)
        formula = FORMULAS.get(modifiers[0]) or (COMPARISONS.get(modifiers[1]) if modifiers[0] == "setp" else None)
        if formula is None or operation.guard >= 0 or operation.pc in self.step.drawn:
            return self._drawn((operation.pc, lane))
        return formula(*(self._operand(operand, operation, lane) for operand in operands))

    def _operand(self, operand: Operand, reader: Operation, lane: int) -> float:
        if isinstance(operand, Integer):
            typed_by_bits = reader.instruction.modifiers[-1] == "b32" and abs(operand.value) >= LEAST_BITS
            return float(number(Float(operand.value & 0xFFFFFFFF, 32)) if typed_by_bits else operand.value)
        if isinstance(operand, Float):
            return float(number(operand))
        written = self.step.writer(operand, reader)
        if written is None:
            return self._drawn((self.step.place(operand, reader), lane))
        return self.result(written, lane)

    def _drawn(self, key: Hashable) -> float:
        return self.known.setdefault(key, self.draw.uniform(0.5, 2))
