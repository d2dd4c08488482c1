"""Predictions of kernels, on products small enough to record at once."""

import ml_dtypes
import numpy as np
import pytest

from warploom.kernels.ladder import find
from warploom.timing import H200
from warploom.timing.power import LOWEST_GHZ
from warploom.timing.result import alike
from warploom.timing.timeline import COPY, MATRIX, RUN, WAIT

REGISTERS = 168


def _predicted(rung: int, m: int, n: int, k: int, **options):
    a, b = np.zeros((m, k), ml_dtypes.bfloat16), np.zeros((n, k), ml_dtypes.bfloat16)
    return find(str(rung)).build().predict(a, b, registers=REGISTERS, **options)


@pytest.fixture(scope="module")
def specialised():
    """A warp-specialised kernel: a producer, two consumers."""
    return _predicted(14, 128, 256, 1024, timeline=True)


def test_the_roles_wait_for_each_other(specialised):
    assert 0.02 < specialised.waits["consumer 0"]["full"] < 0.9
    assert set(specialised.waits) >= {"producer", "consumer 0", "consumer 1"}


def test_every_wait_for_a_full_stage_was_ended_by_a_copy(specialised):
    events = specialised.timeline.events
    waits = [one for one in events if one.kind == WAIT and one.barrier.endswith("full")]
    assert waits
    assert {events[one.cause].kind for one in waits} == {COPY}
    assert all(events[one.cause].end <= one.end for one in waits)


def test_events_of_a_warp_follow_each_other(specialised):
    for events in specialised.timeline.rows().values():
        assert all(one.end <= after.start + 1e-6 for one, after in zip(events, events[1:], strict=False))


def test_each_product_and_copy_is_in_the_timeline(specialised):
    events = specialised.timeline.events
    flops = sum(one.flops for one in events if one.kind == MATRIX)
    assert flops == 2 * 128 * 256 * 1024
    assert sum(one.bytes for one in events if one.kind == COPY) == (128 + 256) * 1024 * 2
    assert any(one.kind == RUN and one.role == "producer" and one.line for one in events)


@pytest.mark.full
def test_a_lower_clock_takes_longer():
    slow, fast = (_predicted(12, 128, 256, 512, clock_mhz=clock) for clock in (1000.0, 1800.0))
    assert fast.us < slow.us < 1.8 * fast.us + 0.1


def test_a_fixed_clock_has_the_power_of_that_clock():
    free = _predicted(12, 128, 256, 512)
    same, slow = (_predicted(12, 128, 256, 512, clock_mhz=clock) for clock in (free.clock_mhz, 1000.0))
    assert same.watts == pytest.approx(free.watts, rel=1e-3) and H200["base_watts"] < slow.watts < free.watts
    assert not free.note and not slow.note and "power" not in slow.bound


def test_a_cap_that_no_clock_reaches_is_noted():
    found = _predicted(12, 128, 256, 512, cap_watts=120)
    assert found.watts > 121 and found.clock_mhz == pytest.approx(1e3 * LOWEST_GHZ) and "lowest clock" in found.note
    assert found.note in str(found)


@pytest.mark.full
def test_twice_the_k_tiles_take_nearly_twice_the_clocks_of_the_loop():
    times = [_predicted(12, 128, 256, k, clock_mhz=1500.0).clocks for k in (1024, 2048, 3072)]
    assert times[2] - times[1] == pytest.approx(times[1] - times[0], rel=0.05)


def test_a_kernel_without_tensor_cores_is_not_bound_by_them():
    a = np.zeros((64, 64), np.float32)
    found = find("1").build().predict(a, a, registers=25)
    assert found.roofs["tensor"] == 0.0
    assert found.clock_mhz == pytest.approx(1980.0)


def test_warps_without_a_role_that_wait_alike_are_told_together():
    waits = {"warp 6": {"load": 0.5}, "warp 5": {"load": 0.735}, "producer": {"empty": 0.5}, "warp 4": {"load": 0.74},
             "warp 8": {"load": 0.5}}  # fmt: skip
    assert list(alike(waits)) == ["producer", "warps 4-5", "warp 6", "warp 8"]
