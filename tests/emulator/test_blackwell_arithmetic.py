"""Arithmetic and conversions that came with Blackwell, against exact arithmetic and ml_dtypes. Not run on hardware."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from tests.emulator.one_instruction import run
from warploom.errors import WarploomError

ARCH = {"arch": "sm_100a", "ptx": "8.8"}
EDGES = np.array(
    [0.0, -0.0, 1.0, -1.5, 3.14159, 1e-40, -1e-40, 3.4e38, -3.4e38, np.inf, -np.inf, np.nan, 2.0**-126, 1 + 2.0**-23],
    np.float32,
)
NAN = 0x7FFFFFFF


def singles(count: int, seed: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    return np.concatenate([EDGES, (draw.standard_normal(count) * 2.0 ** draw.integers(-20, 20, count)).astype("f4")])


def bits(values: np.ndarray) -> np.ndarray:
    """Singles as bits, NaNs canonical."""
    found = np.ascontiguousarray(values, np.float32)
    return np.where(found != found, np.uint32(NAN), found.view(np.uint32))


# -- pairs of singles ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("modifiers", ["", ".rn", ".rz", ".rm.ftz", ".rp"])
@pytest.mark.parametrize("base", ["add", "sub", "mul", "fma"])
def test_a_pair_is_two_scalar_operations(base, modifiers):
    if base == "fma" and not modifiers:
        modifiers = ".rn"
    a, b, c = (singles(242, seed) for seed in (1, 2, 3))
    b, c = np.roll(b, 5), np.roll(c, 9)
    names = {"a": a, "b": b, "c": c} if base == "fma" else {"a": a, "b": b}
    text = ", ".join(f"%{name}" for name in names)
    packed = {name: value.view(np.uint64) for name, value in names.items()}
    pairs = run(f"{base}{modifiers}.f32x2 %d, {text};", np.uint64, **packed, **ARCH)
    scalar = run(f"{base}{modifiers}.f32 %d, {text};", np.uint32, **names)
    np.testing.assert_array_equal(pairs.view(np.uint32), scalar)


# -- mixed precision -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "numpy"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_a_half_is_widened_exactly_and_the_result_rounded_once(kind, numpy):
    with np.errstate(over="ignore"):
        a, b = singles(100, 4).astype(numpy), np.roll(singles(100, 5), 3).astype(numpy)
    c = np.roll(singles(100, 6), 7)
    wide_a, wide_b = a.astype(np.float32), b.astype(np.float32)
    halves = {"a": a.view(np.uint16), "c": c}
    with np.errstate(all="ignore"):
        for base, expected in (("add", wide_a + c), ("sub", wide_a - c)):
            found = run(f"{base}.rn.f32.{kind} %d, %a, %c;", np.uint32, **halves, **ARCH)
            np.testing.assert_array_equal(found, bits(expected))
    found = run(f"fma.rz.f32.{kind} %d, %a, %b, %c;", np.uint32, **halves, b=b.view(np.uint16), **ARCH)
    scalar = run("fma.rz.f32 %d, %a, %b, %c;", np.uint32, a=wide_a, b=wide_b, c=c)
    np.testing.assert_array_equal(found, scalar)
    clamped = run(f"add.sat.f32.{kind} %d, %a, %c;", np.float32, **halves, **ARCH)
    assert clamped.min() >= 0 and clamped.max() <= 1


# -- three operands ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", ["min", "max"])
@pytest.mark.parametrize("modifiers", ["", ".NaN", ".abs", ".ftz.NaN.abs"])
def test_the_least_of_three_is_the_least_of_the_least_of_two(base, modifiers):
    a, b, c = singles(100, 7), np.roll(singles(100, 8), 5), np.roll(singles(100, 9), 11)
    found = run(f"{base}{modifiers}.f32 %d, %a, %b, %c;", np.uint32, a=a, b=b, c=c, **ARCH)
    plain = modifiers.replace(".abs", "")
    if ".abs" in modifiers:
        a, b, c = np.abs(a), np.abs(b), np.abs(c)
    first = run(f"{base}{plain}.f32 %d, %a, %b;", np.float32, a=a, b=b)
    np.testing.assert_array_equal(found, run(f"{base}{plain}.f32 %d, %a, %b;", np.uint32, a=first, b=c))


# -- narrow floats ---------------------------------------------------------------------------------------------------

KINDS = {"e2m1": ml_dtypes.float4_e2m1fn, "e2m3": ml_dtypes.float6_e2m3fn, "e3m2": ml_dtypes.float6_e3m2fn}
GREATEST = {"e2m1": 6.0, "e2m3": 7.5, "e3m2": 28.0}


def nearest(x: np.ndarray, kind: str) -> np.ndarray:
    """Codes of the nearest values, ties to the even code, saturating; NaN to the greatest."""
    bits_of = {"e2m1": 4, "e2m3": 6, "e3m2": 6}[kind]
    half = 1 << bits_of - 1
    values = np.arange(half).astype(np.uint8).view(KINDS[kind]).astype(np.float64)
    size = np.minimum(np.where(x != x, np.inf, np.abs(x.astype(np.float64))), GREATEST[kind])
    distance = np.abs(size[:, None] - values[None, :])
    best = distance.min(axis=1, keepdims=True)
    candidates = [np.flatnonzero(row == least) for row, least in zip(distance, best, strict=True)]
    codes = np.array([min(found, key=lambda code: code % 2) for found in candidates])
    return np.where(np.signbit(x) & (x == x), codes + half, codes)


def rounding_cases(kind: str) -> np.ndarray:
    values = np.arange(64).astype(np.uint8).view(ml_dtypes.float6_e3m2fn).astype(np.float32)
    ties = [values, values * 1.25, values * 0.75, values * 1.0625, EDGES]
    return np.concatenate(ties).astype(np.float32)[:320].copy()


@pytest.mark.parametrize("kind", list(KINDS))
def test_singles_become_the_nearest_narrow_floats(kind):
    a = rounding_cases(kind)
    b = np.roll(a, 17)
    upper, lower = nearest(a, kind), nearest(b, kind)
    if kind == "e2m1":
        text = "cvt.rn.satfinite.e2m1x2.f32 %two, %a, %b;  cvt.u32.u8 %d, %two;"
        found = run(text, np.uint32, a=a, b=b, declare=".reg .b8 %two;", **ARCH)
        np.testing.assert_array_equal(found, upper << 4 | lower)
    else:
        found = run(f"cvt.rn.satfinite.{kind}x2.f32 %d, %a, %b;", np.uint16, a=a, b=b, **ARCH)
        np.testing.assert_array_equal(found, upper << 8 | lower)


def test_relu_keeps_nothing_negative():
    a = rounding_cases("e3m2")
    found = run("cvt.rn.satfinite.relu.e3m2x2.f32 %d, %a, %a;", np.uint16, a=a, **ARCH)
    assert (found & 0x2020 == 0).all()


def test_pairs_of_halves_become_pairs_of_four_bits():
    a = rounding_cases("e2m1")
    with np.errstate(over="ignore"):
        pairs = np.stack([a, np.roll(a, 9)], axis=1).astype(np.float16)
    text = "cvt.rn.satfinite.e2m1x2.f16x2 %two, %a;  cvt.u32.u8 %d, %two;"
    found = run(text, np.uint32, a=pairs.view(np.uint32)[:, 0], declare=".reg .b8 %two;", **ARCH)
    lower, upper = (nearest(pairs[:, half].astype(np.float32), "e2m1") for half in (0, 1))
    np.testing.assert_array_equal(found, upper << 4 | lower)


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_narrow_float_is_a_half_exactly(kind):
    codes = np.arange(16 if kind == "e2m1" else 64)
    first, second = (part.ravel() for part in np.meshgrid(codes, codes[::3]))
    if kind == "e2m1":
        packed = (first << 4 | second).astype(np.uint32)
        text = f"cvt.u8.u32 %two, %a;  cvt.rn.f16x2.{kind}x2 %d, %two;"
        found = run(text, np.uint32, a=packed, declare=".reg .b8 %two;", **ARCH)
    else:
        packed = (first << 8 | second).astype(np.uint16)
        found = run(f"cvt.rn.f16x2.{kind}x2 %d, %a;", np.uint32, a=packed, **ARCH)
    halves = found.view(np.float16).reshape(-1, 2)
    for column, expected in ((1, first), (0, second)):
        np.testing.assert_array_equal(halves[:, column], expected.astype(np.uint8).view(KINDS[kind]).astype("f4"))


@pytest.mark.parametrize("mode", ["rz", "rp"])
def test_a_scale_is_the_power_of_two_below_or_above(mode):
    powers = 2.0 ** np.arange(-126, 127, 3)
    values = np.concatenate([powers, powers * 1.5, powers * (1 + 2.0**-23)]).astype(np.float32)
    found = run(f"cvt.{mode}.satfinite.ue8m0x2.f32 %d, %a, %a;", np.uint16, a=values, **ARCH)
    np.testing.assert_array_equal(found >> 8, found & 0xFF)
    for value, code in zip(values.tolist(), (found & 0xFF).tolist(), strict=True):
        scale = Fraction(2) ** (code - 127)
        assert scale <= value < 2 * scale if mode == "rz" else scale >= value > scale / 2


def test_scales_have_no_infinity_and_one_code_for_nan():
    special = np.array([np.nan, np.inf, 3.4e38, 0.0, 1e-45], np.float32)
    finite = run("cvt.rp.satfinite.ue8m0x2.f32 %d, %a, %a;", np.uint16, a=special, **ARCH) & 0xFF
    other = run("cvt.rp.ue8m0x2.f32 %d, %a, %a;", np.uint16, a=special, **ARCH) & 0xFF
    assert finite.tolist() == [255, 254, 254, 0, 0] and other.tolist() == [255, 255, 255, 0, 0]


def test_a_scale_comes_back_as_a_bf16():
    codes = np.arange(256).astype(np.uint16)
    found = run("cvt.rn.bf16x2.ue8m0x2 %d, %a;", np.uint32, a=codes << 8 | codes[::-1], **ARCH)
    values = found.view(ml_dtypes.bfloat16).astype(np.float64).reshape(-1, 2)
    assert np.isnan(values[255, 1]) and np.isnan(values[0, 0])
    np.testing.assert_array_equal(values[:255, 1], 2.0 ** (codes[:255].astype(np.float64) - 127))
    again = run("cvt.rz.ue8m0x2.bf16x2 %d, %a;", np.uint16, a=found, **ARCH)
    np.testing.assert_array_equal(again, codes << 8 | codes[::-1])


# -- stochastic rounding ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "numpy", "cut"), [("f16", np.float16, 13), ("bf16", ml_dtypes.bfloat16, 16)])
def test_stochastic_rounding_goes_up_as_often_as_what_is_cut_off_says(kind, numpy, cut):
    random = np.arange(0, 1 << cut, 1 << cut - 8, dtype=np.uint32)
    tail = 3 << cut - 3  # 3/8 of the last place
    value = np.uint32(np.float32(1.0).view(np.uint32) | tail).view(np.float32)
    a = np.full(random.size, value)
    found = run(f"cvt.rs.{kind}x2.f32 %d, %a, %a, %r;", np.uint32, a=a, r=random << 16 | random, **ARCH)
    upper, lower = (found >> 16).astype(np.uint16), found.astype(np.uint16)
    np.testing.assert_array_equal(upper, lower)
    down = np.array([1.0]).astype(numpy).view(np.uint16)[0]
    assert set(upper.tolist()) == {int(down), int(down) + 1}
    assert np.count_nonzero(upper == down + 1) == random.size * 3 // 8


@pytest.mark.parametrize("kind", ["e4m3", "e5m2", "e2m3", "e3m2", "e2m1"])
def test_what_a_narrow_float_holds_is_never_rounded(kind):
    numpy = {**KINDS, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}[kind]
    values = np.array([1.0, -0.5, 3.0, 0.0] * 8, np.float32) if kind == "e2m1" else np.array([1.0, -0.5, 3.5, 0.25] * 8)
    parts = {name: np.roll(values, at).astype(np.float32) for at, name in enumerate("abef")}
    random = np.random.default_rng(0).integers(0, 1 << 32, values.size, dtype=np.uint32)
    text = f"cvt.rs.satfinite.{kind}x4.f32 %d, {{%a, %b, %e, %f}}, %r;"
    width = 4 if kind == "e2m1" else 8
    found = run(text, np.uint16 if width == 4 else np.uint32, **parts, r=random, **ARCH).astype(np.uint32)
    for place, name in enumerate("abef"):
        code = (found >> (width * (3 - place)) & (1 << width) - 1).astype(np.uint8)
        np.testing.assert_array_equal(code.view(numpy).astype(np.float32), parts[name])


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "add.f32x2 %d, %a, %b;", "max.f32 %d, %a, %a, %a;", "cvt.rn.satfinite.e2m3x2.f32 %h, %a, %a;",
        "cvt.rs.f16x2.f32 %d, %a, %a, %a;",
    ],
)  # fmt: skip
def test_hopper_has_none_of_it(text):
    with pytest.raises(WarploomError) as caught:
        from warploom import asm

        lines = f".reg .b32 %a, %d; .reg .b64 %b; .reg .b16 %h;\n{text}\nret;"
        asm.check(asm.parse(f".version 8.8\n.target sm_90a\n.address_size 64\n.visible .entry k() {{ {lines} }}"))
    assert caught.value.code in ("target-lacks-it", "wrong-operands")


# -- accesses of 256 bits --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("load", "store"),
    [
        ("ld.global.v8.b32", "st.global.v8.b32"),
        ("ld.global.nc.L2::evict_last.v8.b32", "st.global.L2::evict_first.v8.b32"),
        ("ld.relaxed.gpu.global.v8.b32", "st.release.gpu.global.v8.b32"),
        ("ld.volatile.global.v8.b32", "st.volatile.global.v8.b32"),
    ],
)
def test_thirty_two_bytes_go_through_eight_registers(load, store):
    from warploom import asm
    from warploom.emulator import api

    registers = ", ".join(f"%r{number}" for number in range(8))
    text = f""".version 8.8
.target sm_100
.address_size 64
.visible .entry k(.param .u64 from, .param .u64 to)
{{
    .reg .b32 %r<8>; .reg .b32 %t; .reg .b64 %d<4>;
    ld.param.u64 %d0, [from];
    ld.param.u64 %d1, [to];
    mov.u32 %t, %tid.x;
    mad.wide.u32 %d2, %t, 32, %d0;
    mad.wide.u32 %d3, %t, 32, %d1;
    {load} {{{registers}}}, [%d2];
    {store} [%d3], {{{registers}}};
    ret;
}}
"""
    data, out = np.arange(256, dtype=np.uint32), np.zeros(256, np.uint32)
    assert api.run(asm.parse(text), "k", [data, out], grid=(1, 1, 1), block=(32, 1, 1)).findings == []
    np.testing.assert_array_equal(out, data)
