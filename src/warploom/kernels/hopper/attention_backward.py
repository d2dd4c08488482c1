"""Gradients of attention: what the two kernels for dQ and for dK, dV share, and the one that runs before them.

    rows       lse2 = log2(e) LSE, delta = sum of dO O      of each query; padded with queries that weigh nothing
    queries    dQ = scale dS K                              a block of queries, one tile of keys after the other
    keys       dV = Pᵀ dO, dK = scale dSᵀ Q                 a block of keys, one tile of queries after the other

with P = 2^(S scale - lse2) and dS = P (dO Vᵀ - delta), computed anew in both: seven products instead of five, and every
sum in one order, so that results are the same in every run. Nothing is added up in memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...collective.mma.fragment import unpack
from ...isa.dtypes import DType, b32, f32, s32, u64
from ...lang import Kernel, Scalar, Tile, kernel, ptx, reg
from ...lang.values import Register
from .attention_config import PANEL, QUERY_ROWS, SHARED_BYTES, Attention

PADDED = 128
"""Queries to whole multiples of which lse2 and delta are padded."""
ROWS_PER_CTA = 8
LOG2_E = math.log2(math.e)
_LANE_ELEMENTS = 8
_BOTH = 128


@dataclass(frozen=True)
class BackwardConfig:
    """How one of the kernels is tiled.

    Attributes:
        tile: keys of a tile for dQ, queries of one for dK and dV.
        consumers: warpgroups, with 64 rows of the result each.
        stages: of the ring.
    """

    tile: int = 64
    consumers: int = 2
    stages: int = 2

    @property
    def rows(self) -> int:
        """Rows of the result of a CTA."""
        return QUERY_ROWS * self.consumers


def queries_config(of: Attention) -> BackwardConfig:
    """For dQ."""
    return _fitting(of, BackwardConfig(tile=64 if of.depth > 128 else 96 if of.depth > 64 else 128))


def keys_config(of: Attention) -> BackwardConfig:
    """For dK and dV."""
    return _fitting(of, BackwardConfig(tile=64))


def keys_parts(of: Attention) -> tuple[str, ...]:
    """The kernels that dK and dV take: together where a thread's registers hold both."""
    return ("both",) if of.depth + of.columns <= 2 * _BOTH else ("dK", "dV")


def _fitting(of: Attention, config: BackwardConfig) -> BackwardConfig:
    """As many stages as there is room for, at most 4."""
    width = (of.key_columns + of.value_columns) * of.dtype.bytes
    room = SHARED_BYTES - 4096 - config.rows * width
    return BackwardConfig(config.tile, config.consumers, max(1, min(4, room // (config.tile * width + 512))))


@dataclass(frozen=True)
class BlocksOf:
    """The grid rule: a CTA for each block of a dimension, of each head, of each batch."""

    dimension: str
    heads: str
    rows: int

    def __call__(self, dims: Mapping[str, int], machine: Any) -> tuple[int, int, int]:
        """CTAs along x, y, z."""
        return (-(-dims[self.dimension] // self.rows), dims[self.heads], dims["B"])


def arguments(of: Attention, queries: int, keys: int) -> dict[str, Tile | Scalar]:
    """What both kernels of products take; `queries` and `keys` are those of a tile that TMA loads."""

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
        **({"last": Scalar(s32)} if of.above else {}),
        **({"first": Scalar(s32)} if of.below else {}),
    }


def stored(of: Attention, length: str, heads: str, width: int) -> Tile:
    """A gradient, as `WholeStore` writes it."""
    return Tile("B", length, heads, width, of.dtype, box=(PANEL, 1, QUERY_ROWS, 1), swizzle="128B", order="rows")


def build_rows(dtype: DType, value_dim: int, heads_first: bool) -> Kernel:
    """lse2 and delta (B, H, P) of O and dO, (B, H, S, E) or (B, S, H, E), contiguous, and LSE (B, H, S).

    P is S or more; queries behind S, and those that see no key, get lse2 = inf and delta = 0.
    """
    shape = ("B", "H", "S") if heads_first else ("B", "S", "H")

    @kernel(
        in_specs=(Tile(*shape, value_dim, dtype), Tile(*shape, value_dim, dtype), Tile("B", "H", "S", f32)),
        out_specs=(Tile("B", "H", "P", f32), Tile("B", "H", "P", f32)),
        grid=BlocksOf("P", "H", ROWS_PER_CTA),
        block=32 * ROWS_PER_CTA,
        arch="sm_90a",
        name="attention_rows",
    )
    def rows(O, dO, LSE, lse2, delta):  # noqa: E741
        thread = ptx.special.tid.x()
        lane, query = thread & 31, ptx.special.ctaid.x() * ROWS_PER_CTA + (thread >> 5)
        head, batch = ptx.special.ctaid.y(), ptx.special.ctaid.z()
        _, heads, queries = LSE.shape
        both = batch * heads + head
        row = both.to(u64) * queries + query if heads_first else (batch * queries + query).to(u64) * heads + head
        total, here = reg.scalar(f32, init=0.0), query < queries
        with ptx.if_(here & (lane * _LANE_ELEMENTS < value_dim)):
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
            with ptx.if_(here):
                sums.set(ptx.load(f32, ptx.addr(LSE.pointer() + (both.to(u64) * queries + query) * 4)))
            place = (both.to(u64) * delta.shape[2] + query) * 4
            ptx.store(ptx.addr(lse2.pointer() + place), ptx.select(sums == -math.inf, math.inf, sums * LOG2_E))
            ptx.store(ptx.addr(delta.pointer() + place), total)

    return rows


def weight(score: Register, scale: Register, lse2: Register) -> Register:
    """P of a score."""
    return ptx.math.ex2(ptx.math.fma(score, scale, -lse2))
