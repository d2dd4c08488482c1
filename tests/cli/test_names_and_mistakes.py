"""What the command line says about a kernel's name, a launch description or a file that is not what it must be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import run

ENTRY = """
.visible .entry NAME(.param .u64 to)
{
    .reg .b64 %rd<2>;
    ld.param.u64 %rd0, [to];
    st.global.f32 [%rd0], 0f00000000;
    ret;
}
"""
NAMES = ("_Z4gemmIfEvPT_i", "_Z4gemmIiEvPT_i", "_ZN2ns4copyEPf")
SHOWN = ("gemm<float>", "gemm<int>", "ns::copy")
LAUNCH = """
grid = [1]
block = [1]
[[parameter]]
name = "to"
kind = "buffer"
dtype = "f32"
shape = [4]
fill = "zeros"
"""


def text(folder: Path, *names: str) -> Path:
    path = folder / "k.ptx"
    head = ".version 8.0\n.target sm_80\n.address_size 64\n"
    path.write_text(head + "".join(ENTRY.replace("NAME", name) for name in names))
    return path


@pytest.mark.parametrize("name, entry", [
    ("gemm<float>", NAMES[0]), (NAMES[1], NAMES[1]), ("ns::copy", NAMES[2]), ("copy", NAMES[2]),
])  # fmt: skip
def test_a_kernel_is_found_by_its_name_in_the_source(tmp_path: Path, name: str, entry: str) -> None:
    path = text(tmp_path, *NAMES)
    assert run("check", f"{path}:{name}", "--init").exit_code == 0
    assert [one.name for one in tmp_path.glob("*.toml")] == [f"k.{entry}.launch.toml"]
    assert run("check", f"{path}:{name}").stdout.count("guessed-launch") >= 1  # it is that description that is read


def test_every_command_finds_it_so_and_names_it_so(tmp_path: Path) -> None:
    path = text(tmp_path, *NAMES)
    assert f"def {NAMES[2]}(" in run("python", f"{path}:ns::copy").stdout
    (tmp_path / f"k.{NAMES[2]}.launch.toml").write_text(LAUNCH)
    assert run("time", f"{path}:copy", "--predict").stdout.startswith("ns::copy: ")
    page = tmp_path / "copy.html"
    assert run("trace", f"{path}:copy", "--no-sass", "--html", page).stdout.startswith("ns::copy: ")
    assert "<title>ns::copy · warploom trace</title>" in page.read_text()


def test_a_trace_of_a_guessed_launch_says_so(tmp_path: Path) -> None:
    path = text(tmp_path, NAMES[2])
    assert run("check", path, "--init").exit_code == 0
    assert "k.launch.toml has guesses" in run("trace", path, "--no-sass").stdout
    (traced,) = json.loads(run("trace", path, "--no-sass", "--json").stdout)
    assert traced["guessed"].endswith("k.launch.toml")


def test_a_type_that_no_product_has_lists_those_that_they_have() -> None:
    result = run("explain", 64, 64, 64, "--dtype", "fp8")
    assert result.exit_code == 2 and "[argument-type]" in result.stderr
    assert "e4m3" in result.stderr and "pred" not in result.stderr


def test_the_list_of_commands_has_whole_sentences() -> None:
    listed = run("--help").stdout.partition("Commands:")[2]
    assert listed.count("\n") > 10 and "..." not in listed


def test_the_report_as_data_has_both_names(tmp_path: Path) -> None:
    kernels = json.loads(run("check", text(tmp_path, *NAMES), "--json").stdout)["kernels"]
    assert [(one["kernel"], one["name"]) for one in kernels] == list(zip(NAMES, SHOWN, strict=True))


def test_a_name_of_several_kernels_lists_them_and_no_other(tmp_path: Path) -> None:
    result = run("check", f"{text(tmp_path, *NAMES)}:gemm")
    assert result.exit_code == 2 and "[not-this-text]" in result.stderr
    assert all(name in result.stderr for name in NAMES[:2]) and NAMES[2] not in result.stderr


def test_an_unknown_name_gets_the_nearest(tmp_path: Path) -> None:
    result = run("check", f"{text(tmp_path, *NAMES)}:cpoy")
    assert result.exit_code == 2 and "did you mean copy" in result.stderr


@pytest.mark.parametrize("old, new, said", [
    ("[4]", '"N"', "shape = [128, 64]"), ("[4]", '["N"]', "shape = [128, 64]"), ("[4]", "4", "shape = [128, 64]"),
    ('"buffer"', '"bufer"', "did you mean buffer?"), ("fill", "fil", "did you mean fill"),
    ("block", "blok", "did you mean block?"), ('"zeros"', '"zeroes"', "did you mean zeros?"),
    ("[4]", "[200000000000]", "745.1 GiB"), ("[1]", "[0]", "grid"), ('"f32"', '"float99"', "float99"),
    ('fill = "zeros"', 'file = "no.npy"', "no.npy"),
])  # fmt: skip
def test_a_mistake_in_a_launch_description_is_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = text(tmp_path, "k")
    assert old in LAUNCH
    path.with_suffix(".launch.toml").write_text(LAUNCH.replace(old, new, 1))
    result = run("check", path)
    assert result.exit_code == 2 and said in result.stderr
    assert "[launch-description]" in result.stderr or "[launch-shape]" in result.stderr
    assert "k.launch.toml" in result.stderr, "the mistake is in this file"


@pytest.mark.parametrize("name, said", [
    ("a.cu", "nvcc -arch=sm_90a -lineinfo -ptx"), ("a.so", "cuobjdump -ptx"), ("a.cubin", "nvcc -ptx"),
    ("a.sass", "nvcc -ptx"),
])  # fmt: skip
def test_a_file_that_is_no_text_gets_the_way_to_one(tmp_path: Path, name: str, said: str) -> None:
    result = run("check", tmp_path / name)
    assert result.exit_code == 2 and "[argument]" in result.stderr and said in result.stderr


@pytest.mark.parametrize("command", [("python",), ("inspect", "resources"), ("check",)])
def test_an_error_in_a_text_names_its_file_and_line(tmp_path: Path, command: tuple[str, ...]) -> None:
    path = tmp_path / "k.ptx"
    path.write_text(".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n    mov.u32 %r0, 1;\n}\n")
    result = run(*command, path)
    assert result.exit_code and "k.ptx:6" in result.output
