"""The parts of `collective` individually: coordinates, turns, rings, and their errors."""

from __future__ import annotations

import numpy as np
import pytest

from tests.errors import refused
from warploom import collective
from warploom.collective import (
    WARPGROUP,
    CpAsyncPipeline,
    OperandCopy,
    TmaPipeline,
    persistent_grid,
    store_groups,
    swizzled,
    warp_place,
)
from warploom.collective.mma.wgmma import wgmma_accumulators
from warploom.isa.swizzle import Swizzle
from warploom.lang import Kernel, Tile, kernel, ptx, reg, smem
from warploom.runtime.machine import H200
from warploom.types import bf16, f32, u32, u64


def traced(body) -> Kernel:
    """A kernel with an operand A that runs `body(A)` and writes one word."""

    @kernel(in_specs=(Tile("M", "K", bf16),), out_specs=(Tile(1, u32),), grid=(1,), block=WARPGROUP, arch="sm_90a")
    def subject(A, C):
        body(A)
        ptx.store(ptx.addr(C.pointer()), 0, dtype=u32)

    return subject


@pytest.mark.parametrize("swizzle", [Swizzle.NONE, Swizzle.B32, Swizzle.B64, Swizzle.B128], ids=lambda s: s.value)
def test_threads_find_the_places_that_the_law_gives(swizzle: Swizzle):
    offsets = np.arange(0, 2048, 16, dtype=np.uint32)

    @kernel(out_specs=(Tile(128, u32),), grid=(1,), block=128, arch="sm_80")
    def places(C):
        thread = ptx.special.tid.x()
        ptx.store(ptx.addr(C.pointer() + (thread * 4).to(u64)), swizzled(thread * 16, swizzle))

    np.testing.assert_array_equal(places.emulate(np.zeros(128, np.uint32)).outputs[0], swizzle.apply(offsets))


def test_a_ring_counts_its_arrivals_and_bytes_from_its_tiles():
    def body(A):
        tiles = {n: smem.wgmma_tile(bf16, (rows, 64), stages=3) for n, rows in (("a", 128), ("b", 256))}
        cheap = TmaPipeline(stages=3, consumers=2, ctas=2, **tiles)
        assert (cheap.full_arrivals, cheap.empty_arrivals, cheap.stage_bytes) == (1, 4, (128 + 256) * 64 * 2)
        dear = TmaPipeline(stages=3, consumers=2, every_thread=True, **tiles)
        assert (dear.full_arrivals, dear.empty_arrivals) == (1 + 256, 256)

    traced(body).ptx()


@pytest.mark.parametrize("count", [1, 3, 4, 9])
def test_stepping_over_stages_is_as_many_single_steps(count: int):
    @kernel(out_specs=(Tile(4, u32),), grid=(1,), block=32, arch="sm_90a")
    def walk(C):
        ring = TmaPipeline(stages=4, consumers=1, a=smem.wgmma_tile(bf16, (64, 64), stages=4))
        stepped, skipped = ring.consumer_state(), ring.consumer_state()
        for _ in range(2):
            for _ in range(count):
                ring.advance(stepped)
            ring.skip(skipped, reg.scalar(u32, init=count))
        values = (stepped.index, skipped.index, stepped.phase, skipped.phase)
        for place, value in enumerate(values):
            ptx.store(ptx.addr(C.pointer(), 4 * place), value)

    index, same_index, phase, same_phase = walk.emulate(np.zeros(4, np.uint32)).outputs[0]
    assert (index, phase) == (same_index, same_phase) == (2 * count % 4, 2 * count // 4 % 2)


def test_a_persistent_grid_is_no_larger_than_the_work_and_whole_clusters():
    rule = persistent_grid((128, 256), 2)
    assert rule({"M": 8192, "N": 8192}, H200()) == (132, 1, 1)
    assert rule({"M": 8192, "N": 8192}, H200(sms=5)) == (4, 1, 1)
    assert rule({"M": 1, "N": 257}, H200()) == (4, 1, 1)
    beside = persistent_grid((128, 256), 2, "a")
    assert beside({"M": 1, "N": 257}, H200()) == (2, 1, 1)


def copy_of(A, rows: int, columns: int, threads: int = WARPGROUP, stages: int = 2) -> OperandCopy:
    return OperandCopy(A, smem.wgmma_tile(bf16, (rows, columns), stages=stages), reg.scalar(u32, init=0), threads)


def coordinates():
    return reg.scalar(u32, init=0), reg.scalar(u32, init=0)


@pytest.mark.parametrize(
    "body, says",
    [
        (lambda A: copy_of(A, 64, 128), "128 in K, 2 panels"),
        (lambda A: copy_of(A, 64, 64, threads=96), "64 rows of 128 bytes, a pattern of 1024"),
        (lambda A: CpAsyncPipeline(stages=3, tile_k=64, a=copy_of(A, 64, 64), b=copy_of(A, 64, 64)), "2"),
        (lambda A: TmaPipeline(stages=3, consumers=1, a=smem.wgmma_tile(bf16, (64, 64), stages=2)), "2"),
        (lambda A: wgmma_accumulators(96, 128), "96 x 128"),
        (lambda A: wgmma_accumulators(64, 264), "64 x 264"),
        (lambda A: warp_place((128, 128), (3, 2)), "42.6667 x 64"),
        (lambda A: store_groups([reg.array(f32, 4)], A, *coordinates(), ragged=True), "multiple=()"),
    ],
    ids=["panels", "threads", "copies", "tiles", "rows", "columns", "warps", "groups"],
)
def test_parts_that_do_not_fit_are_refused_with_the_reason(body, says: str):
    with refused("trace", got=says):
        traced(body).ptx()


@pytest.mark.parametrize("old, new", [("Turns", "OrderedBarrier"), ("Place", "TileCoord"), ("packed", "pack")])
def test_a_name_of_before_says_what_it_is_called_now(old: str, new: str):
    with pytest.raises(AttributeError, match=new):
        getattr(collective, old)
    assert getattr(collective, new) is not None
    with pytest.raises(AttributeError):
        collective.nothing_of_that_name  # noqa: B018 - the access is what is tested


def test_a_ring_takes_tiles_under_any_names():
    """`a` and `b` are names that a kernel gives to the tiles of its ring, not attributes that a ring needs."""

    def body(A):
        ring = TmaPipeline(stages=2, consumers=1, name="keys", k=smem.wgmma_tile(bf16, (64, 64), stages=2))
        stage = ring.stage(ring.consumer_state())
        assert stage.k.bytes == ring.stage_bytes == 64 * 64 * 2
        with pytest.raises(AttributeError):
            _ = stage.a

    traced(body).ptx()
