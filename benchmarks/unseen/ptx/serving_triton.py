"""Two Triton kernels for `triton_*.ptx` here. Needs triton, no GPU: `python serving_triton.py` rewrites them."""

import triton
import triton.language as tl
from more_triton import F32, I32, write

BF16 = "*bf16"


@triton.jit
def activated_product(a, b, bias, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(1) * BM + tl.arange(0, BM), tl.program_id(0) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    left, right = a + m[:, None] * K + k[None, :], b + n[None, :] * K + k[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += BK
        right += BK
    total += tl.load(bias + n)[None, :]
    total = total * tl.sigmoid(1.702 * total)
    tl.store(c + m[:, None] * N + n[None, :], total.to(tl.bfloat16))


@triton.jit
def softmax_gradient(y, dy, dx, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * columns + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < columns
    power = tl.load(y + at, mask=inside, other=0.0).to(tl.float32)
    slope = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(dx + at, (power * (slope - tl.sum(power * slope, 0))).to(tl.bfloat16), mask=inside)


MADE = {
    "activated_product": (
        activated_product, {"a": BF16, "b": BF16, "bias": F32, "c": BF16, "N": I32, "K": I32},
        {"BM": 128, "BN": 128, "BK": 64}, {"num_warps": 8, "num_stages": 3},
    ),
    "softmax_gradient": (
        softmax_gradient, {"y": BF16, "dy": BF16, "dx": BF16, "columns": I32}, {"BLOCK": 2048}, {"num_warps": 4},
    ),
}  # fmt: skip


if __name__ == "__main__":
    write(MADE)
