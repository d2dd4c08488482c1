"""The forms of products that communicate, as they are chosen, against their times on four H100s and two H200s."""

import json
from math import prod
from pathlib import Path

import pytest

from warploom.kernels.hopper import copied_rows, gemm_all_reduce

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
RANKS, SMS = 4, 132


def rows_of(name: str) -> list[dict]:
    return json.loads((RESULTS / name).read_text())["rows"]


DEFAULTS, FORMS = map(
    rows_of, ("nvidia-h100/tensor-parallel-4-defaults.json", "nvidia-h100/tensor-parallel-4-words.json")
)
SWEEPS = {RANKS: "nvidia-h100/sweep-all-gather.json", 2: "nvidia-h200/sweep-all-gather.json"}
NAMES = {"one_shot": "words", "two_shot": "word_shares"}
"""Names when they were measured."""


def test_few_rows_have_the_tile_that_was_timed_and_travel_in_the_fastest_form():
    for row in (row for row in FORMS if row["kind"] == "all-reduce"):
        m, n = row["m"], row["n"]
        config = gemm_all_reduce.choose(m, n, row["k"] // RANKS, SMS, ranks=RANKS)
        assert config.name() == row["config"]
        us = {form: row["us"][f"warploom {name}"] for form, name in NAMES.items()}
        assert us[gemm_all_reduce.form_of(m, n, RANKS, config)] == min(us.values())


@pytest.mark.parametrize(("kind", "mean"), [
    ("all-reduce", 1.38), ("all-gather", 1.13), ("all-gather-e4m3", 1.16), ("reduce-scatter", 1.12),
    ("reduce-scatter-e4m3", 1.23),
])  # fmt: skip
def test_the_means_that_the_chapter_names(kind: str, mean: float):
    ratios = [row["forms"]["warploom"]["ratio"] for row in DEFAULTS if row["kind"] == kind]
    assert prod(ratios) ** (1 / len(ratios)) == pytest.approx(mean, abs=0.005)


def test_few_rows_are_half_as_fast_again_as_nccl():
    ratios = [row["ratio_to_nccl"] for row in DEFAULTS if row["kind"] == "all-reduce"]
    assert prod(ratios) ** (1 / len(ratios)) == pytest.approx(1.55, abs=0.005)


@pytest.mark.parametrize("ranks", SWEEPS)
def test_long_products_travel_by_copy_engines_and_short_ones_by_warps(ranks: int):
    forms = set()
    for row in rows_of(SWEEPS[ranks]):
        form = copied_rows.form_of(ranks, row["m"] // ranks, row["n"] // ranks, row["k"])
        forms.add(form)
        us = {name: row["us"][f"warploom {name}"] for name in ("push", "copy")}
        assert us[form] == min(us.values()), (row["kind"], row["m"], row["n"], row["k"])
    assert forms == {"push", "copy"}
