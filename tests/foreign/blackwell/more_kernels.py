"""More kernels of our own for sm_100a, as in `kernels.py`: `python more_kernels.py` rewrites the texts in `more`."""

import pathlib
import sys

import triton
import triton.language as tl
from kernels import compile_all, source_of


@triton.jit
def by_boxes(a, b, c, K, TM: tl.constexpr, TN: tl.constexpr, STEP: tl.constexpr, ACC: tl.constexpr, PREC: tl.constexpr):
    """C = A B^T with accumulators of a type and a precision."""
    row, column = tl.program_id(0) * TM, tl.program_id(1) * TN
    total = tl.zeros((TM, TN), dtype=ACC)
    for k in tl.range(0, K, STEP, num_stages=2):
        total = tl.dot(a.load([row, k]), b.load([column, k]).T, total, input_precision=PREC, out_dtype=ACC)
    c.store([row, column], total.to(c.dtype))


@triton.jit
def ragged(a, b, c, M, N, K, lda, ldb, ldc, TM: tl.constexpr, TN: tl.constexpr, STEP: tl.constexpr, ACC: tl.constexpr):
    """C = A B of any size, by pointers with masks."""
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    columns = tl.program_id(1) * TN + tl.arange(0, TN)
    inner = tl.arange(0, STEP)
    total = tl.zeros((TM, TN), dtype=ACC)
    for k in tl.range(0, tl.cdiv(K, STEP), num_stages=3):
        ks = k * STEP + inner
        left = tl.load(a + rows[:, None] * lda + ks[None, :], mask=(rows[:, None] < M) & (ks[None, :] < K), other=0)
        right = tl.load(
            b + ks[:, None] * ldb + columns[None, :], mask=(ks[:, None] < K) & (columns[None, :] < N), other=0
        )
        total = tl.dot(left, right, total, out_dtype=ACC)
    tl.store(
        c + rows[:, None] * ldc + columns[None, :],
        total.to(c.dtype.element_ty),
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


@triton.jit
def split_k(
    a, b, c, M, N, K, lda, ldb, ldc, TM: tl.constexpr, TN: tl.constexpr, STEP: tl.constexpr, PARTS: tl.constexpr
):
    """C += A B, each program a part of k."""
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    columns = tl.program_id(1) * TN + tl.arange(0, TN)
    part = tl.program_id(2)
    inner = tl.arange(0, STEP)
    total = tl.zeros((TM, TN), dtype=tl.float32)
    for k in tl.range(part * STEP, K, STEP * PARTS, num_stages=2):
        left = tl.load(a + rows[:, None] * lda + (k + inner)[None, :])
        right = tl.load(b + (k + inner)[:, None] * ldb + columns[None, :])
        total = tl.dot(left, right, total)
    tl.atomic_add(c + rows[:, None] * ldc + columns[None, :], total)


@triton.jit
def in_turns(a, b, c, locks, M, N, K, lda, ldb, ldc, TM: tl.constexpr, TN: tl.constexpr, STEP: tl.constexpr):
    """C = A B of one tile: each program adds its part of k when the previous program has released the lock."""
    rows = tl.arange(0, TM)
    columns = tl.arange(0, TN)
    inner = tl.arange(0, STEP)
    me = tl.program_id(0)
    total = tl.zeros((TM, TN), dtype=tl.float32)
    for k in tl.range(me * STEP, K, STEP * tl.num_programs(0), num_stages=2):
        left = tl.load(a + rows[:, None] * lda + (k + inner)[None, :])
        right = tl.load(b + (k + inner)[:, None] * ldb + columns[None, :])
        total = tl.dot(left, right, total)
    at = c + rows[:, None] * ldc + columns[None, :]
    while tl.atomic_cas(locks, me, me, sem="acquire") != me:
        pass
    if me > 0:
        total += tl.load(at)
    tl.store(at, total)
    tl.debug_barrier()
    tl.atomic_xchg(locks, me + 1, sem="release")


@triton.jit
def scaled_pair(
    a,
    b,
    c,
    of_a,
    of_b,
    K,
    TM: tl.constexpr,
    TN: tl.constexpr,
    STEP: tl.constexpr,
    KA: tl.constexpr,
    KB: tl.constexpr,
    PA: tl.constexpr,
    PB: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """C = A B^T of operands with types of their own and a factor for BLOCK elements of each row."""
    m, n = tl.program_id(0), tl.program_id(1)
    total = tl.zeros((TM, TN), dtype=tl.float32)
    F: tl.constexpr = STEP // BLOCK
    ra = m * TM + tl.arange(0, TM)
    rb = n * TN + tl.arange(0, TN)
    f = tl.arange(0, F)
    for step in tl.range(0, K // STEP, num_stages=2):
        left = a.load([m * TM, step * (STEP // PA)])
        right = b.load([n * TN, step * (STEP // PB)])
        sa = tl.load(of_a + ra[:, None] * (K // BLOCK) + (step * F + f)[None, :])
        sb = tl.load(of_b + rb[:, None] * (K // BLOCK) + (step * F + f)[None, :])
        total = tl.dot_scaled(left, sa, KA, right.T, sb, KB, total)
    c.store([m * TM, n * TN], total.to(tl.float16))


@triton.jit
def scattered(src, index, out, K, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Rows of src go to the rows of out that `index` names."""
    rows = tl.load(index + tl.program_id(0) * ROWS + tl.arange(0, ROWS))
    x = src.load([tl.program_id(0) * ROWS, tl.program_id(1) * COLS])
    out.scatter(x, rows, tl.program_id(1) * COLS)


@triton.jit
def gathered(a, index, b, c, K, TM: tl.constexpr, TN: tl.constexpr, STEP: tl.constexpr):
    """C = A B^T of the rows of A that `index` names."""
    rows = tl.load(index + tl.program_id(0) * TM + tl.arange(0, TM))
    total = tl.zeros((TM, TN), dtype=tl.float32)
    for k in tl.range(0, K, STEP, num_stages=2):
        total = tl.dot(a.gather(rows, k), b.load([tl.program_id(1) * TN, k]).T, total)
    c.store([tl.program_id(0) * TM, tl.program_id(1) * TN], total.to(tl.float16))


@triton.jit
def gradient_of_queries(
    q,
    k,
    v,
    do,
    dq,
    lse,
    delta,
    length,
    scale,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    W: tl.constexpr,
    WS: tl.constexpr,
):
    """dQ of softmax(Q K^T scale) V, from its sums and delta."""
    start = tl.program_id(0) * ROWS
    head = tl.program_id(1) * length
    query = q.load([head + start, 0])
    grad = do.load([head + start, 0])
    rows = start + tl.arange(0, ROWS)
    logs = tl.load(lse + head + rows)
    d = tl.load(delta + head + rows)
    total = tl.zeros([ROWS, W], tl.float32)
    for first in tl.range(0, length, COLS, warp_specialize=WS):
        key = k.load([head + first, 0])
        value = v.load([head + first, 0])
        p = tl.exp(tl.dot(query, key.T) * scale - logs[:, None])
        dp = tl.dot(grad, value.T)
        ds = p * (dp - d[:, None])
        total = tl.dot(ds.to(tl.float16), key, total)
    dq.store([head + start, 0], (total * scale).to(tl.float16))


@triton.jit
def halves(a, b, c, M, N, K, TM: tl.constexpr, TN: tl.constexpr, STEP: tl.constexpr):
    """C = A B^T, tile after tile, each stored in two halves."""
    across = tl.cdiv(N, TN)
    for tile in tl.range(
        tl.program_id(0), tl.cdiv(M, TM) * across, tl.num_programs(0), flatten=False, warp_specialize=True
    ):
        row, col = tile // across * TM, tile % across * TN
        total = tl.zeros((TM, TN), tl.float32)
        for k in range(0, K, STEP):
            total = tl.dot(a.load([row, k]), b.load([col, k]).T, total)
        acc = tl.reshape(total, (TM, 2, TN // 2))
        acc = tl.permute(acc, (0, 2, 1))
        left, right = tl.split(acc)
        c.store([row, col], left.to(tl.float16))
        c.store([row, col + TN // 2], right.to(tl.float16))


@triton.jit
def changed_operand(a, b, c, K, TM: tl.constexpr, TN: tl.constexpr, STEP: tl.constexpr):
    """C = (A / 2 + 1) B^T: the operand goes from registers to tensor memory."""
    row, column = tl.program_id(0) * TM, tl.program_id(1) * TN
    total = tl.zeros((TM, TN), dtype=tl.float32)
    for k in tl.range(0, K, STEP, num_stages=2):
        x = a.load([row, k]).to(tl.float32) * 0.5 + 1.0
        total = tl.dot(x.to(tl.float16), b.load([column, k]).T, total)
    c.store([row, column], total.to(tl.float16))


@triton.jit
def two_products(a, b, b2, c, K, TM: tl.constexpr, TN: tl.constexpr, STEP: tl.constexpr):
    """C = silu(A B^T) * (A B2^T): two accumulators."""
    row, column = tl.program_id(0) * TM, tl.program_id(1) * TN
    x = tl.zeros((TM, TN), dtype=tl.float32)
    y = tl.zeros((TM, TN), dtype=tl.float32)
    for k in tl.range(0, K, STEP, num_stages=2):
        left = a.load([row, k])
        x = tl.dot(left, b.load([column, k]).T, x)
        y = tl.dot(left, b2.load([column, k]).T, y)
    c.store([row, column], (x * tl.sigmoid(x) * y).to(tl.float16))


def box(kind: str, rows: int, columns: int) -> str:
    return f"tensordesc<{kind}[{rows},{columns}]>"


def boxes(element: str, result: str, rows: int, columns: int, step: int, other: str = "") -> str:
    """A, B and C of a product of tiles, and K."""
    return f"{box(element, rows, step)} {box(other or element, columns, step)} {box(result, rows, columns)} i32"


def tile(rows: int, columns: int, step: int) -> dict[str, int]:
    return {"TM": rows, "TN": columns, "STEP": step}


EXACT = {"ACC": tl.float32, "PREC": "ieee"}
MATRICES = "*bf16 *bf16 *fp32 i32 i32 i32 i32 i32 i32"
SMALL = tile(128, 64, 64)
HEADS = " ".join(
    (box("fp16", 128, 64), box("fp16", 64, 64), box("fp16", 64, 64), box("fp16", 128, 64), box("fp16", 128, 64))
)
TEXTS = {
    "tf32": (
        source_of(by_boxes, boxes("fp32", "fp32", 128, 64, 32), **tile(128, 64, 32), ACC=tl.float32, PREC="tf32"), {},
    ),
    "f16_into_f16": (source_of(by_boxes, boxes("fp16", "fp16", 128, 64, 64), **SMALL, ACC=tl.float16, PREC="ieee"), {}),
    "bf16_of_64_rows": (source_of(by_boxes, boxes("bf16", "bf16", 64, 64, 32), **tile(64, 64, 32), **EXACT), {}),
    "f16_of_16_columns": (source_of(by_boxes, boxes("fp16", "fp16", 128, 16, 64), **tile(128, 16, 64), **EXACT), {}),
    "f16_of_256_rows": (
        source_of(by_boxes, boxes("fp16", "fp16", 256, 128, 32), **tile(256, 128, 32), **EXACT), {"num_warps": 8},
    ),
    "e4m3_by_e5m2": (source_of(by_boxes, boxes("fp8e4nv", "fp16", 128, 64, 64, "fp8e5"), **SMALL, **EXACT), {}),
    "cluster_of_two": (
        source_of(by_boxes, boxes("fp16", "fp16", 256, 128, 64), **tile(256, 128, 64), **EXACT), {"num_ctas": 2},
    ),
    "int8": (source_of(ragged, "*i8 *i8 *i32 i32 i32 i32 i32 i32 i32", **SMALL, ACC=tl.int32), {}),
    "ragged_f16": (
        source_of(ragged, "*fp16 *fp16 *fp32 i32 i32 i32 i32 i32 i32", **tile(128, 64, 32), ACC=tl.float32), {},
    ),
    "split_k": (source_of(split_k, MATRICES, **tile(128, 64, 32), PARTS=2), {}),
    "in_turns": (source_of(in_turns, "*bf16 *bf16 *fp32 *i32 i32 i32 i32 i32 i32 i32", **tile(128, 64, 32)), {}),
    "mxfp8_by_mxfp4": (
        source_of(
            scaled_pair, f"{box('fp8e4nv', 128, 128)} {box('u8', 128, 64)} {box('fp16', 128, 128)} *u8 *u8 i32",
            **tile(128, 128, 128), KA="e4m3", KB="e2m1", PA=1, PB=2, BLOCK=32,
        ), {},
    ),
    "scattered_rows": (
        source_of(scattered, f"{box('fp16', 32, 64)} *i32 {box('fp16', 1, 64)} i32", ROWS=32, COLS=64), {},
    ),
    "gathered_rows": (
        source_of(gathered, f"{box('fp16', 1, 64)} *i32 {box('fp16', 64, 64)} {box('fp16', 128, 64)} i32", **SMALL), {},
    ),
    "gradient_of_queries": (
        source_of(gradient_of_queries, HEADS + " *fp32 *fp32 i32 fp32", ROWS=128, COLS=64, W=64, WS=True), {},
    ),
    "halves": (
        source_of(halves, " ".join([box("fp16", 128, 64)] * 3) + " i32 i32 i32", **tile(128, 128, 64)),
        {"num_stages": 2},
    ),
    "changed_operand": (source_of(changed_operand, boxes("fp16", "fp16", 128, 64, 64), **SMALL), {}),
    "two_products": (
        source_of(two_products, " ".join(box("fp16", rows, 64) for rows in (128, 64, 64, 128)) + " i32", **SMALL), {},
    ),
}  # fmt: skip


if __name__ == "__main__":
    folder = pathlib.Path(__file__).parent / "more"
    folder.mkdir(exist_ok=True)
    compile_all(folder, sys.argv[1:], TEXTS)
