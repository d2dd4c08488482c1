"""The calculators against numbers worked out by hand."""

from __future__ import annotations

import pytest

from warploom.driver import resources
from warploom.errors import ArgumentError
from warploom.lab import roofline
from warploom.lab.roofline import Roofline


def test_intensity_of_a_square_product_is_a_third_of_its_side() -> None:
    # 2 n^3 / (3 n^2 * 2 bytes) = n / 3
    assert roofline.intensity(3000, 3000, 3000) == pytest.approx(1000)
    # one row: 2 n k / (k + n k + n) elements of 2 bytes, nearly 1
    assert roofline.intensity(1, 8192, 8192) == pytest.approx(2 * 8192**2 / (2 * (8192 + 8192**2 + 8192)))


def test_the_roofs_of_an_h200() -> None:
    roof = Roofline.of("H200", "bf16")
    assert roof.peak == 132 * 4096 * 1.98e9  # 1070.5 TFLOP/s
    assert roof.ridge == pytest.approx(223.03, abs=0.01)  # 1070.5e12 / 4.8e12
    assert roof.attainable(100) == 480e12
    assert roof.attainable(1000) == roof.peak
    assert Roofline.of("H200", "e4m3").peak == 2 * roof.peak
    assert Roofline.of("H200", "bf16", clock=1.477e9).peak == pytest.approx(798.6e12, rel=1e-3)


@pytest.mark.parametrize("machine, dtype", [("H300", "bf16"), ("H200", "f64"), ("A100", "e4m3")])
def test_what_is_not_known_is_refused_with_what_is(machine: str, dtype: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Roofline.of(machine, dtype)
    assert caught.value.expected and str(caught.value.got).strip("'") in (machine, dtype)


def test_activity_is_speed_over_what_the_tensor_cores_do_at_that_clock() -> None:
    # 132 SMs x 4096 FLOP x 1.33 GHz = 719.1 TFLOP/s
    assert roofline.activity(683.1, 1.33e9, 132) == pytest.approx(683.1 / 719.1, rel=1e-3)


@pytest.mark.parametrize(
    "threads, registers, shared, resident, limit",
    [
        (384, 168, 229440, 1, "registers"),  # 12 warps x 5376 registers = 64512 of 65536; 224.1 + 1 of 228 KiB
        (128, 64, 0, 8, "registers"),  # 4 warps x 2048 = 8192
        (256, 32, 100 * 1024, 2, "shared memory"),  # 101 KiB each
        (1024, 32, 0, 2, "registers"),  # 32 warps x 1024 = 32768; 64 warps have room for two as well
        (32, 16, 0, 32, "CTA slots"),
    ],
)
def test_occupancy_by_its_limits(threads: int, registers: int, shared: int, resident: int, limit: str) -> None:
    found = roofline.occupancy("sm_90a", threads, registers, shared)
    assert (found.resident, found.limit) == (resident, limit)
    assert found.resident == resources.occupancy("sm_90a", threads, registers, shared), "as the driver side counts"


def test_waves_of_the_awkward_shape() -> None:
    # 4096 / 128 = 32 rows, 2112 / 256 = 8.25 -> 9 columns: 288 tiles, 3 waves of 132 = 396 places
    found = roofline.waves(4096, 2112, 128, 256, 132)
    assert (found.rows, found.columns, found.tiles) == (32, 9, 288)
    assert found.tile_efficiency == pytest.approx(2112 / 2304)
    assert found.wave_efficiency == pytest.approx(288 / 396)
    assert found.efficiency == pytest.approx(4096 * 2112 / (396 * 128 * 256))
    # 2112 = 12 x 176: 384 tiles of 396 places, none over the edge
    better = roofline.waves(4096, 2112, 128, 176, 132)
    assert (better.tile_efficiency, better.wave_efficiency) == (1.0, pytest.approx(384 / 396))


@pytest.mark.parametrize("name", roofline.ORDERS)
@pytest.mark.parametrize("rows, columns", [(1, 1), (4, 4), (5, 7), (17, 3)])
def test_every_raster_order_visits_every_tile_once(name: str, rows: int, columns: int) -> None:
    visited = list(roofline.ORDERS[name](rows, columns))
    assert sorted(visited) == [(row, column) for row in range(rows) for column in range(columns)]


def test_neighbours_along_the_hilbert_curve_are_neighbours_in_the_grid() -> None:
    path = list(roofline.hilbert(3)(8, 8))
    assert all(abs(a - c) + abs(b - d) == 1 for (a, b), (c, d) in zip(path, path[1:], strict=False))


def test_bands_are_walked_column_by_column_and_back() -> None:
    assert list(roofline.grouped(2)(4, 2)) == [(0, 0), (1, 0), (0, 1), (1, 1), (2, 1), (3, 1), (2, 0), (3, 0)]


def test_a_cache_that_holds_everything_fetches_everything_once() -> None:
    m, n, k = 1024, 2048, 4096
    for order in roofline.ORDERS.values():
        assert roofline.l2_traffic(m, n, k, 128, 256, order, 132, cache_bytes=1 << 30) == (m + n) * k * 2


def test_a_cache_that_holds_nothing_fetches_what_each_wave_uses() -> None:
    # 4 x 4 tiles, 4 at a time: along rows a wave is one row of tiles: 1 block of A and 4 of B; in squares, 2 and 2
    m = n = 512
    k = 1024
    block = 128 * k * 2
    rows = roofline.l2_traffic(m, n, k, 128, 128, roofline.along_rows, at_a_time=4, cache_bytes=0)
    squares = roofline.l2_traffic(m, n, k, 128, 128, roofline.hilbert(1), at_a_time=4, cache_bytes=0)
    assert (rows, squares) == (4 * 5 * block, 4 * 4 * block)


def test_the_cache_forgets_what_was_used_longest_ago() -> None:
    # one tile at a time, one row of tiles: A stays for its row where there is room for A and one block of B
    m, n, k = 256, 512, 512
    a, b = 128 * k * 2, 128 * k * 2
    found = roofline.l2_traffic(m, n, k, 128, 128, roofline.along_rows, at_a_time=1, cache_bytes=a + b)
    assert found == 2 * a + 8 * b
