"""Kernels of many kinds from which no constant of the timing model was taken, for `benchmarks/predict_unseen.py`."""

from __future__ import annotations

from collections.abc import Iterator

from . import (
    blind,
    brought,
    clusters,
    common,
    elementwise,
    integers,
    lanes,
    layers,
    limits,
    more_texts,
    neighbours,
    numerics,
    rings,
    rows,
    serving,
    texts,
    tiles,
)
from .case import Array, Case
from .elementwise import MILLION

SMALL = 1 << 10
__all__ = ["SMALL", "Array", "Case", "cases"]


def cases(million: int = MILLION) -> Iterator[Case]:
    """All cases; with SMALL, on problems that the emulator runs at once."""
    first = elementwise, rows, tiles, texts, lanes, rings, more_texts, limits
    for module in (*first, neighbours, blind, common, integers, numerics, layers, clusters, serving, brought):
        yield from module.cases(million)
