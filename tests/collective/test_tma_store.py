"""Results stored through shared memory: every type and width, ragged sizes, and no write outside the tile."""

from __future__ import annotations

import numpy as np
import pytest

from tests.collective.ends import assert_rounded, call, ending, expected
from tests.errors import refused
from warploom.collective import TmaStore
from warploom.collective.epilogue.arguments import box_columns
from warploom.collective.epilogue.smem_tile import boxes_of
from warploom.collective.epilogue.spec import Fusion
from warploom.collective.tile.sizes import fits
from warploom.lang import Tile, kernel
from warploom.types import bf16, e4m3, e5m2, f16, f32, s32, u32

FLOATS = (bf16, f16, f32, e4m3, e5m2)
WIDTHS = (8, 24, 64, 72, 176, 208, 256)


def cases(types, widths):
    return [(out, width) for out in types for width in widths if fits(width, out)]


@pytest.mark.sample(3, all=3)
@pytest.mark.parametrize("out, tile_n", cases(FLOATS, WIDTHS), ids=str)
def test_every_type_and_width(out, tile_n: int):
    """Two tiles next to each other, the second cut off; rows end inside of a tile."""
    step = 16 // out.bytes
    subject = call(Fusion(), out, 100, -(-(tile_n + tile_n // 2) // step) * step)
    d = subject.run(ending(out, tile_n), out)
    assert_rounded(d, *expected(Fusion(), subject)[:2], out)


@pytest.mark.sample(2)
@pytest.mark.parametrize("out, accumulator", [(s32, s32), (bf16, s32), (f32, s32), (e4m3, s32)], ids=str)
@pytest.mark.parametrize("tile_n", [48, 96])
def test_sums_of_integers_stay_or_become_floats(out, accumulator, tile_n: int):
    subject = call(Fusion(), f32, 70, 112)
    x = np.random.default_rng(1).integers(-(2**20), 2**20, subject.x.shape).astype(np.int32)
    d = np.zeros(x.shape, out.numpy)
    ending(out, tile_n, accumulator=accumulator).emulate(x, out=d).raise_on_findings()
    assert_rounded(d, x.astype(np.float64), np.zeros(x.shape), out)


@pytest.mark.sample(2)
@pytest.mark.parametrize("epi_stages", [1, 2, 3, 5])
@pytest.mark.parametrize("schedule", ["lazy", "random", "starve"])
def test_stages_are_not_written_before_their_store_has_read_them(epi_stages: int, schedule: str):
    subject = call(Fusion(), bf16, 256, 72)
    d = subject.run(ending(bf16, 72, blocks=2, epi_stages=epi_stages), bf16, schedule=schedule, seed=3)
    assert_rounded(d, *expected(Fusion(), subject)[:2], bf16)


@pytest.mark.parametrize("matrices", [True, False])
def test_sixteen_bits_are_the_same_with_and_without_stmatrix(matrices: bool):
    subject = call(Fusion(), bf16, 64, 88)
    d = subject.run(ending(bf16, 88, matrices=matrices), bf16)
    np.testing.assert_array_equal(d, subject.x.astype(bf16.numpy))


@pytest.mark.parametrize("out, passes", [(bf16, 1), (f16, 1), (e4m3, 1), (f32, 2)], ids=str)
def test_bank_conflicts_are_those_of_the_table(out, passes: int):
    """Every type fills its boxes with the fewest possible passes over the banks, f32 with twice as many."""
    columns = box_columns(out)
    subject = call(Fusion(), out, 64, columns)
    report = ending(out, columns).emulate(subject.x, out=np.zeros(subject.x.shape, out.numpy))
    assert report.counters.bank_conflicts == 0 if passes == 1 else report.counters.bank_conflicts > 0


def test_a_tile_is_cut_into_boxes_of_128_bytes_and_what_is_left():
    assert boxes_of(208, bf16) == [(0, 64), (64, 64), (128, 64), (192, 16)]
    assert boxes_of(208, f32)[-1] == (192, 16)
    assert boxes_of(208, e4m3) == [(0, 128), (128, 80)]


@pytest.mark.parametrize("out, tile_n", [(e4m3, 24), (e5m2, 72), (bf16, 20)], ids=str)
def test_a_box_of_no_whole_16_bytes_is_refused(out, tile_n: int):
    with refused("trace", expected="columns in multiples of 8, and of 16 bytes"):
        ending(out, tile_n).ptx()


def test_an_s32_result_is_not_made_of_floats():
    with refused("trace", got="f32 accumulators"):
        ending(s32, 64).ptx()


@pytest.mark.parametrize(
    "tile, says",
    [
        (Tile(64, 64, bf16, box=(64, 32), swizzle="128B"), ("trace", "box (64, 32), swizzle 128B")),
        (Tile(64, 64, bf16, box=(64, 64)), ("trace", "box (64, 64), swizzle NONE")),
        (Tile(64, 64, f32, box=(64, 64)), ("trace", "box (64, 64), swizzle NONE")),
        (Tile(64, 64, u32, box=(32, 64), swizzle="128B"), ("trace", "u32")),
    ],
)
def test_other_tensor_maps_and_types_are_refused(tile, says: str):
    @kernel(out_specs=(tile,), grid=(1,), block=128, arch="sm_90a")
    def subject(C):
        TmaStore(C, 1)

    with refused(*says):
        subject.ptx()
