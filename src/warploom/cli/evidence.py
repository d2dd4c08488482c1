"""`evidence`: which measured rows are of texts that the package still makes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import ArgumentError
from .output import FINDINGS, say, say_json, table

RESULTS = Path("benchmarks/results")


def evidence(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Evidence files; those below benchmarks/results by default.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Say only what is stale.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Build the text of every measured kernel again and name the rows that have gone stale. Exit code 1 if any has.

    Example: warploom evidence --check
    """
    from ..lab import staleness

    chosen = files or staleness.evidence_files(RESULTS)
    if not chosen:
        raise ArgumentError(
            "there is no evidence here", expected=f"files below {RESULTS}", got=str(Path.cwd()),
            hint="run it in the repository, or name the files",
        )  # fmt: skip
    rows = staleness.survey(chosen)
    stale = [row for row in rows if row.stale]
    if as_json:
        say_json(
            [
                {
                    "file": str(row.file),
                    "row": row.title(),
                    "stale": row.stale,
                    "reason": row.reason,
                    "known": row.known,
                }
                for row in rows
            ]
        )
    else:
        for path in chosen:
            own = [row for row in rows if row.file == path]
            old, unknown = [row for row in own if row.stale], sum(not row.known for row in own)
            if old or not check:
                words = f"{len(own)} rows with a text, {len(old)} stale"
                table([(str(path), words + (f", {unknown} without a recipe" if unknown else ""))])
            for row in old:
                say(f"    {row.title()}: {row.reason}")
        if not check:
            say("nothing is stale" if not stale else "measure the stale rows again, or mark them where they are shown")
    if stale:
        raise typer.Exit(FINDINGS)
