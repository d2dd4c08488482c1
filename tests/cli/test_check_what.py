"""What `warploom check` runs: the examples of a named kernel, guessed launches, kernels that never end."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import run
from tests.testing.texts import COPY, bad, good, write

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ENDLESS = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry spin()
{
    .reg .b32 %r<3>;
    .reg .pred %p;
    mov.u32 %r1, %tid.x;
    setp.lt.u32 %p, %r1, 32;
    @%p bra done;
L:
    add.u32 %r1, %r1, 1;
    bra L;
done:
    ret;
}
"""
FACTORY = """\
from warploom import kernel

def build(n):
    @kernel(grid=(n,), block=32)
    def nothing(): pass
    return nothing
"""


def modes(*arguments: object) -> list[tuple[str, str]]:
    """Name and mode of each check."""
    kernels = json.loads(run("check", *arguments, "--json").stdout)["kernels"]
    return [(one["kernel"], one["mode"]) for one in kernels]


# -- a kernel of a Python file -----------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["softmax.py:softmax", "vector_add.py:vector_add"])
def test_a_named_kernel_is_run_with_its_examples(target: str) -> None:
    assert modes(EXAMPLES / target) == [(target.split(":")[1], "emulated")] * 2


def test_a_named_kernel_is_run_with_no_other_kernels_examples() -> None:
    found = modes(EXAMPLES / "transpose.py:transpose_with_conflicts")
    assert set(found) == {("transpose_with_conflicts", "emulated")}


@pytest.mark.parametrize("name", ["build", "nothing"])
def test_a_kernel_that_a_function_makes_is_named_by_either(tmp_path: Path, name: str) -> None:
    path = tmp_path / "made.py"
    other = "\n@kernel(grid=(1,), block=32)\ndef other(): pass\n"
    path.write_text(FACTORY + other + "\ndef example():\n    yield build(2), ()\n    yield other, ()\n")
    assert modes(f"{path}:{name}") == [("nothing", "emulated")]


def test_a_file_whose_kernels_come_from_functions_is_told_of_example(tmp_path: Path) -> None:
    path = tmp_path / "made.py"
    path.write_text(FACTORY)
    said = run("check", path).stderr
    assert "has no kernel" in said and "example() yield (kernel, arguments, check)" in said


def test_an_example_for_a_machine_that_does_not_run_its_kernel_is_an_invalid_use(tmp_path: Path) -> None:
    path = tmp_path / "made.py"
    kernel = 'from warploom import H200, kernel\n\n@kernel(grid=(1,), block=32, arch="sm_100a")\ndef new(): pass\n'
    path.write_text(kernel + '\ndef example():\n    yield new, (), None, {"machine": H200(sms=4)}\n')
    done = run("check", path)
    assert done.exit_code == 2 and "[wrong-gpu]" in done.stderr


@pytest.mark.parametrize("more, got", [
    ("{}, lambda: None", "1 argument, dict, a function"),  # in the wrong order
    ("None, 3", "1 argument, NoneType, int"), ("1", "1 argument, int"),
    ("None, {}, 1", "1 argument, NoneType, dict, int"),
])  # fmt: skip
def test_an_example_of_another_form_is_told_in_a_few_words(tmp_path: Path, more: str, got: str) -> None:
    path = tmp_path / "made.py"
    path.write_text(
        FACTORY + f"\ndef example():\n    import numpy as np\n    yield build(2), (np.zeros(900),), {more}\n"
    )
    result = run("check", path)
    assert result.exit_code == 2 and f"{got}\n" in result.stderr and len(result.stderr) < 400


PACKAGED = """\
from warploom import kernel
from .sizes import THREADS

def build(n=2):
    @kernel(grid=(n,), block=THREADS)
    def nothing(): pass
    return nothing
"""


@pytest.fixture
def package(tmp_path: Path) -> Iterator[Path]:
    """A file with a relative import, in a package that nobody has installed."""
    folder = tmp_path / "kernels_of_this_test"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "sizes.py").write_text("THREADS = 32\n")
    (folder / "made.py").write_text(PACKAGED)
    yield folder / "made.py"
    for name in [name for name in sys.modules if name.startswith(folder.name)]:
        del sys.modules[name]


def test_a_file_with_relative_imports_is_loaded_as_the_module_it_is(package: Path) -> None:
    package.write_text(PACKAGED + "\ndef example():\n    yield build(), ()\n")
    assert modes(package) == [("nothing", "emulated")]


def test_a_file_with_relative_imports_in_no_package_is_told_so(package: Path) -> None:
    (package.parent / "__init__.py").unlink()
    result = run("check", package)
    assert result.exit_code == 2 and "it is not in a package: its folder has no __init__.py" in result.stderr


def test_a_module_is_named_with_dots_as_ptx_takes_it() -> None:
    assert modes("warploom.kernels.ladder.r03_shared_memory") == [("shared_memory", "emulated")]
    assert modes("warploom.kernels.ladder.r03_shared_memory:build") == [("shared_memory", "emulated")]
    assert modes("warploom.kernels.blackwell.minimal") == [("blackwell_minimal", "emulated")]


def test_a_function_of_a_module_that_wants_arguments_is_told_of_example() -> None:
    result = run("check", "warploom.kernels.walkthrough:build_gemm_m64n64")
    assert result.exit_code == 2
    assert "missing a required argument: 'M'" in result.stderr and "let the file's example() yield" in result.stderr
    assert "examples/walkthrough_gemm.py" in run("check", "warploom.kernels.walkthrough").stderr


@pytest.mark.parametrize("schedule", ["eager", "lazy", "random", "starve", "pct", "explore", "exhaustive"])
def test_the_broken_example_is_found_under_every_schedule(schedule: str) -> None:
    result = run("check", EXAMPLES / "broken" / "gemm.py", "--schedule", schedule)
    assert result.exit_code == 1
    assert "error[byte-count-mismatch]" in result.stdout and "error[DeadlockError]" in result.stdout
    assert ("a bad interleaving of 3 choices" in result.stdout) == (schedule == "exhaustive")


def test_a_search_that_ends_at_its_bound_is_called_incomplete() -> None:
    result = run("check", EXAMPLES / "walkthrough_gemm.py", "--schedule", "exhaustive", "--bound", "2")
    assert result.exit_code == 0
    assert "nothing found in an incomplete search" in result.stdout
    assert "the search is incomplete" in result.stdout and "the bound of 2 was reached" in result.stdout


# -- a launch description that nobody has looked at --------------------------------------------------------------


def test_a_result_for_the_guesses_of_init_says_so_until_the_line_is_deleted(tmp_path: Path) -> None:
    path = write(tmp_path, "copy", COPY, None)
    run("check", path, "--init")
    description = path.with_suffix(".launch.toml")
    again = run("check", path, "--init")
    assert again.exit_code == 2 and "is unchanged" in again.stderr and "--launch FILE" in again.stderr
    (finding,) = json.loads(run("check", path, "--json").stdout)["kernels"][0]["findings"]
    assert (finding["rule"], finding["severity"]) == ("guessed-launch", "warning")
    assert "grid = [1, 1, 1]" in finding["notes"][0]["text"]
    assert "1 with launch values guessed by --init" in run("check", tmp_path).stdout
    assert json.loads(run("check", path, "--json").stdout)["kernels"][0]["guessed"] == str(description)
    description.write_text(description.read_text().replace("guessed = true\n", ""))
    assert "guess" not in run("check", path).stdout + run("check", tmp_path).stdout


# -- a kernel that does not end ----------------------------------------------------------------------------------


def test_a_loop_that_never_ends_names_its_lines_and_the_warps_in_it(tmp_path: Path) -> None:
    path = write(tmp_path, "spin", ENDLESS, "grid = [2]\nblock = [128]\n")
    result = run("check", path, "--max-steps", "100000")
    assert result.exit_code == 1
    for said in ("error[StepLimitError]", "a loop in it may never end", "spin.ptx:12", "warps 1-3 in CTA (0, 0, 0)",
                 "in the loop from", "max_steps = 100000", "--max-steps"):  # fmt: skip
        assert said in result.stdout
    assert "warploom rules StepLimitError" in result.stdout
    assert "why" in run("rules", "StepLimitError").stdout


# -- the words ---------------------------------------------------------------------------------------------------


def test_help_says_that_warnings_do_not_fail() -> None:
    assert "Exit code 0: no errors, maybe warnings; 1: errors" in " ".join(run("check", "--help").stdout.split())


def test_every_rule_that_an_error_broke_is_named_at_the_end(tmp_path: Path) -> None:
    text = bad().replace("ret;", "ld.global.u32 %r2, [%data+65536];\n    ret;")
    result = run("check", write(tmp_path, "two", text))
    rules = ("generic-write-before-async-read", "OutOfBoundsError")
    last = result.stdout.splitlines()[-1]
    assert all(f"warploom rules {rule}" in last for rule in rules)
    assert run("check", write(tmp_path, "good", good())).exit_code == 0


def test_a_command_for_python_files_says_which_commands_take_texts(tmp_path: Path) -> None:
    path = write(tmp_path, "copy", COPY, None)
    result = run("time", EXAMPLES / "vector_add.py", "--against", f"{path}:copy")
    assert result.exit_code == 2 and "this is not a Python file" in result.stderr and "`trace`" in result.stderr


def test_the_time_of_a_text_is_predicted_from_its_launch_description(tmp_path: Path) -> None:
    text = EXAMPLES.parent / "tests/foreign/triton/row_softmax_sm90.ptx"
    result = run("time", text, "--predict", "--json")
    assert result.exit_code == 0
    (found,) = json.loads(result.stdout)
    assert found["us"] > 0.5 and found["kernel"] == "row_softmax" and not found["guessed"]
    assert run("time", text).exit_code == 2, "a text is not measured"
    alone = tmp_path / "alone.ptx"
    alone.write_text(text.read_text())
    assert run("time", alone, "--predict").exit_code == 2, "no launch description"
    assert run("check", alone, "--init").exit_code == 0
    assert "alone.launch.toml has guesses" in run("time", alone, "--predict").stdout
