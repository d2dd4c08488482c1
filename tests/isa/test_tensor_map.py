"""Tensor maps: dims from arrays, derived sizes, codes, and every limit of TMA with the field it names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.errors import refused
from warploom.errors import ArgumentTypeError
from warploom.isa import dtypes
from warploom.isa.tensor_map import TensorMapSpec

GOOD = TensorMapSpec(dtypes.bf16, dims=(256, 128), strides=(512,), box=(64, 32), swizzle="128B")


def test_an_array_is_described_innermost_first():
    array = np.zeros((3, 128, 256), np.float16)
    spec = TensorMapSpec.tiled(array.shape, array.strides, array.dtype, box=(64, 32, 1))
    assert spec.dims == (256, 128, 3)
    assert spec.strides == (512, 128 * 512)
    assert spec.box == (64, 32, 1)


def test_rows_may_be_padded():
    rows = np.zeros((128, 256), np.float16)[:, :200]
    spec = TensorMapSpec.tiled(rows.shape, rows.strides, rows.dtype, box=(64, 32))
    assert (spec.dims, spec.strides) == ((200, 128), (512,))


def test_the_stride_of_a_dimension_of_extent_one_does_not_matter():
    spec = TensorMapSpec.tiled((1, 64), (2, 2), "bf16", box=(64, 1))
    assert spec.strides == (128,)


def test_without_strides_the_array_is_contiguous():
    assert TensorMapSpec.tiled((4, 8, 16), None, "f32", box=(16, 8, 4)).strides == (64, 512)


def test_the_signalled_bytes_are_those_of_the_whole_box():
    assert GOOD.box_bytes == 64 * 32 * 2


@pytest.mark.parametrize("step, count", [(1, 8), (2, 4), (3, 3), (8, 1)])
def test_element_strides_divide_the_box_rounding_up(step, count):
    spec = replace(GOOD, box=(64, 8), element_strides=(1, step))
    assert spec.counts == (64, count)
    assert spec.box_bytes == 64 * count * 2


def test_the_element_stride_of_dimension_0_is_ignored_without_interleave():
    assert replace(GOOD, element_strides=(4, 1)).counts == (64, 32)


@pytest.mark.parametrize(
    "swizzle, box, pitch", [("NONE", 16, 32), ("32B", 16, 32), ("64B", 16, 64), ("128B", 16, 128), ("128B", 64, 128)]
)
def test_a_narrow_box_keeps_the_pitch_of_its_swizzle(swizzle, box, pitch):
    spec = replace(GOOD, swizzle=swizzle, box=(box, 32))
    assert spec.pitch == pitch
    assert spec.shared_bytes == 32 * pitch


@pytest.mark.parametrize(
    "dtype, driver, replaced",
    [
        ("u8", 0, 0), ("e4m3", 0, 0), ("s32", 3, 3), ("f16", 6, 6), ("f32", 7, 7), ("f64", 8, 9), ("bf16", 9, 10),
        ("tf32", 11, 11),
    ],
)  # fmt: skip
def test_the_driver_and_tensormap_replace_number_the_types_differently(dtype, driver, replaced):
    spec = replace(GOOD, dtype=dtypes.ALL[dtype])
    assert (spec.driver_element, spec.replace_element) == (driver, replaced)
    assert dtypes.ALL[dtype].bytes == GOOD.with_mode("elemtype", replaced).dtype.bytes


def test_driver_codes_of_the_modes():
    spec = replace(GOOD, interleave="32B", oob_fill="NAN", l2_promotion="256B")
    assert (spec.driver_interleave, spec.driver_swizzle, spec.driver_oob_fill, spec.driver_l2_promotion) == (2, 3, 1, 3)


BROKEN = {
    "rank 0": (dict(dims=(), strides=(), box=()), ("argument", "rank 0")),
    "rank 6": (dict(dims=(8,) * 6, strides=(16,) * 5, box=(8,) * 6), ("argument", "rank 6")),
    "too few strides": (dict(strides=()), ("argument", "0: ()")),
    "box of another rank": (dict(box=(64,)), ("argument", "1: (64,)")),
    "empty dimension": (dict(dims=(256, 0)), ("argument", "0")),
    "huge dimension": (dict(dims=(256, 2**32 + 1)), ("argument", "4294967297")),
    "stride of 8": (dict(strides=(520,)), ("argument", "520")),
    "stride of 2^40": (dict(strides=(2**40,)), ("argument", "1099511627776")),
    "box of 0": (dict(box=(64, 0)), ("argument", "0")),
    "box of 257": (dict(box=(64, 257)), ("argument", "257")),
    "element stride 9": (dict(element_strides=(1, 9)), ("argument", "9")),
    "inner box of 24 bytes": (dict(box=(12, 32)), ("argument", "24")),
    "inner box wider than the swizzle": (dict(box=(72, 32)), ("argument", "144 bytes")),
    "unknown swizzle": (dict(swizzle="256B"), ("argument", "'256B'")),
    "unknown fill": (dict(oob_fill="ONE"), ("argument", "'ONE'")),
    "NaN for integers": (dict(dtype=dtypes.u16, oob_fill="NAN"), ("argument", "u16")),
    "NaN for fp8": (dict(dtype=dtypes.e4m3, oob_fill="NAN", dims=(512, 128)), ("argument", "e4m3")),
    "interleave with rank 2": (dict(interleave="16B"), ("argument", "2")),
    "interleave 32B without its swizzle": (
        dict(interleave="32B", dims=(256, 8, 8), strides=(512, 4096), box=(16, 8, 8)), ("argument", "128B"),
    ),
    "interleave 32B with a stride of 48": (
        dict(interleave="32B", swizzle="32B", dims=(16, 8, 8), strides=(48, 4096), box=(16, 8, 8)), ("argument", "48"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("change, sentence", BROKEN.values(), ids=BROKEN)
def test_a_limit_is_named_with_field_and_value(change, sentence):
    GOOD.validate()
    with refused(*sentence):
        replace(GOOD, **change).validate()


def test_an_array_whose_last_dimension_is_strided_is_refused():
    with refused("argument", got="128 bytes (shape (64, 64), strides (2, 128))"):
        TensorMapSpec.tiled((64, 64), (2, 128), "bf16", box=(64, 64))


def test_a_type_tma_does_not_move_is_refused():
    with pytest.raises(ArgumentTypeError):
        replace(GOOD, dtype=dtypes.pred).validate()


def test_a_code_tensormap_replace_does_not_have_is_refused():
    with refused("argument", got="9"):
        GOOD.with_mode("swizzle_mode", 9)
