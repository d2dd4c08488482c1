"""Reads at loaded addresses: of a small table, most are in L2, since other CTAs have read them."""

import numpy as np
import pytest

from warploom.lang import Tile, kernel, ptx
from warploom.runtime.on_clock import record
from warploom.types import f32, u32, u64

THREADS = 128


@kernel(in_specs=(Tile("T", f32), Tile("N", u32, multiple=(THREADS,))), out_specs=(Tile("N", f32),), grid=(4096,),
        block=THREADS, arch="sm_90a")  # fmt: skip
def looked_up(T, I, Y):  # noqa: E741 - the usual name of indices
    t, i, y = ptx.global_ptrs(T, I, Y)
    place = (ptx.special.ctaid.x() * THREADS + ptx.special.tid.x()).to(u64) * 4
    index = ptx.load(u32, ptx.addr(i + place))
    ptx.store(ptx.addr(y + place), ptx.load(f32, ptx.addr(t + index.to(u64) * 4)))


def loads(entries):
    """The accesses to the indices and to a table of so many entries."""
    count = 4096 * THREADS
    indices = np.random.default_rng(0).integers(0, entries, count).astype(np.uint32)
    found, _ = record(looked_up, np.zeros(entries, np.float32), indices, out=np.zeros(count, np.float32), registers=32)
    made = [one for run in found.runs for one in run.accesses if one is not None and not one.writes]
    return found, made[0], made[1]


def test_few_reads_of_a_table_that_all_read_wait_for_dram():
    _, indices, table = loads(1 << 16)
    assert indices.distant == indices.missed
    assert table.missed > 20
    # 4096 CTAs read 128 of 8192 sectors each, so that one of 64 reads is the first
    assert table.distant == pytest.approx(table.missed / 64, rel=0.05)


def test_reads_of_a_table_that_does_not_fit_in_l2_wait_for_dram():
    found, _, table = loads(1 << 24)
    assert table.distant == table.missed
    assert found.distant > 32 * table.missed
