"""Bytes that one CTA reads alone come more slowly; between replayed clocks a launch's time is interpolated; how many
clusters a wave has."""

import json
from pathlib import Path

import pytest

from warploom.timing import H200, Launch
from warploom.timing.occupancy import occupancy
from warploom.timing.prediction import Predictor
from warploom.timing.recording import BoxPlace, Operation, Recording
from warploom.timing.units import Chip
from warploom.timing.waves import read_alone

CTAS, K = 120, 4096
MEASURED = Path(__file__).resolve().parents[2] / "benchmarks/results/nvidia-h200/microbenchmarks.json"


def recorded(*operands):
    """A CTA that loads boxes of these rows along k, each of an array with as many rows as given second."""
    loads = [
        Operation("tma", 0, 0, 0, bytes=128 * rows, fetched=128 * rows,
                  place=BoxPlace(at, (k, 0), (64, rows), (K, all_rows)))
        for k in range(0, K, 64) for at, (rows, all_rows) in enumerate(operands)
    ]  # fmt: skip
    return Recording("product", (CTAS, 1, 1), (384, 1, 1), (1, 1, 1), operations=loads, clusters={0: [0]})


def test_an_array_whose_rows_are_shared_out_is_read_alone_and_one_that_all_ctas_read_is_not():
    assert read_alone(recorded((96, 96 * CTAS), (32, 32)), CTAS) == pytest.approx(0.75)
    assert read_alone(recorded((96, 96 * CTAS // 2), (32, 64)), CTAS) == 0.0


def test_without_copies_nothing_is_read_alone():
    assert read_alone(Recording("sum", (CTAS, 1, 1), (128, 1, 1), (1, 1, 1)), CTAS) == 0.0


def test_bytes_read_alone_come_at_the_rate_of_few_ctas_with_boxes_of_their_own():
    few = Chip(H200, 1.0, 1, alone=1.0)
    assert few.fetch == pytest.approx(H200["fill_alone_bytes_per_ns"], rel=1e-4)
    assert Chip(H200, 1.0, 1).fetch == pytest.approx(H200["fill_bytes_per_ns"], rel=1e-4)


def test_time_is_exact_at_a_replayed_clock_where_l2_binds_above_and_the_sm_below(monkeypatch):
    monkeypatch.setattr(Predictor, "_work", lambda _, ghz: max(10e-6, 15e-6 / ghz))
    one = Predictor(recorded((96, 96 * CTAS)), H200, Launch())
    gap = H200["launch_us"] * 1e-6
    assert one.seconds(1.5) > 10e-6 + gap
    one.replay_at(1.5)
    assert one.seconds(1.5) == pytest.approx(10e-6 + gap)
    assert one.seconds(1.35) == pytest.approx(15e-6 / 1.35 + gap)


@pytest.mark.parametrize("cluster, places", [(1, 132), (2, 66), (3, 39), (4, 30)])
def test_a_wave_has_the_clusters_that_fit_into_gpcs_and_132_ctas_in_larger_ones_take_two_as_measured(cluster, places):
    found = occupancy(H200, threads=256, registers=128, shared=160 << 10, ctas=132, cluster=cluster)
    assert (found.places, found.turns) == (places, 1 if cluster <= 2 else 2)
    rows = {row["name"]: row for row in json.loads(MEASURED.read_text())["rows"]}
    if cluster > 1:
        row = rows[f"rate.product.across{cluster}.clusters.long100"]
        at_a_time = row["bytes_per_ns_all"] / row["bytes_per_ns"]  # CTAs, as a mean over the launch
        assert at_a_time == pytest.approx(132 / found.turns, rel=0.2)
