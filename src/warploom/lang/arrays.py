"""Several registers of one type under one name: accumulators and fragments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from ..asm import nodes
from .emit import Operand
from .trace import Trace
from .values import Number, Register


class RegisterArray(Operand):
    """A fixed number of registers of one type, indexed by Python integers; a braced list as an instruction's operand.

    `array[i] = value` overwrites a register, `array[a:b]` is the shorter array of the same registers.
    """

    def __init__(self, registers: Sequence[Register]) -> None:
        self.elements = tuple(registers)
        self.trace = registers[0].trace
        self.dtype = registers[0].dtype
        self.code = ("{}", *[register.code for register in registers])
        self._node = nodes.Vector(tuple([register.node for register in registers]))

    def operand(self, trace: Trace, kind: str) -> nodes.Operand:
        return self._node

    def __len__(self) -> int:
        return len(self.elements)

    def __iter__(self) -> Iterator[Register]:
        return iter(self.elements)

    @overload
    def __getitem__(self, index: int) -> Register: ...
    @overload
    def __getitem__(self, index: slice) -> RegisterArray: ...
    def __getitem__(self, index: int | slice) -> Register | RegisterArray:
        if isinstance(index, Register):
            raise self.trace.error(
                "registers cannot be indexed by a register",
                got=repr(index),
                hint="unroll with Python's range, or keep the values in shared memory",
                code="no-value-yet",
            )
        if isinstance(index, slice):
            return RegisterArray(self.elements[index])
        try:
            return self.elements[index]
        except IndexError:
            raise self.trace.error(
                "the index is outside the register array", expected=f"0 to {len(self) - 1}", got=index
            ) from None

    def __setitem__(self, index: int, value: Register | Number) -> None:
        target = self[index]
        if value is not target:  # `array[i] += x` has already written it
            target.set(value)

    def __repr__(self) -> str:
        return f"RegisterArray({len(self)} x {self.dtype}: {self.elements[0].name}..{self.elements[-1].name})"
