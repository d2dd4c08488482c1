"""The orders of tiles: each tile once, neighbours close together."""

from __future__ import annotations

import numpy as np
import pytest

from warploom.collective.tile.raster import Order, along_rows, grouped, hilbert
from warploom.lab import roofline
from warploom.lang import Tile, kernel, ptx, reg
from warploom.types import u32, u64

SHAPES = [(1, 1), (8, 8), (4, 9), (17, 5), (9, 20)]
ORDERS = {"along_rows": along_rows, "grouped(1)": grouped(1), "grouped(4)": grouped(4), "hilbert(2)": hilbert(2)}


def walk(order: Order, rows: int, columns: int) -> list[tuple[int, int]]:
    """The tiles of a grid in an order, as a kernel calculates them: thread i writes place i."""
    count = rows * columns

    @kernel(out_specs=(Tile(count, 2, u32),), grid=(-(-count // 32),), block=32, arch="sm_80")
    def places(C):
        number = ptx.special.ctaid.x() * 32 + ptx.special.tid.x()
        with ptx.if_(number < count):
            row, column = order(number, reg.scalar(u32, init=rows), reg.scalar(u32, init=columns))
            ptx.store(ptx.addr(C.pointer() + (number * 8).to(u64)), [row, column])

    return [tuple(map(int, place)) for place in places.emulate(np.zeros((count, 2), np.uint32)).outputs[0]]


def distance(a: tuple[int, int], b: tuple[int, int]) -> int:
    return abs(a[0] - b[0]) + abs(a[1] - b[1])


@pytest.mark.parametrize("rows, columns", SHAPES)
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
def test_every_order_visits_every_tile_once(order: Order, rows: int, columns: int):
    assert sorted(walk(order, rows, columns)) == [(r, c) for r in range(rows) for c in range(columns)]


@pytest.mark.parametrize("rows, columns", SHAPES)
@pytest.mark.parametrize("height", [1, 4, 8])
def test_the_host_walks_bands_as_the_kernels_do(height: int, rows: int, columns: int):
    assert list(roofline.grouped(height)(rows, columns)) == walk(grouped(height), rows, columns)


@pytest.mark.parametrize("rows, columns", [*SHAPES, (16, 24)])
@pytest.mark.parametrize("bits", [0, 1, 2, 3])
def test_the_host_walks_a_hilbert_curve_as_the_kernels_do(bits: int, rows: int, columns: int):
    assert list(roofline.hilbert(bits)(rows, columns)) == walk(hilbert(bits), rows, columns)


def test_along_a_hilbert_curve_every_step_goes_to_a_neighbour():
    places = walk(hilbert(3), 8, 8)
    assert all(distance(a, b) == 1 for a, b in zip(places, places[1:], strict=False))


def test_bands_are_walked_back_and_forth():
    places = walk(grouped(2), 4, 6)
    assert all(distance(a, b) <= 2 for a, b in zip(places, places[1:], strict=False))
    assert places[11:13] == [(1, 5), (2, 5)]


@pytest.mark.parametrize("order", ["grouped(4)", "hilbert(2)"])
def test_a_compact_order_needs_fewer_rows_and_columns_at_a_time(order: str):
    def blocks(places: list[tuple[int, int]]) -> float:
        """Rows of A and of B that a stretch of 16 tiles needs, on average."""
        stretches = [places[i : i + 16] for i in range(0, len(places), 16)]
        return float(np.mean([len({r for r, _ in s}) + len({c for _, c in s}) for s in stretches]))

    assert blocks(walk(ORDERS[order], 16, 16)) * 2 <= blocks(walk(along_rows, 16, 16))
