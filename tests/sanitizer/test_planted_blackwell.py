"""Bugs planted by hand in the Blackwell kernels (`benchmarks.planted_blackwell`): the edits match the sources."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
EDITS = tomllib.loads((ROOT / "benchmarks" / "planted" / "blackwell_edits.toml").read_text())["edit"]
FILE = json.loads((ROOT / "benchmarks" / "results" / "emulated" / "planted-blackwell-by-hand.json").read_text())


def test_every_edit_was_judged():
    assert {(edit["kernel"], edit["what"]) for edit in EDITS} == {(row["kernel"], row["what"]) for row in FILE["bugs"]}
    assert Counter(row["outcome"] for row in FILE["bugs"]) == FILE["counts"]


def test_what_is_harmless_has_its_reason():
    reasons = {(edit["kernel"], edit["what"]): edit.get("harmless") for edit in EDITS}
    for row in FILE["bugs"]:
        assert row.get("reason") == (reasons[row["kernel"], row["what"]] if row["outcome"] == "harmless" else None)


def test_nine_of_ten_are_errors():
    bugs = [row for row in FILE["bugs"] if row["outcome"] != "harmless"]
    assert len(bugs) >= 130
    assert sum(row["outcome"] in ("error", "wrong result", "refused") for row in bugs) >= 0.9 * len(bugs)


def test_every_edit_can_still_be_made():
    for edit in EDITS:
        assert edit["old"] in (ROOT / "src" / "warploom" / edit["file"]).read_text(), edit["what"]
