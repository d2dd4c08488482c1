"""Attention's forward pass in Triton for comparison: TMA, a pipeline of tiles, running maxima (FlashAttention-2).

Importing this module imports Triton. `contenders.TritonAttention` times the configurations and keeps the fastest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from .attention_operands import AttentionOperands
from .attention_problem import ForwardProblem


@dataclass(frozen=True)
class Config:
    """Queries of a program, keys of a tile, depth of the ring, and whether the loop is spread over kinds of warps."""

    queries: int
    keys: int
    stages: int = 3
    warps: int = 8
    specialised: bool = False

    def name(self) -> str:
        return f"{self.queries}x{self.keys}x{self.stages}_w{self.warps}" + ("_ws" if self.specialised else "")


CONFIGS = (
    Config(128, 128, stages=2), Config(128, 64), Config(64, 64, warps=4),
    Config(128, 128, stages=2, warps=4, specialised=True), Config(128, 64, warps=4, specialised=True),
    Config(128, 64, stages=2, warps=4, specialised=True),
)  # fmt: skip
SMALL_HEADS = (
    Config(128, 128), Config(128, 64), Config(128, 64, warps=4), Config(64, 64, warps=4),
    Config(128, 128, stages=2, warps=4, specialised=True), Config(128, 64, warps=4, specialised=True),
)  # fmt: skip
"""Of head dimension 64."""


@triton.jit
def visited(
    total, sums, most, q, k_map, v_map, row, first_key, begin, end, scale,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, MASKED: tl.constexpr, SPECIALISED: tl.constexpr,
):  # fmt: skip
    """O, the rows' sums and their maxima (scaled, base 2) after the keys from `begin` to `end`."""
    for key in tl.range(begin, end, KEYS, warp_specialize=SPECIALISED):
        k = k_map.load([first_key + key, 0])
        s = tl.dot(q, k.T)
        if MASKED:
            seen = (row + tl.arange(0, QUERIES))[:, None] >= (key + tl.arange(0, KEYS))[None, :]
            s = tl.where(seen, s, float("-inf"))
        larger = tl.maximum(most, tl.max(s, 1) * scale)
        p = tl.math.exp2(s * scale - larger[:, None])
        factor = tl.math.exp2(most - larger)
        v = v_map.load([first_key + key, 0])
        sums = sums * factor + tl.sum(p, 1)
        total = tl.dot(p.to(v.dtype), v, total * factor[:, None])
        most = larger
    return total, sums, most


@triton.jit
def mapped(array, rows, ROWS: tl.constexpr, DIM: tl.constexpr):
    """The tensor map of an array (rows, DIM) in boxes of ROWS; or the array itself, if it is a map already."""
    if isinstance(array, tl.tensor_descriptor):
        return array
    else:
        return tl.make_tensor_descriptor(array, [rows, DIM], [DIM, 1], [ROWS, DIM])


@triton.jit
def attention(
    q_in, k_in, v_in, o_in, lse, scale, length, group,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, DIM: tl.constexpr, CAUSAL: tl.constexpr, SPECIALISED: tl.constexpr,
    OUT: tl.constexpr,
):  # fmt: skip
    """A block of queries of a head; arrays are (heads · length, DIM). Causal blocks with the most keys come first."""
    block = tl.num_programs(0) - 1 - tl.program_id(0) if CAUSAL else tl.program_id(0)
    head = tl.program_id(1)
    row, first_key = block * QUERIES, head // group * length
    at = head * length + row
    rows = tl.num_programs(1) * length
    q_map, o_map = mapped(q_in, rows, QUERIES, DIM), mapped(o_in, rows, QUERIES, DIM)
    k_map, v_map = mapped(k_in, rows // group, KEYS, DIM), mapped(v_in, rows // group, KEYS, DIM)
    q = q_map.load([at, 0])
    total = tl.zeros((QUERIES, DIM), tl.float32)
    sums = tl.zeros((QUERIES,), tl.float32)
    most = tl.full((QUERIES,), float("-inf"), tl.float32)
    if CAUSAL and SPECIALISED:  # Triton 3.6 has no code for two loops of which one is specialised
        total, sums, most = visited(
            total, sums, most, q, k_map, v_map, row, first_key, 0, row + QUERIES, scale, QUERIES, KEYS, True, True
        )
    else:
        unmasked = row if CAUSAL else length
        total, sums, most = visited(
            total, sums, most, q, k_map, v_map, row, first_key, 0, unmasked, scale, QUERIES, KEYS, False, SPECIALISED
        )
        if CAUSAL:
            total, sums, most = visited(
                total, sums, most, q, k_map, v_map, row, first_key, row, row + QUERIES, scale, QUERIES, KEYS, True,
                False,
            )  # fmt: skip
    o_map.store([at, 0], (total / sums[:, None]).to(OUT))
    tl.store(lse + at + tl.arange(0, QUERIES), (most + tl.math.log2(sums)) * 0.6931471805599453)


def configs(problem: ForwardProblem) -> tuple[Config, ...]:
    """The configurations that are tried for a problem."""
    return SMALL_HEADS if problem.head_dim == 64 else CONFIGS


def _scratch(size: int, alignment: int, stream: int | None) -> Any:
    """Memory in which a kernel makes its tensor maps."""
    import torch

    return torch.empty(size, device="cuda", dtype=torch.int8)


def caller(problem: ForwardProblem, operands: AttentionOperands, config: Config) -> Callable[[], Any]:
    """A call of one configuration; its first call compiles."""
    batch, heads, length, dim = problem.sizes
    heights = {"q": config.queries, "k": config.keys, "v": config.keys, "out": config.queries}
    arrays = [getattr(operands, name).flatten(0, 2) for name in heights]
    if config.specialised:  # Triton 3.6 splits the boxes of maps only if the kernel makes them
        triton.set_allocator(_scratch)
    else:
        pairs = zip(arrays, heights.values(), strict=True)
        arrays = [TensorDescriptor.from_tensor(rows, [height, dim]) for rows, height in pairs]
    out = {"bf16": tl.bfloat16, "f16": tl.float16}[problem.dtype]
    scale = 1 / (math.sqrt(dim) * math.log(2))

    def call() -> Any:
        return attention[(length // config.queries, batch * heads)](
            *arrays, operands.lse, scale, length, problem.group, QUERIES=config.queries, KEYS=config.keys, DIM=dim,
            CAUSAL=problem.causal, SPECIALISED=config.specialised, OUT=out, num_warps=config.warps,
            num_stages=config.stages,
        )  # fmt: skip

    return call
