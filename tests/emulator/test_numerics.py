"""The tensor cores' arithmetic, against recordings of single instructions on an H200 and against float64."""

from pathlib import Path

import numpy as np
import pytest

from warploom.emulator.numerics import tensor_core as numerics
from warploom.emulator.numerics.tensor_core import Product

GOLDEN = Path(__file__).parent.parent / "golden"
SIGN = {"bf16": 0x8000, "e4m3": 0x80}

# file, recorded operation, types of A, B and D, unit, how many k it uses (0: all)
RECORDED = [
    ("bf16", "w_bf16", "bf16", "bf16", "f32", "warpgroup", 0),
    ("bf16", "m_bf16k8", "bf16", "bf16", "f32", "mma", 8),
    ("f16", "w_f16", "f16", "f16", "f32", "warpgroup", 0),
    ("f16", "m_f16k8", "f16", "f16", "f32", "mma", 8),
    ("f16h", "w_f16f16", "f16", "f16", "f16", "warpgroup", 0),
    ("f16h", "m_f16f16k8", "f16", "f16", "f16", "mma", 8),
    ("tf32", "w_tf32", "tf32", "tf32", "f32", "warpgroup", 0),
    ("tf32", "m_tf32k4", "tf32", "tf32", "f32", "mma", 4),
    ("e4m3", "w_e4m3", "e4m3", "e4m3", "f32", "warpgroup", 0),
    ("e4m3", "m_e4m3", "e4m3", "e4m3", "f32", "mma", 0),
    ("e5m2", "w_e5m2", "e5m2", "e5m2", "f32", "warpgroup", 0),
    ("e5m2", "m_e5m2", "e5m2", "e5m2", "f32", "mma", 0),
    ("e4m3h", "w_e4m3f16", "e4m3", "e4m3", "f16", "warpgroup", 0),
    ("e4m3h", "m_e4m3f16", "e4m3", "e4m3", "f16", "mma", 0),
    ("e5m2h", "w_e5m2f16", "e5m2", "e5m2", "f16", "warpgroup", 0),
    ("e4e5", "w_e4e5", "e4m3", "e5m2", "f32", "warpgroup", 0),
]


@pytest.mark.parametrize("file, operation, a, b, d, unit, k", RECORDED)
def test_hardware_mode_gives_what_the_hardware_gave(file, operation, a, b, d, unit, k):
    recorded = np.load(GOLDEN / f"{file}.npz")
    kind = Product(a, b, d, unit)
    left, right = recorded["A"][..., : k or None], recorded["B"][..., : k or None]
    found = numerics.multiply_accumulate(left, right, recorded["C"], kind, "hardware")
    assert np.array_equal(found, recorded[f"D_{operation}"])


@pytest.mark.parametrize("file, operation", [("bf16", "bf16"), ("f16h", "f16f16"), ("e4m3", "e4m3")])
def test_without_c_the_hardware_ignores_it(file, operation):
    recorded = np.load(GOLDEN / f"{file}.npz")
    a = operation.removesuffix("f16") if file == "f16h" else operation
    kind = Product(a, a, "f16" if file == "f16h" else "f32")
    found = numerics.multiply_accumulate(recorded["A"], recorded["B"], None, kind, "hardware")
    assert np.array_equal(found, recorded[f"D_w_{operation}_sd0"])


@pytest.mark.parametrize("file, operand, operation", [("bf16", "A", "w_bf16_na"), ("e4m3", "B", "w_e4m3_nb")])
def test_a_negated_operand_has_its_sign_flipped(file, operand, operation):
    recorded = np.load(GOLDEN / f"{file}.npz")
    operands = {name: recorded[name] for name in "AB"}
    operands[operand] = operands[operand] ^ recorded["A"].dtype.type(SIGN[file])
    kind = Product(file, file, "f32")
    found = numerics.multiply_accumulate(operands["A"], operands["B"], recorded["C"], kind, "hardware")
    assert np.array_equal(found, recorded[f"D_{operation}"])


@pytest.mark.parametrize(
    "file, operation, a, d",
    [
        ("bf16", "bf16", "bf16", "f32"),
        ("f16h", "f16f16", "f16", "f16"),
        ("tf32", "tf32", "tf32", "f32"),
        ("e4m3", "e4m3", "e4m3", "f32"),
        ("e4m3h", "e4m3f16", "e4m3", "f16"),
    ],
)
def test_a_chain_rounds_after_each_instruction(file, operation, a, d):
    recorded = np.load(GOLDEN / f"{file}.npz")
    total = recorded["chain_C"]
    for step in range(4):
        left, right = recorded["chain_A"][:, step], recorded["chain_B"][:, step]
        total = numerics.multiply_accumulate(left, right, total, Product(a, a, d), "hardware")
    assert np.array_equal(total, recorded[f"chain_D_w_{operation}_chain4"])


@pytest.mark.parametrize("mode", numerics.MODES)
@pytest.mark.parametrize(
    "types, operation", [("s8", "w_s8"), ("s8", "w_s8sat"), ("s8", "m_s8"), ("s8", "m_s8sat"), ("u8", "w_u8")]
)
def test_integer_products_are_exact(types, operation, mode):
    recorded = np.load(GOLDEN / "int8.npz")
    kind = Product(types, types, "s32", saturate=operation.endswith("sat"))
    a, b, c = (recorded[f"{types}_{name}"] for name in "ABC")
    found = numerics.multiply_accumulate(a.view(np.uint8), b.view(np.uint8), c.view(np.uint32), kind, mode)
    assert np.array_equal(found.view(np.int32), recorded[f"D_{operation}"])


@pytest.mark.parametrize("file, operation, a, b, d, unit, k", RECORDED)
def test_exact_mode_agrees_with_the_hardware_where_the_arithmetic_is_exact(file, operation, a, b, d, unit, k):
    recorded = np.load(GOLDEN / f"{file}.npz")
    left, right = recorded["A"][..., : k or None], recorded["B"][..., : k or None]
    found = numerics.multiply_accumulate(left, right, recorded["C"], Product(a, b, d, unit))
    with np.errstate(all="ignore"):
        sums = numerics.values(left, a) @ numerics.values(right, b).swapaxes(-1, -2) + numerics.values(recorded["C"], d)
    exact = numerics.values(recorded[f"D_{operation}"], d) == sums  # the hardware lost nothing
    assert exact.sum() > 2000
    assert np.array_equal(found[exact], recorded[f"D_{operation}"][exact])


def test_exact_mode_rounds_once_per_instruction():
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((64, 1024)).astype(np.float32) for _ in range(2))
    left, right = ((x.view(np.uint32) >> 16).astype(np.uint16) for x in (a, b))
    truth = numerics.values(left, "bf16") @ numerics.values(right, "bf16").T
    total = None
    for k in range(0, 1024, 16):
        total = numerics.multiply_accumulate(
            left[:, k : k + 16], right[:, k : k + 16], total, Product("bf16", "bf16", "f32")
        )
    error = np.linalg.norm(total.view(np.float32) - truth) / np.linalg.norm(truth)
    assert 0 < error < 1e-6


def test_nan_has_one_spelling_and_zero_no_sign():
    one, minus_zero, nan, infinite = (np.uint16(bits) for bits in (0x3F80, 0x8000, 0xFFFF, 0x7F80))
    for mode in numerics.MODES:
        a = np.array([[nan], [minus_zero], [infinite], [one]])
        b = np.array([[one], [np.uint16(0)]])
        c = np.full((4, 2), 0x80000000, np.uint32)
        found = numerics.multiply_accumulate(a, b, c, Product("bf16", "bf16", "f32"), mode)
        assert found.tolist() == [[0x7FFFFFFF] * 2, [0, 0], [0x7F800000, 0x7FFFFFFF], [0x3F800000, 0]]


def test_four_bit_and_single_bit_products():
    rng = np.random.default_rng(2)
    a, b = rng.integers(0, 16, (2, 8, 32)).astype(np.uint8)
    signed = np.where(a > 7, a.astype(int) - 16, a)
    found = numerics.multiply_accumulate(a, b, None, Product("s4", "u4", "s32"))
    assert np.array_equal(found.view(np.int32), signed @ b.astype(int).T)
    a, b = rng.integers(0, 2, (2, 8, 128)).astype(np.uint8)
    for operation, ufunc in (("and", np.bitwise_and), ("xor", np.bitwise_xor)):
        found = numerics.multiply_accumulate(a, b, None, Product("b1", "b1", "s32", operation=operation))
        assert np.array_equal(found, ufunc(a[:, None], b[None]).sum(-1))


def test_doubles_are_added_in_the_order_of_k():
    a = np.array([[1e16, 1.0, -1e16]])
    b = np.ones((1, 3))
    found = numerics.multiply_accumulate(a.view(np.uint64), b.view(np.uint64), None, Product("f64", "f64", "f64"))
    assert found.view(np.float64)[0, 0] == (1e16 + 1.0) - 1e16
