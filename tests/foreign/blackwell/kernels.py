"""The kernels behind the texts in `current`. Needs triton, no GPU: `python kernels.py` rewrites them.

`launches.json` next to the texts has what a launch takes from the compiler: threads, dynamic shared memory, CTAs of a
cluster.
"""

import json
import pathlib
import re
import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    clc,
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_mma,
    tma,
)


@triton.jit
def by_descriptors(a, b, c, K, TM: tl.constexpr, TN: tl.constexpr, STEP: tl.constexpr):
    """C = A B^T, one tile a program."""
    row, column = tl.program_id(0) * TM, tl.program_id(1) * TN
    total = tl.zeros((TM, TN), dtype=tl.float32)
    for k in tl.range(0, K, STEP, num_stages=3):
        total = tl.dot(a.load([row, k]), b.load([column, k]).T, total)
    c.store([row, column], total.to(tl.float16))


@triton.jit
def by_pointers(a, b, c, K, lda, ldb, ldc, TM: tl.constexpr, TN: tl.constexpr, STEP: tl.constexpr):
    """C = A B."""
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    columns = tl.program_id(1) * TN + tl.arange(0, TN)
    inner = tl.arange(0, STEP)
    total = tl.zeros((TM, TN), dtype=tl.float32)
    for k in tl.range(0, K, STEP, num_stages=3):
        left = tl.load(a + rows[:, None] * lda + (k + inner)[None, :])
        right = tl.load(b + (k + inner)[:, None] * ldb + columns[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * ldc + columns[None, :], total.to(tl.float16))


@triton.jit
def specialised(a, b, c, K, TM: tl.constexpr, TN: tl.constexpr, STEP: tl.constexpr):
    """As `by_descriptors`, loads, products and the rest each by warps of their own."""
    row, column = tl.program_id(0) * TM, tl.program_id(1) * TN
    total = tl.zeros((TM, TN), dtype=tl.float32)
    for step in tl.range(0, tl.cdiv(K, STEP), warp_specialize=True, num_stages=3):
        total = tl.dot(a.load([row, step * STEP]), b.load([column, step * STEP]).T, total)
    c.store([row, column], total.to(tl.float16))


@triton.jit
def persistent(a, b, c, M, N, K, TM: tl.constexpr, TN: tl.constexpr, STEP: tl.constexpr):
    """A program computes one tile after another; the warps that store one do not hold up the next."""
    across = tl.cdiv(N, TN)
    tiles = tl.cdiv(M, TM) * across
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=False, warp_specialize=True):
        row, column = tile // across * TM, tile % across * TN
        total = tl.zeros((TM, TN), dtype=tl.float32)
        for k in tl.range(0, K, STEP):
            total = tl.dot(a.load([row, k]), b.load([column, k]).T, total)
        c.store([row, column], total.to(tl.float16))


@triton.jit
def of_atoms(at, atom, steps, step, ROWS: tl.constexpr, FACTORS: tl.constexpr):
    """Scale factors (ROWS, FACTORS) from atoms of 128 rows x 4 factors, 512 bytes each."""
    down: tl.constexpr = ROWS // 128
    along: tl.constexpr = FACTORS // 4
    i = tl.arange(0, down)[:, None, None]
    j = tl.arange(0, along)[None, :, None]
    values = tl.load(at + ((atom * down + i) * steps + step * along + j) * 512 + tl.arange(0, 512)[None, None, :])
    return values.reshape(down, along, 32, 4, 4).trans(0, 3, 2, 1, 4).reshape(ROWS, FACTORS)


@triton.jit
def scaled(
    a, b, c, of_a, of_b, K,
    TM: tl.constexpr, TN: tl.constexpr, STEP: tl.constexpr, KIND: tl.constexpr, PACKED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """C = A B^T with a factor for BLOCK elements of each row; PACKED elements stand in a byte."""
    m, n = tl.program_id(0), tl.program_id(1)
    total = tl.zeros((TM, TN), dtype=tl.float32)
    steps = K // BLOCK // 4
    for step in tl.range(0, K // STEP, num_stages=2):
        left = a.load([m * TM, step * (STEP // PACKED)])
        right = b.load([n * TN, step * (STEP // PACKED)])
        left_scale = of_atoms(of_a, m, steps, step, TM, STEP // BLOCK)
        right_scale = of_atoms(of_b, n, steps, step, TN, STEP // BLOCK)
        total = tl.dot_scaled(left, left_scale, KIND, right.T, right_scale, KIND, total)
    c.store([m * TM, n * TN], total.to(tl.float16))


@triton.jit
def attention(
    q, k, v, out, length, factor,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr, CAUSAL: tl.constexpr, ROLES: tl.constexpr,
):  # fmt: skip
    """softmax(Q K^T factor) V of one head after another, (heads * length, WIDTH) each."""
    start, head = tl.program_id(0) * ROWS, tl.program_id(1) * length
    rows, ahead = start + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    query = q.load([head + start, 0])
    largest = tl.full([ROWS], -float("inf"), dtype=tl.float32)
    weight = tl.zeros([ROWS], dtype=tl.float32)
    total = tl.zeros([ROWS, WIDTH], dtype=tl.float32)
    last = start + ROWS if CAUSAL else length
    for first in tl.range(0, last, COLUMNS, warp_specialize=ROLES):
        score = tl.dot(query, k.load([head + first, 0]).T) * (factor * 1.44269504)
        if CAUSAL:
            score = tl.where((first + ahead)[None, :] <= rows[:, None], score, -1.0e6)
        higher = tl.maximum(largest, tl.max(score, 1))
        part = tl.exp2(score - higher[:, None])
        shrink = tl.exp2(largest - higher)
        weight = weight * shrink + tl.sum(part, 1)
        total = tl.dot(part.to(tl.float16), v.load([head + first, 0]), total * shrink[:, None])
        largest = higher
    out.store([head + start, 0], (total / weight[:, None]).to(tl.float16))


@gluon.jit
def pair(a, b, c, K, STEP: gl.constexpr, TM: gl.constexpr, TN: gl.constexpr, warps: gl.constexpr):
    """A tile of two CTAs that multiply together."""
    row, column = gl.program_id(0) * TM, gl.program_id(1) * TN
    left = gl.allocate_shared_memory(a.dtype, a.block_type.shape, a.layout)
    right = gl.allocate_shared_memory(b.dtype, b.block_type.shape, b.layout)
    full = mbarrier.allocate_mbarrier(two_ctas=True)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.init(done, count=1)
    layout: gl.constexpr = TensorMemoryLayout([TM // 2, TN], col_stride=1, cga_layout=((1, 0),), two_ctas=True)
    total = allocate_tensor_memory(gl.float32, [TM, TN], layout)
    phase = 0
    more = False
    for k in range(0, K, STEP):
        mbarrier.expect(full, a.nbytes_per_cta + b.nbytes_per_cta)
        tma.async_load(a, [row, k], full, left)
        tma.async_load(b, [column, k], full, right)
        mbarrier.wait(full, phase=phase, deps=[left, right])
        tcgen05_mma(left, right.permute((1, 0)), total, use_acc=more)
        tcgen05_commit(done)
        mbarrier.wait(done, phase=phase, deps=[left, right])
        more = True
        phase ^= 1
    mbarrier.invalidate(full)
    mbarrier.invalidate(done)
    made = gl.allocate_shared_memory(c.dtype, c.block_type.shape, c.layout)
    made.store(total.load().to(c.dtype))
    fence_async_shared()
    tma.async_store(c, [row, column], made)
    tma.store_wait(pendings=0)


@gluon.jit
def by_launch_control(
    a, b, c, K, across, STEP: gl.constexpr, TM: gl.constexpr, TN: gl.constexpr, warps: gl.constexpr
):  # fmt: skip
    """A CTA computes tiles of CTAs that it cancels, until there are none."""
    left = gl.allocate_shared_memory(a.dtype, a.block_type.shape, a.layout)
    right = gl.allocate_shared_memory(b.dtype, b.block_type.shape, b.layout)
    made = gl.allocate_shared_memory(c.dtype, c.block_type.shape, c.layout)
    word: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    answer = gl.allocate_shared_memory(gl.int64, [2], word)
    full = mbarrier.allocate_mbarrier()
    done = mbarrier.allocate_mbarrier()
    asked = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.init(done, count=1)
    mbarrier.init(asked, count=1)
    layout: gl.constexpr = TensorMemoryLayout([TM, TN], col_stride=1)
    total = allocate_tensor_memory(gl.float32, [TM, TN], layout)
    phase = 0
    turn = 0
    tile = gl.program_id(0)
    going = True
    while going:
        mbarrier.expect(asked, 16)
        clc.try_cancel(answer, asked)
        row = tile // across * TM
        column = tile % across * TN
        more = False
        for k in range(0, K, STEP):
            mbarrier.expect(full, a.nbytes_per_cta + b.nbytes_per_cta)
            tma.async_load(a, [row, k], full, left)
            tma.async_load(b, [column, k], full, right)
            mbarrier.wait(full, phase=phase)
            tcgen05_mma(left, right.permute((1, 0)), total, use_acc=more)
            tcgen05_commit(done)
            mbarrier.wait(done, phase=phase)
            more = True
            phase ^= 1
        tma.store_wait(pendings=0)
        made.store(total.load().to(c.dtype))
        fence_async_shared()
        tma.async_store(c, [row, column], made)
        mbarrier.wait(asked, phase=turn)
        found = clc.load_result(answer)
        going = found.is_canceled()
        tile = found.program_id(0)
        turn ^= 1
    tma.store_wait(pendings=0)
    mbarrier.invalidate(full)
    mbarrier.invalidate(done)
    mbarrier.invalidate(asked)


def source_of(kernel, signature: str, **constants) -> ASTSource:
    """A kernel with its parameters' types in order, as words; pointers and i32 are multiples of 16."""
    names = kernel.arg_names
    types = dict(zip(names, signature.split(), strict=False)) | {name: "constexpr" for name in constants}
    whole = {
        (at,): [["tt.divisibility", 16]] for at, name in enumerate(names) if types[name].startswith(("*", "i32"))
    }
    return ASTSource(kernel, signature=types, constexprs=constants, attrs=whole)


def gluon_source(kernel, extents: dict[str, tuple[int, int]], numbers: tuple[str, ...], ctas: int, **constants):
    """A kernel of Gluon with f16 descriptors of these boxes; of a cluster each CTA has half the rows."""
    types = {}
    for name, shape in extents.items():
        split = {"cga_layout": [[1, 0]]} if ctas == 2 else {}
        types[name] = f"tensordesc<fp16{list(shape)},{gl.NVMMASharedLayout.get_default_for(list(shape), gl.float16, **split)!r}>"
    types |= {name: "i32" for name in numbers} | {name: "constexpr" for name in constants}
    return GluonASTSource(fn=kernel, signature=types, constexprs=constants)


TILE = {"TM": 128, "TN": 64, "STEP": 64}
BOXES = "tensordesc<fp16[128,64]> tensordesc<fp16[64,64]> tensordesc<fp16[128,64]> "
EIGHTS = "tensordesc<fp8e4nv[128,128]> " * 2 + "tensordesc<fp16[128,128]> "
FOURS = "tensordesc<u8[128,128]> " * 2 + "tensordesc<fp16[128,128]> "
HEADS = "tensordesc<fp16[128,64]> tensordesc<fp16[64,64]> tensordesc<fp16[64,64]> tensordesc<fp16[128,64]> i32 fp32"
WIDE = {"TM": 128, "TN": 128}
TEXTS = {
    "descriptors_f16": (source_of(by_descriptors, BOXES + "i32", **TILE), {}),
    "descriptors_e4m3": (source_of(by_descriptors, EIGHTS + "i32", **WIDE, STEP=128), {}),
    "pointers_bf16": (source_of(by_pointers, "*bf16 *bf16 *fp16 i32 i32 i32 i32", **TILE), {}),
    "specialised_f16": (source_of(specialised, BOXES + "i32", **TILE), {"num_stages": 3}),
    "persistent_f16": (source_of(persistent, BOXES + "i32 i32 i32", **TILE), {"num_stages": 3}),
    "mxfp8": (
        source_of(scaled, EIGHTS + "*u8 *u8 i32", **WIDE, STEP=128, KIND="e4m3", PACKED=1, BLOCK=32), {},
    ),
    "nvfp4": (
        source_of(scaled, FOURS + "*fp8e4nv *fp8e4nv i32", **WIDE, STEP=256, KIND="e2m1", PACKED=2, BLOCK=16), {},
    ),
    "attention": (
        source_of(attention, HEADS, ROWS=128, COLUMNS=64, WIDTH=64, CAUSAL=False, ROLES=False), {},
    ),
    "causal_attention_roles": (
        source_of(attention, HEADS, ROWS=128, COLUMNS=64, WIDTH=64, CAUSAL=True, ROLES=True), {},
    ),
    "gluon_pair_256x128": (
        gluon_source(pair, {"a": (256, 64), "b": (128, 64), "c": (256, 128)}, ("K",), 2, STEP=64, TM=256, TN=128, warps=4),
        {"num_ctas": 2},
    ),
    "gluon_pair_128x128": (
        gluon_source(pair, {"a": (128, 64), "b": (128, 64), "c": (128, 128)}, ("K",), 2, STEP=64, TM=128, TN=128, warps=4),
        {"num_ctas": 2},
    ),
    "gluon_launch_control": (
        gluon_source(
            by_launch_control, {"a": (128, 64), "b": (64, 64), "c": (128, 64)}, ("K", "across"), 1, STEP=64, TM=128, TN=64, warps=4
        ), {},
    ),
}  # fmt: skip


def compile_all(folder: pathlib.Path, wanted: list[str], texts: dict = TEXTS) -> None:
    """Write the texts and what their launches take."""
    facts = folder / "launches.json"
    launches = json.loads(facts.read_text()) if facts.exists() else {}
    for name, (source, options) in texts.items():
        if wanted and name not in wanted:
            continue
        built = triton.compile(
            source, target=GPUTarget("cuda", 100, 32), options={"num_warps": 4, "ptx_version": 90, **options}
        )
        # No path of this machine: neither in .file nor, as bytes, in the debug sections.
        text = re.sub(r'"/[^"]*/', '"', built.asm["ptx"])
        text = re.sub(r"(?m)^\t\.section\t\.debug.*?^\t\}\n", "", text, flags=re.DOTALL)
        text = re.sub(r"(?m), function_name [^\n]*?(?=\s*(?://|$))", "", text)  # named a string of those sections
        (folder / f"{name}.ptx").write_text(text)
        threads = re.search(r"\.reqntid (\d+)", text)
        launches[name] = {
            "threads": int(threads[1]), "shared": built.metadata.shared, "ctas": built.metadata.num_ctas,
            "scratch": built.metadata.global_scratch_size,
        }  # fmt: skip
        print(name, launches[name], len(text))
    facts.write_text(json.dumps(launches, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    compile_all(pathlib.Path(__file__).parent / "current", sys.argv[1:])
