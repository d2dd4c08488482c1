"""The finding `wrong-result`: which elements of a result are wrong, in which pattern, and a likely cause.

An example's check raises AssertionError. If it comes from numpy.testing or torch.testing, the arrays that were compared
are extracted and compared again: by element, and by tile for the usual tile sizes.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..emulator.machine.finding import Finding
from ..errors import SourceLocation
from .moved_values import TILES, close, moved, shifted

RULE = "wrong-result"
SHOWN_TILES = 4
TOLERANCES = {"assert_allclose": 1e-7, "assert_array_equal": 0.0, "assert_close": 1e-2}
"""Functions of numpy.testing and torch.testing, and the relative tolerance if a call names none."""
MOSTLY = 0.5
"""A tile counts as wrong if more than this share of it is."""


class Unexpected(AssertionError):
    """An array that is not what its launch description expects."""

    def __init__(self, name: str, file: str, comparison: Comparison) -> None:
        super().__init__(f"`{name}` is not as {file} expects: {comparison.count()}")
        self.name, self.file, self.comparison = name, file, comparison


def wrong_result(error: AssertionError) -> Finding:
    """The finding for an example whose check failed."""
    if isinstance(error, Unexpected):
        return _of(error.comparison, (), f"`{error.name}` is not as {error.file} expects: ")
    # After the caller's frame: the example's own line, whatever it called to assert.
    frames = traceback.extract_tb(error.__traceback__)[1:2]
    places = tuple(SourceLocation(Path(at.filename).name, at.lineno or 0) for at in frames)
    told = " ".join(str(error).split())[:300]
    compared = _compared(error)
    if compared is None or not compared.wrong.any():
        message = f"the result is not what the example expects: {told or 'an assertion failed'}"
        return Finding(RULE, message, "error", places, summary=message, fix="see `warploom rules wrong-result`")
    return _of(compared, places)


def _of(compared: Comparison, places: tuple[SourceLocation, ...], before: str = "") -> Finding:
    summary, notes = before + compared.count(), tuple(compared.notes())
    message = "\n".join([summary, *(f"  {label}  {text}" for label, text in notes)])
    return Finding(
        RULE, message, "error", places, summary=summary, fix="see `warploom rules wrong-result`", notes=notes
    )


@dataclass(frozen=True)
class Comparison:
    """A result and the expected values: f64 arrays of one shape, and where they differ too much."""

    got: np.ndarray
    expected: np.ndarray
    wrong: np.ndarray

    def count(self) -> str:
        """Number of wrong elements, in words."""
        share = self.wrong.mean()
        return f"{int(self.wrong.sum())} of {self.wrong.size} elements of the result are wrong ({share:.1%})"

    def notes(self) -> Iterator[tuple[str, str]]:
        """First wrong element, largest difference, pattern, likely causes."""
        first = tuple(int(at) for at in np.argwhere(self.wrong)[0])
        yield "first", f"[{', '.join(map(str, first))}]"
        yield "expected", f"{self.expected[first]:g}"
        yield "got", f"{self.got[first]:g}"
        with np.errstate(invalid="ignore"):
            differences = np.abs(self.got - self.expected)[self.wrong]
        if not np.isnan(differences).all():
            yield "largest difference", f"{np.nanmax(differences):g}"
        yield "where", self.pattern()
        yield from (("likely cause", cause) for cause in self.causes())

    def pattern(self) -> str:
        """The smallest box around the wrong elements, and which whole tiles are wrong."""
        corners = np.argwhere(self.wrong)
        low, high = corners.min(0), corners.max(0) + 1
        box = ", ".join(f"{a}:{b}" for a, b in zip(low, high, strict=True))
        words = f"[{box}] of {' x '.join(map(str, self.wrong.shape))}"
        size = self.tile()
        if size is None:
            return words
        shares = _shares(self.wrong, size)
        tiles = [tuple(map(int, at)) for at in np.argwhere(shares > MOSTLY)]
        listed = ", ".join(f"({', '.join(map(str, at))})" for at in tiles[:SHOWN_TILES])
        more = ", …" if len(tiles) > SHOWN_TILES else ""
        return f"{words}: {len(tiles)} of {shares.size} tiles of {' x '.join(map(str, size))}: {listed}{more}"

    def tile(self) -> tuple[int, ...] | None:
        """The largest tile extents for which each tile is either right or mostly wrong, and some are right."""
        if self.wrong.ndim not in (1, 2) or self.wrong.all():
            return None
        for size in _tile_sizes(self.wrong.shape):
            shares = _shares(self.wrong, size)
            if (shares == 0).any() and ((shares == 0) | (shares > MOSTLY)).all():
                return size
        return None

    def causes(self) -> Iterator[str]:
        """Likely causes of the wrong values, most specific first."""
        got, expected = self.got[self.wrong], self.expected[self.wrong]
        if np.isnan(got).all():
            yield (
                "all wrong elements are NaN: they were never stored, or memory or a register was read before it was "
                "written (poison)"
            )
            return
        if not got.any():
            yield "all wrong elements are 0: they were never stored, or the loop that sums them never ran"
            return
        if self.got.ndim == 2 and self.got.shape[0] == self.got.shape[1] and close(self.got, self.expected.T):
            yield "the result is the transpose of the expected one: rows and columns are swapped in a coordinate"
            return
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = got / expected
        finite = ratio[np.isfinite(ratio)]
        if finite.size > 1 and finite.std() < 1e-3 * abs(finite.mean()) and abs(finite.mean() - 1) > 1e-3:
            yield f"wrong elements are {finite.mean():.3g} times the expected ones: the k loop's bounds, or a scale"
        size = self.tile()
        where = self._moved()
        if where:
            yield where
        elif size is not None:
            yield from self._reordered(size)
        elif self.got.ndim == 2 and np.allclose(np.sort(got), np.sort(expected), rtol=1e-2, atol=1e-5):
            yield "the right values are at wrong positions: a swizzle, a fragment's layout, or a coordinate"
        if self._only_at_the_edge():
            yield "only the last rows or columns are wrong: a size that is not a multiple of the tile, without a guard"

    def _moved(self) -> str:
        """Which piece of the result holds the values of which other; for several matrices, in the first wrong one."""
        if self.wrong.ndim < 2:
            return shifted(self.got, self.expected, self.wrong)
        first = tuple(int(at) for at in np.argwhere(self.wrong)[0][:-2])
        return moved(self.got[first], self.expected[first], self.wrong[first])

    def _reordered(self, size: tuple[int, ...]) -> Iterator[str]:
        """A wrong tile that holds its own values in a different order."""
        for at in [tuple(map(int, at)) for at in np.argwhere(_shares(self.wrong, size) > MOSTLY)][:SHOWN_TILES]:
            mine, own = _part(self.got, at, size), _part(self.expected, at, size)
            if np.allclose(np.sort(mine, axis=None), np.sort(own, axis=None), rtol=1e-2, atol=1e-5):
                yield f"tile {at} has the right values at wrong positions: a swizzle, fragment layout or transpose"
                return

    def _only_at_the_edge(self) -> bool:
        """True if the wrong elements fill the end of one dimension and are less than half of it."""
        for axis in range(self.wrong.ndim):
            others = tuple(other for other in range(self.wrong.ndim) if other != axis)
            lines = np.asarray(self.wrong.any(axis=others))
            first = int(np.argmax(lines))
            if lines[first:].all() and first > lines.size // 2:
                return True
        return False


def _tile_sizes(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Tile extents that are smaller than the result in some dimension, larger tiles first."""
    if len(shape) == 1:
        yield from ((size,) for size in TILES if size < shape[0])
        return
    pairs = [(rows, columns) for rows in TILES for columns in TILES if rows <= shape[0] and columns <= shape[1]]
    for rows, columns in sorted(pairs, key=lambda pair: -pair[0] * pair[1]):
        if (rows, columns) != shape:
            yield rows, columns


def _shares(wrong: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """The share of wrong elements in each tile; tiles at the edge are clipped."""
    counts, sizes = wrong.astype(np.float64), np.ones(wrong.shape)
    for axis, extent in enumerate(size):
        starts = np.arange(0, wrong.shape[axis], extent)
        counts, sizes = np.add.reduceat(counts, starts, axis), np.add.reduceat(sizes, starts, axis)
    return counts / sizes


def _part(values: np.ndarray, at: tuple[int, ...], size: tuple[int, ...]) -> np.ndarray:
    return values[tuple(slice(index * extent, (index + 1) * extent) for index, extent in zip(at, size, strict=True))]


def _compared(error: AssertionError) -> Comparison | None:
    """The arrays that numpy.testing or torch.testing compared when it raised; None for another assertion."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_name not in TOLERANCES:
        trace = trace.tb_next
    if trace is None:
        return None
    values, usual = trace.tb_frame.f_locals, TOLERANCES[trace.tb_frame.f_code.co_name]
    sides = [values[name] for name in ("actual", "desired", "expected", "x", "y") if name in values][:2]
    rtol, atol = (values.get(name) for name in ("rtol", "atol"))
    try:
        got, expected = np.broadcast_arrays(*map(_plain, sides))
        same = np.isclose(got, expected, usual if rtol is None else rtol, atol or 0.0, equal_nan=True)
        return Comparison(got, expected, np.logical_not(same)) if got.ndim else None
    except (TypeError, ValueError):  # shapes or types that cannot be compared: the assertion's text says so
        return None


def _plain(value: Any) -> np.ndarray:
    """An array as f64 in CPU memory."""
    value = value.detach().cpu().double().numpy() if hasattr(value, "detach") else value
    return np.asarray(value).astype(np.float64)
