"""Blackwell's primitives give their expected results in the emulator, and bit for bit on a GPU of sm_100."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.driver.mock_gpu import HERE, pretended

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "blackwell"


def _load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_load("primitives")
_load("more_primitives")
_load("layout_primitives")
MODULE = _load("moving_primitives")
primitives = pytest.mark.parametrize("primitive", MODULE.PRIMITIVES, ids=lambda primitive: primitive.name)


@primitives
@pytest.mark.parametrize("schedule", ["lazy", "random"])
def test_a_primitive_gives_what_it_must(primitive: Any, schedule: str):
    report = primitive.kernel.emulate(out=np.zeros_like(primitive.expected), schedule=schedule)
    np.testing.assert_array_equal(report.outputs[-1], primitive.expected)
    assert [finding.rule for finding in report.findings if finding.severity != "performance"] == []


@primitives
def test_it_assembles_without_a_spill(primitive: Any):
    assert primitive.kernel.resources().spill_stores == 0


def test_a_report_says_where_a_gpu_differs_from_the_prediction():
    check = _load("check")
    case = check.BY_NAME["02 one product"]
    got = MODULE.PRIMITIVES[1].expected.copy()
    assert check.compared(case, got) == {"outcome": "same bits", "elements": 1024}
    got[3, 5] = 48
    row = check.compared(case, got)
    assert (row["outcome"], row["different"], row["first"]) == ("different", 1, (3, 5))
    assert (row["predicted"], row["got"], row["largest_difference"]) == (16.0, 48.0, 32.0)


def test_the_check_leaves_out_a_case_for_another_gpu():
    check = _load("check")
    case = check.BY_NAME["25 load with maximum"]
    assert [check.suits(case, {"capability": each}) for each in ("10.0", "10.3")] == [False, True]
    assert check.suits(case, {})


@pytest.mark.full
def test_the_check_runs_each_case_in_a_process_and_writes_a_report(tmp_path: Path):
    check, out = _load("check"), tmp_path / "report.json"
    assert check.main(["--emulate", "--only", "06", "--out", str(out)]) == 0
    (row,) = json.loads(out.read_text())["rows"]
    assert (row["case"], row["outcome"]) == ("06 pair", "same bits") and len(row["ptx_sha256"]) == 64


@pytest.mark.full
@pytest.mark.usefixtures("needs_ptxas")
def test_an_owner_of_a_pretended_b200_gets_a_report_that_shows_the_one_case_that_differs(
    fake_driver: Path,
    tmp_path: Path,
):
    """The program as it is, with a driver that executes by the emulator and turns a bit after one kernel."""
    pytest.importorskip("torch")
    environment = pretended(
        fake_driver, tmp_path, path=(HERE / "site",), FAKE_CUDA_EXECUTES=1, FAKE_CUDA_CAPABILITY=100, FAKE_CUDA_SMS=12,
        FAKE_CUDA_BROKEN="replace",
    )  # fmt: skip
    command = [sys.executable, str(FOLDER / "check.py"), "--only", "ce", "--out", "report.json"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    rows = {row["case"]: row for row in report["rows"]}
    assert (report["machine"]["gpu"], report["machine"]["capability"]) == ("a pretended GPU", "10.0")
    assert {case: row["outcome"] for case, row in rows.items()} == {
        "08 replace": "different", "23 nothing to cancel": "same bits",
    }  # fmt: skip
    assert rows["08 replace"]["different"] == 1 and rows["08 replace"]["first"] == [127, 7]
    launched = [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("launch")]
    assert len(launched) == 2


@pytest.mark.gpu
@pytest.mark.blackwell
@primitives
def test_a_gpu_gives_the_same(primitive: Any):
    torch = pytest.importorskip("torch")
    if str(primitive.kernel.arch) != "sm_{}{}a".format(*torch.cuda.get_device_capability()):
        pytest.skip(f"the GPU is not one of {primitive.kernel.arch}")
    out = torch.zeros(primitive.expected.shape, dtype=getattr(torch, str(primitive.expected.dtype)), device="cuda")
    primitive.kernel(out=out)
    torch.cuda.synchronize()
    np.testing.assert_array_equal(out.cpu().numpy(), primitive.expected)
