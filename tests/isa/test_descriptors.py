"""wgmma's matrix descriptor, against measurements on an H200."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.errors import refused
from warploom.isa import descriptors, dtypes
from warploom.isa.descriptors import Descriptor
from warploom.isa.swizzle import OPERAND_SWIZZLES, Swizzle

GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.mark.parametrize("major, suffix", [("K", "k"), ("MN", "mn")])
def test_the_addresses_are_those_the_hardware_read(major, suffix):
    recorded = np.load(GOLDEN / "descriptor.npz")
    for bits, chunks in zip(recorded[f"desc_{suffix}"], recorded[f"chunk_{suffix}"], strict=True):
        addresses = descriptors.operand_addresses(descriptors.decode(bits), dtypes.f16, 64, 16, major)
        assert np.array_equal(addresses // 16, chunks), hex(bits)


FIELD = st.integers(0, 0x3FFF)


@given(FIELD, FIELD, FIELD, st.sampled_from(OPERAND_SWIZZLES), st.integers(0, 7))
def test_encoding_and_decoding_are_inverse(start, leading, stride, swizzle, base_offset):
    descriptor = Descriptor(start * 16, leading * 16, stride * 16, swizzle, base_offset)
    assert descriptors.decode(descriptor.encode()) == descriptor


def test_the_bits_stand_where_the_isa_puts_them():
    bits = Descriptor(0x1230, 0x10, 0x400, Swizzle.B128, 5).encode()
    assert bits == 0x123 | 1 << 16 | 0x40 << 32 | 5 << 49 | 1 << 62


@pytest.mark.parametrize("bit", [14, 15, 30, 31, 46, 48, 52, 61])
def test_reserved_bits_are_refused(bit):
    with refused("invalid-operand", expected="zero in bits 14-15, 30-31, 46-48 and 52-61"):
        descriptors.decode(1 << bit)


@pytest.mark.parametrize("field", [{"start": 8}, {"start": 1 << 18}, {"stride_offset": -16}, {"leading_offset": 24}])
def test_a_field_that_does_not_fit_is_refused(field):
    with refused("argument", expected="a multiple of 16 bytes below 2^18"):
        Descriptor(**{"start": 0, "leading_offset": 0, "stride_offset": 0, "swizzle": Swizzle.NONE, **field}).encode()


def test_addresses_wrap_at_eighteen_bits():
    addresses = descriptors.operand_addresses(Descriptor(0x3FF80, 128, 128, Swizzle.NONE), dtypes.bf16, 16, 16, "K")
    assert addresses[8, 0] == 0
