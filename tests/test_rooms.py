"""The files of a folder import each other in one direction, imports for types included."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import warploom

FLOORS = {"emulator": 200, "sanitizer": 100, "collective": 40, "operators": 100}
"""How many imports among its own files a floor has at least."""


def _module(path: Path, root: Path) -> tuple[str, ...]:
    parts = path.relative_to(root).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


@pytest.mark.parametrize("floor", FLOORS)
def test_no_file_knows_one_that_knows_it(floor: str):
    root = Path(warploom.__file__).parent / floor
    modules = {_module(path, root): path for path in root.rglob("*.py")}
    known: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for module, path in modules.items():
        folder = module if path.name == "__init__.py" else module[:-1]
        known[module] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and 0 < node.level <= len(folder) + 1:
                base = (*folder[: len(folder) - node.level + 1], *(node.module.split(".") if node.module else ()))
                named = {(*base, alias.name) if (*base, alias.name) in modules else base for alias in node.names}
                known[module] |= (named & set(modules)) - {module}
    assert sum(map(len, known.values())) > FLOORS[floor]
    TopologicalSorter(known).prepare()  # raises CycleError with the files
