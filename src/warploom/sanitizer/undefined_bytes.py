"""Which bytes of a result come from which bytes of the sources, for instructions that only move bytes.

These are mov between a register and a vector of parts, integer conversions that keep the low bytes, and shifts by
whole bytes. Packed types are computed element by element. For all other instructions each byte depends on all bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..asm.nodes import Integer, Operand, Register, Vector
from ..emulator.machine.scopes import registers_named
from ..isa import dtypes

if TYPE_CHECKING:
    from ..emulator.machine.operation import Operation
    from ..emulator.machine.registers import Row

Move = tuple[int, int, int, int, int]
PACKED = {"f32x2": 4, "f16x2": 2, "bf16x2": 2}
ELEMENTWISE = ("add", "sub", "mul", "fma", "min", "max", "neg", "abs", "ex2", "tanh")
_INTEGERS = ("u8", "s8", "b8", "u16", "s16", "b16", "u32", "s32", "b32", "u64", "s64", "b64", "b128")


def element(operation: Operation) -> int:
    """Bytes of an element if the instruction computes a packed type element by element; otherwise 0."""
    word, *rest = operation.instruction.opcode.split(".")
    return PACKED.get(rest[-1], 0) if rest and word in ELEMENTWISE else 0


def moves(operation: Operation, numbers: dict[Row, int]) -> tuple[Move, ...]:
    """What an instruction moves between the numbered registers; empty if it does more than move.

    Each entry: the register read, its first byte, the register written, the first byte there, the number of bytes.
    """
    word, *rest = operation.instruction.opcode.split(".")
    operands = operation.instruction.operands
    if word == "mov" and rest and len(operands) == 2 and rest[-1] in _INTEGERS:
        return _between(operation, operands[0], operands[1], _bytes(rest[-1]), numbers)
    if word == "cvt" and len(rest) == 2 and all(kind in _INTEGERS for kind in rest):
        count, source = _bytes(rest[0]), _bytes(rest[1])
        if count <= source:
            return _piece(operation, operands[1], 0, operands[0], 0, count, numbers)
    if word in ("shl", "shr") and rest and rest[-1][0] in "bu" and isinstance(operands[2], Integer):
        width, by = _bytes(rest[-1]), operands[2].value
        if by % 8 == 0 and 0 < by < 8 * width:
            by //= 8
            first, to = (by, 0) if word == "shr" else (0, by)
            return _piece(operation, operands[1], first, operands[0], to, width - by, numbers)
    return ()


def _between(
    operation: Operation, target: Operand, source: Operand, width: int, numbers: dict[Row, int]
) -> tuple[Move, ...]:
    """The moves of a mov of `width` bytes; either side may be a vector of parts."""
    if isinstance(source, Vector) and isinstance(target, Register):
        size = width // len(source.elements)
        return tuple(
            move for at, part in enumerate(source.elements)
            for move in _piece(operation, part, 0, target, at * size, size, numbers)
        )  # fmt: skip
    if isinstance(target, Vector) and isinstance(source, Register):
        size = width // len(target.elements)
        return tuple(
            move for at, part in enumerate(target.elements)
            for move in _piece(operation, source, at * size, part, 0, size, numbers)
        )  # fmt: skip
    return _piece(operation, source, 0, target, 0, width, numbers)


def _piece(
    operation: Operation, source: Operand, first: int, target: Operand, to: int, count: int, numbers: dict[Row, int]
) -> tuple[Move, ...]:
    """One move, if both registers are numbered: the result may then be undefined."""
    read, written = _number(operation, source, numbers), _number(operation, target, numbers)
    return () if read < 0 or written < 0 else ((read, first, written, to, count),)


def _number(operation: Operation, operand: Operand, numbers: dict[Row, int]) -> int:
    rows = registers_named(operation.scope, operand)
    return numbers.get(rows[0][0], -1) if len(rows) == 1 else -1


def _bytes(kind: str) -> int:
    return dtypes.ALL[kind].bits // 8
