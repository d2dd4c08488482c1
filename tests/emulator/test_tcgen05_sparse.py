"""tcgen05.mma with a sparse A: half of its elements, with metadata in tensor memory. PTX ISA 9.7.16.10.8.

The tests make the stored elements and each lane's metadata from a dense A by the ISA's figures, one row and group at a
time. Nothing was run on hardware.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.emulator.test_tcgen05 import NUMPY, begin, matrix, store
from warploom import Tile, kernel, ptx, smem, tmem
from warploom.errors import InvalidOperandError
from warploom.types import b32, bf16, e4m3, f32, s8, s32, u64

PAIRS = {0x4: (0, 1), 0x8: (0, 2), 0xC: (0, 3), 0x9: (1, 2), 0xD: (1, 3), 0xE: (2, 3)}
COLUMNS = 4
"""Of tensor memory that the metadata of 128 bytes of B's rows takes."""


def sparse_kernel(
    m: int, n: int, dtype: Any, out: Any, *, group: int = 1, ws: bool = False, in_cells: bool = False,
    written: int = COLUMNS,
):  # fmt: skip
    """C = A @ Bᵀ, of 128 bytes of k of B; A (M, K / 2), E the metadata, 128 lanes of COLUMNS for each CTA."""
    k = 128 // dtype.bytes
    rows, columns = m // group, n // group

    @kernel(
        in_specs=(
            Tile.umma_a("M", "H", dtype, tile_m=rows, tile_k=k // 2),
            Tile.umma_b("N", "K", dtype, tile_n=columns, tile_k=k, major="K"), Tile("L", COLUMNS, b32),
        ),
        out_specs=(Tile("M", "N", out, inout=False),),
        grid=(group, 1, 1), block=128, cluster=(group, 1, 1), arch="sm_100a",
    )  # fmt: skip
    def product(A, B, E, C):
        a, b = smem.umma_tile(dtype, (rows, k // 2)), smem.umma_tile(dtype, (columns, k))
        full, done, first, rank = begin()
        memory = tmem.alloc(512, group=group)
        acc = memory.accumulator(m, n, out, ws=ws, sparse=True)
        cells = memory.tile(COLUMNS)
        lane = (rank * 128 + ptx.special.tid.x()).to(u64) * (4 * COLUMNS)
        words = [ptx.load(b32, ptx.addr(E.pointer() + lane, 4 * at)) for at in range(written)]
        ptx.tcgen05.st(cells[0].mine(), words)
        ptx.tcgen05.wait_st()
        left: Any = a[0]
        if in_cells:
            left = memory.tile(16)[0]
            row = (ptx.special.tid.x()).to(u64) * (k // 2 * dtype.bytes)
            ptx.tcgen05.st(left.mine(), [ptx.load(b32, ptx.addr(A.pointer() + row, 4 * at)) for at in range(16)])
            ptx.tcgen05.wait_st()
        ptx.tcgen05.fence_before_thread_sync()
        ptx.bar.sync(0)
        ptx.tcgen05.fence_after_thread_sync()
        with ptx.if_(first):
            ptx.mbarrier.arrive_expect_tx(full[0], a.bytes + b.bytes)
            ptx.tma.load(a[0], A.tma_desc(), (0, rank * rows), full[0])
            ptx.tma.load(b[0], B.tma_desc(), (0, rank * columns), full[0])
        ptx.mbarrier.wait(full[0], 0)
        if group == 2:
            ptx.cluster.sync()
        with ptx.if_(first & (rank == 0)):
            ptx.tcgen05.multiply(acc[0], left, b[0], accumulate=False, metadata=cells[0], ws=ws)
            ptx.tcgen05.commit(done[0], group=group, multicast=3 if group == 2 else None)
        ptx.mbarrier.wait(done[0], 0)
        ptx.tcgen05.fence_after_thread_sync()
        store(acc[0], C, n, out)
        memory.dealloc()

    return product


def lane_of(row: int, rows: int, ws: bool) -> int:
    """The lane of a CTA's row: where 64 rows are not `.ws`, 16 of them in each quarter."""
    return row % 16 + row // 16 * 32 if rows == 64 and not ws else row


def stored_and_metadata(whole: np.ndarray, dtype: Any, group: int, ws: bool, seed: int = 5):
    """A with half of its elements zero, those that are left, and the cells of all CTAs."""
    rng = np.random.default_rng(seed)
    m, k = whole.shape
    rows, size = m // group, 2 if dtype is f32 else 4
    kept = np.zeros_like(whole)
    stored = np.zeros((m, k // 2), whole.dtype)
    cells = np.zeros((128 * group, COLUMNS), np.uint32)
    depth = 64 // dtype.bytes  # of an instruction
    for row in range(m):
        for at in range(k // size):
            if dtype is f32:
                code = (0x4, 0xE)[rng.integers(2)]
                places: tuple[int, ...] = (0,) if code == 0x4 else (1,)
            else:
                code, places = list(PAIRS.items())[rng.integers(len(PAIRS))]
            for number, place in enumerate(places):
                kept[row, size * at + place] = whole[row, size * at + place]
                stored[row, size // 2 * at + number] = whole[row, size * at + place]
            step, inside = divmod(size * at, depth)
            mine = row % rows
            if dtype.bytes == 1:  # 64 bits of the row's own lane
                lane, bit, column = lane_of(mine, rows, ws), inside, 2 * step
                column, bit = column + bit // 32, bit % 32
            else:  # rows r and r + 8 share two lanes, each for half of k
                half = depth // 2
                top = lane_of(mine // 16 * 16, rows, ws)
                lane, column = top + mine % 8 + 8 * (inside // half), step
                bit = 16 * (mine // 8 % 2) + inside % half * (32 // depth)
            cells[row // rows * 128 + lane, column] |= np.uint32(code << bit)
    if ws:
        for low in range(rows, 128, rows):
            cells[low : low + rows] = cells[:rows]
    return kept, stored, cells


CASES = {
    "bf16 D": (128, 64, bf16, f32, {}),
    "bf16 D, A in tensor memory": (128, 32, bf16, f32, {"in_cells": True}),
    "bf16 F": (64, 32, bf16, f32, {}),
    "tf32": (128, 32, f32, f32, {}),
    "e4m3": (128, 32, e4m3, f32, {}),
    "e4m3 F": (64, 32, e4m3, f32, {}),
    "s8": (128, 64, s8, s32, {}),
    "pair A": (256, 64, bf16, f32, {"group": 2}),
    "pair C": (128, 64, bf16, f32, {"group": 2}),
    "pair A of 8 bits": (256, 64, e4m3, f32, {"group": 2}),
    "stationary E": (64, 64, bf16, f32, {"ws": True}),
    "stationary G of 8 bits": (32, 128, e4m3, f32, {"ws": True}),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", CASES)
def test_a_sparse_product_is_numpys_with_zeros(name: str):
    m, n, dtype, out, options = CASES[name]
    k = 128 // dtype.bytes
    a, b = matrix(dtype, m, k, 1), matrix(dtype, n, k, 2)
    if dtype is f32:
        a, b = ((one.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for one in (a, b))
    kept, stored, cells = stored_and_metadata(a, dtype, options.get("group", 1), options.get("ws", False))
    report = sparse_kernel(m, n, dtype, out, **options).emulate(stored, b, cells)
    assert [finding for finding in report.findings if finding.severity == "error"] == []
    expected = kept.astype(float) @ b.astype(float).T
    got = report.outputs[-1].astype(float)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_an_infinity_that_meets_nothing_stored_is_not_multiplied():
    a, b = (np.ones((rows, 64), NUMPY["bf16"]) for rows in (128, 32))
    kept, stored, cells = stored_and_metadata(a, bf16, 1, False)
    b[3, 5], b[4, 6] = np.inf, np.nan
    got = sparse_kernel(128, 32, bf16, f32).emulate(stored, b, cells).outputs[-1]
    expected = np.full((128, 32), 32.0)
    expected[kept[:, 5] != 0, 3], expected[kept[:, 6] != 0, 4] = np.inf, np.nan
    np.testing.assert_array_equal(got, expected)


def test_four_bits_that_mean_nothing_are_refused():
    a, b = (np.ones((rows, 64), NUMPY["bf16"]) for rows in (128, 32))
    _, stored, cells = stored_and_metadata(a, bf16, 1, False)
    cells[17, 0] = cells[17, 0] & ~np.uint32(0xF) | np.uint32(0x5)
    with pytest.raises(InvalidOperandError) as caught:
        sparse_kernel(128, 32, bf16, f32).emulate(stored, b, cells)
    assert "row 17" in caught.value.what and "0x5" in caught.value.what


def test_four_bits_over_zeros_do_not_matter():
    """CUTLASS's compressor leaves 0 for a group of zeros."""
    a, b = (np.ones((rows, 64), NUMPY["bf16"]) for rows in (128, 32))
    _, stored, cells = stored_and_metadata(a, bf16, 1, False)
    cells[17, 0] &= ~np.uint32(0xF)
    stored[17, :2] = 0
    got = sparse_kernel(128, 32, bf16, f32).emulate(stored, b, cells).outputs[-1]
    expected = np.full((128, 32), 32.0)
    expected[17] = 30
    np.testing.assert_array_equal(got, expected)


def test_metadata_that_nobody_wrote_are_found():
    """The machine cannot run them: four ones mean nothing. The sanitizer has said why."""
    a, b = (np.ones((rows, 64), NUMPY["bf16"]) for rows in (128, 32))
    _, stored, cells = stored_and_metadata(a, bf16, 1, False)
    with pytest.raises(InvalidOperandError) as caught:
        sparse_kernel(128, 32, bf16, f32, written=1).emulate(stored, b, cells)
    assert "0xf" in caught.value.what
    assert "tensor-memory-uninitialised" in {finding.rule for finding in caught.value.findings}
