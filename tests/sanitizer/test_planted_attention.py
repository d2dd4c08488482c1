"""The bugs that `benchmarks/planted_attention.py` plants in attention's kernels: each edit fits the kernels' text."""

from __future__ import annotations

import pytest

from benchmarks.planted.attention.bug import FAMILIES, bugs, texts


@pytest.mark.parametrize("family", FAMILIES)
def test_every_planted_edit_stands_once_and_leaves_a_module_that_compiles(family: str) -> None:
    planted = [bug for bug in bugs() if bug.of == family]
    assert planted
    for bug in planted:
        for place, text in texts(bug).items():
            compile(text, place, "exec")
