"""The documents: names, links and commands exist, code runs correctly, figures come from evidence files."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README, COMMAND = ROOT / "README.md", ROOT / "docs" / "command.md"
DOCUMENTS = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MOST_WORDS = 1000

each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)


def warploom(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "warploom", *words], capture_output=True, text=True, cwd=cwd)


def commands() -> set[str]:
    """What can follow `warploom` on a command line."""
    from warploom.cli.app import app

    return {each.name for each in (*app.registered_commands, *app.registered_groups)}


# -- names and links -----------------------------------------------------------------------------------------------


@each_document
def test_what_a_document_names_exists(document: Path) -> None:
    """Targets of make, commands of warploom, linked files, files named in code."""
    text = document.read_text()
    code = "\n".join(re.findall(r"```.*?```", text, re.DOTALL) + re.findall(r"`[^`\n]+`", text))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z][a-z-]*)", code)) <= targets
    used = set(re.findall(r"^(?:\$ )?(?:PYTHONPATH=src python3 -m )?warploom ([a-z]+)", code, re.MULTILINE))
    used |= set(re.findall(r"`(?:PYTHONPATH=src python3 -m )?warploom ([a-z]+)", text))
    assert used <= commands()
    linked = re.findall(r"\]\(([^)#:]+)[^)]*\)", text)
    assert [target for target in linked if not (document.parent / target).exists()] == []
    named = re.findall(r"`((?:src|tests|docs|benchmarks|examples|tools)/[\w/.-]+)`", text)
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_a_benchmark_that_is_called_as_a_file_imports_none_of_its_neighbours_by_package() -> None:
    """Only `python -m benchmarks.name` has the repository on the path, unless the file puts it there."""
    texts = [path.read_text() for path in (*ROOT.glob("docs/*.md"), *ROOT.glob("*.md"), *ROOT.glob("benchmarks/*.py"))]
    called = {name for text in texts for name in re.findall(r"python (benchmarks/\w+\.py)", text)}
    assert len(called) > 10
    alone = {name: (ROOT / name).read_text() for name in called}
    assert not [name for name, text in alone.items()
                if re.search(r"^(from|import) benchmarks", text, re.M) and "sys.path" not in text]  # fmt: skip


def test_the_readme_is_short_and_leads_to_every_page() -> None:
    text = README.read_text()
    assert len(text.replace("|", " ").split()) <= MOST_WORDS
    linked = set(re.findall(r"\]\((docs/[\w-]+\.md)[#)]", text))
    assert {str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md")} <= linked


def test_the_page_of_matmul_has_the_table_of_arguments() -> None:
    from warploom.operators.spec.arguments import ARGUMENTS

    rows = [
        f"| `{each.name}` | {': '.join(filter(None, (each.kind, each.shape)))} | {each.doc}"
        + ("" if each.default is None else f"; {each.default} by default")
        + " |"
        for each in ARGUMENTS
    ]
    assert (
        "\n".join(["| argument | takes | what it does |", "|---|---|---|", *rows, "\n"])
        in (ROOT / "docs" / "matmul.md").read_text() + "\n"
    )


# -- code ----------------------------------------------------------------------------------------------------------


def blocks_of(document: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL)


WHOLE_FILES = [
    pytest.param(block, id=f"{document.stem}-{number}")
    for document in DOCUMENTS
    for number, block in enumerate(block for block in blocks_of(document) if "def example()" in block)
]


@pytest.mark.parametrize("block", WHOLE_FILES)
def test_a_kernel_in_a_document_is_right_and_clean(block: str, tmp_path: Path) -> None:
    from warploom.cli import find

    path = tmp_path / "first.py"
    path.write_text(block)
    runs = list(find.load(path).example())
    assert runs
    for kernel, arguments, check in runs:
        report = kernel.emulate(*arguments)
        assert [finding for finding in report.findings if finding.severity != "performance"] == []
        check(*report.outputs)


@pytest.fixture
def first_py(tmp_path: Path) -> Path:
    """The file that the README has its reader write."""
    (block,) = [block for block in blocks_of(README) if "def example()" in block]
    path = tmp_path / "first.py"
    path.write_text(block)
    return path


def test_the_kernel_of_the_readme_runs_as_a_program_and_is_checked(first_py: Path) -> None:
    done = subprocess.run([sys.executable, first_py], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    done = warploom("check", str(first_py))
    assert done.returncode == 0 and "emulated, nothing found" in done.stdout, done.stdout + done.stderr


def test_the_mistake_that_the_readme_proposes_is_found_where_it_is(first_py: Path) -> None:
    block = first_py.read_text()
    assert "index < n" in block
    first_py.write_text(block.replace("index < n", "index <= n"))
    done = warploom("check", str(first_py))
    assert done.returncode == 1, done.stderr
    assert "error[OutOfBoundsError]" in done.stdout and "first.py:" in done.stdout  # a report, no failed import


@pytest.mark.full
def test_the_product_of_the_readme_runs_and_is_right() -> None:
    pytest.importorskip("torch")
    (block,) = [block for block in blocks_of(README) if "import torch" in block]
    done = subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", block], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


@pytest.mark.full
def test_the_protocol_and_the_counters_of_the_cookbook_are_shown() -> None:
    (block,) = [block for block in blocks_of(ROOT / "docs" / "cookbook.md") if "protocol()" in block]
    done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True)
    assert done.returncode == 0 and "bars" in done.stdout, done.stdout + done.stderr
    assert "\nTrue\nTrue " in done.stdout


@pytest.mark.full
def test_the_commands_of_the_readme_check_somebody_else_s_ptx(tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "github-action" / "kernels" / "saxpy.ptx", tmp_path / "dump.ptx")
    begin, check = re.findall(r"^warploom (check dump\.ptx.*?)(?:\s+#.*)?$", README.read_text(), re.MULTILINE)
    done = warploom(*shlex.split(begin), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    launch = tmp_path / "dump.launch.toml"
    assert "guessed = true\n" in launch.read_text()
    assert "guess" in warploom(*shlex.split(check), cwd=tmp_path).stdout
    launch.write_text(launch.read_text().replace("guessed = true\n", ""))
    done = warploom(*shlex.split(check), cwd=tmp_path)
    assert done.returncode == 0 and "nothing found" in done.stdout, done.stdout + done.stderr


# -- the command ---------------------------------------------------------------------------------------------------

ANYWHERE, ON_A_GPU = (
    [
        re.split(r"\s{2,}", line)[0]
        for line in COMMAND.read_text().split(heading)[1].split("```")[1].strip().splitlines()
    ]
    for heading in ("These run anywhere:", "These need a GPU")
)


LONG = ("ladder --emulate", "warm ")


@pytest.mark.sample(1, all=3)
@pytest.mark.parametrize(
    "line",
    [pytest.param(line, marks=pytest.mark.slow if any(word in line for word in LONG) else ()) for line in ANYWHERE],
)
def test_a_command_runs_as_it_stands(line: str) -> None:
    done = warploom(*line.split()[1:])
    if "sass" in line and "nvdisasm" in done.stderr:
        pytest.skip("no nvdisasm here")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() and "Traceback" not in done.stderr


@pytest.mark.sample(0, all=1)
@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="a GPU is here")
@pytest.mark.parametrize(
    "line", [pytest.param(line, marks=pytest.mark.slow if "ladder" in line else ()) for line in ON_A_GPU]
)
def test_without_a_gpu_the_ladder_counts_and_the_other_commands_say_so(line: str) -> None:
    if "torch" in line:  # asked for by the line itself, and loaded before the GPU is looked for
        pytest.importorskip("torch")
    done = warploom(*line.split()[1:])
    assert "Traceback" not in done.stderr
    if "ladder" in line:
        assert done.returncode == 0 and "emulator" in done.stdout + done.stderr, done.stdout + done.stderr
    else:
        assert done.returncode == 1 and "GPU" in done.stderr, done.stdout + done.stderr


def test_the_page_names_every_command() -> None:
    assert {line.split()[1] for line in [*ANYWHERE, *ON_A_GPU]} == commands()


def test_the_page_names_every_variable_that_is_read() -> None:
    from warploom import settings

    text = Path(settings.__file__).read_text()
    read = set(re.findall(r'(?:read|flag|number)\("([A-Z_]+)"', text))
    assert {f"WARPLOOM_{name}" for name in read} == set(re.findall(r"`(WARPLOOM_[A-Z_]+)`", COMMAND.read_text()))


# -- figures -------------------------------------------------------------------------------------------------------

FIGURE = re.compile(r"\d+(?:\.\d+)?\s*(?:TFLOP|%|µs|us|ms|MB|GB|x as fast|times as fast)")


@pytest.mark.full
def test_the_figures_in_the_documents_are_those_of_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one kernel in eight also that it builds the text that was measured, or is marked as stale."""
    from benchmarks import render, status

    judge = status.judge
    monkeypatch.setattr(status, "judge", lambda row: judge(row) if row.get("ptx_sha256", "0") < "2" else ("", True))
    monkeypatch.setattr(sys, "argv", ["render.py", "--check"])
    assert render.main() == 0, "run python benchmarks/render.py"


@pytest.mark.slow  # builds each kernel that a table has
def test_a_row_whose_kernel_has_changed_is_marked_as_stale() -> None:
    done = subprocess.run([sys.executable, "benchmarks/render.py", "--check"], cwd=ROOT)
    assert done.returncode == 0, "run python benchmarks/render.py"


def test_the_readme_is_short() -> None:
    assert len(README.read_text().split()) <= 1000


@pytest.mark.parametrize("document", [README, ROOT / "docs" / "measured.md"], ids=lambda path: path.name)
def test_no_figure_of_the_tables_was_typed(document: Path) -> None:
    outside = re.sub(r"<!-- [\w-]+ -->\n(?:\|[^\n]*\n)*|```.*?```", "", document.read_text(), flags=re.DOTALL)
    assert FIGURE.findall(outside) == []


def test_the_demo_downloads_less_than_150_mb() -> None:
    measured = json.loads((ROOT / "benchmarks" / "results" / "download_size.json").read_text())
    assert {row["command"]: row["megabytes"] for row in measured["rows"]}["make demo"] < 150
