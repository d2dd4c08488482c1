"""Conversions against their definition and against an H200's results (tests/golden/unary.npz)."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.emulator.exact import FORMATS, bits_equal, rounded
from tests.emulator.one_instruction import run
from tests.emulator.test_integer import samples as integer_samples

INTEGERS = {f"{k}{b}": np.dtype(f"{'i' if k == 's' else 'u'}{b // 8}") for k in "us" for b in (8, 16, 32, 64)}
FLOATS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
MODES = ("rn", "rz", "rm", "rp")


@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("source", INTEGERS)
def test_integers_to_integers_wrap_or_clamp(target, source):
    a = integer_samples(INTEGERS[source], 40)
    low, high = (int(f(INTEGERS[target])) for f in (lambda t: np.iinfo(t).min, lambda t: np.iinfo(t).max))
    plain = run(f"cvt.{target}.{source} %d, %a;", INTEGERS[target], a=a)
    assert plain.tolist() == [(int(x) - low) % (high - low + 1) + low for x in a]
    info = np.iinfo(INTEGERS[source])
    if low > info.min or high < info.max:
        clamped = run(f"cvt.sat.{target}.{source} %d, %a;", INTEGERS[target], a=a)
        assert clamped.tolist() == [max(low, min(high, int(x))) for x in a]


def test_a_wider_register_is_filled_with_signs_or_zeros():
    a = np.array([-1, 127, -128, 5], np.int32)
    assert run("cvt.s8.s32 %d, %a;", np.int32, a=a).tolist() == [-1, 127, -128, 5]
    assert run("cvt.u8.s32 %d, %a;", np.uint32, a=a).tolist() == [255, 127, 128, 5]
    assert run("cvt.s8.u8 %d, %a;", np.int32, a=np.array([200], np.uint32)).tolist() == [200 - 256]
    assert run("cvt.rn.f16.f32 %d, %a;", np.uint32, a=np.array([-2], np.float32)).tolist() == [0xC000]
    # only the low part of a wider source counts
    assert run("cvt.u32.u8 %d, %a;", np.uint32, a=np.array([0x12345678], np.uint32)).tolist() == [0x78]
    assert run("cvt.f32.f16 %d, %a;", np.float32, a=np.array([0xFFFF3C00], np.uint32)).tolist() == [1.0]


VALUES = [
    0.0,
    -0.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -1.5,
    0.9999,
    -0.9999,
    100.7,
    -100.7,
    255.5,
    65504.0,
    -40000.0,
    3e9,
    -3e9,
    1e19,
    -1e19,
    2e19,
]
ROUND = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}


@pytest.mark.sample(32, all=80)
@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("mode", ROUND)
def test_floats_to_integers_round_and_clamp(target, source, mode):
    if source == "bf16" and target[1:] == "8":
        return  # cvt with bf16 takes no register of another width, and none has 8 bits
    with np.errstate(over="ignore"):
        a = np.array(VALUES, np.float64).astype(FLOATS[source])
    a = a[np.isfinite(a.astype(np.float64))]
    info = np.iinfo(INTEGERS[target])
    found = run(f"cvt.{mode}.{target}.{source} %d, %a;", INTEGERS[target], a=a)
    assert found.tolist() == [max(info.min, min(info.max, ROUND[mode](float(x)))) for x in a]


@pytest.mark.parametrize("source", FLOATS)
def test_infinities_and_nans_to_integers(source):
    a = np.array([np.inf, -np.inf, np.nan], FLOATS[source])
    for target, dtype in INTEGERS.items():
        if source == "bf16" and target[1:] == "8":
            continue
        info = np.iinfo(dtype)
        # PTX ISA 9.7.9.21: zero, unless a 64-bit type takes part
        wide = source == "f64" or target[1:] == "64"
        nan = 0 if not wide else info.min if target[0] == "s" else 1 << info.bits - 1
        assert run(f"cvt.rzi.{target}.{source} %d, %a;", dtype, a=a).tolist() == [info.max, info.min, nan]


def test_flushing_before_rounding_up_to_an_integer():
    a = np.array([2.0**-140], np.float32)
    assert run("cvt.rpi.s32.f32 %d, %a;", np.int32, a=a).tolist() == [1]
    assert run("cvt.rpi.ftz.s32.f32 %d, %a;", np.int32, a=a).tolist() == [0]


@pytest.mark.sample(32, all=80)
@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("target", FLOATS)
@pytest.mark.parametrize("mode", MODES)
def test_integers_to_floats(source, target, mode):
    if target == "bf16" and source[1:] == "8":
        return  # cvt with bf16 takes no register of another width, and none has 8 bits
    a = integer_samples(INTEGERS[source], 60)
    found = run(f"cvt.{mode}.{target}.{source} %d, %a;", FLOATS[target], a=a)
    want = [rounded(Fraction(int(x)), target, mode) for x in a]
    bits_equal(found, np.array(want, np.float64).astype(FLOATS[target]))


def float_samples(name: str, seed: int = 0) -> np.ndarray:
    """Random bit patterns, ties, subnormals and the greatest values."""
    random = np.random.default_rng(seed)
    wide = {"f32": np.uint32, "f64": np.uint64, "f16": np.uint16, "bf16": np.uint16}[name]
    words = np.frombuffer(random.bytes(200 * np.dtype(wide).itemsize), wide).view(FLOATS[name])
    near = np.ldexp(random.integers(2**10, 2**14, 200), random.integers(-34, 8, 200)) * random.choice([-1, 1], 200)
    edges = [
        65504,
        65519.99,
        65520,
        2.0**-24,
        2.0**-25,
        2.0**-25 * 1.01,
        448,
        464,
        465,
        57344,
        61440,
        2.0**-133,
        2.0**-134,
        0,
        -0.0,
    ]
    with np.errstate(all="ignore"):
        rest = np.array([*near, *edges]).astype(FLOATS[name])
    return np.concatenate([words, rest])


def converted(a: np.ndarray, name: str, mode: str, finite: bool = False, relu: bool = False) -> np.ndarray:
    """Values of a format as doubles, by the definition."""
    result = []
    greatest = float(FORMATS[name][2])
    with np.errstate(invalid="ignore"):
        wide = a.astype(np.float64)
    for x in wide:
        if math.isnan(x):
            y = math.nan
        elif math.isinf(x):
            y = math.copysign(greatest, x) if finite else x
        else:
            y = rounded(Fraction(x), name, mode, int(math.copysign(1, x)))
            y = math.copysign(greatest, y) if finite and math.isinf(y) else y
        result.append(0.0 if relu and not y > 0 and not math.isnan(y) else y)
    return np.array(result)


def half_bits(values: np.ndarray, name: str) -> np.ndarray:
    bits = values.astype(FLOATS[name]).view(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FFF), bits)


def quiet_nan(a, bits, dtype):
    """What NaNs of double precision become: tests/golden/conformance.npz decides, PTX leaves the bits open."""
    return np.where(np.signbit(a), dtype(bits | 1 << 8 * dtype().itemsize - 1), dtype(bits))


NARROWINGS = [("f16", "f32"), ("bf16", "f32"), ("f16", "f64"), ("bf16", "f64"), ("bf16", "f16"), ("f16", "bf16")]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("target, source", NARROWINGS)
def test_narrowing_to_half_precision_rounds_once(target, source, mode):
    a = float_samples(source)
    found = run(f"cvt.{mode}.{target}.{source} %d, %a;", np.uint16, a=a)
    want = half_bits(converted(a, target, mode), target)
    if source == "f64":
        want = np.where(np.isnan(a), quiet_nan(a, {"f16": 0x7E00, "bf16": 0x7FC0}[target], np.uint16), want)
    bits_equal(found, want)


@pytest.mark.parametrize("target, source", [("bf16", "f16"), ("f16", "bf16")])
def test_between_the_halves_no_rounding_is_the_nearest(target, source):
    """Triton's dot_scaled of e4m3 for Hopper has it; ptxas makes the same machine instruction of both."""
    a = float_samples(source)
    found = run(f"cvt.{target}.{source} %d, %a;", np.uint16, a=a)
    bits_equal(found, run(f"cvt.rn.{target}.{source} %d, %a;", np.uint16, a=a))


@pytest.mark.parametrize("mode", MODES)
def test_narrowing_to_single_precision(mode):
    a = float_samples("f64")
    a = np.concatenate(
        [a, np.ldexp(float_samples("f32"), -20).astype(np.float64), [1 + 2.0**-24, 1 + 2.0**-24 + 2.0**-50, 2.0**128]]
    )
    want = converted(a, "f32", mode)
    found = run(f"cvt.{mode}.f32.f64 %d, %a;", np.float32, a=a)
    nan = quiet_nan(a, 0x7FC00000, np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        bits_equal(found, np.where(np.isnan(want), nan, want.astype(np.float32)))


@pytest.mark.parametrize(
    "target, source", [("f32", "f16"), ("f64", "f16"), ("f64", "f32"), ("f32", "bf16"), ("f64", "bf16")]
)
def test_widening_is_exact(target, source):
    a = float_samples(source)
    a = a[a == a]
    with np.errstate(all="ignore"):
        bits_equal(run(f"cvt.{target}.{source} %d, %a;", FLOATS[target], a=a), a.astype(FLOATS[target]))


@pytest.mark.parametrize("name", FLOATS)
def test_rounding_to_integral_values_keeps_the_sign_of_zero(name):
    a = np.array([0.5, -0.5, 1.5, -0.2, 2.5, 3.0, np.inf], FLOATS[name])
    for mode, function in (("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil)):
        want = function(a.astype(np.float64)).astype(FLOATS[name])
        bits_equal(run(f"cvt.{mode}.{name}.{name} %d, %a;", FLOATS[name], a=a), want)


@pytest.mark.parametrize("modifiers", ["rn", "rz", "rn.relu", "rz.satfinite", "rn.relu.satfinite"])
@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_pairs_put_the_first_operand_in_the_upper_half(name, modifiers):
    a, b = float_samples("f32", 1), float_samples("f32", 2)
    found = run(f"cvt.{modifiers}.{name}x2.f32 %d, %a, %b;", np.uint32, a=a, b=b)
    mode, finite, relu = modifiers[:2], "satfinite" in modifiers, "relu" in modifiers
    upper, lower = (half_bits(converted(x, name, mode, finite, relu), name) for x in (a, b))
    bits_equal(found, upper.astype(np.uint32) << 16 | lower)


def test_tf32_to_nearest_even_and_toward_zero():
    a = float_samples("f32", 3)
    a = a[np.isfinite(a)]
    for mode in ("rn", "rz"):
        with np.errstate(all="ignore"):
            want = converted(a, "tf32", mode).astype(np.float32)
        bits_equal(run(f"cvt.{mode}.tf32.f32 %d, %a;", np.float32, a=a), want)


def test_tf32_ties_away_from_zero():
    a = np.array([0x3F801000, 0xBF801000, 0x3F800FFF, 0x7F7FF000, 0x7F800001], np.uint32).view(np.float32)
    found = run("cvt.rna.tf32.f32 %d, %a;", np.uint32, a=a)
    assert [hex(x) for x in found] == ["0x3f802000", "0xbf802000", "0x3f800000", "0x7f800000", "0x7f800000"]
    finite = run(
        "cvt.rna.satfinite.tf32.f32 %d, %a;",
        np.uint32,
        a=np.array([np.inf, -np.inf, np.finfo(np.float32).max], np.float32),
    )
    assert [hex(x) for x in finite] == ["0x7f7fe000", "0xff7fe000", "0x7f7fe000"]


FP8 = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}


def fp8_bits(a: np.ndarray, name: str, relu: bool = False) -> np.ndarray:
    values = converted(a, name, "rn", True, relu)
    return np.where(np.isnan(values), np.uint8(0x7F), values.astype(FP8[name]).view(np.uint8))


@pytest.mark.parametrize("relu", ["", ".relu"])
@pytest.mark.parametrize("name", FP8)
def test_fp8_saturates_and_puts_the_first_operand_in_the_upper_byte(name, relu):
    a, b = float_samples("f32", 4), float_samples("f32", 5)
    found = run(f"cvt.rn.satfinite{relu}.{name}x2.f32 %d, %a, %b;", np.uint16, a=a, b=b)
    upper, lower = (fp8_bits(x, name, bool(relu)).astype(np.uint16) for x in (a, b))
    bits_equal(found, upper << np.uint16(8) | lower)
    h = float_samples("f16", 6)[:400]
    found = run(f"cvt.rn.satfinite{relu}.{name}x2.f16x2 %d, %a;", np.uint16, a=h.view(np.uint32))
    bits_equal(found, fp8_bits(h, name, bool(relu)).view(np.uint16))


@pytest.mark.parametrize("name", FP8)
def test_every_fp8_value_widens_exactly(name):
    octets = np.arange(256, dtype=np.uint8)
    found = run(f"cvt.rn.f16x2.{name}x2 %d, %a;", np.uint32, a=octets.view(np.uint16)).view(np.uint16)
    bits_equal(found, half_bits(octets.view(FP8[name]).astype(np.float64), "f16"))


def test_pack_clamps_two_integers_and_shifts_the_rest_up():
    a, b = np.array([300, -5, 7], np.int32), np.array([-300, 200, 1], np.int32)
    c = np.full(3, 0xAABBCCDD, np.uint32)
    assert [hex(x) for x in run("cvt.pack.sat.s16.s32 %d, %a, %b;", np.uint32, a=a * 1000, b=b)] == [
        "0x7ffffed4",
        "0xec7800c8",
        "0x1b580001",
    ]
    assert [hex(x) for x in run("cvt.pack.sat.u8.s32.b32 %d, %a, %b, %c;", np.uint32, a=a, b=b, c=c)] == [
        "0xccddff00", "0xccdd00c8", "0xccdd0701",
    ]  # fmt: skip


# -- recorded on an H200 -----------------------------------------------------------------------------------------

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "unary.npz")


@pytest.mark.parametrize(
    "opcode, width",
    [
        ("cvt.rn.bf16x2.f32", 32), ("cvt.rz.bf16x2.f32", 32), ("cvt.rn.f16x2.f32", 32),
        ("cvt.rn.satfinite.e4m3x2.f32", 16), ("cvt.rn.satfinite.e5m2x2.f32", 16),
    ],
)  # fmt: skip
def test_two_operand_conversions_are_those_of_the_hardware(opcode, width):
    found = run(f"{opcode} %d, %a, %b;", np.dtype(f"u{width // 8}"), a=GOLDEN["x"], b=GOLDEN["y"])
    recorded = GOLDEN["u_" + opcode.replace(".", "_")]
    bits_equal(found.astype(np.uint32), recorded)


@pytest.mark.parametrize(
    "opcode, source, width",
    [("cvt.rna.tf32.f32", "x", 32), ("cvt.rn.f16x2.e4m3x2", "x_fp8", 16), ("cvt.rn.f16x2.e5m2x2", "x_fp8", 16)],
)
def test_one_operand_conversions_are_those_of_the_hardware(opcode, source, width):
    a = GOLDEN[source].astype(np.dtype(f"u{width // 8}"))
    bits_equal(run(f"{opcode} %d, %a;", np.uint32, a=a), GOLDEN["u_" + opcode.replace(".", "_")])


def test_packed_halves_to_fp8_are_those_of_the_hardware():
    found = run("cvt.rn.satfinite.e4m3x2.f16x2 %d, %a;", np.uint16, a=GOLDEN["x"])
    bits_equal(found.astype(np.uint32), GOLDEN["u_cvt_rn_satfinite_e4m3x2_f16x2"])


@pytest.mark.parametrize(
    "opcode, ulps",
    [
        ("rcp.approx.f32", 1), ("rcp.approx.ftz.f32", 1), ("sqrt.approx.f32", 1), ("sqrt.approx.ftz.f32", 1),
        ("rsqrt.approx.f32", 2), ("rsqrt.approx.ftz.f32", 2), ("ex2.approx.f32", 2), ("ex2.approx.ftz.f32", 2),
    ],
)  # fmt: skip
def test_approximations_lie_as_near_the_hardware_as_its_own_error(opcode, ulps):
    recorded = GOLDEN["u_" + opcode.replace(".", "_")].view(np.float32)
    found = run(f"{opcode} %d, %a;", np.float32, a=GOLDEN["x"])
    nan = np.isnan(recorded)
    assert (np.isnan(found) == nan).all()
    infinite = np.isinf(recorded) | np.isinf(found)
    assert (found[infinite & ~nan] == recorded[infinite & ~nan]).all()
    rest = ~nan & ~infinite
    steps = np.abs(found[rest].view(np.int32).astype(np.int64) - recorded[rest].view(np.int32))
    assert steps.max() <= ulps


@pytest.mark.parametrize("opcode", ["div.approx.ftz.f32", "div.full.f32"])
def test_approximate_quotients_agree_about_special_values(opcode):
    recorded = GOLDEN["u_" + opcode.replace(".", "_")].view(np.float32)
    found = run(f"{opcode} %d, %a, %b;", np.float32, a=GOLDEN["x"], b=GOLDEN["y"])
    assert (np.isnan(found) == np.isnan(recorded)).all()
    rest = np.isfinite(recorded) & np.isfinite(found)
    steps = np.abs(found[rest].view(np.int32).astype(np.int64) - recorded[rest].view(np.int32))
    assert steps.max() <= 2
