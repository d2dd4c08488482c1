"""Incomplete text is parsed as far as possible; nothing in it makes the editor's files fail."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from warploom.editor.completion import complete
from warploom.editor.hover import hover
from warploom.editor.names import names_of
from warploom.editor.problems import Problem, problems_of
from warploom.editor.reading import Reading, read

REFERENCE_TEXTS = sorted((Path(__file__).parents[1] / "foreign" / "reference").glob("*.ptx"))
HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"


def kernel(body: str) -> str:
    """A kernel around statements that begin on line 9."""
    declared = ".reg .pred %p<4>;\n.reg .b32 %r<8>;\n.reg .b64 %rd<4>;\n"
    return f"{HEAD}.visible .entry k(.param .u64 p)\n{{\n{declared}{body}\n ret;\n}}\n"


def told(text: str) -> list[tuple[int, str, str]]:
    """Line, the marked text and the code of each problem, in the order of the text."""
    found: list[Problem] = sorted(problems_of(read(text)), key=lambda each: each.start)
    return [(text.count("\n", 0, each.start) + 1, text[each.start : each.end], each.code) for each in found]


def test_a_text_without_a_fault_has_no_problem() -> None:
    assert told(kernel("mov.u32 %r1, %tid.x;\nadd.u32 %r2, %r1, 1;")) == []


def test_an_unfinished_statement_hides_nothing_before_or_behind_it() -> None:
    found = told(kernel("add.s32 %r1, %r77, 1;\nmov.u32 %r2, \nadd.s32 %r3, %nothing, 1;\nmov.u32 %r4, %r2;"))
    assert [(line, word) for line, word, _ in found if word.startswith("%")] == [(9, "%r77"), (11, "%nothing")]
    assert any(code == "ptx-syntax" and line in (10, 11) for line, _, code in found)


def test_a_modifier_that_is_not_typed_yet_is_told_at_its_instruction() -> None:
    found = told(kernel("wgmma.\nmov.u32 %r1, %tid.x;"))
    assert {line for line, _, _ in found} == {9}
    assert "unknown-instruction" in {code for _, _, code in found}


def test_a_brace_that_is_not_closed_yet_is_one_problem() -> None:
    text = kernel("{ mov.u32 %r1, 1;").rstrip().removesuffix("}")
    assert [code for _, _, code in told(text)] == ["ptx-syntax", "ptx-syntax"]
    assert told(text + "}}") == []


def test_a_line_without_its_semicolon_is_marked_at_its_end() -> None:
    text = kernel("mov.u32 %r1, %tid.x\nadd.u32 %r2, %r1, 1;")
    ((line, _, code),) = told(text)
    assert (line, code) == (9, "ptx-syntax")


def test_a_text_without_a_head_still_has_its_instructions_checked() -> None:
    text = kernel("add.u32 %r1, %r99, 1;").removeprefix(HEAD)
    found = told(text)
    assert (6, "%r99", "undeclared-name") in found
    assert [code for _, _, code in found].count("ptx-syntax") == 1


def test_what_follows_from_the_text_alone_is_a_warning_at_the_register() -> None:
    text = kernel("add.u32 %r1, %r2, 1;")
    (problem,) = problems_of(read(text))
    assert (problem.code, problem.severity) == ("uninitialised-register", "warning")
    assert text[problem.start : problem.end] == "%r2"


def test_lines_of_another_source_do_not_move_a_problem() -> None:
    text = kernel(".loc 1 700 3\nadd.u32 %r1, %nothing, 1;").replace("{", "{\n.loc 1 5 1", 1) + '.file 1 "other.cu"\n'
    assert [line for line, _, code in told(text) if code == "undeclared-name"] == [11]


@pytest.mark.sample(2, full=12)
@pytest.mark.parametrize("seed", range(100))
def test_any_cut_of_a_text_is_read_and_answered(seed: int) -> None:
    draw = random.Random(seed)
    path = draw.choice(REFERENCE_TEXTS)
    whole = path.read_text()
    begin = draw.randrange(max(len(whole) - 6000, 1))
    text = whole[:400] + whole[begin : begin + 6000]
    for _ in range(8):
        at = draw.randrange(len(text))
        cut = text[:at] + (text[at + draw.randrange(1, 60) :] if draw.random() < 0.6 else "")
        reading: Reading = read(cut)
        names = names_of(reading.tokens)
        assert all(0 <= each.start <= each.end <= len(cut) for each in problems_of(reading))
        for offset in (at, at - 1, draw.randrange(len(cut) + 1)):
            found = hover(reading, names, min(max(offset, 0), len(cut)))
            assert found is None or found[0] <= found[1] <= len(cut)
            complete(cut, names, min(max(offset, 0), len(cut)))
