"""atom and red in the emulator, through PTX text."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.emulator.ptx_text import emulate
from tests.errors import refused
from warploom.emulator.ops.atomics import rounds

WIDE = 0xFFFFFFFF
TYPES = {"u32": np.uint32, "s32": np.int32, "u64": np.uint64, "s64": np.int64, "b32": np.uint32, "b64": np.uint64}


def scalar_result(operation: str, old: int, b: int, bits: int) -> int:
    """One operation of PTX ISA 9.7.13.5 on Python integers."""
    result = {
        "add": lambda: old + b, "and": lambda: old & b, "or": lambda: old | b, "xor": lambda: old ^ b,
        "min": lambda: min(old, b), "max": lambda: max(old, b), "exch": lambda: b,
        "inc": lambda: 0 if old >= b else old + 1,
        "dec": lambda: b if old == 0 or old > b else old - 1,
    }[operation]()  # fmt: skip
    return result


def wrapped(value: int, dtype: np.dtype) -> int:
    return int(np.array(value & (1 << dtype.itemsize * 8) - 1, f"u{dtype.itemsize}").view(dtype))


CASES = [
    ("add", "u32"), ("add", "s32"), ("add", "u64"), ("min", "u32"), ("min", "s32"), ("max", "u64"), ("max", "s64"),
    ("inc", "u32"), ("dec", "u32"), ("and", "b32"), ("or", "b64"), ("xor", "b32"), ("exch", "b32"), ("exch", "b64"),
]  # fmt: skip


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("operation, name", CASES)
def test_lanes_that_meet_act_one_after_another(operation, name, space):
    dtype = np.dtype(TYPES[name])
    size, generator = dtype.itemsize, np.random.default_rng(7)
    memory = generator.integers(0, 100, 4).astype(dtype)
    values = generator.integers(0, 100, 32).astype(dtype)
    if dtype.kind == "i":
        values -= 50
    places = generator.integers(0, 4, 32, dtype=np.uint32)
    old = np.zeros(32, dtype)
    b, d = ("%rd20", "%rd21") if size == 8 else ("%r20", "%r21")
    start = memory.copy()
    shared = f"""
        .shared .align 8 .b8 box[32];
        mov.u32 %r10, box;
        setp.ge.u32 %p1, %r0, 4;
        mad.lo.u32 %r11, %r0, {size}, %r10;
        mul.wide.u32 %rd30, %r0, {size};
        add.s64 %rd30, %rd0, %rd30;
        @!%p1 ld.global.b{size * 8} {d}, [%rd30];
        @!%p1 st.shared.b{size * 8} [%r11], {d};
        mad.lo.u32 %r12, %r5, {size}, %r10;
        atom.shared.{operation}.{name} {d}, [%r12], {b};
        @!%p1 ld.shared.b{size * 8} {b}, [%r11];
        @!%p1 st.global.b{size * 8} [%rd30], {b};
    """
    body = f"""
        mul.wide.u32 %rd10, %r0, 4;
        add.s64 %rd11, %rd2, %rd10;
        ld.global.u32 %r5, [%rd11];
        mul.wide.u32 %rd12, %r0, {size};
        add.s64 %rd13, %rd1, %rd12;
        ld.global.b{size * 8} {b}, [%rd13];
        mul.wide.u32 %rd14, %r5, {size};
        add.s64 %rd14, %rd0, %rd14;
        {shared if space == "shared" else f"atom.global.{operation}.{name} {d}, [%rd14], {b};"}
        add.s64 %rd15, %rd3, %rd12;
        st.global.b{size * 8} [%rd15], {d};
    """
    emulate(body, memory, values, places, old)
    expected = start.copy()
    for lane in range(32):
        place = places[lane]
        assert old[lane] == expected[place], f"lane {lane}"
        expected[place] = wrapped(scalar_result(operation, int(expected[place]), int(values[lane]), size * 8), dtype)
    np.testing.assert_array_equal(memory, expected)


@pytest.mark.parametrize(
    "opcode",
    [
        "red.global.add.u32", "red.add.u32", "red.release.gpu.global.add.u32", "red.global.gpu.relaxed.add.u32",
        "red.relaxed.sys.global.add.u32", "red.add.release.gpu.u32", "red.add.relaxed.gpu.global.u32",
    ],
)  # fmt: skip
def test_the_spellings_of_a_reduction_all_reduce(opcode):
    counter = np.zeros(1, np.uint32)
    emulate(f"{opcode} [%rd0], %r0;", counter, threads=96)
    assert counter[0] == sum(range(96))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=64))
def test_rounds_keep_the_order_of_equal_addresses(index):
    turns = rounds(np.array(index))
    if turns is None:
        assert len(set(index)) == len(index)
        return
    flat = [int(at) for turn in turns for at in turn]
    assert sorted(flat) == list(range(len(index)))
    for turn in turns:
        assert len({index[at] for at in turn}) == len(turn)
    for value in set(index):
        mine = [at for at in flat if index[at] == value]
        assert mine == sorted(mine)


# -- compare and swap --------------------------------------------------------------------------------------------


def test_one_lane_wins_a_compare_and_swap():
    word, old = np.array([5], np.uint32), np.zeros(32, np.uint32)
    body = """
        mul.wide.u32 %rd10, %r0, 4;
        add.s64 %rd11, %rd1, %rd10;
        add.u32 %r1, %r0, 100;
        atom.global.cas.b32 %r2, [%rd0], 5, %r1;
        st.global.u32 [%rd11], %r2;
    """
    emulate(body, word, old)
    assert word[0] == 100 and old[0] == 5 and (old[1:] == 100).all()


@pytest.mark.parametrize("name, dtype", [("b16", np.uint16), ("b64", np.uint64)])
def test_compare_and_swap_has_other_widths(name, dtype):
    words = np.arange(4, dtype=dtype)
    bits = name[1:]
    a, b, c = ("%h1", "%h2", "%h3") if name == "b16" else ("%rd21", "%rd22", "%rd23")
    body = f"""
        setp.ne.u32 %p1, %r0, 0;
        @%p1 exit;
        mov.b{bits} {b}, 2;
        mov.b{bits} {c}, 77;
        atom.global.cas.{name} {a}, [%rd0+{2 * words.itemsize}], {b}, {c};
        st.global.{name} [%rd0], {a};
    """
    emulate(body, words)
    assert words.tolist() == [2, 1, 77, 3]


def test_128_bits_are_compared_and_exchanged_whole():
    words = np.array([1, 2, 3, 4, 5, 6], np.uint64)
    body = """
        setp.ne.u32 %p1, %r0, 0;
        @%p1 exit;
        ld.global.b128 %q1, [%rd0+16];
        ld.global.b128 %q2, [%rd0+32];
        atom.global.cas.b128 %q3, [%rd0], %q1, %q2;
        atom.global.exch.b128 %q4, [%rd0+16], %q2;
        atom.global.cas.b128 %q5, [%rd0+32], %q2, %q4;
    """
    emulate(body, words)
    assert words.tolist() == [1, 2, 5, 6, 3, 4]


# -- floating point ----------------------------------------------------------------------------------------------


def float_word(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


@pytest.mark.parametrize("space, kept", [("global", False), ("shared", True)])
def test_a_subnormal_sum_is_flushed_in_global_memory_only(space, kept):
    tiny = np.array([1e-40], np.float32)
    body = """
        .shared .align 4 .b32 box;
        setp.ne.u32 %p1, %r0, 0;
        @%p1 exit;
        ld.global.f32 %f1, [%rd0];
    """
    if space == "shared":
        body += "st.shared.f32 [box], %f1; atom.shared.add.f32 %f2, [box], %f1; ld.shared.f32 %f3, [box];"
        body += "st.global.f32 [%rd0], %f3;"
    else:
        body += "atom.global.add.f32 %f2, [%rd0], %f1;"
    emulate(body, tiny)
    assert tiny[0] == (np.float32(1e-40) * 2 if kept else 0)


def test_a_sum_of_floats_rounds_after_every_lane():
    total = np.array([2.0**24], np.float32)
    emulate("mov.f32 %f1, 0f3f800000; red.global.add.f32 [%rd0], %f1;", total)
    assert total[0] == 2.0**24  # every single +1 is rounded away


def test_doubles_add_up():
    total = np.zeros(1)
    emulate("cvt.rn.f64.u32 %fd1, %r0; atom.global.add.f64 %fd2, [%rd0], %fd1;", total)
    assert total[0] == sum(range(32))


def test_a_sum_that_is_not_a_number_is_the_canonical_nan():
    word = np.array([np.inf], np.float32)
    emulate("mov.f32 %f1, 0fFF800000; setp.eq.u32 %p1, %r0, 0; @%p1 red.global.add.f32 [%rd0], %f1;", word)
    assert word.view(np.uint32)[0] == 0x7FFFFFFF


@pytest.mark.parametrize("name, dtype", [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_halves_add_with_their_subnormals(name, dtype):
    smallest = np.array([1], np.uint16).view(dtype)
    words = np.array([smallest[0], dtype(1.5)], dtype)
    body = f"""
        setp.ne.u32 %p1, %r0, 0;
        @%p1 exit;
        ld.global.b16 %h1, [%rd0];
        red.global.add.noftz.{name} [%rd0], %h1;
        ld.global.b16 %h2, [%rd0+2];
        atom.global.add.noftz.{name} %h3, [%rd0+2], %h2;
    """
    emulate(body, words)
    assert words.view(np.uint16)[0] == 2 and words[1] == 3.0


@pytest.mark.parametrize("name, dtype", [("f16x2", np.float16), ("bf16x2", ml_dtypes.bfloat16)])
def test_packed_halves_add_each_by_itself(name, dtype):
    words = np.array([1.0, 100.0], dtype)
    body = f"""
        ld.global.b32 %r1, [%rd1];
        red.global.add.noftz.{name} [%rd0], %r1;
    """
    emulate(body, words, np.array([1.0, -2.0], dtype))
    assert words.astype(np.float64).tolist() == [33.0, 36.0]


@pytest.mark.parametrize(
    "opcode, dtype, names, combine",
    [
        ("add.v4.f32", np.float32, "%f1, %f2, %f3, %f4", np.add),
        ("v2.f32.add", np.float32, "%f1, %f2", np.add),
        ("add.noftz.v4.f16x2", np.float16, "%r1, %r2, %r3, %r4", np.add),
        ("max.noftz.v2.bf16x2", ml_dtypes.bfloat16, "%r1, %r2", np.maximum),
        ("min.noftz.v8.f16", np.float16, "%h1, %h2, %h3, %h4, %h5, %h6, %h7, %h8", np.minimum),
    ],
)  # fmt: skip
def test_vectors_act_on_each_element(opcode, dtype, names, combine):
    registers = names.split(", ")
    width = {"f": 4, "r": 4, "h": 2}[registers[0][1]]
    count = len(registers) * width // np.dtype(dtype).itemsize
    generator = np.random.default_rng(5)
    memory, values = (generator.integers(-8, 8, 32 * count).astype(dtype) for _ in range(2))
    before, old = memory.copy(), np.zeros(32 * count, dtype)
    loads = "".join(
        f"ld.global.b{8 * width} {register}, [%rd12+{number * width}];" for number, register in enumerate(registers)
    )
    stores = "".join(
        f"st.global.b{8 * width} [%rd13+{number * width}], {register};" for number, register in enumerate(registers)
    )
    body = f"""
        mul.wide.u32 %rd10, %r0, {len(registers) * width};
        add.s64 %rd11, %rd0, %rd10;
        add.s64 %rd12, %rd1, %rd10;
        add.s64 %rd13, %rd2, %rd10;
        {loads}
        atom.global.{opcode} {{{names}}}, [%rd11], {{{names}}};
        {stores}
    """
    emulate(body, memory, values, old)
    np.testing.assert_array_equal(old, before)
    np.testing.assert_array_equal(memory, combine(before, values))


# -- what goes wrong, and what must not hang ---------------------------------------------------------------------


def test_an_atomic_checks_its_address():
    with refused("out-of-bounds"):
        emulate("atom.global.add.u32 %r1, [%rd0+4], 1;", np.zeros(1, np.uint32))
    with refused("misaligned", got="4 bytes past one"):
        emulate("red.global.add.u64 [%rd0+4], 1;", np.zeros(4, np.uint32))


@pytest.mark.parametrize("schedule", ["lazy", "random"])
def test_the_last_cta_to_arrive_reduces_for_all(schedule):
    parts, counter, total = np.zeros(8, np.uint32), np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    body = """
        setp.ne.u32 %p1, %r0, 0;
        @%p1 exit;
        mov.u32 %r1, %ctaid.x;
        mul.wide.u32 %rd10, %r1, 4;
        add.s64 %rd11, %rd0, %rd10;
        mad.lo.u32 %r2, %r1, %r1, 1;
        st.global.u32 [%rd11], %r2;
        atom.acq_rel.gpu.global.inc.u32 %r3, [%rd1], 7;
        setp.ne.u32 %p2, %r3, 7;
        @%p2 exit;
        mov.u32 %r4, 0;
        mov.u32 %r5, 0;
    SUM:
        ld.relaxed.gpu.global.u32 %r6, [%rd0];
        add.u32 %r4, %r4, %r6;
        add.s64 %rd0, %rd0, 4;
        add.u32 %r5, %r5, 1;
        setp.lt.u32 %p3, %r5, 8;
        @%p3 bra SUM;
        st.global.u32 [%rd2], %r4;
    """
    emulate(body, parts, counter, total, grid=8, schedule=schedule, seed=3)
    assert total[0] == sum(i * i + 1 for i in range(8)) and counter[0] == 0


def test_a_lock_lets_every_lane_through_once():
    words = np.zeros(2, np.uint32)  # lock, counter
    body = """
        mov.u32 %r5, 0;
    AGAIN:
        atom.acquire.gpu.global.cas.b32 %r1, [%rd0], 0, 1;
        setp.ne.u32 %p1, %r1, 0;
        @%p1 bra NEXT;
        ld.volatile.global.u32 %r2, [%rd0+4];
        add.u32 %r2, %r2, 1;
        st.volatile.global.u32 [%rd0+4], %r2;
        atom.release.gpu.global.exch.b32 %r3, [%rd0], 0;
        mov.u32 %r5, 1;
    NEXT:
        setp.eq.u32 %p2, %r5, 0;
        @%p2 bra AGAIN;
    """
    emulate(body, words, threads=64)
    assert words.tolist() == [0, 64]


def test_a_lock_nobody_frees_is_a_deadlock():
    body = """
    AGAIN:
        atom.global.exch.b32 %r1, [%rd0], 1;
        setp.ne.u32 %p1, %r1, 0;
        nanosleep.u32 20;
        @%p1 bra AGAIN;
    """
    with refused("deadlock"):
        emulate(body, np.ones(1, np.uint32), max_steps=5_000_000)
