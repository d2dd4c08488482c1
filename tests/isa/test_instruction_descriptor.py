"""The instruction descriptor of tcgen05.mma and the matrix descriptor of sm_100, against constants of known kernels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warploom.errors import ArgumentError, InvalidOperandError
from warploom.isa import descriptors, dtypes, tcgen05_descriptor
from warploom.isa.instruction_descriptor import KINDS, SHIFTS, InstructionDescriptor, decode, extents, wrong_shape
from warploom.isa.swizzle import Swizzle

FP4 = InstructionDescriptor("mxf8f6f4", 128, 128, "e2m1", "e4m3", scale="ue8m0")
KNOWN = [
    (0x08200010, InstructionDescriptor("f16", 128, 128, "f16", "f16"), "Triton, 128 x 128"),
    (138412048, InstructionDescriptor("f16", 128, 256, "f16", "f16"), "Triton, 128 x 256"),
    (270598160, InstructionDescriptor("f16", 256, 128, "f16", "f16", mn_major_b=True), "Gluon, a pair"),
    (0x04200010, InstructionDescriptor("f16", 64, 128, "f16", "f16"), "CUTLASS, M = 64"),
    (0x08218010, InstructionDescriptor("f16", 128, 128, "f16", "f16", mn_major_a=True, mn_major_b=True), "CUTLASS"),
    (0x08020010, InstructionDescriptor("f8f6f4", 128, 8, "e4m3", "e4m3"), "CUTLASS, N = 8"),
    (144703488, InstructionDescriptor("mxf8f6f4", 128, 128, "e4m3", "e4m3", scale="ue8m0"), "Triton, mxfp8"),
    (136316032, InstructionDescriptor("mxf4nvf4", 128, 128, "e2m1", "e2m1", scale="ue4m3"), "Triton, nvfp4"),
    (0x08A00280, FP4, "CUTLASS, the first block"),
    (
        0x08A00280 + 3 * 0x20000010,
        InstructionDescriptor("mxf8f6f4", 128, 128, "e2m1", "e4m3", scale="ue8m0", scale_a_id=3, scale_b_id=3),
        "CUTLASS, the fourth block",
    ),
]


@pytest.mark.parametrize(("bits", "descriptor", "who"), KNOWN, ids=[known[2] for known in KNOWN])
def test_the_descriptors_of_published_kernels_are_ours(bits, descriptor, who):
    assert descriptor.encode() == bits
    assert decode(descriptor.kind, bits) == descriptor


@st.composite
def descriptors_of_some_kind(draw):
    kind = KINDS[draw(st.sampled_from(list(KINDS)))]
    operands, flag = st.sampled_from(list(kind.operands)), st.booleans()
    more = {}
    if kind.scaled:
        more = {"scale": draw(st.sampled_from(list(kind.scales))), "scale_a_id": draw(st.integers(0, 3))}
    else:
        more = {"max_shift": draw(st.sampled_from(SHIFTS)), "selector": draw(st.integers(0, 3)), "saturate": draw(flag)}
    results = st.sampled_from([result for result in kind.results if kind.name != "f16" or result == "f32"])
    return InstructionDescriptor(
        kind.name, 128 * draw(st.integers(1, 2)), 8 * draw(st.integers(1, 32)), draw(operands), draw(operands),
        draw(results), sparse=draw(flag), mn_major_a=draw(flag), negate_b=draw(flag),
        **more,
    )  # fmt: skip


@given(descriptors_of_some_kind())
def test_a_descriptor_is_read_as_it_was_written(descriptor):
    assert decode(descriptor.kind, descriptor.encode()) == descriptor


def test_reserved_bits_are_told_and_kept():
    found = decode("f16", 0x08200010 | 1 << 23)
    assert found.reserved == 1 << 23
    assert found.encode() == 0x08200010 | 1 << 23


@pytest.mark.parametrize(("kind", "bits"), [("f16", 0x08200010 | 2 << 7), ("tf32", 0x08200010), ("i8", 0x08200010)])
def test_a_type_that_the_kind_does_not_have_is_refused(kind, bits):
    with pytest.raises(InvalidOperandError):
        decode(kind, bits)


@pytest.mark.parametrize(
    "changes",
    [
        {"m": 100},
        {"n": 260},
        {"n": 12},
        {"a": "e4m3"},
        {"d": "s32"},
        {"d": "f16", "b": "bf16"},
        {"max_shift": 4},
        {"selector": 4},
        {"wide_k": True},
    ],
)
def test_what_a_descriptor_cannot_hold_is_refused(changes):
    fields = {"kind": "f16", "m": 128, "n": 128, "a": "f16", "b": "f16", **changes}
    with pytest.raises(ArgumentError):
        InstructionDescriptor(**fields).encode()


# (kind, m, n, group, sparse, .ws, whether the ISA has it), from PTX ISA 9.7.16.2.1
SHAPES = [
    ("f16", 64, 8, 1, False, False, True), ("f16", 128, 256, 1, False, False, True),
    ("f16", 256, 256, 1, False, False, False), ("f16", 256, 256, 2, False, False, True),
    ("f16", 64, 64, 2, False, False, False), ("f16", 128, 24, 2, False, False, False),
    ("f16", 32, 64, 1, False, True, True), ("f16", 32, 96, 1, False, True, False),
    ("f16", 64, 256, 1, True, True, False), ("i8", 128, 40, 1, False, False, False),
    ("i8", 128, 24, 1, False, False, True), ("i8", 256, 48, 2, False, False, False),
    ("mxf8f6f4", 128, 8, 1, False, False, True), ("mxf8f6f4", 128, 64, 2, True, False, False),
    ("mxf8f6f4", 128, 64, 1, False, True, False), ("mxf4nvf4", 256, 64, 2, True, False, True),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "m", "n", "group", "sparse", "ws", "good"), SHAPES)
def test_a_shape_is_what_the_kind_the_group_and_the_variant_have(kind, m, n, group, sparse, ws, good):
    known = KINDS[kind]
    operand = next(iter(known.operands))
    scale = next(iter(known.scales), "")
    descriptor = InstructionDescriptor(kind, m, n, operand, operand, "f32", sparse=sparse, scale=scale)
    assert (wrong_shape(descriptor, group, ws) is None) == good


def test_an_mn_major_b_of_bytes_has_columns_in_sixteens():
    narrow = InstructionDescriptor("f8f6f4", 128, 24, "e4m3", "e4m3", mn_major_b=True)
    assert wrong_shape(narrow) is not None
    assert wrong_shape(InstructionDescriptor("f16", 128, 24, "f16", "f16", mn_major_b=True)) is None


def test_the_extents_of_a_pair_are_even():
    for kind in KINDS:
        rows, columns = extents(kind, group=2)
        assert all(m % 128 == 0 for m in rows) and all(n % 16 == 0 for n in columns)


# -- the matrix descriptor ---------------------------------------------------------------------------------------


def test_a_k_major_tile_of_128_bytes_has_the_constant_of_triton_s_kernels():
    assert tcgen05_descriptor.Descriptor(0, 0, 1024, Swizzle.B128).encode() == 0x4000404000000000


@pytest.mark.parametrize("swizzle", [swizzle for swizzle in Swizzle if swizzle.tcgen05_code is not None])
def test_a_matrix_descriptor_is_read_as_it_was_written(swizzle):
    written = tcgen05_descriptor.Descriptor(0x1230, 0x400, 0x800, swizzle, 3, absolute=True)
    assert tcgen05_descriptor.decode(written.encode()) == written


@pytest.mark.parametrize(
    "bits",
    [
        descriptors.Descriptor(0, 16, 1024, Swizzle.B128).encode(),
        0x4000404000000000 | 1 << 14,
        0x4000404000000000 | 1 << 55,
        0x6000404000000000,
    ],
    ids=["made for wgmma", "a bit behind the start", "a bit before the swizzle", "a code without meaning"],
)
def test_what_is_no_matrix_descriptor_of_sm_100_is_refused(bits):
    with pytest.raises(InvalidOperandError):
        tcgen05_descriptor.decode(bits)


@pytest.mark.parametrize("major", ["K", "MN"])
@pytest.mark.parametrize("swizzle", [Swizzle.NONE, Swizzle.B32, Swizzle.B64, Swizzle.B128])
def test_operands_lie_where_wgmma_s_would(swizzle, major):
    fields = (0x2000, 256, 1024, swizzle)
    ours = tcgen05_descriptor.operand_addresses(tcgen05_descriptor.Descriptor(*fields), dtypes.bf16, 64, 16, major)
    theirs = descriptors.operand_addresses(descriptors.Descriptor(*fields), dtypes.bf16, 64, 16, major)
    np.testing.assert_array_equal(ours, theirs)


def test_rows_that_cross_128_bytes_go_on_at_the_absolute_leading_address():
    tile = tcgen05_descriptor.Descriptor(0x2000 + 96, 0x6000, 1024, Swizzle.B128, absolute=True)
    chunks = tcgen05_descriptor.operand_addresses(tile, dtypes.b8, 16, 48, "K")[:, ::16]
    for row in (0, 1, 9):
        base = row % 8 * 128 + row // 8 * 1024
        there = [0x2000 + base + 16 * (6 ^ row % 8), 0x2000 + base + 16 * (7 ^ row % 8), 0x6000 + base + 16 * (row % 8)]
        assert chunks[row].tolist() == there


@pytest.mark.parametrize(
    ("major", "fields"),
    [("K", (0, 0, 1024, Swizzle.B64)), ("MN", (0, 0, 1024, Swizzle.B128)), ("K", (0, 0, 1024, Swizzle.B128, 1))],
)
def test_an_absolute_leading_address_is_for_k_major_rows_swizzled_by_128_bytes(major, fields):
    tile = tcgen05_descriptor.Descriptor(*fields, absolute=True)
    with pytest.raises(InvalidOperandError):
        tcgen05_descriptor.operand_addresses(tile, dtypes.b8, 64, 48, major)


def test_wide_atoms_keep_32_bytes_together_and_touch_every_byte_once():
    tile = tcgen05_descriptor.Descriptor(0x1000, 4096, 512, Swizzle.B128_ATOM_32B)
    addresses = tcgen05_descriptor.operand_addresses(tile, dtypes.tf32, 64, 8, "MN")
    assert np.unique(addresses).size == addresses.size
    runs = addresses[:8] - addresses[0]
    assert (runs == 4 * np.arange(8)[:, None]).all()  # eight elements of a column of k stay together
    with pytest.raises(InvalidOperandError):
        tcgen05_descriptor.operand_addresses(tile, dtypes.bf16, 64, 16, "MN")
