"""Two CTAs of a cluster swap their data through each other's shared memory.

Idea       `mapa` maps an address in this CTA's shared memory to the same offset in another CTA's. Loads from there are
           ordinary loads with another state space.
Roles      two CTAs of 128 threads; each writes its half to its own memory and reads the other's
Barriers   cluster    after writing: the peer CTA's values are visible
           cluster    before exit: a CTA must not exit while its memory is being read

    python examples/cluster_exchange.py
"""

from collections.abc import Iterator

import numpy as np

from warploom import Tile, kernel, ptx, smem
from warploom.types import f32, u64

THREADS = 128


@kernel(
    in_specs=(Tile(2, THREADS, f32),),
    out_specs=(Tile(2, THREADS, f32),),
    grid=(2,),
    block=THREADS,
    cluster=(2, 1, 1),
    arch="sm_90",
)
def cluster_exchange(X, Y):
    mine = smem.array(f32, THREADS)
    x, y = ptx.global_ptrs(X, Y)
    thread, rank = ptx.special.tid.x(), ptx.special.cluster_ctarank()
    offset = (ptx.special.ctaid.x() * THREADS + thread).to(u64) * f32.bytes

    ptx.store(mine[thread], ptx.load(f32, ptx.addr(x + offset)))
    ptx.cluster.sync()
    theirs = ptx.cluster.map_shared(mine[thread], rank ^ 1)
    ptx.store(ptx.addr(y + offset), ptx.load(f32, theirs, space="shared::cluster"))
    ptx.cluster.sync()


def example() -> Iterator[tuple]:
    """Random rows; they are returned swapped."""
    x = np.random.default_rng(0).standard_normal((2, THREADS), dtype=np.float32)

    def check(y):
        np.testing.assert_array_equal(y, x[::-1])

    yield cluster_exchange, (x,), check


def main() -> None:
    for kernel_, arguments, check in example():
        check(kernel_(*arguments))
        print(f"{kernel_.name}: the two rows have changed places")


if __name__ == "__main__":
    main()
