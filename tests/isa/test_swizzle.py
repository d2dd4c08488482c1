"""The swizzle patterns: against the tables of PTX ISA 5.5.7, and their effect on bank conflicts."""

import numpy as np
import pytest

from warploom.isa.swizzle import OPERAND_SWIZZLES, Swizzle

# Which 16-byte chunk lies at each place of eight 128-byte lines, as the tables of PTX ISA 5.5.7 print it.
TABLES = {
    "128B": ["01234567", "10325476", "23016745", "32107654", "45670123", "54761032", "67452301", "76543210"],
    "64B": ["01234567", "10325476", "23016745", "32107654"] * 2,
    "32B": ["01234567", "10325476"] * 4,
    "NONE": ["01234567"] * 8,
    "128B_ATOM_32B": ["01234567", "23016745", "45670123", "67452301"] * 2,
    "128B_ATOM_64B": ["01234567", "45670123"] * 4,
}


@pytest.mark.parametrize("name", TABLES)
def test_a_pattern_is_the_table_of_the_isa(name):
    address = np.arange(0, 1024, 16)
    lines = (Swizzle(name).apply(address) // 16 % 8).reshape(8, 8)
    assert ["".join(map(str, line)) for line in lines] == TABLES[name]


@pytest.mark.parametrize("swizzle", Swizzle)
def test_a_pattern_is_its_own_inverse_and_repeats(swizzle):
    address = np.arange(4096)
    assert np.array_equal(swizzle.apply(swizzle.apply(address)), address)
    assert np.array_equal(np.sort(swizzle.apply(address)), address)
    assert np.array_equal(swizzle.apply(address + swizzle.repeat), swizzle.apply(address) + swizzle.repeat)


@pytest.mark.parametrize("name, rows", [("32B", 2), ("64B", 4), ("128B", 8)])
def test_a_column_of_a_swizzled_tile_touches_every_bank_once(name, rows):
    swizzle = Swizzle(name)
    lines = 128 // swizzle.span  # rows of the tile in one 128-byte line
    for chunk in range(swizzle.span // 16):
        start = np.arange(rows * lines) * swizzle.span + chunk * 16
        words = swizzle.apply(start[:, None] + np.arange(0, 16, 4)[None, :]) // 4 % 32
        # 8 rows of 16 bytes are what one phase of ldmatrix reads.
        for phase in words.reshape(-1, 8, 4) if rows * lines >= 8 else [words]:
            assert sorted(phase.ravel()) == list(range(32))


def test_without_a_swizzle_a_column_of_a_128_byte_tile_hits_four_banks_only():
    words = Swizzle.NONE.apply(np.arange(8)[:, None] * 128 + np.arange(0, 16, 4)) // 4 % 32
    assert len(set(words.ravel())) == 4


def test_a_scalar_and_an_array_go_the_same_way():
    assert Swizzle.B128.apply(0x3F0) == int(Swizzle.B128.apply(np.array([0x3F0]))[0])


@pytest.mark.parametrize("swizzle", [mode for mode in OPERAND_SWIZZLES if mode is not Swizzle.NONE])
def test_the_base_offset_makes_a_shifted_pattern_equal_to_an_aligned_one(swizzle):
    address = np.arange(0, 1024, 16)
    for start in range(0, 1024, 128):
        shifted = swizzle.apply(address + start, swizzle.base_offset(start)) - start
        assert np.array_equal(shifted % 128, swizzle.apply(address) % 128)


def test_the_codes_of_descriptor_and_driver_are_different_numbers():
    assert [(mode.descriptor_code, mode.driver_code) for mode in OPERAND_SWIZZLES] == [(1, 3), (2, 2), (3, 1), (0, 0)]
    assert all(Swizzle.of_descriptor_code(mode.descriptor_code) is mode for mode in OPERAND_SWIZZLES)
