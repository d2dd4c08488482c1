"""The book's pictures: recordings match the kernel, and drawing is reproducible."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from benchmarks.pictures.replay import TENSOR, Replay
from benchmarks.pictures.tiles import ORDERS, walk
from benchmarks.pictures.trace import Trace, record
from warploom.emulator.machine.events import Observer
from warploom.kernels.ladder import find
from warploom.lab import roofline


def recorded(rung: int, m: int, n: int, k: int, sms: int = 1) -> Trace:
    a, b = np.zeros((m, k), ml_dtypes.bfloat16), np.zeros((n, k), ml_dtypes.bfloat16)
    return record(find(rung).build(), a, b, sms=sms)


def test_a_trace_holds_each_copy_and_each_product_of_the_run():
    trace = recorded(11, 128, 128, 256)
    producer, consumer = trace.actors
    assert trace.count(producer, "copy") == 2 * 4
    assert trace.count(consumer, "multiply") == 2 * 4 * 4
    assert trace.count(producer, "multiply") == trace.count(consumer, "copy") == 0


@pytest.mark.parametrize(
    "rung, shape, sms", [(8, (64, 64, 256), 1), (20, (256, 768, 192), 2), (23, (1536, 192, 192), 2)]
)
def test_a_replay_does_all_the_work_and_the_tensor_core_never_does_two_things_at_once(rung, shape, sms):
    replay = Replay(recorded(rung, *shape, sms=sms))
    assert replay.busy("tensor") * TENSOR == 2 * np.prod(shape)
    for cta in {lane[1].cta for lane in replay.lanes("tensor")}:
        spans = sorted((s.start, s.end) for s in replay.spans if s.lane[0] == "tensor" and s.lane[1].cta == cta)
        assert all(first[1] <= second[0] for first, second in zip(spans, spans[1:], strict=False))


def test_a_stage_is_read_after_it_has_arrived_and_asked_for_again_after_it_was_read():
    replay = Replay(recorded(12, 128, 256, 1024))
    for stage in range(4):
        fillings = sorted((f for f in replay.fillings.values() if f.stage == stage), key=lambda f: f.asked)
        assert len(fillings) == 4
        assert all(f.asked < f.arrived <= f.read[0] < f.read[1] for f in fillings)
        assert all(first.read[1] <= second.asked for first, second in zip(fillings, fillings[1:], strict=False))


def test_more_stages_keep_the_tensor_core_busier():
    busy = []
    for rung, side in ((8, 64), (9, 128), (10, 128), (11, 128)):
        replay = Replay(recorded(rung, side, side, 512))
        busy.append(replay.busy("tensor") / replay.end)
    assert busy == sorted(busy)


def test_an_observer_and_the_sanitizer_watch_at_once():
    a, exits = np.zeros((32, 32), np.float32), []

    class Counting(Observer):
        def exited(self, warp: object) -> None:
            exits.append(warp)

    report = find(1).build().emulate(a, a, check=True, watch=lambda machine: Counting())
    assert report.ok and len(exits) == report.counters.ctas * len(exits[0].cta.warps)


@pytest.mark.parametrize(
    "drawn, calculated",
    [("along rows", "along rows"), ("bands of 4", "grouped 4"), ("Hilbert, squares of 8", "hilbert 8")],
)
@pytest.mark.parametrize("rows, columns", [(8, 8), (6, 11), (1, 5)])
def test_the_orders_that_are_drawn_are_those_the_calculator_knows(drawn, calculated, rows, columns):
    assert walk(ORDERS[drawn], rows, columns) == list(roofline.ORDERS[calculated](rows, columns))


def test_from_the_first_product_to_the_last_ping_pong_never_rests_and_the_cooperative_form_does():
    def busy(rung: int, n: int) -> float:
        replay = Replay(recorded(rung, 256, n, 384, sms=2))
        spans = [(s.start, s.end) for s in replay.spans if s.lane[0] == "tensor" and s.lane[1].cta == 0]
        return sum(end - start for start, end in spans) / (max(spans)[1] - min(spans)[0])

    assert busy(20, 768) == pytest.approx(1)
    assert busy(17, 1024) < 0.95
