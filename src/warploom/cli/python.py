"""`python`: a PTX text as a kernel in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import find
from .output import say


def python(
    target: Annotated[
        str, typer.Argument(metavar="FILE.ptx|MODULE:KERNEL", help="FILE.ptx:KERNEL selects one of several kernels.")
    ],
    out: Annotated[Path | None, typer.Option(metavar="FILE.py", help="Write to this file instead of printing.")] = None,
) -> None:
    """Print a PTX text as a kernel in Python.

    The command traces that kernel and compares its PTX with the text.

    Example: warploom python dump/gemm.ptx --out gemm.py
    """
    from ..lab.evidence import writing
    from ..lang.decompile import to_python
    from ..runtime.program import read_text

    place, name = find.split(target)
    if place.endswith(".ptx"):
        path = Path(place)
        written = to_python(read_text(path), name or None, path.name)
    else:
        program = find.program(target)
        written = to_python(program.text, program.entry, target)
    if out is None:
        print(written, end="")
        return
    with writing(out):
        out.write_text(written, encoding="utf-8")
    say(f"wrote {out}")
