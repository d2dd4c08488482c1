"""Registers and predicates: emitted operators, mixed widths, refusals."""

from __future__ import annotations

import pytest

from tests.errors import refused
from tests.lang.tools import emitted, line_of, make
from warploom.errors import TraceError
from warploom.lang import ptx, reg
from warploom.types import b16, b32, bf16, f16x2, f32, f64, pred, s32, s64, u8, u32, u64


def test_an_operator_is_one_instruction_on_a_fresh_register():
    def body():
        a, b = reg.scalar(u32, init=1), reg.scalar(u32, init=2)
        (a + b) * 3

    assert emitted(body)[-2:] == ["add.u32 %r3, %r1, %r2;", "mul.lo.u32 %r4, %r3, 3;"]


@pytest.mark.parametrize(
    "operation, text",
    [
        (lambda x: x - 1, "sub.u32 %r2, %r1, 1;"),
        (lambda x: x & 31, "and.b32 %r2, %r1, 31;"),
        (lambda x: x | 8, "or.b32 %r2, %r1, 8;"),
        (lambda x: x ^ 1, "xor.b32 %r2, %r1, 1;"),
        (lambda x: x << 4, "shl.b32 %r2, %r1, 4;"),
        (lambda x: x >> 5, "shr.u32 %r2, %r1, 5;"),
        (lambda x: x // 3, "div.u32 %r2, %r1, 3;"),
        (lambda x: x % 3, "rem.u32 %r2, %r1, 3;"),
        (lambda x: x // 32, "shr.u32 %r2, %r1, 5;"),
        (lambda x: x % 32, "and.b32 %r2, %r1, 31;"),
        (lambda x: x % 1, "and.b32 %r2, %r1, 0;"),
        (lambda x: 64 // x, "div.u32 %r3, %r2, %r1;"),
        (lambda x: ~x, "not.b32 %r2, %r1;"),
        (lambda x: 7 - x, "sub.u32 %r2, 7, %r1;"),
        (lambda x: x.to(u64), "cvt.u64.u32 %rd1, %r1;"),
        (lambda x: x.to(f32), "cvt.rn.f32.u32 %f1, %r1;"),
        (lambda x: x.view(f32), "mov.b32 %f1, %r1;"),
        (lambda x: x == 0, "setp.eq.u32 %p1, %r1, 0;"),
        (lambda x: x != 0, "setp.ne.u32 %p1, %r1, 0;"),
        (lambda x: x < 4, "setp.lt.u32 %p1, %r1, 4;"),
    ],
)
def test_unsigned_operators(operation, text):
    assert emitted(lambda: operation(reg.scalar(u32)))[-1:] == [text]


@pytest.mark.parametrize(
    "operation, text",
    [
        (lambda x: x * 2, "mul.rn.f32 %f2, %f1, 0f40000000;"),
        (lambda x: x + 0.5, "add.rn.f32 %f2, %f1, 0f3F000000;"),
        (lambda x: 1 / x, "div.rn.f32 %f3, %f2, %f1;"),
        (lambda x: -x, "neg.f32 %f2, %f1;"),
        (lambda x: x > 0, "setp.gt.f32 %p1, %f1, 0f00000000;"),
        (lambda x: x.to(bf16), "cvt.rn.bf16.f32 %rs1, %f1;"),
        (lambda x: x.to(s32), "cvt.rzi.s32.f32 %r1, %f1;"),
        (lambda x: x.to(f64), "cvt.f64.f32 %fd1, %f1;"),
    ],
)
def test_float_operators(operation, text):
    assert emitted(lambda: operation(reg.scalar(f32)))[-1:] == [text]


def test_python_not_equal_is_true_for_nan():
    def body():
        x = reg.scalar(f32)
        x != x  # noqa: B015, PLR0124

    assert emitted(body) == ["setp.neu.f32 %p1, %f1, %f1;"]


@pytest.mark.parametrize(
    "wide, narrow, widening",
    [
        (u64, u32, "cvt.u64.u32 %rd2, %r1;"),
        (u64, s32, "cvt.s64.s32 %rd2, %r1;"),
        (s64, u32, "cvt.u64.u32 %rd2, %r1;"),
        (u64, b32, "cvt.u64.u32 %rd2, %r1;"),
    ],
)
@pytest.mark.parametrize("swap", [False, True])
def test_the_narrower_operand_is_widened_by_its_own_signedness(wide, narrow, widening, swap):
    def body():
        a, b = reg.scalar(wide), reg.scalar(narrow)
        result = b + a if swap else a + b
        assert result.dtype is wide

    order = "%rd2, %rd1" if swap else "%rd1, %rd2"
    assert emitted(body) == [widening, f"add.{wide} %rd3, {order};"]


def test_one_width_and_different_signs_combine_bitwise_but_do_not_compare():
    def body():
        a, b = reg.scalar(u32), reg.scalar(s32)
        assert (a + b).dtype is u32
        assert (a & b).dtype is u32
        with refused("trace", got="u32 and s32"):
            a < b  # noqa: B015
        with refused("trace", got="s32 and u32"):
            b // a

    make(body).ptx()


@pytest.mark.parametrize(
    "dtype, value",
    [(u32, -1), (u32, 1 << 32), (s32, 1 << 31), (b16, 1 << 16), (u8, 256), (u64, 1 << 64)],
)
def test_a_python_int_must_fit_the_register(dtype, value):
    with refused("trace", got=str(value)):
        make(lambda: reg.scalar(dtype, init=value)).ptx()


def test_both_readings_of_bits_fit():
    assert emitted(lambda: [reg.scalar(b32, init=-1), reg.scalar(b32, init=0xFFFFFFFF)]) == [
        "mov.b32 %r1, -1;",
        "mov.b32 %r2, 4294967295;",
    ]


@pytest.mark.parametrize(
    "misuse",
    [
        lambda: reg.scalar(u32) + 1.5,
        lambda: reg.scalar(u32, init=1.0),
        lambda: reg.scalar(u32) + reg.scalar(f32),
        lambda: reg.scalar(f32) * reg.scalar(s32),
        lambda: reg.scalar(f32) & 1,
        lambda: reg.scalar(u32) / 2,
        lambda: reg.scalar(f32) + reg.scalar(f64),
        lambda: reg.scalar(s32) // 2,
        lambda: reg.scalar(u32) << 32,
        lambda: reg.scalar(u32).set(reg.scalar(u64)),
        lambda: reg.scalar(u32) == "zero",
    ],
)
def test_mixed_kinds_are_refused(misuse):
    with pytest.raises(TraceError):
        make(misuse).ptx()


def test_in_place_operators_write_the_register_they_stand_on():
    def body():
        total = reg.scalar(u32, init=0)
        first = total
        total += 5
        assert total is first
        array = reg.array(f32, 2, init=0)
        array[1] += 1.0
        array[0] = 2

    assert emitted(body) == [
        "mov.b32 %r1, 0;",
        "add.u32 %r1, %r1, 5;",
        "mov.f32 %f1, 0f00000000;",
        "mov.f32 %f2, 0f00000000;",
        "add.rn.f32 %f2, %f2, 0f3F800000;",
        "mov.f32 %f1, 0f40000000;",
    ]


def test_in_place_keeps_the_type():
    def body():
        x = reg.scalar(u32)
        x += reg.scalar(u64)

    with refused("trace", got="a result of type u64"):
        make(body).ptx()


def test_predicates_combine():
    def body():
        p, q = reg.predicate(True), reg.predicate(False)
        p & ~q
        p | q
        p ^ q

    assert emitted(body)[2:] == [
        "not.pred %p3, %p2;",
        "and.pred %p4, %p1, %p3;",
        "or.pred %p5, %p1, %p2;",
        "xor.pred %p6, %p1, %p2;",
    ]


def test_registers_can_be_keys_and_members():
    def body():
        a, b = reg.scalar(u32), reg.scalar(u32)
        assert {a: 1, b: 2}[a] == 1
        assert a in {a, b}
        assert len({a, b, a}) == 2

    assert emitted(body) == []


@pytest.mark.parametrize(
    "misuse, hint",
    [
        (lambda x: bool(x), "ptx.if_"),
        (lambda x: bool(x == 1), "ptx.if_"),
        (lambda x: x and 1, "ptx.if_"),
        (lambda x: 1 < x < 3, "& | ~"),
        (lambda x: [*x], "ptx.range"),
        (lambda x: len(x), "ptx.range"),
        (lambda x: range(x), "ptx.range"),
        (lambda x: [1, 2][x], "ptx.range"),
        (lambda x: int(x), "ptx.range"),
        (lambda x: reg.array(f32, 4)[x], "shared memory"),
    ],
)
def test_python_control_flow_on_a_register_names_the_construct_to_use(misuse, hint):
    with refused("no-value-yet") as caught:
        make(lambda: misuse(reg.scalar(u32))).ptx()
    assert hint in caught.value.hint


def test_a_python_if_is_reported_at_its_line():
    def body():
        x = reg.scalar(u32)
        if x > 3:  # the wrong if
            pass

    with pytest.raises(TraceError) as caught:
        make(body).ptx()
    assert caught.value.where.line == line_of("the wrong if", __file__)


def test_a_register_of_another_kernel_is_refused():
    leaked = []
    make(lambda: leaked.append(reg.scalar(u32))).ptx()
    with refused("outside-kernel"):
        make(lambda: reg.scalar(u32) + leaked[0]).ptx()


def test_registers_are_made_in_kernels_only():
    with refused("outside-kernel"):
        reg.scalar(u32)


def test_packed_and_narrow_types_take_their_registers(assembles):
    def body():
        x = reg.scalar(f16x2, init=1.0)
        y = reg.scalar(bf16, init=-2.5)
        z = reg.scalar(u8, init=255)
        assert z.to(u32).dtype is u32
        assert y.to(f32).dtype is f32
        x.view(u32)

    assert emitted(body)[:3] == ["mov.b32 %r1, 1006648320;", "mov.b16 %rs1, 49184;", "mov.b16 %rs2, 255;"]
    assembles(make(body))


def test_a_choice_is_one_selp():
    def body():
        x = reg.scalar(f32)
        ptx.select(x > 0, x, 0)
        ptx.select(reg.predicate(), 3, reg.scalar(u32))

    assert emitted(body)[1:] == ["selp.f32 %f2, %f1, 0f00000000, %p1;", "selp.b32 %r2, 3, %r1, %p2;"]


def test_every_operator_on_every_type_assembles(assembles):
    def body():
        for dtype in (u32, s32, u64, s64, f32, f64):
            x, y = reg.scalar(dtype, init=3), reg.scalar(dtype, init=5)
            for value in (x + y, x - y, x * y, 7 - x, 2 * x, x.copy()):
                for p in (value == x, value != x, value < x, value <= x, value > x, value >= x):
                    p & p
            if dtype.is_integer:
                x & y, x | y, x ^ y, ~x, x << 3, x >> 3
                x << reg.scalar(u32, init=1)
            else:
                x / y, 1 / x, -x
            for other in (u32, s64, f32, f64):
                x.to(other)

    assembles(make(body))


def test_the_type_of_a_predicate_is_pred():
    with refused("trace", got="Register(%r1: u32)"):
        make(lambda: reg.predicate() & reg.scalar(u32)).ptx()
    assert pred.name == "pred"
