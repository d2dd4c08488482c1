"""The owner maps, against the formulas of the PTX ISA written out element by element, and for completeness."""

import numpy as np
import pytest

from warploom.isa import fragments

# PTX ISA 9.7.14.5: (row, k) of element i of A, with g = lane / 4 and q = lane % 4.
ISA_A = {
    (16, 8, 16): lambda g, q, i: (g if i < 2 else g + 8, q * 2 + (i & 1)),
    (16, 16, 16): lambda g, q, i: (g if 0 <= i < 2 or 4 <= i < 6 else g + 8, q * 2 + (i & 1) + (8 if i >= 4 else 0)),
    (16, 4, 32): lambda g, q, i: ((g, g + 8)[i], q),
    (16, 8, 32): lambda g, q, i: (g if i in (0, 2) else g + 8, q if i in (0, 1) else q + 4),
    (8, 16, 8): lambda g, q, i: (g, q * 4 + i),
    (16, 16, 8): lambda g, q, i: (g if i < 4 else g + 8, q * 4 + (i & 3)),
    (16, 32, 8): lambda g, q, i: (g if 0 <= i < 4 or 8 <= i < 12 else g + 8, q * 4 + (i & 3) + (16 if i >= 8 else 0)),
    (8, 32, 4): lambda g, q, i: (g, q * 8 + i),
    (16, 32, 4): lambda g, q, i: (g if i < 8 else g + 8, q * 8 + (i & 7)),
    (16, 64, 4): lambda g, q, i: (g if 0 <= i < 8 or 16 <= i < 24 else g + 8, q * 8 + (i & 7) + (32 if i >= 16 else 0)),
    (8, 128, 1): lambda g, q, i: (g, q * 32 + i),
    (16, 128, 1): lambda g, q, i: (g if i < 32 else g + 8, q * 32 + (i & 31)),
    (16, 256, 1): lambda g, q, i: (g if i < 32 or 64 <= i < 96 else g + 8, q * 32 + (i & 31) + (128 if i >= 64 else 0)),
    (8, 4, 64): lambda g, q, i: (g, q),
    (16, 4, 64): lambda g, q, i: ((g, g + 8)[i], q),
    (16, 8, 64): lambda g, q, i: (g if i in (0, 2) else g + 8, q if i in (0, 1) else q + 4),
    (16, 16, 64): lambda g, q, i: (g if i % 2 == 0 else g + 8, i * 2 + q if i % 2 == 0 else i * 2 - 2 + q),
}  # fmt: skip
# (k, col) of element i of B.
ISA_B = {
    (8, 16): lambda g, q, i: (q * 2 + i, g),
    (16, 16): lambda g, q, i: (q * 2 + (i & 1) + (8 if i >= 2 else 0), g),
    (4, 32): lambda g, q, i: (q, g),
    (8, 32): lambda g, q, i: (q + 4 * i, g),
    (16, 8): lambda g, q, i: (q * 4 + i, g),
    (32, 8): lambda g, q, i: (q * 4 + (i & 3) + (16 if i >= 4 else 0), g),
    (32, 4): lambda g, q, i: (q * 8 + (i & 7), g),
    (64, 4): lambda g, q, i: (q * 8 + (i & 7) + (32 if i >= 8 else 0), g),
    (128, 1): lambda g, q, i: (q * 32 + i, g),
    (256, 1): lambda g, q, i: (q * 32 + (i & 31) + (128 if i >= 32 else 0), g),
    (4, 64): lambda g, q, i: (q, g),
    (8, 64): lambda g, q, i: (q + 4 * i, g),
    (16, 64): lambda g, q, i: (q + 4 * i, g),
}


def as_pairs(fragment):
    return [
        [(int(row), int(column)) for row, column in zip(rows, columns, strict=True)]
        for rows, columns in zip(fragment.rows, fragment.columns, strict=True)
    ]


@pytest.mark.parametrize("m, k, bits", ISA_A)
def test_a_of_mma_lies_as_the_isa_says(m, k, bits):
    fragment = fragments.mma_a(m, k, bits)
    formula = ISA_A[m, k, bits]
    assert as_pairs(fragment) == [[formula(t >> 2, t % 4, i) for i in range(m * k // 32)] for t in range(32)]


@pytest.mark.parametrize("k, bits", ISA_B)
def test_b_of_mma_lies_as_the_isa_says(k, bits):
    fragment = fragments.mma_b(k, bits)
    formula = ISA_B[k, bits]
    assert as_pairs(fragment) == [[formula(t >> 2, t % 4, i)[::-1] for i in range(8 * k // 32)] for t in range(32)]


@pytest.mark.parametrize("m, bits", [(8, 32), (8, 64), (16, 16), (16, 32), (16, 64)])
def test_c_of_mma_lies_as_the_isa_says(m, bits):
    expected = [[((t >> 2) + (8 if i >= 2 else 0), t % 4 * 2 + (i & 1)) for i in range(m // 4)] for t in range(32)]
    assert as_pairs(fragments.mma_c(m, bits)) == expected


def test_the_volta_shape_lies_as_the_isa_says():
    def place(lane):
        return 8 * (lane % 16 // 4), 0 if lane < 16 else 4  # which of the four products, low or high group

    for t in range(32):
        first, high = place(t)
        row_a = [(first + t % 4 + high, i) for i in range(4)]
        column_a = [(first + i + high, t % 4) for i in range(4)]
        assert as_pairs(fragments.volta_a("row"))[t] == row_a
        assert as_pairs(fragments.volta_a("col"))[t] == column_a
        assert as_pairs(fragments.volta_b("col"))[t] == [(first + t % 4 + high, i) for i in range(4)]
        assert as_pairs(fragments.volta_b("row"))[t] == [(first + i + high, t % 4) for i in range(4)]
        assert as_pairs(fragments.volta_c(16))[t] == [(first + t % 4 + high, i) for i in range(8)]
        wide = [(first + (t & 1) + (i & 2) + high, (i & 4) + (t & 2) + (i & 1)) for i in range(8)]
        assert as_pairs(fragments.volta_c(32))[t] == wide


@pytest.mark.parametrize("n", [8, 16, 24, 64, 256])
@pytest.mark.parametrize("bits", [16, 32])
def test_the_accumulator_of_wgmma_lies_as_cutlass_says(n, bits):
    expected = [
        [(16 * (t // 32) + t % 32 // 4 + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * (t % 4) + i % 2) for i in range(n // 2)]
        for t in range(128)
    ]
    assert as_pairs(fragments.warpgroup_d(n, bits)) == expected


@pytest.mark.parametrize(
    "bits, row_half, k",
    [
        (16, lambda i: i // 2 % 2, lambda q, i: 8 * (i // 4) + 2 * q + i % 2),
        (8, lambda i: i // 4 % 2, lambda q, i: 16 * (i // 8) + 4 * q + i % 4),
        (32, lambda i: i % 2, lambda q, i: q + 4 * (i // 2)),
    ],
)
def test_a_of_wgmma_in_registers_lies_as_cutlass_says(bits, row_half, k):
    count = 4 * 32 // bits
    expected = [
        [(16 * (t // 32) + t % 32 // 4 + 8 * row_half(i), k(t % 4, i)) for i in range(count)] for t in range(128)
    ]
    assert as_pairs(fragments.warpgroup_a(bits)) == expected


ALL = [
    *(fragments.mma_a(*key) for key in ISA_A),
    *(fragments.mma_b(*key) for key in ISA_B),
    *(fragments.warpgroup_d(n) for n in (8, 24, 256)),
    *(fragments.warpgroup_a(bits) for bits in (1, 8, 16, 32)),
    *(fragments.volta_a(layout) for layout in ("row", "col")),
    fragments.volta_c(16), fragments.volta_c(32),
    fragments.matrix_b16(), fragments.matrix_b16(True),
]  # fmt: skip


@pytest.mark.parametrize("fragment", ALL)
def test_every_element_has_one_owner_and_the_inverse_finds_it(fragment):
    assert sorted(fragment.flat.ravel()) == list(range(fragment.shape[0] * fragment.shape[1]))
    matrix = np.arange(fragment.shape[0] * fragment.shape[1]).reshape(fragment.shape)
    registers = matrix.ravel()[fragment.order]
    assert np.array_equal(registers.ravel()[fragment.owner], matrix)
    for thread, element in ((0, 0), (fragment.threads - 1, fragment.elements - 1), (5, fragment.elements // 2)):
        register, place = divmod(element, fragment.per_register)
        assert registers[register, thread, place] == fragment.flat[thread, element]


def test_a_of_mma_is_four_matrices_as_ldmatrix_loads_them():
    a = fragments.mma_a(16, 16, 16)
    part = fragments.matrix_b16()
    for register, (row, column) in enumerate([(0, 0), (8, 0), (0, 8), (8, 8)]):
        assert np.array_equal(a.rows[:, 2 * register : 2 * register + 2], part.rows + row)
        assert np.array_equal(a.columns[:, 2 * register : 2 * register + 2], part.columns + column)
