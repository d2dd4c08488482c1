"""The output of `make`: a line before each step, a sign that a step is running, and pip's progress at a terminal."""

from __future__ import annotations

import importlib.util
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")


def install(tmp_path: Path, goal: str, **streams: int) -> subprocess.CompletedProcess[str]:
    """`make` of an environment whose pip only says what it was told."""
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    command = ["make", f"VENV={venv}", "PIP=echo pip", f"{venv}/{goal}"]
    return subprocess.run(command, cwd=ROOT, text=True, check=False, **({"stdout": subprocess.PIPE} | streams))


@pytest.mark.parametrize("goal", [".base", ".dev", ".all"])
def test_without_a_terminal_pip_is_silent(tmp_path: Path, goal: str) -> None:
    done = install(tmp_path, goal)
    said = [line for line in done.stdout.splitlines() if line.startswith("pip ")]
    assert done.returncode == 0 and said
    assert all(line.startswith("pip -qq install ") for line in said)


def test_at_a_terminal_pip_shows_its_progress(tmp_path: Path) -> None:
    ours, terminal = pty.openpty()
    done = install(tmp_path, ".base", stdout=terminal)
    os.close(terminal)
    said = os.read(ours, 65536).decode().splitlines()
    os.close(ours)
    assert done.returncode == 0
    assert [line for line in said if line.startswith("pip ")][0].startswith("pip install -e ")


@pytest.mark.parametrize("target", ["lint", "test", "test-all", "test-slow", "docs"])
def test_a_target_says_what_it_does_before_it_does_it(target: str) -> None:
    (recipe,) = re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    said = [line.startswith("\t@echo") for line in recipe.splitlines()]
    slow = ["$(ALIVE)" in line or "$(PYTEST)" in line for line in recipe.splitlines()]
    assert said[0] and all(before for before, waits in zip(said, slow[1:], strict=False) if waits)


def test_without_a_terminal_a_step_that_takes_long_says_that_it_is_running(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = importlib.util.spec_from_file_location("alive", ROOT / "tools" / "alive.py")
    alive = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(alive)
    assert alive.EVERY_S < 60
    monkeypatch.setattr(alive, "EVERY_S", 0.1)
    assert alive.main([sys.executable, "-m", "timeit", "-n1", "-r1", "-s", "import time", "time.sleep(0.5)"]) == 0
    said = capfd.readouterr().out
    assert said.count("timeit is still running") >= 2
    assert alive.main([sys.executable, "-c", "raise SystemExit(3)"]) == 3
