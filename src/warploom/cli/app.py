"""The command line as a whole: its commands, and errors that come out as sentences."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .. import __version__
from ..errors import WarploomError
from . import bench, check, demo, evidence, explain, info, ladder, look, rules, tune
from .output import exit_code, say, say_error


class Sentences(TyperGroup):
    """A command group in which an error of the package ends the command with its text and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except WarploomError as error:
            say_error(error)
            raise typer.Exit(exit_code(error)) from None


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
app.command("ptx")(look.ptx)
app.command("sass")(look.sass)
app.command("resources")(look.resources)
app.command("check")(check.check)
app.command("rules")(rules.rules)
app.command("bench")(bench.bench)
app.command("ladder")(ladder.ladder)
app.command("explain")(explain.explain)
app.command("evidence")(evidence.evidence)
app.command("tune")(tune.tune)


def run() -> None:
    """Read the command line and do it."""
    app(prog_name="warploom")
