"""The command line: output, JSON, exit codes, and readable errors of each command."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import run
from tests.testing.texts import COPY
from warploom.cli.app import RENAMED

WALKTHROUGH = "warploom.kernels.walkthrough:build_gemm_m64n64"
SIZES = ("M=64", "N=64", "K=64")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

LAUNCH = """\
grid = [1]
block = [64]
[[parameter]]
name = "from"
dtype = "f32"
shape = [60]
fill = "normal"
[[parameter]]
name = "to"
dtype = "f32"
shape = [60]
[[parameter]]
kind = "scalar"
value = {n}
"""


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A PTX file without a launch description."""
    path = tmp_path / "copy.ptx"
    path.write_text(COPY)
    return path


def describe(text: Path, n: int = 60) -> Path:
    path = text.with_suffix(".launch.toml")
    path.write_text(LAUNCH.format(n=n))
    return path


# -- every command -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", ["demo", "info", "inspect ptx", "inspect sass", "inspect resources", "check", "rules", "lsp"]
)
def test_every_command_has_a_help_text_with_an_example(command: str) -> None:
    result = run(*command.split(), "--help")
    assert result.exit_code == 0
    assert f"Example: warploom {command}" in " ".join(result.output.split())


@pytest.mark.parametrize("old, now", RENAMED.items())
def test_the_old_name_of_a_command_raises_the_new_one(old: str, now: str) -> None:
    result = run(old, "examples/softmax.py", "--json")
    assert result.exit_code == 2
    assert now in result.stderr


def test_python_m_warploom_is_the_same_command() -> None:
    done = subprocess.run([sys.executable, "-m", "warploom", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("warploom ")


def test_ptx_prints_the_text_that_ptxas_gets() -> None:
    result = run("inspect", "ptx", WALKTHROUGH, *SIZES)
    assert result.exit_code == 0
    assert result.stdout.startswith(".version") or "\n.version" in result.stdout
    assert "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16" in result.stdout


def test_ptx_takes_a_file_with_one_kernel() -> None:
    assert ".entry vector_add" in run("inspect", "ptx", EXAMPLES / "vector_add.py").stdout


def test_resources_tells_registers_and_spills(ptxas: None) -> None:
    result = run("inspect", "resources", WALKTHROUGH, *SIZES, "--json")
    known = json.loads(result.stdout)
    assert known["compiler"].startswith("ptxas 13.0")
    assert known["arch"] == "sm_90a"
    assert known["entries"]["gemm"]["spill_stores"] == 0
    assert 0 < known["entries"]["gemm"]["registers"] <= 255


@pytest.fixture
def ptxas() -> None:
    from warploom.driver import toolchain

    if toolchain.ptxas() is None:
        pytest.skip("no ptxas here")


def test_sass_prints_machine_code_or_says_which_tool_is_missing(ptxas: None) -> None:
    from warploom.driver import toolchain

    result = run("inspect", "sass", WALKTHROUGH, *SIZES)
    if toolchain.find("nvdisasm") or toolchain.find("cuobjdump"):
        assert result.exit_code == 0
        assert "HGMMA" in result.stdout
    else:
        assert result.exit_code == 1
        assert "needs nvdisasm or cuobjdump" in result.stderr


def test_info_as_json_has_machines_tools_and_versions() -> None:
    known = json.loads(run("info", "--json").stdout)
    assert {"machines", "toolchain", "versions", "instructions", "settings"} <= set(known)
    assert known["versions"]["numpy"] != "not installed"


def test_info_says_what_each_missing_disassembler_means(monkeypatch: pytest.MonkeyPatch) -> None:
    from warploom.cli import info
    from warploom.driver import toolchain

    monkeypatch.setattr(toolchain, "find", lambda name: None)
    assert "pip install nvidia-cuda-nvdisasm" in info.tool("nvdisasm")
    assert "trace" not in info.tool("cuobjdump"), "it names no lines, so it cannot replace nvdisasm there"


def test_info_unsupported_lists_rows_of_the_table_that_the_emulator_refuses() -> None:
    from warploom.emulator.ops import unsupported
    from warploom.isa.instructions import table

    known = json.loads(run("info", "--unsupported", "--json").stdout)
    assert known["unsupported"] == list(unsupported(table.keys()))
    assert known["rows"] == len(table.keys())
    assert run("info", "--unsupported").stdout.splitlines()[:-1] == known["unsupported"]


def test_demo_reports_the_emulated_kernel() -> None:
    known = json.loads(run("demo", "--json").stdout)
    emulated = known["runs"][0]
    assert emulated["machine"] == "emulator"
    assert emulated["shape"] == [128, 128, 128]
    assert emulated["error"] < 1e-6
    # 2 x 2 CTAs, 128 / 16 steps each
    assert emulated["counters"]["wgmma"] == 2 * 2 * 8
    assert emulated["counters"]["global_store_bytes"] == 128 * 128 * 4


def test_demo_speaks_plainly_where_there_is_no_terminal() -> None:
    result = run("demo")
    assert result.exit_code == 0
    for said in ("relative error", "registers", "wgmma", "What to look at next"):
        assert said in result.stdout
    assert "\x1b" not in result.stdout
    assert result.stderr == ""


# -- check -------------------------------------------------------------------------------------------------------


def test_a_correct_text_under_its_launch_has_no_findings(text: Path) -> None:
    describe(text)
    result = run("check", text, "--json")
    known = json.loads(result.stdout)
    assert result.exit_code == 0
    assert known["ok"] and known["kernels"][0]["mode"] == "emulated"
    assert known["kernels"][0]["counters"]["global_store_bytes"] == 60 * 4


def test_an_access_out_of_bounds_is_a_finding_and_exit_code_1(text: Path) -> None:
    describe(text, n=61)
    result = run("check", text, "--json")
    (kernel,) = json.loads(result.stdout)["kernels"]
    (finding,) = kernel["findings"]
    assert result.exit_code == 1
    assert finding["rule"] == "OutOfBoundsError"
    assert "copy.ptx:19" in finding["locations"][0]
    assert kernel["counters"]["global_store_bytes"] == 32 * 4  # of the first warp, before the error in the second
    assert kernel["launch"]["grid"] == [1, 1, 1]


def test_without_a_launch_the_static_rules_run_and_the_report_says_so(text: Path) -> None:
    result = run("check", text)
    assert result.exit_code == 0
    assert "static only: no launch given" in result.stdout
    text.write_text(COPY.replace("add.u64 %rd1, %rd1, %rd3", "add.f32 %rd1, %rd1, %rd3"))
    result = run("check", text)
    assert result.exit_code == 1
    assert "VerificationError" in result.stdout and "copy.ptx: not emulated; 1 error" in result.stdout


def test_init_writes_a_description_that_can_be_read_and_is_never_overwritten(text: Path) -> None:
    assert run("check", text, "--init").exit_code == 0
    written = text.with_suffix(".launch.toml")
    template = written.read_text()
    assert [line for line in template.splitlines() if line.startswith("name")] == [
        'name = "from"', 'name = "to"', 'name = "n"',
    ]  # fmt: skip
    assert json.loads(run("check", text, "--json").stdout)["kernels"][0]["mode"] == "emulated"
    again = run("check", text, "--init")
    assert again.exit_code == 2
    assert written.read_text() == template


def test_a_python_file_is_checked_with_its_examples() -> None:
    result = run("check", EXAMPLES / "vector_add.py", "--json", "--schedule", "random", "--seed", "5")
    known = json.loads(result.stdout)
    assert result.exit_code == 0
    assert [one["mode"] for one in known["kernels"]] == ["emulated", "emulated"]
    assert (known["schedule"], known["seed"]) == ("random", 5)


def test_a_wrong_result_of_an_example_is_a_finding(tmp_path: Path) -> None:
    wrong = (EXAMPLES / "vector_add.py").read_text().replace("ptx.addr(a + offset)) + ", "ptx.addr(a + offset)) - ")
    path = tmp_path / "vector_subtract.py"
    path.write_text(wrong)
    result = run("check", path, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["kernels"][0]["findings"][0]["rule"] == "wrong-result"


def test_a_wrong_result_names_the_line_of_the_example(tmp_path: Path) -> None:
    path = tmp_path / "vector_add.py"
    path.write_text((EXAMPLES / "vector_add.py").read_text().replace("a + b)", "a - b)"))
    (line,) = [n for n, text in enumerate(path.read_text().splitlines(), 1) if "assert_array_equal" in text]
    assert f"vector_add.py:{line}" in run("check", path).stdout


def test_what_a_file_prints_does_not_get_into_the_answer(tmp_path: Path) -> None:
    path = tmp_path / "noisy.py"
    path.write_text((EXAMPLES / "vector_add.py").read_text() + '\nprint("hello")\n')
    assert json.loads(run("check", path, "--json").stdout)["ok"]
    assert "hello" not in run("inspect", "ptx", path).stdout


def test_an_error_in_a_declaration_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "odd.py"
    path.write_text(
        "from warploom import Tile\nfrom warploom.types import bf16\n"
        'Tile.wgmma_b("K", "N", bf16, tile_k=32, tile_n=20)\n'
    )
    assert "odd.py:3" in run("check", path).stderr


def several(text: Path) -> None:
    """Make it a text with two kernels, `copy` and `other`."""
    text.write_text(COPY + COPY[COPY.index(".visible") :].replace("copy", "other"))


def modes(text: Path, *more: str) -> dict[str, str]:
    """How each kernel of a text was checked."""
    return {one["kernel"]: one["mode"] for one in json.loads(run("check", text, "--json", *more).stdout)["kernels"]}


def test_of_a_text_with_several_kernels_each_has_its_own_description_and_is_checked(text: Path) -> None:
    several(text)
    assert run("check", text, "--init").exit_code == 0
    assert {path.name for path in text.parent.glob("*.toml")} == {"copy.copy.launch.toml", "copy.other.launch.toml"}
    assert modes(text) == {"copy": "emulated", "other": "emulated"}
    assert modes(text.parent) == {"copy": "emulated", "other": "emulated"}, "of a folder, too"


def test_a_kernel_without_a_description_is_named(text: Path) -> None:
    several(text)
    assert run("check", f"{text}:other", "--init").exit_code == 0
    assert modes(text) == {"copy": "static", "other": "emulated"}
    said = run("check", text).stdout
    assert "copy: static only: no launch given" in said and "copy.ptx:copy --init" in said


def test_one_description_beside_a_text_with_several_kernels_is_of_the_kernel_it_names(text: Path) -> None:
    several(text)
    run("check", f"{text}:other", "--init", "--launch", text.with_suffix(".launch.toml"))
    assert modes(text) == {"copy": "static", "other": "emulated"}
    assert "describes another kernel" in run("check", f"{text}:copy").stderr


def test_a_syntax_error_in_a_text_with_several_kernels_is_said_once(text: Path) -> None:
    several(text)
    text.write_text(text.read_text().replace("ret;", "rett;", 1))
    result = run("check", text)
    assert result.exit_code == 1 and result.stdout.count("[VerificationError]") == 1


def test_forgotten_dynamic_shared_memory_is_named(text: Path) -> None:
    declared = ".address_size 64\n.extern .shared .align 16 .b8 dynamic[];\n"
    touched = "    st.shared.u32 [dynamic], %r2;\ndone:"
    text.write_text(COPY.replace(".address_size 64\n", declared).replace("done:", touched))
    run("check", text, "--init")
    description = text.with_suffix(".launch.toml")
    size = "dynamic_smem = 232448"  # the most that a CTA of sm_90 can have
    assert size in description.read_text()
    assert run("check", text).exit_code == 0
    description.write_text(description.read_text().replace(size, "dynamic_smem = 0"))
    result = run("check", text)
    assert result.exit_code == 1 and "error[OutOfBoundsError]" in result.stdout and "dynamic_smem" in result.stdout


def test_python_without_the_packages_gets_a_sentence() -> None:
    source = Path(__file__).resolve().parents[2] / "src"
    code = f"import sys; sys.path.insert(0, {str(source)!r}); import warploom.cli; warploom.cli.main()"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "lacks typer" in done.stderr and "make demo" in done.stderr and "Traceback" not in done.stderr


# -- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("inspect", "ptx", "no.such.module:gemm"), "no.such.module"),
        (("inspect", "ptx", "no/such/file.py:gemm"), "does not exist"),
        (("inspect", "ptx", "warploom.kernels.walkthrough:no_such_kernel"), "build_gemm_m64n64"),
        (("inspect", "ptx", "warploom.kernels.walkthrough"), "name one"),
        (("inspect", "ptx", WALKTHROUGH), "M=128"),
        (("inspect", "ptx", WALKTHROUGH, "M=64", "N=64", "K=0"), "K = 0"),
        (("inspect", "ptx", WALKTHROUGH, "64"), "NAME=VALUE"),
        (("inspect", "ptx", "warploom.types:bf16"), "neither a kernel"),
        (("check", "kernel.cu"), "FILE.py, FILE.ptx, a module or a folder"),
        (("check", "missing.ptx"), "cannot be read"),
        (("check", EXAMPLES / "vector_add.py", "--launch", "x.toml"), "PTX text"),
        (("check", EXAMPLES / "vector_add.py", "--schedule", "sometimes"), "pct, explore, exhaustive"),
        (("check", EXAMPLES / "vector_add.py", "--max-steps", "0"), "max_steps"),
    ],
)
def test_a_wrong_call_gets_a_sentence_and_exit_code_2(arguments: tuple[object, ...], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""


def test_a_file_that_python_refuses_gets_a_sentence_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("import warploom\n\nkernel = undefined_name\n")
    result = run("inspect", "ptx", path)
    assert result.exit_code == 2
    assert "undefined_name" in result.stderr
    assert "broken.py:3" in result.stderr


def test_half_a_text_is_a_finding_with_its_line(text: Path) -> None:
    text.write_text(COPY[: len(COPY) // 2])
    result = run("check", text, "--json")
    (finding,) = json.loads(result.stdout)["kernels"][0]["findings"]
    assert result.exit_code == 1
    assert finding["rule"] == "PtxSyntaxError"
    assert "copy.ptx:" in finding["locations"][0]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("grid = [1]", "gird = [1]", "gird"),
        ("grid = [1]", "grid = [-1]", "not a size"),
        ("grid = [1]", "grid = [", "not TOML"),
        ('name = "from"', 'name = "form"', '`as = "form"`'),
        ('dtype = "f32"', 'dtype = "float33"', "float33"),
        ('fill = "normal"', 'fill = "random"', "unknown fill"),
        ('kind = "scalar"', 'kind = "skalar"', "skalar"),
        ("value = 60", "value = -60", "does not fit"),
        ("value = 60", 'value = "60"', "of the wrong kind"),
        ("value = 60", "", "needs a value"),
        ('[[parameter]]\nkind = "scalar"\nvalue = 60', "", "the number of parameters in the launch"),
    ],
)
def test_a_bad_launch_description_gets_a_sentence(text: Path, old: str, new: str, said: str) -> None:
    description = describe(text)
    assert old in description.read_text()
    description.write_text(description.read_text().replace(old, new))
    result = run("check", text)
    assert result.exit_code == 2, result.output
    assert said in result.stderr


@pytest.mark.parametrize(
    ("example", "said"),
    [
        ("raise KeyError('mine')", "KeyError: 'mine'"),
        ("return None", "example() returns nothing"),
        ("yield nothing", "(kernel, arguments, check)"),
        ("yield nothing, (), lambda: 1 / 0", "ZeroDivisionError"),
        ("yield nothing, (1, 2), None", "takes 0 arguments"),
    ],
)
def test_an_example_that_fails_gets_a_sentence_and_no_traceback(tmp_path: Path, example: str, said: str) -> None:
    path = tmp_path / "kernels.py"
    head = "from warploom import kernel\n\n@kernel(grid=(1,), block=32)\ndef nothing(): pass\n\n"
    path.write_text(f"{head}def example():\n    {example}\n")
    result = run("check", path)
    assert (result.exit_code, result.stdout) == (2, "") and said in result.stderr


def test_the_seconds_of_explore_are_those_of_all_runs(text: Path) -> None:
    run("check", text, "--init")
    (one,) = json.loads(run("check", text, "--json", "--schedule", "lazy").stdout)["kernels"]
    (all_of_them,) = json.loads(run("check", text, "--json", "--schedule", "explore").stdout)["kernels"]
    assert len(all_of_them["explored"]) > 3
    assert all_of_them["seconds"] > 2 * one["seconds"]


def test_a_text_of_a_newer_ptx_is_checked_with_a_note(text: Path) -> None:
    text.write_text(re.sub(r"\.version [\d.]+", ".version 9.99", text.read_text()))
    result = run("check", text)
    assert result.exit_code == 0
    assert "9.99 is newer" in result.stdout
