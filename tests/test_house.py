"""The house: layers, file lengths, an import that is cheap and touches nothing."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "warploom"
MOST_LINES = 400


def python(code: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout


def test_imports_run_downward_only() -> None:
    pytest.importorskip("importlinter")
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    done = subprocess.run([*command, "--no-cache"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_package_of_the_source_stands_in_a_layer() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contract = project["tool"]["importlinter"]["contracts"][0]
    named = set(re.findall(r"warploom\.(\w+)", " ".join(contract["layers"])))
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages <= named


def test_a_file_holds_one_idea() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sorted(SOURCE.rglob("*.py"))}
    assert {path: lines for path, lines in lengths.items() if lines > MOST_LINES} == {}


def test_a_file_says_what_it_is() -> None:
    texts = {str(path.relative_to(ROOT)): path.read_text().lstrip() for path in sorted(SOURCE.rglob("*.py"))}
    assert [path for path, text in texts.items() if text and not text.startswith(('"""', 'r"""'))] == []


NAMES_OF_ONE_FAMILY = 12
"""Files outside the kernels that may say wgmma: its rows, its semantics, its words in the language, its rules."""


def said(path: Path) -> Iterator[str]:
    """The names and texts in a file's code, without its docstrings."""
    tree = ast.parse(path.read_text())
    explanations = {
        id(node.value)
        for each in ast.walk(tree)
        if isinstance(getattr(each, "body", ()), list)
        for node in getattr(each, "body", ())
        if isinstance(node, ast.Expr)
    }
    for node in ast.walk(tree):
        for field in ("id", "attr", "name", "module", "arg", "value"):
            value = getattr(node, field, None)
            if isinstance(value, str) and id(node) not in explanations:
                yield value


@pytest.mark.full
def test_one_family_of_instructions_is_known_by_name_in_few_files() -> None:
    named = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if "kernels" not in path.parts
        and "wgmma" in path.read_text().lower()  # the others need not be parsed
        and any("wgmma" in word.lower() for word in said(path))
    }
    assert len(named) <= NAMES_OF_ONE_FAMILY, sorted(named)


IMPORT = re.compile(r"^[ \t]*(?:import |from [\w.]+ import (?:\([^)]*\)|(?!\()))[^\n]*", re.MULTILINE)


@pytest.mark.full
def test_no_fifteen_lines_stand_in_two_places() -> None:
    """Outside the tests, one file with itself included. Imports, comments and empty lines do not count."""
    length, seen, twice = 15, {}, []
    for path in sorted(
        path for folder in ("src", "benchmarks", "tools", "examples") for path in ROOT.glob(f"{folder}/**/*.py")
    ):
        text = path.read_text()
        without = IMPORT.sub(lambda found: "\n" * found[0].count("\n"), text)
        kept = [(number, line.strip()) for number, line in enumerate(without.splitlines(), 1)]
        lines = [(number, line) for number, line in kept if line and not line.startswith("#")]
        for at in range(len(lines) - length + 1):
            place = (str(path.relative_to(ROOT)), lines[at][0])
            first = seen.setdefault(tuple(line for _, line in lines[at : at + length]), place)
            if first != place:
                twice.append((first, place))
    assert twice == []


def test_importing_the_package_loads_no_framework_no_driver_and_no_layer() -> None:
    code = (
        "import sys, json, warploom;"
        "print(json.dumps([n for n in sys.modules"
        " if n.split('.')[0] in ('torch','jax','triton','cupy','cuda','numpy') or n.startswith('warploom.')]))"
    )
    assert json.loads(python(code)) == []


def test_kernels_can_be_written_and_emulated_without_a_framework_or_the_driver() -> None:
    code = (
        "import sys, json, warploom;"
        "[getattr(warploom, n) for n in warploom.__all__];"
        "import warploom.kernels.walkthrough as w; w.build_gemm_m64n64(64, 64, 64).ptx();"
        "print(json.dumps([n for n in ('torch','jax','triton','cupy','cuda.bindings') if n in sys.modules]))"
    )
    assert json.loads(python(code)) == []


def test_the_pytest_plugin_loads_nothing_but_itself_into_each_run_of_pytest() -> None:
    code = (
        "import sys, json, warploom.testing.plugin;"
        "print(json.dumps([n for n in sys.modules if n.startswith('warploom.') or n == 'numpy']))"
    )
    assert json.loads(python(code)) == ["warploom.testing", "warploom.testing.plugin"]


def test_the_pytorch_plug_in_leaves_dynamo_to_torch_compile() -> None:
    pytest.importorskip("torch")
    code = "import sys, json, warploom.torch; print(json.dumps([n for n in ('torch._dynamo',) if n in sys.modules]))"
    assert json.loads(python(code)) == []


def test_every_public_name_is_there() -> None:
    import warploom

    for name in warploom.__all__:
        assert getattr(warploom, name) is not None, name
    assert set(dir(warploom)) == {*warploom.__all__, "torch", "jax"}, "a plug is there, but no star import loads it"
    with pytest.raises(AttributeError, match="no attribute 'kernal'"):
        _ = warploom.kernal


def test_the_version_stands_in_two_places_and_is_one() -> None:
    import warploom

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["version"] == warploom.__version__


def test_the_workflows_run_what_make_has_on_every_python_that_is_supported() -> None:
    workflows = {path.stem: path.read_text() for path in (ROOT / ".github" / "workflows").glob("*.yml")}
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"run: make ([a-z-]+)", " ".join(workflows.values()))) <= targets
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    supported = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    assert re.findall(r'"(3\.\d+)"', re.findall(r"python: \[.*\]", workflows["tests"])[0]) == supported
    assert project["requires-python"] == f">={supported[0]}"


# -- tests -------------------------------------------------------------------------------------------------------


def test_no_test_draws_without_a_seed() -> None:
    """The same run gives the same verdict: whoever wants other numbers asks for them with `--explore SEED`."""
    drawn = re.compile(r"\b(?:default_rng|Random|RandomState|SystemRandom|urandom|uuid4)\(\)|\bsecrets\.")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if drawn.search(line) and path != Path(__file__)
    ]
    assert found == []
