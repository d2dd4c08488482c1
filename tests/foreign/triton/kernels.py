"""The Triton kernels behind the texts in this folder. Needs triton, no GPU: `python kernels.py` rewrites them."""

import pathlib
import re

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


def compile_all(folder: pathlib.Path) -> None:
    softmax = ASTSource(
        row_softmax,
        signature={"source": "*fp32", "destination": "*fp32", "columns": "i32", "stride": "i32", "BLOCK": "constexpr"},
        constexprs={"BLOCK": 1024},
    )
    names = ("a", "b", "c")
    gemm = ASTSource(
        product,
        signature={
            **{name: "*bf16" for name in names},
            **{name: "i32" for name in ("K", "lda", "ldb", "ldc")},
            **{name: "constexpr" for name in ("M", "N", "STEP")},
        },
        constexprs={"M": 128, "N": 128, "STEP": 64},
        attrs={(index,): [["tt.divisibility", 16]] for index in range(7)},
    )
    for name, source, arch in [
        ("row_softmax_sm90", softmax, 90),
        ("product_sm90", gemm, 90),
        ("product_sm80", gemm, 80),
    ]:
        built = triton.compile(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": 4, "ptx_version": 87})
        # No path of this machine: only what lies below the folder and below site-packages.
        text = re.sub(r"\"/[^\"]*site-packages/", "\"", built.asm["ptx"].replace(f"{folder.resolve()}/", ""))
        (folder / f"{name}.ptx").write_text(text)


if __name__ == "__main__":
    compile_all(pathlib.Path(__file__).parent)
