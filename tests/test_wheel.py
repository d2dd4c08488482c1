"""The wheel contains what a user can call, and nothing that only this repository uses."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ENTRANCES = ("warploom", "warploom.__main__", "warploom.cli.app", "warploom.testing.plugin", "warploom.torch",
             "warploom.jax", "warploom.types", "warploom.gemm")  # fmt: skip
"""What users import or start, and the module that pytest loads."""
LIBRARIES = ("warploom.kernels", "warploom.collective", "warploom.lang", "warploom.lab.pages")
"""Packages whose every module a kernel author may import, or that a command opens by its file."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Names and texts of the files in the wheel that pip builds."""
    setuptools = pytest.importorskip("setuptools")
    if int(setuptools.__version__.split(".")[0]) < 77:
        pytest.skip("setuptools 77 or later builds the wheel")
    folder = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    command = [sys.executable, "-m", "pip", "wheel", str(folder), "--no-deps", "--no-build-isolation", "-q",
               "-w", str(folder / "dist")]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    (built,) = (folder / "dist").glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def modules(wheel: dict[str, str]) -> dict[str, str]:
    """The Python modules of the wheel by dotted name."""
    return {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): text
        for name, text in wheel.items()
        if name.endswith(".py")
    }


def imported(module: str, text: str, package: bool) -> Iterator[str]:
    """Dotted names that a module may load: by an import anywhere in it, or by a string that names a module."""
    here = module if package else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            words = here.split(".")
            base = words[: len(words) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            yield from (source, *(f"{source}.{each.name}" for each in node.names))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from (node.value, f"{here}.{node.value.lstrip('.')}")


@pytest.mark.full
def test_the_wheel_holds_the_package_and_nothing_else(wheel: dict[str, str]) -> None:
    assert {name.split("/")[0].split("-")[0] for name in wheel} == {"warploom"}
    assert "warploom/py.typed" in wheel
    assert any(name.endswith(".json") for name in wheel), "the tuned tables are part of the library"


@pytest.mark.full
def test_every_module_in_the_wheel_is_used_by_something_a_user_can_call(wheel: dict[str, str]) -> None:
    known = modules(wheel)
    waiting = [name for name in known if name in ENTRANCES or name.startswith(LIBRARIES)]
    assert set(ENTRANCES) <= set(waiting)
    reached: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in known and name not in reached:
            reached.add(name)
            package = f"{name.replace('.', '/')}/__init__.py" in wheel
            waiting += [name.rpartition(".")[0], *imported(name, known[name], package)]
            if "pkgutil.iter_modules(__path__)" in known[name]:
                waiting += [other for other in known if other.rpartition(".")[0] == name]
    assert sorted(set(known) - reached) == []
