"""The first data that a launch gets from DRAM take longer than later ones."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.microbenchmarks.cold_launches import launches
from warploom.runtime.on_clock import record
from warploom.timing import H200, Launch, predict
from warploom.timing.prediction import Predictor
from warploom.timing.recording import Recording

FILE = Path(__file__).resolve().parents[2] / "benchmarks/results/nvidia-h200/microbenchmarks.json"
MEASURED = {row["name"]: row["us"] for row in json.loads(FILE.read_text())["rows"] if "us" in row}
LAUNCHES = {one.name: one for one in launches()}


@pytest.mark.parametrize(
    "name",
    ["launch.first.read.far.ctas33", "launch.first.read.far.ctas528", "launch.first.copied.far.ctas132",
     "launch.first.twice.far.ctas33", "launch.first.read.warm.ctas132"],
)  # fmt: skip
def test_a_short_launch_takes_as_long_as_measured(name):
    """The constant is taken from reads by 132 CTAs."""
    one = LAUNCHES[name]
    data, out = np.zeros(one.elements, np.uint32), np.zeros(one.written, np.uint32)
    recording, launch = record(one.build(), data, out=out, registers=32, warm=one.facts["where"] == "warm")
    assert predict(recording, H200, launch).us == pytest.approx(MEASURED[name], rel=0.06)


@pytest.mark.parametrize(("warm", "pdl", "waits"), [(False, False, True), (True, False, False), (False, True, False)])
def test_only_a_cold_launch_after_the_previous_one_waits_for_them(warm, pdl, waits):
    recording = Recording("k", (132, 1, 1), (128, 1, 1), (1, 1, 1), clusters={0: [0]}, pdl=pdl, distant=4096.0)
    found = Predictor(recording, H200, Launch(warm=warm, input_bytes=1e9)).first_ns
    assert found == (H200["dram_first_ns"] if waits else 0.0)
