"""The record of a replayed run."""

import pytest

from tests.errors import refused
from warploom.timing.timeline import ARRIVE, RUN, WAIT, Event, Timeline


def _timeline() -> Timeline:
    events = [
        Event(0, RUN, 0.0, 10.0, cta=0, warp=0, role="producer", instructions=4),
        Event(1, WAIT, 5.0, 12.0, cta=0, warp=4, role="consumer 0", barrier="full", phase=0, stage=2, cause=2),
        Event(2, ARRIVE, 12.0, 12.0, cta=0, warp=0, role="producer", barrier="full", phase=0, stage=2),
        Event(3, WAIT, 20.0, 24.0, cta=0, warp=5, role="consumer 0", barrier="full", phase=1, stage=0, cause=2),
    ]
    return Timeline("gemm", 1500.0, events, grid=(2, 1, 1), sm={0: 0, 1: 1})


def test_a_timeline_comes_back_from_json_as_it_was():
    before = _timeline()
    assert Timeline.from_json(before.to_json()) == before


@pytest.mark.parametrize("text", ["hello", "[]", '{"a": 1}', _timeline().to_json().replace('"count"', '"version"', 1)])
def test_anything_but_a_timeline_is_refused(text: str):
    with refused("argument"):
        Timeline.from_json(text)


def test_rows_hold_what_a_warp_does_and_no_engine_s_events():
    assert {row: [event.number for event in events] for row, events in _timeline().rows().items()} == {
        (0, 0): [0], (0, 4): [1], (0, 5): [3],
    }  # fmt: skip


def test_waits_add_up_by_role_and_barrier():
    assert _timeline().waits() == {"consumer 0": {"full": 11.0}}


def test_clocks_become_microseconds_at_the_clock_that_was_found():
    assert _timeline().microseconds(3000.0) == 2.0
