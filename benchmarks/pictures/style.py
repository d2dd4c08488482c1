"""Style of the book's pictures, and saving as SVG: the same bytes for the same content.

Text stays text, so files are small and searchable. A file records the matplotlib version, but no date or path.
"""

from __future__ import annotations

import io
import re
from typing import Any

from warploom.lab.charts import GRID, INK, pyplot

FAINT = "#f3f3f3"
TILES = ("#0b6e4f", "#c98b3b", "#5f7fa6", "#7d5a8c")
"""Colours of output tiles, in order."""
PALE = ("#b9dccf", "#f0dcbd", "#cfdbe9", "#dccfe2")
"""The same colours, pale: bytes in flight."""
MIDDLE = ("#6fb39b", "#e0b981", "#9ab3d0", "#b294be")
"""The same colours, between: bytes that have arrived and wait."""
ACCENT = "#a34747"
GROUPS = (
    "#0b6e4f", "#5f7fa6", "#c98b3b", "#7d5a8c", "#a34747", "#4f9d8b", "#8a8a8a", "#d0b22c",
)  # fmt: skip
"""Eight colours for eight groups of banks."""


def figure(width: float, height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Any, Any]:
    """(figure, axes) of a size in inches. Raises ChartError if matplotlib is missing."""
    plt = pyplot()
    plt.rcParams.update({
        "svg.fonttype": "none", "svg.hashsalt": "warploom", "font.family": "sans-serif", "path.simplify": False,
        "font.sans-serif": ["DejaVu Sans", "sans-serif"], "font.size": 8,
    })  # fmt: skip
    return plt.subplots(rows, columns, figsize=(width, height), layout="constrained", **options)


def svg(drawn: Any) -> str:
    """A figure as SVG text; the figure is closed."""
    plt = pyplot()
    buffer = io.StringIO()
    drawn.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(drawn)
    text = re.sub(r"<!-- .*? -->\n", "", buffer.getvalue())
    return "\n".join(line.rstrip() for line in text.splitlines()) + f"\n<!-- drawn by {drawer()} -->\n"


def drawer() -> str:
    """The matplotlib version; another one may write other bytes for the same picture."""
    import matplotlib

    return f"matplotlib {matplotlib.__version__}"


def bare(axes: Any, title: str = "") -> None:
    """Remove frame and ticks, and set a title on the left."""
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_visible(False)
    axes.set_title(title, fontsize=9, loc="left", color=INK)


def plain(axes: Any, title: str = "", x: str = "", y: str = "") -> None:
    """Axes of a chart: a light grid, no frame at the top and right."""
    axes.set_title(title, fontsize=9, loc="left", color=INK)
    axes.set_xlabel(x, fontsize=8)
    axes.set_ylabel(y, fontsize=8)
    axes.tick_params(labelsize=8)
    axes.grid(color=GRID, linewidth=0.6, zorder=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def cells(axes: Any, colours: list[list[str]], labels: list[list[str]] | None = None, size: float = 7) -> None:
    """A grid of coloured squares, row 0 at the top, with a label in each."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    rows, columns = len(colours), len(colours[0])
    by_colour: dict[str, list[Any]] = {}
    for row in range(rows):
        for column in range(columns):
            by_colour.setdefault(colours[row][column], []).append(Rectangle((column, row), 1, 1))
    for colour, patches in by_colour.items():
        axes.add_collection(PatchCollection(patches, facecolor=colour, edgecolor="white", linewidth=0.5))
    if labels is not None:
        for row in range(rows):
            for column in range(columns):
                if labels[row][column]:
                    ink = "white" if _dark(colours[row][column]) else INK
                    axes.text(column + 0.5, row + 0.53, labels[row][column], ha="center", va="center",
                              fontsize=size, color=ink)  # fmt: skip
    axes.set_xlim(0, columns)
    axes.set_ylim(rows, 0)
    axes.set_aspect("equal")


def _dark(colour: str) -> bool:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return 0.3 * red + 0.59 * green + 0.11 * blue < 140


__all__ = [
    "ACCENT", "FAINT", "GRID", "GROUPS", "INK", "MIDDLE", "PALE", "TILES", "bare", "cells", "drawer", "figure", "plain",
    "svg",
]  # fmt: skip
