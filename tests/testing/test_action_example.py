"""The example for GitHub Actions: its command is run on its folder, and finds what is broken there."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests import command_line
from warploom.runtime import emulate, launch_file, program_of
from warploom.testing import check_text

PASS = "setp.eq.u32 %again, 0, 0;"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "github-action"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository that has the example's folder."""
    shutil.copytree(EXAMPLE / "kernels", tmp_path / "kernels")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command() -> list[str]:
    """The arguments of the workflow's own command."""
    workflow = (EXAMPLE / "workflows" / "check-ptx.yml").read_text()
    (found,) = re.findall(r"run: warploom (.*)", workflow)
    return found.split()


def test_the_command_of_the_workflow_passes_and_writes_sarif(repository: Path) -> None:
    result = command_line.run(*command())
    assert result.exit_code == 0, result.output
    assert "2 texts: 0 with errors, 0 without a launch description" in result.stdout
    assert json.loads((repository / "warploom.sarif").read_text())["runs"][0]["results"] == []


@pytest.mark.full
def test_every_text_has_no_finding_at_all_and_every_order_passes() -> None:
    for path in sorted((EXAMPLE / "kernels").glob("*.ptx")):
        assert check_text(path).findings == []
    checked = check_text(EXAMPLE / "kernels" / "ring.ptx", schedule="exhaustive")
    assert checked.interleavings is not None and checked.interleavings.complete and checked.ok


@pytest.mark.parametrize(
    ("line", "instead", "rule"),
    [
        ("mbarrier.arrive.shared::cta.b64 _, [%empty];", "", "DeadlockError"),
        ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%full], 128;", "", "byte-count-mismatch"),
        ("mbarrier.try_wait.parity.shared::cta.b64 %again, [%empty], %parity;", PASS, "surplus-arrival"),
        ("mbarrier.try_wait.parity.shared::cta.b64 %again, [%full], %parity;", PASS, "copy-not-waited"),
        ("bar.sync 0;", "", "mbarrier-init-not-visible"),
    ],
)
def test_a_line_taken_out_of_the_ring_is_found(repository: Path, line: str, instead: str, rule: str) -> None:
    path = repository / "kernels" / "ring.ptx"
    text = path.read_text()
    assert text.count(line) == 1
    path.write_text(text.replace(line, instead))
    result = command_line.run(*command(), "--json")
    assert result.exit_code == 1
    assert rule in {one["rule"] for kernel in json.loads(result.stdout)["kernels"] for one in kernel["findings"]}


def test_without_its_proxy_fence_the_ring_gets_a_warning_and_passes(repository: Path) -> None:
    path = repository / "kernels" / "ring.ptx"
    text = path.read_text()
    (fence,) = [line for line in text.splitlines() if "fence.proxy" in line]
    path.write_text(text.replace(fence, ""))
    result = command_line.run(*command(), "--json")
    (finding,) = [one for kernel in json.loads(result.stdout)["kernels"] for one in kernel["findings"]]
    assert (result.exit_code, finding["rule"], finding["severity"]) == (
        0, "generic-access-before-async-write", "warning",
    )  # fmt: skip


def test_the_workflow_takes_the_package_from_the_address_it_names() -> None:
    """Never by its name: it is on no index, so anybody could put something there."""
    workflow = (EXAMPLE / "workflows" / "check-ptx.yml").read_text()
    assert re.findall(r"run: pip install (.*)", workflow) == ['"$WARPLOOM_SOURCE"']
    assert re.search(r"^  WARPLOOM_SOURCE: git\+https://", workflow, re.MULTILINE)


def test_the_kernels_compute_what_they_say() -> None:
    folder = EXAMPLE / "kernels"
    described = launch_file.read(folder / "ring.launch.toml")
    program = described.program((folder / "ring.ptx").read_text())
    x, sums, pieces = described.arguments(program)
    emulate(program, x, sums, pieces)
    assert (sums == x.sum(axis=0)).all()
    x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
    emulate(program_of(folder / "saxpy.ptx"), x, y, np.float32(2), np.uint32(1000), grid=(8, 1, 1), block=(128, 1, 1))
    assert (y == 2 * x + 1).all()
