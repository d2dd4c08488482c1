"""Several GPUs in one address space: their results, and the sanitizer's findings about their signals."""

from __future__ import annotations

import numpy as np
import pytest

from warploom import Tile, kernel, ptx, reg
from warploom.errors import ArgumentError, ArgumentTypeError, DeadlockError, TraceError
from warploom.lang import smem
from warploom.lang.kernel import Kernel
from warploom.lang.tile import Scalar
from warploom.types import f32, u32

GPUS, THREADS = 3, 32
SCHEDULES = ("lazy", "eager", "random", "starve", "pct")


def ring(
    release: str = "st.release.sys.global.u32",
    acquire: str = "ld.acquire.sys.global.u32",
    flag_first: bool = False,
    reset: bool = True,
    raised: int = 1,
) -> Kernel:
    """Each GPU writes its numbers to the next one and raises a flag there; then it adds up what came to it."""

    @kernel(
        in_specs=(Tile(THREADS, f32), Tile(THREADS, f32, peers=GPUS), Tile(2, u32, peers=GPUS), Scalar(u32)),
        out_specs=(Tile(THREADS, f32),),
        grid=(1,),
        block=THREADS,
    )
    def pass_on(mine, inbox, flags, rank, total):
        following = ptx.select(rank == GPUS - 1, 0, rank + 1)
        (own, out) = ptx.global_ptrs(mine, total)
        at = ptx.special.tid.x() * 4
        raise_it = ptx.special.tid.x() == 0
        there, here = flags.pointer(following), flags.pointer(rank)
        if flag_first:
            ptx.inst(release, ptx.addr(there), raised, pred=raise_it)
        ptx.store(ptx.addr(inbox.pointer(following) + at), ptx.load(f32, ptx.addr(own + at)))
        ptx.bar.sync(0)
        if not flag_first:
            ptx.inst(release, ptx.addr(there), raised, pred=raise_it)
        seen = reg.scalar(u32, 0)
        with ptx.if_(raise_it):
            with ptx.while_(lambda: seen != 1):
                ptx.inst(acquire, seen, ptx.addr(here))
        ptx.bar.sync(0)
        came = ptx.load(f32, ptx.addr(inbox.pointer(rank) + at))
        ptx.store(ptx.addr(out + at), came)
        if reset:  # nobody writes here again until the sender knows that it is read
            ptx.bar.sync(0)
            ptx.inst("st.relaxed.sys.global.u32", ptx.addr(here), 0, pred=raise_it)
            previous = ptx.select(rank == 0, GPUS - 1, rank - 1)
            ptx.inst(release, ptx.addr(flags.pointer(previous) + 4), 1, pred=raise_it)
            done = reg.scalar(u32, 0)
            with ptx.if_(raise_it):
                with ptx.while_(lambda: done != 1):
                    ptx.inst(acquire, done, ptx.addr(here + 4))
                ptx.inst("st.relaxed.sys.global.u32", ptx.addr(here + 4), 0)
            ptx.bar.sync(0)

    return pass_on


def run(one: Kernel, **options: object):
    numbers = [np.full(THREADS, rank + 1, np.float32) for rank in range(GPUS)]
    inbox = [np.zeros(THREADS, np.float32) for _ in range(GPUS)]
    flags = [np.zeros(2, np.uint32) for _ in range(GPUS)]
    return one.emulate(numbers, inbox, flags, range(GPUS), devices=GPUS, **options)


def rules(report) -> set[str]:
    return {finding.rule for finding in report.findings}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_gpus_that_hand_over_with_system_scope_are_clean_and_right(schedule):
    report = run(ring(), schedule=schedule)
    assert not report.findings
    assert [float(one[0]) for one in report.outputs[0]] == [3.0, 1.0, 2.0]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_flags_that_are_reset_serve_the_next_launch(schedule):
    assert not run(ring(), schedule=schedule, calls=3).findings


@pytest.mark.parametrize(
    ("mutant", "rule"),
    [
        ({"release": "st.release.gpu.global.u32"}, "peer-scope"),
        ({"acquire": "ld.acquire.gpu.global.u32"}, "peer-scope"),
        ({"release": "st.relaxed.sys.global.u32"}, "global-hand-off"),
        ({"acquire": "ld.relaxed.sys.global.u32"}, "global-hand-off"),
        ({"flag_first": True}, "peer-flag-order"),
    ],
)
def test_a_hand_over_that_does_not_reach_another_gpu_is_found(mutant, rule):
    assert rule in rules(run(ring(**mutant)))


def test_one_gpu_alone_needs_no_more_than_its_own_scope():
    """The same kernel with .gpu scope is right between CTAs of one GPU; only the second device makes it wrong."""

    @kernel(in_specs=(Tile(2, u32), Tile(2, u32)), out_specs=(Tile(1, u32),), grid=(2,), block=32)
    def hand_over(data, flag, result):
        (values, flags, out) = ptx.global_ptrs(data, flag, result)
        with ptx.if_((ptx.special.tid.x() == 0) & (ptx.special.ctaid.x() == 0)):
            ptx.store(ptx.addr(values), reg.scalar(u32, 5))
            ptx.inst("st.release.gpu.global.u32", ptx.addr(flags), 1)
        with ptx.if_((ptx.special.tid.x() == 0) & (ptx.special.ctaid.x() == 1)):
            seen = reg.scalar(u32, 0)
            with ptx.while_(lambda: seen != 1):
                ptx.inst("ld.acquire.gpu.global.u32", seen, ptx.addr(flags))
            ptx.store(ptx.addr(out), ptx.load(u32, ptx.addr(values)))

    report = hand_over.emulate(np.zeros(2, np.uint32), np.zeros(2, np.uint32))
    assert not report.findings and report.outputs[0][0] == 5


def test_a_flag_that_nobody_resets_is_found_by_the_second_launch():
    assert not run(ring(reset=False)).findings
    assert "peer-flag-stale" in rules(run(ring(reset=False), calls=2))


def test_a_gpu_that_is_never_signalled_is_a_deadlock_that_names_it():
    with pytest.raises(DeadlockError) as caught:
        run(ring(raised=2))
    assert "GPU" in str(caught.value)


def test_a_bulk_store_to_a_peer_must_be_complete_before_the_signal():
    def push(wait: bool) -> Kernel:
        @kernel(
            in_specs=(Tile(128, f32, peers=2), Tile(1, u32, peers=2), Scalar(u32)),
            out_specs=(Tile(1, f32),),
            grid=(1,),
            block=32,
        )
        def store(inbox, flags, rank, out):
            tile = smem.array(f32, (128,), name="tile", align=128)
            (result,) = ptx.global_ptrs(out)
            first = ptx.special.tid.x() == 0
            here = tile[0].register() + ptx.special.tid.x() * 4
            for part in range(4):
                ptx.inst("st.shared.f32", ptx.addr(here, part * 128), reg.scalar(f32, 2.0))
            ptx.fence.proxy_async()
            ptx.bar.sync(0)
            with ptx.if_(first):
                ptx.cp.async_.bulk.store(ptx.addr(inbox.pointer(1 - rank)), tile[0], 512)
                ptx.cp.async_.bulk.commit_group()
                if wait:
                    ptx.cp.async_.bulk.wait_group(0)
                else:
                    ptx.cp.async_.bulk.wait_group_read(0)
                ptx.inst("st.release.sys.global.u32", ptx.addr(flags.pointer(1 - rank)), 1)
                seen = reg.scalar(u32, 0)
                with ptx.while_(lambda: seen != 1):
                    ptx.inst("ld.acquire.sys.global.u32", seen, ptx.addr(flags.pointer(rank)))
                ptx.store(ptx.addr(result), ptx.load(f32, ptx.addr(inbox.pointer(rank) + 4)))

        return store

    def findings(wait: bool) -> set[str]:
        inbox = [np.zeros(128, np.float32) for _ in range(2)]
        flags = [np.zeros(1, np.uint32) for _ in range(2)]
        return rules(push(wait).emulate(inbox, flags, [0, 1], devices=2))

    assert not findings(True)
    assert "peer-proxy" in findings(False)


def test_grids_that_differ_between_gpus_are_refused():
    @kernel(in_specs=(Tile("N", f32),), out_specs=(Tile("N", f32),), grid=("N",), block=32)
    def copy(a, b):
        (source, target) = ptx.global_ptrs(a, b)
        at = ptx.special.ctaid.x() * 4
        ptx.store(ptx.addr(target + at), ptx.load(f32, ptx.addr(source + at)))

    with pytest.raises(ArgumentError) as caught:
        copy.emulate([np.zeros(4, np.float32), np.zeros(5, np.float32)], devices=2)
    assert caught.value.got == "(5, 1, 1)"


@pytest.mark.parametrize("devices", [0, 65])
def test_a_number_of_gpus_out_of_range_is_refused(devices):
    with pytest.raises(ArgumentError):
        ring().emulate(devices=devices)


def test_an_argument_that_is_not_one_for_each_gpu_is_refused():
    with pytest.raises(ArgumentTypeError) as caught:
        ring().emulate(np.zeros(32, np.float32), [np.zeros(32, np.float32)] * 3, [], [0, 1, 2], devices=3)
    assert caught.value.code == "wrong-arguments"


def test_outputs_cannot_be_arrays_of_other_gpus():
    with pytest.raises(TraceError) as caught:
        kernel(out_specs=(Tile(4, f32, peers=2),), grid=(1,), block=32)(lambda out: None)
    assert caught.value.code == "kernel-declaration"
