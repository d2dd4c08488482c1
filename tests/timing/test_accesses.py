"""The cost of ordinary loads and stores: order, pairs of sectors, loss in L2, atomics, starts of CTAs."""

import numpy as np
import pytest

from warploom.isa.dtypes import f32, u32, u64
from warploom.lang import Tile, kernel, ptx, reg, smem, tiles
from warploom.runtime.on_clock import predict, record
from warploom.timing import H200
from warploom.timing.runs import cost_of

TURNS = 64


def _rounds(store):
    """A warp for each SM reads 64 places one after the other, and writes each or their sum."""

    @kernel(in_specs=(Tile("N", f32),), out_specs=(Tile("N", f32),), grid=(132,), block=32, arch="sm_90a")
    def program(X, Y):
        (n,) = X.shape
        x, y = ptx.global_ptrs(X, Y)
        total = reg.scalar(f32, init=0.0)
        for at in ptx.range(ptx.special.ctaid.x() * 32 + ptx.special.tid.x(), n, 132 * 32):
            value = ptx.load(f32, ptx.addr(x + at.to(u64) * 4))
            if store:
                ptx.store(ptx.addr(y + at.to(u64) * 4), value)
            else:
                total += value
        ptx.store(ptx.addr(y), total)

    return program


def _copied(program, count, **options):
    return predict(program, np.zeros(count, np.float32), out=np.zeros(count, np.float32), registers=32, **options)


@pytest.mark.full
def test_no_load_passes_a_store():
    count = 132 * 32 * TURNS
    free, bound = (_copied(_rounds(store), count) for store in (False, True))
    latency = H200["dram_latency"] / 1.98e3
    assert bound.us > 0.95 * TURNS * latency
    assert free.us < 0.45 * bound.us


def test_what_is_warm_comes_from_l2_and_nothing_from_dram():
    count = 132 * 32 * TURNS
    cold, warm = (_copied(_rounds(True), count, warm=warm) for warm in (False, True))
    saved = (H200["dram_latency"] - H200.latency["ldg"].value) / 1.98e3 * TURNS
    assert cold.us - warm.us > 0.9 * saved
    assert warm.dram_bytes < cold.dram_bytes


def _strided(step):
    @kernel(in_specs=(Tile("M", f32),), out_specs=(Tile("N", f32),), grid=(tiles("N", 256),), block=256, arch="sm_90a")
    def program(X, Y):
        x, y = ptx.global_ptrs(X, Y)
        at = ptx.special.ctaid.x() * 256 + ptx.special.tid.x()
        value = ptx.load(f32, ptx.addr(x + (at * step).to(u64) * 4))
        ptx.store(ptx.addr(y + at.to(u64) * 4), value)

    return program


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("step, each", [(1, 4), (8, 32), (16, 64), (64, 64)])
def test_dram_is_read_in_pairs_of_sectors(step, each):
    count = 1 << 14
    recording, _ = record(
        _strided(step), np.zeros(count * step, np.float32), out=np.zeros(count, np.float32), registers=32
    )
    assert recording.distant == 256 * each
    assert recording.dirty == 256 * 4


@pytest.mark.full
def test_rows_read_again_come_from_dram_where_the_launch_is_larger_than_l2():
    @kernel(in_specs=(Tile("M", "N", f32),), out_specs=(Tile("M", f32),), grid=("M",), block=32, arch="sm_90a")
    def twice(X, Y):
        _, n = X.shape
        x, y = ptx.global_ptrs(X, Y)
        row = x + ptx.special.ctaid.x().to(u64) * n * 4
        total = reg.scalar(f32, init=0.0)
        for _ in range(2):
            for at in ptx.range(ptx.special.tid.x(), n, 32):
                total += ptx.load(f32, ptx.addr(row + at.to(u64) * 4))
        ptx.store(ptx.addr(y + ptx.special.ctaid.x().to(u64) * 4), total)

    long, short = (
        predict(twice, np.zeros((132, n), np.float32), out=np.zeros(132, np.float32), registers=32)
        for n in (1 << 17, 1 << 12)
    )
    assert long.dram_bytes > 1.8 * 132 * (1 << 17) * 4
    assert short.dram_bytes == pytest.approx(132 * (1 << 12) * 4, rel=0.05)


@pytest.mark.parametrize("first", [0, 1])
def test_warps_share_what_they_read_side_by_side_if_some_of_their_threads_have_nothing_to_do(first):
    @kernel(in_specs=(Tile("M", 32, f32),), out_specs=(Tile(128, f32),), grid=(1,), block=128, arch="sm_90a")
    def summed(X, Y):
        m, _ = X.shape
        x, y = ptx.global_ptrs(X, Y)
        thread, total = ptx.special.tid.x(), reg.scalar(f32, init=0.0)
        with ptx.if_(thread % 32 >= first):
            for row in ptx.range(m):
                total += ptx.load(f32, ptx.addr(x + (row * 32 + thread % 32).to(u64) * 4))
            ptx.store(ptx.addr(y + thread.to(u64) * 4), total)

    found, _ = record(summed, np.zeros((ROWS, 32), np.float32), out=np.zeros(128, np.float32), registers=32)
    assert found.fetched == ROWS * 32 * 4


ROWS = 300
"""Rows of 128 bytes: more than a CTA's share of L1."""


@pytest.mark.full
def test_ctas_that_do_nothing_take_the_time_of_their_starts():
    @kernel(in_specs=(Tile(1, f32),), out_specs=(Tile("N", f32),), grid=("N",), block=32, arch="sm_90a")
    def nothing(X, Y):
        (y,) = ptx.global_ptrs(Y)
        with ptx.if_((ptx.special.ctaid.x() + ptx.special.tid.x()) == 0):
            ptx.store(ptx.addr(y), ptx.special.tid.x().to(f32))

    x = np.zeros(1, np.float32)
    few, many = (predict(nothing, x, out=np.zeros(132 * n, np.float32), registers=16).us for n in (64, 128))
    assert many - few == pytest.approx(64 * H200["cta_every"] / 1.98e3, rel=0.05)


def test_atomics_on_one_word_take_turns():
    @kernel(in_specs=(Tile("N", u32),), out_specs=(Tile("M", u32),), grid=(tiles("N", 256),), block=256, arch="sm_90a")
    def counted(X, Y):
        (y,) = ptx.global_ptrs(Y)
        (m,) = Y.shape
        at = (ptx.special.ctaid.x() * 256 + ptx.special.tid.x()) & (m - 1)
        ptx.inst.red.global_.add.u32(ptx.addr(y + at.to(u64) * 4), 1)

    x = np.zeros(1 << 20, np.uint32)
    one, many = (predict(counted, x, out=np.zeros(m, np.uint32), registers=16).us for m in (1, 1 << 20))
    assert one > (1 << 20) / 32 * H200["update_line_ns"] / 1e3
    assert one > 1.5 * many


def test_atomics_of_all_ctas_on_one_word_take_turns_wherever_it_is():
    @kernel(in_specs=(Tile("N", u32),), out_specs=(Tile("M", u32),), grid=(tiles("N", 256),), block=256, arch="sm_90a")
    def counted(X, Y):
        (y,) = ptx.global_ptrs(Y)
        ptx.inst.red.global_.add.u32(ptx.addr(y), 1)

    x = np.zeros(1 << 20, np.uint32)
    alone, beside = (predict(counted, x, out=np.zeros(m, np.uint32), registers=16) for m in (1, 1 << 20))
    assert beside.us == pytest.approx(alone.us, rel=0.1)
    assert beside.bound == "atomics"
    assert beside.roofs["memory pipe"] < 0.1  # of the launch, and not of the time in which the SM sends its requests


@pytest.mark.full
def test_a_copy_by_lanes_passes_the_memory_pipe_once_for_each_line():
    def gathering(apart):
        @kernel(in_specs=(Tile("N", f32),), out_specs=(Tile(32, f32),), grid=(1,), block=32, arch="sm_90a")
        def program(X, Y):
            x, y = ptx.global_ptrs(X, Y)
            ring = smem.array(f32, 128)
            thread = ptx.special.tid.x()
            ptx.cp.async_.cg(ring[thread * 4], ptx.addr(x + (thread * apart).to(u64)))
            ptx.cp.async_.commit_group()
            ptx.cp.async_.wait_group(0)
            ptx.bar.sync(0)
            ptx.store(ptx.addr(y + thread.to(u64) * 4), ptx.load(f32, ring[thread]))

        recording, _ = record(program, np.zeros(8192, np.float32), out=np.zeros(32, np.float32), registers=32)
        return next(one for one in recording.operations if one.engine == "cp_async" and one.bytes)

    assert (gathering(16).rows, gathering(16).fetched) == (4, 512)
    assert (gathering(128).rows, gathering(128).fetched) == (32, 1024)


def _lines(shared):
    """A CTA of 32 warps that load a line each turn, the same one or each its own, past the first-level cache or not."""

    @kernel(in_specs=(Tile("N", u32),), out_specs=(Tile("M", u32),), grid=(1,), block=1024, arch="sm_90a")
    def program(X, Y):
        x, y = ptx.global_ptrs(X, Y)
        thread, total = ptx.special.tid.x(), reg.scalar(u32, init=0)
        place = (thread & 31) + (0 if shared else (thread >> 5) * (32 * TURNS))
        for at in ptx.range(TURNS):
            total += ptx.load(u32, ptx.addr(x + (place + at * 32).to(u64) * 4))
        ptx.store(ptx.addr(y), total)

    return program


@pytest.mark.full
def test_a_load_takes_longer_for_each_sector_that_it_asks_of_l2():
    """Of the same lines only one warp asks L2; lines of one's own are asked for by each."""
    runs = []
    for shared in (True, False):
        recording, _ = record(_lines(shared), np.zeros(1 << 16, np.uint32), out=np.zeros(1, np.uint32), registers=32)
        run = next(one for one in recording.runs if one.accesses and not any(x and x.writes for x in one.accesses))
        missed = [one.missed for one in run.accesses if one]
        assert set(missed) == {0.1 if shared else 4.0}, "four sectors, or a 32nd of them, rounded"
        runs.append((sum(missed), cost_of(run, recording.pcs, H200).lsu))
    (few, short), (many, long) = runs
    assert long - short == pytest.approx((many - few) * H200["missed_sector_clocks"])


@pytest.mark.parametrize("opcode, same", [("red.shared.add.u32", 1.0), ("red.shared.add.f32", 32.0)])
def test_lanes_that_add_floats_to_one_word_of_shared_memory_take_turns(opcode, same):
    def clocks(apart: int) -> float:
        @kernel(out_specs=(Tile(32, u32),), grid=(1,), block=32, arch="sm_90a")
        def program(Y):
            held = smem.array(u32, 32)
            lane = ptx.special.tid.x()
            value = reg.scalar(f32 if opcode.endswith("f32") else u32, init=1.0 if opcode.endswith("f32") else 1)
            for _ in range(40):
                ptx.inst(opcode, ptx.addr((held[0].register() + lane * (4 * apart)).copy()), value)
            ptx.store(ptx.addr(ptx.global_ptrs(Y)[0]), lane)

        return predict(program, out=np.zeros(32, np.uint32)).clocks

    idle = H200["cta_start"]
    assert (clocks(0) - idle) / (clocks(1) - idle) == pytest.approx(same, rel=0.35)


def test_a_load_whose_address_was_loaded_waits_for_one_sector():
    """latency.ldg.dram, a chase; rate.ldg.walk waits for four lines."""

    @kernel(in_specs=(Tile("N", u32),), out_specs=(Tile(32, u32),), grid=(1,), block=32, arch="sm_90a")
    def chased(X, Y):
        x, y = ptx.global_ptrs(X, Y)
        at = reg.scalar(u32, init=0)
        for turn in ptx.range(TURNS, unroll=False):
            at.set(ptx.load(u32, ptx.addr(x + (turn * 4096 + at).to(u64) * 4)))
        ptx.store(ptx.addr(y), at)

    found = predict(chased, np.zeros(TURNS * 4096, np.uint32), out=np.zeros(32, np.uint32), registers=32)
    assert H200["dram_chase_latency"] < found.us * 1.98e3 / TURNS < H200["dram_latency"]
