"""What all tables share about rows: names of problems, stale rows, means and minima of ratios."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchmarks import status
from warploom.lab.bench import geomean

Row = dict[str, Any]
Result = dict[str, Any]
"""An evidence file: its head, and its `rows`."""

STALE = " (stale)"
"""Marks a row whose kernel has changed its text; `python -m benchmarks.status` names the reason."""


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    shown = [f"| {' | '.join(cells)} |" for cells in (head, *lines)]
    return [shown[0], "|" + "---|" * len(head), *shown[1:]]


def mean_and_least(title: str, columns: Sequence[Sequence[float]], shown: str = ".3f") -> list[list[str]]:
    """Two lines: the geometric mean of each column, and its minimum. A column without figures is blank."""
    measures: tuple[tuple[str, Callable[[Sequence[float]], float]], ...] = (("geometric mean", geomean), ("least", min))
    return [
        [f"{title}, {name}", *(f"{measure(column):{shown}}" if column else "" for column in columns)]
        for name, measure in measures
    ]


def mark(rows: Iterable[Row]) -> str:
    """STALE if any of the rows has a text that the package no longer builds."""
    return STALE if any(status.judge(row)[0] for row in rows) else ""


def kinds(rows: list[Row]) -> Callable[[Row], str]:
    """The type, kind and scales of a row's problem, as far as they differ within its file."""
    several = {key for key in ("dtype", "kind", "scales") if len({row.get(key, "") for row in rows}) > 1}

    return lambda row: " ".join(str(row[key]) for key in ("dtype", "kind", "scales") if key in several and row.get(key))


def named(rows: list[Row]) -> Callable[[Row], str]:
    """The name of a row's problem: its sizes, and what else distinguishes the problems of a file."""
    kind = kinds(rows)

    def name(row: Row) -> str:
        words = [kind(row)] if kind(row) else []
        if "rows" in row:
            words.append(f"{len(row['rows'])} experts" + (", skewed" if len(set(row["rows"])) > 1 else ""))
        return " ".join([" x ".join(str(row[key]) for key in "mnk"), *words])

    return name


def peer_of(row: Row) -> str:
    """Who computes the same product in PyTorch: cuBLAS for bf16, for fp8 `torch._scaled_mm` with the row's scales."""
    if row["dtype"] == "bf16":
        return "cublas"
    return {"tensor": "scaled-mm", "row": "scaled-mm-row", "block128": "scaled-mm-block"}[row["scales"]]
