"""The house: layers, file lengths, an import that is cheap and touches nothing, documents that name real things."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "warploom"
LONG, TOO_LONG = 400, 600


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
    (contract,) = project["tool"]["importlinter"]["contracts"]
    named = set(re.findall(r"warploom\.(\w+)", " ".join(contract["layers"])))
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages <= named


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_file_holds_one_idea(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    if LONG < lines <= TOO_LONG:
        warnings.warn(f"{path.relative_to(ROOT)} has {lines} lines: does it hold two ideas?", stacklevel=1)
    assert lines <= TOO_LONG


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_file_says_what_it_is(path: Path) -> None:
    text = path.read_text()
    assert not text.strip() or text.lstrip().startswith(('"""', 'r"""')), f"{path.relative_to(ROOT)} has no docstring"


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


# -- documents ---------------------------------------------------------------------------------------------------

DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def code_of(document: Path) -> str:
    """What a document shows as code, in blocks and in lines."""
    text = document.read_text()
    return "\n".join(re.findall(r"```.*?```", text, re.DOTALL) + re.findall(r"`[^`\n]+`", text))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_make_command_in_a_document_is_a_target(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z][a-z-]*)", code_of(document))) <= targets


def commands() -> set[str]:
    """What can follow `warploom` on a command line."""
    from warploom.cli.app import app

    return {each.name for each in (*app.registered_commands, *app.registered_groups)}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_warploom_command_in_a_document_exists(document: Path) -> None:
    known = commands()
    used = set(
        re.findall(r"^(?:\$ )?(?:PYTHONPATH=src python3 -m )?warploom ([a-z]+)", code_of(document), re.MULTILINE)
    )
    used |= set(re.findall(r"`(?:PYTHONPATH=src python3 -m )?warploom ([a-z]+)", document.read_text()))
    assert used <= known


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_file_named_in_a_document_exists(document: Path) -> None:
    text = document.read_text()
    linked = {target for target in re.findall(r"\]\(([^)#:]+)\)", text)}
    missing = [target for target in linked if not (document.parent / target).exists()]
    named = re.findall(r"`((?:src|tests|docs|benchmarks|examples|tools)/[\w/.-]+)`", text)
    missing += [name for name in named if not (ROOT / name).exists()]
    assert not missing


def kernels_of(document: Path) -> list[str]:
    """The Python blocks of a document that are whole files with an example."""
    blocks = re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL)
    return [block for block in blocks if "@kernel" in block]


WHOLE_FILES = [
    pytest.param(block, id=f"{document.name}-{number}")
    for document in DOCUMENTS
    for number, block in enumerate(kernels_of(document))
]


@pytest.mark.parametrize("block", WHOLE_FILES)
def test_a_kernel_in_a_document_runs_and_is_right(block: str, tmp_path: Path) -> None:
    path = tmp_path / "first.py"
    path.write_text(block)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True)
    assert done.returncode == 0 and "False" not in done.stdout, done.stderr
    command = [sys.executable, "-m", "warploom", "check", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "emulated, nothing found" in done.stdout


def test_the_mistake_that_the_readme_proposes_is_found_where_it_is(tmp_path: Path) -> None:
    (block,) = kernels_of(ROOT / "README.md")
    path = tmp_path / "first.py"
    assert "index < n" in block
    path.write_text(block.replace("index < n", "index <= n"))
    done = subprocess.run([sys.executable, "-m", "warploom", "check", str(path)], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "error[OutOfBoundsError]" in done.stdout and "first.py:" in done.stdout  # a report, no failed import


def test_the_figures_in_the_documents_are_those_of_the_files() -> None:
    done = subprocess.run([sys.executable, "benchmarks/render.py", "--check"], cwd=ROOT)
    assert done.returncode == 0, "run python benchmarks/render.py"


def test_the_demo_downloads_less_than_150_mb() -> None:
    measured = json.loads((ROOT / "benchmarks" / "results" / "download_size.json").read_text())
    assert {row["command"]: row["megabytes"] for row in measured["rows"]}["make demo"] < 150


# -- what the README says to run -----------------------------------------------------------------------------------

README = (ROOT / "README.md").read_text()
ANYWHERE, ON_A_GPU = (
    [re.split(r"\s{2,}", line)[0] for line in README.split(heading)[1].split("```")[1].strip().splitlines()]
    for heading in ("These run anywhere:", "These need a GPU")
)
SNIPPETS = [block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "@kernel" not in block]


def warploom_command(line: str) -> subprocess.CompletedProcess[str]:
    name, *words = line.split()
    assert name == "warploom"
    return subprocess.run([sys.executable, "-m", "warploom", *words], capture_output=True, text=True, cwd=ROOT)


@pytest.mark.parametrize("line", ANYWHERE)
def test_a_command_of_the_readme_runs_as_it_stands(line: str) -> None:
    done = warploom_command(line)
    if "sass" in line and "nvdisasm" in done.stderr:
        pytest.skip("no nvdisasm here")
    stale = "evidence" in line and done.returncode == 1 and "stale" in done.stdout
    assert done.returncode == 0 or stale, done.stdout + done.stderr
    assert done.stdout.strip() and "Traceback" not in done.stderr


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="a GPU is here")
@pytest.mark.parametrize("line", ON_A_GPU)
def test_without_a_gpu_the_ladder_counts_and_the_other_commands_say_so(line: str) -> None:
    done = warploom_command(line)
    assert "Traceback" not in done.stderr
    if "ladder" in line:
        assert done.returncode == 0 and "emulator" in done.stdout + done.stderr, done.stdout + done.stderr
    else:
        assert done.returncode == 1 and "GPU" in done.stderr, done.stdout + done.stderr


def test_the_readme_names_every_variable_that_is_read() -> None:
    from warploom import settings

    text = Path(settings.__file__).read_text()
    read = set(re.findall(r'(?:read|flag|number)\("([A-Z_]+)"', text))
    assert {f"WARPLOOM_{name}" for name in read} == set(re.findall(r"`(WARPLOOM_[A-Z_]+)`", README))


def test_the_readme_names_every_command() -> None:
    assert {line.split()[1] for line in [*ANYWHERE, *ON_A_GPU]} == commands()


@pytest.mark.parametrize("block", SNIPPETS, ids=["matmul", "protocol"])
def test_a_snippet_of_the_readme_runs_and_is_right(block: str) -> None:
    if "import torch" in block:
        pytest.importorskip("torch")
    done = subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", block], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "True" in done.stdout and "False" not in done.stdout


FIGURE = re.compile(r"\d+(?:\.\d+)?\s*(?:TFLOP|%|µs|us|ms|MB|GB|x as fast|times as fast)")


@pytest.mark.parametrize("document", [ROOT / "README.md", ROOT / "docs" / "measured.md"], ids=lambda path: path.name)
def test_no_figure_of_the_tables_was_typed(document: Path) -> None:
    outside = re.sub(r"<!-- [\w-]+ -->\n(?:\|[^\n]*\n)*|```.*?```", "", document.read_text(), flags=re.DOTALL)
    assert FIGURE.findall(outside) == []
