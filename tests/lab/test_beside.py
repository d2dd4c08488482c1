"""The program that measures kernels outside the ladder: which rows it takes from a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import beside


def run(path: Path, date: str, **speeds: float) -> Path:
    """A file as a run writes it, a row for each kind."""
    rows = [{"kind": kind, "us": us} for kind, us in speeds.items()]
    path.write_text(json.dumps({"suite": "beside", "gpu": "one", "date": date, "rows": rows}))
    return path


def test_a_run_s_rows_take_the_place_of_those_of_the_same_kind(tmp_path: Path):
    out = tmp_path / "kept.json"
    beside.adopt(run(tmp_path / "a", "1", rest=9.0, sparse=1.0, f64=2.0), ["sparse", "f64"], out)
    assert json.loads(out.read_text())["rows"] == [{"kind": "sparse", "us": 1.0}, {"kind": "f64", "us": 2.0}]
    beside.adopt(run(tmp_path / "b", "2", rest=3.0, sparse=7.0, f64=4.0), ["f64", "rest"], out)
    found = json.loads(out.read_text())
    assert [(row["kind"], row["us"]) for row in found["rows"]] == [("sparse", 1.0), ("f64", 4.0), ("rest", 3.0)]
    assert {kind: head["date"] for kind, head in found["runs"].items()} == {"sparse": "1", "f64": "2", "rest": "2"}
    assert all("rows" not in head for head in found["runs"].values())


def test_a_kind_that_a_run_has_not_is_refused_and_nothing_is_written(tmp_path: Path):
    out = tmp_path / "kept.json"
    with pytest.raises(SystemExit, match="rest"):
        beside.adopt(run(tmp_path / "a", "1", sparse=1.0), ["sparse", "rest"], out)
    assert not out.exists()


def test_candidates_are_other_kernels_than_what_is_measured_always():
    for case in beside.SUITE:
        always, more = beside.kernels(case), beside.kernels(case, candidates=True)
        assert set(always) <= set(more)
        texts = [kernel.ptx() for kernel in more.values()]
        assert len(set(texts)) == len(texts)
