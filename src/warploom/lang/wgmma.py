"""`ptx.wgmma`: the warpgroup's matrix multiply-accumulate (PTX ISA 9.7.15).

Operands are tiles of `smem.wgmma_tile` (or slices of them), which determine the shape, the major and the descriptor;
explicit arguments are checked against them.
"""

from __future__ import annotations

from typing import Any

from ..isa import dtypes
from ..isa.dtypes import DType
from ..isa.instructions.wgmma import FLOAT_N
from .arrays import RegisterArray
from .emit import issue
from .predicate import Predicate, constant_predicate
from .smem import OperandTile, TileSlice
from .trace import Trace
from .values import Register


class Wgmma:
    """`ptx.wgmma`."""

    def fence(self) -> None:
        """wgmma.fence.sync.aligned: before the first wgmma, and between other accesses to its registers and a wgmma."""
        issue("wgmma.fence.sync.aligned")

    def commit_group(self) -> None:
        """wgmma.commit_group.sync.aligned: group the wgmmas issued since the last commit."""
        issue("wgmma.commit_group.sync.aligned")

    def wait_group(self, n: int = 0) -> None:
        """wgmma.wait_group.sync.aligned: wait until at most the `n` newest groups are incomplete."""
        issue("wgmma.wait_group.sync.aligned", n)

    def mma_async(
        self, *, shape: tuple[int, int, int], dtype_d: DType, dtype_a: DType, dtype_b: DType,
        d: RegisterArray, a: Any, b: Any,
        scale_d: bool | Predicate = True, scale_a: int = 1, scale_b: int = 1,
        trans_a: int | None = None, trans_b: int | None = None,
        metadata: Register | None = None, selector: int = 0,
    ) -> None:  # fmt: skip
        """wgmma.mma_async.sync.aligned: d = scale_a * a @ scale_b * b + (d if scale_d else 0), by four warps together.

        Args:
            shape: (64, n, k); n a multiple of 8, at most 256; k of one instruction (32 bytes' worth, 64 with metadata).
            dtype_d, dtype_a, dtype_b: types of accumulator and operands.
            d: the thread's accumulators: n/2 registers of f32 or s32, n/4 of packed f16.
            a: a tile or slice of 64 rows and depth k, a b64 descriptor, or a RegisterArray of 4 registers.
            b: a tile or slice of n rows and depth k, or a b64 descriptor.
            scale_d: a Python bool or a predicate.
            scale_a, scale_b: 1 or -1.
            trans_a, trans_b: 1 for MN-major operands in shared memory (16-bit types only). Tiles imply them; a
                contradicting value is an error.
            metadata: for wgmma.mma_async.sp: a is 2:4 sparse, its tile has depth k / 2, and this b32 register of each
                thread names the stored elements (PTX ISA 9.7.15.6.1, `isa.fragments.warpgroup_metadata`).
            selector: which two of four adjacent threads provide the metadata, 0 or 1; for bytes all four do, and it is
                0.

        Asynchronous: before a wait_group, do not access `d`, `metadata` or `a`'s registers, and do not overwrite the
        tiles.
        """
        trace = Trace.current()
        m, n, k = shape
        types = [dtypes.of(t) for t in (dtype_d, dtype_a, dtype_b)]
        if m != 64:
            raise trace.error("a wgmma has 64 rows", expected="shape=(64, n, k)", got=shape)
        sparse = metadata is not None
        depth = (64 if sparse else 32) // types[1].bytes
        if k != depth:
            kind = "sparse wgmma" if sparse else "wgmma"
            raise trace.error(f"a {types[1]} {kind} is {depth} deep", expected=f"shape=(64, {n}, {depth})", got=shape)
        if n not in FLOAT_N:
            raise trace.error("the n of a wgmma is a multiple of 8 from 8 to 256", got=n)
        _check_accumulators(trace, d, types[0], n)
        scale = scale_d if isinstance(scale_d, Predicate) else None
        if scale is None:
            if not isinstance(scale_d, (bool, int)) or isinstance(scale_d, Register):
                raise trace.error("scale_d is a Python bool or a predicate", got=repr(scale_d))
            scale = constant_predicate(trace, bool(scale_d))
        in_registers = isinstance(a, (RegisterArray, list, tuple))
        a_operand, transpose_a = (
            (a, None) if in_registers else _descriptor(trace, "a", a, types[1], 64, k // 2 if sparse else k, trans_a)
        )
        if in_registers and trans_a:
            raise trace.error("A in registers cannot be transposed", got=f"trans_a={trans_a}")
        b_operand, transpose_b = _descriptor(trace, "b", b, types[2], n, k, trans_b)
        immediates: list[int] = []
        if types[1].is_float:
            for name, value in (("scale_a", scale_a), ("scale_b", scale_b)):
                if value not in (1, -1):
                    raise trace.error(f"{name} is 1 or -1", got=value)
            immediates += [scale_a, scale_b]
        elif (scale_a, scale_b) != (1, 1):
            raise trace.error("integer wgmmas have no scale_a and scale_b", got=(scale_a, scale_b))
        if types[1].bits == 16:
            immediates += ([] if in_registers else [transpose_a or 0]) + [transpose_b or 0]
        elif transpose_a or transpose_b:
            raise trace.error(f"{types[1]} operands are K-major", got=f"trans_a={transpose_a}, trans_b={transpose_b}")
        opcode = f"wgmma.mma_async{'.sp' * sparse}.sync.aligned.m{m}n{n}k{k}.{types[0]}.{types[1]}.{types[2]}"
        chosen = (metadata, selector) if sparse else ()
        issue(opcode, d, a_operand, b_operand, *chosen, scale, *immediates, trace=trace)


def accumulators(n: int, dtype: DType) -> int:
    """Registers per thread of a 64 x n accumulator: n/2 for 32-bit types, n/4 for f16."""
    return n // 2 if dtype.bits == 32 else n // 4


def _check_accumulators(trace: Trace, d: Any, dtype: DType, n: int) -> None:
    wanted = accumulators(n, dtype)
    kinds = {"f32": ("f32",), "s32": ("s32", "b32"), "f16": ("f16x2", "b32", "u32")}.get(dtype.name, ())
    if not kinds:
        raise trace.error("a wgmma accumulates in f32, f16 or s32", got=str(dtype))
    if not isinstance(d, RegisterArray) or len(d) != wanted or d.dtype.name not in kinds:
        raise trace.error(
            f"d of a 64 x {n} wgmma with {dtype} accumulators is an array of {wanted} registers",
            expected=f"reg.array({kinds[0]}, {wanted})",
            got=repr(d),
        )


def _descriptor(
    trace: Trace, name: str, tile: Any, dtype: DType, rows: int, k: int, transpose: int | None
) -> tuple[Register, int | None]:
    """The matrix descriptor of an operand, and its transpose bit."""
    if transpose not in (None, 0, 1, True, False):
        raise trace.error(f"trans_{name} is 0 or 1", got=transpose)
    if isinstance(tile, Register):
        if tile.dtype.bits != 64 or tile.dtype.is_float:
            raise trace.error(f"{name} is a matrix descriptor of 64 bits", got=repr(tile))
        return tile, int(transpose or 0)
    if isinstance(tile, OperandTile):
        tile = tile[0]
    if not isinstance(tile, TileSlice):
        raise trace.error(
            f"{name} of a wgmma is a tile in shared memory, or a descriptor",
            expected="smem.wgmma_tile(...), one of its stages or slices"
            + (", or a RegisterArray" if name == "a" else ""),
            got=repr(tile),
        )
    layout = tile.layout
    if layout.unit != "warpgroup":
        raise trace.error(
            f"the descriptors of {tile.tile.buffer.name} are those of tcgen05",
            expected="a tile of smem.wgmma_tile(...)",
            got="a tile of smem.umma_tile(...)",
        )
    if layout.dtype is not dtype:
        raise trace.error(f"dtype_{name} and the tile disagree", expected=str(layout.dtype), got=str(dtype))
    if tile.rows_count != rows or tile.k_size != k:
        raise trace.error(
            f"{name} of this wgmma is {rows} {'rows' if name == 'a' else 'columns'} and {k} deep",
            expected=f"{rows} x {k}",
            got=f"{tile.rows_count} x {tile.k_size} of {tile.tile.buffer.name}",
            hint="slice it: tile[stage].k(i) is one instruction deep, tile[stage].rows(start, count) some rows",
        )
    major = int(layout.major == "MN")
    if transpose is not None and int(transpose) != major:
        raise trace.error(
            f"trans_{name} contradicts the layout of {tile.tile.buffer.name}",
            expected=f"{major} for a {layout.major}-major tile",
            got=int(transpose),
            consequence="the tensor core would read the operand transposed",
        )
    return tile.descriptor(), major


wgmma = Wgmma()
