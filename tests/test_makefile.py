"""What `make` shows while it installs: pip's own progress at a terminal, one line elsewhere."""

from __future__ import annotations

import os
import pty
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
