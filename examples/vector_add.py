"""c = a + b, one element per thread.

Idea       The smallest complete kernel: compute the index, check the bound, load, add, store. One kernel for every
           length: N is a run-time parameter, read from the arrays at the call.
Grid       one CTA of 256 threads for each 256 elements; the last one is guarded

    python examples/vector_add.py        runs it in the emulator
"""

from collections.abc import Iterator

import numpy as np

from warploom import Tile, kernel, ptx, tiles
from warploom.types import f32, u64

THREADS = 256


@kernel(
    in_specs=(Tile("N", f32), Tile("N", f32)),
    out_specs=(Tile("N", f32),),
    grid=(tiles("N", THREADS),),
    block=THREADS,
    arch="sm_80",
)
def vector_add(A, B, C):
    (n,) = C.shape
    a, b, c = ptx.global_ptrs(A, B, C)
    index = ptx.special.ctaid.x() * THREADS + ptx.special.tid.x()
    with ptx.if_(index < n):
        offset = index.to(u64) * f32.bytes
        total = ptx.load(f32, ptx.addr(a + offset)) + ptx.load(f32, ptx.addr(b + offset))
        ptx.store(ptx.addr(c + offset), total)


def example() -> Iterator[tuple]:
    """A length that is no multiple of the CTA size, and one element."""
    rng = np.random.default_rng(0)
    for n in (1000, 1):
        a, b = rng.standard_normal((2, n), dtype=np.float32)

        def check(c, a=a, b=b):
            np.testing.assert_array_equal(c, a + b)

        yield vector_add, (a, b), check


def main() -> None:
    for kernel_, arguments, check in example():
        check(kernel_(*arguments))
        print(f"{kernel_.name} of {arguments[0].size} elements: equal to NumPy's sum, bit for bit")


if __name__ == "__main__":
    main()
