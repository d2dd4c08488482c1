"""Tiles loaded by cp.async and read by wgmma: which global addresses may be adjacent."""

from __future__ import annotations

import numpy as np
import pytest

from warploom.sanitizer.checkers.layout import _in_order, _uneven_columns, _uneven_rows

ROW_BYTES = 4096
ROWS = np.arange(8)[:, None]
CHUNKS = 16 * np.arange(2)
BASE = 1 << 30
AFFINE = BASE + ROWS * ROW_BYTES + CHUNKS
GATHERED = BASE + np.array([5, 1, 1, 7, 0, 3, 2, 6])[:, None] * ROW_BYTES + CHUNKS
WINDOWS = BASE + ROWS * 64 + CHUNKS
"""Rows of a convolution that overlap: each begins 64 bytes behind the one before."""
PIXELS = BASE + np.array([0, 1, 2, 6, 7, 8, 12, 13])[:, None] * 64 + CHUNKS
"""Rows of an image, of which three pixels each are taken."""
OUTSIDE = np.where(ROWS < 5, AFFINE, 0)
"""The last rows lie outside of the array: zeros that come from nowhere."""


@pytest.mark.parametrize("origins", [AFFINE, GATHERED, WINDOWS, PIXELS, OUTSIDE, np.zeros((8, 2), np.int64)])
def test_right_tiles(origins: np.ndarray):
    assert _uneven_columns(origins) is None
    assert _uneven_rows(origins) is None


def test_chunks_swapped_in_some_rows():
    """128B written, 32B read: the last bit of the chunk's number is swapped where the row's is set."""
    swapped = BASE + ROWS * ROW_BYTES + (CHUNKS ^ (ROWS >> 1 & 1) * 16)
    found = _uneven_columns(swapped)
    assert found is not None and found[0] == (2, 0)


def test_halves_of_a_row_read_as_rows():
    """128B written, 64B read: two rows of the operand are the halves of one."""
    halves = BASE + (ROWS // 2) * ROW_BYTES + (ROWS % 2) * 64 + CHUNKS
    assert _uneven_columns(halves) is None
    found = _uneven_rows(halves)
    assert found is not None and found[0] == (0, 0)


@pytest.mark.parametrize(("depth", "apart", "right"), [(128, 128, True), (128, 64, False), (256, 128, False)])
def test_halves_of_an_operand_in_the_third_dimension_of_a_box(depth: int, apart: int, right: bool):
    """16 rows of 16 chunks, of which a row of the box has 8: the others are `apart` rows farther on."""
    row, chunk = np.indices((16, 16))
    assert _in_order(row + chunk // 8 * apart, chunk % 8, 8, depth) is right


@pytest.mark.parametrize(
    ("chunks_apart", "rows_apart", "right"), [(2, 0, True), (1, 0, False), (4, 0, False), (0, 4, False), (2, 8, False)]
)
def test_slices_of_k_read_as_further_rows(chunks_apart: int, rows_apart: int, right: bool):
    """32 rows of two chunks, of a box of rows of eight: each eight rows are the next two chunks of the first eight."""
    row, chunk = np.indices((32, 2))
    assert _in_order(row % 8 + row // 8 * rows_apart, chunk + row // 8 * chunks_apart, 8, 64) is right
