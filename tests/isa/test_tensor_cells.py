"""Element positions in tensor memory: layouts A to G, fragments, copies, scale factors. Not run on hardware."""

from __future__ import annotations

import numpy as np
import pytest

from warploom.isa import fragments, tensor_cells
from warploom.isa.instructions.tcgen05 import REGISTERS_OF_X1
from warploom.isa.tensor_memory import DATA_PATHS, LANES, QUARTER

SHAPES = ("32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2")


@pytest.mark.parametrize("n", [64, 256])
@pytest.mark.parametrize("path", DATA_PATHS, ids=lambda path: path.name)
def test_the_blocks_of_an_accumulator_are_the_places_of_its_elements(path, n):
    sparse, ws = path.name == "C", path.name in "EG"
    placed = {}
    for block in tensor_cells.accumulator(path.m, n, path.group, sparse, ws):
        lanes, cells = np.arange(LANES)[block.lanes], np.arange(n)[block.cells]
        rows, columns = np.arange(path.m)[block.rows], np.arange(n)[block.columns]
        assert (lanes.size, cells.size) == (rows.size, columns.size)
        for lane, row in zip(lanes.tolist(), rows.tolist(), strict=True):
            for cell, column in zip(cells.tolist(), columns.tolist(), strict=True):
                placed[row, column] = (block.who, lane, cell)
    assert placed == {(row, column): path.place(row, column, n) for row in range(path.m) for column in range(n)}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_registers_of_a_warp_name_every_cell_of_a_rectangle_once(shape):
    count = 8 * REGISTERS_OF_X1[shape]
    lanes, columns = tensor_cells.fragment(shape, count, split=64)
    cells = set(zip(lanes.ravel().tolist(), columns.ravel().tolist(), strict=True))
    assert len(cells) == lanes.size == count * QUARTER
    assert {lane for lane, _ in cells} == set(range(QUARTER if shape == "32x32b" else QUARTER // 2))


def test_the_fragment_of_256_bits_is_the_accumulator_of_mma_sync():
    """Lanes and columns of 16x256b.x1 are rows and columns of the f32 accumulator of m16n8."""
    lanes, columns = tensor_cells.fragment("16x256b", 4)
    accumulator = fragments.mma_c(16)
    np.testing.assert_array_equal(lanes.T, accumulator.rows)
    np.testing.assert_array_equal(columns.T, accumulator.columns)


@pytest.mark.parametrize(
    ("shape", "multicast", "lanes_of_row_33"),
    [
        ("128x256b", None, {33}), ("128x128b", None, {33}), ("64x128b", "warpx2::02_13", {33, 97}),
        ("64x128b", "warpx2::01_23", {65, 97}),
    ],
)  # fmt: skip
def test_a_row_is_copied_to_the_lanes_that_its_multicast_says(shape, multicast, lanes_of_row_33):
    found = set()
    for lanes, rows in tensor_cells.copied(shape, multicast):
        numbers = np.arange(LANES)[rows].tolist()
        if 33 in numbers:
            found.add(int(np.arange(LANES)[lanes][numbers.index(33)]))
    assert found == lanes_of_row_33


def test_a_copy_of_scale_factors_puts_each_where_the_product_looks_for_it():
    """An atom of 512 bytes in shared memory, by tcgen05.cp.32x128b.warpx4, gives every quarter all 128 rows."""
    atom = tensor_cells.factor_bytes()
    assert sorted(atom.ravel().tolist()) == list(range(512))
    copies = tensor_cells.copied("32x128b", "warpx4")
    assert len(copies) == LANES // QUARTER
    for row, factor in [(0, 0), (31, 3), (32, 0), (77, 2), (127, 3)]:
        lane, column, byte = tensor_cells.factor_place(row, factor)
        source_row, source_byte = divmod(int(atom[row, factor]), 16)  # 16 bytes of shared memory are one lane's
        assert (source_row, source_byte) == (lane, 4 * column + byte)
