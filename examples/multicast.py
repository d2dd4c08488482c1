"""A TMA multicast load: two CTAs fetch half a tile each, and both get the whole tile.

Idea       Both CTAs of a cluster need the same 64 x 32 tile. Each loads one half from global memory, and the copy
           writes it into the shared memory of both, at the same offset: half the traffic.
Roles      two CTAs of 128 threads; thread 0 of each starts one copy of 32 rows
Barriers   full       1 arrival + bytes of the whole tile; each half signals its bytes to the barrier of each CTA
           cluster    after the initialisation: a copy may signal the peer CTA's barrier
           cluster    before exit: a CTA must not exit while copies write into it

    python examples/multicast.py
"""

from collections.abc import Iterator

import numpy as np

from warploom import Tile, kernel, ptx, smem
from warploom.types import f32

ROWS, COLUMNS, CTAS = 64, 32, 2
HALF = ROWS // CTAS
THREADS = 128
BOTH = (1 << CTAS) - 1


@kernel(
    in_specs=(Tile(ROWS, COLUMNS, f32, box=(COLUMNS, HALF)),),
    out_specs=(Tile(CTAS, ROWS, COLUMNS, f32),),
    grid=(CTAS,),
    block=THREADS,
    cluster=(CTAS, 1, 1),
    arch="sm_90",
)
def multicast(X, Y):
    tile = smem.array(f32, (ROWS, COLUMNS), align=128)
    full = smem.mbarrier(1)
    thread, rank = ptx.special.tid.x(), ptx.special.cluster_ctarank()

    with ptx.if_(thread == 0):
        ptx.mbarrier.init(full[0], 1)
        ptx.fence.mbarrier_init()
    ptx.cluster.sync()
    with ptx.if_(thread == 0):
        ptx.mbarrier.arrive_expect_tx(full[0], tile.bytes)
        first = rank * HALF
        ptx.cp.async_.bulk.tensor_2d(dst=tile[first], src=X.tma_desc(), coord=(0, first), mbar=full[0], multicast=BOTH)
    ptx.mbarrier.wait(full[0], 0)

    (y,) = ptx.global_ptrs(Y)
    for first in range(0, ROWS, THREADS // COLUMNS):
        row, column = thread // COLUMNS + first, thread % COLUMNS
        offset = ((rank * ROWS + row) * COLUMNS + column) * f32.bytes
        ptx.store(ptx.addr(y + offset), ptx.load(f32, tile[row, column]))
    ptx.cluster.sync()


def example() -> Iterator[tuple]:
    """A random tile; both CTAs write the whole of it."""
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), dtype=np.float32)

    def check(y):
        for cta in range(CTAS):
            np.testing.assert_array_equal(y[cta], x)

    yield multicast, (x,), check


def main() -> None:
    for kernel_, arguments, check in example():
        check(kernel_(*arguments))
        print(f"{kernel_.name}: both CTAs have the whole tile, each fetched half of it")


if __name__ == "__main__":
    main()
