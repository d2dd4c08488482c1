"""SIMD video instructions against Python's integers, lane by lane; scalar ones where ptxas leaves the PTX ISA."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.emulator.one_instruction import run

EDGES = [0, 1, 0x7F807F80, 0x80FF7F00, 0xFFFFFFFF, 0x80008000, 0x7FFF7FFF, 0x00FF00FF]
RANDOM = np.random.default_rng(0).integers(0, 2**32, (2, 64), dtype=np.uint32)
A = np.concatenate([np.repeat(np.array(EDGES, np.uint32), len(EDGES)), RANDOM[0]])
B = np.concatenate([np.tile(np.array(EDGES, np.uint32), len(EDGES)), RANDOM[1]])
C = np.uint32(0xFFFFFF00)


def average(x: int, y: int) -> int:
    return (x + y + 1) >> 1 if x + y >= 0 else (x + y) >> 1


FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "avrg": average,
    "absdiff": lambda x, y: abs(x - y),
    "min": min,
    "max": max,
}


def lanes(word: int, count: int, kind: str) -> list[int]:
    bits = 32 // count
    values = [int(word) >> (bits * at) & ((1 << bits) - 1) for at in range(count)]
    return [value - (1 << bits) if kind == "s32" and value >> (bits - 1) else value for value in values]


def packed(values: list[int], count: int) -> int:
    bits = 32 // count
    return sum((value & ((1 << bits) - 1)) << (bits * at) for at, value in enumerate(values))


def clamped(value: int, count: int, kind: str) -> int:
    bits = 32 // count
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind == "s32" else (0, (1 << bits) - 1)
    return min(max(value, low), high)


@pytest.mark.sample(36, all=72)
@pytest.mark.parametrize("second", ["", ".sat", ".add"])
@pytest.mark.parametrize("types", [("u32", "u32", "u32"), ("s32", "s32", "s32"), ("u32", "s32", "u32")])
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_arithmetic_on_halves_and_bytes(name: str, count: int, types: tuple[str, str, str], second: str) -> None:
    expected = []
    for a, b in zip(A, B, strict=True):
        pairs = zip(lanes(a, count, types[1]), lanes(b, count, types[2]), strict=True)
        values = [FUNCTIONS[name](x, y) for x, y in pairs]
        if second == ".add":
            expected.append((int(C) + sum(values)) & 0xFFFFFFFF)
        elif second == ".sat":
            expected.append(packed([clamped(value, count, types[0]) for value in values], count))
        else:
            expected.append(packed(values, count))
    opcode = f"v{name}{count}.{'.'.join(types)}{second}"
    got = run(f"{opcode} %d, %a, %b, %c;", np.uint32, a=A, b=B, c=np.full(A.size, C))
    assert got.tolist() == expected


@pytest.mark.parametrize("kind", ["u32", "s32"])
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("comparison", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparison_of_halves_and_bytes(comparison: str, count: int, kind: str) -> None:
    method = f"__{comparison}__"
    each = [
        [int(getattr(x, method)(y)) for x, y in zip(lanes(a, count, kind), lanes(b, count, kind), strict=True)]
        for a, b in zip(A, B, strict=True)
    ]
    opcode = f"vset{count}.{kind}.{kind}.{comparison}"
    five = np.full(len(A), 5, np.uint32)
    got = run(f"{opcode} %d, %a, %b, %c;", np.uint32, a=A, b=B, c=five)
    assert got.tolist() == [packed(values, count) for values in each]
    got = run(f"{opcode}.add %d, %a, %b, %c;", np.uint32, a=A, b=B, c=five)
    assert got.tolist() == [5 + sum(values) for values in each]


@pytest.mark.parametrize(
    "instruction, result",
    [
        ("vadd4.u32.s32.u32 %d.b310, %a.b6420, %b.b1357, %c;", 0xF9128989),
        ("vadd4.u32.s32.u32.add %d.b310, %a.b6420, %b.b1357, %c;", 0x11121314 - 119 - 119 - 7),
        ("vmax2.u32.u32.u32 %d.h1, %a.h30, %b.h12, %c;", 0x05F61314),
        ("vset2.u32.u32.eq %d, %a.h02, %b.h20, %c;", 0),
        ("vset2.u32.u32.eq.add %d.h0, %a.h02, %b.h22, %c;", 0x11121315),
        ("vsub2.s32.s32.s32.sat %d.h10, %a.h22, %b, %c;", 0x02020000),
    ],
)
def test_lanes_are_selected_from_both_words_and_others_than_the_masked_are_those_of_c(
    instruction: str, result: int
) -> None:
    """The first is what the PRMTs of ptxas 13.0 for sm_90a compute."""
    words = {"a": 0x01820384, "b": 0x05F607F8, "c": 0x11121314}
    given = {name: np.array([value], np.uint32) for name, value in words.items()}
    assert run(instruction, np.uint32, **given)[0] == result


# -- one value each --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "instruction, a, b, c, result",
    [
        ("vshr.u32.u32.u32.clamp.add %d, %a, %b, %c;", 0x80000000, 4, 3, 0x08000003),
        ("vshr.u32.u32.u32.clamp.add %d, %a, %b, %c;", 0x80000000, 32, 7, 7),
        ("vshr.u32.u32.u32.wrap %d, %a, %b;", 0x80000000, 33, 0, 0x40000000),
        ("vshr.s32.s32.u32.clamp %d, %a, %b;", 0x80000000, 40, 0, 0xFFFFFFFF),
        ("vshl.u32.u32.u32.sat.clamp %d, %a, %b;", 0x80000001, 1, 0, 0xFFFFFFFF),
        ("vadd.u32.u32.u32 %d, %a, %b;", 0xFFFFFFFF, 2, 0, 1),
        ("vadd.u32.u32.u32.sat %d, %a, %b;", 0xFFFFFFFF, 2, 0, 1),
        ("vsub.u32.u32.u32.sat %d, %a, %b;", 1, 2, 0, 0),
        ("vsub.u32.u32.s32.sat %d, %a, %b;", 0xFFFFFFFF, 0xFFFFFFFF, 0, 0),
        ("vabsdiff.s32.s32.s32.sat %d, %a, %b;", 0x80000000, 1, 0, 0x7FFFFFFF),
        ("vshl.u32.s32.u32.sat.clamp %d, %a, %b;", 0xFFFFFFFF, 1, 0, 0),
        ("vshl.u32.u32.u32.sat.clamp %d, %a, %b;", 0x80000000, 2, 0, 0),  # bit 33 is the sign of 34
        ("vadd.s32.s32.s32.sat %d, %a, %b;", 0x80000000, 0xFFFFFFFF, 0, 0x80000000),
        ("vadd.s32.s32.u32 %d, %a.b3, %b.h1;", 0xFF123456, 0x00050001, 0, 4),
        ("vsub.s32.u32.u32.min %d, %a, %b, %c;", 1, 3, 0xFFFFFFFF, 0xFFFFFFFE),
        ("vadd.u32.u32.u32.min %d, %a, %b, %c;", 0, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFF),
        ("vmin.u32.s32.s32.max %d, %a, %b, %c;", 0xFFFFFFFF, 5, 0xFFFFFFFF, 0xFFFFFFFF),
        ("vmin.u32.s32.s32.min %d, %a, %b, %c;", 0xFFFFFFFF, 5, 7, 7),
        ("vmin.u32.u32.u32.min %d, %a, %b, %c;", 0x80000000, 0xFFFFFFFF, 0xFFFFFFFF, 0x80000000),
        ("vset.s32.u32.lt.max %d, %a, %b, %c;", 0xFFFFFFFF, 0, 0xFFFFFFFF, 1),
        ("vset.u32.s32.gt.max %d, %a, %b, %c;", 0xFFFFFFFF, 0, 0xFFFFFFFF, 0xFFFFFFFF),
        ("vabsdiff.u32.s32.s32.max %d, %a, %b, %c;", 0xFFFFFFFF, 1, 1, 2),
        ("vset.s32.u32.lt.add %d, %a, %b, %c;", 0xFFFFFFFF, 0, 41, 42),
        ("vmax.u32.u32.u32 %d.h1, %a, %b, %c;", 0x11111, 0x2, 0xAAAABBBB, 0x0001BBBB),
        ("vmax.u32.u32.u32.sat %d.h1, %a, %b, %c;", 0x11111, 0x2, 0xAAAABBBB, 0x0000BBBB),
        ("vmax.u32.u32.u32.sat %d.h0, %a, %b, %c;", 0x11111, 0x2, 0xAAAABBBB, 0xAAAAFFFF),
        ("vadd.s32.s32.s32.sat %d.b2, %a, %b, %c;", 0xFFFFFFFF, 0, 0, 0x007F0000),
        ("vadd.s32.s32.s32 %d.b3, %a, %b, %c;", 0xFFFFFFFF, 0, 0x123, 0xFF000123),
        ("vshl.u32.u32.u32.sat.wrap %d.b0, %a, %b, %c;", 0xFF, 4, 0x100, 0x1F0),
        ("vmad.u32.u32.u32.po %d, %a, %b, %c;", 5, 7, 100, 136),
        ("vmad.s32.s32.s32.shr7 %d, %a, %b, %c;", 0xFFFFFF00, 1, 0, 0xFFFFFFFE),
        ("vmad.u32.u32.u32.sat %d, %a, %b, %c;", 0xFFFFFFFF, 0xFFFFFFFF, 0, 1),
        ("vmad.u32.u32.u32.sat %d, %a, %b, %c;", 0xFFFFFFFF, 1, 0, 0),
        ("vmad.u32.u32.u32.sat %d, %a.h0, %b.h1, %c;", 0xFFFF, 0xFFFF0000, 0xFFFFFFFF, 0xFFFE0000),
        ("vmad.u32.u32.u32.sat %d, %a, %b, %c;", 0x7FFFFFFF, 0x10, 0, 0xFFFFFFFF),
        ("vmad.u32.u32.u32.sat.shr7 %d, %a, %b, %c;", 0xFFFFFFFF, 1, 0, 0xFFFFFFFF),
        ("vmad.s32.s32.s32 %d, -%a.h0, %b, %c;", 3, 5, 100, 85),
        ("vmad.s32.s32.s32 %d, -%a, -%b, -%c;", 3, 5, 100, 0xFFFFFFAB),
        ("vmad.u32.u32.u32.po %d, -%a, -%b, %c;", 3, 5, 100, 116),
        ("vmad.u32.u32.u32.sat.shr7 %d, %a, %b, -%c;", 0, 0, 256, 0xFFFFFFFE),
        ("vmad.u32.u32.u32.sat %d, %a, -%b, %c;", 0x7FFFFFFF, 2, 0, 0x80000000),
        ("vmad.s32.u32.s32.sat.shr7 %d, %a, %b, %c;", 0xFFFFFFFF, 1, 0, 0xFFFFFFFF),
    ],
)
def test_a_scalar_video_instruction_takes_parts_saturates_and_compares_as_ptxas_builds_it(
    instruction: str, a: int, b: int, c: int, result: int
) -> None:
    words = {name: np.array([value], np.uint32) for name, value in (("a", a), ("b", b), ("c", c))}
    assert run(instruction, np.uint32, **words)[0] == result  # by hand, after the rules of ops/video_scalar.py
