"""Gradients of attention: what is computed for each query beforehand, and code that the kernels share.

    rows    lse2 = log2(e) LSE, delta = sum of dO O - dLSE    for each query; padded with queries of weight 0
    blocks  dV = Pᵀ dO, dK = scale dSᵀ Q, dQ = scale dS K     a block of keys, one tile of queries after the other

`attention_backward` computes the second line; it recomputes P = 2^(S scale - lse2) and dS = P (dO Vᵀ - delta).

lse2 and delta are padded to whole tiles of queries. Those of a packed sequence i, which begins at row b, begin at tile
ceil(b / tile) + i. Their loads are therefore aligned, and queries after a sequence's end have weight 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...collective.mma.fragment import unpack
from ...collective.tile.groups import Offsets
from ...isa.dtypes import DType, b32, f32, s32, u32, u64
from ...lang import Kernel, Scalar, Tile, kernel, ptx, reg
from ...lang.arrays import RegisterArray
from ...lang.predicate import Predicate
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from ..fields import builder
from .attention_config import LOG2_E, QUERY_ROWS, Attention
from .attention_consumer import function_arrays
from .description import PANEL

ROWS_PER_CTA = 8
CLEARED = {"sums": Tile("B", "H", "W", f32), "turns": Tile("places", u32, multiple=(4,))}
"""Arrays of a workspace that the kernel of the rows may set to zeros; their sizes are multiples of 4. Others are f32 of
one dimension."""
_LANE_ELEMENTS = 8


@dataclass(frozen=True)
class BlockGrid:
    """The grid rule: one CTA for each block of a dimension, each head and each batch.

    Attributes:
        dimension, heads: names of sizes.
        rows: rows per block.
        varlen: sequences are packed; the grid has as many CTAs as there can be blocks, regardless of their lengths.
        folded: all CTAs are along x, for more heads or batches than y and z allow (`isa.launch.GRID_LIMITS`).
    """

    dimension: str
    heads: str
    rows: int
    varlen: bool = False
    folded: bool = False

    def __call__(self, dims: Mapping[str, int], machine: Any) -> tuple[int, int, int]:
        """CTAs along x, y, z."""
        count = -(-dims[self.dimension] // self.rows) + (dims["N"] if self.varlen else 0)
        heads, batches = dims[self.heads], dims["B"]
        return (count * heads * batches, 1, 1) if self.folded else (count, heads, batches)


@dataclass(frozen=True)
class BlockIndex:
    """The block, head and batch of a CTA in a grid of `BlockGrid`; each method reads the CTA's index anew.

    Attributes:
        grid: the rule.
        array: an array whose shape has the dimension and the heads at `axes`.
        ends: ends of packed sequences.
    """

    grid: BlockGrid
    array: ArrayHandle
    axes: tuple[int, int] = (1, 2)
    ends: ArrayHandle | None = None

    def block(self) -> Register:
        return ptx.special.ctaid.x() % self._blocks() if self.grid.folded else ptx.special.ctaid.x()

    def head(self) -> Register:
        if not self.grid.folded:
            return ptx.special.ctaid.y()
        return ptx.special.ctaid.x() // self._blocks() % self.array.shape[self.axes[1]]

    def batch(self) -> Register:
        if not self.grid.folded:
            return ptx.special.ctaid.z()
        return ptx.special.ctaid.x() // self._blocks() // self.array.shape[self.axes[1]]

    def _blocks(self) -> Register:
        """The number of blocks per head."""
        count = (self.array.shape[self.axes[0]] + (self.grid.rows - 1)) // self.grid.rows
        return count if self.ends is None else count + self.ends.shape[0]


def padded_begin(begin: Register, number: Register, tile: int) -> Register:
    """The first index in lse2 and delta of sequence `number`, which begins at row `begin` (s32); u32."""
    return ((begin.view(u32) + (tile - 1)) // tile + number) * tile


def arguments(of: Attention, queries: int, keys: int) -> dict[str, Tile | Scalar]:
    """The arguments of the gradient kernel; `queries` and `keys` give the size of a tile that TMA loads."""

    def operand(length: str, heads: str, width: int, tile: tuple[int, int]) -> Tile:
        return Tile.operand("B", length, heads, width, of.dtype, along=1, tile=tile)

    return {
        "Q": operand("S", "H", of.head_dim, (queries, of.key_columns)),
        "K": operand("T", "G", of.head_dim, (keys, of.key_columns)),
        "V": operand("T", "G", of.value_dim, (keys, of.value_columns)),
        "dO": operand("S", "H", of.value_dim, (queries, of.value_columns)),
        "lse2": Tile("B", "H", "P", f32),
        "delta": Tile("B", "H", "P", f32),
        "scale": Scalar(f32),
        "factor": Scalar(f32),
        **({"last": Scalar(s32)} if of.window_right else {}),
        **({"first": Scalar(s32)} if of.window_left else {}),
        **({"q_ends": Tile("N", s32), "k_ends": Tile("N", s32)} if of.varlen else {}),
        **({"inner": Scalar(f32)} if of.score_mod is not None else {}),
        **function_arrays(of),
    }


def stored(of: Attention, length: str, heads: str, width: int) -> Tile:
    """A gradient array that `WholeStore` writes."""
    return Tile("B", length, heads, width, of.dtype, box=(PANEL, 1, QUERY_ROWS, 1), swizzle="128B", order="rows")


@builder()
def build_rows(
    dtype: DType, value_dim: int, heads_first: bool, packed: int = 0, logarithms: bool = False,
    folded: bool = False, cleared: tuple[str, ...] = (),
) -> Kernel:  # fmt: skip
    """lse2 and delta (B, H, P) of O and dO, (B, H, S, E) or (B, S, H, E), contiguous, and LSE (B, H, S).

    logarithms: the gradient dLSE (B, H, S) of LSE is an argument, too. The derivative of LSE with respect to a score
    is its probability P, so dS = P (dO Vᵀ - delta) with delta = sum of dO O - dLSE.

    The size P is at least S. Queries beyond S and queries that see no key get lse2 = inf and delta = 0. `packed`:
    queries per tile, if sequences are packed in one batch and end at `ends` (s32). `folded`: see `BlockGrid`.
    `cleared`: arrays of the workspace that are set to zeros, "sums" (B, H, elements), f32, "turns", u32, or others, f32
    (`_clear`).
    """
    grid = BlockGrid("P", "H", ROWS_PER_CTA, folded=folded)
    shape = ("B", "H", "S") if heads_first else ("B", "S", "H")

    def rows(**call: Any) -> None:
        O, dO, LSE, lse2, delta = (call[name] for name in ("O", "dO", "LSE", "lse2", "delta"))  # noqa: E741
        thread = ptx.special.tid.x()
        index = BlockIndex(grid, lse2, axes=(2, 1))
        lane, query = thread & 31, index.block() * ROWS_PER_CTA + (thread >> 5)
        head, batch = index.head(), index.batch()
        for name in cleared:
            _clear(call[name], (batch * lse2.shape[1] + head) * (lse2.shape[2] // ROWS_PER_CTA) + index.block())
        _, heads, queries = LSE.shape
        both = batch * heads + head
        padded, exists = query, None
        if packed:
            query, exists = in_sequence(call["ends"], padded, queries, packed)
        row = both.to(u64) * queries + query if heads_first else (batch * queries + query).to(u64) * heads + head
        total = reg.scalar(f32, init=0.0)
        exists = query < queries if exists is None else exists
        with ptx.if_(exists & (lane * _LANE_ELEMENTS < value_dim)):
            offset = (row * value_dim + lane * _LANE_ELEMENTS) * dtype.bytes
            pairs = [
                [unpack(word, dtype) for word in ptx.load(b32, ptx.addr(array.pointer() + offset), vector=4)]
                for array in (O, dO)
            ]
            for left, right in zip(*pairs, strict=True):
                for one, other in zip(left, right, strict=True):
                    total.set(ptx.math.fma(one, other, total))
        for distance in (1, 2, 4, 8, 16):
            total += ptx.warp.shuffle_xor(total, distance)
        with ptx.if_(lane == 0):
            sums = reg.scalar(f32, init=-math.inf)
            with ptx.if_(exists):
                at = (both.to(u64) * queries + query) * f32.bytes
                sums.set(ptx.load(f32, ptx.addr(LSE.pointer() + at)))
                if logarithms:
                    total.set(total - ptx.load(f32, ptx.addr(call["dLSE"].pointer() + at)))
            offset_bytes = (both.to(u64) * delta.shape[2] + padded) * f32.bytes
            ptx.store(ptx.addr(lse2.pointer() + offset_bytes), ptx.select(sums == -math.inf, math.inf, sums * LOG2_E))
            ptx.store(ptx.addr(delta.pointer() + offset_bytes), total)

    return kernel(
        in_specs={
            "O": Tile(*shape, value_dim, dtype), "dO": Tile(*shape, value_dim, dtype), "LSE": Tile("B", "H", "S", f32),
            **({"dLSE": Tile("B", "H", "S", f32)} if logarithms else {}),
            **({"ends": Tile("N", s32)} if packed else {}),
        },
        out_specs={
            "lse2": Tile("B", "H", "P", f32), "delta": Tile("B", "H", "P", f32),
            **{name: CLEARED.get(name, Tile(name, f32, multiple=(4,))) for name in cleared},
        },
        grid=grid, block=32 * ROWS_PER_CTA, arch="sm_90a", name="attention_rows",
    )(rows)  # fmt: skip


def _clear(array: ArrayHandle, cta: Register) -> None:
    """Set a CTA's share of an array to zeros: 16 bytes per thread and pass, all CTAs side by side."""
    size = array.shape[0]
    for extent in array.shape[1:]:
        size = size * extent
    threads, zero = 32 * ROWS_PER_CTA, reg.scalar(b32, init=0)
    ctas = ptx.special.nctaid.x() * ptx.special.nctaid.y() * ptx.special.nctaid.z()
    place = (cta * threads + ptx.special.tid.x()).to(u64) * 4
    with ptx.while_(lambda: place < size.to(u64)):
        ptx.store(ptx.addr(array.pointer() + place * u32.bytes), RegisterArray([zero] * 4))
        place += ctas.to(u64) * (threads * 4)


def in_sequence(ends: ArrayHandle, padded: Register, queries: Register, tile: int) -> tuple[Register, Predicate]:
    """The query (row of its array) that index `padded` of lse2 and delta is for, and a predicate: true if it exists."""
    number = sequence_at(ends, padded, tile)
    begin, end = bounds(ends, number, queries)
    query = (padded - padded_begin(begin, number, tile)).view(s32) + begin
    return query.view(u32), (query >= begin) & (query < end)


def sequence_at(ends: ArrayHandle, padded: Register, tile: int) -> Register:
    """The number of the packed sequence that index `padded` of lse2 and delta belongs to, by binary search."""
    limits, low = Offsets(ends), reg.scalar(u32, init=0)
    high = limits.count.copy()
    with ptx.while_(lambda: high - low > 1):
        middle = (low + high) >> 1
        beyond = padded_begin(ptx.math.max(limits.of(middle)[0], 0), middle, tile) > padded
        high.set(ptx.select(beyond, middle, high))
        low.set(ptx.select(beyond, low, middle))
    return low


def bounds(ends: ArrayHandle, number: Register, rows: Register) -> tuple[Register, Register]:
    """First row of a packed sequence and the row after its last, within the array; s32."""
    begin, end = Offsets(ends).of(number)
    return ptx.math.max(begin, 0), ptx.math.min(end, rows.view(s32))


def weight(score: Register, scale: Register, lse2: Register) -> Register:
    """P of a score: 2^(score scale - lse2)."""
    return ptx.math.ex2(ptx.math.fma(score, scale, -lse2))
