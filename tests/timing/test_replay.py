"""Replays of made-up recordings: copies of one thread, CTAs with one tile more than others."""

import pytest

from warploom.timing import H200, Launch
from warploom.timing.instructions import Facts
from warploom.timing.prediction import Predictor
from warploom.timing.recording import GRID, GROUP, ISSUE, RUN, Access, Operation, Recording, Run
from warploom.timing.replay import Replay
from warploom.timing.units import Chip

WARM = Chip(H200, 1.98, 1)


def _recording(copies_of_warps: list[int], rows: int = 1) -> Recording:
    """Warps that start so many copies each."""
    recording = Recording("k", (1, 1, 1), (32 * len(copies_of_warps), 1, 1), (1, 1, 1), clusters={0: [0]})
    for warp, copies in enumerate(copies_of_warps):
        steps = recording.steps[0, warp] = []
        for _ in range(copies):
            steps.append((ISSUE, 0, len(recording.operations)))
            recording.operations.append(
                Operation("tma", 0, 0, warp, bytes=rows * 128, fetched=rows * 128, rows=rows, text="cp.async.bulk")
            )
    return recording


def _issued(copies_of_warps: list[int], rows: int = 1) -> float:
    """Clocks from the first copy's issue to the last one's."""
    replay = Replay(_recording(copies_of_warps, rows), H200, WARM)
    return replay.run() - H200["cta_start"]


def test_copies_of_a_thread_start_one_after_the_other():
    assert _issued([1]) == 0.0
    assert _issued([16]) == pytest.approx(15 * H200["tma_issue_clocks"])
    assert _issued([16], rows=8) == _issued([16])


def test_copies_of_several_warps_start_side_by_side():
    assert _issued([16, 16, 16, 16]) == _issued([16])


def test_stores_and_the_second_receiver_of_a_multicast_wait_for_no_copy():
    recording = _recording([4])
    recording.operations[1].stores = True
    recording.operations[2].fetched = recording.operations[2].outside = 0
    assert Replay(recording, H200, WARM).run() - H200["cta_start"] == pytest.approx(H200["tma_issue_clocks"])


def _tiles(many: int) -> Recording:
    """A warp that multiplies and stores so many tiles, each loaded by one copy."""
    recording = Recording("k", (132, 1, 1), (32, 1, 1), (1, 1, 1), clusters={0: [0]})
    recording.runs.append(Run((), (Access("global", True, 1.0, 4.0),)))
    steps = recording.steps[0, 0] = []
    for _ in range(many):
        recording.operations.append(Operation("tma", 0, 0, 0, bytes=1 << 20, fetched=1 << 20, distant=1 << 20, rows=1))
        recording.operations.append(Operation("warpgroup_mma", 0, 0, 0, flops=1 << 20, n=64, k=16))
        steps += [(ISSUE, 0, 2 * len(steps) // 3), (ISSUE, 0, 2 * len(steps) // 3 + 1), (RUN, 0, 0)]
    recording.fetched = recording.received = recording.distant = many << 20
    recording.written = many * 1000.0
    return recording


def _unequal(tiles: int, of_all: int):
    launch = Launch(output_bytes=of_all * 1000.0, writable_bytes=of_all * 1000.0, input_bytes=of_all << 20)
    return Predictor(_tiles(tiles), H200, launch).unequal


def test_a_tile_is_what_a_warp_multiplies_before_it_writes():
    assert _tiles(3).tiles == 3
    assert _recording([4]).tiles == 0


def test_those_with_a_tile_more_than_others_are_left_at_the_end():
    assert _unequal(2, 150) == (2, 18)
    assert _unequal(2, 264) is None
    assert _unequal(1, 100) is None


def test_what_warps_do_before_they_wait_for_a_grid_is_hidden_as_far_as_they_start_while_it_runs():
    """launch.prologue has such grids."""
    recording = _recording([0, 0])
    recording.pdl = True
    recording.pcs = [Facts(0, "xor", "alu", 1.0, "alu", frozenset(), frozenset({0}))]
    recording.runs = [Run((0,) * many, (None,) * many) for many in (1000, 100)]
    recording.steps = {(0, warp): [(RUN, 0, 0), (GRID, 0, None), (RUN, 0, 1)] for warp in (0, 1)}
    late, half, ahead = (Replay(recording, H200, WARM, ahead=share).run() for share in (0.0, 0.5, 1.0))
    long, short = (many * H200.rate["alu"].value for many in (1000, 100))
    assert late == pytest.approx(H200["cta_start"] + long + short, rel=0.02)
    assert half == pytest.approx(H200["cta_start"] + long / 2 + short, rel=0.02)
    assert ahead == pytest.approx(H200["cta_start"] + short, rel=0.02)


def test_a_grid_ahead_waits_for_the_slowest_of_its_warps():
    recording = _recording([0, 0])
    recording.pdl = True
    recording.pcs = [Facts(0, "xor", "alu", 1.0, "alu", frozenset(), frozenset({0}))]
    recording.runs = [Run((0,) * many, (None,) * many) for many in (1000, 100)]
    wait = (GRID, 0, None)
    recording.steps = {(0, 0): [(RUN, 0, 0), wait, (RUN, 0, 1)], (0, 1): [wait, (RUN, 0, 1)]}
    short = 100 * H200.rate["alu"].value
    assert Replay(recording, H200, WARM, ahead=1.0).run() == pytest.approx(H200["cta_start"] + short, rel=0.02)


def test_what_is_loaded_before_the_wait_for_a_grid_is_there_after_it():
    """launch.short_stream.early takes less time than late by the whole ring."""
    recording = _recording([1], rows=128)
    recording.pdl = True
    issue, wait, arrived = recording.steps[0, 0][0], (GRID, 0, None), (GROUP, 0, ((0,), False))
    times = []
    for steps in ([wait, issue, arrived], [issue, wait, arrived]):
        recording.steps[0, 0] = steps
        times.append(Replay(recording, H200, WARM, ahead=1.0).run() - H200["cta_start"])
    late, early = times
    assert late > WARM.latency > 4 * early


def test_a_grid_that_leaves_another_no_room_hides_less_the_more_ctas_it_has():
    hidden = []
    for ctas in (66, 67, 80, 132):
        recording = Recording("k", (ctas, 1, 1), (128, 1, 1), (1, 1, 1), clusters={0: [0]}, pdl=True)
        recording.shared_bytes = 200 << 10
        hidden.append(Predictor(recording, H200, Launch()).ahead)
    assert hidden[0] == 1.0 and hidden == sorted(hidden, reverse=True)
    assert hidden[2] == pytest.approx(1.0 - H200["exposed80"])
    recording.pdl = False
    assert Predictor(recording, H200, Launch()).ahead == 0.0
