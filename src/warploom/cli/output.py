"""Output of the command: tables and JSON on stdout, errors as text on stderr."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..asm.demangle import readable
from ..errors import ArgumentError, ArgumentTypeError, EmulationError, SourceLocation, WarploomError

FINDINGS = 1
USAGE = 2
SEVERITY_STYLE = {"error": "bold red", "warning": "bold yellow", "performance": "bold cyan"}


def console(*, stderr: bool = False) -> Console:
    """A console for the current stdout or stderr; plain text if that is not a terminal."""
    return Console(stderr=stderr, highlight=False, soft_wrap=True)


def say(text: str = "") -> None:
    """Print a line of text, without markup."""
    console().print(text, markup=False)


def table(rows: Iterable[tuple[str, object]], title: str | None = None) -> None:
    """Print two columns: name, value. Lines are never broken, so that a command can be copied from them."""
    listed = list(rows)
    width = max((len(name) for name, _ in listed), default=0)
    out = console()
    if title:
        out.print(Text(title, style="bold"))
    for name, value in listed:
        out.print(Text.assemble(("  " + name.ljust(width), "cyan"), "  ", str(value)))


def say_table(made: Table, widest: str = "") -> None:
    """Print a table with columns; in a file or a pipe it is as wide as necessary.

    widest: the column that is omitted if the terminal is too narrow for all.
    """
    out = console()
    if not out.is_terminal:
        out = Console(highlight=False, width=400)
    elif widest and out.measure(made, options=out.options.update(width=10_000)).maximum > out.width:
        made.columns = [column for column in made.columns if column.header != widest]
        for at, column in enumerate(made.columns):
            column._index = at
    out.print(made)


def say_json(value: object) -> None:
    """Print one JSON document on stdout, unchanged, whatever the width of the terminal."""
    print(json.dumps(value, indent=1, default=plain))


def plain(value: Any) -> Any:
    """Convert values that JSON does not support."""
    if isinstance(value, (SourceLocation, Path)):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return str(value)


def say_error(error: WarploomError) -> None:
    """Print an error for people: its kind and text, without a traceback."""
    text = f"warploom: {type(error).__name__}[{error.code}]: {error}"
    if isinstance(error, EmulationError):  # others list the names of kernels as a text has them
        text = readable(text)
    console(stderr=True).print(text, markup=False, style="red")


def exit_code(error: WarploomError) -> int:
    """2 if the command was used incorrectly, 1 if its subject is wrong."""
    return USAGE if isinstance(error, (ArgumentError, ArgumentTypeError)) else FINDINGS
