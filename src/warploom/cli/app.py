"""The command line as a whole: its commands, and errors printed as text."""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import suppress
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .. import errors
from ..errors import ArgumentError, WarploomError
from ..version import __version__
from . import bench, check, demo, explain, info, inspect, lab, ladder, lsp, python, rules, time, trace, tune, warm
from .output import exit_code, say, say_error

RENAMED = {
    "ptx": "warploom inspect ptx",
    "sass": "warploom inspect sass",
    "resources": "warploom inspect resources",
    "evidence": "python -m benchmarks.status, in the repository",
}
"""Commands of earlier versions and their replacements."""


class Sentences(TyperGroup):
    """A command group that turns an error of the package into its text and an exit code."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in RENAMED:
            now = RENAMED[args[0]]
            raise ArgumentError(
                f"`warploom {args[0]}` has a new name", expected=now, got=f"warploom {args[0]}", code="renamed"
            )
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            if not sys.stdout.closed:  # a language server closes it at its exit
                sys.stdout.flush()
            return result
        except BrokenPipeError:  # the reader has enough
            raise
        except OSError as error:
            failed = ArgumentError(
                f"the operating system refuses a file: {error.strerror or error}", code="file",
                got=error.filename or "the output",
            )  # fmt: skip
            say_error(failed)
            _drop_output()
            raise typer.Exit(exit_code(failed)) from None
        except WarploomError as error:
            say_error(error)
            raise typer.Exit(exit_code(error)) from None


def _drop_output() -> None:
    """Let what stdout still buffers go nowhere: on a full disk the interpreter would fail again at its end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_in_full = warnings.formatwarning


def _brief(message: Warning | str, category: type[Warning], *place: Any, **line: Any) -> str:
    """A warning of this package without the line of code that issued it."""
    if category.__module__ == errors.__name__:
        return f"warploom: {category.__name__}: {message}\n"
    return _in_full(message, category, *place, **line)


app = typer.Typer(
    name="warploom",
    cls=Sentences,
    help="GPU kernels at PTX level, written in Python: emulated on a CPU, run as the same text on a GPU.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(asked: bool) -> None:
    if asked:
        say(f"warploom {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


app.command("demo")(demo.demo)
app.command("info")(info.info)
app.add_typer(inspect.app, name="inspect")
app.command("check")(check.check)
app.command("rules")(rules.rules)
app.command("bench")(bench.bench)
app.command("ladder")(ladder.ladder)
app.command("explain")(explain.explain)
app.command("tune")(tune.tune)
app.command("warm")(warm.warm)
app.command("time")(time.time)
app.command("trace")(trace.trace)
app.command("lsp")(lsp.lsp)
app.command("lab")(lab.lab)
app.command("python")(python.python)


def run() -> None:
    """Parse the command line and run the command."""
    warnings.formatwarning = _brief
    app(prog_name="warploom")
