"""Branches and loops: nesting, chains, and errors that name the line to change."""

from __future__ import annotations

import pytest

from tests.errors import refused
from tests.lang.tools import emitted, line_of, make
from warploom.lang import ptx, reg
from warploom.types import s32, u32, u64


def test_if_is_a_branch_around_its_block():
    def body():
        x = reg.scalar(u32)
        with ptx.if_(x == 0):
            x += 1

    assert emitted(body) == ["setp.eq.u32 %p1, %r1, 0;", "@!%p1 bra $if1_skip;", "add.u32 %r1, %r1, 1;", "$if1_skip:"]


def test_if_else():
    def body():
        x = reg.scalar(u32)
        with ptx.if_(x == 0):
            x += 1
        with ptx.else_():
            x += 2

    assert emitted(body)[1:] == [
        "@!%p1 bra $if1_skip;",
        "add.u32 %r1, %r1, 1;",
        "bra $if1_end;",
        "$if1_skip:",
        "add.u32 %r1, %r1, 2;",
        "$if1_end:",
    ]


def test_else_belongs_to_the_if_that_ends_right_before_it(assembles):
    def body():
        x = reg.scalar(u32)
        with ptx.if_(x == 0):
            with ptx.if_(x == 1):
                x += 1
        with ptx.else_():
            x += 2

    text = emitted(body)
    assert text[text.index("add.u32 %r1, %r1, 1;") :] == [
        "add.u32 %r1, %r1, 1;",
        "$if2_skip:",
        "bra $if1_end;",
        "$if1_skip:",
        "add.u32 %r1, %r1, 2;",
        "$if1_end:",
    ]
    assembles(make(body))


def test_a_chain_tests_each_condition_behind_the_one_before(assembles):
    def body():
        x = reg.scalar(u32)
        with ptx.if_(x == 0):
            x += 1
        with ptx.elif_(lambda: x == 5):
            x += 2
        with ptx.elif_(lambda: x == 6):
            x += 3
        with ptx.else_():
            x += 4

    assert emitted(body) == [
        "setp.eq.u32 %p1, %r1, 0;",
        "@!%p1 bra $if1_skip;",
        "add.u32 %r1, %r1, 1;",
        "bra $if1_end;",
        "$if1_skip:",
        "setp.eq.u32 %p2, %r1, 5;",
        "@!%p2 bra $if1_skip2;",
        "add.u32 %r1, %r1, 2;",
        "bra $if1_end;",
        "$if1_skip2:",
        "setp.eq.u32 %p3, %r1, 6;",
        "@!%p3 bra $if1_skip3;",
        "add.u32 %r1, %r1, 3;",
        "bra $if1_end;",
        "$if1_skip3:",
        "add.u32 %r1, %r1, 4;",
        "$if1_end:",
    ]
    assembles(make(body))


def test_nested_chains_keep_their_labels_apart(assembles):
    def body():
        x = reg.scalar(u32)
        for outer in ptx.range(4):
            with ptx.if_(outer == 1):
                for inner in ptx.range(outer, 10, 2):
                    with ptx.if_(inner > x):
                        ptx.break_()
                    with ptx.elif_(lambda inner=inner: inner == 3):
                        ptx.continue_()
                    with ptx.else_():
                        x += inner
            with ptx.else_():
                with ptx.while_(lambda x=x: x < 100):
                    x += 7
                    ptx.break_(x == 50)

    text = emitted(body)
    labels = [line for line in text if line.endswith(":")]
    assert len(labels) == len(set(labels))
    targets = {line.split("bra ")[1].rstrip(";") for line in text if "bra " in line}
    assert targets <= {label.rstrip(":") for label in labels}
    assembles(make(body))


def test_else_with_something_between_is_refused():
    def body():
        x = reg.scalar(u32)
        with ptx.if_(x == 0):
            pass
        x + 1
        with ptx.else_():  # late else
            pass

    with refused("else-without-if") as caught:
        make(body).ptx()
    assert caught.value.where.line == line_of("late else", __file__)


@pytest.mark.parametrize("second", [ptx.else_, lambda: ptx.elif_(lambda: reg.predicate())])
def test_else_without_if_and_else_after_else_are_refused(second):
    def alone():
        with second():
            pass

    def twice():
        with ptx.if_(reg.predicate()):
            pass
        with ptx.else_():
            pass
        with second():
            pass

    for body in (alone, twice):
        with refused("else-without-if"):
            make(body).ptx()


def test_a_loop_yields_its_index_once():
    rounds = []

    def body():
        for i in ptx.range(reg.scalar(u32)):
            rounds.append(i)
            i + 1

    assert emitted(body) == [
        "mov.b32 %r2, %r1;",
        "mov.b32 %r3, 0;",
        "$for1:",
        "setp.ge.u32 %p1, %r3, %r2;",
        "@%p1 bra $for1_end;",
        "add.u32 %r4, %r3, 1;",
        "$for1_next:",
        "add.u32 %r3, %r3, 1;",
        "bra $for1;",
        "$for1_end:",
    ]
    rounds.clear()
    make(body).ptx()
    assert len(rounds) == 1


def test_a_loop_counts_down_in_a_signed_type():
    def body():
        for i in ptx.range(10, -1, -1):
            assert i.dtype is s32

    text = emitted(body)
    assert "setp.le.s32 %p1, %r1, -1;" in text
    assert "add.s32 %r1, %r1, -1;" in text


def test_a_loop_takes_the_type_of_its_bound():
    def body():
        for i in ptx.range(reg.scalar(u64)):
            assert i.dtype is u64

    make(body).ptx()


def test_nounroll_stands_in_front_of_the_loop(assembles):
    def body():
        for _ in ptx.range(100, unroll=False):
            pass

    assert '.pragma "nounroll";' in emitted(body)
    assembles(make(body))


@pytest.mark.parametrize(
    "loop, complaint",
    [
        (lambda: ptx.range(0, 4, 0), "0"),
        (lambda: ptx.range(0, 4.0), "4.0"),
        (lambda: ptx.range(reg.scalar(u32), 0, -1), "step -1, type u32"),
    ],
)
def test_loops_that_cannot_be_are_refused(loop, complaint):
    def body():
        for _ in loop():
            pass

    with refused("loop-bounds", got=complaint):
        make(body).ptx()


def test_break_out_of_a_traced_loop_is_refused_at_its_line():
    def body():
        for i in ptx.range(8):
            with ptx.if_(i == 3):
                break  # Python's break

    with refused("python-jump") as caught:
        make(body).ptx()
    assert caught.value.where.line == line_of("Python's break", __file__)
    assert "ptx.break_()" in str(caught.value)


def test_continue_in_a_traced_loop_is_refused_at_its_line():
    def body():
        for i in ptx.range(8):
            with ptx.if_(i == 3):
                continue  # Python's continue
            i + 1

    with refused("python-jump") as caught:
        make(body).ptx()
    assert caught.value.where.line == line_of("Python's continue", __file__)


def test_return_in_a_traced_while_is_refused():
    def body():
        x = reg.scalar(u32)
        with ptx.while_(lambda: x < 3):
            return

    with refused("python-jump"):
        make(body).ptx()


def test_return_in_a_branch_is_refused_before_it_drops_the_rest():
    def body():
        x = reg.scalar(u32)
        with ptx.if_(x > 3):
            return  # Python's return
        x + 1

    with refused("python-jump") as caught:
        make(body).ptx()
    assert caught.value.where.line == line_of("Python's return", __file__)


def test_break_out_of_an_unrolled_loop_from_a_branch_is_refused():
    def body():
        x = reg.scalar(u32)
        for i in range(4):
            with ptx.if_(x == i):
                break

    with refused("python-jump"):
        make(body).ptx()


def test_a_loop_left_open_is_found_without_its_source():
    namespace = {"ptx": ptx}
    exec("def body():\n    for i in ptx.range(8):\n        break\n", namespace)  # no file to read
    with refused("python-jump") as caught:
        make(namespace["body"]).ptx()
    assert caught.value.where.line == 2


def test_python_loops_inside_a_traced_loop_may_break():
    def body():
        for i in ptx.range(8):
            for j in range(4):
                if j == 2:
                    break
                i + j

    assert sum(line.startswith("add.u32") for line in emitted(body)) == 3


@pytest.mark.parametrize("jump", [ptx.break_, ptx.continue_])
def test_jumps_outside_of_a_loop_are_refused(jump):
    with refused("jump-outside-loop"):
        make(jump).ptx()


@pytest.mark.parametrize(
    "condition, complaint",
    [
        (lambda: reg.scalar(u32), "Register(%r1: u32)"),
        (lambda: True, "True"),
        (lambda: None, "None"),
    ],
)
def test_a_branch_needs_a_predicate(condition, complaint):
    def body():
        with ptx.if_(condition()):
            pass

    with refused("branch-condition", got=complaint):
        make(body).ptx()


def test_while_needs_a_function():
    def body():
        x = reg.scalar(u32)
        with ptx.while_(x < 3):
            pass

    with refused("trace", got="Predicate(%p1)"):
        make(body).ptx()
