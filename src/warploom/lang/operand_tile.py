"""Tiles of MMA operands in shared memory: stages, slices, and their matrix descriptors.

`smem.wgmma_tile` makes a ring of stages. `tile[stage]` is one stage, `.k(i)` a slice one instruction deep and
`.rows(start, count)` some of its rows. Each is an address for TMA and a descriptor for the matrix unit. An index or a
start in a register is read where the expression is written: the register may change afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..asm import nodes
from ..isa import dtypes
from ..isa.descriptors import ADDRESS_MASK
from ..isa.dtypes import DType
from ..isa.shared_layout import SharedLayout
from .emit import issue
from .protocol import Buffer
from .shared import Index, SharedAddress, allocate, base_register, indexed, unsigned
from .trace import Trace
from .typed import typed
from .values import Register


@dataclass(frozen=True)
class _Origin:
    """The origin of a slice's constant offset.

    Attributes:
        offset, base: the address: an offset from `smem`, or from a register.
        descriptor: the origin's descriptor; None for a constant origin, whose descriptor follows from the tile's.
    """

    offset: int
    base: Register | None = None
    descriptor: Register | None = None


class TileSlice(SharedAddress):
    """A part of an operand tile: an address, and the parameters of its matrix descriptor.

    Attributes:
        tile, layout: the tile that contains it, and the tile's layout.
        rows_count, k_size: extents in elements.
    """

    def __init__(
        self, tile: OperandTile, origin: _Origin, row: int = 0, rows: int | None = None,
        k_start: int = 0, k_size: int | None = None,
    ) -> None:  # fmt: skip
        layout = tile.layout
        self.tile, self.layout = tile, layout
        self._origin, self._row, self._k_start = origin, row, k_start
        self.rows_count = layout.rows if rows is None else rows
        self.k_size = layout.k if k_size is None else k_size
        inside = layout.row_offset(row, rows) if row or rows is not None else 0
        self._inside = inside + (layout.k_offset(k_start) if k_start else 0)
        super().__init__(tile.trace, origin.offset + self._inside, origin.base)

    def __repr__(self) -> str:
        return f"TileSlice({self.tile.buffer.name}, {self.rows_count} x {self.k_size})"

    def k(self, i: int, width: int = 1) -> TileSlice:
        """The i-th slice, one instruction deep (32 bytes of k); `width` 2: the B of a sparse A, 64 bytes."""
        if width not in (1, 2):
            raise self.trace.error("a slice is one or two instructions deep", expected="width 1 or 2", got=width)
        depth = self.layout.instruction_k * width
        if not isinstance(i, int) or not 0 <= i < self.k_slices // width:
            raise self.trace.error("no such k-slice", expected=f"0 to {self.k_slices // width - 1}", got=repr(i))
        return TileSlice(self.tile, self._origin, self._row, self.rows_count, self._k_start + i * depth, depth)

    @typed
    def first_k(self, k: int) -> TileSlice:
        """The first `k` elements of k, if a tile is deeper than its contents because its swizzle is wider."""
        if not 0 < k <= self.k_size or k % self.layout.instruction_k:
            raise self.trace.error(
                "no such part in k", expected=f"a multiple of {self.layout.instruction_k} up to {self.k_size}", got=k
            )
        return TileSlice(self.tile, self._origin, self._row, self.rows_count, self._k_start, k)

    @property
    def k_slices(self) -> int:
        """The depth of the slice, in instructions."""
        return self.k_size // self.layout.instruction_k

    @typed
    def rows(self, start: Index, count: int) -> TileSlice:
        """`count` rows (of m or n), beginning at row `start` of this slice.

        For K-major tiles, `start` may be a register, which must be a multiple of 8 at run time (mad.lo.u32 for the
        address, mad.wide.u32 for the descriptor).
        """
        last = self.rows_count - count
        if count < 1 or last < 0 or (not isinstance(start, Register) and not 0 <= start <= last):
            raise self.trace.error("this part of a tile has no such rows", expected=f"0 to {self.rows_count - 1}",
                                   got=f"{count} from {start}")  # fmt: skip
        if not isinstance(start, Register):
            return TileSlice(self.tile, self._origin, self._row + start, count, self._k_start, self.k_size)
        if self.layout.major != "K":
            raise self.trace.error(
                "rows of an MN-major tile are selected by a Python int",
                got=repr(start),
                consequence="a descriptor cannot start at any row of a panel",
            )
        pitch, row = self.layout.swizzle.span, unsigned(start)
        base, descriptor = Register(self.trace, dtypes.u32), Register(self.trace, dtypes.b64)
        here = TileSlice(self.tile, self._origin)
        issue("mad.lo.u32", base, row, pitch, here.register(), trace=self.trace)
        issue("mad.wide.u32", descriptor, row, pitch >> 4, here.descriptor(), trace=self.trace)
        return TileSlice(self.tile, _Origin(0, base, descriptor), self._row, count, self._k_start, self.k_size)

    @property
    def bytes(self) -> int:
        """Bytes that TMA reports when it has filled this slice."""
        return self.rows_count * self.k_size * self.layout.dtype.bytes

    def coordinates(self, row: Index, k: Index, box: Any = None) -> tuple[Any, Any]:
        """Coordinates in the tensor map, innermost first, of a tile that begins at (row, k) of its operand.

        `box`: one of the layout's boxes (`layout.boxes`), instead of the whole tile.
        """
        first = [k, row] if self.layout.major == "K" else [row, k]
        for axis, step in enumerate(box.coordinates if box is not None else ()):
            if step:
                first[axis] = first[axis] + step
        return first[0], first[1]

    def descriptor(self) -> Register:
        """The matrix descriptor, a b64 register (PTX ISA 9.7.15.5.1.2.2): the origin's plus offset / 16 (add.s64)."""
        start, moved = self._origin.descriptor, self._inside
        if start is None:
            start, moved = self.tile.base_descriptor(), self.offset - self.tile.buffer.offset
        if not moved:
            return start
        result = Register(self.trace, dtypes.b64)
        issue("add.s64", result, start, moved >> 4, trace=self.trace)
        return result


class OperandTile:
    """A ring of tiles of one MMA operand; `tile[stage]` is one of them, `stage` an int or a register.

    Passed whole to `ptx.wgmma.mma_async`, it means stage 0.
    """

    def __init__(self, trace: Trace, buffer: Buffer, layout: SharedLayout, stages: int) -> None:
        self.trace, self.buffer, self.layout, self.stages = trace, buffer, layout, stages
        self.stage_bytes = buffer.size // stages
        self.dtype = layout.dtype

    def __repr__(self) -> str:
        return (
            f"OperandTile({self.buffer.name}, {self.layout.rows} x {self.layout.k} {self.dtype}, stages={self.stages})"
        )

    @property
    def bytes(self) -> int:
        """Bytes of one stage, which TMA reports to the barrier when it has filled the stage."""
        return self.layout.bytes

    def __getitem__(self, stage: Index) -> TileSlice:
        trace = self.trace
        offset, base = indexed(trace, self.buffer.offset, stage, self.stage_bytes, self.stages, self.buffer.name)
        if not isinstance(stage, Register):
            return TileSlice(self, _Origin(offset))
        descriptor = Register(trace, dtypes.b64)
        index = unsigned(stage)
        issue("mad.wide.u32", descriptor, index, self.stage_bytes >> 4, self.base_descriptor(), trace=trace)
        return TileSlice(self, _Origin(offset, base, descriptor))

    def __len__(self) -> int:
        return self.stages

    def __getattr__(self, name: str) -> Any:
        """Raise an error; for attributes of a stage, one with a hint to index the tile."""
        if name in ("k", "k_slices", "first_k", "rows", "coordinates"):
            raise self.trace.error(f"`{name}` is of one stage of {self.buffer.name}", hint=f"index it: tile[0].{name}")
        raise AttributeError(f"{type(self).__name__} has no {name}")

    def base_descriptor(self) -> Register:
        """The descriptor of stage 0, computed in the prologue.

        Its address is truncated to 18 bits, divided by 16, and ORed with the layout's constant bits (and.b32, shr.u32,
        cvt, or.b64).
        """
        trace = self.trace

        def make() -> Register:
            address, wide = Register(trace, dtypes.u32), Register(trace, dtypes.b64)
            result = Register(trace, dtypes.b64, constant=True)
            base = base_register(trace, self.buffer.offset)
            trace.emit("and.b32", address.node, base.node, nodes.Integer(ADDRESS_MASK))
            trace.emit("shr.u32", address.node, address.node, nodes.Integer(4))
            trace.emit("cvt.u64.u32", wide.node, address.node)
            trace.emit("or.b64", result.node, wide.node, nodes.Integer(self.layout.descriptor_bits))
            return result

        return trace.once(("descriptor", self.buffer.offset, self.layout), make)

    def transposed(self) -> OperandTile:
        """The same memory as an operand with the other major: what was loaded as n x k is read as k x n.

        Panels and swizzle are the same for both (`SharedLayout`), so a tile can be an operand of two products. 16-bit
        types only, because wgmma transposes no others.
        """
        layout = self.layout
        other = "MN" if layout.major == "K" else "K"
        turned = SharedLayout.for_operand(layout.dtype, layout.k, layout.rows, other, layout.swizzle, layout.unit)
        return OperandTile(self.trace, self.buffer, turned, self.stages)


@typed
def tile(
    dtype: DType, shape: tuple[int, int], major: str = "K", stages: int = 1, swizzle: str | None = None,
    name: str = "", unit: str = "warpgroup",
) -> OperandTile:  # fmt: skip
    """`stages` swizzled tiles, each as a TMA box fills it: operands of a matrix unit, or results to be stored.

    Args:
        dtype: element type.
        shape: as stored, contiguous dimension last: (m or n, k) for major "K", (k, m or n) for major "MN".
        major: the contiguous dimension.
        stages: number of tiles, one after the other, each aligned for its swizzle.
        swizzle: "128B", "64B", "32B", "NONE"; by default the widest that divides the contiguous extent.
        unit: the unit that reads them: "warpgroup" (sm_90: `wgmma_tile`) or "tcgen05" (sm_100: `umma_tile`).

    Raises ArgumentError if no such layout exists.
    """
    layout, trace = operand_layout(dtype, shape, major, swizzle, unit), Trace.current()
    if not isinstance(stages, int) or stages < 1:
        raise trace.error("a tile needs a positive number of stages", got=repr(stages))
    stride = -(-layout.bytes // layout.alignment) * layout.alignment
    detail = f"{layout.dtype} {shape[0]} x {shape[1]} {layout.major}-major, swizzle {layout.swizzle.value}"
    buffer = allocate("tile", stride * stages, layout.alignment, name, detail, stages)
    span = layout.swizzle.span
    buffer.row_bytes, buffer.rows = span, layout.rows if layout.major == "K" else 0
    buffer.swizzle = span if layout.swizzle.mask else 0
    return OperandTile(trace, buffer, layout, stages)


def wgmma_tile(
    dtype: DType, shape: tuple[int, int], major: str = "K", stages: int = 1, swizzle: str | None = None, name: str = ""
) -> OperandTile:
    """`stages` tiles of an MMA operand, each as the TMA box of `Tile.wgmma_a/_b` fills it. Arguments as in `tile`."""
    return tile(dtype, shape, major, stages, swizzle, name)


def umma_tile(
    dtype: DType, shape: tuple[int, int], major: str = "K", stages: int = 1, swizzle: str | None = None, name: str = ""
) -> OperandTile:
    """`stages` tiles of an operand of `ptx.tcgen05.mma` (sm_100), each as the TMA box of `Tile.umma_a/_b` fills it.

    Arguments as in `tile`; MN-major tiles may also have 8-bit elements. In a CTA pair, each CTA has a tile of its own
    rows, at the same offset.
    """
    return tile(dtype, shape, major, stages, swizzle, name, "tcgen05")


def operand_layout(
    dtype: DType, shape: tuple[int, int], major: str, swizzle: Any = None, unit: str = "warpgroup"
) -> SharedLayout:
    """The shared-memory layout of a tile given as stored, contiguous dimension last."""
    rows, k = shape if major != "MN" else (shape[1], shape[0])
    return SharedLayout.for_operand(dtypes.of(dtype), rows, k, major, swizzle, unit)
