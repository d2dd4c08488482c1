"""Tests that need a GPU run rarely: the names that they import, patch and read must exist here and now."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

TESTS = Path(__file__).parent
OURS = ("warploom", "benchmarks", "tests")
FILES = [path for path in sorted(TESTS.rglob("test_*.py")) if "mark.gpu" in path.read_text() and path != Path(__file__)]


class Moved(Exception):
    """A name that is not where a test looks for it."""


def module_of(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in OURS:
            raise Moved(name) from error
        return pytest.skip(f"needs {error.name}")


def member(owner: str, name: str) -> object:
    module = module_of(owner)
    if hasattr(module, name):
        return getattr(module, name)
    return module_of(f"{owner}.{name}")


def imports(tree: ast.AST) -> Iterator[tuple[str, object]]:
    """The names that our imports bind in a file, and what they are bound to."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in OURS:
            for alias in node.names:
                yield alias.asname or alias.name, member(node.module, alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] in OURS:
                    found = module_of(alias.name)
                    yield alias.asname or alias.name.split(".")[0], found if alias.asname else module_of("warploom")


def missing(source: str) -> list[str]:
    """What a test looks for in vain: imports, `module.name`, and targets of `monkeypatch.setattr`."""
    tree = ast.parse(source)
    try:
        bound = dict(imports(tree))
    except Moved as moved:
        return [str(moved)]
    modules = {name: value for name, value in bound.items() if isinstance(value, ModuleType)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            owner, name = modules[node.value.id], node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
            target, name = node.args[0], getattr(node.args[1], "value", None)
            if not isinstance(target, ast.Name) or target.id not in bound or not isinstance(name, str):
                continue
            owner = bound[target.id]
        else:
            continue
        if not hasattr(owner, name):
            found.append(f"{getattr(owner, '__name__', owner)}.{name}")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(TESTS).as_posix())
def test_what_tests_on_a_gpu_look_for_is_there(path):
    assert not missing(path.read_text())


@pytest.mark.parametrize(
    "source",
    [
        "from warploom.runtime import nowhere",
        "import warploom.nowhere",
        "from warploom.runtime import bind\ndef test(): bind.nowhere()",
        'def test(monkeypatch):\n from warploom.runtime import bind\n monkeypatch.setattr(bind, "nowhere", 1)',
    ],
)
def test_a_moved_name_is_noticed(source):
    assert any(name.endswith("nowhere") for name in missing(source))


def test_names_that_are_there_are_let_alone():
    assert not missing('from warploom.runtime import bind\ndef test(m): m.setattr(bind, "broken_limit", bind.Bound)')
