"""Half-precision arithmetic, scalar and packed, against rational numbers rounded once."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.emulator.exact import bits_equal, rounded
from tests.emulator.one_instruction import run

DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "unary.npz")


def samples(name: str, seed: int, count: int = 400) -> np.ndarray:
    """Finite values: random bits, and values near one and near the least."""
    random = np.random.default_rng(seed)
    words = random.integers(0, 2**16, count, dtype=np.uint32).astype(np.uint16).view(DTYPES[name])
    words[::3] = random.normal(size=words[::3].size).astype(DTYPES[name])
    words[1::9] = random.integers(0, 300, words[1::9].size, dtype=np.uint32).astype(np.uint16).view(DTYPES[name])
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(words.astype(np.float64)), words, DTYPES[name](1))


def as_bits(values: list[float], name: str) -> np.ndarray:
    return np.array(values, np.float64).astype(DTYPES[name]).view(np.uint16)


def fused(a: np.ndarray, b: np.ndarray, c: np.ndarray, name: str) -> np.ndarray:
    result = []
    for x, y, z in zip(*(side.astype(np.float64) for side in (a, b, c)), strict=True):
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        negative = math.copysign(1, x) * math.copysign(1, y) < 0 and math.copysign(1, z) < 0
        result.append(rounded(exact, name, "rn", -1 if negative else 1))
    return as_bits(result, name)


@pytest.mark.parametrize("name", DTYPES)
def test_each_operation_rounds_once(name):
    a, b, c = (samples(name, seed) for seed in range(3))
    dtype = DTYPES[name]
    one, minus_zero = np.full_like(a, 1), np.full_like(a, dtype(-0.0))
    text = {"a": a, "b": b}
    bits_equal(run(f"add.{name} %d, %a, %b;", np.uint16, **text), fused(a, one, b, name))
    bits_equal(run(f"sub.{name} %d, %a, %b;", np.uint16, **text), fused(a, one, -b, name))
    product = [
        rounded(
            Fraction(float(x)) * Fraction(float(y)),
            name,
            "rn",
            int(math.copysign(1, float(x)) * math.copysign(1, float(y))),
        )
        for x, y in zip(a, b, strict=True)
    ]
    bits_equal(run(f"mul.{name} %d, %a, %b;", np.uint16, **text), as_bits(product, name))
    bits_equal(run(f"fma.rn.{name} %d, %a, %b, %c;", np.uint16, c=c, **text), fused(a, b, c, name))
    bits_equal(run(f"fma.rn.{name} %d, %a, %b, %c;", np.uint16, c=minus_zero, **text), as_bits(product, name))


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("operation", ["add", "sub", "mul", "fma.rn", "min", "max.NaN", "neg", "abs"])
def test_packed_operations_are_two_scalar_ones(name, operation):
    letters = {"fma.rn": "abc", "neg": "a", "abs": "a"}.get(operation, "ab")
    operands = {letter: samples(name, seed + 10) for seed, letter in enumerate(letters)}
    registers = ", ".join(f"%{letter}" for letter in letters)
    scalar = run(f"{operation}.{name} %d, {registers};", np.uint16, **operands)
    packed = run(
        f"{operation}.{name}x2 %d, {registers};", np.uint32, **{k: v.view(np.uint32) for k, v in operands.items()}
    )
    bits_equal(packed.view(np.uint16), scalar)


def test_clamping_and_flushing():
    a = np.array([-1, 0.5, 3, np.nan, -0.0], np.float16)
    zero = np.full(5, -0.0, np.float16)
    assert run("add.sat.f16 %d, %a, %b;", np.uint16, a=a, b=zero).tolist() == [0, 0x3800, 0x3C00, 0, 0]
    relu = run("fma.rn.relu.f16 %d, %a, %b, %c;", np.uint16, a=a, b=np.ones(5, np.float16), c=zero)
    assert relu.tolist() == [0, 0x3800, 0x4200, 0x7FFF, 0]
    tiny = np.array([2.0**-20, -(2.0**-20)], np.float16)
    assert run("add.ftz.f16 %d, %a, %b;", np.uint16, a=tiny, b=zero[:2]).tolist() == [0, 0x8000]
    assert run("mul.ftz.f16 %d, %a, %b;", np.uint16, a=[np.float16(2.0**-14)], b=[np.float16(0.5)]).tolist() == [0]


@pytest.mark.parametrize("name", DTYPES)
def test_nans_are_canonical_and_lose_against_numbers_in_minimum(name):
    nan = np.array([0xFFC1, 0x7FFF], np.uint16)
    one = np.array([1, 1], DTYPES[name])
    assert run(f"add.{name} %d, %a, %b;", np.uint16, a=nan, b=one).tolist() == [0x7FFF] * 2
    assert run(f"min.{name} %d, %a, %b;", np.uint16, a=nan, b=one).tolist() == one.view(np.uint16).tolist()
    assert run(f"min.NaN.{name} %d, %a, %b;", np.uint16, a=nan, b=one).tolist() == [0x7FFF] * 2
    zeros = np.array([0.0, -0.0], DTYPES[name])
    assert run(f"min.{name} %d, %a, %b;", np.uint16, a=zeros, b=zeros[::-1]).tolist() == [0x8000] * 2
    assert run(f"max.{name} %d, %a, %b;", np.uint16, a=zeros, b=zeros[::-1]).tolist() == [0] * 2


@pytest.mark.parametrize(
    "opcode, bound",
    # PTX ISA 9.7.4.9, 9.7.4.10: absolute errors of tanh, relative ones of ex2; twice, as both sides err
    [
        ("tanh.approx.f16x2", 2 * 2**-10.987),
        ("tanh.approx.bf16x2", 2 * 2**-8),
        ("ex2.approx.f16x2", 2 * 2**-9.9),
        ("ex2.approx.ftz.bf16x2", 2 * 2**-7),
    ],
)
def test_approximations_are_near_the_hardware(opcode, bound):
    dtype = DTYPES["bf16" if "bf16" in opcode else "f16"]
    recorded = GOLDEN["u_" + opcode.replace(".", "_")].view(dtype).astype(np.float64)
    found = run(f"{opcode} %d, %a;", np.uint32, a=GOLDEN["x"]).view(dtype).astype(np.float64)
    assert (np.isnan(found) == np.isnan(recorded)).all()
    rest = np.isfinite(recorded) & np.isfinite(found)
    scale = 1 if "tanh" in opcode else np.maximum(np.abs(recorded[rest]), 2.0**-14)
    assert (np.abs(found[rest] - recorded[rest]) <= bound * scale).all()
