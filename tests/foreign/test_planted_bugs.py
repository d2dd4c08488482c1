"""Bugs planted by rule into texts of nvcc and Triton: `check` with its defaults reports them as errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.planted.harmless import reason
from benchmarks.planted.texts import Text, texts
from benchmarks.planted_bugs import Bug, again, chosen, judge, write

KNOWN = {("grid_sm90a.locked", "drop-fence"), ("product_sm90", "drop-proxy-fence")}
"""Bugs that are not errors; docs/sanitizer-coverage.md says why."""
QUICK = ("grid_", "barriers_", "rows_", "row_softmax", "cluster_", "layer_norm")
TEXTS = [text for text in texts() if text.name.startswith(QUICK)]


@pytest.mark.sample(1, full=5)
@pytest.mark.parametrize("text", TEXTS, ids=[text.name for text in TEXTS])
def test_a_planted_bug_is_an_error(text: Text, tmp_path: Path) -> None:
    bugs = [bug for mutant in chosen(text, 1) if (bug := judge(text, mutant, tmp_path)) is not None]
    assert any(bug.outcome == "error" for bug in bugs)
    missed = [bug for bug in bugs if bug.outcome in ("missed", "explored")]
    assert [bug for bug in missed if (text.name, bug.kind) not in KNOWN] == []


SLIPPERY = {
    "grid_sm90a.chained": (),
    "barriers_sm90a.piped": pytest.mark.slow,
    "cluster_sm90a.histogram": pytest.mark.slow,
    "row_softmax_sm80": pytest.mark.slow,
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks) for name, marks in SLIPPERY.items()])
def test_a_slip_is_an_error(name: str, tmp_path: Path) -> None:
    text = next(text for text in TEXTS if text.name == name)
    bugs = [bug for mutant in chosen(text, 1, "slips") if (bug := judge(text, mutant, tmp_path)) is not None]
    assert any(bug.outcome == "error" for bug in bugs)
    assert [bug for bug in bugs if bug.outcome in ("missed", "explored")] == []


def test_a_folder_of_texts_says_which_changes_are_harmless(tmp_path: Path) -> None:
    text = next(text for text in TEXTS if text.name == "row_softmax_sm80")
    mutant = next(chosen(text, 1))
    assert reason("mine", mutant, tmp_path) == ""
    said = f'[[harmless]]\ntext = "mi*"\nkind = "{mutant.kind}"\nsite = "{mutant.site}"\nwhy = "because"\n'
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "harmless.toml").write_text(said)
    assert reason("mine", mutant, folder) == "because"


def test_bugs_of_the_evidence_are_judged_again(tmp_path: Path) -> None:
    text = next(text for text in TEXTS if text.name == "grid_sm90a.chained")
    by_kind = {mutant.kind: mutant for mutant in chosen(text, 1)}
    of_text, path = f"{text.source}/{text.name}", tmp_path / "evidence.json"
    old = [
        Bug(of_text, mutant.kind, mutant.site, mutant.variant, 1, "", outcome)
        for mutant, outcome in ((by_kind["drop-barrier"], "harmless"), (by_kind["one-element-farther"], "missed"))
    ]
    write(path, [*old, Bug("other/text", "drop-fence", "fence#0", 0, 1, "", "missed")], 1, "first")

    assert again(path, [text], ("missed",), "*") == {"error": 1}

    document = json.loads(path.read_text())
    mine, other = document["rows"]
    assert [one["kind"] for one in mine["others"]] == ["drop-barrier"]
    assert (mine["bugs"], mine["error"], mine["missed"], mine["harmless"]) == (1, 1, 0, 1)
    assert mine["kinds"]["one-element-farther"] == {"error": 1} and mine["rules"]
    assert other["missed"] == 1, "its text was not given"
    assert (document["total"]["bugs"], document["total"]["missed"]) == (2, 1)
