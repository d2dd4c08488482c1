"""Grids whose CTAs differ in work are predicted from a few of them; others from the first."""

import numpy as np
import pytest

from warploom.lang import Tile, kernel, ptx, reg, smem
from warploom.runtime.on_clock import record
from warploom.timing import lots, sampling
from warploom.types import f32, u32, u64

ROWS = 144


def sums(axis, longest=0, *, shared=50 << 10, meet=False, cluster=1):
    """CTA i adds up the first i rows, or the first `longest`, and writes one row. One CTA fits an SM.

    shared: words of shared memory. meet: all CTAs add to the first row.
    """
    grid = (ROWS, 1, 1) if axis == "x" else (1, ROWS, 1)

    @kernel(in_specs=(Tile("M", 32, f32),), out_specs=(Tile("M", 32, f32),), grid=grid, block=32, arch="sm_90a",
            cluster=cluster)  # fmt: skip
    def program(X, Y):
        x, y = ptx.global_ptrs(X, Y)
        smem.array(u32, shared, align=128, name="occupied")
        mine = ptx.special.ctaid.x() if axis == "x" else ptx.special.ctaid.y()
        lane, total = (ptx.special.tid.x() * 4).to(u64), reg.scalar(f32, init=0.0)
        rows = reg.scalar(u32, init=longest) if longest else mine + 1
        for row in ptx.range(0, rows, 1, dtype=u32, unroll=False):
            total += ptx.load(f32, ptx.addr(x + row.to(u64) * 128 + lane))
        if meet:
            ptx.inst.red.global_.add.f32(ptx.addr(y + lane), total)
        else:
            ptx.store(ptx.addr(y + mine.to(u64) * 128 + lane), total)

    return program


def recorded(program):
    x = np.zeros((ROWS, 32), np.float32)
    return record(program, x, out=np.zeros_like(x), registers=32)[0]


@pytest.mark.parametrize("axis", ["x", "y"])
def test_ctas_from_all_parts_of_the_grid_stand_for_one_whose_loops_differ(axis):
    found = recorded(sums(axis))
    numbers = [cta for members in found.clusters.values() for cta in members]
    assert len(numbers) == sampling.SAMPLES
    assert np.mean(numbers) == pytest.approx((ROWS - 1) / 2, rel=0.05)
    works = np.array(sampling.work(found))
    assert works.max() > 5 * works.min()


def test_the_first_stands_for_a_grid_whose_loops_do_not():
    assert list(recorded(sums("x", longest=9)).clusters.values()) == [[0]]


def test_ctas_that_add_to_the_same_elements_are_sampled_too():
    assert len(recorded(sums("x", meet=True)).clusters) == sampling.SAMPLES


def test_clusters_are_sampled_too_if_there_are_fewer_than_sms_but_more_than_a_wave():
    assert len(recorded(sums("x", cluster=2)).clusters) == sampling.SAMPLES


def test_ctas_of_one_wave_are_sampled_where_an_sm_has_several():
    assert len(recorded(sums("x", shared=1 << 10)).clusters) == sampling.SAMPLES
    assert len(recorded(sums("x", longest=9, shared=1 << 10)).clusters) == 1


@pytest.mark.parametrize("inner", [False, True])
def test_the_first_stands_for_a_wave_that_strides_over_its_work(inner):
    """inner: each round has a loop whose length depends on the place."""

    @kernel(in_specs=(Tile("M", 32, f32),), out_specs=(Tile("M", 32, f32),), grid=(ROWS,), block=32, arch="sm_90a")
    def strided(X, Y):
        m, _ = X.shape
        x, y = ptx.global_ptrs(X, Y)
        lane = (ptx.special.tid.x() * 4).to(u64)
        for at in ptx.range(ptx.special.ctaid.x(), m, ROWS, dtype=u32):
            total, place = reg.scalar(f32, init=0.0), at.to(u64) * 128 + lane
            for _ in ptx.range(0, at + 1 if inner else 5, 1, dtype=u32, unroll=False):
                total += ptx.load(f32, ptx.addr(x + place))
            ptx.store(ptx.addr(y + place), total)

    x = np.zeros((ROWS if inner else ROWS + 5, 32), np.float32)
    found, _ = record(strided, x, out=np.zeros_like(x), registers=32)
    assert len(found.clusters) == (sampling.SAMPLES if inner else 1)


def test_one_lot_of_a_wave_has_the_longest_cta():
    found = recorded(sums("x", shared=1 << 10))
    works = sampling.work(found)
    assert max(works) in [works[at] for at in lots.last_lot(found, places=132, residents=2)]


def test_ctas_that_wait_for_others_are_not_recorded_alone():
    """Each CTA adds up one row more than the one before it, and waits for that one."""

    @kernel(in_specs=(Tile("M", 32, f32),), out_specs=(Tile("M", u32),), grid=(ROWS,), block=32, arch="sm_90a")
    def chained(X, Y):
        x, y = ptx.global_ptrs(X, Y)
        smem.array(u32, 50 << 10, align=128, name="occupied")
        mine, total, there = ptx.special.ctaid.x(), reg.scalar(f32, init=0.0), reg.scalar(u32)
        for row in ptx.range(0, mine + 1, 1, dtype=u32, unroll=False):
            total += ptx.load(f32, ptx.addr(x + row.to(u64) * 128))
        with ptx.if_((mine > 0) & (ptx.special.tid.x() == 0)):
            there.set(0)
            with ptx.while_(lambda: there == 0):
                ptx.inst.ld.acquire.gpu.global_.u32(there, ptx.addr(y + (mine - 1).to(u64) * 4))
        ptx.inst.st.release.gpu.global_.u32(ptx.addr(y + mine.to(u64) * 4), 1)

    found, _ = record(chained, np.zeros((ROWS, 32), np.float32), out=np.zeros(ROWS, np.uint32), registers=32)
    assert len(found.clusters) == 1
    assert "ctaid" in found.stands


def test_the_longest_cta_ends_alone_where_it_starts_last():
    found = recorded(sums("x"))
    lot = lots.last_lot(found, places=132, residents=1)
    works = sampling.work(found)
    assert [works[at] for at in lot] == [sorted(works)[0], max(works)]
    assert not lots.last_lot(recorded(sums("x", longest=9)), places=132, residents=1)


def test_places_along_an_axis_do_not_have_the_same_remainder():
    for power in (2, 4, 8, 16, 32):
        assert len({number % power for number in sampling.spread((1024, 1, 1), frozenset("x"))}) > 1
    assert all(number % 16 == 0 for number in sampling.spread((16, 64, 1), frozenset("y")))
    assert sampling.probes((16, 64, 1), frozenset("y")) == [16 * 63, 16 * 32]


def test_a_cta_in_the_middle_shows_what_the_first_and_the_last_do_not():
    """CTA i reads as many rows as there are to the nearer end of the grid."""

    @kernel(in_specs=(Tile("M", 32, f32),), out_specs=(Tile("M", 32, f32),), grid=(ROWS,), block=32, arch="sm_90a")
    def hill(X, Y):
        x, y = ptx.global_ptrs(X, Y)
        smem.array(u32, 50 << 10, align=128, name="occupied")
        mine, total, rows = ptx.special.ctaid.x(), reg.scalar(f32, init=0.0), reg.scalar(u32)
        ptx.inst.min.u32(rows, mine + 1, ROWS - mine)
        lane = (ptx.special.tid.x() * 4).to(u64)
        for row in ptx.range(0, rows, 1, dtype=u32, unroll=False):
            total += ptx.load(f32, ptx.addr(x + row.to(u64) * 128 + lane))
        ptx.store(ptx.addr(y + mine.to(u64) * 128 + lane), total)

    assert len(recorded(hill).clusters) == sampling.SAMPLES
