"""Products beside loads and stores of shared memory."""

import json
from pathlib import Path

import pytest

from warploom.timing.shared_port import SharedPort

FILE = Path(__file__).resolve().parents[2] / "benchmarks/results/nvidia-h200/microbenchmarks.json"
ROWS = json.loads(FILE.read_text())["rows"]
MEASURED = {row["name"]: row["clocks"] * 16 for row in ROWS if row["name"].startswith("rate.port.")}
PRODUCTS, WARPS = 32, 8
"""Products of both warpgroups in a repetition, and the warps that store meanwhile."""


@pytest.mark.parametrize("count", [16, 32, 64])
@pytest.mark.parametrize(
    ("source", "n", "clocks", "reads"), [("ss", 64, 32, 32), ("ss", 128, 64, 48), ("rs", 128, 64, 32)]
)
def test_products_and_stores_take_as_long_together_as_measured(source, n, clocks, reads, count):
    port, passes, stored, time, share = SharedPort(True), 4.0 * count, 0.0, 0.0, reads / clocks
    left = WARPS
    for _ in range(PRODUCTS):
        while left and stored <= time:  # the next warp's stores
            longer = passes * (1.0 + share)
            port.add(stored, stored + longer, passes)
            stored, left = stored + longer, left - 1
        time += port.product(time, clocks, reads)
    after = MEASURED[f"rate.port.{source}.n{n}.load.0"] - PRODUCTS * clocks  # until the group is waited for
    found = max(time + after, stored + left * passes)
    assert found == pytest.approx(MEASURED[f"rate.port.{source}.n{n}.store.{count}"], rel=0.13)


def test_without_other_traffic_a_product_takes_its_own_clocks():
    port = SharedPort(True)
    assert [port.product(time, 64, 48) for time in (0.0, 64.0, 500.0)] == [64, 64, 64]


def test_traffic_that_passed_between_products_costs_none_of_them():
    port = SharedPort(True)
    port.add(0.0, 100.0, 100.0)
    assert port.product(200.0, 64, 48) == 64
