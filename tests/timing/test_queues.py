"""A tile queue gives the recorded CTA its share, not everybody's."""

import numpy as np
import pytest

import warploom
from warploom.errors import DeadlockError
from warploom.isa.dtypes import u32
from warploom.lang import Tile, kernel, ptx, reg, smem
from warploom.runtime.on_clock import record
from warploom.timing import queues, sampling

CTAS, ITEMS = 8, 48


@kernel(
    in_specs={"counter": Tile(1, u32)}, out_specs={"out": Tile("N", u32)}, grid=(CTAS, 1, 1), block=32, arch="sm_90a"
)  # fmt: skip
def taking(counter, out):
    """Takes numbers until none is left, and writes each."""
    (source, target) = ptx.global_ptrs(counter, out)
    with ptx.if_(ptx.special.tid.x() == 0):
        number = reg.scalar(u32, init=0)
        number.set(ptx.atomic.inc(ptx.addr(source), ITEMS + CTAS - 1))
        with ptx.while_(lambda: number < ITEMS):
            ptx.store(ptx.addr(target + number.to(target.dtype) * 4), number)
            number.set(ptx.atomic.inc(ptx.addr(source), ITEMS + CTAS - 1))


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("clusters", [1, 2])
def test_recorded_ctas_take_every_eighth_number(clusters):
    counter, out = np.zeros(1, np.uint32), np.zeros(ITEMS, np.uint32)
    prediction = warploom.predict(taking, counter, out=out, registers=32, clusters=clusters)
    assert prediction.dram_bytes == pytest.approx(ITEMS * 4, rel=0.4)


@kernel(
    in_specs={"counter": Tile(1, u32)}, out_specs={"out": Tile("N", u32)}, grid=(2, 1, 1), block=32, arch="sm_90a"
)  # fmt: skip
def meeting(counter, out):
    """A barrier of the whole grid: the counter wraps to 0 with the last CTA."""
    (source, target) = ptx.global_ptrs(counter, out)
    with ptx.if_(ptx.special.tid.x() == 0):
        ptx.atomic.inc(ptx.addr(source), 1)
        here = reg.scalar(u32, init=1)
        with ptx.while_(lambda: here != 0):
            here.set(ptx.load(u32, ptx.addr(source)))
        ptx.store(ptx.addr(target), here)


@pytest.mark.full
def test_a_barrier_of_the_grid_needs_all_clusters():
    arrays = {"counter": np.zeros(1, np.uint32), "out": np.zeros(1, np.uint32)}
    with pytest.raises(DeadlockError) as caught:
        warploom.predict(meeting, arrays["counter"], out=arrays["out"], registers=32)
    assert "clusters=2" in str(caught.value.hint) and caught.value.consequence is None
    counter = np.zeros(1, np.uint32)
    assert "clusters=2" in warploom.trace(meeting, counter, out=arrays["out"], registers=32, sass=False).hint
    arrays["counter"][:] = 0
    assert warploom.predict(meeting, arrays["counter"], out=arrays["out"], registers=32, clusters=2).us > 0


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("clusters", [2, CTAS])
def test_each_recorded_cta_takes_one_number_a_round(clusters):
    """The first does not take all, though the machine runs it to its end before the next begins."""
    counter, out = np.zeros(1, np.uint32), np.zeros(ITEMS, np.uint32)
    recording, _ = record(taking, counter, out=out, registers=32, clusters=clusters)
    assert {cta: len(turns) for cta, turns in recording.turns.items()} == dict.fromkeys(range(clusters), ITEMS // CTAS)


@kernel(
    in_specs={"data": Tile("N", u32), "counter": Tile(1, u32)}, out_specs={"out": Tile("M", u32)}, grid=(CTAS, 1, 1),
    block=32, arch="sm_90a",
)  # fmt: skip
def shortening(data, counter, out):
    """Takes numbers until none is left, and copies for each as many times 16 bytes as come after it."""
    source, numbers, target = ptx.global_ptrs(data, counter, out)
    buffer, bar = smem.array(u32, 4 * ITEMS, align=128, name="buffer"), smem.mbarrier(1)
    with ptx.if_(ptx.special.tid.x() == 0):
        ptx.mbarrier.init(bar[0], 1)
        ptx.fence.mbarrier_init()
        phase, number = reg.scalar(u32, init=0), reg.scalar(u32, init=0)
        number.set(ptx.atomic.inc(ptx.addr(numbers), ITEMS + CTAS - 1))
        with ptx.while_(lambda: number < ITEMS):
            size = (reg.scalar(u32, init=ITEMS) - number) * 16
            ptx.mbarrier.arrive_expect_tx(bar[0], size)
            ptx.cp.async_.bulk.load(buffer[0], ptx.addr(source), size, bar[0])
            ptx.mbarrier.wait(bar[0], phase)
            phase ^= 1
            ptx.store(ptx.addr(target), number)
            number.set(ptx.atomic.inc(ptx.addr(numbers), ITEMS + CTAS - 1))


def test_a_mean_cta_has_less_than_the_first_of_each_round_where_tiles_become_shorter():
    arrays = np.zeros(4 * ITEMS, np.uint32), np.zeros(1, np.uint32)
    recording, _ = record(shortening, *arrays, out=np.zeros(4, np.uint32), registers=32)
    of_all = 16 * ITEMS * (ITEMS + 1) / 2 / CTAS
    assert recording.pace * recording.fetched == pytest.approx(of_all, rel=0.1)


def test_lengths_lie_between_the_shortest_and_the_longest_and_the_last_round_is_half_full():
    assert queues.pace([[8, 6, 4, 2]], [[8, 5, 4]]) == pytest.approx(5 * 3.5 / 17)
    assert queues.uneven([[4, 4, 4], [8, 6]])
    assert not queues.uneven([[4, 4, 4]])


ROWS = 16


@kernel(
    in_specs={"counter": Tile(1, u32)}, out_specs={"out": Tile("N", u32)}, grid=(ROWS, 1, 1), block=32, arch="sm_90a"
)  # fmt: skip
def combining(counter, out):
    """Each CTA writes a row and counts; the last one adds up all rows."""
    (source, target) = ptx.global_ptrs(counter, out)
    thread, arrived = ptx.special.tid.x(), smem.array(u32, 1, name="arrived")
    ptx.store(ptx.addr(target + (ptx.special.ctaid.x() * 32 + thread).to(target.dtype) * 4), thread)
    with ptx.if_(thread == 0):
        ptx.store(arrived[0], ptx.atomic.add(ptx.addr(source), 1))
    ptx.bar.sync(0)
    with ptx.if_(ptx.load(u32, arrived[0]) + 1 == ROWS):
        total = reg.scalar(u32, init=0)
        for row in ptx.range(ROWS):
            total += ptx.load(u32, ptx.addr(target + (row * 32 + thread).to(target.dtype) * 4), cache="cg")
        ptx.store(ptx.addr(target + thread.to(target.dtype) * 4), total)


def test_the_cta_that_arrives_last_is_recorded_too():
    counter, out = np.zeros(1, np.uint32), np.zeros(32 * ROWS, np.uint32)
    recording, _ = record(combining, counter, out=out, registers=32)
    assert recording.arrivals == ROWS
    assert counter[0] == 0
    assert recording.last.fetched - recording.fetched == ROWS * 128
    assert recording.last.distant == recording.distant  # the other CTAs' rows are in L2


def test_a_queue_of_tiles_has_no_last_arrival():
    counter, out = np.zeros(1, np.uint32), np.zeros(ITEMS, np.uint32)
    assert record(taking, counter, out=out, registers=32)[0].last is None


@pytest.mark.parametrize(("longest", "clusters"), [(1, 1), (60, sampling.SAMPLES)])
def test_several_ctas_are_recorded_if_the_tiles_of_a_queue_differ_in_what_no_load_shows(longest, clusters):
    """A number below 10 takes `longest` rounds, any other one round."""

    @kernel(in_specs={"counter": Tile(1, u32)}, out_specs={"out": Tile("N", u32)}, grid=(CTAS, 1, 1), block=32,
            arch="sm_90a")  # fmt: skip
    def counting(counter, out):
        (source, target) = ptx.global_ptrs(counter, out)
        with ptx.if_(ptx.special.tid.x() == 0):
            number, rounds = reg.scalar(u32, init=0), reg.scalar(u32, init=0)
            number.set(ptx.atomic.inc(ptx.addr(source), ITEMS + CTAS - 1))
            with ptx.while_(lambda: number < ITEMS):
                rounds.set(1)
                with ptx.if_(number < 10):
                    rounds.set(longest)
                total = reg.scalar(u32, init=0)
                for _ in ptx.range(0, rounds, 1, dtype=u32, unroll=False):
                    total ^= number + 1
                ptx.store(ptx.addr(target + number.to(target.dtype) * 4), total)
                number.set(ptx.atomic.inc(ptx.addr(source), ITEMS + CTAS - 1))

    found, _ = record(counting, np.zeros(1, np.uint32), out=np.zeros(ITEMS, np.uint32), registers=32)
    assert len(found.clusters) == clusters
