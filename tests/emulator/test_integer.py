"""Integer arithmetic, bits and the carry flag against Python's integers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.one_instruction import run

TYPES = {
    f"{kind}{bits}": np.dtype(f"{'i' if kind == 's' else 'u'}{bits // 8}") for kind in "us" for bits in (16, 32, 64)
}


def samples(dtype: np.dtype, count: int = 96, seed: int = 0) -> np.ndarray:
    """Random values of all magnitudes, and the edges."""
    random = np.random.default_rng(seed)
    info = np.iinfo(dtype)
    edges = np.array([0, 1, 2, 3, info.max, info.max - 1, info.min, info.min + 1, -1 if info.min else 5], dtype)
    bits = 8 * dtype.itemsize
    words = [int.from_bytes(random.bytes(8), "little") for _ in range(count)]
    values = np.array(
        [(word >> int(random.integers(0, bits))) & ((1 << bits) - 1) for word in words], np.dtype(f"u{dtype.itemsize}")
    )
    return np.concatenate([edges, values.view(dtype)])


def pairs(dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Every edge with every edge, and random pairs."""
    a, b = samples(dtype, 40, 1), samples(dtype, 40, 2)
    grid = np.array([(x, y) for x in a[:9] for y in b[:9]], dtype)
    return np.concatenate([grid[:, 0], a]), np.concatenate([grid[:, 1], b])


def wrap(values: list[int], dtype: np.dtype) -> np.ndarray:
    mask = (1 << 8 * dtype.itemsize) - 1
    return np.array([value & mask for value in values], np.dtype(f"u{dtype.itemsize}")).view(dtype)


def truncated(x: int, y: int) -> int:
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def check(
    instruction: str, dtype: np.dtype, function, *operands: np.ndarray, result: np.dtype | None = None, **more
) -> None:
    """The instruction's results are the function's on Python integers, wrapped to the result type."""
    result = result or dtype
    names = dict(zip("abcef", operands, strict=False))
    found = run(instruction, result, **names, **more)
    expected = wrap([function(*(int(x[i]) for x in operands)) for i in range(operands[0].size)], result)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", TYPES)
def test_sums_differences_and_low_products_wrap(name):
    a, b = pairs(TYPES[name])
    check(f"add.{name} %d, %a, %b;", TYPES[name], lambda x, y: x + y, a, b)
    check(f"sub.{name} %d, %a, %b;", TYPES[name], lambda x, y: x - y, a, b)
    check(f"mul.lo.{name} %d, %a, %b;", TYPES[name], lambda x, y: x * y, a, b)
    check(f"mad.lo.{name} %d, %a, %b, %c;", TYPES[name], lambda x, y, z: x * y + z, a, b, a[::-1])


@pytest.mark.parametrize("name", TYPES)
def test_the_high_half_of_a_product(name):
    dtype, bits = TYPES[name], 8 * TYPES[name].itemsize
    a, b = pairs(dtype)
    check(f"mul.hi.{name} %d, %a, %b;", dtype, lambda x, y: x * y >> bits, a, b)
    check(f"mad.hi.{name} %d, %a, %b, %c;", dtype, lambda x, y, z: (x * y >> bits) + z, a, b, a[::-1])


@pytest.mark.parametrize("name", ["u16", "s16", "u32", "s32"])
def test_wide_products_lose_nothing(name):
    dtype = TYPES[name]
    wide = np.dtype(f"{dtype.kind}{2 * dtype.itemsize}")
    a, b = pairs(dtype)
    check(f"mul.wide.{name} %d, %a, %b;", dtype, lambda x, y: x * y, a, b, result=wide)
    c = np.resize(samples(wide), a.size)
    check(f"mad.wide.{name} %d, %a, %b, %c;", dtype, lambda x, y, z: x * y + z, a, b, c, result=wide)


@pytest.mark.parametrize("name", TYPES)
def test_division_truncates_and_by_zero_gives_all_ones(name):
    a, b = pairs(TYPES[name])
    check(f"div.{name} %d, %a, %b;", TYPES[name], lambda x, y: truncated(x, y) if y else -1, a, b)
    check(f"rem.{name} %d, %a, %b;", TYPES[name], lambda x, y: x - y * truncated(x, y) if y else -1, a, b)


@pytest.mark.parametrize("name", TYPES)
def test_minimum_maximum_and_sum_of_absolute_difference(name):
    a, b = pairs(TYPES[name])
    check(f"min.{name} %d, %a, %b;", TYPES[name], min, a, b)
    check(f"max.{name} %d, %a, %b;", TYPES[name], max, a, b)
    check(f"sad.{name} %d, %a, %b, %c;", TYPES[name], lambda x, y, z: abs(x - y) + z, a, b, a[::-1])


@pytest.mark.parametrize("name", ["s16", "s32", "s64"])
def test_the_least_integer_is_its_own_negative_and_magnitude(name):
    a = samples(TYPES[name])
    check(f"abs.{name} %d, %a;", TYPES[name], abs, a)
    check(f"neg.{name} %d, %a;", TYPES[name], lambda x: -x, a)


def clamp(x: int, bits: int = 32) -> int:
    return max(-(1 << bits - 1), min((1 << bits - 1) - 1, x))


def signed(x: int, bits: int) -> int:
    return (x & (1 << bits) - 1) - ((x >> bits - 1 & 1) << bits)


def test_saturating_forms_clamp_at_the_ends_of_s32():
    a, b = pairs(TYPES["s32"])
    c = a[::-1].copy()
    check("add.sat.s32 %d, %a, %b;", TYPES["s32"], lambda x, y: clamp(x + y), a, b)
    check("sub.sat.s32 %d, %a, %b;", TYPES["s32"], lambda x, y: clamp(x - y), a, b)
    check("mad.hi.sat.s32 %d, %a, %b, %c;", TYPES["s32"], lambda x, y, z: clamp((x * y >> 32) + z), a, b, c)
    check(
        "mad24.hi.sat.s32 %d, %a, %b, %c;", TYPES["s32"],
        lambda x, y, z: clamp(signed(signed(x, 24) * signed(y, 24) >> 16, 32) + z), a, b, c,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["u32", "s32"])
def test_24_bit_products(kind):
    a, b = pairs(TYPES[kind])
    low = (lambda x: signed(x, 24)) if kind == "s32" else (lambda x: x & 0xFFFFFF)
    check(f"mul24.lo.{kind} %d, %a, %b;", TYPES[kind], lambda x, y: low(x) * low(y), a, b)
    check(f"mul24.hi.{kind} %d, %a, %b;", TYPES[kind], lambda x, y: low(x) * low(y) >> 16, a, b)
    check(f"mad24.lo.{kind} %d, %a, %b, %c;", TYPES[kind], lambda x, y, z: low(x) * low(y) + z, a, b, b[::-1])


def halves(x: int, is_signed: bool) -> list[int]:
    return [signed(x >> at, 16) if is_signed else x >> at & 0xFFFF for at in (0, 16)]


@pytest.mark.parametrize("kind", ["u16x2", "s16x2"])
def test_packed_halves_do_not_carry_into_each_other(kind):
    a, b = pairs(TYPES["u32"])
    is_signed = kind == "s16x2"

    def both(function):
        def apply(x, y):
            parts = [function(p, q) for p, q in zip(halves(x, is_signed), halves(y, is_signed), strict=True)]
            return parts[0] & 0xFFFF | (parts[1] & 0xFFFF) << 16

        return apply

    check(f"add.{kind} %d, %a, %b;", TYPES["u32"], both(lambda x, y: x + y), a, b)
    check(f"min.{kind} %d, %a, %b;", TYPES["u32"], both(min), a, b)
    check(f"max.{kind} %d, %a, %b;", TYPES["u32"], both(max), a, b)
    if is_signed:
        check(f"max.relu.{kind} %d, %a, %b;", TYPES["u32"], both(lambda x, y: max(x, y, 0)), a, b)


def test_relu_of_s32():
    a, b = pairs(TYPES["s32"])
    check("min.relu.s32 %d, %a, %b;", TYPES["s32"], lambda x, y: max(min(x, y), 0), a, b)
    check("max.relu.s32 %d, %a, %b;", TYPES["s32"], lambda x, y: max(x, y, 0), a, b)


# -- bits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [32, 64])
def test_counting_and_reversing_bits(bits):
    dtype, u32 = TYPES[f"u{bits}"], TYPES["u32"]
    a = samples(dtype)
    check(f"popc.b{bits} %d, %a;", dtype, lambda x: x.bit_count(), a, result=u32)
    check(f"clz.b{bits} %d, %a;", dtype, lambda x: bits - x.bit_length(), a, result=u32)
    check(f"brev.b{bits} %d, %a;", dtype, lambda x: int(f"{x:0{bits}b}"[::-1], 2), a)


@pytest.mark.parametrize("name", ["u32", "s32", "u64", "s64"])
def test_bfind_finds_the_first_bit_that_is_not_the_sign(name):
    dtype, bits = TYPES[name], 8 * TYPES[name].itemsize
    position = lambda x: (~x if x < 0 else x).bit_length() - 1  # noqa: E731
    a = samples(dtype)
    check(f"bfind.{name} %d, %a;", dtype, position, a, result=TYPES["u32"])
    check(
        f"bfind.shiftamt.{name} %d, %a;", dtype,
        lambda x: bits - 1 - position(x) if position(x) >= 0 else -1, a, result=TYPES["u32"],
    )  # fmt: skip


def used(number: int, bits: int) -> int:
    """Eight bits of a position or length by the manual; for 64 bits tests/golden/conformance.npz decides: all."""
    return number & 0xFF if bits == 32 else number


def field(x: int, start: int, length: int, bits: int, is_signed: bool) -> int:
    """The pseudocode of PTX ISA 9.7.1.19, but for which bits of position and length count."""
    start, length, top = used(start, bits), used(length, bits), bits - 1
    sign = 0 if not is_signed or length == 0 else x >> min(start + length - 1, top) & 1
    return sum((x >> start + i & 1 if i < length and start + i <= top else sign) << i for i in range(bits))


POSITIONS = np.array(
    [(s, n) for s in (0, 1, 5, 31, 32, 33, 63, 64, 200, 255, 256) for n in (0, 1, 8, 31, 32, 33, 63, 64, 255, 300)]
)


@pytest.mark.parametrize("name", ["u32", "s32", "u64", "s64"])
def test_bfe_extracts_by_the_manual(name):
    dtype, bits = TYPES[name], 8 * TYPES[name].itemsize
    start, length = POSITIONS.T.astype(np.uint32)
    for seed in range(3):
        a = np.resize(samples(dtype, 100, seed)[seed:], start.size)
        check(
            f"bfe.{name} %d, %a, %b, %c;", dtype,
            lambda x, s, n: field(x & (1 << bits) - 1, s, n, bits, name[0] == "s"), a, start, length,
        )  # fmt: skip


@pytest.mark.parametrize("bits", [32, 64])
def test_bfi_inserts_by_the_manual(bits):
    dtype = TYPES[f"u{bits}"]
    start, length = POSITIONS.T.astype(np.uint32)
    a, b = (np.resize(samples(dtype, 100, seed), start.size) for seed in (3, 4))

    def insert(x, y, s, n):
        s, n = used(s, bits), used(n, bits)
        for i in range(n):
            if s + i < bits:
                y = y & ~(1 << s + i) | (x >> i & 1 if i < bits else 0) << s + i
        return y

    check(f"bfi.b{bits} %d, %a, %b, %c, %e;", dtype, insert, a, b, start, length)


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
def test_szext_and_bmsk(mode):
    widths = np.arange(0, 70, dtype=np.uint32)
    a = np.resize(samples(TYPES["u32"]), widths.size)

    def extend(x, n, is_signed):
        if n >= 32 and mode == "clamp":
            return x
        n &= 31
        if n == 0:
            return 0
        return signed(x, n) if is_signed else x & (1 << n) - 1

    check(f"szext.{mode}.u32 %d, %a, %b;", TYPES["u32"], lambda x, n: extend(x, n, False), a, widths)
    check(f"szext.{mode}.s32 %d, %a, %b;", TYPES["u32"], lambda x, n: extend(x, n, True), a, widths)

    def mask(start, width):
        if mode == "wrap":
            start, width = start & 31, width & 31
        return 0 if start >= 32 else ((1 << min(width, 32)) - 1) << start

    starts, widths = (
        x.ravel().astype(np.uint32) for x in np.meshgrid([0, 1, 7, 31, 32, 40], [0, 1, 16, 31, 32, 33, 64])
    )
    check(f"bmsk.{mode}.b32 %d, %a, %b;", TYPES["u32"], mask, starts, widths)


def test_fns_finds_the_nth_set_bit_in_both_directions():
    masks = np.array([0b1011_0000, 0b1011_0000, 0b1011_0000, 0b1011_0000, 1, 0, 0xFFFFFFFF], np.uint32)
    base = np.array([4, 4, 7, 6, 0, 0, 31], np.uint32)
    offset = np.array([0, 2, -2, 0, 2, 1, -32], np.int32)
    found = run("fns.b32 %d, %a, %b, %c;", np.uint32, a=masks, b=base, c=offset)
    assert found.tolist() == [4, 5, 5, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0]


@pytest.mark.parametrize("left", ["u32", "s32"])
@pytest.mark.parametrize("right", ["u32", "s32"])
def test_dot_products_of_bytes(left, right):
    a, b = pairs(TYPES["u32"])
    c = a[::-1].copy()
    part = lambda x, at, bits, kind: signed(x >> at, bits) if kind == "s32" else x >> at & (1 << bits) - 1  # noqa: E731
    check(
        f"dp4a.{left}.{right} %d, %a, %b, %c;", TYPES["u32"],
        lambda x, y, z: z + sum(part(x, 8 * i, 8, left) * part(y, 8 * i, 8, right) for i in range(4)), a, b, c,
    )  # fmt: skip
    for half, first in (("lo", 0), ("hi", 2)):
        check(
            f"dp2a.{half}.{left}.{right} %d, %a, %b, %c;", TYPES["u32"],
            lambda x, y, z, at=first: (
                z + sum(part(x, 16 * i, 16, left) * part(y, 8 * (at + i), 8, right) for i in range(2))
            ), a, b, c,
        )  # fmt: skip


# -- carry -------------------------------------------------------------------------------------------------------


def test_a_128_bit_sum_difference_and_product_from_32_bit_words():
    random = np.random.default_rng(5)
    xs = [int.from_bytes(random.bytes(16), "little") for _ in range(30)] + [2**128 - 1, 0, 2**96 - 1]
    ys = [int.from_bytes(random.bytes(16), "little") for _ in range(30)] + [1, 1, 1]
    words = lambda values, at: np.array([value >> 32 * at & 0xFFFFFFFF for value in values], np.uint32)  # noqa: E731
    operands = {f"x{i}": words(xs, i) for i in range(4)} | {f"y{i}": words(ys, i) for i in range(4)}
    for base, function in (("add", lambda x, y: x + y), ("sub", lambda x, y: x - y)):
        lines = [f"{base}.cc.u32 %d0, %x0, %y0;", f"{base}c.cc.u32 %d1, %x1, %y1;"]
        lines += [f"{base}c.cc.u32 %d2, %x2, %y2;", f"{base}c.u32 %d3, %x3, %y3;"]
        found = run("\n".join(lines), {f"d{i}": np.uint32 for i in range(4)}, **operands)
        total = [sum(int(found[f"d{i}"][lane]) << 32 * i for i in range(4)) for lane in range(len(xs))]
        assert total == [function(x, y) % 2**128 for x, y in zip(xs, ys, strict=True)]
    product = """mul.lo.u32 %d0, %x0, %y0;   mul.hi.u32 %d1, %x0, %y0;
        mad.lo.cc.u32 %d1, %x0, %y1, %d1; madc.hi.u32 %d2, %x0, %y1, 0;
        mad.lo.cc.u32 %d1, %x1, %y0, %d1; madc.hi.cc.u32 %d2, %x1, %y0, %d2; addc.u32 %d3, 0, 0;
        mad.lo.cc.u32 %d2, %x1, %y1, %d2; madc.hi.u32 %d3, %x1, %y1, %d3;"""
    found = run(product, {f"d{i}": np.uint32 for i in range(4)}, **operands)
    low = 2**64 - 1
    total = [sum(int(found[f"d{i}"][lane]) << 32 * i for i in range(4)) for lane in range(len(xs))]
    assert total == [(x & low) * (y & low) for x, y in zip(xs, ys, strict=True)]


def test_64_bit_words_carry_too():
    a, b = pairs(TYPES["u64"])
    found = run("add.cc.u64 %d, %a, %b;\naddc.u64 %e, 0, 0;", {"d": np.uint64, "e": np.uint64}, a=a, b=b)
    assert found["e"].tolist() == [(int(x) + int(y)) >> 64 for x, y in zip(a, b, strict=True)]


def test_the_flag_is_set_where_a_subtraction_does_not_borrow():
    a, b = pairs(TYPES["u32"])
    found = run("sub.cc.u32 %d, %a, %b;\naddc.u32 %e, 0, 0;", {"d": np.uint32, "e": np.uint32}, a=a, b=b)
    assert found["e"].tolist() == [int(x >= y) for x, y in zip(a, b, strict=True)]


def test_lanes_that_do_not_execute_keep_their_registers():
    a = np.arange(32, dtype=np.uint32)
    found = run(
        "mov.u32 %d, 7;\nsetp.lt.u32 %p, %a, 10;\n@%p add.u32 %d, %a, 100;", np.uint32, declare=".reg .pred %p;", a=a
    )
    assert found.tolist() == [x + 100 if x < 10 else 7 for x in range(32)]
