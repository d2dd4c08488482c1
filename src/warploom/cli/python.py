"""`python`: a PTX text as a kernel in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import ArgumentError
from . import find
from .output import say


def python(
    target: Annotated[
        str, typer.Argument(metavar="FILE.ptx|MODULE:KERNEL", help="FILE.ptx:KERNEL selects one of several kernels.")
    ],
    out: Annotated[Path | None, typer.Option(metavar="FILE.py", help="Write to this file instead of printing.")] = None,
) -> None:
    """Print a PTX text as a kernel in Python that produces equivalent PTX.

    Example: warploom python dump/gemm.ptx --out gemm.py
    """
    from ..lang.decompile import to_python

    place, name = find.split(target)
    if place.endswith(".ptx"):
        path = Path(place)
        if not path.is_file():
            raise ArgumentError("the file does not exist", got=place)
        written = to_python(path.read_text(), name or None, path.name)
    else:
        program = find.program(target)
        written = to_python(program.text, program.entry, target)
    if out is None:
        print(written, end="")
        return
    out.write_text(written)
    say(f"wrote {out}")
