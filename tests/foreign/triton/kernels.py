"""The Triton kernels behind the texts in this folder. Needs triton, no GPU: `python kernels.py` rewrites them."""

import pathlib
import re
import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def row_softmax(source, destination, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    values = tl.load(source + row * stride + offsets, mask=offsets < columns, other=-float("inf"))
    numerator = tl.exp(values - tl.max(values, axis=0))
    tl.store(destination + row * stride + offsets, numerator / tl.sum(numerator, axis=0), mask=offsets < columns)


@triton.jit
def layer_norm(source, weight, bias, destination, mean, scale, columns, stride, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(source + row * stride + at, mask=at < columns, other=0.0).to(tl.float32)
    average = tl.sum(total, axis=0) / columns
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        values = tl.load(source + row * stride + at, mask=at < columns, other=0.0).to(tl.float32)
        values = tl.where(at < columns, values - average, 0.0)
        squares += values * values
    factor = 1 / tl.sqrt(tl.sum(squares, axis=0) / columns + epsilon)
    tl.store(mean + row, average)
    tl.store(scale + row, factor)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < columns
        values = tl.load(source + row * stride + at, mask=inside, other=0.0).to(tl.float32)
        out = (values - average) * factor * tl.load(weight + at, mask=inside) + tl.load(bias + at, mask=inside)
        tl.store(destination + row * stride + at, out.to(tl.float16), mask=inside)


@triton.jit
def product(a, b, c, K, lda, ldb, ldc, M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, STEP)
    total = tl.zeros((M, N), dtype=tl.float32)
    for k in range(0, K, STEP):
        left = tl.load(a + rows[:, None] * lda + (k + inner)[None, :])
        right = tl.load(b + (k + inner)[:, None] * ldb + columns[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * ldc + columns[None, :], total.to(tl.bfloat16))


@triton.jit
def ragged_product(
    a, b, c, M, N, K, lda, ldb, ldc,
    TM: tl.constexpr, TN: tl.constexpr, STEP: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """C = A B by grouped tiles in one list, edges masked, through a leaky rectifier."""
    program = tl.program_id(0)
    across, down = tl.cdiv(N, TN), tl.cdiv(M, TM)
    group = program // (GROUP * across)
    height = min(down - group * GROUP, GROUP)
    tile_m, tile_n = group * GROUP + program % (GROUP * across) % height, program % (GROUP * across) // height
    rows, columns, inner = tile_m * TM + tl.arange(0, TM), tile_n * TN + tl.arange(0, TN), tl.arange(0, STEP)
    left_at = a + (rows % M)[:, None] * lda + inner[None, :]
    right_at = b + inner[:, None] * ldb + (columns % N)[None, :]
    total = tl.zeros((TM, TN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, STEP)):
        left = tl.load(left_at, mask=inner[None, :] < K - k * STEP, other=0.0)
        right = tl.load(right_at, mask=inner[:, None] < K - k * STEP, other=0.0)
        total = tl.dot(left, right, total)
        left_at += STEP
        right_at += STEP * ldb
    total = tl.where(total >= 0, total, 0.01 * total)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * ldc + columns[None, :], total.to(c.dtype.element_ty), mask=inside)


@triton.jit
def host_descriptors(a, b, c, K, TM: tl.constexpr, TN: tl.constexpr, STEP: tl.constexpr):
    """C = A B^T by tensor maps that the host has encoded."""
    row, column = tl.program_id(0) * TM, tl.program_id(1) * TN
    total = tl.zeros((TM, TN), dtype=tl.float32)
    for k in range(0, K, STEP):
        total = tl.dot(a.load([row, k]), b.load([column, k]).T, total)
    c.store([row, column], total.to(c.dtype))


@triton.jit
def device_descriptors(a, b, c, M, N, K, TM: tl.constexpr, TN: tl.constexpr, STEP: tl.constexpr):
    """C = A B^T by tensor maps that the kernel makes itself, over a list of tiles (persistent)."""
    left = tl.make_tensor_descriptor(a, shape=[M, K], strides=[K, 1], block_shape=[TM, STEP])
    right = tl.make_tensor_descriptor(b, shape=[N, K], strides=[K, 1], block_shape=[TN, STEP])
    out = tl.make_tensor_descriptor(c, shape=[M, N], strides=[N, 1], block_shape=[TM, TN])
    down = tl.cdiv(M, TM)
    for tile in range(tl.program_id(0), down * tl.cdiv(N, TN), tl.num_programs(0)):
        row, column = tile % down * TM, tile // down * TN
        total = tl.zeros((TM, TN), dtype=tl.float32)
        for k in range(0, K, STEP):
            total = tl.dot(left.load([row, k]), right.load([column, k]).T, total)
        out.store([row, column], total.to(out.dtype))


@triton.jit
def attention(
    q, k, v, out, stride, length, factor,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """softmax(Q K^T factor) V of one head, row block by row block with a running maximum."""
    start, head = tl.program_id(0) * ROWS, tl.program_id(1) * stride
    rows, inner, ahead = start + tl.arange(0, ROWS), tl.arange(0, WIDTH), tl.arange(0, COLUMNS)
    query = tl.load(q + head + rows[:, None] * WIDTH + inner[None, :], mask=rows[:, None] < length, other=0.0)
    largest = tl.full([ROWS], -float("inf"), dtype=tl.float32)
    weight = tl.zeros([ROWS], dtype=tl.float32)
    total = tl.zeros([ROWS, WIDTH], dtype=tl.float32)
    last = tl.minimum(start + ROWS, length) if CAUSAL else length
    for first in range(0, last, COLUMNS):
        columns = first + ahead
        key = tl.load(k + head + columns[None, :] * WIDTH + inner[:, None], mask=columns[None, :] < length, other=0.0)
        score = tl.dot(query, key) * (factor * 1.44269504)
        seen = columns[None, :] < length
        if CAUSAL:
            seen = seen & (columns[None, :] <= rows[:, None])
        score = tl.where(seen, score, -float("inf"))
        higher = tl.maximum(largest, tl.max(score, 1))
        part = tl.exp2(score - higher[:, None])
        shrink = tl.exp2(largest - higher)
        weight = weight * shrink + tl.sum(part, 1)
        value = tl.load(v + head + columns[:, None] * WIDTH + inner[None, :], mask=columns[:, None] < length, other=0.0)
        total = tl.dot(part.to(value.dtype), value, total * shrink[:, None])
        largest = higher
    total = total / weight[:, None]
    out_at = out + head + rows[:, None] * WIDTH + inner[None, :]
    tl.store(out_at, total.to(out.dtype.element_ty), mask=rows[:, None] < length)


@triton.jit
def scans(x, sums, sorted_x, bins, drawn, seed, N: tl.constexpr, BINS: tl.constexpr):
    """Running sums, a sort, a histogram, atomics and random numbers."""
    at = tl.arange(0, N)
    values = tl.load(x + at)
    tl.store(sums + at, tl.cumsum(values, 0))
    tl.store(sorted_x + at, tl.sort(values))
    tl.atomic_add(bins + tl.arange(0, BINS), tl.histogram(values & (BINS - 1), BINS))
    tl.store(drawn + at, tl.randint(seed, at))


def source_of(kernel, signature: str, multiples: str = "", **constants) -> ASTSource:
    """A kernel with its parameters' types in order, as words; pointers and `multiples` are multiples of 16."""
    names = kernel.arg_names
    types = dict(zip(names, signature.split(), strict=False))
    types.update({name: "constexpr" for name in constants})
    whole = {
        (at,): [["tt.divisibility", 16]]
        for at, name in enumerate(names)
        if types[name].startswith("*") or name in multiples.split()
    }
    return ASTSource(kernel, signature=types, constexprs=constants, attrs=whole)


SIZES = 6 * " i32"
ON_BOTH = {
    "row_softmax": source_of(row_softmax, "*fp32 *fp32 i32 i32", BLOCK=1024),
    "layer_norm": source_of(layer_norm, "*fp16 *fp32 *fp32 *fp16 *fp32 *fp32 i32 i32 fp32", BLOCK=256),
    "product": source_of(product, "*bf16 *bf16 *bf16 i32 i32 i32 i32", "K lda ldb ldc", M=128, N=128, STEP=64),
    "ragged_product": source_of(ragged_product, "*fp16 *fp16 *fp16" + SIZES, TM=64, TN=64, STEP=32, GROUP=2),
    "attention": source_of(
        attention, "*fp16 *fp16 *fp16 *fp16 i32 i32 fp32", "stride", ROWS=64, COLUMNS=32, WIDTH=64, CAUSAL=False
    ),
    "causal_attention": source_of(
        attention, "*bf16 *bf16 *bf16 *bf16 i32 i32 fp32", "stride", ROWS=64, COLUMNS=64, WIDTH=64, CAUSAL=True
    ),
    "scans": source_of(scans, "*i32 *i32 *i32 *i32 *i32 i32", N=256, BINS=32),
}
ON_HOPPER = {
    "fp8_product": source_of(
        ragged_product, "*fp8e4nv *fp8e4nv *fp32" + SIZES, "M N K lda ldb ldc", TM=64, TN=64, STEP=64, GROUP=1
    ),
    "host_descriptors": source_of(host_descriptors, 3 * "tensordesc<bf16[64,64]> " + "i32", TM=64, TN=64, STEP=64),
    "device_descriptors": source_of(device_descriptors, "*bf16 *bf16 *bf16 i32 i32 i32", TM=64, TN=64, STEP=64),
}


def compile_all(folder: pathlib.Path, wanted: list[str]) -> None:
    for kind, arch, sources in (("sm80", 80, ON_BOTH), ("sm90", 90, ON_BOTH | ON_HOPPER)):
        for name, source in sources.items():
            if wanted and name not in wanted:
                continue
            options = {"num_warps": 4, "num_stages": 3, "ptx_version": 87}
            built = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
            # No path of this machine: neither in .file nor, as bytes, in the debug sections.
            text = re.sub(r'"/[^"]*/', '"', built.asm["ptx"])
            text = re.sub(r"(?m)^\t\.section\t\.debug.*?^\t\}\n", "", text, flags=re.DOTALL)
            (folder / f"{name}_{kind}.ptx").write_text(text)
            facts = built.metadata
            print(f"{name}_{kind}: dynamic_smem {facts.shared}, global scratch {facts.global_scratch_size}")


if __name__ == "__main__":
    compile_all(pathlib.Path(__file__).parent, sys.argv[1:])
