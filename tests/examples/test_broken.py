"""The deliberately broken example: its report is the one in the documents, and its fix is one line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from warploom.cli import find
from warploom.testing import assert_clean

ROOT = Path(__file__).resolve().parents[2]
BROKEN = "examples/broken/gemm.py"
DOCUMENTS = ("README.md", "docs/checking.md", "docs/writing-kernels.md")
CUT = "…"
"""Where a document shows a line's beginning only."""


@pytest.fixture(scope="module")
def said() -> list[str]:
    """The lines that the command prints, where an error is found."""
    command = [sys.executable, "-m", "warploom", "check", BROKEN]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_shows_what_is_said(document: str, said: list[str]) -> None:
    text = (ROOT / document).read_text()
    assert f"warploom check {BROKEN}" in text, "a reader can have the same"
    (block,) = re.findall(r"```\n(error\[.*?)```", text, re.DOTALL)
    rest = iter(said)
    for line in block.splitlines():
        beginning, cut, _ = line.partition(CUT)
        assert any(told == line or (cut and told.startswith(beginning)) for told in rest), (
            f"not said, or not there: {line}"
        )


def test_it_is_found_before_a_run_hangs_and_where_it_does(said: list[str]) -> None:
    lines = (ROOT / BROKEN).read_text().splitlines()
    announced, waited = (
        next(number for number, line in enumerate(lines, 1) if f"ptx.mbarrier.{what}(" in line)
        for what in ("arrive_expect_tx", "wait")
    )
    places = [told.split()[-1] for told in said if told.startswith("   --> ")]
    assert [told.partition(":")[0] for told in said if told.startswith("error[")] == [
        "error[byte-count-mismatch]", "error[DeadlockError]",
    ]  # fmt: skip
    assert places == [f"gemm.py:{announced}", f"gemm.py:{waited}"]


def test_run_as_a_program_it_says_what_to_run_and_launches_nothing() -> None:
    done = subprocess.run([sys.executable, BROKEN], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and f"warploom check {BROKEN}" in done.stdout


def test_mended_it_is_right_and_clean_in_several_orders(tmp_path: Path) -> None:
    text = (ROOT / BROKEN).read_text()
    assert text.count("2 * sA.bytes)") == 1 and "`sA.bytes + sB.bytes` fixes it" in text
    path = tmp_path / "gemm.py"
    path.write_text(text.replace("2 * sA.bytes)", "sA.bytes + sB.bytes)"))
    ((kernel, arguments, check),) = find.load(path).example()
    assert_clean(kernel, *arguments, explore=True, least="warning")
    check(kernel(*arguments))
