"""The checkers are independent: each owns its rules, none imports another."""

from __future__ import annotations

import ast
import importlib
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

from warploom.emulator.machine.events import Observer
from warploom.emulator.machine.listeners import EVENTS
from warploom.sanitizer import checkers
from warploom.sanitizer.checkers import CHECKERS
from warploom.sanitizer.report.findings import Findings
from warploom.sanitizer.rules import RULES

FOLDER = Path(checkers.__file__).parent
MODULES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")
SHARED = {"same-value-race", "peer-buffer-reused"}
"""Rules that several checkers report: of each kind of memory, and of each way to guard a buffer."""


def imports(path: Path) -> set[str]:
    """The last words of the modules that a file imports."""
    tree = ast.parse(path.read_text())
    return {node.module.split(".")[-1] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}


def test_every_rule_belongs_to_one_checker():
    owned = Counter(rule for checker in CHECKERS for rule in checker.rules)
    assert {rule for rule, times in owned.items() if times > 1} == set()
    assert set(owned) == set(RULES)


def test_a_checker_names_its_own_rules_only():
    for checker in CHECKERS:
        text = Path(importlib.import_module(checker.__module__).__file__).read_text()
        others = {rule for other in CHECKERS if other is not checker for rule in other.rules}
        assert {rule for rule in others if f'"{rule}"' in text} <= SHARED, checker.__name__


def test_no_checker_imports_another():
    for module in MODULES:
        assert imports(FOLDER / f"{module}.py") & set(MODULES) == set(), module


def test_every_checker_hears_something_or_judges_the_text():
    for checker in CHECKERS:
        heard = [event for event in EVENTS if getattr(checker, event) is not getattr(Observer, event)]
        assert heard or checker.__name__ == "Text"


def test_every_module_of_the_folder_is_in_the_list():
    assert {checker.__module__.split(".")[-1] for checker in CHECKERS} == set(MODULES)


def test_many_findings_of_one_rule_do_not_hide_those_of_another():
    """A product in flight across an unrolled loop gave 200 of one rule, and nothing else was reported."""
    codes = [SimpleNamespace(instruction=SimpleNamespace(location=None), pc=pc, text=f"i{pc}") for pc in range(300)]
    findings = Findings()
    for code in codes:
        findings.add("wgmma-register-in-flight", "a message", (code,))
    findings.add("generic-write-before-async-read", "a message", (codes[0],))
    assert {one.rule for one in findings.as_list()} == {"wgmma-register-in-flight", "generic-write-before-async-read"}
