"""Threads of a warp may be anywhere: named threads are waited for, others are not.

One lane waits for a free slot in a ring while the other 31 are an iteration ahead, at the loop's first instruction,
which the warp executes together (the producer loop of many kernels). Tests substitute various such instructions.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.async_kernels import emulate
from tests.foreign.cuda_texts import text
from warploom.errors import DeadlockError, EmulationError
from warploom.runtime import emulate as emulate_text

SCHEDULES = [("lazy", 0), ("eager", 0), ("random", 0), ("random", 1), ("starve", 0), ("starve", 1), ("pct", 0)]
schedules = pytest.mark.parametrize(("schedule", "seed"), SCHEDULES, ids=[f"{name}-{seed}" for name, seed in SCHEDULES])

TOGETHER = {
    "elect": "elect.sync %r20|%p5, 0xffffffff;",
    "shfl": "shfl.sync.idx.b32 %r20, %r1, 0, 31, 0xffffffff;",
    "vote": "vote.sync.any.pred %p5, %p1, 0xffffffff;",
    "match": "match.any.sync.b32 %r20, %r1, 0xffffffff;",
    "redux": "redux.sync.add.u32 %r20, %r1, 0xffffffff;",
    "bar.warp": "bar.warp.sync 0xffffffff;",
    "barrier": "barrier.sync 1, 32;",
    "bar": "bar.sync 1, 32;",
    "movmatrix": "movmatrix.sync.aligned.m8n8.trans.b16 %r20, %r1;",
    "setmaxnreg": "setmaxnreg.dec.sync.aligned.u32 40;",
    "cp_fenceproxy": (
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%a1], [map], 128;"
    ),
}

RING = """
    .shared .align 128 .b8 map[128];
    .shared .align 8 .b64 full[2];
    .shared .align 8 .b64 empty[2];
    .shared .align 4 .b32 slots[2];
    @%first mbarrier.init.shared::cta.b64 [full], 1;
    @%first mbarrier.init.shared::cta.b64 [full+8], 1;
    @%first mbarrier.init.shared::cta.b64 [empty], 32;
    @%first mbarrier.init.shared::cta.b64 [empty+8], 32;
    bar.sync 0;
    mov.u32 %r1, 0;                             // turn
    mov.u32 %r9, 0;
    setp.ge.u32 %p2, %idx, 32;
    @%p2 bra consumer;
    setp.eq.u32 %p1, %idx, 0;
producer:
    TOGETHER
    @!%p1 bra others;
    and.b32 %r2, %r1, 1;
    shl.b32 %r3, %r2, 3;
    shr.u32 %r4, %r1, 1;
    and.b32 %r4, %r4, 1;
    xor.b32 %r4, %r4, 1;
    mov.u32 %r5, empty;
    add.u32 %r5, %r5, %r3;
room:
    mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r5], %r4;
    @!%p3 bra room;
    mov.u32 %r6, slots;
    shl.b32 %r7, %r2, 2;
    add.u32 %r6, %r6, %r7;
    st.shared.u32 [%r6], %r1;
    mov.u32 %r8, full;
    add.u32 %r8, %r8, %r3;
    mbarrier.arrive.shared::cta.b64 _, [%r8];
others:
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p4, %r1, 6;
    @%p4 bra producer;
    bra.uni done;
consumer:
    and.b32 %r2, %r1, 1;
    shl.b32 %r3, %r2, 3;
    shr.u32 %r4, %r1, 1;
    and.b32 %r4, %r4, 1;
    mov.u32 %r8, full;
    add.u32 %r8, %r8, %r3;
filled:
    mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r8], %r4;
    @!%p3 bra filled;
    mov.u32 %r6, slots;
    shl.b32 %r7, %r2, 2;
    add.u32 %r6, %r6, %r7;
    ld.shared.u32 %r10, [%r6];
    mad.lo.u32 %r9, %r9, 10, %r10;
    mov.u32 %r5, empty;
    add.u32 %r5, %r5, %r3;
    mbarrier.arrive.shared::cta.b64 _, [%r5];
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p4, %r1, 6;
    @%p4 bra consumer;
    and.b32 %r11, %idx, 31;
    mul.wide.u32 %rd1, %r11, 4;
    add.u64 %rd1, %rd1, %a0;
    st.global.u32 [%rd1], %r9;
done:
"""


@schedules
@pytest.mark.parametrize("instruction", TOGETHER.values(), ids=TOGETHER)
def test_a_lane_a_turn_behind_is_waited_for(instruction, schedule, seed):
    out = np.zeros(32, np.uint32)
    emulate(
        RING.replace("TOGETHER", instruction), out, np.zeros(32, np.uint32), threads=64, schedule=schedule, seed=seed
    )
    assert (out == 12345).all()  # the turns 0 to 5, each seen once and in order


@schedules
@pytest.mark.parametrize("name", ["elect_loop", "shuffle_loop"])
@pytest.mark.parametrize(("tiles", "steps"), [(1, 3), (3, 4), (4, 1)])
def test_the_producer_loop_that_nvcc_makes_ends(name, tiles, steps, schedule, seed):
    x = np.arange(tiles * steps * 32, dtype=np.float32)
    y = np.zeros(32, np.float32)
    report = emulate_text(
        text(name, "sm_90a"), x, y, np.int32(tiles), np.int32(steps), grid=(1, 1, 1), block=(64, 1, 1),
        schedule=schedule, seed=seed,
    )  # fmt: skip
    assert (y == x.reshape(-1, 32).sum(axis=0)).all()
    assert not [finding for finding in report.findings if finding.severity == "error"]


HALVES = """
    .shared .align 8 .b64 gate;
    @%first mbarrier.init.shared::cta.b64 [gate], 1;
    bar.warp.sync 0xffffffff;
    setp.lt.u32 %p1, %idx, 16;
    selp.b32 %r1, 0x0000ffff, 0xffff0000, %p1;
    setp.ne.u32 %p2, %idx, 31;
    @%p2 bra meet;
poll:                                           // lane 31 is late: it waits for what lane 0 does behind its meeting
    mbarrier.try_wait.parity.shared::cta.b64 %p3, [gate], 0;
    @!%p3 bra poll;
meet:
    MEET
    setp.ne.u32 %p4, %idx, 0;
    @%p4 bra over;
    mbarrier.arrive.shared::cta.b64 _, [gate];
over:
    mul.wide.u32 %rd1, %idx, 4;
    add.u64 %rd1, %rd1, %a0;
    st.global.u32 [%rd1], %r2;
"""


@schedules
@pytest.mark.parametrize(
    ("meet", "expected"),
    [
        ("shfl.sync.idx.b32 %r2, %idx, 0, 0x101f, %r1;", np.repeat([0, 16], 16)),
        ("redux.sync.add.u32 %r2, %idx, %r1;", np.repeat([120, 376], 16)),
        ("mov.u32 %r2, 7; bar.warp.sync %r1;", np.full(32, 7)),
    ],
)
def test_half_a_warp_does_not_wait_for_the_other_half(meet, expected, schedule, seed):
    out = np.zeros(32, np.uint32)
    emulate(HALVES.replace("MEET", meet), out, schedule=schedule, seed=seed)
    assert (out == expected).all()


LATE_AT_WGMMA = """
    .reg .f32 %f<4>;
    .shared .align 8 .b64 full;
    @%first mbarrier.init.shared::cta.b64 [full], 1;
    bar.sync 0;
    setp.ge.u32 %p1, %idx, 128;
    @%p1 bra producer;
    setp.ne.u32 %p2, %idx, 37;
    @%p2 bra multiply;
poll:                                           // one thread alone looks whether the stage is full
    mbarrier.try_wait.parity.shared::cta.b64 %p3, [full], 0;
    @!%p3 bra poll;
multiply:
    mov.u32 %r1, tile;
    shr.u32 %r1, %r1, 4;
    cvt.u64.u32 %rd1, %r1;
    or.b64 %rd1, %rd1, 0x0000000800010000;
    mov.f32 %f0, 0f00000000;
    mov.f32 %f1, %f0;
    mov.f32 %f2, %f0;
    mov.f32 %f3, %f0;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %rd1, %rd1, 1, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    mul.wide.u32 %rd2, %idx, 4;
    add.u64 %rd2, %rd2, %a0;
    st.global.f32 [%rd2], %f0;
    bra.uni done;
producer:
    setp.eq.u32 %p4, %idx, 128;
    @%p4 mbarrier.arrive.shared::cta.b64 _, [full];
done:
"""


@schedules
def test_a_thread_that_comes_late_to_a_wgmma_is_waited_for(schedule, seed):
    out = np.full(128, -1, np.float32)
    emulate(LATE_AT_WGMMA, out, threads=160, schedule=schedule, seed=seed)
    assert not (out == -1).any()


def test_threads_that_never_come_to_a_wgmma_are_named():
    never = LATE_AT_WGMMA.replace("@%p4 mbarrier.arrive.shared::cta.b64 _, [full];", "")
    with pytest.raises(DeadlockError) as caught:
        emulate(never, np.zeros(128, np.float32), threads=160)
    assert any("warp 1" in line and "1 thread" in line for line in caught.value.blocked)


def test_lanes_that_a_guard_holds_back_go_on():
    out = np.zeros(32, np.uint32)
    emulate(
        """
        setp.lt.u32 %p1, %idx, 8;
        setp.ge.u32 %p2, %idx, 4;
        @%p2 bra meet;
        mov.u32 %r3, 1;
    meet:
        mov.u32 %r2, 9;
        @%p1 redux.sync.add.u32 %r2, %idx, 0xff;
        mul.wide.u32 %rd1, %idx, 4;
        add.u64 %rd1, %rd1, %a0;
        st.global.u32 [%rd1], %r2;
        """,
        out,
    )
    assert out.tolist() == [28] * 8 + [9] * 24


@pytest.mark.parametrize(
    ("target", "instruction"),
    [
        ("sm_90a", "wgmma.fence.sync.aligned;"), ("sm_90a", "wgmma.commit_group.sync.aligned;"),
        ("sm_90a", "wgmma.wait_group.sync.aligned 0;"),
        ("sm_90a", "movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r3;"),
        ("sm_100a", "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 32;"),
        ("sm_100a", "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"),
        ("sm_100a", "tcgen05.wait::ld.sync.aligned;"),
    ],
    ids=lambda value: value.split(".sync")[0],
)  # fmt: skip
@pytest.mark.parametrize("threads", [31, 32])
def test_an_instruction_of_the_warp_by_fewer_than_all_its_threads_ends_the_run(target, instruction, threads):
    """`.aligned`: where a guard leaves threads out, the result is undefined."""
    text = f"""
.version 8.7
.target {target}
.address_size 64
.visible .entry k() .maxntid 128
{{
    .reg .pred %p<2>;
    .reg .b32 %r<4>;
    .shared .b32 slot;
    mov.u32 %r1, %tid.x;
    and.b32 %r1, %r1, 31;
    setp.lt.u32 %p1, %r1, {threads};
    @%p1 {instruction}
    ret;
}}
"""
    if threads == 32:
        emulate_text(text, grid=1, block=128, check=False)
        return
    with pytest.raises(EmulationError) as caught:
        emulate_text(text, grid=1, block=128, check=False)
    assert caught.value.got.startswith("31 of 32") or caught.value.got.startswith("124 of 128")


def test_bar_warp_sync_pairs_lanes_at_different_instructions():
    out = np.zeros(32, np.uint32)
    emulate(
        """
        .shared .align 4 .b32 word[32];
        shl.b32 %r1, %idx, 2;
        mov.u32 %r2, word;
        add.u32 %r2, %r2, %r1;
        setp.lt.u32 %p1, %idx, 16;
        @%p1 bra low;
        st.shared.u32 [%r2], %idx;
        bar.warp.sync 0xffffffff;
        bra.uni read;
    low:
        st.shared.u32 [%r2], 5;
        bar.warp.sync 0xffffffff;
    read:
        xor.b32 %r3, %r1, 64;
        mov.u32 %r4, word;
        add.u32 %r4, %r4, %r3;
        ld.shared.u32 %r5, [%r4];
        mul.wide.u32 %rd1, %idx, 4;
        add.u64 %rd1, %rd1, %a0;
        st.global.u32 [%rd1], %r5;
        """,
        out,
    )
    assert out.tolist() == list(range(16, 32)) + [5] * 16


@pytest.mark.parametrize("later", ["", "@!%p1 bar.warp.sync 0xffffffff;\n"], ids=["never", "later"])
@pytest.mark.parametrize("barrier", ["bar.warp.sync 0xffffffff;", "bar.warp.sync %r2;"])
def test_a_lane_whose_guard_is_false_has_not_arrived_at_bar_warp_sync(barrier: str, later: str):
    """PTX ISA 9.7.13.2: a thread waits until all threads of the membermask have executed a bar.warp.sync."""
    begin = "setp.ne.u32 %p1, %idx, 0;\nmov.u32 %r2, 0xffffffff;\n"
    text = f"{begin}@%p1 {barrier}\n{later}redux.sync.add.u32 %r3, %r2, 0xffffffff;\n"
    if later:
        emulate(text)
        return
    with pytest.raises(DeadlockError) as caught:
        emulate(text)
    assert "lane 0 of warp 0" in str(caught.value)
