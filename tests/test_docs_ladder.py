"""The book of the ladder: links work, quotes are in the source, and commands for the reader run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import book

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "ladder"
CONTENTS = FOLDER / "README.md"
CHAPTERS = sorted(FOLDER.glob("[0-9]*.md"))
ANSWERS = FOLDER / "answers.md"
PAGES = [CONTENTS, *CHAPTERS, ANSWERS, FOLDER / "glossary.md"]
BLACKWELL = ROOT / "docs" / "blackwell.md"
"""A page outside the book, with pictures of its own."""
MOST_BYTES = 2_000_000
QUICK_COMMANDS = {"warploom ladder --emulate --rungs 8,9", "warploom explain 4096 4096 4096"}
TIE = 0.015
"""Two rungs as close as this, as a share of the speed, are as fast as one another."""
COALESCING = 8
"""How many times as fast the naive kernel is at least when its warps read rows."""
QUICK_PICTURES = {"larger", "edges", "gains", "turns", "tensor-memory"}

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def without_quotes(text: str) -> str:
    """A page without the code that was taken from the source."""
    return re.sub(r"<!-- code .*? -->\n```python\n.*?```\n", "", text, flags=re.DOTALL)


# -- the book as a whole -------------------------------------------------------------------------------------------


@each_page
def test_every_link_and_picture_leads_to_a_file(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    assert targets
    assert [target for target in targets if not (page.parent / target).exists()] == []


def contents() -> str:
    """The table of chapters."""
    return CONTENTS.read_text().split("## Contents")[1].split("## The whole ladder")[0]


def test_the_contents_name_every_chapter_once_in_order() -> None:
    table = contents()
    assert re.findall(r"\]\(([^)]+\.md)\)", table) == [path.name for path in CHAPTERS]


def test_every_chapter_leads_to_the_next_one() -> None:
    for page, following in zip(PAGES, CHAPTERS, strict=False):
        assert f"]({following.name})" in page.read_text().splitlines()[-1]


def test_every_rung_has_its_figures_in_the_chapter_that_the_contents_name() -> None:
    from warploom.kernels.ladder import RUNGS

    listed = dict(re.findall(r"\]\((\d\d-[\w-]+\.md)\)[^|\n]*\|[^|\n]*\| ([\d, ]+) \|", contents()))
    found = {int(number): name for name, numbers in listed.items() for number in numbers.split(",")}
    assert sorted(found) == [rung.number for rung in RUNGS]
    for number, name in found.items():
        markers = re.findall(r"<!-- rungs ([\d ]+) -->", (FOLDER / name).read_text())
        assert str(number) in " ".join(markers).split(), f"{name} does not show the figures of rung {number}"


@pytest.mark.parametrize("page", CHAPTERS, ids=lambda page: page.stem)
def test_every_chapter_has_something_to_run_and_an_exercise(page: Path) -> None:
    text = page.read_text()
    assert "## In the emulator" in text and "## Exercise" in text
    assert "```sh\nwarploom" in text or "```python" in without_quotes(text)


@pytest.mark.parametrize("page", CHAPTERS, ids=lambda page: page.stem)
def test_every_exercise_has_an_answer_that_its_chapter_leads_to(page: Path) -> None:
    head = page.read_text().splitlines()[0].removeprefix("# ")
    assert f"## {head}\n" in ANSWERS.read_text()
    anchor = re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-")
    assert f"](answers.md#{anchor})" in page.read_text().splitlines()[-1]


@each_page
def test_lines_are_short(page: Path) -> None:
    lines = [line for line in without_quotes(page.read_text()).splitlines() if not line.startswith(("|", "<!--", "!["))]
    assert [line for line in lines if len(line) > 120] == []


# -- what it quotes ------------------------------------------------------------------------------------------------


@each_page
def test_quoted_code_is_in_the_source(page: Path) -> None:
    text = page.read_text()
    quotes = book.CODE.findall(text)
    assert len(quotes) == text.count("<!-- code ")
    for _, path, first, last in quotes:
        marker = f'<!-- code {path} "{first}" to "{last}" -->\n'
        shown = text.split(marker)[1].split("```\n")[0].removeprefix("```python\n")
        assert shown == book.quote(path, first, last), f"{path} has changed: run python benchmarks/render.py"


def test_a_quote_that_is_gone_from_the_source_is_an_error_with_a_sentence() -> None:
    with pytest.raises(SystemExit, match="has no line with 'no such line'"):
        book.quote("benchmarks/book.py", "no such line", "")


def test_all_markers_are_known() -> None:
    for page in PAGES:
        text = page.read_text()
        known = len(book.CODE.findall(text)) + len(book.TABLE.findall(text))
        assert known == text.count("<!-- "), page.name


def test_at_most_three_rungs_are_slower_than_the_one_below_and_it_is_said_which_and_why() -> None:
    from benchmarks.pictures.measured import steps
    from warploom.lab import ladder_runner

    measured = [{"rung": step.number, "tflops": step.tflops} for step in steps(ROOT / "benchmarks" / "results")]
    gains = {row["rung"]: row.get("gain", 1.0) for row in ladder_runner.with_gains(measured, "tflops")}
    facts = (ROOT / "docs" / "measured-facts.md").read_text()
    reasons = facts.split("Each rung should be no slower")[1].split("The same kernels on zeros")[0]
    explained = {int(number) for number in re.findall(r"^- Rung (\d+) ", reasons, re.MULTILINE)}
    said = re.search(r"^Rungs ([\d, and]+) are slower", CONTENTS.read_text(), re.MULTILINE)
    assert said is not None and {int(number) for number in re.findall(r"\d+", said[1])} == explained
    assert len(explained) <= 3
    assert {number for number, gain in gains.items() if gain < 1 - TIE} <= explained
    assert gains[2] >= COALESCING


# -- what it says to run -------------------------------------------------------------------------------------------


def commands() -> list[object]:
    found = dict.fromkeys(
        line
        for page in PAGES
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)
        for line in block.splitlines()
    )
    return [
        pytest.param(line, marks=[] if line in QUICK_COMMANDS else [pytest.mark.slow], id=line.replace(" ", "_"))
        for line in found
    ]


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("line", commands())
def test_a_command_runs_as_it_stands(line: str) -> None:
    first, *words = shlex.split(line)
    assert first == "warploom"
    done = subprocess.run([sys.executable, "-m", "warploom", *words], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()


def test_the_quick_commands_are_in_the_book() -> None:
    assert {param.values[0] for param in commands()} >= QUICK_COMMANDS


SNIPPETS = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", without_quotes(page.read_text()), re.DOTALL))
]


@pytest.mark.sample(10, all=22)
@pytest.mark.parametrize("block", SNIPPETS)
def test_a_snippet_runs(block: str) -> None:
    if "import torch" in block:
        pytest.importorskip("torch")
    exec(compile(block, "<the book>", "exec"), {"__name__": "the book"})


# -- pictures ------------------------------------------------------------------------------------------------------


def names() -> list[str]:
    from benchmarks.pictures import pictures

    return list(pictures(ROOT / "benchmarks" / "results"))


def test_every_picture_is_in_a_chapter_and_nothing_else_lies_in_the_folder() -> None:
    picture = re.compile(r"!\[[^\]]+\]\((?:ladder/)?([\w-]+)\.svg\)")
    shown = {name for page in (*PAGES, BLACKWELL) for name in picture.findall(page.read_text())}
    assert shown == set(names()) == {path.stem for path in FOLDER.glob("*.svg")}


def test_the_pictures_are_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.glob("*.svg")) < MOST_BYTES


@pytest.mark.sample(1, all=2)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK_PICTURES else [pytest.mark.slow]) for name in names()]
)
def test_a_picture_is_what_the_package_draws_now(name: str) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.pictures import pictures, style

    drawn, kept = pictures(ROOT / "benchmarks" / "results")[name](), (FOLDER / f"{name}.svg").read_text()
    hint = f"run python -m benchmarks.pictures {name}"
    words = re.compile(r"<text [^>]*>([^<]*)</text>")
    assert words.findall(drawn) == words.findall(kept), hint
    if f"drawn by {style.drawer()} " in kept:
        assert drawn == kept, hint
