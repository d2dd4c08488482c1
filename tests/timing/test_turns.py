"""Launches that alternate share a clock: the power cap acts on their mean power."""

import ml_dtypes
import numpy as np
import pytest

from warploom.kernels.ladder import find
from warploom.runtime.on_clock import record
from warploom.timing import H200, predict, predict_turns


@pytest.fixture(scope="module")
def recorded():
    a = np.zeros((8192, 512), ml_dtypes.bfloat16)
    b = np.zeros((8192, 512), ml_dtypes.bfloat16)
    return [record(find(name).build(), a, b) for name in ("multistage", "tma_store")]


@pytest.mark.full
def test_one_launch_by_itself_runs_at_its_own_clock(recorded):
    recording, launch = recorded[0]
    alone = predict(recording, H200, launch)
    (turn,) = predict_turns([recorded[0]], H200)
    assert turn.clock_mhz == pytest.approx(alone.clock_mhz, rel=1e-4)
    assert turn.us == pytest.approx(alone.us, rel=1e-4)


@pytest.mark.full
def test_two_under_the_cap_meet_between_their_clocks_and_draw_the_cap_in_the_mean(recorded):
    slow, fast = sorted(predict(*_given(one)).clock_mhz for one in recorded)
    turns = predict_turns(recorded, H200)
    assert turns[0].clock_mhz == turns[1].clock_mhz
    assert slow < turns[0].clock_mhz < fast
    assert sum(one.watts for one in turns) / 2 == pytest.approx(H200["cap_watts"], rel=1e-3)


def _given(one):
    recording, launch = one
    return recording, H200, launch
