"""The forms of products that communicate, as they are chosen, against their times on four H100s."""

import json
from math import prod
from pathlib import Path

import pytest

from warploom.kernels.hopper import copied_rows, gemm_all_reduce
from warploom.settings import SCATTERS, Settings

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "nvidia-h100"
RANKS, SMS = 4, 132


def rows_of(name: str) -> list[dict]:
    return json.loads((RESULTS / name).read_text())["rows"]


DEFAULTS, FORMS, SWEEP = map(
    rows_of, ("tensor-parallel-4-defaults.json", "tensor-parallel-4-forms.json", "sweep-all-gather.json")
)
FEW = [row for row in DEFAULTS if row["kind"] == "all-reduce"]


def test_few_rows_have_the_tile_that_was_timed_and_travel_in_nearly_the_fastest_form():
    for row in FEW:
        m, n = row["m"], row["n"]
        config = gemm_all_reduce.choose(m, n, row["k"] // RANKS, SMS, ranks=RANKS)
        form = gemm_all_reduce.form_of(m, n, RANKS, config)
        assert config.name() == row["config"]
        us = row["us"]
        assert min(us["warploom"], us[f"warploom {form}"]) < 1.07 * min(
            time for name, time in us.items() if name.startswith("warploom")
        )


@pytest.mark.parametrize(("kind", "mean"), [
    ("all-reduce", 1.23), ("all-gather", 1.14), ("all-gather-e4m3", 1.18), ("reduce-scatter", 1.05),
    ("reduce-scatter-e4m3", 1.21),
])  # fmt: skip
def test_the_means_that_the_chapter_names(kind: str, mean: float):
    ratios = [row["forms"]["warploom"]["ratio"] for row in DEFAULTS if row["kind"] == kind]
    assert prod(ratios) ** (1 / len(ratios)) == pytest.approx(mean, abs=0.005)


def test_long_products_travel_by_copy_engines_and_short_ones_by_warps():
    forms = set()
    for row in SWEEP:
        form = copied_rows.form_of(RANKS, row["m"] // RANKS, row["n"] // RANKS, row["k"])
        forms.add(form)
        us = {name: row["us"][f"warploom {name}"] for name in ("push", "copy")}
        assert us[form] == min(us.values()), (row["kind"], row["m"], row["n"], row["k"])
    assert forms == {"push", "copy"}


def test_a_reduce_scatter_is_staged_where_nothing_is_said():
    by_form = {form: prod(row["us"][f"warploom {form}"] for row in FORMS if f"warploom {form}" in row["us"]
                          and row["kind"].startswith("reduce-scatter")) for form in SCATTERS[1:]}  # fmt: skip
    assert min(by_form, key=by_form.__getitem__) == Settings().peer_scatter
