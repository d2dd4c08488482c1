"""Addresses in tensor memory as operands: a register plus a number of columns, and tiles of several columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..asm import nodes
from ..isa import dtypes
from ..isa.dtypes import DType
from .emit import Operand, issue
from .shared import unsigned
from .tensor_lanes import quarter
from .trace import Trace
from .typed import typed
from .values import Register

if TYPE_CHECKING:
    from .tensor_memory import TensorMemory


class TensorAddress(Operand):
    """An address in tensor memory: a register plus a constant number of columns; `[%r1+32]` in an instruction.

    `address + n` is n columns further, n an int or a register. `dtype`: type of the elements there, if known;
    `rows`: rows of A or B whose scale factors are there, if they are scale factors.
    """

    def __init__(self, base: Register, column: int = 0, dtype: DType | None = None, rows: int = 0) -> None:
        self.trace, self.base, self.column, self.dtype, self.rows = base.trace, base, column, dtype, rows
        self.code: Any = ("[", base.code)

    def operand(self, trace: Trace, kind: str) -> nodes.Operand:
        if kind != "address":
            return self.register().node
        return nodes.Address(self.base.node, self.column)

    def register(self) -> Register:
        """The address as a b32 register (add.u32 if it has a constant part)."""
        return moved(self.base, self.column) if self.column else self.base

    @typed
    def shift(self, columns: int | Register) -> TensorAddress:
        """The address `columns` columns further."""
        if isinstance(columns, Register):
            return TensorAddress(moved(self.register(), unsigned(columns)), 0, self.dtype, self.rows)
        return TensorAddress(self.base, self.column + columns, self.dtype, self.rows)

    __add__ = shift

    def mine(self) -> TensorAddress:
        """This address in the quarter of lanes that the thread's warp can access, for its loads and stores."""
        return TensorAddress(moved(self.base, quarter(self.trace)), self.column, self.dtype, self.rows)

    def __repr__(self) -> str:
        return f"TensorAddress({self.base.name}+{self.column})"


def in_tensor_memory(address: TensorAddress | Register) -> TensorAddress:
    """An address as `tcgen05.alloc` wrote it, in a register, as a TensorAddress; others as they are."""
    return address if isinstance(address, TensorAddress) else TensorAddress(address)


def moved(base: Register, amount: int | Register) -> Register:
    """base + amount as an address in tensor memory (add.u32)."""
    result = Register(base.trace, dtypes.b32)
    issue("add.u32", result, base, amount, trace=base.trace)
    return result


class TensorTile:
    """A number of buffers of the same columns; `tile[i]` is the address of one, `i` an int or a register.

    Attributes:
        memory: the allocation; start: its first column there.
        columns: columns per buffer.
        buffers: the number of buffers.
        dtype: type of the elements, if known.
        rows: of scale factors, the rows of A or B that they are for; else 0.
    """

    def __init__(
        self, memory: TensorMemory, start: int, columns: int, buffers: int, dtype: DType | None = None, rows: int = 0
    ) -> None:
        self.memory, self.start, self.columns, self.buffers, self.dtype = memory, start, columns, buffers, dtype
        self.rows = rows

    def __len__(self) -> int:
        return self.buffers

    def __getitem__(self, index: int | Register) -> TensorAddress:
        """The address of buffer `index` (mad.lo.u32 for a register)."""
        trace, base = self.memory.trace, self.memory.base
        if isinstance(index, Register):
            result = Register(trace, dtypes.b32)
            issue("mad.lo.u32", result, unsigned(index), self.columns, base, trace=trace)
            return TensorAddress(result, self.start, self.dtype, self.rows)
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < self.buffers:
            raise trace.error("no such buffer", expected=f"0 to {self.buffers - 1}", got=repr(index))
        return TensorAddress(base, self.start + index * self.columns, self.dtype, self.rows)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.columns} columns from {self.start}, buffers={self.buffers})"
