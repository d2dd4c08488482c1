"""What a command reads and writes: any encoding's mark and locale, and a sentence where the system refuses."""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner, Result

from tests.errors import refused
from warploom.cli import app as command
from warploom.driver import toolchain
from warploom.runtime import launch_file

SAXPY = Path("examples/github-action/kernels/saxpy.ptx")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command.app, [str(argument) for argument in arguments])


def test_a_byte_order_mark_and_other_line_ends_change_nothing(tmp_path):
    path = tmp_path / "a b.ptx"
    for source in (SAXPY, launch_file.beside(SAXPY)):
        target = tmp_path / source.name.replace("saxpy", "a b")
        target.write_bytes(b"\xef\xbb\xbf# \xce\xb1\r\n"[: None if target.suffix == ".toml" else 3])
        with target.open("ab") as file:
            file.write(source.read_bytes().replace(b"\n", b"\r\n"))
    found = run("check", path)
    assert (found.exit_code, "emulated, nothing found" in found.output) == (0, True)


@pytest.mark.parametrize("command", [("check",), ("python",), ("inspect", "ptx"), ("trace",)])
def test_a_binary_file_is_refused_as_no_text(tmp_path, command):
    path = tmp_path / "x.ptx"
    path.write_bytes(b"\xff\xfe\x00\x01")
    found = run(*command, path)
    assert found.exit_code == 2
    assert "[not-this-text]" in found.stderr


def test_a_file_that_cannot_be_written_is_refused(tmp_path):
    found = run("python", SAXPY, "--out", tmp_path / "missing" / "x.py")
    assert (found.exit_code, "[file]" in found.stderr) == (2, True)


def test_a_full_disk_below_a_command_is_a_sentence(monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("warploom.lang.decompile.to_python", full)
    found = run("python", SAXPY)
    assert (found.exit_code, "[file]" in found.stderr) == (2, True)
    monkeypatch.setattr(toolchain.tempfile, "TemporaryDirectory", full)
    with refused("toolchain"), toolchain.work_folder():
        pass


def test_a_language_server_that_closes_the_output_ends_normally(monkeypatch):
    output = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setitem(sys.modules, "warploom.editor.server", SimpleNamespace(serve=output.close))
    monkeypatch.setattr("warploom.editor.server", sys.modules["warploom.editor.server"], raising=False)
    monkeypatch.setattr(sys, "stdout", output)
    command.app(["lsp"], standalone_mode=False)
    assert output.closed


def test_a_file_that_ends_the_interpreter_is_refused(tmp_path):
    path = tmp_path / "script.py"
    path.write_text("import sys\nsys.exit(0)\n")
    found = run("check", path)
    assert (found.exit_code, "[python-error]" in found.stderr, "script.py:2" in found.stderr) == (2, True, True)
