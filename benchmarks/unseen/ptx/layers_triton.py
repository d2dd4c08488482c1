"""Further Triton kernels for `triton_*.ptx` here. Needs triton, no GPU: `python layers_triton.py` rewrites them."""

import triton
import triton.language as tl
from more_triton import F32, I32, write

BF16, F8 = "*bf16", "*fp8e4nv"


@triton.jit
def causal_attention(q, k, v, o, length, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    block, head = tl.program_id(0), tl.program_id(1).to(tl.int64) * length * D
    m, d, n = block * BM + tl.arange(0, BM), tl.arange(0, D), tl.arange(0, BN)
    query = tl.load(q + head + m[:, None] * D + d[None, :])
    largest = tl.full([BM], -float("inf"), tl.float32)
    total, out = tl.zeros([BM], tl.float32), tl.zeros([BM, D], tl.float32)
    for start in range(0, (block + 1) * BM, BN):
        key = tl.load(k + head + (start + n)[None, :] * D + d[:, None])
        scores = tl.dot(query, key) * 0.1275
        scores = tl.where(m[:, None] >= (start + n)[None, :], scores, -1.0e6)
        higher = tl.maximum(largest, tl.max(scores, 1))
        powers = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(largest - higher)
        total = total * shrink + tl.sum(powers, 1)
        value = tl.load(v + head + (start + n)[:, None] * D + d[None, :])
        out = tl.dot(powers.to(tl.bfloat16), value, out * shrink[:, None])
        largest = higher
    tl.store(o + head + m[:, None] * D + d[None, :], (out / total[:, None]).to(tl.bfloat16))


@triton.jit
def eight_bit_product(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(1) * BM + tl.arange(0, BM), tl.program_id(0) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    left, right = a + m[:, None] * K + k[None, :], b + n[None, :] * K + k[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += BK
        right += BK
    tl.store(c + m[:, None] * N + n[None, :], total.to(tl.bfloat16))


@triton.jit
def sixteen_rows(a, b, c, N, K, BN: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, 16), tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    left, right = a + m[:, None] * K + k[None, :], b + n[None, :] * K + k[:, None]
    total = tl.zeros((16, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += BK
        right += BK
    tl.store(c + m[:, None] * N + n[None, :], total.to(tl.bfloat16))


@triton.jit
def column_sums(x, out, rows, columns, BM: tl.constexpr, BN: tl.constexpr):
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros([BN], tl.float32)
    for start in range(tl.program_id(1) * BM, rows, tl.num_programs(1) * BM):
        m = start + tl.arange(0, BM)
        total += tl.sum(tl.load(x + m[:, None] * columns + n[None, :]).to(tl.float32), 0)
    tl.atomic_add(out + n, total)


@triton.jit
def dropped(x, y, count, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kept = tl.rand(seed, at) > 0.1
    tl.store(y + at, tl.where(kept, tl.load(x + at, mask=at < count) * 1.1111, 0.0), mask=at < count)


MADE = {
    "causal_attention": (
        causal_attention, {"q": BF16, "k": BF16, "v": BF16, "o": BF16, "length": I32},
        {"BM": 128, "BN": 64, "D": 128}, {"num_warps": 8, "num_stages": 2},
    ),
    "eight_bit_product": (
        eight_bit_product, {"a": F8, "b": F8, "c": BF16, "N": I32, "K": I32}, {"BM": 128, "BN": 256, "BK": 128},
        {"num_warps": 8, "num_stages": 4},
    ),
    "sixteen_rows": (
        sixteen_rows, {"a": BF16, "b": BF16, "c": BF16, "N": I32, "K": I32}, {"BN": 32, "BK": 256},
        {"num_warps": 4, "num_stages": 4},
    ),
    "column_sums": (
        column_sums, {"x": BF16, "out": F32, "rows": I32, "columns": I32}, {"BM": 32, "BN": 128}, {"num_warps": 4},
    ),
    "dropped": (dropped, {"x": F32, "y": F32, "count": I32, "seed": I32}, {"BLOCK": 1024}, {"num_warps": 4}),
}  # fmt: skip


if __name__ == "__main__":
    write(MADE)
