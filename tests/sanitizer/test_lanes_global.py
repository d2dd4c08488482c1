"""Lanes of one warp in global memory: they race as in shared memory, unless they have synchronised."""

from __future__ import annotations

import pytest

from tests.sanitizer.running import findings, rules
from warploom.sanitizer.rules import Example

RULE = "global-lane-race"
OWN = """
and.b32 %r8, %idx, 31;
mad.wide.u32 %d0, %idx, 4, %data;
xor.b64 %d1, %d0, 4;
"""
PUT, GET_OTHER = "st.global.u32 [%d0], %idx;\n", "ld.global.u32 %r3, [%d1];\nst.global.u32 [%d0+1024], %r3;\n"
TAKE_OTHER = "ld.global.u32 %r3, [%d1];\n"
ADD_OTHER = "red.relaxed.gpu.global.add.u32 [%d1], 1;\n"
GET = "ld.global.u32 %r3, [%d0];\nst.global.u32 [%d0+1024], %r3;\n"
MEET = "bar.warp.sync -1;\n"
SHUFFLE = "shfl.sync.bfly.b32 %r4, %r8, 1, 31, -1;\n"
TOLD = """
fence.acq_rel.gpu;
atom.relaxed.gpu.global.add.u32 %r4, [%data+2048], 1;
again:
ld.relaxed.gpu.global.u32 %r4, [%data+2048];
setp.lt.u32 %p2, %r4, 544;
@%p2 bra again;
fence.acq_rel.gpu;
"""
"""Each lane counts itself, and waits until all 32 have (the counter begins with 512)."""
COPY_OTHER = """
mad.lo.u32 %r1, %r8, 4, 0;
mov.u32 %r2, tile;
add.u32 %r1, %r1, %r2;
cp.async.ca.shared.global [%r1], [%d1], 4;
cp.async.wait_all;
"""
FENCED = PUT + "fence.proxy.async;\n"
BAR = "@%first mbarrier.init.shared::cta.b64 [bar], 1;\nbar.sync 0;\n"
FETCH = """
@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;
@%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%data], 128, [bar];
waiting:
mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar], 0;
@!%p0 bra waiting;
"""
SPLIT = "setp.lt.u32 %p2, %r8, 16;\nselp.b32 %r5, 0x0000ffff, 0xffff0000, %p2;\nbar.warp.sync %r5;\n"
CASES = {
    "read after write": (PUT + GET_OTHER, "error"),
    "write after read": (TAKE_OTHER + "st.global.u32 [%d0], %r3;\n", "error"),
    "write after write": (PUT + "st.global.u32 [%d1], %r8;\n", "error"),
    "a shuffle before a write": (TAKE_OTHER + SHUFFLE + "st.global.u32 [%d0], %r3;\n", "warning"),
    "a shuffle before a read": (PUT + SHUFFLE + GET_OTHER, "error"),
    "cp.async of another lane's word": (PUT + COPY_OTHER, "error"),
    "synchronised, then cp.async": (PUT + MEET + COPY_OTHER, None),
    "a bulk copy of what other lanes wrote": (BAR + FENCED + FETCH, "error"),
    "synchronised, then a bulk copy": (BAR + FENCED + MEET + FETCH, None),
    "the same value twice": ("st.global.u32 [%d0], 7;\nst.global.u32 [%d1], 7;\n", None),
    "the own word": (PUT + "ld.global.u32 %r3, [%d0];\nst.global.u32 [%d0], %r3;\n", None),
    "synchronised": (PUT + MEET + GET_OTHER, None),
    "synchronised in halves": (PUT + SPLIT + GET_OTHER, None),
    "synchronised in halves, and reads from the other half": (
        PUT + SPLIT + "xor.b64 %d1, %d0, 64;" + GET_OTHER, "error",
    ),
    "a barrier of the CTA": (PUT + "bar.sync 0;\n" + GET_OTHER, None),
    "a counter that each lane waits for": (PUT + TOLD + GET_OTHER, None),
    "atomics": ("red.relaxed.gpu.global.add.u32 [%d0], 1;\nred.relaxed.gpu.global.add.u32 [%d1], 1;\n", None),
    "a store before another lane's atomic": (PUT + ADD_OTHER, "error"),
    "a store, synchronised, before another lane's atomic": (PUT + MEET + ADD_OTHER, None),
    "an atomic before another lane's load": (ADD_OTHER + GET, "error"),
    "an atomic, synchronised, before another lane's load": (ADD_OTHER + MEET + GET, None),
}  # fmt: skip


@pytest.mark.parametrize(("schedule", "seed"), [("lazy", 0), ("random", 0), ("random", 1)])
@pytest.mark.parametrize("case", CASES)
def test_lanes_of_one_warp_race_unless_they_have_met(case: str, schedule: str, seed: int):
    body, severity = CASES[case]
    found = {one.severity for one in findings(Example(OWN + body, threads=32), schedule, seed) if one.rule == RULE}
    assert found == ({severity} if severity else set())


def test_several_warps_synchronise_each_for_itself():
    half = "setp.lt.u32 %p1, %idx, 32;\n@%p1 bra met;\nbar.warp.sync -1;\nmet:\n"
    assert rules(Example(OWN + PUT + MEET + GET_OTHER, threads=128)) == set()
    (found,) = [one for one in findings(Example(OWN + PUT + half + GET_OTHER, threads=64)) if one.rule == RULE]
    assert found.warp == 0
