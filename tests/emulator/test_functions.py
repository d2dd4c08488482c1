"""Calls through registers, memory of the heap, and the stack."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.ptx_text import kernel_text
from warploom import asm
from warploom.emulator import api
from warploom.errors import EmulationError, OutOfBoundsError

FUNCTIONS = """
.func (.param .b32 r) twice(.param .b32 x)
{ .reg .b32 %a; ld.param.b32 %a, [x]; add.u32 %a, %a, %a; st.param.b32 [r], %a; ret; }
.func (.param .b32 r) square(.param .b32 x)
{ .reg .b32 %a; ld.param.b32 %a, [x]; mul.lo.u32 %a, %a, %a; st.param.b32 [r], %a; ret; }
.func (.param .b32 r) wide(.param .b64 x)
{ .reg .b32 %a; mov.u32 %a, 99; st.param.b32 [r], %a; ret; }
.global .u64 table[3] = {twice, square, wide};
"""
THROUGH = """
    and.b32 %r1, %r0, MASK;
    mul.wide.u32 %rd2, %r1, 8;
    mov.u64 %rd3, table;
    add.u64 %rd3, %rd3, %rd2;
    ld.global.u64 %rd4, [%rd3];
    GUARD
    { .param .b32 x; .param .b32 r;
      st.param.b32 [x], %r0;
      PREDICATE call (r), %rd4, (x), kind;
      ld.param.b32 %r2, [r]; }
    kind: .callprototype (.param .b32 _) _ (.param .b32 _);
"""
STORE = """
    mul.wide.u32 %rd5, %r0, 4;
    add.u64 %rd6, %rd0, %rd5;
    st.global.u32 [%rd6], %r2;
"""


def run(body: str, before: str = "", threads: int = 64, words: int = 64) -> np.ndarray:
    out = np.zeros(words, np.uint32)
    text = kernel_text(body, before=before)
    api.run(asm.parse(text), "k", [out], grid=(1, 1, 1), block=(threads, 1, 1))
    return out


def through(mask: int = 1, guard: str = "", predicate: str = "", before: str = FUNCTIONS) -> np.ndarray:
    body = THROUGH.replace("MASK", str(mask)).replace("GUARD", guard).replace("PREDICATE", predicate)
    return run("mov.u32 %r2, 7;\n" + body + STORE, before)


def test_each_lane_calls_the_function_that_its_register_holds():
    x = np.arange(64)
    np.testing.assert_array_equal(through(), np.where(x & 1, x * x, x + x))
    direct = FUNCTIONS.replace("{twice, square, wide}", "{0, 0, 0}")
    chosen = "setp.lt.u32 %p1, %r0, 9;\nmov.u64 %rd4, twice;\n@%p1 mov.u64 %rd4, square;\n"
    np.testing.assert_array_equal(through(guard=chosen, before=direct), np.where(x < 9, x * x, x + x))


def test_a_guarded_call_is_left_out_where_the_guard_does_not_hold():
    x = np.arange(64)
    body = THROUGH.replace("MASK", "1").replace("GUARD", "setp.lt.u32 %p1, %r0, 9;").replace("PREDICATE", "@%p1")
    body = body.replace("ld.param.b32 %r2, [r];", "@%p1 ld.param.b32 %r2, [r];")
    found = run("mov.u32 %r2, 7;\n" + body + STORE, FUNCTIONS)
    np.testing.assert_array_equal(found, np.where(x >= 9, 7, np.where(x & 1, x * x, x + x)))


@pytest.mark.parametrize("guard", ["mov.u64 %rd4, wide;", "mov.u64 %rd4, 0;", "add.u64 %rd4, %rd4, 4;"],
                         ids=["other parameters", "null", "no function"])  # fmt: skip
def test_a_call_that_goes_nowhere_is_an_error(guard: str):
    with pytest.raises(EmulationError) as caught:
        through(guard=guard)
    assert caught.value.code == "emulation" and caught.value.expected


def test_a_function_that_calls_itself_through_a_register_is_an_error():
    loop = FUNCTIONS.replace(
        "mul.lo.u32 %a, %a, %a;",
        ".reg .b64 %p; mov.u64 %p, square; { .param .b32 y; .param .b32 s; st.param.b32 [y], %a; "
        "call (s), %p, (y), k; k: .callprototype (.param .b32 _) _ (.param .b32 _); }",
    )
    with pytest.raises(EmulationError):
        through(before=loop)


HEAP = """
.extern .func (.param .b64 r) malloc (.param .b64 x);
.extern .func free (.param .b64 x);
"""
TAKE = """
    { .param .b64 x; .param .b64 r; st.param.b64 [x], %rd10; call.uni (r), malloc, (x); ld.param.b64 %rd11, [r]; }
"""
GIVE = """
    { .param .b64 x; st.param.b64 [x], %rd11; call.uni free, (x); }
"""
OWN = "mad.wide.u32 %rd10, %r0, 4, 4;\n" + TAKE
USE = "add.u64 %rd12, %rd11, %rd10;\nst.u32 [%rd12+-4], %r0;\nbar.sync 0;\nld.u32 %r2, [%rd12+-4];\n" + STORE


def test_malloc_gives_each_thread_memory_of_its_own():
    np.testing.assert_array_equal(run(OWN + USE + GIVE, HEAP), np.arange(64))
    aligned = run(OWN + "and.b64 %rd13, %rd11, 15;\ncvt.u32.u64 %r2, %rd13;\n" + STORE, HEAP)
    assert not aligned.any()


@pytest.mark.parametrize(
    "body, error",
    [(OWN + USE.replace("%rd12+-4", "%rd12"), OutOfBoundsError), (OWN + GIVE + USE, OutOfBoundsError),
     (OWN + GIVE + GIVE, EmulationError), (OWN + "add.u64 %rd11, %rd11, 4;\n" + GIVE, EmulationError)],
    ids=["past its end", "after free", "freed twice", "freed from its middle"],
)  # fmt: skip
def test_memory_of_the_heap_has_its_bounds_and_its_end(body: str, error: type[EmulationError]):
    with pytest.raises(error):
        run(body, HEAP)


def test_malloc_returns_null_where_the_heap_is_used_up():
    body = "mov.u64 %rd10, 1048576;\n" + TAKE + "setp.ne.u64 %p1, %rd11, 0;\nselp.u32 %r2, 1, 0, %p1;\n" + STORE
    assert run(body, HEAP).sum() == 8
    again = body.replace("mov.u64", "mov.u64 %rd11, 0;\nmov.u64", 1)
    freed = (
        "mov.u32 %r5, 0;\nmore:\n" + again + GIVE + "add.u32 %r5, %r5, 1;\nsetp.lt.u32 %p2, %r5, 3;\n@%p2 bra more;\n"
    )
    assert run(freed, HEAP).sum() == 8
    assert run("mov.u64 %rd11, 0;\n" + GIVE, HEAP).sum() == 0


STACK = """
    mad.wide.u32 %rd10, %r0, 4, 4;
    alloca.u64 %rd11, %rd10, 16;
    add.u64 %rd12, %rd11, %rd10;
    st.local.u32 [%rd12+-4], %r0;
    alloca.u64 %rd13, %rd10;
    st.local.u32 [%rd13], 5;
    ld.local.u32 %r2, [%rd12+-4];
"""


def test_alloca_gives_each_thread_room_on_its_stack():
    np.testing.assert_array_equal(run(STACK + STORE), np.arange(64))


CALLED = """
.func (.param .b32 r) f(.param .b32 x)
{ .reg .b32 %a; .reg .b64 %p; ld.param.b32 %a, [x];
  alloca.u64 %p, 4096; st.local.u32 [%p], %a; ld.local.u32 %a, [%p]; st.param.b32 [r], %a; ret; }
"""
LOOP = """
    mov.u32 %r5, 0;
    more:
    BODY
    add.u32 %r5, %r5, 1;
    setp.lt.u32 %p2, %r5, 20;
    @%p2 bra more;
"""
CALL = "{ .param .b32 x; .param .b32 r; st.param.b32 [x], %r0; call.uni (r), f, (x); ld.param.b32 %r2, [r]; }"


def test_the_stack_is_given_back_where_a_function_returns_or_where_it_is_restored():
    np.testing.assert_array_equal(run(LOOP.replace("BODY", CALL) + STORE, CALLED), np.arange(64))
    restored = "stacksave.u64 %rd14;\nalloca.u64 %rd11, 4096;\nst.local.u32 [%rd11], 1;\nstackrestore.u64 %rd14;\n"
    run(LOOP.replace("BODY", restored))
    with pytest.raises(EmulationError):
        run(LOOP.replace("BODY", "alloca.u64 %rd11, 4096;"))
