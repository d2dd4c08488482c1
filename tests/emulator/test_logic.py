"""Logic, shifts, moves and byte permutation against Python's integers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.one_instruction import run

RANDOM = np.random.default_rng(3)
WORDS = RANDOM.integers(0, 2**32, 64, dtype=np.uint64).astype(np.uint32)
OTHER = np.roll(WORDS, 7)
THIRD = np.roll(WORDS, 19)


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_bitwise_operations(bits):
    dtype = np.dtype(f"u{bits // 8}")
    a, b = (RANDOM.integers(0, 2**63, 40, dtype=np.uint64).astype(dtype) for _ in range(2))
    a[:2] = 0, np.iinfo(dtype).max
    for name, expected in (("and", a & b), ("or", a | b), ("xor", a ^ b)):
        assert (run(f"{name}.b{bits} %d, %a, %b;", dtype, a=a, b=b) == expected).all()
    assert (run(f"not.b{bits} %d, %a;", dtype, a=a) == ~a).all()
    assert (run(f"cnot.b{bits} %d, %a;", dtype, a=a) == (a == 0)).all()


def test_predicates_may_be_negated_where_they_are_read():
    p, q = np.array([0, 0, 1, 1], np.bool_), np.array([0, 1, 0, 1], np.bool_)
    assert run("and.pred %d, !%p, %q;", np.bool_, p=p, q=q).tolist() == (~p & q).tolist()
    assert run("xor.pred %d, %p, %q;", np.bool_, p=p, q=q).tolist() == (p ^ q).tolist()
    assert run("not.pred %d, %p;", np.bool_, p=p).tolist() == (~p).tolist()
    assert run("not.pred %d, !%p;", np.bool_, p=p).tolist() == p.tolist()
    assert run("mov.pred %d, !%p;", np.bool_, p=p).tolist() == (~p).tolist()


def test_lop3_is_its_truth_table_for_all_256_tables():
    a, b, c = (np.uint32(word) for word in (0xF0, 0xCC, 0xAA))
    for table in range(256):
        # The manual's rule: the table is the function applied to these three constants.
        found = run(f"lop3.b32 %d, %a, %b, %c, {table};", np.uint32, a=[a], b=[b], c=[c])
        assert int(found[0]) & 0xFF == table


def test_lop3_combines_the_result_with_a_predicate():
    q = np.arange(64) % 2 == 0
    a = np.where(np.arange(64) % 3 == 0, 0, WORDS).astype(np.uint32)
    found = run("lop3.or.b32 %d|%p, %a, %b, %c, 0x80, %q;", {"d": np.uint32, "p": np.bool_}, a=a, b=OTHER, c=THIRD, q=q)
    assert (found["d"] == (a & OTHER & THIRD)).all()
    assert (found["p"] == ((a & OTHER & THIRD) != 0) | q).all()
    alone = run("lop3.and.b32 _|%p, %a, %b, %c, 0x80, !%q;", {"p": np.bool_}, a=a, b=OTHER, c=THIRD, q=q)
    assert (alone["p"] == ((a & OTHER & THIRD) != 0) & ~q).all()


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_shifts_clamp_at_the_width(bits):
    dtype, signed = np.dtype(f"u{bits // 8}"), np.dtype(f"i{bits // 8}")
    amounts = np.array([0, 1, bits - 1, bits, bits + 1, 255, 2**31, 2**32 - 1], np.uint32)
    for value in (1, (1 << bits) - 1, 1 << bits - 1, 0xA5A5A5A5A5A5A5A5 & (1 << bits) - 1):
        a = np.full(amounts.size, value, dtype)
        left = [value << min(int(n), bits) & (1 << bits) - 1 for n in amounts]
        right = [value >> min(int(n), bits) for n in amounts]
        minus = value - (value >> bits - 1 << bits)
        arithmetic = [minus >> min(int(n), bits) for n in amounts]
        assert run(f"shl.b{bits} %d, %a, %b;", dtype, a=a, b=amounts).tolist() == left
        assert run(f"shr.u{bits} %d, %a, %b;", dtype, a=a, b=amounts).tolist() == right
        assert run(f"shr.b{bits} %d, %a, %b;", dtype, a=a, b=amounts).tolist() == right
        assert run(f"shr.s{bits} %d, %a, %b;", signed, a=a, b=amounts).tolist() == arithmetic


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
def test_funnel_shifts_join_two_words(mode):
    amounts = np.arange(64, dtype=np.uint32)
    amount = [min(n, 32) if mode == "clamp" else n % 32 for n in range(64)]
    both = [int(high) << 32 | int(low) for low, high in zip(WORDS, OTHER, strict=True)]
    left = run(f"shf.l.{mode}.b32 %d, %a, %b, %c;", np.uint32, a=WORDS, b=OTHER, c=amounts)
    right = run(f"shf.r.{mode}.b32 %d, %a, %b, %c;", np.uint32, a=WORDS, b=OTHER, c=amounts)
    assert left.tolist() == [x << n >> 32 & 0xFFFFFFFF for x, n in zip(both, amount, strict=True)]
    assert right.tolist() == [x >> n & 0xFFFFFFFF for x, n in zip(both, amount, strict=True)]


# -- prmt --------------------------------------------------------------------------------------------------------


def permuted(a: int, b: int, control: int) -> int:
    octets = [(b << 32 | a) >> 8 * i & 255 for i in range(8)]
    result = 0
    for at in range(4):
        select = control >> 4 * at & 15
        byte = octets[select & 7]
        result |= (255 if byte & 128 else 0) << 8 * at if select & 8 else byte << 8 * at
    return result


def test_prmt_picks_bytes_and_copies_signs():
    control = (WORDS ^ OTHER) & np.uint32(0xFFFF)
    found = run("prmt.b32 %d, %a, %b, %c;", np.uint32, a=WORDS, b=OTHER, c=control)
    assert found.tolist() == [permuted(*map(int, x)) for x in zip(WORDS, OTHER, control, strict=True)]
    for constant in (0x3210, 0x7654, 0x5410, 0x7632, 0xBA98, 0x0123):
        found = run(f"prmt.b32 %d, %a, %b, {constant};", np.uint32, a=WORDS, b=OTHER)
        assert found.tolist() == [permuted(int(x), int(y), constant) for x, y in zip(WORDS, OTHER, strict=True)]


@pytest.mark.parametrize(
    "mode, rows",
    [
        ("f4e", (0x3210, 0x4321, 0x5432, 0x6543)),
        ("b4e", (0x5670, 0x6701, 0x7012, 0x0123)),
        ("rc8", (0x0000, 0x1111, 0x2222, 0x3333)),
        ("ecl", (0x3210, 0x3211, 0x3222, 0x3333)),
        ("ecr", (0x0000, 0x1110, 0x2210, 0x3210)),
        ("rc16", (0x1010, 0x3232, 0x1010, 0x3232)),
    ],
)
def test_prmt_modes_follow_the_manuals_table(mode, rows):
    found = run(f"prmt.b32.{mode} %d, %a, %b, %c;", np.uint32, a=WORDS, b=OTHER, c=np.arange(64, dtype=np.uint32))
    expected = [permuted(int(x), int(y), rows[i % 4]) for i, (x, y) in enumerate(zip(WORDS, OTHER, strict=True))]
    assert found.tolist() == expected


# -- mov ---------------------------------------------------------------------------------------------------------


def test_packing_puts_the_first_element_lowest():
    low, high = WORDS.astype(np.uint16), OTHER.astype(np.uint16)
    assert (run("mov.b32 %d, {%a, %b};", np.uint32, a=low, b=high) == (high.astype(np.uint32) << 16 | low)).all()
    wide = OTHER.astype(np.uint64) << np.uint64(32) | WORDS
    assert (run("mov.b64 %d, {%a, %b};", np.uint64, a=WORDS, b=OTHER) == wide).all()
    parts = run("mov.b64 {%d, %e}, %a;", {"d": np.uint32, "e": np.uint32}, a=wide)
    assert (parts["d"] == WORDS).all() and (parts["e"] == OTHER).all()
    assert (run("mov.b64 {_, %d}, %a;", np.uint32, a=wide) == OTHER).all()
    quarters = run("mov.b64 {%w, %x, %y, %z}, %a;", {name: np.uint16 for name in "wxyz"}, a=wide)
    assert [int(quarters[name][5]) for name in "wxyz"] == [int(wide[5]) >> 16 * i & 0xFFFF for i in range(4)]


def test_128_bits_survive_packing_and_unpacking():
    a = RANDOM.integers(0, 2**63, 32, dtype=np.uint64)
    b = a[::-1].copy()
    text = "mov.b128 %q, {%a, %b};\nmov.b128 %r, %q;\nmov.b128 {%d, %e}, %r;"
    found = run(text, {"d": np.uint64, "e": np.uint64}, declare=".reg .b128 %q, %r;", a=a, b=b)
    assert (found["d"] == a).all() and (found["e"] == b).all()


def test_moving_a_nan_keeps_its_bits():
    a = np.array([0x7F800001, 0xFFC12345, 0x7FFFFFFF], np.uint32)
    assert (run("mov.f32 %d, %a;", np.uint32, a=a) == a).all()
    assert (run("selp.f32 %d, %a, 0f00000000, %p;", np.uint32, a=a, p=np.ones(3, np.bool_)) == a).all()


def test_a_constant_is_taken_at_the_width_of_its_type():
    assert run("mov.b32 %d, 0f3f800000;", np.float32, a=[0]).tolist() == [1.0]
    assert run("mov.u32 %d, -1;", np.uint32, a=[0]).tolist() == [0xFFFFFFFF]
    assert run("mov.f64 %d, 0d3ff0000000000000;", np.float64, a=[0]).tolist() == [1.0]


def test_parts_of_8_bits_are_put_together_lowest_first_and_taken_apart():
    declare = ".reg .b8 %p, %q, %r, %s;"
    turned = run("mov.b32 {%p, %q, %r, %s}, %a;\nmov.b32 %d, {%s, %r, %q, %p};", np.uint32, a=WORDS, declare=declare)
    assert (turned == WORDS.byteswap()).all()
    halves = run("mov.b32 {%p, _, _, %s}, %a;\nmov.b16 %d, {%s, 511};", np.uint16, a=WORDS, declare=declare)
    assert (halves == (WORDS >> 24 | 0xFF00)).all()


def test_a_vector_of_one_is_its_element():
    assert (run("mov.b32 {%d}, %a;", np.uint32, a=WORDS) == WORDS).all()
    assert (run("mov.b32 %d, {%a};", np.uint32, a=WORDS) == WORDS).all()
