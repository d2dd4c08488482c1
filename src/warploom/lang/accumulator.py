"""D of an MMA in tensor memory, and the rows of it that threads load and store.

Each thread of a warpgroup holds consecutive columns of one row. Its row and its first column depend on the layout
(`isa.tensor_memory.DataPath`); the fragment has both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from ..isa import dtypes
from ..isa.dtypes import DType
from ..isa.tensor_memory import DataPath
from .arrays import RegisterArray
from .special import special
from .tcgen05_copies import load, store
from .tensor_address import TensorAddress, TensorTile
from .tensor_lanes import own_lane
from .typed import typed
from .values import Register


class TensorFragment:
    """A thread's part of an accumulator: consecutive columns of one row. `part[i]` is a register, `part[i:j]` several.

    Attributes:
        registers: one per column; for f16 accumulators, one per two columns.
        row: row of D, as a register.
        column: column of D of the first register: an int, or a register if lanes hold different columns.
    """

    def __init__(self, registers: RegisterArray, row: Register, column: Register | int) -> None:
        self.registers, self.row, self.column = registers, row, column

    def __len__(self) -> int:
        return len(self.registers)

    @overload
    def __getitem__(self, index: int) -> Register: ...
    @overload
    def __getitem__(self, index: slice) -> RegisterArray: ...
    def __getitem__(self, index: int | slice) -> Register | RegisterArray:
        return self.registers[index]


class Accumulator(TensorTile):
    """D of MMAs, in one or more buffers; `acc[i]` is one buffer, `i` an int or a register.

    Attributes:
        path: the layout.
        m, n: extents of D, of the whole pair; element: its type.
    """

    def __init__(self, memory: Any, start: int, path: DataPath, n: int, dtype: DType, buffers: int) -> None:
        super().__init__(memory, start, path.columns(n), buffers, dtype)
        self.path, self.m, self.n, self.element = path, path.m, n, dtype

    def __getitem__(self, index: int | Register) -> AccumulatorBuffer:
        return AccumulatorBuffer(self, super().__getitem__(index))

    def __getattr__(self, name: str) -> Any:
        """Raise an error; for attributes of a buffer, one with a hint to index the accumulator."""
        if name in ("load", "store", "place", "width", "mine"):
            raise self.memory.trace.error(
                f"`{name}` belongs to one buffer of an accumulator", hint=f"index it: acc[0].{name}"
            )
        raise AttributeError(f"{type(self).__name__} has no {name}")


class AccumulatorBuffer(TensorAddress):
    """One accumulator.

    Attributes:
        of: the Accumulator that contains this buffer.
    """

    def __init__(self, of: Accumulator, address: TensorAddress) -> None:
        super().__init__(address.base, address.column)
        self.of = of

    @property
    def width(self) -> int:
        """Columns of D that one thread can access."""
        path = self.of.path
        return path.columns(self.of.n) // (2 if path.spread else 1)

    @typed
    def load(self, start: int = 0, count: int | None = None) -> TensorFragment:
        """tcgen05.ld of `count` of the thread's columns, beginning at column `start`, into new registers.

        All four warps of a warpgroup call it; each loads its quarter of the lanes. Asynchronous: call
        `ptx.tcgen05.wait_ld` before using the order. f16 accumulators are packed, two columns per register.
        """
        count = self._count(start, count)
        packed = self.of.element is dtypes.f16
        dtype = dtypes.f16x2 if packed else self.of.element
        registers = load(self.mine() + start, count // (2 if packed else 1), dtype, packed=packed, split=self._split)
        return self._fragment(registers, start)

    @typed
    def store(self, values: RegisterArray | Sequence[Register], start: int = 0) -> None:
        """tcgen05.st of registers to the thread's columns, beginning at column `start`; the inverse of `load`."""
        packed = self.of.element is dtypes.f16
        self._count(start, len(values) * (2 if packed else 1))
        store(self.mine() + start, values, packed=packed, split=self._split)

    def place(self) -> tuple[Register, Register | int]:
        """Row and first column of this thread, counted from the thread's column 0."""
        return self._row(), self._column()

    # -- the thread's cells --------------------------------------------------------------------------------------

    @property
    def _split(self) -> int | None:
        return self.width if self.of.path.spread else None

    def _count(self, start: int, count: int | None) -> int:
        count = self.width - start if count is None else count
        if start < 0 or count < 1 or start + count > self.width:
            raise self.trace.error(
                "a thread does not have these columns of the accumulator",
                expected=f"columns 0 to {self.width - 1} (layout {self.of.path.name})",
                got=f"{count} from {start}",
            )
        return count

    def _fragment(self, registers: RegisterArray, start: int) -> TensorFragment:
        column = self._column()
        return TensorFragment(registers, self._row(), column + start if start else column)

    def _row(self) -> Register:
        path, lane = self.of.path, own_lane(self.trace)
        if path.spread:
            row = (lane >> 5 << 4) + (lane & 15)
        elif path.parts > 1:
            row = lane & (path.rows - 1)
        else:
            row = lane
        return row + (special.cluster_ctarank() & 1) * path.rows if path.group == 2 else row

    def _column(self) -> Register | int:
        path = self.of.path
        if path.spread:
            return (own_lane(self.trace) >> 4 & 1) * self.width
        if path.parts > 1:
            return own_lane(self.trace) // path.rows * self.width
        return 0
