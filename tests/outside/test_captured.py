"""A CUDA program on the mock runtime: its launches are judged by the sanitizer, its memory by itself."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.foreign.compile_cuda import find_nvcc
from tests.outside import captured
from tests.outside.captured_launch import Launch

SOURCE = Path(__file__).with_name("captured_program.cu")


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_nvcc() is None or shutil.which("g++") is None:
        pytest.skip("needs nvcc and g++")
    return captured.build(tmp_path_factory.mktemp("runtime"))


@pytest.mark.slow
@pytest.mark.parametrize(("bug", "wrong", "rule"), [(0, False, None), (1, True, "copy-not-waited"), (2, True, None)])
def test_a_program_judges_what_the_emulator_made(
    bug: int, wrong: bool, rule: str | None, runtime: Path, tmp_path: Path
) -> None:
    program, text = captured.compiled(SOURCE, "90a", runtime, tmp_path, options=[f"-DBUG={bug}"])
    found = captured.run(
        program, [text], ["word"], runtime=runtime, folder=tmp_path / "launches", only="add_one",
        schedules="lazy:0 starve:2",
    )  # fmt: skip
    assert f"clusters of 2, {2048 if wrong else 0} wrong, argument word" in found.output
    assert found.status == wrong and found.steady
    assert [(row["launch"], row["schedule"]) for row in found.rows] == [
        ("L000", "eager 0"), ("L001", "lazy 0"), ("L001", "starve 2"),
    ]  # fmt: skip
    assert found.of("errors") == ({rule} if rule else set())


def test_sizes_of_parameters() -> None:
    text = ".entry a(\n.param .u64 .ptr .align 1 a_0,\n.param .align 64 .b8 a_1[896],\n.param .f32 a_2\n)\n.entry b()\n"
    assert captured.signatures(text) == "a 8 896 4\nb\n"


def test_the_gpu_is_that_of_the_latest_target() -> None:
    assert captured.capability([".version 8.7\n.target sm_90a\n", ".version 8.7\n.target sm_100a, debug\n"]) == "100"


def test_what_follows_two_dashes_is_the_programs() -> None:
    given = captured.told(["prog", "--ptx", "a.ptx", "b.ptx", "--sms", "8", "--", "--m=256", "--sms", "9"])
    assert given.program == Path("prog") and given.ptx == [Path("a.ptx"), Path("b.ptx")] and given.sms == 8
    assert given.arguments == ["--m=256", "--sms", "9"]
    assert captured.told(["prog"]).arguments == []


def test_a_launch_that_runs_again_has_the_variables_that_it_had(tmp_path: Path) -> None:
    """Those of earlier launches stand in the memory, those of its own and of later ones in the text."""
    for name in ("L000", "L001"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "launch.txt").write_text("entry k\nvariable 4096 0 table\nbuffer 4096 8\n")
        (tmp_path / name / "memory.bin").write_bytes(bytes(8))
    (tmp_path / "variables").write_text("L000 table\nL001 table\n")
    first, second = (Launch.read(tmp_path / name) for name in ("L000", "L001"))
    assert (first.variables, second.variables) == ({4096: ("table", False)}, {4096: ("table", True)})
