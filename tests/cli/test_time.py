"""`warploom time --predict`: its options, and its errors."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.command_line import run
from warploom.cli.still import still

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

MEETING = """
import numpy as np
from warploom import Tile, kernel, ptx, reg
from warploom.types import u32


@kernel(in_specs=(Tile(1, u32),), out_specs=(Tile(1, u32),), grid=(2,), block=32, arch="sm_90a")
def meeting(Count, Out):
    count, out = ptx.global_ptrs(Count, Out)
    with ptx.if_(ptx.special.tid.x() == 0):
        ptx.atomic.add(ptx.addr(count), 1)
        seen = reg.scalar(u32, init=0)
        with ptx.while_(lambda: seen < 2):
            ptx.inst.ld.acquire.gpu.global_.u32(seen, ptx.addr(count))
        ptx.store(ptx.addr(out), seen)


def example():
    yield meeting, (np.zeros(1, np.uint32),), None
"""


def test_a_barrier_of_the_grid_is_predicted_with_all_its_clusters(tmp_path: Path) -> None:
    path = tmp_path / "meeting.py"
    path.write_text(MEETING)
    alone = run("time", path, "--predict")
    assert alone.exit_code == 1 and "[deadlock]" in alone.stderr and "--clusters 2" in alone.stderr
    (found,) = json.loads(run("time", path, "--predict", "--clusters", 2, "--json").stdout)
    assert found["us"] > 0
    assert run("time", path, "--predict", "--clusters", 0).exit_code == 2
    assert "--clusters 2" in run("trace", path, "--no-sass").stdout


def test_who_waits_is_told_that_it_is_still_running(capsys: pytest.CaptureFixture[str]) -> None:
    with still("recording a kernel", every_s=0.01):
        time.sleep(0.1)
    told = capsys.readouterr().err.splitlines()
    assert told and all(line.startswith("warploom: still recording a kernel, ") for line in told)
    time.sleep(0.05)
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        ("--predict", "--against", "numpy:add"),
        ("--predict", "--protocol", "alone"),
        ("--predict", "--seconds", 1),
        ("--predict", "--launch", "graph"),
        ("--predict", "--protocol", "unknown"),
        ("--protocol", "unknown"),
        ("--clusters", 2),
    ],
)
def test_options_that_do_not_apply_and_unknown_protocols_are_refused(options: tuple[object, ...]) -> None:
    refused = run("time", EXAMPLES / "vector_add.py", *options)
    assert refused.exit_code == 2 and str(options[-2]).lstrip("-") in refused.stderr and not refused.stdout


def test_a_file_that_is_neither_python_nor_ptx_is_told_of_both(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<html>")
    refused = run("time", page, "--predict")
    assert refused.exit_code == 2 and "FILE.py" in refused.stderr and ".ptx" in refused.stderr


@pytest.mark.parametrize("command", [("time", "--predict"), ("time",), ("trace",)])
def test_a_name_that_a_file_does_not_have_is_refused_as_by_check(command: tuple[str, ...]) -> None:
    target = f"{EXAMPLES / 'vector_add.py'}:no_kernel"
    refused = run(command[0], target, *command[1:])
    assert refused.exit_code == 2 and "no_kernel" in refused.stderr and refused.stderr == run("check", target).stderr


SEVERAL = """
import numpy as np
from examples.vector_add import vector_add


def example():
    for size in (128, 256):
        yield vector_add, (np.zeros(size, np.float32),) * 2, None
"""


def test_several_launches_of_a_kernel_are_told_apart_by_shapes(tmp_path: Path) -> None:
    path = tmp_path / "several.py"
    path.write_text(SEVERAL)
    said = run("time", path, "--predict").stdout
    assert "f32 (128,)" in said and "f32 (256,)" in said
    told = json.loads(run("time", path, "--predict", "--json").stdout)
    assert [one["arguments"] for one in told] == ["f32 (128,), f32 (128,)", "f32 (256,), f32 (256,)"]
    alone = tmp_path / "alone.py"
    alone.write_text(SEVERAL.replace("128, 256", "128,"))
    assert "f32 (" not in run("time", alone, "--predict").stdout
    traced = run("trace", path, EXAMPLES / "vector_add.py", "--no-sass").stdout
    assert traced.count("vector_add of f32 (") == 2
