"""setp, set, selp, slct: every comparison against its definition, NaNs and zeros included."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from tests.emulator.one_instruction import run

EDGES = [0.0, -0.0, 1.0, -1.0, 1.5, -2.5, math.inf, -math.inf, math.nan, 2.0**-140, -(2.0**-140)]
FLOATS = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def ordered(name: str, x: float, y: float) -> bool:
    return {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}[name]


def holds(name: str, x: float, y: float) -> bool:
    """PTX ISA 9.3.1.2: plain comparisons are false with a NaN, those with a `u` true."""
    nan = math.isnan(x) or math.isnan(y)
    if name in ("num", "nan"):
        return nan == (name == "nan")
    if name.endswith("u"):
        return nan or ordered(name[:-1], x, y)
    return not nan and ordered(name, x, y)


COMPARISONS = "eq ne lt le gt ge equ neu ltu leu gtu geu num nan".split()
PAIRS = [(x, y) for x in EDGES for y in EDGES]


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("comparison", COMPARISONS)
def test_float_comparisons(name, comparison):
    a, b = (np.array(side, FLOATS[name]) for side in zip(*PAIRS, strict=True))
    expected = [holds(comparison, float(x), float(y)) for x, y in zip(a, b, strict=True)]
    assert run(f"setp.{comparison}.{name} %d, %a, %b;", np.bool_, a=a, b=b).tolist() == expected


@pytest.mark.parametrize("name", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_integer_comparisons_follow_the_signedness_of_the_type(name):
    dtype = np.dtype(("i" if name[0] == "s" else "u") + str(int(name[1:]) // 8))
    info = np.iinfo(dtype)
    values = [0, 1, info.max, info.min, info.max // 2]
    a, b = (np.array(side, dtype) for side in zip(*[(x, y) for x in values for y in values], strict=True))
    names = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
    if name[0] == "u":
        names |= {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
    for comparison, meaning in names.items():
        expected = [ordered(meaning, int(x), int(y)) for x, y in zip(a, b, strict=True)]
        assert run(f"setp.{comparison}.{name} %d, %a, %b;", np.bool_, a=a, b=b).tolist() == expected


def test_the_second_predicate_is_the_opposite_and_both_are_combined():
    a, b = np.arange(8, dtype=np.int32), np.full(8, 4, np.int32)
    c = np.arange(8) % 2 == 0
    both = {"p": np.bool_, "q": np.bool_}
    plain = run("setp.lt.s32 %p|%q, %a, %b;", both, a=a, b=b)
    assert plain["p"].tolist() == (a < b).tolist() and plain["q"].tolist() == (a >= b).tolist()
    for word, function in (("and", np.logical_and), ("or", np.logical_or), ("xor", np.logical_xor)):
        found = run(f"setp.lt.{word}.s32 %p|%q, %a, %b, !%c;", both, a=a, b=b, c=c)
        assert found["p"].tolist() == function(a < b, ~c).tolist()
        assert found["q"].tolist() == function(a >= b, ~c).tolist()


def test_a_predicate_may_be_compared_into_itself():
    a, c = np.arange(8, dtype=np.int32), np.arange(8) % 2 == 0
    found = run("mov.pred %p, %c;\nsetp.lt.and.s32 %p, %a, 4, %p;", {"p": np.bool_}, a=a, c=c)
    assert found["p"].tolist() == ((a < 4) & c).tolist()


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_packed_comparisons_give_one_predicate_for_each_half(name):
    low, high = (np.array(side, FLOATS[name]) for side in zip(*PAIRS, strict=True))
    a = np.stack([low, high], 1).view(np.uint32)[:, 0]
    b = np.stack([high, high], 1).view(np.uint32)[:, 0]
    found = run(f"setp.lt.{name}x2 %p|%q, %a, %b;", {"p": np.bool_, "q": np.bool_}, a=a, b=b)
    assert found["p"].tolist() == [holds("lt", float(x), float(y)) for x, y in zip(low, high, strict=True)]
    assert not found["q"].any()
    words = run(f"set.lt.u32.{name}x2 %d, %a, %b;", np.uint32, a=a, b=b)
    assert words.tolist() == [0xFFFF if p else 0 for p in found["p"]]
    ones = run(f"set.geu.{name}x2.{name}x2 %d, %a, %b;", np.uint32, a=a, b=b)
    one = int(np.array(1, FLOATS[name]).view(np.uint16))
    assert ones.tolist() == [(0 if p else one) | one << 16 for p in found["p"]]


def test_set_writes_all_ones_or_one():
    a, b = np.arange(6, dtype=np.float32), np.full(6, 3, np.float32)
    assert run("set.lt.u32.f32 %d, %a, %b;", np.uint32, a=a, b=b).tolist() == [0xFFFFFFFF] * 3 + [0] * 3
    assert run("set.lt.f32.f32 %d, %a, %b;", np.float32, a=a, b=b).tolist() == [1.0] * 3 + [0.0] * 3
    assert run("set.lt.f16.f32 %d, %a, %b;", np.float16, a=a, b=b).tolist() == [1.0] * 3 + [0.0] * 3
    i = np.arange(6, dtype=np.int32)
    c = np.arange(6) % 2 == 0
    found = run("set.ge.and.s32.s32 %d, %a, 3, %c;", np.int32, a=i, c=c)
    assert found.tolist() == [-1 if x >= 3 and p else 0 for x, p in zip(i, c, strict=True)]


def test_flushing_makes_subnormals_equal_to_zero():
    a, b = np.array([2.0**-140], np.float32), np.array([0.0], np.float32)
    assert run("setp.gt.f32 %d, %a, %b;", np.bool_, a=a, b=b).tolist() == [True]
    assert run("setp.gt.ftz.f32 %d, %a, %b;", np.bool_, a=a, b=b).tolist() == [False]


@pytest.mark.parametrize("kind", ["b16", "u32", "s64", "f32", "f64"])
def test_selp_picks_by_predicate(kind):
    dtype = np.dtype(f"u{int(kind[1:]) // 8}")
    a, b = np.arange(8, dtype=dtype), np.arange(100, 108, dtype=dtype)
    c = np.arange(8) % 3 == 0
    assert run(f"selp.{kind} %d, %a, %b, %c;", dtype, a=a, b=b, c=c).tolist() == np.where(c, a, b).tolist()
    assert run(f"selp.{kind} %d, %a, %b, !%c;", dtype, a=a, b=b, c=c).tolist() == np.where(c, b, a).tolist()


def test_slct_picks_by_sign():
    a, b = np.full(6, 1, np.uint32), np.full(6, 2, np.uint32)
    c = np.array([0.0, -0.0, 5.0, -5.0, math.nan, -(2.0**-140)], np.float32)
    assert run("slct.u32.f32 %d, %a, %b, %c;", np.uint32, a=a, b=b, c=c).tolist() == [1, 1, 1, 2, 2, 2]
    assert run("slct.ftz.u32.f32 %d, %a, %b, %c;", np.uint32, a=a, b=b, c=c).tolist() == [1, 1, 1, 2, 2, 1]
    i = np.array([0, 1, -1, 2**31 - 1, -(2**31), 7], np.int32)
    assert run("slct.b32.s32 %d, %a, %b, %c;", np.uint32, a=a, b=b, c=i).tolist() == [1, 1, 2, 1, 2, 1]
