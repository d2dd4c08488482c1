"""Which edges order what: fences of one lane, relaxed waits, locks, barriers of part of a CTA."""

from __future__ import annotations

import numpy as np
import pytest

from tests.foreign import cuda_texts
from tests.sanitizer.pieces import CLUSTER_SYNC, FILL, INIT, PEER, READ, STORE, STORED, load, wait
from tests.sanitizer.running import findings, rules
from tests.sanitizer.tensor_pieces import Blackwell
from warploom import TensorMap, asm, emulate
from warploom.emulator import api
from warploom.sanitizer import Sanitizer
from warploom.sanitizer.happens_before.scopes import LEVELS, ThreadLocation, needed
from warploom.sanitizer.rules import Example

OTHERS = """
xor.b32 %r0, %r0, 256;
mov.u32 %r1, tile;
add.u32 %r1, %r1, %r0;
ld.shared.u32 %r2, [%r1];
"""
"""Each thread reads what a thread two warps away has written."""


def test_a_fence_by_one_thread_does_not_cover_what_the_others_wrote():
    body = FILL + "@%first fence.proxy.async;\nbar.sync 0;" + STORE + STORED
    assert "generic-write-before-async-read" in rules(Example(body))


def test_a_fence_behind_the_barrier_by_the_thread_that_stores_covers_all():
    body = FILL + "bar.sync 0;\n@%first fence.proxy.async;" + STORE + STORED
    assert rules(Example(body)) == set()


def test_a_fence_before_the_last_write_does_not_cover_it():
    body = "fence.proxy.async;" + FILL + "bar.sync 0;" + STORE + STORED
    assert "generic-write-before-async-read" in rules(Example(body))


def test_a_fence_for_global_memory_does_not_help_shared_memory():
    body = FILL + "fence.proxy.async.global;\nbar.sync 0;" + STORE + STORED
    assert "generic-write-before-async-read" in rules(Example(body))


def test_a_relaxed_wait_makes_nothing_visible():
    body = INIT + load(512) + wait(scope=".relaxed.cluster") + READ
    told = [line for one in findings(Example(body)) if one.rule == "copy-not-waited" for line in one.history]
    assert any("it is relaxed and makes nothing visible" in line for line in told)


def test_a_copy_does_not_publish_what_its_thread_wrote_before():
    """PTX ISA 8.9.1.1: the completion is ordered after the copy alone."""
    body = (
        INIT + "@%first st.shared.u32 [tile+2048], %idx;" + load(512) + wait() + "ld.shared.u32 %r2, [tile+2048];"
    ).replace("mbarrier.arrive.expect_tx", "mbarrier.arrive.expect_tx.relaxed.cta")
    assert "data-race" in rules(Example(body))
    assert "data-race" not in rules(Example(body.replace(".relaxed.cta", "")))  # the arrival releases


def test_a_named_barrier_of_two_warps_orders_those_two():
    meet = "setp.lt.u32 %p2, %idx, 64;\n@!%p2 bra out;\nbar.sync 1, 64;\n"
    read = OTHERS.replace("256", "128")
    assert rules(Example(FILL + meet + read + "out:")) == set()
    assert "data-race" in rules(Example(FILL + meet + OTHERS + "out:"))


@pytest.mark.parametrize(("acquire", "release", "clean"), [
    ("acquire", "release", True), ("relaxed", "release", False), ("acquire", "relaxed", False),
])  # fmt: skip
def test_a_flag_in_shared_memory_needs_release_and_acquire(acquire: str, release: str, clean: bool):
    body = f"""
    @%first st.shared.u32 [tile+64], 0;
    bar.sync 0;
    @%first st.shared.u32 [tile], 7;
    @%first st.{release}.cta.shared.u32 [tile+64], 1;
    setp.ge.u32 %p2, %idx, 32;
    @!%p2 bra out;
    spin:
    ld.{acquire}.cta.shared.u32 %r2, [tile+64];
    setp.eq.u32 %p3, %r2, 0;
    @%p3 bra spin;
    ld.shared.u32 %r3, [tile];
    out:
    """
    assert ("data-race" in rules(Example(body))) is not clean


def test_fences_make_relaxed_accesses_a_hand_over():
    body = """
    @%first st.shared.u32 [tile+64], 0;
    bar.sync 0;
    @%first st.shared.u32 [tile], 7;
    @%first fence.acq_rel.cta;
    @%first st.relaxed.cta.shared.u32 [tile+64], 1;
    setp.ge.u32 %p2, %idx, 32;
    @!%p2 bra out;
    spin:
    ld.relaxed.cta.shared.u32 %r2, [tile+64];
    setp.eq.u32 %p3, %r2, 0;
    @%p3 bra spin;
    fence.acq_rel.cta;
    ld.shared.u32 %r3, [tile];
    out:
    """
    assert rules(Example(body)) == set()
    assert "data-race" in rules(Example(body.replace("fence.acq_rel.cta;\n    ld.shared", "ld.shared")))


def test_atomics_do_not_race_with_each_other_and_do_with_stores():
    add = "st.shared.u32 [tile], 0;\nbar.sync 0;\natom.shared.add.u32 %r2, [tile], 1;"
    assert rules(Example("@%first " + add)) == set()
    assert "data-race" in rules(Example("@%first " + add + "\n@%first st.shared.u32 [tile], 0;"))


def test_neighbouring_bytes_of_different_warps_are_no_race():
    """Two warps write the two halves of each word: the granules of the shadow are as small as the accesses."""
    body = """
    and.b32 %r0, %idx, 31;
    shr.u32 %r3, %idx, 5;
    shl.b32 %r0, %r0, 3;
    shl.b32 %r3, %r3, 1;
    add.u32 %r0, %r0, %r3;
    mov.u32 %r1, tile;
    add.u32 %r1, %r1, %r0;
    st.shared.u16 [%r1], 0;
    """
    assert rules(Example(body)) == set()


FENCED = "fence.mbarrier_init.release.cluster;"


@pytest.mark.parametrize(("fence", "arrive", "late", "clean"), [
    ("", "", "", True), ("", ".relaxed", "", False), (FENCED, ".relaxed", "", True), ("", ".relaxed", FENCED, False),
])  # fmt: skip
def test_a_relaxed_cluster_barrier_needs_a_fence_behind_the_initialisation(
    fence: str, arrive: str, late: str, clean: bool
):
    """And in front of the arrival."""
    body = f"""
    @%first mbarrier.init.shared::cta.b64 [bar], 1;
    {fence}
    barrier.cluster.arrive{arrive}.aligned;
    {late}
    barrier.cluster.wait.aligned;
    {PEER}
    @%first mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];
    """ + wait(scope=".acquire.cluster")
    found = {one.rule for one in findings(Example(body, cluster=2)) if one.severity == "error"}
    assert ("mbarrier-init-not-visible" in found) is not clean


@pytest.mark.parametrize(("fence", "arrive", "found"), [
    ("", ".relaxed", "data-race"), ("fence.acq_rel.cta;", ".relaxed", "data-race"),
    ("fence.acq_rel.cluster;", ".relaxed", None), ("", "", None),
])  # fmt: skip
def test_a_relaxed_cluster_barrier_carries_what_a_fence_covered(fence: str, arrive: str, found: str | None):
    """From warp to warp of a CTA, and from CTA to CTA: the example of 9.7.13.3 has the fence."""
    body = f"""
    @%first st.shared.u32 [tile], %idx;
    {fence}
    barrier.cluster.arrive{arrive}.aligned;
    barrier.cluster.wait.aligned;
    setp.ge.u32 %p2, %idx, 32;
    @%p2 ld.shared.u32 %r7, [tile];
    @%p2 st.global.u32 [%data], %r7;
    """
    assert rules(Example(body, threads=64)) == ({found} if found else set())
    peer = body.replace("setp.ge", PEER + "\nmov.u32 %r6, tile;\nmapa.shared::cluster.u32 %r6, %r6, %r4;\nsetp.ge")
    peer = peer.replace("ld.shared.u32 %r7, [tile]", "ld.shared::cluster.u32 %r7, [%r6]") + CLUSTER_SYNC
    across = rules(Example(peer, threads=64, cluster=2)) - {"same-value-race", "global-data-race"}
    assert across == ({found} if found else set())


HANDED = (
    """
@%first mbarrier.init.shared::cta.b64 [bar], 1;
@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;
bar.sync 0;
mov.u32 %r3, bar;
setp.eq.u32 %p2, %idx, 32;
@!%first bra reader;
st.shared.u32 [tile], 7;
BETWEEN
SIGNAL
bra met;
reader:
@!%p2 bra met;
"""
    + wait()
    + """
ld.shared.u32 %r2, [tile];
met:
bar.sync 0;
"""
)
"""Thread 0 writes a word and signals; thread 32 waits and reads it."""
COMPLETES = "mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r3], 16;"
ARRIVES = """
mbarrier.complete_tx.shared::cta.b64 [bar], 16;
mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [bar];
"""


@pytest.mark.parametrize("signal", [COMPLETES, ARRIVES], ids=["complete_tx", "arrive"])
@pytest.mark.parametrize(
    ("between", "clean"),
    [
        ("", False), ("fence.acq_rel.cta;", True), ("fence.release.sync_restrict::shared::cta.cluster;", True),
        ("fence.mbarrier_init.release.cluster;", False),
    ],
    ids=["no fence", "fence", "restricted fence", "fence of initialisations"],
)  # fmt: skip
def test_a_relaxed_signal_publishes_what_a_fence_in_front_covers(signal: str, between: str, clean: bool):
    """PTX ISA 8.8. CUTLASS's scheduler for sm_120 signals by complete_tx, which is always relaxed."""
    body = HANDED.replace("BETWEEN", between).replace("SIGNAL", signal)
    if signal == ARRIVES:
        body = body.replace("[bar], 1;", "[bar], 2;", 1)
    assert ("data-race" in rules(Example(body, threads=64))) is not clean


def test_a_relaxed_signal_does_not_publish_what_came_behind_the_fence():
    late = HANDED.replace("st.shared.u32 [tile], 7;", "").replace(
        "BETWEEN", "fence.acq_rel.cta;\nst.shared.u32 [tile], 7;"
    )
    assert "data-race" in rules(Example(late.replace("SIGNAL", COMPLETES), threads=64))


@pytest.mark.parametrize(
    ("fence", "scope", "clean"),
    [
        ("fence.acq_rel.cluster;", ".relaxed.cluster", True), ("fence.acq_rel.cta;", ".relaxed.cluster", False),
        ("", ".relaxed.cluster", False), ("fence.acq_rel.cluster;", "", False),
    ],
    ids=["both reach", "a fence of the CTA", "no fence", "an arrival of the CTA"],
)  # fmt: skip
def test_to_another_cta_both_the_fence_and_the_signal_have_to_reach(fence: str, scope: str, clean: bool):
    body = (
        f"""
    @%first mbarrier.init.shared::cta.b64 [bar], 1;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    {PEER}
    xor.b32 %r4, %rank, 1;
    mov.u32 %r3, tile;
    mapa.shared::cluster.u32 %r3, %r3, %r4;
    @%first st.shared::cluster.u32 [%r3], 7;
    {fence}
    @%first mbarrier.arrive{scope}.shared::cluster.b64 _, [%r5];
    """
        + wait(scope=".acquire.cluster")
        + "ld.shared.u32 %r2, [tile];\nbarrier.cluster.arrive.aligned;\n"
    )
    found = rules(Example(body + "barrier.cluster.wait.aligned;\n", cluster=2, threads=32))
    assert bool(found & {"data-race", "hand-off-scope"}) is not clean
    assert ("remote-arrival-scope" in found) is not clean


# -- texts of nvcc ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["same_store", "reused_barrier"])
@pytest.mark.parametrize("schedule", ["lazy", "eager", "random"])
def test_what_is_no_race_is_not_reported(name: str, schedule: str):
    """Lanes that issue the very same store; bytes of an mbarrier that are used again after its mbarrier.inval."""
    module = asm.parse(cuda_texts.text(name, "sm_90a"), name=name)
    buffers = [np.arange(64, dtype=np.float32) for _ in range(len(module.entries[0].parameters))]
    report = api.run(module, None, buffers, grid=(1, 1, 1), block=(64, 1, 1), schedule=schedule, watch=[Sanitizer])
    assert [finding.rule for finding in report.findings if finding.severity != "performance"] == []


TENSOR_STORE = """.version 8.7
.target sm_90a
.address_size 64
.entry k(.param .align 64 .b8 map[128])
{
    .reg .b64 %d;
    .reg .b32 %r<4>;
    .shared .align 1024 .b8 tile[4096];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, tile;
    shl.b32 %r3, %r1, 7;
    add.u32 %r3, %r3, %r2;
    STORES
    fence.proxy.async.shared::cta;
    bar.warp.sync -1;
    mov.b64 %d, map;
    cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%d, {0, ROW}], [%r2];
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    ret;
}
""".replace("STORES", "\n".join(f"st.shared.v4.u32 [%r3+{at}], {{%r1, %r1, %r1, %r1}};" for at in range(0, 128, 16)))
"""CUTLASS's epilogue in small: all lanes of a warp issue the TMA store of a swizzled tile, without an elect."""


@pytest.mark.parametrize(("row", "clean"), [("0", True), ("%r1", False)])
def test_lanes_that_store_one_box_do_not_race(row: str, clean: bool):
    """But those whose boxes differ and overlap do."""
    out = TensorMap.tiled(np.zeros((32, 64), np.float32), box=(32, 32), swizzle="128B")
    text = TENSOR_STORE.replace("ROW", row)
    found = emulate(text, out, grid=1, block=32).findings
    assert ([finding.rule for finding in found if finding.severity == "error"] == []) is clean


OWN_ROWS = """.version 8.7
.target sm_90a
.address_size 64
.entry k()
{
    .reg .b64 %d<3>;
    .reg .b32 %r<9>;
    .reg .f32 %f<4>;
    .reg .pred %p;
    .shared .align 128 .b8 a[2048];
    .shared .align 128 .b8 b[256];
    mov.u32 %r1, %tid.x;
    shl.b32 %r2, %r1, 1;
    mov.u32 %r3, b;
    add.u32 %r3, %r3, %r2;
    st.shared.u16 [%r3], 0;
    bar.sync 0;
    add.u32 %r4, %r1, SHIFT;
    and.b32 %r4, %r4, 127;
    shl.b32 %r4, %r4, 4;
    mov.u32 %r5, a;
    add.u32 %r5, %r5, %r4;
    st.shared.v4.u32 [%r5], {0, 0, 0, 0};
    fence.proxy.async.shared::cta;
    bar.warp.sync -1;
    mov.u32 %r5, a;
    shr.u32 %r5, %r5, 4;
    cvt.u64.u32 %d1, %r5;
    or.b64 %d1, %d1, 0x1000080000;
    mov.u32 %r6, b;
    shr.u32 %r6, %r6, 4;
    cvt.u64.u32 %d2, %r6;
    or.b64 %d2, %d2, 0x1000080000;
    setp.ne.u32 %p, 0, 0;
    mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %d1, %d2, %p, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    ret;
}
"""
"""Each warp writes 512 bytes of A, whose rows 8 by 8 lie 256 bytes apart: 16 rows, moved by SHIFT threads."""


@pytest.mark.parametrize(("shift", "found"), [(0, []), (32, ["data-race"])])
def test_a_warp_may_write_its_own_rows_of_a_without_meeting_the_others(shift: int, found: list[str]):
    """As FlashAttention-3 hands P from the softmax to the second product; B must be there for all."""
    report = emulate(OWN_ROWS.replace("SHIFT", str(shift)), grid=1, block=128)
    assert [finding.rule for finding in report.findings if finding.severity == "error"] == found


def test_b_needs_a_meeting_of_the_warps_beside_each_thread_s_fence():
    """FlashMLA clears the rows of V after the last key, fences, and multiplies."""
    text = OWN_ROWS.replace("SHIFT", "0").replace("bar.sync 0;", "fence.proxy.async.shared::cta;")
    (found,) = (one for one in emulate(text, grid=1, block=128).findings if one.severity == "error")
    assert found.rule == "data-race" and "since warp 0 wrote" in found.missing


@pytest.mark.parametrize(("schedule", "seed"), [("lazy", 0), ("random", 0), ("starve", 2)])
def test_bytes_in_flight_at_the_exit_are_one_finding(schedule: str, seed: int):
    """The wait is missing; that the bytes have not come is its consequence."""
    assert rules(Example(INIT + load(512)), schedule, seed) == {"exit-with-pending-work"}


@pytest.mark.parametrize(
    ("fence", "clean"),
    [
        ("fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;", True),
        ("fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;", False),
    ],
)
def test_an_acquire_alone_carries_nothing_to_the_async_proxy(fence: str, clean: bool):
    body = FILL + fence + "\nbar.sync 0;" + STORE + STORED
    assert ("generic-write-before-async-read" not in rules(Example(body))) is clean


@pytest.mark.parametrize(
    ("a", "b", "scope"),
    [
        (ThreadLocation(0, 0), ThreadLocation(0, 0), "cta"),
        (ThreadLocation(0, 0), ThreadLocation(0, 1), "cluster"),
        (ThreadLocation(0, 0), ThreadLocation(1, 0), "gpu"),
        (ThreadLocation(0, 0), ThreadLocation(0, 0, device=1), "sys"),
    ],
)
def test_a_scope_must_reach_the_lowest_common_place(a: ThreadLocation, b: ThreadLocation, scope: str):
    assert needed(a, b) == needed(b, a) == LEVELS[scope]
    assert sorted(LEVELS, key=LEVELS.__getitem__) == ["", "cta", "cluster", "gpu", "sys"]


SPIN = """
@!%first bra writer;
again:
LOAD %r2, [tile];
setp.eq.u32 %p1, %r2, 0;
@%p1 bra again;
bra done;
writer:
setp.ne.u32 %p2, %idx, 32;
@%p2 bra done;
STORE
done:
"""
CLEARED = "@%first st.shared.u32 [tile], 0;\nbar.sync 0;\n"


@pytest.mark.parametrize(("load", "store", "race"), [
    ("ld.volatile.shared.u32", "st.volatile.shared.u32 [tile], 1;", False),
    ("ld.relaxed.cta.shared.u32", "atom.add.release.cta.shared.u32 %r3, [tile], 1;", False),
    ("ld.acquire.cta.shared.u32", "st.shared.u32 [tile], 1;", True),
])  # fmt: skip
def test_a_strong_write_does_not_race_with_a_strong_read_before_it(load: str, store: str, race: bool):
    body = CLEARED + SPIN.replace("LOAD", load).replace("STORE", store)
    for schedule, seed in (("lazy", 0), ("starve", 0), ("pct", 0), ("pct", 1)):
        assert ("data-race" in rules(Example(body), schedule, seed)) is race


def test_a_strong_write_races_with_a_plain_read():
    body = CLEARED + "@%first ld.shared.u32 %r2, [tile];\nsetp.eq.u32 %p2, %idx, 32;\n"
    assert "data-race" in rules(Example(body + "@%p2 atom.shared.add.u32 %r3, [tile], 1;"))


def test_a_thread_that_would_store_other_data_may_wait_for_its_stores():
    """As a role that had no whole tile to store in this run."""
    unlikely = """
    setp.gt.u32 %p3, %idx, 1000;
    @!%p3 bra over;
    cp.async.bulk.global.shared::cta.bulk_group [%data], [tile], 512;
    cp.async.bulk.commit_group;
    over:
    """
    waits = "setp.eq.u32 %p2, %idx, 32;\n@%p2 cp.async.bulk.wait_group 0;\n"
    begin = FILL + "fence.proxy.async;\nbar.sync 0;" + STORE
    assert rules(Example(begin + waits + STORED)) == {"wait-by-another-thread"}
    assert rules(Example(begin + waits + unlikely + STORED)) == {"wait-by-another-thread"}
    assert rules(Example(begin + unlikely + waits + STORED)) == set()


SENT = """
@%first mbarrier.init.shared::cta.b64 [bar], 1;
@%first fence.mbarrier_init.release.cluster;
@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1024;
@%first st.shared.u32 [tile], 0;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
mov.u32 %r6, tile;
mapa.shared::cluster.u32 %r6, %r6, %r4;
SEND
WAIT
ld.shared.u32 %r7, [tile];
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
"""
RED = "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r6], %idx, [%r5];\n"


@pytest.mark.parametrize("schedule", ["lazy", "random"])
def test_reductions_in_flight_do_not_race_with_each_other(schedule: str):
    """Each element of red.async is a relaxed atomic operation (9.7.13.7); a store, or a read too early, is a race."""

    def found(send: str, waits: str = wait(scope=".acquire.cluster")) -> set[str]:
        body = PEER + SENT.replace("SEND", send).replace("WAIT", waits)
        return rules(Example(body, cluster=2), schedule)

    assert found(RED + RED) == set()
    store = RED.replace("red.async.relaxed.cluster", "st.async.weak").replace(".add", "")
    assert "overlapping-copies" in found(RED + store)
    assert found(RED + RED, waits="") & {"copy-not-waited", "data-race"}


TWICE = INIT + load(512, 1024) + load().split("512;\n", 1)[1]
OVERLAPS = {
    "never read": (wait(), "warning"),
    "read by a thread": (wait() + "ld.shared.u32 %r0, [tile];\n", "error"),
    "read by a copy": (wait() + STORE + "@%first cp.async.bulk.wait_group 0;\n", "error"),
    "written, then read": (wait() + FILL + "ld.shared.u32 %r0, [%r1];\n", "warning"),
}


@pytest.mark.parametrize("case", OVERLAPS)
def test_copies_that_overlap_are_an_error_once_their_bytes_are_read(case: str):
    """CUTLASS 63 brings its weights into L2 by copies to one place that nothing reads."""
    after, severity = OVERLAPS[case]
    assert {one.rule: one.severity for one in findings(Example(TWICE + after))} == {"overlapping-copies": severity}


def test_a_copy_that_may_still_overwrite_a_later_one_is_found_behind_a_third():
    """Only the third copy, whose barrier is another one, has been waited for when its bytes are read."""
    begin = INIT.replace("bar.sync", "@%first mbarrier.init.shared::cta.b64 [bar+8], 1;\nbar.sync")
    third = load(barrier="bar+8") + wait(barrier="bar+8") + "ld.shared.u32 %r0, [tile];\n"
    found = findings(Example(begin + TWICE.removeprefix(INIT) + third))
    assert "copy-not-waited" in {one.rule for one in found if one.severity == "error"}


SENT_TO_THE_OTHER = f"""
{INIT}{FILL}
@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 512;
fence.proxy.async.shared::cta;
{CLUSTER_SYNC}
xor.b32 %r2, %rank, 1;
mov.u32 %r3, tile;
mapa.shared::cluster.u32 %r4, %r3, %r2;
add.u32 %r4, %r4, 1024;
mov.u32 %r5, bar;
mapa.shared::cluster.u32 %r5, %r5, %r2;
@%first cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r4], [%r3], 512, [%r5];
{wait()}
"""


@pytest.mark.parametrize(("end", "found"), [(CLUSTER_SYNC, set()), ("", {"exit-with-pending-work"})])
def test_a_cta_stays_until_the_others_have_received_what_it_sends(end: str, found: set[str]):
    """It has waited for the bytes that it gets itself; its own may still be read from its shared memory."""
    assert rules(Example(SENT_TO_THE_OTHER + end, cluster=2)) == found


ALL_BUT_ONE = "@%first cp.async.bulk.wait_group.read 1;\n"
IN_NO_GROUP = STORE.replace("@%first cp.async.bulk.commit_group;\n", "")


@pytest.mark.parametrize(("made", "end", "severity"), [
    (Example, "", "error"), (Blackwell, "", "error"), (Blackwell, "no group", "error"), (Blackwell, STORED, None),
    (Blackwell, ALL_BUT_ONE, "error"), (Blackwell, ALL_BUT_ONE + STORE, "error"),
    (Blackwell, STORE + ALL_BUT_ONE, "warning"), (Blackwell, STORED + IN_NO_GROUP, "warning"),
], ids=["sm_90", "sm_100", "in no group", "waited for", "a wait for none", "a wait ahead", "all but one",
        "another in no group"])  # fmt: skip
def test_an_exit_before_a_store_has_read_its_source(made: type[Example], end: str, severity: str | None):
    """On sm_100, kernels of CUTLASS and FlashAttention-4 leave their last stores to the chip; others forgot to wait."""
    store = IN_NO_GROUP if end == "no group" else STORE + end
    found = {one.rule: one.severity for one in findings(made(FILL + "fence.proxy.async;\nbar.sync 0;" + store))}
    found.pop("same-value-race", None)  # of two stores to one place
    assert found == ({"exit-with-pending-work": severity} if severity else {})


@pytest.mark.parametrize("owner_writes", ["first", "last"])
@pytest.mark.parametrize("sem, rule", [("", None), (".relaxed", "data-race")])
def test_a_relaxed_barrier_of_the_cluster_is_named_as_such_between_ctas(sem: str, rule: str | None, owner_writes: str):
    """CTA 1 reads what CTA 0 writes; no mbarrier is involved, and none is named."""
    whole = "barrier.cluster.arrive;\nbarrier.cluster.wait;\n"
    ranks = "mov.u32 %r5, %cluster_ctarank;\nsetp.eq.u32 %p1, %r5, 0;\nmov.u32 %r1, tile;\n"
    ranks += "mapa.shared::cluster.u32 %r2, %r1, 0;\n"
    write = "@!%first bra NEXT;\n@%p1 st.shared.u32 [tile], 7;\nNEXT:\n"
    read = "@!%p1 ld.shared::cluster.u32 %r3, [%r2];\n"
    barrier = whole.replace("arrive", "arrive" + sem)
    if owner_writes == "first":
        middle = write.replace("NEXT", "n1") + barrier + read
    else:
        middle = write.replace("NEXT", "n1") + whole + read + barrier + write.replace("NEXT", "n2")
    found = findings(Example(whole + ranks + middle + whole, threads=32, grid=2, cluster=2))
    assert [one.rule for one in found] == [rule] * (rule is not None)
    assert all("relaxed arrival" in one.missing for one in found)


WHOLE_CLUSTER = "barrier.cluster.arrive;\nbarrier.cluster.wait;\n"
PLACES_OF = {
    "shared": ("@%p1 st.shared.u32 [tile], 7;\n", "@!%p1 ld.shared::cluster.u32 %r3, [%r2];\n"),
    "global": ("@%p1 st.global.u32 [%data], 7;\n", "@!%p1 ld.global.u32 %r3, [%data];\n"),
}
"""What CTA 0 writes, and CTA 1 reads."""


@pytest.mark.parametrize("space, rule", [("shared", "data-race"), ("global", "global-data-race")])
@pytest.mark.parametrize(
    "fence, sem, signals",
    [("", "", True), ("fence.acq_rel.cluster;\n", ".relaxed", True), ("fence.acq_rel.cta;\n", ".relaxed", False),
     ("", ".relaxed", False)],
)  # fmt: skip
@pytest.mark.parametrize("read_first, severity", [(False, "error"), (True, "warning")])
def test_a_read_in_front_of_the_owners_write_needs_more_than_a_relaxed_barrier_of_the_cluster(
    space: str, rule: str, fence: str, sem: str, signals: bool, read_first: bool, severity: str
):
    """9.7.13.3 guarantees no order of the accesses, so the read may see the later write. It is a warning: a load whose
    value is used in front of the barrier has it by then."""
    write, read = PLACES_OF[space]
    first, then = (read, write) if read_first else (write, read)
    body = (
        "@%first st.shared.u32 [tile], 3;\n" + WHOLE_CLUSTER
        + "setp.eq.u32 %p1, %rank, 0;\nmov.u32 %r1, tile;\nmapa.shared::cluster.u32 %r2, %r1, 0;\n"
        + f"@!%first bra n1;\n{first}n1:\n{fence}" + WHOLE_CLUSTER.replace("arrive", "arrive" + sem)
        + f"@!%first bra n2;\n{then}n2:\n" + WHOLE_CLUSTER
    )  # fmt: skip
    example = Example(body, threads=32, cluster=2)
    assert {(one.rule, one.severity) for one in findings(example)} == (set() if signals else {(rule, severity)})


@pytest.mark.parametrize("scope, found", [(".cluster", set()), (".cta", {"global-data-race"})])
def test_an_arrival_of_narrow_scope_carries_nothing_of_global_memory_to_another_cta(scope: str, found: set[str]):
    body = f"""
    @%first mbarrier.init.shared::cta.b64 [bar], 1;
    {WHOLE_CLUSTER}
    setp.eq.u32 %p1, %rank, 0;
    @!%first bra done;
    @%p1 bra waits;
    st.global.u32 [%data], 7;
    {PEER}
    mbarrier.arrive.release{scope}.shared::cluster.b64 _, [%r5];
    bra done;
    waits:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p0, [bar], 0;
    @!%p0 bra waits;
    ld.global.u32 %r3, [%data];
    done:
    {WHOLE_CLUSTER}
    """
    assert rules(Example(body, threads=32, cluster=2)) - {"remote-arrival-scope"} == found
