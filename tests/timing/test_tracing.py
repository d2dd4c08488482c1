"""The record of a traced launch: what ended each wait, when a finding was made, who waits for whom forever."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from warploom import Tile, kernel, ptx, smem
from warploom.driver import toolchain
from warploom.driver.sass_lines import numbered, sass_lines
from warploom.kernels.ladder import find
from warploom.timing.page.pack import packed
from warploom.timing.recording import RUN as RUN_STEP
from warploom.timing.recording import WAIT as WAIT_STEP
from warploom.timing.stopped import polls
from warploom.timing.timeline import ARRIVE, BARRIER, COLUMNS, COPY, MATRIX, RUN, WAIT
from warploom.timing.tracing import CodeTexts, Traced, waiters_of
from warploom.types import bf16, f32, u64


@lru_cache
def specialised() -> Traced:
    """A producer warp and a consumer warpgroup, two tiles of k."""
    a = np.zeros((128, 256), bf16.numpy)
    return find("warp_specialised").build().trace(a, a, sass=False)


def test_each_wait_for_a_phase_is_ended_by_an_arrival_or_by_bytes_at_that_barrier():
    timeline = specialised().timeline
    waits = [event for event in timeline.of_kind(WAIT) if event.phase >= 0]
    assert waits
    for wait in waits:
        cause = timeline.events[wait.cause]
        assert cause.kind in (ARRIVE, COPY)
        assert (cause.barrier, cause.stage, cause.phase) == (wait.barrier, wait.stage, wait.phase)
        assert cause.end == pytest.approx(wait.end)


def test_a_meeting_is_ended_by_the_last_warp_that_comes():
    timeline = specialised().timeline
    meetings = [event for event in timeline.of_kind(WAIT) if event.barrier.startswith("bar ")]
    assert meetings
    for wait in meetings:
        cause = timeline.events[wait.cause]
        arrivals = [one.end for one in timeline.of_kind(ARRIVE) if one.barrier == wait.barrier and one.end <= wait.end]
        assert cause.kind == ARRIVE and cause.end == max(arrivals)


def test_a_wait_for_a_value_is_ended_by_the_run_that_loads_it():
    @kernel(in_specs=(Tile("N", f32),), out_specs=(Tile("N", f32),), grid=(1,), block=32, arch="sm_80")
    def copy(A, B):
        a, b = ptx.global_ptrs(A, B)
        at = ptx.special.tid.x().to(u64) * f32.bytes
        value = ptx.load(f32, ptx.addr(a + at))
        ptx.bar.sync()
        ptx.store(ptx.addr(b + at), value + value)

    timeline = copy.trace(np.zeros(32, np.float32), sass=False).timeline
    (wait,) = [event for event in timeline.of_kind(WAIT) if event.what == "wait for load"]
    cause = timeline.events[wait.cause]
    assert cause.kind == RUN and cause.warp == wait.warp and cause.start < wait.start


def test_products_of_one_commit_are_one_group_and_events_know_their_ptx_line():
    traced = specialised()
    products = list(traced.timeline.of_kind(MATRIX))
    assert len({event.group for event in products}) == len(products) // 8  # of k = 16 in 128 x 64, by 64 rows
    lines = traced.code.ptx.splitlines()
    assert all("wgmma.mma_async" in lines[event.ptx_line - 1] for event in products)


@kernel(out_specs=(Tile(64, f32),), grid=(1,), block=64, arch="sm_90a")
def crossed(C):
    """Two warps, each of which waits for the other's arrival before it makes its own."""
    bars = smem.mbarrier(2, name="turn")
    thread = ptx.special.tid.x()
    with ptx.if_(thread == 0):
        ptx.mbarrier.init(bars[0], 1)
        ptx.mbarrier.init(bars[1], 1)
    ptx.bar.sync()
    for own, other in ((0, 1), (1, 0)):
        with ptx.if_(thread == 32 * own):
            ptx.mbarrier.arrive(bars[other])
            ptx.mbarrier.wait(bars[own], 0)
            ptx.mbarrier.wait(bars[own], 1)
            ptx.mbarrier.arrive(bars[other])
    (c,) = ptx.global_ptrs(C)
    ptx.store(ptx.addr(c + thread.to(u64) * f32.bytes), 1.0, dtype=f32)


@lru_cache
def hanging() -> Traced:
    return crossed.trace(np.zeros(64, np.float32), sass=False)


def test_a_kernel_that_hangs_is_traced_up_to_there_and_the_circle_is_named():
    traced = hanging()
    assert traced.prediction is None and "deadlock" in traced.error
    first, second = traced.waiters
    assert {first.needs, second.needs} == {(0,), (1,)} and first.known and second.known
    for waiter in traced.waiters:
        event = traced.timeline.events[waiter.event]
        assert event.what.endswith("for ever") and event.cause == -1 and event.end == traced.timeline.end


def test_waiters_that_nobody_has_come_to_may_need_all_others():
    timeline = hanging().timeline
    alone = [event for event in timeline.events if event.kind != ARRIVE]
    for number, event in enumerate(alone):
        event.number = number
    timeline.events = alone
    try:
        assert [(one.needs, one.known) for one in waiters_of(timeline, ())] == [((1,), False), ((0,), False)]
    finally:
        hanging.cache_clear()


def test_those_that_wait_for_the_same_phase_do_not_need_each_other():
    @kernel(out_specs=(Tile(64, f32),), grid=(1,), block=256, arch="sm_90a")
    def short(C):
        bars = smem.mbarrier(1, name="full")
        thread = ptx.special.tid.x()
        with ptx.if_(thread == 0):
            ptx.mbarrier.init(bars[0], 256)
        ptx.bar.sync()
        with ptx.if_(thread != 7):
            ptx.mbarrier.arrive(bars[0])
        ptx.mbarrier.wait(bars[0], 0)
        (c,) = ptx.global_ptrs(C)
        ptx.store(ptx.addr(c), 1.0, dtype=f32)

    waiters = short.trace(np.zeros(64, np.float32), sass=False).waiters
    assert len(waiters) > 1 and [waiter.needs for waiter in waiters] == [()] * len(waiters)
    assert all("1 of 256 arrivals missing" in waiter.missing for waiter in waiters)


def test_of_a_loop_that_polls_a_barrier_one_attempt_is_kept():
    start, turn = [(RUN_STEP, 1, 0), (WAIT_STEP, 2, 0), (RUN_STEP, 3, 1)], [(RUN_STEP, 4, 2), (RUN_STEP, 5, 3)]
    assert polls([*start, *turn * 9]) == 16
    assert polls([*start, *turn * 9, turn[0]]) == 17, "the last attempt may be cut short"
    assert polls([*start, *turn * 3]) == 0, "a short loop is no polling"
    assert polls([*start, *[(WAIT_STEP, 2, 0)] * 20]) == 0, "waits that passed are events of their own"


def test_a_finding_has_the_moment_and_the_warp_at_which_it_was_made():
    @kernel(out_specs=(Tile(32, f32),), grid=(1,), block=64, arch="sm_90a")
    def race(C):
        (c,) = ptx.global_ptrs(C)
        cell = smem.array(f32, 1)
        thread = ptx.special.tid.x()
        ptx.bar.sync()
        with ptx.if_(thread == 0):
            ptx.store(ptx.addr(cell[0]), 1.0, dtype=f32)
        with ptx.if_(thread == 32):
            ptx.store(ptx.addr(c), ptx.load(f32, ptx.addr(cell[0])))

    traced = race.trace(np.zeros(32, np.float32), sass=False)
    pins = [pin for pin in traced.pins if pin.severity == "error"]
    assert pins and all(0 < pin.clocks <= traced.timeline.end and pin.warp in (0, 1) for pin in pins)
    assert race.trace(np.zeros(32, np.float32), sass=False, check=False).pins == []


def test_columns_of_tensor_memory_are_taken_and_given_back_and_a_commit_is_an_arrival():
    from warploom.kernels.blackwell import minimal

    a = np.zeros((128, 128), bf16.numpy)
    traced = minimal.build().trace(a, a, sass=False)
    held = [event.bytes // (128 * 4) for event in traced.timeline.of_kind(COLUMNS)]
    assert held and held[0] > 0 and sum(held) == 0
    issued = [event for event in traced.timeline.events if event.what.startswith("tcgen05.commit")]
    assert issued and all(event.kind == ARRIVE and event.barrier for event in issued)
    assert traced.model.endswith("assembled and emulated, not run on hardware")
    assert specialised().model == "times of the model of an H200"


def test_packed_columns_hold_the_events():
    traced = specialised()
    raw = zlib.decompress(packed(traced))
    length = int.from_bytes(raw[:4], "little")
    head = json.loads(raw[4 : 4 + length])
    columns = {
        one["name"]: np.frombuffer(raw, one["type"], head["count"], 4 + length + one["at"]) for one in head["columns"]
    }
    events = traced.timeline.events
    start = np.cumsum(columns["start"].astype(np.int64)) / head["ticks"]
    assert np.abs(start - [event.start for event in events]).max() <= 0.5 / head["ticks"]
    assert [head["kinds"][kind] for kind in columns["kind"]] == [event.kind for event in events]
    causes = [at + int(step) if step else -1 for at, step in enumerate(columns["cause"])]
    assert causes == [event.cause for event in events]
    places = [tuple(head["places"][one]) for one in columns["place"]]
    assert places == [(event.opcode, event.file, event.line, event.ptx_line) for event in events]


def test_perfetto_gets_slices_flows_and_asynchronous_tracks_that_end():
    traced = specialised()
    events = json.loads(traced.to_perfetto())["traceEvents"]
    of = {phase: [event for event in events if event["ph"] == phase] for phase in "XbesfMi"}
    counts = {kind: sum(1 for _ in traced.timeline.of_kind(kind)) for kind in (RUN, WAIT, COPY, MATRIX, BARRIER)}
    assert len(of["X"]) == counts[RUN] + counts[WAIT]
    assert {(one["cat"], one["id"]) for one in of["b"]} == {(one["cat"], one["id"]) for one in of["e"]}
    assert len(of["b"]) == counts[COPY] + counts[MATRIX] + counts[BARRIER] + sum(
        1 for _ in traced.timeline.of_kind("store")
    )
    ended = {one["id"]: one["ts"] for one in of["f"]}
    assert ended and all(one["ts"] <= ended[one["id"]] + 1e-6 for one in of["s"])


def test_as_dict_is_plain():
    found = json.loads(specialised().to_json())
    assert found["kernel"].startswith("warp_specialised") and found["prediction"]["us"] > 0
    assert len(found["timeline"]["columns"]["cause"]) == found["timeline"]["count"]


def test_a_trace_without_machine_code_says_why():
    traced = specialised()
    told = replace(traced, code=replace(traced.code, sass=[], no_sass="there is no disassembler"))
    assert "SASS    none: there is no disassembler" in str(told) and "SASS" not in str(
        replace(told, code=CodeTexts(""))
    )


@pytest.mark.skipif(toolchain.find("nvdisasm") is None or toolchain.ptxas() is None, reason="no ptxas and nvdisasm")
def test_machine_code_names_the_ptx_line_it_comes_from():
    text = hanging().code.ptx
    lines = text.splitlines()
    starts = {at for at, line in enumerate(lines, 1) if line.endswith(";") and not line.lstrip().startswith(".")}
    found = sass_lines(text, "crossed", starts)
    arrivals = [one for one in found if "SYNCS.ARRIVE" in one.text]
    assert len(arrivals) == 4 and all("mbarrier.arrive" in lines[one.ptx_line - 1] for one in arrivals)
    waits = {one.ptx_line for one in found if "SYNCS.PHASECHK" in one.text}
    assert waits >= {at for at, line in enumerate(lines, 1) if "try_wait" in line}  # the first try is peeled off too
    assert numbered(text, starts).count(".loc") == len(starts)
