"""The forms of products that communicate, as they are chosen, against the times of all forms on four H100s."""

import json
from math import prod
from pathlib import Path

import pytest

from warploom.kernels.hopper import copied_rows, gemm_all_reduce
from warploom.settings import SCATTERS, Settings

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "nvidia-h100" / "tensor-parallel-4-forms.json"
RANKS, SMS = 4, 132
ROWS = json.loads(RESULTS.read_text())["rows"]
FEW = [row for row in ROWS if row["kind"] == "all-reduce"]


UNTIMED = {(128, 8192, 8192)}
"""Products for which another tile is chosen than the one that was timed."""
FEW = [row for row in FEW if (row["m"], row["n"], row["k"]) not in UNTIMED]


def chosen_us(row: dict) -> float:
    """The time of the tile and the form that are chosen. The file has the tile by the product alone in all forms, and
    the one with fewer bytes in its own."""
    place = row["m"], row["n"], row["k"] // RANKS
    config = gemm_all_reduce.choose(*place, SMS, ranks=RANKS)
    form = gemm_all_reduce.form_of(*place[:2], RANKS, config)
    if config.name() == row["config"]:
        return row["us"][f"warploom {form}"]
    assert (config.name(), form) == (row["light"], "flagged")
    return row["us"]["warploom light"]


def test_few_rows_travel_in_nearly_the_fastest_form():
    for row in FEW:
        fastest = min(us for name, us in row["us"].items() if name.startswith("warploom"))
        assert chosen_us(row) < 1.07 * fastest, (row["m"], row["n"], row["k"])


def test_the_mean_that_the_chapter_names():
    ratios = [min(us for name, us in row["us"].items() if name.startswith(("nccl", "torch"))) / chosen_us(row)
              for row in FEW]  # fmt: skip
    assert prod(ratios) ** (1 / len(ratios)) == pytest.approx(1.22, abs=0.005)


def test_only_long_products_of_one_byte_types_travel_by_copy_engines():
    forms = {}
    for row in ROWS:
        if row["kind"] in ("all-gather", "all-gather-e4m3"):
            m, n, k, width = row["m"], row["n"], row["k"], 1 if row["kind"].endswith("e4m3") else 2
            forms[width, m, n, k] = copied_rows.form_of(RANKS, m // RANKS, n // RANKS, k, width)
            us = [row["us"].get(f"warploom {form}", row["us"]["warploom"]) for form in ("push", "copy")]
            assert us[("push", "copy").index(forms[width, m, n, k])] < 1.03 * min(us)
    assert {place for place, form in forms.items() if form == "copy"} == {
        (1, 4096, 8192, 28672), (1, 8192, 8192, 28672), (1, 8192, 28672, 8192), (1, 16384, 5120, 25600)
    }  # fmt: skip


def test_a_reduce_scatter_is_staged_where_nothing_is_said():
    by_form = {form: prod(row["us"][f"warploom {form}"] for row in ROWS if f"warploom {form}" in row["us"]
                          and row["kind"].startswith("reduce-scatter")) for form in SCATTERS[1:]}  # fmt: skip
    assert min(by_form, key=by_form.__getitem__) == Settings().peer_scatter
