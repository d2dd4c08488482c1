"""The sparse A of an MMA: half of its elements are stored, and metadata says which.

Of four adjacent elements along k two are stored; for the 4-bit kinds two of four pairs; for tf32 one of two. Four bits
for each of these groups are the positions of the two stored ones. PTX ISA 9.7.16.10.8.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...errors import InvalidOperandError
from ...isa.instruction_descriptor import InstructionDescriptor
from ...isa.tensor_cells import metadata_bits
from ..numerics.tensor_core import rounded, values

PLACES = (0x4, 0x8, 0xC, 0x9, 0xD, 0x6, 0xE)
"""A group's four bits: the position of the first stored element in the low two, of the second in the others."""
PLACES_OF_TF32 = (0x4, 0xE)
"""The first of two elements, the second: both of its halves."""
ASCENDING = (0x4, 0x8, 0xC, 0x9, 0xD, 0xE)
"""The `PLACES` in which the first position precedes the second."""
_WHOLE = ("s4", "u4", "s8", "u8")
ANY_ORDER = (*ASCENDING, 0x1, 0x2, 0x3, 0x6, 0x7, 0xB)


def nibbles(cells: np.ndarray, of: InstructionDescriptor, rows: int, stored: np.ndarray) -> np.ndarray:
    """The metadata of a CTA's rows, (rows, groups); `cells`: those of the rows' lanes; `stored`: the elements of A.

    Raises InvalidOperandError for invalid metadata.
    """
    lanes, columns, shifts = metadata_bits(of.kind, rows)
    found = np.asarray(cells[lanes, columns] >> shifts & np.uint32(15), np.uint8)
    return meaningful(found, of.kind == "tf32", nothing=of_zeros(stored, of.a, found.shape))


def of_zeros(stored: np.ndarray, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """The groups that store only zeros, (rows, groups) as in `shape`."""
    zeros = stored == 0 if kind in _WHOLE else values(stored, kind) == 0
    return np.asarray(zeros.reshape(*shape, -1).all(-1))


def meaningful(
    found: np.ndarray, one_of_two: bool, orders: tuple[int, ...] = PLACES, nothing: np.ndarray | None = None
) -> np.ndarray:
    """Metadata, (rows, groups); orders: valid values for a group of more than two. Raises InvalidOperandError for
    invalid metadata.

    nothing: groups that store only zeros. Their four bits do not matter: CUTLASS's compressor leaves 0 there.
    """
    legal = PLACES_OF_TF32 if one_of_two else orders
    bad = ~np.isin(found, legal)
    if nothing is not None:
        found = np.where(bad & nothing, np.uint8(legal[0]), found)
        bad &= ~nothing
    if bad.any():
        row, group = (int(at[0]) for at in np.nonzero(bad))
        raise InvalidOperandError(
            f"the metadata of row {row} has {int(found[row, group]):#x} for its group {group} along k",
            expected=", ".join(f"{one:#x}" for one in legal),
            consequence="undefined behaviour (PTX ISA 9.7.14.6.1, 9.7.15.6.1, 9.7.16.10.8)",
        )
    return found


def places(metadata: np.ndarray, of: InstructionDescriptor) -> np.ndarray:
    """The position along k of each stored element, (rows, k / 2)."""
    return places_along(metadata, of.k, of.kind == "tf32")


def places_along(metadata: np.ndarray, k: int, one_of_two: bool) -> np.ndarray:
    """Like `places`, for k elements; one_of_two: each group has two elements and stores one of them."""
    groups = np.arange(metadata.shape[1])[None, :, None]
    if one_of_two:
        inside = (metadata == PLACES_OF_TF32[1])[:, :, None].astype(np.int64)
        return np.asarray((2 * groups + inside).reshape(len(metadata), -1))
    pair = np.stack([metadata & 3, metadata >> 2], axis=-1).astype(np.int64)  # (rows, groups, 2)
    unit = k // 2 // (2 * metadata.shape[1])
    first = (4 * groups + pair)[..., None] * unit + np.arange(unit)
    return np.asarray(first.reshape(len(metadata), -1))


def dense(stored: np.ndarray, where: np.ndarray, k: int) -> np.ndarray:
    """A with zeros at positions that are not stored, (rows, k) codes."""
    whole = np.zeros((len(stored), k), stored.dtype)
    np.put_along_axis(whole, where, stored, 1)
    return whole


def finite(bits: np.ndarray, kind: str) -> np.ndarray:
    """Raw bits with zeros for non-finite values."""
    return np.asarray(np.where(_wild(bits, kind), bits.dtype.type(0), bits))


def _wild(bits: np.ndarray, kind: str) -> np.ndarray:
    return np.zeros(bits.shape, np.bool_) if kind in _WHOLE else ~np.isfinite(values(bits, kind))


def unbounded(
    a: np.ndarray, b: np.ndarray, where: np.ndarray, kinds: tuple[str, str]
) -> tuple[np.ndarray, np.ndarray] | None:
    """The elements of D that have a product with a non-finite factor, (m, n) bool, and the sums of these products, f64:
    infinities and NaN. None if A and B are finite.

    Args:
        a, b: (m, k) and (n, k) codes, `a` dense.
        where: positions of the stored elements of `a`: the others are not multiplied, whatever B has there.
        kinds: their types.
    """
    wild_a, wild_b = _wild(a, kinds[0]), _wild(b, kinds[1])
    if not wild_a.any() and not wild_b.any():
        return None
    stored = np.zeros(a.shape, np.bool_)
    np.put_along_axis(stored, where, True, 1)
    left, right = values(a, kinds[0]), values(b, kinds[1])
    met = np.zeros((len(a), len(b)), np.bool_)
    sums = np.zeros(met.shape)
    with np.errstate(all="ignore"):
        for column in range(len(b)):
            here = stored & (wild_a | wild_b[column])
            met[:, column] = here.any(1)
            sums[:, column] = np.where(here, left * right[column], 0.0).sum(1)
    return met, sums


def multiplied(
    a: np.ndarray, b: np.ndarray, c: np.ndarray | None, where: np.ndarray, kinds: tuple[str, str, str],
    multiply: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> np.ndarray:  # fmt: skip
    """A product whose dense A has zeros that are not multiplied: non-finite values meet stored elements only.

    An infinity of A times one of B is infinite, at a stored position: tests/golden/conformance.npz.

    Args: as in `unbounded`; c: bits of the accumulator, None for none; kinds: types of A, B and D; multiply: the whole
    product, with C, of a given A and B.
    """
    wild = unbounded(a, b, where, kinds[:2])
    if wild is None:
        return multiply(a, b)
    result, (met, sums) = multiply(finite(a, kinds[0]), finite(b, kinds[1])), wild
    with np.errstate(all="ignore"):
        # A sum of finite terms may overflow: next to an infinite C, an overflow of these products does not count.
        sums += np.where(np.isnan(values(result, kinds[2])), np.nan, 0.0 if c is None else values(c, kinds[2]))
    result[met] = rounded(sums, kinds[2])[met]
    return result
