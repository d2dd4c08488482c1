"""Stores of sums that the lanes of a warp have reduced among themselves and that differ only by rounding.

    mul.f32 %f2, %f1, %f1;
    shfl.sync.bfly.b32 %f3, %f2, 16, 31, -1;
    fma.rn.f32 %f4, %f1, %f1, %f3;          a product is rounded in one lane and not in the other
    …                                       likewise with 8, 4, 2 and 1

If a compiler fuses multiplications with additions, the lanes' sums differ in their last bits. All may be stored to
one address, and any of them is a valid result. The text shows which lanes hold the same sum: their lane numbers
differ in bits that a butterfly exchange covered. Values computed from such sums, constants and parameters alone are
the same in those lanes, too, also by a function with branches such as a logarithm. So are those of other reductions,
such as means and variances by Welford's formula, if a lane and its partner combine their values in a way that does
not depend on the order of the two: `lane_steps`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Hashable
from dataclasses import dataclass, field

from ..asm.nodes import Float, Integer, Operand, Register, Vector
from ..emulator.machine.image import Image
from ..emulator.machine.operation import BRANCH, PLAIN, Operation
from ..emulator.machine.registers import Row
from ..emulator.machine.scopes import rows_named
from .lane_steps import MANY, Step
from .undefined_reads import read_and_written

ALL = 31
CALCULATING = (
    "add", "fma", "mad", "mov", "cvt", "sub", "mul", "div", "neg", "abs", "min", "max", "sqrt", "rsqrt", "rcp", "ex2",
    "lg2", "tanh", "sin", "cos", "setp", "selp", "and", "or", "xor", "not", "shl", "shr",
)  # fmt: skip
"""Opcodes whose results depend on their operands alone."""


def lane_sums(code: Image) -> dict[int, int]:
    """The indices (pc) of such stores -> the bits of lane numbers over which the value is a sum."""
    if all(operation.instruction.modifiers[0] != "shfl" for operation in code.operations):
        return {}
    text = _Text.of(code)
    found = {}
    for operation in code.operations:
        if operation.instruction.modifiers[0] == "st" and operation.kind == PLAIN:
            bits = text.alike(operation.instruction.operands[-1], operation)
            if bits:
                found[operation.pc] = bits
    return found


@dataclass
class _Text:
    """A kernel's operations, those that write each register, and where straight code is interrupted."""

    operations: list[Operation]
    writers: dict[Row, list[int]] = field(default_factory=dict)
    breaks: list[int] = field(default_factory=list)
    jumps: list[Operation] = field(default_factory=list)
    known: dict[int, int] = field(default_factory=dict)
    """What was found of the results of an operation (pc)."""

    @classmethod
    def of(cls, code: Image) -> _Text:
        text = cls(list(code.operations))
        entered = {target for operation in code.operations for target in operation.targets}
        for operation in code.operations:
            for row in read_and_written(operation)[1]:
                text.writers.setdefault(row, []).append(operation.pc)
            if operation.kind != PLAIN:
                text.breaks.append(operation.pc)
                text.jumps.append(operation)
            if operation.pc in entered:
                text.breaks.append(operation.pc - 1)
        text.breaks.sort()
        return text

    def alike(self, operand: Operand, reader: Operation) -> int:
        """The bits of lane numbers in which lanes with one value of an operand differ, up to rounding."""
        if isinstance(operand, Vector):
            bits = ALL
            for element in operand.elements:
                bits &= self.alike(element, reader)
            return bits
        if isinstance(operand, (Integer, Float)):
            return ALL
        written = self._writer(operand, reader)
        return self._after_jumps(operand, reader) if written is None else self._known(written)

    def _known(self, written: Operation) -> int:
        if written.pc not in self.known:
            self.known[written.pc] = 0  # a value that is made of itself
            self.known[written.pc] = self._made_by(written)
        return self.known[written.pc]

    def _after_jumps(self, operand: Operand, reader: Operation) -> int:
        """As `alike`, of a register that some ways of jumps write: what decides about those has to be alike, too."""
        row = _row(reader, operand)
        writers = self.writers.get(row, []) if row is not None else []
        jumps = self._forward(writers[0], reader.pc) if writers and writers[-1] < reader.pc else None
        if jumps is None:
            return 0
        bits = ALL
        for jump in jumps:
            if jump.instruction.guard is not None:
                bits &= self.alike(Register(jump.instruction.guard.register), jump)
        for pc in writers:
            bits &= self._known(self.operations[pc])
        return bits

    def _forward(self, first: int, last: int) -> list[Operation] | None:
        """The jumps of a stretch of text, if all go forward in it and none comes in from elsewhere."""
        inside = [jump for jump in self.jumps if first <= jump.pc < last]
        if any(jump.kind != BRANCH or jump.targets[0] <= jump.pc for jump in inside):
            return None
        entered = (target for jump in self.jumps if not first <= jump.pc < last for target in jump.targets)
        return None if any(first < target <= last for target in entered) else inside

    def _made_by(self, written: Operation) -> int:
        """As `alike`, of what an operation writes."""
        opcode, sources = written.instruction.modifiers[0], written.instruction.operands[1:]
        if written.guard >= 0:
            return 0
        if opcode == "ld":
            return ALL if "param" in written.instruction.modifiers else 0
        bits = ALL if opcode in CALCULATING else 0
        for source in sources:
            bits = bits and bits & self.alike(source, written)
        return bits or self._combined(written)

    def _combined(self, written: Operation) -> int:
        """As `alike`, of what a lane makes of values of its own and those of its partner."""
        partners = self._partners(written)
        if not partners:
            return 0
        distance = _distance(max(partners, key=lambda one: one.pc))
        own = self._exchanged(partners, distance)
        bits = ALL
        for partner in self._partners(written, own):  # earlier reductions do not matter
            if _distance(partner) == distance:
                bits &= distance | self.alike(partner.instruction.operands[1], partner)
        for drawn in (own, ()):  # if they are fused into the result, as products are, what they are made of
            if Step(distance, self._writer, self._place, _distance, drawn).same_in_both(written):
                return bits
        return 0

    def _exchanged(self, partners: list[Operation], distance: int) -> set[int]:
        """What writes the values that are exchanged at a distance."""
        found = (self._writer(one.instruction.operands[1], one) for one in partners if _distance(one) == distance)
        return {one.pc for one in found if one is not None}

    def _partners(self, written: Operation, ends: Collection[int] = ()) -> list[Operation]:
        """The exchanges nearest to an operation on the way back from it, which does not lead past `ends`."""
        found, seen, left = [], {written.pc, *ends}, [written]
        while left and len(seen) < MANY:
            reader = left.pop(0)
            for source in reader.instruction.operands[1:]:
                one = self._writer(source, reader)
                if one is None or one.pc in seen:
                    continue
                seen.add(one.pc)
                if _distance(one):
                    found.append(one)
                else:
                    left.append(one)
        return found

    def _place(self, operand: Operand, reader: Operation) -> Hashable:
        """Of an operand whose writer is not known: the same for all readers between two writes, or two jumps."""
        row = _row(reader, operand)
        writers = self.writers.get(row, []) if row is not None else []
        return str(operand), row, bisect_left(writers, reader.pc), bisect_left(self.breaks, reader.pc)

    def _writer(self, operand: Operand, reader: Operation) -> Operation | None:
        """What writes a register that is read, if that is the same for all who come there."""
        row = _row(reader, operand)
        writers = self.writers.get(row, []) if row is not None else []
        before = bisect_left(writers, reader.pc)
        if len(writers) == 1 and self.operations[writers[0]].instruction.modifiers[0] == "ld":
            return self.operations[writers[0]]
        if not before:
            return None
        latest = writers[before - 1]
        straight = bisect_left(self.breaks, latest) == bisect_left(self.breaks, reader.pc)
        if straight or (len(writers) == 1 and self._forward(latest, reader.pc) is not None):
            return self.operations[latest]
        return None


def _distance(operation: Operation) -> int:
    """The distance of an exchange between all lanes of a warp; 0 for anything else."""
    instruction = operation.instruction
    if instruction.modifiers[:3] != ("shfl", "sync", "bfly") or operation.guard >= 0 or len(instruction.operands) != 5:
        return 0
    _, _, distance, clamp, mask = instruction.operands
    if not (isinstance(distance, Integer) and isinstance(clamp, Integer) and isinstance(mask, Integer)):
        return 0
    return distance.value if clamp.value == ALL and mask.value & 0xFFFFFFFF == 0xFFFFFFFF else 0


def _row(operation: Operation, operand: Operand) -> Row | None:
    return next(iter(rows_named(operation.scope, operand)), None) if isinstance(operand, Register) else None
