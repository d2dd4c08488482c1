"""`lab`: interactive pages in a browser."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..errors import ArgumentError
from .output import say

HOST = "127.0.0.1"


def pages() -> dict[str, Path]:
    """The pages by name, with their files."""
    folder = Path(__file__).parents[1] / "lab" / "pages"
    return {path.stem: path for path in sorted(folder.glob("*.py")) if path.stem != "__init__"}


def lab(
    page: Annotated[str, typer.Argument(metavar="[PAGE]", help="One of the pages; all of them by default.")] = "",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Local port; a free one by default.")] = 0,
    headless: Annotated[bool, typer.Option("--headless", help="Open no browser.")] = False,
    edit: Annotated[bool, typer.Option("--edit", help="Open one page as a notebook, with its code.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="Print the names of the pages, and stop.")] = False,
) -> None:
    """Open interactive pages about roofs, waves, swizzles, banks.

    Also occupancy, pipelines, schedules and fragments.

    They run on this machine and are only served to it. Needs marimo: pip install 'warploom[lab-ui]'

    Example: warploom lab swizzles
    """
    known = pages()
    if listed:
        for name in known:
            say(name)
        return
    if page and page not in known:
        raise ArgumentError(f"the lab has no page {page!r}", expected=", ".join(known), got=page)
    if edit and not page:
        raise ArgumentError("--edit takes one page", expected=", ".join(known), got="none")
    if importlib.util.find_spec("marimo") is None:
        raise ArgumentError(
            "the lab's pages need marimo, which is not installed", hint="pip install 'warploom[lab-ui]'"
        )
    target = known[page] if page else next(iter(known.values())).parent
    words = ["edit" if edit else "run", str(target), "--host", HOST, "--no-sandbox", "--no-token"]
    words += ["--port", str(port)] if port else []
    words += ["--headless"] if headless else []
    command = [sys.executable, "-m", "marimo", *words]
    if os.name == "posix":  # in this process's place: a signal that ends the command ends the server
        sys.stdout.flush()
        os.execv(sys.executable, command)
    raise typer.Exit(subprocess.call(command))
