"""Mutants of the Blackwell kernels are found: a sample here, all of them by `benchmarks.mutants_blackwell`."""

from __future__ import annotations

import json

import pytest

from benchmarks.mutants_blackwell import FILE, judged

KERNELS = ("minimal", "specialised", "launch control", "pair", "mxfp8", "grouped", "few rows")


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("name", KERNELS)
def test_a_sample_of_mutants_is_found(name: str):
    assert [verdict for verdict in judged(name, sample=4) if verdict.outcome == "missed"] == []


def test_the_file_shows_that_97_of_100_are_found():
    rows = json.loads(FILE.read_text())["rows"]
    assert {row["kernel"] for row in rows} <= {*KERNELS, "attention"}
    for row in rows:
        assert row["found"] + row["equivalent"] + len(row["missed"]) == row["mutants"]
    found, missed = sum(row["found"] for row in rows), sum(len(row["missed"]) for row in rows)
    assert found >= 0.97 * (found + missed)
