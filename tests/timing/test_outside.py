"""Data from outside an SM: other CTAs' shared memory, a busy DRAM, small arrays that all CTAs read."""

import numpy as np
import pytest

from warploom.isa.dtypes import f32, u64
from warploom.lang import Tile, kernel, ptx, reg, smem, tiles
from warploom.runtime.on_clock import record
from warploom.timing import H200
from warploom.timing.recording import REMOTE, Access, Operation, Run
from warploom.timing.runs import cost_of
from warploom.timing.units import Chip, Sm


def _read_of(rank):
    """Each lane reads a word of a CTA's shared memory, its own where rank is None."""

    @kernel(out_specs=(Tile("N", 32, f32),), grid=("N",), block=32, cluster=(2, 1, 1), arch="sm_90a")
    def program(Y):
        (y,) = ptx.global_ptrs(Y)
        words = smem.array(f32, 32)
        lane = ptx.special.tid.x()
        ptx.store(words[lane], lane.to(f32))
        ptx.cluster.sync()
        other = ptx.special.cluster_ctarank() ^ (rank == "other")
        value = ptx.load(f32, ptx.cluster.map_shared(words[lane], other), space="shared::cluster")
        ptx.cluster.sync()
        ptx.store(ptx.addr(y + ((ptx.special.ctaid.x() * 32 + lane) * 4).to(u64)), value)

    return program


def _accesses(rank):
    recording, _ = record(_read_of(rank), out=np.zeros((2, 32), np.float32))
    return [
        (one, pc, recording) for run in recording.runs for pc, one in zip(run.pcs, run.accesses, strict=True) if one
    ]


@pytest.mark.full
def test_another_ctas_shared_memory_is_remote_and_ones_own_is_not():
    spaces = {rank: [one.space for one, _, _ in _accesses(rank)] for rank in ("own", "other")}
    assert spaces == {"own": ["shared", "shared", "global"], "other": ["shared", REMOTE, "global"]}


def test_a_remote_load_takes_its_latency_and_the_network():
    one, pc, recording = next(found for found in _accesses("other") if found[0].space == REMOTE)
    cost = cost_of(Run((pc,), (one,)), recording.pcs, H200)
    ((_, clocks, outside),) = cost.late
    assert (cost.remote, outside) == (128.0, True)
    assert clocks == pytest.approx(H200["remote_latency"])
    chip, sm = Chip(H200, 1.98, 132), Sm(H200)
    for _ in range(16):
        sm.execute(0, 0.0, cost, chip)
    assert sm.remote == pytest.approx(16 * 128 / H200["remote_load_bytes_per_clock"])


def _loaded(bytes_):
    """Of a load from DRAM."""
    from warploom.timing.instructions import Facts

    facts = [Facts(0, "ld.global.f32", "lsu", 1.0, "ldg", frozenset({1}), frozenset({2}))]
    sectors = bytes_ / 32
    return cost_of(Run((0,), (Access("global", False, 1.0, sectors, sectors, sectors),)), facts, H200)


def test_dram_takes_longer_the_busier_it_has_been():
    chip = Chip(H200, 1.98, 132, dram_share=1.0)
    sm, cost = Sm(H200), _loaded(128)
    sm.execute(0, 0.0, cost, chip)
    assert sm.crowd == 0.0
    waits = []
    for every in (400.0, 40.0, 8.0):
        sm = Sm(H200)
        for at in range(4000):
            sm.execute(0, at * every, cost, chip)
        busy = min(0.9, 128 / chip.dram / every)
        waits.append(sm.crowd)
        assert sm.crowd == pytest.approx(H200["dram_latency"] * H200["dram_crowding"] * busy / (1 - busy), rel=0.05)
    assert waits == sorted(waits)


def test_writes_take_dram_from_reads():
    alone, beside = (Chip(H200, 1.98, 132, 1.0, reading=rate) for rate in (0.0, 2000.0))
    assert beside.fetch < alone.fetch
    assert Chip(H200, 1.98, 132, 1.0, moving=3963.0).dram < alone.dram


def test_a_copy_by_lanes_comes_no_sooner_than_dram_has_it():
    operation = Operation("cp_async", 0, 0, 0, bytes=512, fetched=512.0, rows=4)
    near, far = (
        Sm(H200).begin(operation, 0.0, Chip(H200, 1.98, 132, share), None)[2] for share in (0.0, 1.0)
    )  # fmt: skip
    assert near < 500
    assert far == pytest.approx(H200["dram_latency"], rel=0.05)


def test_a_box_waits_for_a_busy_dram_but_not_while_it_waits_for_its_turn():
    """One after the other each takes what the first does; of many at once the last has waited in the queue already."""
    chip = Chip(H200, 1.98, 132, dram_share=1.0)
    box = Operation("tma", 0, 0, 0, bytes=4096, fetched=4096.0, rows=32)
    first = Sm(H200).begin(box, 0.0, chip, None)[2]
    takes = 4096 / chip.dram
    spread, burst = Sm(H200), Sm(H200)
    slow = [spread.begin(box, at * 2 * takes, chip, None)[2] - at * 2 * takes for at in range(400)]
    assert slow[-1] - first == pytest.approx(H200["box_crowding_ns"] * chip.ghz * 0.5 / 0.5, rel=0.1)
    together = [burst.begin(box, 0.0, chip, None)[2] for _ in range(40)]
    assert together[-1] == pytest.approx(first + 39 * 4096 / chip.fetch, rel=0.02)


def _scaled(rows):
    @kernel(
        in_specs=(Tile("M", 256, f32), Tile(256, f32)), out_specs=(Tile("M", 256, f32),), grid=(tiles("M", 1),),
        block=256, arch="sm_90a",
    )  # fmt: skip
    def program(X, W, Y):
        x, w, y = ptx.global_ptrs(X, W, Y)
        place = (ptx.special.tid.x() * 4).to(u64)
        factor = ptx.load(f32, ptx.addr(w + place))
        row = ptx.special.ctaid.x().to(u64) * 1024
        total = reg.scalar(f32, init=0.0)
        total += factor * ptx.load(f32, ptx.addr(x + row + place))
        ptx.store(ptx.addr(y + row + place), total)

    recording, _ = record(program, np.zeros((rows, 256), np.float32), np.zeros(256, np.float32),
                          out=np.zeros((rows, 256), np.float32))  # fmt: skip
    return {one.chance for run in recording.runs for one in run.accesses if one and not one.writes}


@pytest.mark.full
def test_ctas_side_by_side_wait_for_a_small_array_together_and_later_ones_find_it():
    assert _scaled(132 * 4) == {1.0}
    assert _scaled(132 * 16) == {1.0, 0.5}
    assert _scaled(132 * 64) == {1.0, 0.125}
