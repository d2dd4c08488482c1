"""Registers that the executed path has not written: reported if they affect a decision, and only then."""

from __future__ import annotations

import pytest

from tests.sanitizer.running import SCHEDULES, findings
from warploom.sanitizer.rules import Example

RULE = "undefined-register-used"
SOME = "setp.lt.u32 %p0, %idx, 16;\n"
USED = {
    "in an address": SOME + "@%p0 mov.u32 %r1, 0;\nmov.u32 %r2, tile;\nadd.u32 %r2, %r2, %r1;\n"
    "ld.volatile.shared.u32 %r3, [%r2];",
    "after a calculation": SOME + "@%p0 mov.u32 %r1, 5;\nshl.b32 %r1, %r1, 2;\nand.b32 %r1, %r1, 63;\n"
    "mov.u32 %r2, tile;\nadd.u32 %r2, %r2, %r1;\nld.volatile.shared.u32 %r3, [%r2];",
    "in a branch": SOME + "@%p0 setp.eq.u32 %p1, %idx, 3;\n@%p1 bra out;\nmov.u32 %r1, 0;\nout:\nmov.u32 %r2, 0;",
    "where a branch went round it": SOME + "@!%p0 bra out;\nmov.u32 %r1, 0;\nout:\nmov.u32 %r2, tile;\n"
    "add.u32 %r2, %r2, %r1;\nld.volatile.shared.u32 %r3, [%r2];",
    "shuffled from a lane that has it not": SOME + "@%p0 mov.u32 %r1, 0;\n"
    "shfl.sync.bfly.b32 %r1, %r1, 16, 31, 0xffffffff;\nmov.u32 %r2, tile;\nadd.u32 %r2, %r2, %r1;\n"
    "ld.volatile.shared.u32 %r3, [%r2];",
    "by the choice made": SOME + "@%p0 mov.u32 %r1, 0;\nselp.b32 %r4, 0, %r1, %p0;\nmov.u32 %r2, tile;\n"
    "add.u32 %r2, %r2, %r4;\nld.volatile.shared.u32 %r3, [%r2];",
    "in the half that is taken": SOME + "@%p0 mov.u32 %r1, 0;\nmov.b64 %d1, {%r1, %idx};\nmov.b64 {%r2, %r3}, %d1;\n"
    "mov.u32 %r4, tile;\nadd.u32 %r4, %r4, %r2;\nld.volatile.shared.u32 %r3, [%r4];",
    "shifted to where it is taken": SOME + "@%p0 mov.u32 %r1, 0;\nmov.b64 %d1, {%r1, %idx};\nshl.b64 %d1, %d1, 32;\n"
    "shr.u64 %d1, %d1, 32;\nmov.b64 %d1, {%r1, %idx};\nshl.b64 %d2, %d1, 32;\nmov.b64 {%r2, %r3}, %d2;\n"
    "and.b32 %r3, %r3, 60;\nmov.u32 %r4, tile;\nadd.u32 %r4, %r4, %r3;\nld.volatile.shared.u32 %r3, [%r4];",
    "calculated with in its element": SOME + "@%p0 mov.u32 %r1, 0;\nmov.b64 %d1, {%r1, %idx};\n"
    "add.rn.f32x2 %d1, %d1, %d1;\nmov.b64 {%r2, %r3}, %d1;\nand.b32 %r2, %r2, 60;\nmov.u32 %r4, tile;\n"
    "add.u32 %r4, %r4, %r2;\nld.volatile.shared.u32 %r3, [%r4];",
}
NOT_USED = {
    "packed with one that is taken": SOME + "@%p0 mov.u32 %r1, 0;\nmov.u32 %r5, 8;\nmov.b64 %d1, {%r1, %r5};\n"
    "add.rn.f32x2 %d1, %d1, %d1;\nmov.b64 {_, %r3}, %d1;\nand.b32 %r3, %r3, 60;\nmov.u32 %r4, tile;\n"
    "add.u32 %r4, %r4, %r3;\nld.volatile.shared.u32 %r3, [%r4];",
    "shifted out": SOME + "@%p0 mov.u32 %r1, 0;\nmov.u32 %r5, 8;\nmov.b64 %d1, {%r1, %r5};\nshr.u64 %d2, %d1, 32;\n"
    "cvt.u32.u64 %r3, %d2;\nmov.u32 %r4, tile;\nadd.u32 %r4, %r4, %r3;\nld.volatile.shared.u32 %r3, [%r4];",
    "shuffled from a lane that has it": "and.b32 %r4, %idx, 31;\nsetp.ne.u32 %p0, %r4, 3;\n@%p0 bra out;\n"
    "mov.u32 %r1, 0;\nout:\nmov.u32 %r5, 3;\nshfl.sync.idx.b32 %r1, %r1, %r5, 31, 0xffffffff;\n"
    "mov.u32 %r2, tile;\nadd.u32 %r2, %r2, %r1;\nld.volatile.shared.u32 %r3, [%r2];",
    "thrown away": SOME + "@%p0 mov.u32 %r1, 0;\nadd.u32 %r2, %r1, 1;\n@%p0 st.shared.u32 [tile], %r2;",
    "only where it is written": SOME + "@%p0 mov.u32 %r1, 0;\n@!%p0 bra out;\nmov.u32 %r2, tile;\n"
    "add.u32 %r2, %r2, %r1;\nld.volatile.shared.u32 %r3, [%r2];\nout:\nmov.u32 %r2, 0;",
    "not chosen": SOME + "@%p0 mov.u32 %r1, 0;\nselp.b32 %r4, %r1, 0, %p0;\nmov.u32 %r2, tile;\n"
    "add.u32 %r2, %r2, %r4;\nld.volatile.shared.u32 %r3, [%r2];",
    "settled by the other side": SOME + "@%p0 setp.eq.u32 %p1, %idx, 3;\nand.pred %p2, %p0, %p1;\n"
    "@%p2 bra out;\nmov.u32 %r1, 0;\nout:\nmov.u32 %r2, 0;",
    "written by two halves": SOME + "@%p0 mov.u32 %r1, 0;\n@!%p0 mov.u32 %r1, 4;\nmov.u32 %r2, tile;\n"
    "add.u32 %r2, %r2, %r1;\nld.volatile.shared.u32 %r3, [%r2];",
    "in the first turn of a loop": "mov.u32 %r5, 0;\nagain:\nsetp.eq.u32 %p1, %r5, 0;\n@%p1 mov.u32 %r1, 0;\n"
    "mov.u32 %r2, tile;\nadd.u32 %r2, %r2, %r1;\nld.volatile.shared.u32 %r3, [%r2];\nadd.u32 %r5, %r5, 1;\n"
    "setp.lt.u32 %p2, %r5, 3;\n@%p2 bra again;",
}


@pytest.mark.parametrize("case", USED)
def test_a_value_that_decides(case):
    (severity,) = {one.severity for one in findings(Example(USED[case])) if one.rule == RULE}
    assert severity == "error"


@pytest.mark.parametrize("schedule", SCHEDULES[:3], ids=lambda one: f"{one[0]}-{one[1]}")
@pytest.mark.parametrize("case", NOT_USED)
def test_a_value_that_does_not_matter(case, schedule):
    assert [one for one in findings(Example(NOT_USED[case]), *schedule) if one.rule == RULE] == []


def test_a_value_that_is_stored_is_a_warning():
    body = SOME + "@%p0 mov.u32 %r1, 0;\nmad.wide.u32 %d0, %idx, 4, %data;\nst.global.u32 [%d0], %r1;"
    assert [one.severity for one in findings(Example(body)) if one.rule == RULE] == ["warning"]


def test_it_names_the_register_and_the_thread():
    (one,) = (one for one in findings(Example(USED["in an address"])) if one.rule == RULE)
    assert "%r2" in one.summary and "thread 16" in one.summary
