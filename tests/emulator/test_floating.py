"""Single and double precision arithmetic against rational numbers rounded by the definition."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.emulator.exact import bits_equal, rounded
from tests.emulator.one_instruction import run

MODES = ("rn", "rz", "rm", "rp")
DTYPES = {"f32": np.float32, "f64": np.float64}
NAN = {"f32": np.uint32(0x7FFFFFFF), "f64": None}
OPERATIONS = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "fma": lambda x, y, z: x * y + z,
}


def samples(name: str, count: int, seed: int, spread: int = 40) -> np.ndarray:
    """Random significands with exponents near each other, some subnormal, some huge, some with few bits."""
    random = np.random.default_rng(seed)
    significand = random.uniform(1, 2, count)
    significand[::4] = np.round(significand[::4] * 16) / 16
    exponent = random.integers(-spread, spread, count)
    least, most = (-145, 126) if name == "f32" else (-1070, 1020)
    exponent[1::7] = random.integers(least, least + 30, exponent[1::7].size)
    exponent[3::11] = random.integers(most - 20, most, exponent[3::11].size)
    return (np.ldexp(significand, exponent) * random.choice([-1, 1], count)).astype(DTYPES[name])


def zero_sign(operation: str, values: list[float], mode: str) -> int:
    """The sign of an exact zero result: of products by their operands, of sums negative only when rounding down."""
    sign = lambda x: math.copysign(1, x)  # noqa: E731
    if operation in ("mul", "div"):
        return int(sign(values[0]) * sign(values[1]))
    first = values[0] * values[1] if operation == "fma" else values[0]
    if operation == "fma":
        first = math.copysign(0 if first == 0 else 1, sign(values[0]) * sign(values[1]))
    second = -values[1] if operation == "sub" else values[-1]
    if sign(first) == sign(second):
        return int(sign(first))
    return -1 if mode == "rm" else 1


def expected(operation: str, name: str, mode: str, *operands: np.ndarray) -> np.ndarray:
    result = []
    for lane in zip(*operands, strict=True):
        values = [float(x) for x in lane]
        exact = OPERATIONS[operation](*map(Fraction, values))
        result.append(rounded(exact, name, mode, zero_sign(operation, values, mode)))
    return np.array(result, DTYPES[name])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_one_rounding_in_every_mode(operation, name, mode):
    count = 400 if name == "f32" else 150
    names = "abc" if operation == "fma" else "ab"
    operands = {letter: samples(name, count, seed) for seed, letter in enumerate(names)}
    operands["b"][:10] = operands["a"][:10]  # exact cancellation and quotients of one
    found = run(
        f"{operation}.{mode}.{name} %d, {', '.join('%' + letter for letter in names)};", DTYPES[name], **operands
    )
    bits_equal(found, expected(operation, name, mode, *operands.values()))


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("mode", MODES)
def test_reciprocal_and_root_in_every_mode(name, mode):
    a = np.abs(samples(name, 150, 9))
    ones = np.ones_like(a)
    bits_equal(run(f"rcp.{mode}.{name} %d, %a;", DTYPES[name], a=a), expected("div", name, mode, ones, a))
    root = run(f"sqrt.{mode}.{name} %d, %a;", DTYPES[name], a=a)
    precise = []
    for x in a:
        scaled = Fraction(float(x)) * 4**2300  # an integer, whose root has a thousand bits to spare
        whole = math.isqrt(scaled.numerator)
        precise.append(Fraction(2 * whole + (whole * whole != scaled.numerator), 2) / 2**2300)
    bits_equal(root, np.array([rounded(x, name, mode) for x in precise], DTYPES[name]))


def f32(word: int) -> float:
    return float(np.uint32(word).view(np.float32))


@pytest.mark.parametrize(
    "a, b, c",
    [
        # a*b + c lies just next to the middle of two singles, nearer than a double can tell
        (f32(0x3F800001), f32(0x3F800001), 2.0**-60),
        (1 + 2.0**-12, 1 + 2.0**-12, 2.0**-80),
        (1 + 2.0**-12, 1 + 2.0**-12, -(2.0**-80)),
        (1 + 2.0**-23, 1 - 2.0**-23, 2.0**24),
        (-(1 + 2.0**-12), 1 + 2.0**-12, -(2.0**-100)),
        # a subnormal result between two singles
        (2.0**-75, 2.0**-75 * 3, 2.0**-140),
        (2.0**-75 * 3, 2.0**-75, -(2.0**-149)),
    ],
)
def test_fma_is_not_rounded_twice(a, b, c):
    operands = [np.array([x], np.float32) for x in (a, b, c)]
    found = run("fma.rn.f32 %d, %a, %b, %c;", np.float32, a=operands[0], b=operands[1], c=operands[2])
    bits_equal(found, expected("fma", "f32", "rn", *operands))


words = st.lists(st.tuples(*[st.integers(0, 2**32 - 1)] * 3), min_size=32, max_size=32)


@settings(max_examples=25)
@given(words)
def test_fma_of_any_bits(triples):
    a, b, c = (np.array(side, np.uint32).view(np.float32) for side in zip(*triples, strict=True))
    found = run("fma.rn.f32 %d, %a, %b, %c;", np.float32, a=a, b=b, c=c)
    with np.errstate(all="ignore"):
        special = ~(np.isfinite(a) & np.isfinite(b) & np.isfinite(c))
        plain = (a.astype(np.float64) * b + c).astype(np.float32)
    want = np.where(special, plain, expected("fma", "f32", "rn", *(np.where(special, 1, x) for x in (a, b, c))))
    want = np.where(np.isnan(want), np.uint32(0x7FFFFFFF).view(np.float32), want).astype(np.float32)
    bits_equal(found, want)


def test_every_single_precision_nan_is_the_same():
    inf, zero = np.float32(np.inf), np.float32(0)
    nan = np.array([0xFFC00001, 0x7F800001], np.uint32).view(np.float32)
    for text in ("add.f32 %d, %a, %b;", "mul.f32 %d, %a, %b;", "fma.rn.f32 %d, %a, %b, %b;", "div.rn.f32 %d, %a, %b;"):
        assert run(text, np.uint32, a=nan, b=np.ones(2, np.float32)).tolist() == [0x7FFFFFFF] * 2
    assert run("sub.f32 %d, %a, %a;", np.uint32, a=[inf]).tolist() == [0x7FFFFFFF]
    assert run("mul.f32 %d, %a, %b;", np.uint32, a=[inf], b=[zero]).tolist() == [0x7FFFFFFF]
    assert run("sqrt.rn.f32 %d, %a;", np.uint32, a=[-inf]).tolist() == [0x7FFFFFFF]


def test_a_nan_in_an_inactive_lane_is_left_alone():
    a = np.full(32, 0xFFC12345, np.uint32)
    p = np.arange(32) % 2 == 0
    found = run("mov.b32 %d, %a;\n@%p add.f32 %d, %a, %a;\n@%p fma.rn.f32 %d, %d, %a, %a;", np.uint32, a=a, p=p)
    assert found.tolist() == [0x7FFFFFFF if x else 0xFFC12345 for x in p]


def test_flush_and_clamp():
    tiny, least = np.float32(2.0**-130), np.float32(2.0**-126)
    a = np.array([tiny, -tiny, least, 1], np.float32)
    assert run("add.ftz.f32 %d, %a, %b;", np.float32, a=a, b=np.zeros(4, np.float32)).tolist() == [
        0,
        0,
        float(least),
        1,
    ]
    bits = run(
        "mul.ftz.f32 %d, %a, %b;", np.uint32, a=np.array([least, -least], np.float32), b=np.full(2, 0.5, np.float32)
    )
    assert bits.tolist() == [0, 0x80000000]
    x = np.array([-1, -0.0, 0.25, 1, 7, np.inf, -np.inf, np.nan], np.float32)
    clamped = run("add.sat.f32 %d, %a, %b;", np.uint32, a=x, b=np.full(8, -0.0, np.float32)).view(np.float32)
    bits_equal(clamped, np.array([0, 0, 0.25, 1, 1, 1, 0, 0], np.float32))
    bits_equal(
        run("fma.rn.sat.f32 %d, %a, %b, %b;", np.float32, a=[np.float32(2)], b=[np.float32(-4)]),
        np.zeros(1, np.float32),
    )


EDGES = [0.0, -0.0, 1.0, -1.0, 3.0, math.inf, -math.inf, math.nan]


def chosen(x: float, y: float, least: bool, nan: bool) -> float:
    if math.isnan(x) or math.isnan(y):
        return math.nan if nan or math.isnan(x) and math.isnan(y) else (y if math.isnan(x) else x)
    key = lambda z: (z, math.copysign(1, z))  # noqa: E731
    return (min if least else max)(x, y, key=key)


@pytest.mark.parametrize("base", ["min", "max"])
@pytest.mark.parametrize("name", DTYPES)
def test_minimum_and_maximum_of_zeros_and_nans(base, name):
    a, b = (np.array(side, DTYPES[name]) for side in zip(*[(x, y) for x in EDGES for y in EDGES], strict=True))
    for nan in (False, True) if name == "f32" else (False,):
        found = run(f"{base}{'.NaN' if nan else ''}.{name} %d, %a, %b;", DTYPES[name], a=a, b=b)
        want = np.array(
            [chosen(float(x), float(y), base == "min", nan) for x, y in zip(a, b, strict=True)], DTYPES[name]
        )
        assert (np.isnan(found) == np.isnan(want)).all()
        bits_equal(np.where(np.isnan(want), 0, found), np.where(np.isnan(want), 0, want))


def test_xorsign_takes_the_sign_of_the_product():
    a = np.array([3, -3, 3, -3, 1, np.nan], np.float32)
    b = np.array([2, 2, -2, -2, -5, -1], np.float32)
    found = run("min.xorsign.abs.f32 %d, %a, %b;", np.float32, a=a, b=b)
    assert np.abs(found).tolist() == [2, 2, 2, 2, 1, 1]
    assert np.signbit(found[:5]).tolist() == [False, True, True, False, True]
    assert run("max.xorsign.abs.f32 %d, %a, %b;", np.float32, a=a[:5], b=b[:5]).tolist() == [3, -3, -3, 3, -5]


def test_sign_operations_and_properties():
    a = np.array([1.5, -2.5, -0.0, np.inf], np.float32)
    assert run("abs.f32 %d, %a;", np.float32, a=a).tolist() == [1.5, 2.5, 0, np.inf]
    bits_equal(run("neg.f32 %d, %a;", np.float32, a=a), -a)
    # copysign takes the sign of its first operand and the magnitude of its second
    bits_equal(
        run("copysign.f32 %d, %a, %b;", np.float32, a=a, b=np.full(4, 9, np.float32)),
        np.array([9, -9, -9, 9], np.float32),
    )
    x = np.array([0, -0.0, 1, 2.0**-140, np.inf, np.nan], np.float32)
    table = {
        "finite": [1, 1, 1, 1, 0, 0], "infinite": [0, 0, 0, 0, 1, 0], "number": [1, 1, 1, 1, 1, 0],
        "notanumber": [0, 0, 0, 0, 0, 1], "normal": [1, 1, 1, 0, 0, 0], "subnormal": [0, 0, 0, 1, 0, 0],
    }  # fmt: skip
    for word, truth in table.items():
        assert run(f"testp.{word}.f32 %d, %a;", np.bool_, a=x).tolist() == [bool(t) for t in truth], word


def test_double_fma_with_extreme_exponents():
    a = np.array([2.0**1000, 2.0**-600, 2.0**-1074, 2.0**1023, 2.0**-1074], np.float64)
    b = np.array([2.0**-1000, 2.0**-460, 0.5, 2.0, 2.0**-1074], np.float64)
    c = np.array([1.0, -(2.0**-1060), 2.0**-1074, -np.finfo(np.float64).max, 1.0], np.float64)
    found = run("fma.rn.f64 %d, %a, %b, %c;", np.float64, a=a, b=b, c=c)
    bits_equal(found, expected("fma", "f64", "rn", a, b, c))


# -- approximations ----------------------------------------------------------------------------------------------

SPECIAL = {
    # PTX ISA 9.7.3.13 to 9.7.3.22: input -> result
    "rcp": [(-math.inf, -0.0), (-0.0, -math.inf), (0.0, math.inf), (math.inf, 0.0)],
    "sqrt": [(-math.inf, math.nan), (-2.0, math.nan), (-0.0, -0.0), (0.0, 0.0), (math.inf, math.inf)],
    "rsqrt": [(-math.inf, math.nan), (-2.0, math.nan), (-0.0, -math.inf), (0.0, math.inf), (math.inf, 0.0)],
    "sin": [(-math.inf, math.nan), (-0.0, -0.0), (0.0, 0.0), (math.inf, math.nan)],
    "cos": [(-math.inf, math.nan), (-0.0, 1.0), (0.0, 1.0), (math.inf, math.nan)],
    "lg2": [(-math.inf, math.nan), (-2.0, math.nan), (-0.0, -math.inf), (0.0, -math.inf), (math.inf, math.inf)],
    "ex2": [(-math.inf, 0.0), (-0.0, 1.0), (0.0, 1.0), (math.inf, math.inf)],
    "tanh": [(-math.inf, -1.0), (-0.0, -0.0), (0.0, 0.0), (math.inf, 1.0)],
}


@pytest.mark.parametrize("base", SPECIAL)
def test_special_values_of_the_approximations(base):
    a, want = (np.array([*side, math.nan], np.float32) for side in zip(*SPECIAL[base], strict=True))
    want = np.where(np.isnan(want), np.uint32(0x7FFFFFFF).view(np.float32), want).astype(np.float32)
    bits_equal(run(f"{base}.approx.f32 %d, %a;", np.float32, a=a), want)


def test_approximate_division_by_a_huge_number_is_zero():
    a, b = np.array([1, -1, np.inf, 1], np.float32), np.array([2.0**127, 2.0**127, 2.0**127, 2.0**126], np.float32)
    found = run("div.approx.f32 %d, %a, %b;", np.uint32, a=a, b=b)
    assert found.tolist() == [0, 0x80000000, 0x7FFFFFFF, int(np.float32(2.0**-126).view(np.uint32))]
    assert run("div.full.f32 %d, %a, %b;", np.float32, a=a[:1], b=b[:1]).tolist() == [2.0**-127]


def test_gross_reciprocals_of_doubles_keep_the_upper_word():
    a = np.array([3.0, -0.0, np.inf, np.nan], np.float64)
    found = run("rcp.approx.ftz.f64 %d, %a;", np.uint64, a=a)
    assert int(found[0]) & 0xFFFFFFFF == 0 and abs(found[:1].view(np.float64)[0] * 3 - 1) < 2**-19
    assert found[1:].tolist() == [0xFFF0000000000000, 0, 0x7FFFFFFF00000000]
    assert abs(run("rsqrt.approx.f64 %d, %a;", np.float64, a=[np.float64(4)])[0] - 0.5) < 2**-50
