"""The driver's services for nvcc's kernels: formatted output, assertions, the barrier of a cooperative grid."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests import command_line
from tests.errors import refused
from tests.foreign.cuda_texts import run, text
from tests.sanitizer.running import SCHEDULES
from tests.foreign.compile_cuda import FOLDER
from warploom.cli.app import app
from warploom.errors import EmulationError
from warploom.runtime import emulate

PRINTED = "thread 0:   +12|7   |0002.500|ff|-5000000000|k|%|0.2\nthread 1:    -3|7   |0002.500|ff|-5000000000|k|%|0.2\n"
TALK = f"""
entry = "talks"
grid = [1]
block = [32]
[[parameter]]
kind = "buffer"
dtype = "s32"
values = {[12, -3, *30 * [0]]}
"""


def test_printf_prints_each_thread_s_line_once() -> None:
    x = np.array([12, -3, *30 * [0]], np.int32)
    assert "".join(run("system", "sm_90a", "talks", x).printed) == PRINTED
    report = emulate(text("system", "sm_90a"), x, entry="talks", grid=1, block=32, schedule="explore")
    assert "".join(report.printed) == PRINTED


def test_check_shows_what_was_printed(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "system_sm90a.ptx", tmp_path / "talks.ptx")
    (tmp_path / "talks.talks.launch.toml").write_text(TALK)
    said = command_line.run("check", str(tmp_path / "talks.ptx:talks")).stdout
    assert all(line in said for line in PRINTED.splitlines())
    result = command_line.run("check", str(tmp_path / "talks.ptx:talks"), "--json")
    assert "".join(json.loads(result.stdout)["kernels"][0]["printed"]) == PRINTED


def test_an_assertion_that_fails_says_which() -> None:
    x = np.array([*31 * [1], 0], np.int32)
    with pytest.raises(EmulationError) as error:
        emulate(text("system", "sm_90a"), x, entry="claims", grid=1, block=32)
    assert error.value.code == "emulation"
    assert "x[threadIdx.x] > 0" in error.value.what and "lane 31" in str(error.value)


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_a_grid_meets(schedule: str, seed: int) -> None:
    x, out = np.zeros(96, np.int32), np.zeros(96, np.int32)
    run("system", "sm_90a", "meets", x, out, grid=(3, 1, 1), schedule=schedule, seed=seed)
    assert out.tolist() == [3 * (95 - i) for i in range(96)]
    assert x.tolist() == np.roll(out, -7).tolist()


def test_a_read_of_a_texture_stops_only_the_kernel_that_reads_it(tmp_path: Path) -> None:
    out = np.zeros(32, np.float32)
    with refused("unsupported-instruction") as error:
        emulate(text("system", "sm_90a"), np.uint64(0), out, entry="looks_up", grid=1, block=32)
    assert "tex." in error.value.what and "not emulated" in error.value.hint
    shutil.copy(FOLDER / "system_sm90a.ptx", tmp_path / "system.ptx")
    result = command_line.run("check", str(tmp_path / "system.ptx"), "--json")
    assert {one["kernel"]: one["ok"] for one in json.loads(result.stdout)["kernels"]} == {
        "talks": True, "claims": True, "meets": True, "looks_up": True,
    }  # fmt: skip
