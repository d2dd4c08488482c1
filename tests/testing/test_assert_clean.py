"""`assert_clean`, alone and as a fixture of the pytest plugin."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.errors import refused
from tests.testing.texts import bad, good, write
from warploom.errors import ArgumentError
from warploom.kernels import walkthrough
from warploom.testing import assert_clean

DATA = np.zeros(2048, np.uint32)
LAUNCH = {"grid": (1, 1, 1), "block": (128, 1, 1)}


def test_a_clean_kernel_passes_and_gives_its_counters() -> None:
    a, b = (np.ones(shape, ml_dtypes.bfloat16) for shape in ((64, 32), (32, 64)))
    checked = assert_clean(walkthrough.build_gemm_m64n64(64, 64, 32), a, b, explore=True)
    assert checked.ok and len(checked.explored) > 1 and checked.counters["wgmma"] > 0


def test_a_finding_fails_with_the_whole_report_and_how_to_see_it_again() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_clean(bad(), DATA, **LAUNCH)
    said = str(caught.value)
    assert "error[generic-write-before-async-read]" in said
    assert "cp.async.bulk.global.shared::cta.bulk_group [%data], [tile], 512" in said  # the line of the text itself
    assert 'to reproduce it: schedule="lazy", seed=0' in said


def test_a_rule_can_be_allowed_and_milder_findings_can_be_made_to_fail() -> None:
    assert_clean(bad(), DATA, allow=("generic-write-before-async-read",), **LAUNCH)
    by_all = "st.shared.u32 [tile+2048], 7;\n"
    text = good().replace("setp.eq.u32 %first, %idx, 0;", "setp.eq.u32 %first, %idx, 0;\n" + by_all)
    assert_clean(text, DATA, **LAUNCH)
    with pytest.raises(AssertionError, match=r"warning\[same-value-race\]"):
        assert_clean(text, DATA, least="warning", **LAUNCH)


def test_a_wrong_call_is_no_failure_of_the_kernel() -> None:
    with pytest.raises(ArgumentError):
        assert_clean(good(), DATA, DATA, **LAUNCH)
    with refused("unknown-name"):
        assert_clean(good(), DATA, least="hint", **LAUNCH)


# -- the plugin --------------------------------------------------------------------------------------------------


def pytest_run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """pytest in a process of its own, with this plugin and no other."""
    environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": ":".join(sys.path), "PATH": "",
                   "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip
    command = [sys.executable, "-m", "pytest", "-q", "-p", "warploom.testing.plugin", *options, "."]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)


def test_launch_descriptions_are_collected_as_tests(tmp_path: Path) -> None:
    write(tmp_path, "good", good())
    write(tmp_path, "bad", bad())
    done = pytest_run(tmp_path, "--warploom-check")
    assert "1 failed, 1 passed" in done.stdout
    assert "error[generic-write-before-async-read]" in done.stdout and "Traceback" not in done.stdout
    assert pytest_run(tmp_path).returncode == 5  # nothing is collected unasked


@pytest.mark.full
def test_the_fixture_explores_where_the_command_line_says_so(tmp_path: Path) -> None:
    path = write(tmp_path, "good", good(), launch=None)
    (tmp_path / "test_it.py").write_text(
        "import numpy as np\n\ndef test_it(assert_clean):\n"
        f"    checked = assert_clean({str(path)!r}, np.zeros(2048, np.uint32), grid=(1, 1, 1), block=(128, 1, 1))\n"
        "    assert len(checked.explored) == EXPECTED\n"
    )
    template = (tmp_path / "test_it.py").read_text()
    for options, count in ((("--warploom-explore",), "8"), ((), "0")):
        (tmp_path / "test_it.py").write_text(template.replace("EXPECTED", count))
        done = pytest_run(tmp_path, *options)
        assert "1 passed" in done.stdout, done.stdout
