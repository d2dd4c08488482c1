"""Rotary embedding of queries and keys: y = x * cos + (-x2, x1) * sin, where x1 and x2 are the halves of a head.

Idea       A thread rotates 16 elements of a head: 8 of the first half and 8 of the second, which need each other. Those
           of queries and keys are one index, so both are one launch.
Roles      one CTA per token; its threads share the heads' pieces
Rounding   products and sum in f32, rounded once
Partial    only the first `rotary_dim` elements of a head are rotated; the others are copied
Limits     head dimension and `rotary_dim` multiples of 16
"""

from __future__ import annotations

from typing import Any

from ..collective.mma.fragment import pack, unpack
from ..isa.dtypes import DType, bf16, u64
from ..lang import Kernel, Tile, kernel, ptx, tiles
from ..lang.arrays import RegisterArray
from ..lang.values import Register
from .fields import builder
from .rms_norm import PIECE, PIECE_BYTES, WARP, words

MOST_THREADS = 512


@builder(keep=64)
def build(
    dtype: DType = bf16, heads: int = 32, key_heads: int = 8, dim: int = 128, rotary_dim: int = 128,
) -> Kernel:  # fmt: skip
    """NEWQ (T, heads * dim) and NEWK (T, key_heads * dim) from Q, K, and COS and SIN (P, rotary_dim): token t has row
    t % P of these. Rows of Q and K may be apart."""
    of_head = dim // (2 * PIECE)
    pieces = (heads + key_heads) * of_head
    threads = min(MOST_THREADS, -(-pieces // WARP) * WARP)

    heads_of, angles = (("T", "C"), ("T", "D")), ("P", "R")

    @kernel(
        in_specs=tuple(Tile(*each, dtype, multiple=(1, PIECE), order="rows") for each in (*heads_of, angles, angles)),
        out_specs=tuple(Tile(*each, dtype, multiple=(1, PIECE), order="rows") for each in heads_of),
        grid=(tiles("T", 1),),
        block=threads,
        arch="sm_80",
        name="rotary",
    )  # fmt: skip
    def rotary(Q, K, COS, SIN, NEWQ, NEWK):
        token = ptx.special.ctaid.x()
        periods, _ = COS.shape
        position = token % periods
        cos, sin = (row_of(each, position, dtype) for each in (COS, SIN))
        queries, keys, new_queries, new_keys = (row_of(each, token, dtype) for each in (Q, K, NEWQ, NEWK))
        for first in range(0, pieces, threads):
            piece = ptx.special.tid.x() + first
            here = piece < pieces
            is_query = piece < heads * of_head
            own = ptx.select(is_query, piece, piece - heads * of_head)
            head, at = own // of_head, own % of_head
            rotated = at < rotary_dim // (2 * PIECE)
            low = ptx.select(rotated, at, at * 2)
            high = ptx.select(rotated, low + rotary_dim // (2 * PIECE), low + 1)
            source, target = (
                ptx.select(is_query, query, key) + (head * dim).to(u64) * dtype.bytes
                for query, key in ((queries, keys), (new_queries, new_keys))
            )
            x, y = (words(source, each, here) for each in (low, high))
            turning = here & rotated
            (cos_x, cos_y), (sin_x, sin_y) = (
                [words(start, each, turning) for each in (low, high)] for start in (cos, sin)
            )
            made_x = [turn(*each, -1.0, dtype) for each in zip(x, cos_x, y, sin_x, strict=True)]
            made_y = [turn(*each, 1.0, dtype) for each in zip(y, cos_y, x, sin_y, strict=True)]
            for place, made, kept in ((low, made_x, x), (high, made_y, y)):
                chosen = [ptx.select(rotated, new, old) for new, old in zip(made, kept, strict=True)]
                ptx.store(ptx.addr(target + place.to(u64) * PIECE_BYTES), RegisterArray(chosen), pred=here)

    return rotary


def row_of(tensor: Any, row: Register, dtype: DType) -> Register:
    """The address of a row."""
    return tensor.pointer() + row.to(u64) * tensor.row_stride() * dtype.bytes


def turn(own: Register, cos: Register, other: Register, sin: Register, sign: float, dtype: DType) -> Register:
    """Two elements of own * cos + sign * other * sin."""
    parts = zip(*(unpack(word, dtype) for word in (own, cos, other, sin)), strict=True)
    return pack([a * b + (c * sign) * d for a, b, c, d in parts], dtype)
