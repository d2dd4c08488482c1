"""The arguments of a kernel, `Tile` for arrays and `Scalar` for numbers, and their handles in the kernel's body.

A dimension is a Python int, compiled into the PTX, or a string, which names a run-time size ("M"): one PTX for all
sizes. `Tile.wgmma_a` and `Tile.wgmma_b` determine the tensor map of an operand tile. Box and swizzle come from the
layout that `smem.wgmma_tile` uses, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from ..asm import nodes
from ..errors import ArgumentError, TraceError
from ..isa import dtypes
from ..isa.dtypes import DType
from ..isa.im2col import PixelBox
from ..isa.shared_layout import SharedLayout
from ..renamed import formerly
from ..runtime.program import TiledMap
from .operand_tile import operand_layout
from .pointers import TensorMap
from .trace import Trace, register_class
from .values import Register

_misdeclared = partial(TraceError, code="kernel-declaration")
_wrong_extent = partial(ArgumentError, code="kernel-declaration")

Dimension = int | str


class Tile:
    """An array argument.

    Args:
        shape_and_dtype: the extents, outermost first, then the element type: `Tile(M, N, f32)`.
        box: extents of its tensor map's box, innermost first, for `tma_desc()`; none by default.
        swizzle: swizzle of the tensor map: "NONE", "32B", "64B", "128B".
        multiple: a required divisor of the size, per dimension; all ones by default.
        order: "C" requires a contiguous array; "rows" allows any stride but the innermost (what TMA can address).
        inout: an input that the kernel also writes: it must be writable and overlap nothing else.
        may_alias: for an output, the name of an input whose memory it may share (same address, shape and strides). The
            thread that writes an element must have read the input's before, and no other thread may read it.
        workspace: not passed by a call. The runtime allocates it, zeroes it once, and passes the same memory to every
            launch on a stream, so the kernel must leave it as the next launch needs it (a counter that wraps to 0).
        pads_to_16b: the caller guarantees that nothing else uses the bytes after a row, up to a multiple of 16: tensor
            stores overwrite them (docs/measured-facts.md).
        pixels: for copies in an im2col mode, the bounding box of base pixels (`runtime.PixelBox`) of an array NWC, NHWC
            or NDHWC; `box` is then (channels, pixels).
        clipped: the box of its tensor map is clipped to the array's rows (`runtime.TiledMap`): rows of a box that are
            outside the array cost TMA five times as much as rows inside.
        peers: the number of GPUs that hold one such array each. A call passes a list of them by rank, and the kernel
            receives `PeerArrays`; 0 for an array of the kernel's own GPU.
    """

    @formerly(over="may_alias", overhang="pads_to_16b")
    def __init__(
        self, *shape_and_dtype: Dimension | DType, box: tuple[int, ...] | None = None, swizzle: str = "NONE",
        multiple: tuple[int, ...] = (), order: str = "C", layout: SharedLayout | None = None, inout: bool = False,
        may_alias: str = "", pads_to_16b: bool = False, clipped: bool = False, workspace: bool = False, peers: int = 0,
        pixels: PixelBox | None = None,
    ) -> None:  # fmt: skip
        if len(shape_and_dtype) < 2:
            raise _misdeclared("a Tile needs extents and a type", expected="Tile(M, N, f32)", got=shape_and_dtype)
        *shape, dtype = shape_and_dtype
        for extent in shape:
            if isinstance(extent, bool) or not isinstance(extent, (int, str)):
                raise _misdeclared("an extent of a Tile is a Python int or the name of a size", got=repr(extent))
            if isinstance(extent, int) and extent <= 0:
                raise _misdeclared("an extent of a Tile is positive", got=extent)
            if isinstance(extent, str) and not extent.isidentifier():
                raise _misdeclared("a named size is a Python identifier", expected='"M"', got=repr(extent))
        self.shape: tuple[Dimension, ...] = tuple(shape)  # type: ignore[arg-type]
        self.dtype = dtypes.of(dtype)
        self.box = tuple(box) if box is not None else None
        self.swizzle = swizzle
        self.multiple = tuple(multiple)
        self.order = order
        self.layout = layout
        self.inout = inout
        self.may_alias = may_alias
        self.pads_to_16b = pads_to_16b
        self.workspace = workspace
        self.clipped = clipped
        self.pixels = pixels
        if not isinstance(peers, int) or peers < 0 or peers == 1:
            raise _misdeclared("peers= is the number of GPUs of a group", expected="2 or more, or 0", got=peers)
        self.peers = peers
        for extent, divisor in zip(self.shape, self.multiple, strict=False):
            if isinstance(extent, int) and extent % divisor:
                raise _wrong_extent(
                    "an extent is not divisible by its tile",
                    expected=f"a multiple of {divisor}",
                    got=f"{extent} in {self!r}",
                    hint="pad the array, or pass ragged=True where the kernel handles edges",
                )

    @classmethod
    def wgmma_a(
        cls, rows: Dimension, columns: Dimension, dtype: DType, *, tile_m: int, tile_k: int, major: str = "K",
        swizzle: str | None = None, ragged: bool = False, clipped: bool = False,
    ) -> Tile:  # fmt: skip
        """The left operand of a matrix product, loaded in tiles of tile_m x tile_k.

        Args:
            rows, columns: shape of the stored array: M x K for major "K", K x M for "MN".
            dtype: element type.
            major: the dimension of the product that is contiguous in memory.
            swizzle: as in `smem.wgmma_tile`.
            ragged: sizes need not be divisible by the tile; TMA fills with zeros.
            clipped: boxes are clipped to the array's rows (see `Tile`).
        """
        return cls._operand(rows, columns, dtype, tile_m, tile_k, major, swizzle, ragged, clipped)

    @classmethod
    def wgmma_b(
        cls, rows: Dimension, columns: Dimension, dtype: DType, *, tile_n: int, tile_k: int, major: str = "MN",
        swizzle: str | None = None, ragged: bool = False, clipped: bool = False,
    ) -> Tile:  # fmt: skip
        """The right operand of a matrix product, loaded in tiles of tile_k x tile_n.

        `rows` x `columns` is the stored array: K x N for major "MN" (the default), N x K for "K". Otherwise like
        `wgmma_a`.
        """
        return cls._operand(rows, columns, dtype, tile_n, tile_k, major, swizzle, ragged, clipped)

    @classmethod
    def umma_a(
        cls, rows: Dimension, columns: Dimension, dtype: DType, *, tile_m: int, tile_k: int, major: str = "K",
        swizzle: str | None = None, ragged: bool = False, clipped: bool = False,
    ) -> Tile:  # fmt: skip
        """The left operand of `ptx.tcgen05.mma`; like `wgmma_a`. `tile_m`: rows of one CTA."""
        return cls._operand(rows, columns, dtype, tile_m, tile_k, major, swizzle, ragged, clipped, "tcgen05")

    @classmethod
    def umma_b(
        cls, rows: Dimension, columns: Dimension, dtype: DType, *, tile_n: int, tile_k: int, major: str = "K",
        swizzle: str | None = None, ragged: bool = False, clipped: bool = False,
    ) -> Tile:  # fmt: skip
        """The right operand of `ptx.tcgen05.mma`: N x K for major "K" (the default, as in `smem.umma_tile`), K x N for
        "MN". `tile_n`: columns of one CTA."""
        return cls._operand(rows, columns, dtype, tile_n, tile_k, major, swizzle, ragged, clipped, "tcgen05")

    @classmethod
    def operand(
        cls, *shape_and_dtype: Dimension | DType, along: int, tile: tuple[int, int], major: str = "K",
        swizzle: str | None = None,
    ) -> Tile:  # fmt: skip
        """An operand in an array of any rank, loaded in tiles that extend over two of its dimensions.

        The box is 1 in all other dimensions, for which the kernel passes coordinates: the keys of one head are
        `Tile.operand("B", "S", "H", D, bf16, along=1, tile=(128, D))`, loaded at `(0, head, row, batch)`.

        Args:
            shape_and_dtype: the extents, outermost first, then the element type.
            along: the dimension that the tile covers besides the innermost one, counted from the outermost.
            tile: its extent along that dimension, and along the innermost one.
            major: "K" if the innermost dimension is k of the product, "MN" if it is m or n.
            swizzle: as in `smem.wgmma_tile`.

        Sizes need not be divisible by the tile: TMA fills with zeros.
        """
        rank = len(shape_and_dtype) - 1
        if not 0 <= along < rank - 1:
            raise _misdeclared(
                "the tile of an operand extends over the innermost dimension and one before it",
                expected=f"along= from 0 to {rank - 2}", got=along,
            )  # fmt: skip
        layout = operand_layout(dtypes.of(shape_and_dtype[-1]), tile, major, swizzle)
        box = [1] * rank
        box[0], box[rank - 1 - along] = layout.box
        return cls(*shape_and_dtype, box=tuple(box), swizzle=layout.swizzle.value, order="rows", layout=layout)

    @classmethod
    def _operand(
        cls, rows: Dimension, columns: Dimension, dtype: DType, tile_rows: int, tile_k: int, major: str,
        swizzle: str | None, ragged: bool, clipped: bool, unit: str = "warpgroup",
    ) -> Tile:  # fmt: skip
        stored = (tile_rows, tile_k) if major != "MN" else (tile_k, tile_rows)
        layout = operand_layout(dtype, stored, major, swizzle, unit)
        return cls(
            rows, columns, dtype, box=layout.box, swizzle=layout.swizzle.value, multiple=() if ragged else stored,
            order="rows", layout=layout, clipped=clipped,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"Tile({', '.join(map(str, self.shape))}, {self.dtype})"


@dataclass(frozen=True)
class Scalar:
    """A number passed by value; in the kernel it is a register of that type."""

    dtype: DType


@dataclass(frozen=True)
class Tiles:
    """The number of tiles of `size` that cover a dimension; an entry of `grid`."""

    dimension: Dimension
    size: int = 1

    def count(self, dims: Any) -> int:
        """The number of tiles that cover the dimension. Raises ArgumentError for a name that no array has."""
        if isinstance(self.dimension, str) and self.dimension not in dims:
            raise _wrong_extent(
                f"the grid counts tiles of {self.dimension!r}, which is not a size of an array",
                expected=", ".join(dims) or "a named size in in_specs or out_specs",
                got=self.dimension,
            )
        extent = self.dimension if isinstance(self.dimension, int) else dims[self.dimension]
        return -(-extent // self.size)


def tiles(dimension: Dimension, size: int) -> Tiles:
    """Grid entry: the number of tiles of `size` that cover a dimension, `grid=(tiles("N", 64), tiles("M", 64), 1)`."""
    return Tiles(dimension, size)


class Shape(Sequence[Any]):
    """The extents of an array inside the kernel. A named size becomes a parameter at its first use."""

    def __init__(self, trace: Trace, extents: tuple[Dimension, ...]) -> None:
        self._trace, self._extents = trace, extents

    def __len__(self) -> int:
        return len(self._extents)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(size(self._trace, extent) for extent in self._extents[index])
        return size(self._trace, self._extents[index])


class ArrayHandle:
    """An array argument inside the kernel.

    Attributes:
        name: name of the kernel's parameter.
        spec: its Tile.
        dtype: element type.
        uses: "pointer", "map", "stride": the parameters that the PTX needs for it.
        maps: its tensor maps by parameter, as the launch must encode them.
    """

    def __init__(self, trace: Trace, name: str, spec: Tile) -> None:
        self.trace, self.name, self.spec, self.dtype = trace, name, spec, spec.dtype
        self.uses: set[str] = set()
        self.maps: dict[str, TiledMap] = {}

    def __getitem__(self, index: object) -> NoReturn:
        self._refuse_index(index)

    def __setitem__(self, index: object, value: object) -> NoReturn:
        self._refuse_index(index)

    def _refuse_index(self, index: object) -> NoReturn:
        raise self.trace.error(
            f"{self.name} is an array in global memory and takes no index",
            got=f"{self.name}[{index!r}]",
            hint=f"(p,) = ptx.global_ptrs({self.name}), then ptx.load({self.dtype}, ptx.addr(p + offset)) or "
            "ptx.store(ptx.addr(p + offset), value); offsets are bytes",
            code="array-indexed",
        )

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.spec.shape)

    @property
    def shape(self) -> Shape:
        """Extents, outermost first: Python ints, or u32 registers for named sizes, loaded at their first use."""
        return Shape(self.trace, self.spec.shape)

    def pointer(self) -> Register:
        """The address in global memory, u64 (ld.param.u64 and cvta.to.global.u64 in the prologue)."""
        self.uses.add("pointer")

        def make() -> Register:
            trace = self.trace
            generic, result = Register(trace, dtypes.u64), Register(trace, dtypes.u64, constant=True)
            trace.emit("ld.param.u64", generic.node, nodes.Address(nodes.Register(f"ptr_{self.name}")))
            trace.emit("cvta.to.global.u64", result.node, generic.node)
            result.origin = frozenset((self.name,))
            return result

        return self.trace.once(("pointer", self.name), make)

    def row_stride(self) -> Register:
        """Elements from one row to the next of a matrix with order "rows", u32 (ld.param.u32)."""
        self.uses.add("stride")
        return self.trace.once(("stride", self.name), lambda: _parameter(self.trace, f"stride_{self.name}", dtypes.u32))

    def stride(self, axis: int) -> Register:
        """Elements from one index of a dimension to the next, u32 (ld.param.u32); for a Tile with order "rows"."""
        self.uses.add("stride")
        name = f"stride_{self.name}_{axis}"
        return self.trace.once(("stride", self.name, axis), lambda: _parameter(self.trace, name, dtypes.u32))

    def tma_desc(self, box: tuple[int, ...] | None = None) -> TensorMap:
        """A tensor map of this array (mov.b64 and cvta.param.u64 in the prologue), with one parameter per box.

        `box`: innermost first; by default the Tile's. The swizzle is the Tile's. A box narrower than the swizzle's span
        leaves gaps in shared memory: the distance between its rows is the span.
        """
        own = self.spec.box
        if own is None:
            raise self.trace.error(
                f"{self.name} has no tensor map",
                hint="give its Tile a box (innermost first): Tile(M, N, f32, box=(64, 64)), or use Tile.wgmma_a/_b",
            )
        box = own if box is None else tuple(box)
        extents = self.rank if self.spec.pixels is None else 2
        if len(box) != extents:
            raise self.trace.error(
                f"{self.name} has {self.rank} dimensions", expected=f"a box of {extents} extents", got=box
            )
        parameter = f"map_{self.name}" + ("" if box == own else "_" + "x".join(map(str, box)))
        self.uses.add("map")
        self.maps[parameter] = TiledMap(box, self.spec.swizzle, clipped=self.spec.clipped, pixels=self.spec.pixels)

        def make() -> TensorMap:
            trace = self.trace
            address, result = Register(trace, dtypes.u64), Register(trace, dtypes.u64, constant=True)
            trace.emit("mov.b64", address.node, nodes.Register(parameter))
            trace.emit("cvta.param.u64", result.node, address.node)
            return TensorMap(result, self, box)

        return self.trace.once(("map", parameter), make)

    def __repr__(self) -> str:
        return f"{self.name}: {self.spec!r}"


def size(trace: Trace, extent: Dimension) -> int | Register:
    """An extent inside the kernel: a Python int, or the u32 register of a named size (ld.param.u32 in the prologue)."""
    if isinstance(extent, int):
        return extent
    return trace.once(("size", extent), lambda: _parameter(trace, f"dim_{extent}", dtypes.u32))


def scalar(trace: Trace, name: str, dtype: DType) -> Register:
    """The register of a by-value argument (ld.param in the prologue)."""
    return trace.once(("scalar", name), lambda: _parameter(trace, f"arg_{name}", dtype))


def _parameter(trace: Trace, name: str, dtype: DType) -> Register:
    result = Register(trace, dtype, constant=True)
    word = dtype.name if dtype.name in ("f32", "f64") or dtype.is_integer else register_class(dtype)[0]
    trace.emit(f"ld.param.{word}", result.node, nodes.Address(nodes.Register(name)))
    return result
