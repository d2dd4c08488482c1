"""mma.sp in the emulator: every type and depth, selectors, both orders of metadata, metadata that means nothing.

The expected values come from a dense A that NumPy multiplies; metadata is packed here thread by thread.
"""

import itertools

import numpy as np
import pytest

from tests.emulator.tensor_kernels import from_registers, run_mma, to_registers
from tests.emulator.test_mma import FLOATS, numbers_of, small_floats
from tests.errors import refused
from warploom.isa import fragments

FLOAT_ROWS = [
    *(("f16", "f16", d, k) for d in ("f32", "f16") for k in (16, 32)),
    *(("bf16", "bf16", "f32", k) for k in (16, 32)), *(("tf32", "tf32", "f32", k) for k in (8, 16)),
    *((a, b, "f32", 64) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")),
]  # fmt: skip
WHOLE_ROWS = [("s8", "u8", 32), ("u8", "s8", 64), ("s4", "u4", 64), ("u4", "s4", 128)]
PAIRS = list(itertools.combinations(range(4), 2))
NOT_ASKED = 0x4EE4_4EE4


def bits_of(kind):
    return {"s4": 4, "u4": 4, "s8": 8, "u8": 8}.get(kind) or FLOATS[kind][1]


def asked(k, bits):
    """Of four neighbouring threads, how many hold metadata."""
    return {(16, 16): 1, (8, 32): 1, (64, 8): 4, (128, 4): 4}.get((k, bits), 2)


def chosen(rng, k, bits, swapped=False):
    """Four bits of each group of each row, and which elements of k are stored, in the order in which they are."""
    unit = 2 if bits == 4 else 1
    size = 2 if bits == 32 else 4
    groups = k // (size * unit)
    codes, places = np.zeros((16, groups), np.uint32), np.zeros((16, k // 2), np.int64)
    for row, group in np.ndindex(codes.shape):
        if size == 2:
            kept = [int(rng.integers(2))]
            codes[row, group] = 0xE if kept[0] else 0x4
        else:
            kept = list(PAIRS[rng.integers(len(PAIRS))])[:: -1 if swapped else 1]
            codes[row, group] = kept[0] | kept[1] << 2
        where = [(group * size + place) * unit + inside for place in kept for inside in range(unit)]
        places[row, group * len(where) : (group + 1) * len(where)] = where
    return codes, places


def packed(codes, k, bits, selector):
    """A register of each thread, PTX ISA 9.7.14.6.1: of four neighbours that hold rows r and r + 8, one or two hold
    four groups of both rows, of 8 and 4 bits two or four hold eight groups of one."""
    registers = np.full(32, NOT_ASKED, np.uint32)  # threads that are not asked hold what looks like metadata
    for thread in range(32):
        row, place = thread // 4, thread % 4
        count = asked(k, bits)
        if count < 4 and place // count != selector:
            continue
        at = place % count
        if bits <= 8:
            found = codes[row + 8 * (at % 2), 8 * (at // 2) : 8 * (at // 2) + 8]
        else:
            found = np.concatenate([codes[row, 4 * at : 4 * at + 4], codes[row + 8, 4 * at : 4 * at + 4]])
        registers[thread] = sum(int(code) << 4 * shift for shift, code in enumerate(found))
    return registers


def multiply(opcode, stored, b, c, metadata, selector, bits, c_bits, **options):
    """D of one mma.sp; matrices as raw bits."""
    k, accumulator = b.shape[-1], fragments.mma_c(16, c_bits)
    return from_registers(run_mma(
        opcode, to_registers(stored, fragments.mma_a(16, k // 2, bits)), to_registers(b, fragments.mma_b(k, bits)),
        to_registers(c, accumulator), accumulator.registers, metadata=metadata[None], selector=selector,
        **options,
    ), accumulator)  # fmt: skip


def dense(stored, places, k):
    whole = np.zeros((16, k), stored.dtype)
    np.put_along_axis(whole, places, stored, 1)
    return whole


@pytest.mark.parametrize("variant", ["sp", "sp::ordered_metadata"])
@pytest.mark.parametrize("a_type, b_type, d_type, k", FLOAT_ROWS)
def test_a_float_product_is_that_of_the_dense_matrix(a_type, b_type, d_type, k, variant):
    rng = np.random.default_rng(k)
    bits = bits_of(a_type)
    for selector in range(4 // asked(k, bits)):
        codes, places = chosen(rng, k, bits)
        a, a_bits = small_floats(rng, (16, k // 2), a_type)
        b, b_bits = small_floats(rng, (8, k), b_type)
        c, c_bits = small_floats(rng, (16, 8), d_type)
        opcode = f"mma.{variant}.sync.aligned.m16n8k{k}.row.col.{d_type}.{a_type}.{b_type}.{d_type}"
        d = multiply(opcode, a_bits, b_bits, c_bits, packed(codes, k, bits, selector), selector, bits, bits_of(d_type))
        assert np.array_equal(numbers_of(d, d_type), dense(a, places, k) @ b.T + c)


@pytest.mark.parametrize("a_type, b_type, k", WHOLE_ROWS)
def test_a_whole_product_is_that_of_the_dense_matrix(a_type, b_type, k):
    rng = np.random.default_rng(k)
    bits = bits_of(a_type)

    def drawn(kind, shape):
        low = -(1 << bits - 1) if kind[0] == "s" else 0
        numbers = rng.integers(low, low + (1 << bits), shape)
        return numbers, (numbers & (1 << bits) - 1).astype(np.uint8)

    for selector in range(4 // asked(k, bits)):
        codes, places = chosen(rng, k, bits)
        (a, a_bits), (b, b_bits) = drawn(a_type, (16, k // 2)), drawn(b_type, (8, k))
        c = rng.integers(-1000, 1000, (16, 8), dtype=np.int32)
        opcode = f"mma.sp.sync.aligned.m16n8k{k}.row.col.s32.{a_type}.{b_type}.s32"
        d = multiply(opcode, a_bits, b_bits, c.view(np.uint32), packed(codes, k, bits, selector), selector, bits, 32)
        assert np.array_equal(d.view(np.int32), dense(a, places, k) @ b.T + c)


def half(rng, k, swapped=False):
    codes, places = chosen(rng, k, 16, swapped)
    (a, a_bits), (b, b_bits) = small_floats(rng, (16, k // 2), "f16"), small_floats(rng, (8, k), "f16")
    c = np.zeros((16, 8), np.float32)
    return codes, dense(a, places, k) @ b.T, (a_bits, b_bits, c.view(np.uint32))


def test_plain_metadata_may_name_the_later_place_first():
    codes, expected, arrays = half(np.random.default_rng(1), 32, swapped=True)
    d = multiply("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", *arrays, packed(codes, 32, 16, 1), 1, 16, 32)
    assert np.array_equal(d.view(np.float32), expected)


@pytest.mark.parametrize("variant, code", [("sp::ordered_metadata", 0x1), ("sp", 0x0), ("sp::ordered_metadata", 0xF)])
def test_metadata_that_means_nothing_is_refused(variant, code):
    codes, _, arrays = half(np.random.default_rng(2), 16)
    codes[3, 2] = code
    opcode = f"mma.{variant}.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    with refused("invalid-operand"):
        multiply(opcode, *arrays, packed(codes, 16, 16, 0), 0, 16, 32)


@pytest.mark.parametrize("variant", ["sp::ordered_metadata", "sp"])
def test_four_bits_over_zeros_do_not_matter(variant):
    """CUTLASS's compressor leaves 0 for a group of zeros (example 80)."""
    codes, _ = chosen(np.random.default_rng(2), 16, 16, False)
    a, b = np.ones((16, 8), np.float16), np.ones((8, 16), np.float16)
    a[3, 4:6], codes[3, 2] = 0, 0
    arrays = (a.view(np.uint16), b.view(np.uint16), np.zeros((16, 8), np.uint32))
    opcode = f"mma.{variant}.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    d = multiply(opcode, *arrays, packed(codes, 16, 16, 0), 0, 16, 32).view(np.float32)
    assert np.array_equal(d, np.where(np.arange(16) == 3, 6.0, 8.0)[:, None] * np.ones(8))


def test_an_infinity_that_meets_nothing_stored_is_not_multiplied():
    codes = np.full((16, 4), 0x4, np.uint32)  # places 0 and 1 of each group
    a, b, c = np.ones((16, 8), np.float16), np.ones((8, 16), np.float16), np.zeros((16, 8), np.uint32)
    b[0, 2], b[1, 1] = np.inf, np.inf
    opcode = "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    d = multiply(opcode, a.view(np.uint16), b.view(np.uint16), c, packed(codes, 16, 16, 2), 2, 16, 32).view(np.float32)
    assert (d[:, 0] == 8).all() and np.isinf(d[:, 1]).all() and (d[:, 2:] == 8).all()


@pytest.mark.parametrize(
    "large, small, third, expected",
    [
        ((0, 1), 4, 0.0, 2.0**-18),  # the large ones are gone before the upper half of the register is added
        ((0, 1), 9, 0.0, 0.0),  # the same half: cut below the largest
        ((4, 5), 0, 0.0, 0.0),  # the sum of the lower half is cut beside the products of the upper one
        ((0, 9), 60, 0.0, 2.0**-18),  # halves of all registers are added together
        ((0, 1), 4, 64 + 2.0**-17, 64 + 2.0**-16),  # C comes last, to nearest even
    ],
)
@pytest.mark.parametrize("variant", ["sp", "sp::ordered_metadata"])
@pytest.mark.parametrize("a_type", ["e4m3", "e5m2"])
def test_eight_bit_floats_are_summed_by_halves_of_registers(a_type, variant, large, small, third, expected):
    """As an H200 does: tests/golden/conformance.npz."""
    kind = FLOATS[a_type][0]
    codes = np.full((16, 16), 0x4, np.uint32)  # places 0 and 1 of each group
    a, b = np.zeros((16, 32), kind), np.zeros((8, 64), kind)
    for place, left, right in ((large[0], 256, 256), (large[1], -256, 256), (small, 2.0**-9, 2.0**-9)):
        a[:, place // 4 * 2 + place % 4], b[:, place] = left, right
    c = np.full((16, 8), third, np.float32).view(np.uint32)
    opcode = f"mma.{variant}.sync.aligned.m16n8k64.row.col.f32.{a_type}.{a_type}.f32"
    d = multiply(opcode, a.view(np.uint8), b.view(np.uint8), c, packed(codes, 64, 8, 0), 0, 8, 32, numerics="hardware")
    assert (d.view(np.float32) == np.float32(expected)).all()
