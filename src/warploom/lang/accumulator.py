"""A product's D in tensor memory, and the rows of it that threads load and store.

Each thread of a warpgroup holds columns of one row, in order: which row and from which column on depends on the layout
(`isa.tensor_memory.DataPath`), and the fragment says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..isa import dtypes
from ..isa.dtypes import DType
from ..isa.tensor_memory import LANE_SHIFT, LANES, QUARTER, DataPath
from .arrays import RegisterArray
from .emit import issue
from .special import special
from .tcgen05_copies import load, store
from .tensor_address import TensorAddress, TensorTile, moved
from .trace import Trace
from .values import Register

_WARPS = LANES - QUARTER
"""The bits of a lane that say whose quarter it is in."""


class TensorFragment:
    """What a thread holds of an accumulator: consecutive columns of one row.

    Attributes:
        registers: one for each column; for f16 accumulators one for two columns.
        row: of D, as a register.
        column: of D, of the first register: an int, or a register where lanes hold different columns.
    """

    def __init__(self, registers: RegisterArray, row: Register, column: Register | int) -> None:
        self.registers, self.row, self.column = registers, row, column

    def __len__(self) -> int:
        return len(self.registers)


class Accumulator(TensorTile):
    """D of products, in one or more buffers; `acc[i]` is one of them, `i` an int or a register.

    Attributes:
        path: the layout.
        m, n: extents of D, of the whole pair; element: its type.
    """

    def __init__(self, memory: Any, start: int, path: DataPath, n: int, dtype: DType, buffers: int) -> None:
        super().__init__(memory, start, path.columns(n), buffers, dtype)
        self.path, self.m, self.n, self.element = path, path.m, n, dtype

    def __getitem__(self, index: int | Register) -> AccumulatorBuffer:
        return AccumulatorBuffer(self, super().__getitem__(index))


class AccumulatorBuffer(TensorAddress):
    """One accumulator.

    Attributes:
        of: the Accumulator that it is a buffer of.
    """

    def __init__(self, of: Accumulator, address: TensorAddress) -> None:
        super().__init__(address.base, address.column)
        self.of = of

    @property
    def width(self) -> int:
        """Columns of D that one thread reaches."""
        path = self.of.path
        return path.columns(self.of.n) // (2 if path.spread else 1)

    def load(self, start: int = 0, count: int | None = None) -> TensorFragment:
        """tcgen05.ld of `count` of the thread's columns from the `start`-th on, into fresh registers.

        All four warps of a warpgroup call it, each loads its quarter of the lanes. Asynchronous: `ptx.tcgen05.wait_ld`
        before anybody relies on the order. f16 accumulators are packed, two columns to a register.
        """
        count = self._count(start, count)
        packed = self.of.element is dtypes.f16
        dtype = dtypes.f16x2 if packed else self.of.element
        registers = load(self._mine() + start, count // (2 if packed else 1), dtype, packed=packed, split=self._split)
        return self._fragment(registers, start)

    def store(self, values: RegisterArray | Sequence[Register], start: int = 0) -> None:
        """tcgen05.st of registers to the thread's columns from the `start`-th on; the inverse of `load`."""
        packed = self.of.element is dtypes.f16
        self._count(start, len(values) * (2 if packed else 1))
        store(self._mine() + start, values, packed=packed, split=self._split)

    def place(self) -> tuple[Register, Register | int]:
        """Row and first column of this thread, of the columns from the 0th on."""
        return self._row(), self._column()

    # -- which cells are mine ------------------------------------------------------------------------------------

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

    def _mine(self) -> TensorAddress:
        """This address in the lanes of the thread's warp."""
        return TensorAddress(moved(self.base, quarter(self.trace)), self.column)

    def _fragment(self, registers: RegisterArray, start: int) -> TensorFragment:
        column = self._column()
        return TensorFragment(registers, self._row(), column + start if start else column)

    def _row(self) -> Register:
        path, lane = self.of.path, _lane(self.trace)
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
            return (_lane(self.trace) >> 4 & 1) * self.width
        if path.parts > 1:
            return _lane(self.trace) // path.rows * self.width
        return 0


def _lane(trace: Trace) -> Register:
    """The lane that a thread of a warpgroup stands for: its number modulo 128 (and.b32 in the prologue)."""

    def make() -> Register:
        _one_dimension(trace)
        result = Register(trace, dtypes.u32, constant=True)
        issue("and.b32", Register(trace, dtypes.u32, name=result.name), special.tid.x(), LANES - 1, trace=trace)
        return result

    return trace.once("lane of tensor memory", make)


def quarter(trace: Trace) -> Register:
    """The address of lane 0 of the quarter that a warp reaches (and.b32, shl.b32 in the prologue)."""

    def make() -> Register:
        _one_dimension(trace)
        result = Register(trace, dtypes.b32, constant=True)
        writable = Register(trace, dtypes.b32, name=result.name)
        issue("and.b32", writable, special.tid.x(), _WARPS, trace=trace)
        issue("shl.b32", writable, writable, LANE_SHIFT, trace=trace)
        return result

    return trace.once("quarter of tensor memory", make)


def _one_dimension(trace: Trace) -> None:
    if trace.protocol.block[1:] != (1, 1):
        raise trace.error(
            "which lanes a warp reaches follows from tid.x alone here",
            expected="a block along x",
            got=f"block={trace.protocol.block}",
            hint="address the lanes with ptx.tcgen05.ld",
        )
