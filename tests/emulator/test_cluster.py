"""Clusters through PTX: cluster barrier, other CTAs' shared memory, register pool. PTX ISA 9.7.13.3, 9.7.19.5."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.emulator.async_kernels import SCHEDULES, cluster_sync, emulate
from tests.errors import refused
from warploom.errors import DeadlockError

NEIGHBOUR = """
    mov.u32 %r1, %cluster_ctarank;
    mov.u32 %r2, %cluster_nctarank;
    add.u32 %r3, %r1, 1;
    rem.u32 %r3, %r3, %r2;
    mov.u32 %r10, %ctaid.x;
    mul.wide.u32 %rd1, %r10, 4;
    add.u64 %rd1, %rd1, %a0;
"""


@pytest.mark.parametrize("schedule, seed", SCHEDULES)
@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("generic", [False, True])
def test_every_cta_reads_its_neighbours_shared_memory(size, generic, schedule, seed):
    out = np.zeros(2 * size, np.uint32)
    read = (
        "cvt.u64.u32 %rd2, %tile;\ncvta.shared.u64 %rd2, %rd2;\nmapa.u64 %rd3, %rd2, %r3;\nld.u32 %r5, [%rd3];\n"
        if generic
        else "mapa.shared::cluster.u32 %r4, tile, %r3;\nld.shared::cluster.u32 %r5, [%r4];\n"
    )
    emulate(
        NEIGHBOUR + "@%first st.shared.u32 [tile], %r10;\n" + cluster_sync() + read
        + "@%first st.global.u32 [%rd1], %r5;\n" + cluster_sync(),
        out, grid=2 * size, cluster=size, schedule=schedule, seed=seed,
    )  # fmt: skip
    ranks = np.arange(2 * size)
    assert np.array_equal(out, ranks // size * size + (ranks + 1) % size)


def test_getctarank_is_the_inverse_of_mapa():
    out = np.zeros(8, np.uint32)
    emulate(
        NEIGHBOUR + "mapa.shared::cluster.u32 %r4, %tile, %r3;\ngetctarank.shared::cluster.u32 %r5, %r4;\n"
        + "cvt.u64.u32 %rd2, %tile;\ncvta.shared.u64 %rd2, %rd2;\nmapa.u64 %rd3, %rd2, %r3;\n"
        + "getctarank.u64 %r6, %rd3;\n"
        + "mul.wide.u32 %rd1, %r10, 8;\nadd.u64 %rd1, %rd1, %a0;\n@%first st.global.v2.u32 [%rd1], {%r5, %r6};",
        out, grid=4, cluster=4,
    )  # fmt: skip
    assert out.reshape(4, 2).tolist() == [[1, 1], [2, 2], [3, 3], [0, 0]]


def test_threads_that_exited_are_not_waited_for_at_the_cluster_barrier():
    out = np.zeros(2, np.uint32)
    leave = "setp.ge.u32 %p1, %idx, 32;\n@%p1 exit;\n"
    emulate(leave + NEIGHBOUR + cluster_sync() + "@%first st.global.u32 [%rd1], 1;", out, threads=64, grid=2, cluster=2)
    assert out.all()


def test_arrive_and_wait_may_be_apart():
    out = np.zeros(2, np.uint32)
    emulate(
        NEIGHBOUR + "@%first st.shared.u32 [tile], %r1;\nbarrier.cluster.arrive.release;\nmov.u32 %r6, 1;\n"
        + "barrier.cluster.wait.acquire;\nmapa.shared::cluster.u32 %r4, tile, %r3;\n"
        + "ld.shared::cluster.u32 %r5, [%r4];\n"
        + "add.u32 %r5, %r5, %r6;\n@%first st.global.u32 [%rd1], %r5;\nbarrier.cluster.arrive.relaxed;\n"
        + "barrier.cluster.wait;",
        out, grid=2, cluster=2,
    )  # fmt: skip
    assert out.tolist() == [2, 1]


MISUSE = {
    "waiting without arriving": ("barrier.cluster.wait;", ("cluster-barrier-order", "wait")),
    "arriving twice": ("barrier.cluster.arrive;\nbarrier.cluster.arrive;", ("cluster-barrier-order", "arrive, arrive")),
    "a rank that is not there": (
        "mapa.shared::cluster.u32 %r1, %tile, 2;\nld.shared::cluster.u32 %r2, [%r1];", ("cluster-rank", "2"),
    ),
    "a rank that no cluster has": (
        "mapa.shared::cluster.u32 %r1, %tile, 1000;\nld.shared::cluster.u32 %r2, [%r1];", ("cluster-rank", "255"),
    ),
    "an address of a rank that is not there": (
        "add.u32 %r1, %tile, 0x5000000;\nld.shared::cluster.u32 %r2, [%r1];", ("cluster-rank", "5"),
    ),
    "memory of a CTA that has exited": (
        """
        mov.u32 %r1, %cluster_ctarank;
        setp.eq.u32 %p1, %r1, 0;
        @%p1 exit;
        mapa.shared::cluster.u32 %r2, %tile, 0;
        barrier.cluster.arrive;
        barrier.cluster.wait;
        ld.shared::cluster.u32 %r3, [%r2];
        """,
        ("cta-has-exited", "rank 0"),
    ),
}  # fmt: skip


def test_a_lane_may_map_a_rank_that_is_not_there_and_not_use_the_address():
    """CuTe's scheduler warp maps its barrier into the CTA of each lane's number; the first lanes then arrive."""
    emulate("and.b32 %r1, %idx, 31;\nmapa.shared::cluster.u32 %r2, %tile, %r1;", np.zeros(2, np.uint32), grid=2,
            cluster=2)  # fmt: skip


@pytest.mark.parametrize("body, sentence", MISUSE.values(), ids=MISUSE)
def test_misuse_is_an_error(body, sentence):
    with refused(*sentence):
        emulate(body, grid=2, cluster=2)


def test_a_deadlock_at_the_cluster_barrier_names_the_missing_warps():
    body = """
    mov.u32 %r1, %cluster_ctarank;
    setp.eq.u32 %p1, %r1, 1;
    setp.ge.u32 %p2, %idx, 32;
    and.pred %p1, %p1, %p2;
    @%p1 bra stuck;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    bra end;
    stuck:
    bar.sync 1, 64;
    end:
    """
    with pytest.raises(DeadlockError) as caught:
        emulate(body, threads=64, grid=2, cluster=2)
    assert any(wait.reason.endswith("CTA rank 1 warp 1") for wait in caught.value.waits)


# -- registers ---------------------------------------------------------------------------------------------------

ROLES = """
    setp.ge.u32 %p1, %idx, 128;
    @%p1 bra consumer;
    setmaxnreg.dec.sync.aligned.u32 {low};
    bra end;
consumer:
    setmaxnreg.inc.sync.aligned.u32 {high};
end:
    mul.wide.u32 %rd1, %idx, 4;
    add.u64 %rd1, %rd1, %a0;
    st.global.u32 [%rd1], 1;
"""
BOUND = ".maxntid 384, 1, 1 .minnctapersm 1"


@pytest.mark.parametrize("schedule, seed", SCHEDULES)
@pytest.mark.parametrize("low, high", [(40, 232), (24, 240)])
def test_consumers_get_the_registers_that_the_producer_gives_back(low, high, schedule, seed):
    out = np.zeros(384, np.uint32)
    body = ROLES.format(low=low, high=high)
    emulate(body, out, threads=384, directives=BOUND, schedule=schedule, seed=seed)
    assert out.all()


def test_more_registers_than_the_pool_has_is_a_deadlock_that_says_so():
    with pytest.raises(DeadlockError) as caught:
        emulate(ROLES.format(low=40, high=240), np.zeros(384, np.uint32), threads=384, directives=BOUND)
    (waits,) = caught.value.waits
    assert re.findall(r"\d+", waits.reason)[-4:] == ["2304", "168", "240", "256"]


def test_maxnreg_says_how_many_registers_a_thread_starts_with():
    with refused("invalid-operand", expected="a count of at most 32"):
        emulate("setmaxnreg.dec.sync.aligned.u32 40;", threads=128, directives=".maxnreg 32")


@pytest.mark.parametrize("directives", ["", ".maxntid 384, 1, 1", ".minnctapersm 1"])
def test_without_both_launch_bounds_setmaxnreg_is_ignored(directives):
    """ptxas 13.0 says so in note C7508; a consumer then never waits for registers."""
    out = np.zeros(384, np.uint32)
    emulate(ROLES.format(low=40, high=240), out, threads=384, directives=directives)
    assert out.all()


def test_a_thread_starts_with_no_more_registers_than_an_inc_asks_for():
    """ptxas 13.0 gives 232 of the 256 that fit where 232 is the smallest count of an inc."""
    out = np.zeros(256, np.uint32)
    emulate(ROLES.format(low=40, high=232), out, threads=256, directives=".maxntid 256, 1, 1 .minnctapersm 1")
    assert out.all()


def test_a_register_count_that_is_no_multiple_of_8_is_refused():
    with refused("verification", expected="a multiple of 8 from 24 to 256"):
        emulate("setmaxnreg.inc.sync.aligned.u32 100;", threads=128)


def test_grid_dependencies_and_fences_change_no_value():
    out = np.zeros(1, np.uint32)
    emulate(
        "griddepcontrol.wait;\nfence.proxy.async;\nfence.proxy.async.shared::cta;\nfence.mbarrier_init.release.cluster;\n"
        "fence.acq_rel.gpu;\nmembar.gl;\nfence.sc.cluster;\nfence.proxy.tensormap::generic.release.gpu;\n"
        "@%first st.global.u32 [%a0], 5;\ngriddepcontrol.launch_dependents;",
        out,
    )
    assert out[0] == 5
