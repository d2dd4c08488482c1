"""Odd but valid input, or mistakes that only show at run time: right results, or an error within seconds."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import warploom
from tests.emulator.ptx_text import emulate
from tests.errors import refused
from tests.examples.test_examples import NAMES, cases
from tests.runtime.kernels import PROGRAM
from warploom import Tile, kernel, ptx, reg
from warploom.errors import DeadlockError
from warploom.runtime import Caller
from warploom.types import u32, u64

# -- kernels -----------------------------------------------------------------------------------------------------


def per_thread(body, threads: int = 32):
    """A kernel in which each thread stores what `body` gives back."""

    @kernel(out_specs=(Tile("N", u32),), grid=(1,), block=threads, arch="sm_80")
    def subject(C):
        value = body()
        (pointer,) = ptx.global_ptrs(C)
        ptx.store(ptx.addr(pointer + ptx.special.tid.x().to(u64) * 4), value, dtype=u32)

    return subject


def results(body, threads: int = 32, **options) -> list[int]:
    return per_thread(body, threads).emulate(np.zeros(threads, np.uint32), **options).outputs[0].tolist()


def branches_in_loops_in_branches():
    thread, total = ptx.special.tid.x(), reg.scalar(u32, 0)
    for i in ptx.range(4):
        with ptx.if_(thread < 16):
            with ptx.if_((thread & 1) == 0):
                total.set(total + i)
            with ptx.else_():
                for _ in ptx.range(i):
                    total.set(total + 10)
        with ptx.else_(), ptx.if_(thread == 20):
            total.set(total + 1000)
    return total


@pytest.mark.parametrize("schedule, seed", [("lazy", 0), ("starve", 1), *(("random", seed) for seed in range(4))])
def test_branches_and_loops_nest(schedule, seed):
    def expected(thread: int) -> int:
        if thread >= 16:
            return 4000 if thread == 20 else 0
        return 6 if thread % 2 == 0 else 60

    assert results(branches_in_loops_in_branches, schedule=schedule, seed=seed) == [expected(t) for t in range(32)]


def test_threads_that_trace_at_once_give_one_text():
    texts: list[str] = []
    threads = [
        threading.Thread(target=lambda: texts.append(per_thread(branches_in_loops_in_branches).ptx())) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(texts) == 4 and len(set(texts)) == 1


def test_a_kernel_without_a_source_file_works_and_names_its_line():
    space: dict = {}
    source = (
        "from warploom import Tile, kernel, ptx\nfrom warploom.types import u32\n"
        "@kernel(out_specs=(Tile('N', u32),), grid=(1,), block=32)\n"
        "def cell(C):\n    (p,) = ptx.global_ptrs(C)\n    ptx.store(ptx.addr(p), {}, dtype=u32)\n"
    )
    exec(compile(source.format(7), "<ipython-input-3>", "exec"), space)
    assert space["cell"].emulate(np.zeros(1, np.uint32)).outputs[0][0] == 7
    exec(compile(source.format(1.5), "<ipython-input-4>", "exec"), space)
    with pytest.raises(warploom.errors.TraceError) as caught:
        space["cell"].ptx()
    assert "<ipython-input-4>:6" in str(caught.value)


def test_a_lambda_and_an_empty_body_are_kernels():
    empty = kernel(grid=(2,), block=33)(lambda: None)
    assert empty.name == "kernel" and empty.emulate().counters.instructions == 4 and empty() is None


def test_a_caller_can_be_emulated_like_the_kernel_it_calls():
    a = np.arange(64, dtype=np.float32)
    assert warploom.emulate(Caller(PROGRAM), a, a, 3.0).outputs[0].tolist() == (4 * a).tolist()


def launch(body: str, **options) -> np.ndarray:
    """Run PTX; %r0 is the thread, %rd0 the address of what comes back."""
    out = np.zeros(4, np.uint32)
    emulate(body, out, **options)
    return out


# -- loops that never end ----------------------------------------------------------------------------------------


@pytest.mark.sample(5, full=8)
@pytest.mark.parametrize("schedule", ["lazy", "eager", "random", "starve"])
@pytest.mark.parametrize(
    "body",
    [
        "L: bra L;",
        "L: mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 16; @%p1 bra L;",
        "L: ld.global.u32 %r1, [%rd0]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;",
        "L: shfl.sync.bfly.b32 %r1, %r1, 1, 31, -1; bra L;",
        "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 16; @%p1 bra L; bar.warp.sync -1; ret; L: bra L;",
    ],
    ids=["nothing", "half a warp", "a plain load", "a shuffle", "the rest of its warp waits"],
)
def test_a_loop_that_comes_back_to_where_it_was_is_a_deadlock(body, schedule):
    with pytest.raises(DeadlockError):
        launch(body, schedule=schedule)


def test_a_plain_loop_may_wait_for_a_store_of_another_warp():
    """Warp 0 has the lower program counter and would never let warp 1 run."""
    out = launch(
        """
        mov.u32 %r1, %tid.x;
        setp.ge.u32 %p1, %r1, 32;
        @%p1 bra OTHER;
        L: ld.global.u32 %r2, [%rd0+4]; setp.eq.u32 %p2, %r2, 0; @%p2 bra L;
        st.global.u32 [%rd0], %r2;
        ret;
        OTHER: st.global.u32 [%rd0+4], 7;
        """,
        threads=64,
    )
    assert out[:2].tolist() == [7, 7]


def test_a_long_loop_that_counts_in_memory_is_no_deadlock():
    out = launch(
        """
        .local .u32 turns;
        st.local.u32 [turns], 0;
        L: ld.local.u32 %r1, [turns]; add.u32 %r1, %r1, 1; st.local.u32 [turns], %r1;
        setp.lt.u32 %p1, %r1, 30000; mov.u32 %r1, 0; @%p1 bra L;
        st.global.u32 [%rd0], 1;
        """
    )
    assert out[0] == 1


# -- texts -------------------------------------------------------------------------------------------------------


def test_a_variable_may_hold_the_address_of_another():
    out = launch(
        "ld.global.u64 %rd1, [x]; st.u32 [%rd1], 7; ld.global.u32 %r1, [y]; st.global.u32 [%rd0], %r1;",
        before=".global .u32 y; .global .u64 x = generic(y);",
    )
    assert out[0] == 7


@pytest.mark.parametrize(
    "before, body, code",
    [
        (".func f() { call f; ret; }", "call f;", "emulation"),
        (".extern .func f();", "call f;", "unsupported-instruction"),
        (".func f(.reg .b32 a) { ret; }", "call f;", "emulation"),
    ],
)
def test_what_the_emulator_cannot_do_is_an_error_and_no_wrong_number(before, body, code):
    with refused(code):
        launch(body, before=before)


@pytest.mark.parametrize("body", ["", "bra X; X:", "ret; bra Y; Y: ret;", "{{{ .reg .b32 %q; mov.u32 %q, 1; }}}"])
def test_missing_ends_unreachable_code_and_empty_blocks_run(body):
    launch(body)


# -- schedules ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_schedule_gives_the_same_bits_and_a_seed_the_same_counters(name):
    compiled, arguments, _ = next(iter(cases(name)))
    outputs = set()
    for schedule, seed in [
        ("lazy", 0),
        ("eager", 0),
        *(("starve", s) for s in range(4)),
        *(("random", s) for s in range(4)),
    ]:
        first, second = (compiled.emulate(*arguments, check=False, schedule=schedule, seed=seed) for _ in range(2))
        assert first.counters.as_dict() == second.counters.as_dict()
        outputs |= {np.asarray(run.outputs[0]).tobytes() for run in (first, second)}
    assert len(outputs) == 1
