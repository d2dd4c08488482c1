"""The Triton kernels of `triton_*.ptx` here. Needs triton, no GPU: `python more_triton.py` rewrites them."""

import pathlib
import re

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def scaled_sum(x, y, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(out + at, tl.load(x + at, mask=inside) * 0.5 + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def cross_entropy(logits, labels, losses, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    largest = tl.full([BLOCK], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        values = tl.load(logits + row.to(tl.int64) * columns + at, mask=at < columns, other=-1e30).to(tl.float32)
        higher = tl.maximum(largest, values)
        total = total * tl.exp(largest - higher) + tl.exp(values - higher)
        largest = higher
    highest = tl.max(largest, axis=0)
    whole = tl.sum(total * tl.exp(largest - highest), axis=0)
    wanted = tl.load(logits + row.to(tl.int64) * columns + tl.load(labels + row)).to(tl.float32)
    tl.store(losses + row, highest + tl.log(whole) - wanted)


@triton.jit
def grouped_product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    program = tl.program_id(0)
    wide, high = tl.cdiv(N, BN), tl.cdiv(M, BM)
    group = program // (GROUP * wide)
    rows = min(high - group * GROUP, GROUP)
    row = group * GROUP + program % (GROUP * wide) % rows
    column = program % (GROUP * wide) // rows
    m, n, k = row * BM + tl.arange(0, BM), column * BN + tl.arange(0, BN), tl.arange(0, BK)
    left, right = a + m[:, None] * K + k[None, :], b + k[:, None] * N + n[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += BK
        right += BK * N
    tl.store(c + m[:, None] * N + n[None, :], total.to(tl.float16))


F32, F16, I32 = "*fp32", "*fp16", "i32"
MADE = {
    "scaled_sum": (scaled_sum, {"x": F32, "y": F32, "out": F32, "count": I32}, {"BLOCK": 1024}, {}),
    "cross_entropy": (
        cross_entropy, {"logits": F16, "labels": "*i32", "losses": F32, "columns": I32}, {"BLOCK": 2048},
        {"num_warps": 8},
    ),
    "grouped_product": (
        grouped_product, {"a": F16, "b": F16, "c": F16, "M": I32, "N": I32, "K": I32},
        {"BM": 128, "BN": 128, "BK": 64, "GROUP": 8}, {"num_warps": 8, "num_stages": 3},
    ),
}  # fmt: skip


def write(kernels) -> None:
    """Write the text of each kernel."""
    here = pathlib.Path(__file__).parent
    for name, (function, types, constants, options) in kernels.items():
        signature = types | dict.fromkeys(constants, "constexpr")
        attributes = {(at,): [["tt.divisibility", 16]] for at in range(len(types))}
        source = ASTSource(function, signature, constexprs=constants, attrs=attributes)
        made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
        print(name, "shared", made.metadata.shared, "threads", made.metadata.num_warps * 32)
        text = re.sub(r'"/[^"]*/', '"', made.asm["ptx"])
        text = re.sub(r"^\.version 9\.\d$", ".version 9.0", text, flags=re.M)  # ptxas of CUDA 13.0 takes no later one
        (here / f"triton_{name}.ptx").write_text(text)


if __name__ == "__main__":
    write(MADE)
