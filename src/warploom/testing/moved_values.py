"""Right values at wrong positions: which tile, row, column or 16-byte chunk of a result belongs elsewhere.

Pieces of the result are searched among the pieces of the expected values, large pieces first. A match counts only if
it is unique, so constant data give no match.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

TILES = (256, 128, 64, 32, 16, 8)
"""Tile extents that are tried, largest first."""
MOST = 1 << 20
"""Maximum number of elements of a result that is searched."""
LOOKED_AT = 6
"""Number of wrong pieces that are searched; a pattern must hold for all of them."""
CHUNKS = (8, 4, 16)
"""Elements in 16 bytes, for types of two, four and one byte."""


def moved(got: np.ndarray, expected: np.ndarray, wrong: np.ndarray) -> str:
    """Which pieces moved where in two-dimensional arrays, in words; "" if the wrong values match nowhere."""
    if got.size > MOST:
        return ""
    for rows, columns in sizes(got.shape):
        if found := _tiles(got, expected, wrong, rows, columns):
            return found
    return _lines(got, expected, wrong, "row") or _lines(got.T, expected.T, wrong.T, "column") or next(
        filter(None, (_chunks(got, expected, wrong, chunk) for chunk in CHUNKS)), ""
    )  # fmt: skip


def shifted(got: np.ndarray, expected: np.ndarray, wrong: np.ndarray) -> str:
    """Like `moved`, for one dimension: whether the wrong elements are values of adjacent elements."""
    for step in (1, -1):
        neighbours = np.roll(expected, -step)
        if wrong.sum() > 1 and _same(neighbours, got)[wrong].all() and not _same(neighbours, expected)[wrong].any():
            return f"wrong elements hold the value of the element {'after' if step > 0 else 'before'} them: an index"
    return ""


def sizes(shape: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Tile extents that divide a result into several, larger tiles first."""
    pairs = [(r, c) for r in TILES for c in TILES if shape[0] % r == 0 and shape[1] % c == 0 and (r, c) != shape]
    yield from sorted(pairs, key=lambda pair: -pair[0] * pair[1])


def _tiles(got: np.ndarray, expected: np.ndarray, wrong: np.ndarray, rows: int, columns: int) -> str:
    mine, theirs, bad = (_cut(values, rows, columns) for values in (got, expected, wrong))
    broken = [(int(at[0]), int(at[1])) for at in np.argwhere(bad.mean(axis=(2, 3)) > 0.5)]
    if not broken:
        return ""
    places, turned = [], []
    for at in broken[:LOOKED_AT]:
        if rows == columns and close(mine[at].T, theirs[at]):
            turned.append(at)
            continue
        found = np.argwhere(_same(theirs, mine[at]).all(axis=(2, 3)))
        if len(found) != 1:
            return ""
        places.append((at, (int(found[0][0]), int(found[0][1]))))
    size = f"{rows} x {columns}"
    if turned:
        return "" if places else (
            f"each wrong tile of {size} is the transpose of the expected one: the major of an operand, .trans of "
            "ldmatrix, or a fragment's rows read as columns"
        )  # fmt: skip
    if all(at == there for at, there in places):
        return ""
    first = f"tile {places[0][0]} of {size} holds the values of tile {places[0][1]}"
    if all(there == (at[1], at[0]) for at, there in places):
        return f"{first}, and so on: row and column of the tile are swapped in a coordinate"
    steps = {(there[0] - at[0], there[1] - at[1]) for at, there in places}
    if len(steps) == 1 and len(places) > 1:
        down, right = steps.pop()
        return f"{first}, and so on: all are {down} tiles down and {right} to the right of their correct position"
    return f"{first}: the coordinates of the grid"


def _lines(got: np.ndarray, expected: np.ndarray, wrong: np.ndarray, what: str) -> str:
    """Rows that hold other rows' values; for columns, pass the transposed arrays."""
    broken = np.flatnonzero(wrong.mean(axis=1) > 0.5)
    pairs = []
    for at in broken[:LOOKED_AT]:
        found = np.flatnonzero(_same(expected, got[at]).all(axis=1))
        if found.size != 1 or int(found[0]) == at:
            return ""
        pairs.append((int(at), int(found[0])))
    if not pairs:
        return ""
    first = f"{what} {pairs[0][0]} holds the values of {what} {pairs[0][1]}"
    bits = {at ^ there for at, there in pairs}
    if len(bits) == 1 and len(pairs) > 1:
        return f"{first}, and so on: {what}s are swapped with those {bits.pop()} further, as by a fragment's layout"
    return f"{first}: the order of {what}s in a fragment or in a copy"


def _chunks(got: np.ndarray, expected: np.ndarray, wrong: np.ndarray, width: int) -> str:
    """16-byte chunks that hold values from elsewhere in the same row."""
    if got.shape[1] % width or got.shape[1] == width:
        return ""
    mine, theirs, bad = (values.reshape(values.shape[0], -1, width) for values in (got, expected, wrong))
    broken = np.argwhere(bad.mean(axis=2) > 0.5)
    found = []
    for row, at in broken[:: max(1, len(broken) // LOOKED_AT)][:LOOKED_AT]:
        places = np.flatnonzero(_same(theirs[row], mine[row, at]).all(axis=1))
        if places.size != 1 or int(places[0]) == at:
            return ""
        found.append((int(row), int(at), int(places[0])))
    if not found:
        return ""
    row, at, there = found[0]
    return (
        f"elements {at * width} to {at * width + width - 1} of row {row} are those of {there * width} to "
        f"{there * width + width - 1}: chunks of 16 bytes are swapped in a row, as by a swizzle that one side lacks "
        "or starts elsewhere"
    )


def _cut(values: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """The tiles of an array, (down, across, rows, columns)."""
    return values.reshape(values.shape[0] // rows, rows, -1, columns).swapaxes(1, 2)


def _same(values: np.ndarray, piece: np.ndarray) -> np.ndarray:
    return np.isclose(values, piece, rtol=1e-2, atol=1e-5)


def close(a: np.ndarray, b: np.ndarray) -> bool:
    """True if two pieces are equal, up to rounding from a different summation order."""
    return a.shape == b.shape and bool(_same(a, b).all())
