"""Every error has a stable code, and every code has a page."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests import command_line
from warploom import asm, errors
from warploom.error_codes import CODES
from warploom.runtime import emulate
from warploom.sanitizer.rules import RULES, Example
from warploom.sanitizer.rules.schema import DATA_BYTES

SOURCE = Path(__file__).resolve().parents[1] / "src" / "warploom"


def classes() -> Iterator[type[errors.WarploomError]]:
    """All error classes of the package but their base."""
    waiting = [errors.WarploomError]
    while waiting:
        for kind in waiting.pop().__subclasses__():
            if kind.__module__.startswith("warploom."):
                yield kind
                waiting.append(kind)


def passed_codes() -> Iterator[tuple[Path, str]]:
    """Every `code="…"` of a call in the source."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "code" and isinstance(node.value, ast.Constant):
                yield path, str(node.value.value)


def test_every_error_class_has_a_code_of_its_own() -> None:
    import warploom.lab.charts  # noqa: F401 - has an error class

    found = list(classes())
    assert len(found) > 15
    codes = [kind.code for kind in found]
    assert len(set(codes)) == len(codes)
    assert set(codes) <= set(CODES)


def test_every_code_that_is_passed_has_a_page_and_every_page_a_code() -> None:
    passed = {code for _, code in passed_codes()}
    assert len(passed) > 5
    assert passed <= set(CODES)
    others = {"wrong-result", "guessed-launch"}  # findings
    others |= {errors.UnprovenWarning.code, errors.CacheWarning.code}
    assert set(CODES) - passed - {kind.code for kind in classes()} == others


def test_codes_are_kebab_case_and_no_rule_of_the_sanitizer_has_one() -> None:
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in CODES)
    assert not set(CODES) & set(RULES)


@pytest.mark.parametrize("code", CODES)
def test_the_command_prints_a_page_for_every_code(code: str) -> None:
    told = command_line.run("rules", code)
    assert told.exit_code == 0
    assert f"[{code}]" in told.stdout and CODES[code].fix[:20] in told.stdout


OF_ERRORS = [kind for kind in classes() if kind.__module__ == "warploom.errors"]


@pytest.mark.parametrize("kind", OF_ERRORS, ids=lambda kind: kind.__name__)
def test_the_command_takes_the_class_that_a_report_names(kind: type[errors.WarploomError]) -> None:
    told = command_line.run("rules", kind.__name__, "--json")
    assert json.loads(told.stdout)[0]["id"] == kind.code


def test_an_error_carries_the_code_of_its_class_or_the_one_that_is_passed() -> None:
    assert errors.ArgumentError("x").code == "argument"
    assert errors.ArgumentError("x", code="unknown-name").code == "unknown-name"
    assert errors.ArgumentError("x").code == "argument", "an instance's code is its own"


PTX_PAGES = {code.id: code for code in CODES.values() if code.example and "%" in code.example or code.id == "emulation"}
STATIC = {"ptx-syntax", "unknown-instruction", "wrong-operands", "immediate-range", "undeclared-name"}


@pytest.mark.parametrize("id", PTX_PAGES)
def test_the_lines_of_a_page_bring_its_error_about(id: str) -> None:
    text = Example(CODES[id].example).text()
    with pytest.raises(errors.WarploomError) as raised:
        for error in asm.verify(asm.parse(text)):
            raise error
        emulate(text, np.zeros(DATA_BYTES, np.uint8), grid=(1,), block=(128,), max_steps=20_000)
    assert raised.value.code == id
    assert (id in STATIC) is not isinstance(raised.value, errors.EmulationError)


def test_codes_of_the_emulator_say_what_the_gpu_would_do() -> None:
    ends = {kind.code for kind in classes() if issubclass(kind, errors.EmulationError)}
    assert {"out-of-bounds", "misaligned", "deadlock", "step-limit"} <= ends
    assert [id for id in ends | STATIC if not CODES[id].otherwise] == []
    assert {id for id in ends if not CODES[id].example} == {"unsupported-instruction", "cost-limit"}
