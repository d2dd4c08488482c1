"""Run the command line in this process, as a user does. Its commands are built once for all tests."""

from __future__ import annotations

import functools
import io
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

import typer

from warploom.cli.app import app


@dataclass(frozen=True)
class Result:
    """What a command printed, and its exit code."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


@functools.cache
def _command() -> Any:
    return typer.main.get_command(app)


def run(*arguments: object) -> Result:
    """Run a command. An exception that is not an error of the package is not caught."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with redirect_stdout(stdout), redirect_stderr(stderr):
        try:
            _command().main([str(argument) for argument in arguments], prog_name="warploom")
        except SystemExit as end:
            code = end.code
    assert isinstance(code, int) and "Traceback" not in stderr.getvalue()
    return Result(code, stdout.getvalue(), stderr.getvalue())
