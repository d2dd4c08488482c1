"""Bugs planted by rule into texts of nvcc and Triton: `check` with its defaults reports them as errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.planted.harmless import reason
from benchmarks.planted.texts import Text, texts
from benchmarks.planted_bugs import chosen, judge

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
