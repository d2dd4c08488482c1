"""Two GPUs exchange data: each writes to the other, raises a flag there, and waits for its own flag.

Roles      every thread moves one number; thread 0 raises the flag and waits for the other GPU's
Flags      flags[rank]   raised by the other GPU with release.sys after its writes; reset by the reader
Timeline   GPU 0   [write to GPU 1][raise its flag] . . . . . wait [read what came]
           GPU 1   [write to GPU 0] . . [raise its flag] wait [read what came]

    warploom check examples/several_gpus/exchange.py

Write `st.release.gpu` for `st.release.sys` and check again: a release at that scope does not reach another GPU.
Add `"calls": 2` next to `"devices"`: the second launch may write to an inbox that is still being read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from warploom import Scalar, Tile, kernel, ptx, reg
from warploom.types import f32, u32, u64

GPUS, THREADS = 2, 128
RAISED, LOWERED = 1, 0


@kernel(
    in_specs=(Tile(THREADS, f32), Tile(THREADS, f32, peers=GPUS), Tile(1, u32, peers=GPUS), Scalar(u32)),
    out_specs=(Tile(THREADS, f32),),
    grid=(1,),
    block=THREADS,
)
def exchange(mine, inbox, flags, rank, came):
    """mine, came: arrays of this GPU; inbox, flags: one per GPU, accessible to all."""
    thread = ptx.special.tid.x()
    offset, other = thread.to(u64) * f32.bytes, 1 - rank
    source, result = ptx.global_ptrs(mine, came)
    ptx.store(ptx.addr(inbox.pointer(other) + offset), ptx.load(f32, ptx.addr(source + offset)))
    ptx.bar.sync(0)  # all threads' numbers are written before thread 0 says so
    with ptx.if_(thread == 0):
        ptx.inst("st.release.sys.global.u32", ptx.addr(flags.pointer(other)), RAISED)
        seen = reg.scalar(u32, LOWERED)
        with ptx.while_(lambda: seen != RAISED):
            ptx.inst("ld.acquire.sys.global.u32", seen, ptx.addr(flags.pointer(rank)))
        ptx.inst("st.relaxed.sys.global.u32", ptx.addr(flags.pointer(rank)), LOWERED)
    ptx.bar.sync(0)
    ptx.store(ptx.addr(result + offset), ptx.load(f32, ptx.addr(inbox.pointer(rank) + offset)))


def example() -> Iterator[tuple[Any, ...]]:
    """The example of `warploom check`: a list by rank for each argument, and the number of GPUs."""
    numbers = list(np.random.default_rng(0).standard_normal((GPUS, THREADS), dtype=np.float32))
    inbox = [np.zeros(THREADS, np.float32) for _ in range(GPUS)]
    flags = [np.zeros(1, np.uint32) for _ in range(GPUS)]

    def exchanged(came: list[np.ndarray]) -> None:
        for rank in range(GPUS):
            np.testing.assert_array_equal(came[rank], numbers[1 - rank])

    yield exchange, (numbers, inbox, flags, range(GPUS)), exchanged, {"devices": GPUS}
