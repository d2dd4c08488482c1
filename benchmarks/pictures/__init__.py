"""The pictures of docs/ladder, drawn from the package itself: kernels, layouts, emulated runs and evidence files.

`pictures(results)` maps names to functions that return SVG text. `python -m benchmarks.pictures` writes them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path


def pictures(results: Path) -> dict[str, Callable[[], str]]:
    """Every picture of the book by name. results: the folder of evidence files, benchmarks/results."""
    from . import beyond, blackwell, layouts, measured, tensor_memory, tiles, timelines

    return {
        "roofs": measured.roofs,
        **{name: partial(draw, results) for name, draw in measured.PICTURES.items()},
        **layouts.PICTURES,
        **tensor_memory.PICTURES,
        **blackwell.PICTURES,
        **beyond.pictures(results),
        **tiles.PICTURES,
        **{name: partial(timelines.draw, name) for name in timelines.RUNS},
    }
