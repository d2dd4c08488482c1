"""The layout of a matrix tile in shared memory that TMA can write and the matrix unit can read.

A tile is divided along its contiguous dimension into consecutive *panels* as wide as the swizzle's span. Each panel is
rows of `span` bytes, swizzled on the absolute address, and is one TMA box (or several, if it exceeds the box limit of
256 elements). The matrix unit reads it through a descriptor whose constant bits follow from the layout alone; moving
along k or to another block of rows only adds bytes to the start address.

    K-major tile, 128 x 128 bf16, swizzle 128B          MN-major tile, n 128, k 32, bf16
    panel 0: k 0..63    128 rows x 128 bytes            panel 0: n 0..63     32 rows (one per k) x 128 bytes
    panel 1: k 64..127  128 rows x 128 bytes            panel 1: n 64..127   32 rows (one per k) x 128 bytes
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import ArgumentError
from ..plural import counted
from . import instruction_descriptor, tcgen05_descriptor
from .descriptors import Descriptor
from .dtypes import DType
from .swizzle import OPERAND_SWIZZLES, Swizzle

BOX_LIMIT = 256
"""Maximum extent of a TMA box in one dimension, in elements."""
_TRANSPOSED = {"warpgroup": (16,), "tcgen05": (8, 16)}
"""Element widths, in bits, that a matrix unit reads MN-major."""


@dataclass(frozen=True)
class Box:
    """One TMA copy of a tile.

    Attributes:
        offset: byte offset of its destination in the tile.
        coordinates: first element relative to the tile's, innermost first.
        shape: elements, innermost first; the same for all boxes of a tile.
    """

    offset: int
    coordinates: tuple[int, int]
    shape: tuple[int, int]


@dataclass(frozen=True)
class SharedLayout:
    """A tile of one MMA operand in shared memory; made by `for_operand`.

    Attributes:
        dtype: element type.
        rows: extent in m or n.
        k: extent in k.
        major: "K" or "MN": the contiguous dimension.
        swizzle: NONE, B32, B64 or B128.
        unit: the unit whose descriptors it has: "warpgroup" or "tcgen05".
    """

    dtype: DType
    rows: int
    k: int
    major: str
    swizzle: Swizzle
    unit: str = "warpgroup"

    @classmethod
    def for_operand(
        cls, dtype: DType, rows: int, k: int, major: str = "K", swizzle: Swizzle | str | None = None,
        unit: str = "warpgroup",
    ) -> SharedLayout:  # fmt: skip
        """The layout of a rows x k tile.

        Without a `swizzle`, it takes the widest of 128B, 64B, 32B whose span divides the contiguous extent, or NONE if
        that extent is 16 bytes. Raises ArgumentError if no layout exists: a contiguous extent that is not a multiple of
        the span, another extent that is not a multiple of 8, or MN-major for element widths that the unit does not
        transpose: it transposes 16 bits for wgmma (PTX ISA 9.7.15.5.2), 8 and 16 for tcgen05 (9.7.16.10.3).
        """
        if major not in ("K", "MN"):
            raise ArgumentError("an operand's major is unknown", expected="'K' or 'MN'", got=major)
        if rows <= 0 or k <= 0:
            raise ArgumentError("a tile needs at least one element in each dimension", got=f"{rows} x {k}")
        if major == "MN" and dtype.bits not in _TRANSPOSED[unit]:
            raise ArgumentError(
                f"the tensor cores read {dtype} operands K-major only",
                expected=f"{' or '.join(map(str, _TRANSPOSED[unit]))}-bit elements for an MN-major tile",
                got=f"{dtype.bits}-bit elements",
                hint="store the array with k contiguous, or convert it to bf16",
            )
        inner, outer = (k, rows) if major == "K" else (rows, k)
        contiguous = inner * dtype.bytes
        if swizzle is None:
            fitting = [mode for mode in OPERAND_SWIZZLES if contiguous % mode.span == 0]
            if not fitting or (fitting[0] is Swizzle.NONE and contiguous != 16):
                raise ArgumentError(
                    f"no swizzle divides the {contiguous} contiguous bytes of a {major}-major {rows} x {k} tile",
                    expected="a multiple of 32 bytes, or exactly 16",
                    got=f"{counted(inner, 'element')} of {counted(dtype.bytes, 'byte')}",
                    hint=_shapes(dtype, unit) if major == "MN" else None,
                )
            swizzle = fitting[0]
        name = swizzle.value if isinstance(swizzle, Swizzle) else swizzle
        if name not in (known := [mode.value for mode in OPERAND_SWIZZLES]):
            raise ArgumentError("descriptors have no such swizzle", expected=" or ".join(known), got=repr(name))
        swizzle = Swizzle(name)
        if contiguous % swizzle.span:
            raise ArgumentError(
                f"swizzle {swizzle.value} needs a contiguous extent of a multiple of {swizzle.span} bytes",
                got=f"{counted(inner, 'element')} of {counted(dtype.bytes, 'byte')} = {contiguous} bytes",
            )
        if outer % 8:
            raise ArgumentError(
                f"the extent of a {major}-major tile in {'rows' if major == 'K' else 'k'} must be a multiple of 8",
                got=outer,
                consequence="its panels would not start where the swizzle pattern starts",
                hint=_shapes(dtype, unit) if major == "K" else None,
            )
        return cls(dtype, rows, k, major, swizzle, unit)

    # -- sizes ---------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, int]:
        return (self.rows, self.k)

    @property
    def inner(self) -> int:
        """Elements in the contiguous dimension."""
        return self.k if self.major == "K" else self.rows

    @property
    def outer(self) -> int:
        """Elements in the other dimension: rows of each panel."""
        return self.rows if self.major == "K" else self.k

    @property
    def bytes(self) -> int:
        """Bytes of the tile, which TMA reports to its mbarrier."""
        return self.rows * self.k * self.dtype.bytes

    @property
    def alignment(self) -> int:
        """Required alignment of the tile's address in bytes, for which the descriptor's base offset is 0."""
        return max(self.swizzle.repeat, 128)

    @property
    def panel_inner(self) -> int:
        """Elements of one panel in the contiguous dimension."""
        return self.swizzle.span // self.dtype.bytes

    @property
    def panel_bytes(self) -> int:
        return self.outer * self.swizzle.span

    @property
    def panels(self) -> int:
        """Number of panels."""
        return self.inner // self.panel_inner

    # -- TMA -----------------------------------------------------------------------------------------------------

    @property
    def box(self) -> tuple[int, int]:
        """Elements of one TMA box, innermost first."""
        pieces = -(-self.outer // BOX_LIMIT)
        while self.outer % pieces or (self.outer // pieces) % 8:
            pieces += 1
        return (self.panel_inner, self.outer // pieces)

    @property
    def boxes(self) -> tuple[Box, ...]:
        """The TMA copies that fill the tile, panel by panel."""
        shape = self.box
        return tuple(
            Box(panel * self.panel_bytes + row * self.swizzle.span, (panel * self.panel_inner, row), shape)
            for panel in range(self.panels)
            for row in range(0, self.outer, shape[1])
        )

    # -- the matrix descriptor -----------------------------------------------------------------------------------------

    @property
    def instruction_k(self) -> int:
        """Elements in k of one instruction: 32 bytes' worth."""
        return 32 // self.dtype.bytes

    @property
    def leading_offset(self) -> int:
        """The descriptor's leading byte offset. K-major swizzled layouts do not use it; 16 by convention."""
        if self.major == "K":
            return self.panel_bytes if self.swizzle is Swizzle.NONE else 16
        return 128 if self.swizzle is Swizzle.NONE else self.panel_bytes

    @property
    def stride_offset(self) -> int:
        """The descriptor's stride byte offset."""
        if self.major == "MN" and self.swizzle is Swizzle.NONE:
            return self.panel_bytes
        return 8 * self.swizzle.span

    def descriptor(self, start: int = 0) -> Descriptor | tcgen05_descriptor.Descriptor:
        """The descriptor of the tile at a shared-memory address."""
        kind = tcgen05_descriptor.Descriptor if self.unit == "tcgen05" else Descriptor
        return kind(start, self.leading_offset, self.stride_offset, self.swizzle)

    @property
    def descriptor_bits(self) -> int:
        """The descriptor with start address 0, to be ORed with (address >> 4)."""
        return self.descriptor().encode()

    def k_offset(self, k: int) -> int:
        """Bytes from the tile's start to the descriptor start of the slice that begins at element `k`.

        `k` is a multiple of 8 for MN-major tiles and of 16 bytes' worth for K-major ones; otherwise raises
        ArgumentError.
        """
        if not 0 <= k < self.k:
            raise ArgumentError("the slice starts outside the tile", expected=f"0 to {self.k - 1} in k", got=k)
        if self.major == "MN":
            if k % 8:
                raise ArgumentError("a slice in k of an MN-major tile starts at a multiple of 8", got=k)
            return k * self.swizzle.span
        panel, inside = divmod(k * self.dtype.bytes, self.swizzle.span)
        if inside % 16:
            raise ArgumentError(f"a slice in k starts at a multiple of {16 // self.dtype.bytes} elements", got=k)
        return panel * self.panel_bytes + inside

    def row_offset(self, row: int, rows: int | None = None) -> int:
        """Bytes from the tile's start to the descriptor start of the block of rows (m or n) that begins at `row`.

        K-major: `row` is a multiple of 8. MN-major: the block starts with a panel, or its `rows` rows are within one.
        Otherwise raises ArgumentError.
        """
        if not 0 <= row < self.rows or (rows is not None and row + rows > self.rows):
            raise ArgumentError(
                "the block of rows is outside the tile",
                expected=f"rows within 0 to {self.rows - 1}",
                got=f"{rows or ''} rows from {row}".strip(),
            )
        if self.major == "K":
            if row % 8:
                raise ArgumentError("a block of rows of a K-major tile starts at a multiple of 8", got=row)
            return row * self.swizzle.span
        panel, inside = divmod(row * self.dtype.bytes, self.swizzle.span)
        within = rows is not None and inside % 16 == 0 and inside + rows * self.dtype.bytes <= self.swizzle.span
        if inside and not within:
            raise ArgumentError(
                f"a block of rows of this MN-major tile starts at a multiple of {self.panel_inner}",
                got=row,
                consequence="a descriptor cannot step from the middle of one panel into the next",
            )
        return panel * self.panel_bytes + inside

    # -- pictures and tests ----------------------------------------------------------------------------------------

    def offsets(self, base: int = 0) -> np.ndarray:
        """Byte offset from the tile's start of every element: (rows, k) int64, for a tile at address `base`.

        These are the offsets that TMA writes: boxes packed row by row, then swizzled on the absolute address.
        """
        row, k = np.indices(self.shape, dtype=np.int64)
        inner, outer = (k, row) if self.major == "K" else (row, k)
        panel, inside = inner // self.panel_inner, inner % self.panel_inner
        plain = panel * self.panel_bytes + outer * self.swizzle.span + inside * self.dtype.bytes
        return self.swizzle.apply(base + plain) - base


def _shapes(dtype: DType, unit: str) -> str | None:
    """The m and n of products of a type, for errors in the rows of a tile; a tile does not say which of them it has."""
    kinds = instruction_descriptor.kinds_with(dtype.name) if unit == "tcgen05" else ()
    if not kinds:
        return None
    one, pair = (instruction_descriptor.shapes(kinds, group) for group in (1, 2))
    return f"tcgen05.mma takes {one}; in a pair of CTAs, each with half of m and of n, {pair}"
