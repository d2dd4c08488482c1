"""A tile written by TMA is read back by wgmma's descriptor as the same tile."""

import numpy as np
import pytest

from tests.errors import refused
from warploom.isa import descriptors, dtypes
from warploom.isa.shared_layout import SharedLayout
from warploom.isa.swizzle import Swizzle

BASE = 0x2400  # a multiple of 1024 that is not a multiple of 4096


def written_by_tma(layout: SharedLayout, base: int) -> np.ndarray:
    """Element number (row * k + column) at every element slot of shared memory, box by box, element by element."""
    size = layout.dtype.bytes
    memory = np.full((base + layout.bytes) // size, -1)
    for box in layout.boxes:
        width, height = box.shape
        for y in range(height):
            for x in range(width):
                inner, outer = box.coordinates[0] + x, box.coordinates[1] + y
                row, column = (outer, inner) if layout.major == "K" else (inner, outer)
                address = layout.swizzle.apply(base + box.offset + (y * width + x) * size)
                memory[address // size] = row * layout.k + column
    return memory


TILES = [
    (dtypes.bf16, 64, 16, "K", None),
    (dtypes.bf16, 64, 32, "K", None),
    (dtypes.bf16, 128, 64, "K", None),
    (dtypes.f16, 64, 128, "K", None),
    (dtypes.f16, 320, 64, "K", None),
    (dtypes.f16, 40, 48, "K", None),
    (dtypes.f16, 64, 64, "K", "NONE"),
    (dtypes.bf16, 64, 64, "K", "32B"),
    (dtypes.bf16, 64, 64, "K", "64B"),
    (dtypes.e4m3, 64, 128, "K", None),
    (dtypes.e5m2, 96, 64, "K", None),
    (dtypes.s8, 64, 32, "K", None),
    (dtypes.u8, 64, 256, "K", None),
    (dtypes.tf32, 64, 32, "K", None),
    (dtypes.tf32, 72, 8, "K", None),
    (dtypes.bf16, 8, 16, "MN", None),
    (dtypes.bf16, 16, 16, "MN", None),
    (dtypes.f16, 32, 32, "MN", None),
    (dtypes.bf16, 64, 64, "MN", None),
    (dtypes.bf16, 128, 64, "MN", None),
    (dtypes.f16, 256, 16, "MN", None),
    (dtypes.f16, 96, 32, "MN", None),
    (dtypes.f16, 128, 32, "MN", "NONE"),
    (dtypes.bf16, 128, 32, "MN", "64B"),
    (dtypes.bf16, 128, 32, "MN", "32B"),
]


@pytest.mark.parametrize("dtype, rows, k, major, swizzle", TILES)
def test_what_tma_writes_the_descriptor_reads(dtype, rows, k, major, swizzle):
    layout = SharedLayout.for_operand(dtype, rows, k, major, swizzle)
    memory = written_by_tma(layout, BASE)
    elements = np.arange(rows * k).reshape(rows, k)
    assert np.array_equal(memory[(BASE + layout.offsets(BASE)) // dtype.bytes], elements)
    step = layout.instruction_k
    block = 64 if rows % 64 == 0 else rows
    if layout.major == "MN" and block % layout.panel_inner:
        block = rows
    for first in range(0, rows, block):
        for start_k in range(0, k, step):
            start = BASE + layout.row_offset(first, block) + layout.k_offset(start_k)
            descriptor = descriptors.decode(layout.descriptor_bits | start >> 4)
            addresses = descriptors.operand_addresses(descriptor, dtype, block, step, major)
            wanted = elements[first : first + block, start_k : start_k + step]
            assert np.array_equal(memory[addresses // dtype.bytes], wanted)


def test_the_walkthrough_tiles_are_one_box_each():
    a = SharedLayout.for_operand(dtypes.bf16, 64, 16, "K")
    b = SharedLayout.for_operand(dtypes.bf16, 64, 16, "MN")
    assert (a.swizzle, a.box, a.bytes, a.alignment, a.panels) == (Swizzle.B32, (16, 64), 2048, 256, 1)
    assert (b.swizzle, b.box, b.bytes, b.alignment, b.panels) == (Swizzle.B128, (64, 16), 2048, 1024, 1)


@pytest.mark.parametrize(
    "inner_bytes, swizzle",
    [(16, "NONE"), (32, "32B"), (64, "64B"), (96, "32B"), (128, "128B"), (192, "64B"), (512, "128B")],
)
def test_the_widest_swizzle_that_divides_is_chosen(inner_bytes, swizzle):
    assert SharedLayout.for_operand(dtypes.bf16, inner_bytes // 2, 16, "MN").swizzle is Swizzle(swizzle)


def test_a_block_of_columns_may_lie_within_a_panel_of_an_mn_major_tile():
    layout = SharedLayout.for_operand(dtypes.bf16, 128, 16, "MN")
    memory = written_by_tma(layout, BASE)
    start = BASE + layout.row_offset(72, 32)
    addresses = descriptors.operand_addresses(layout.descriptor(start), dtypes.bf16, 32, 16, "MN")
    assert np.array_equal(memory[addresses // 2], np.arange(128 * 16).reshape(128, 16)[72:104])


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ((dtypes.bf16, 64, 12, "K"), ("argument", "12 elements of 2 bytes")),
        ((dtypes.bf16, 64, 24, "K"), ("argument", "24 elements of 2 bytes")),
        ((dtypes.bf16, 60, 64, "K"), ("argument", "60")),
        ((dtypes.bf16, 64, 32, "K", "128B"), ("argument", "32 elements of 2 bytes = 64 bytes")),
        ((dtypes.e4m3, 64, 32, "MN"), ("argument", "8-bit elements")),
        ((dtypes.bf16, 64, 32, "N"), ("argument", "N")),
        ((dtypes.bf16, 0, 32, "K"), ("argument", "0 x 32")),
    ],
)
def test_a_tile_without_a_layout_is_refused_with_a_sentence(arguments, sentence):
    with refused(*sentence):
        SharedLayout.for_operand(*arguments)


def test_a_slice_that_no_descriptor_can_name_is_refused():
    layout = SharedLayout.for_operand(dtypes.bf16, 128, 64, "MN")
    with refused("argument", got="32"):
        layout.row_offset(32, 64)
    with refused("argument", got="64"):
        layout.k_offset(64)
    with refused("argument", got="4"):
        SharedLayout.for_operand(dtypes.bf16, 128, 64, "K").row_offset(4)
