"""Links between emulated GPUs: which writes arrive late, in which order, and what makes them arrive. PTX ISA 8.9."""

from __future__ import annotations

import pytest

from tests.sanitizer.running import run
from warploom.emulator.machine.events import Observer
from warploom.sanitizer.rules import Example

OLD, NEW, FLAG = 0, 7, 77
RANDOM = [("random", seed) for seed in range(12)]
LATE = [("lazy", 0), ("starve", 2), ("pct", 0)]
STORE = f"st.global.u32 [%data], {NEW};"
RAISE = f"st.release.sys.global.u32 [%data+512], {FLAG};"
READ = "ld.global.u32 %r3, [%data];"
WAIT = f"""
waiting:
ld.acquire.sys.global.u32 %r2, [%data+512];
setp.ne.u32 %p3, %r2, {FLAG};
@%p3 bra waiting;
"""
RELAXED = WAIT.replace("acquire", "relaxed")


def read(write: str, wait: str, pair: tuple[str, int], then: str = READ) -> int:
    """What GPU 1 reads of word 0, which is 0 at first, after GPU 0 wrote and GPU 1 waited."""
    example = Example(
        f"""
        @!%first bra done;
        setp.eq.u32 %p2, %gpu, 0;
        @!%p2 bra reader;
        {write}
        bra done;
        reader:
        {wait}
        {then}
        st.global.u32 [%data+1024], %r3;
        done:
        """,
        devices=2, threads=32,
    )  # fmt: skip
    return int(run(example, *pair, watch=lambda _: Observer()).outputs[0][256])


@pytest.mark.parametrize("pair", [*LATE, *RANDOM, ("eager", 0)])
@pytest.mark.parametrize(
    ("raised", "wait"),
    [
        (RAISE, WAIT),
        (f"fence.acq_rel.sys;\nst.relaxed.sys.global.u32 [%data+512], {FLAG};", RELAXED + "fence.acq_rel.sys;"),
        (f"membar.sys;\nst.volatile.global.u32 [%data+512], {FLAG};", RELAXED + "membar.sys;"),
        (f"red.release.sys.global.add.u32 [%data+512], {FLAG - 128};", WAIT),
        (f"atom.acq_rel.sys.global.exch.b32 %r4, [%data+512], {FLAG};", WAIT),
    ],
)
def test_what_was_released_is_read_behind_an_acquire(raised, wait, pair):
    assert read(STORE + "\n" + raised, wait, pair) == NEW


@pytest.mark.parametrize("pair", LATE)
@pytest.mark.parametrize(
    ("write", "wait"),
    [
        (STORE + RAISE.replace("sys", "gpu"), WAIT),
        (STORE + RAISE.replace("release", "relaxed"), WAIT),
        (STORE + "fence.acq_rel.gpu;" + RAISE.replace("release", "relaxed"), WAIT),
        (RAISE + STORE, WAIT),
        (STORE + RAISE, RELAXED),
        (STORE + RAISE, RELAXED + "fence.acq_rel.gpu;"),
        (STORE + RAISE, WAIT.replace("sys", "gpu")),
        (STORE + f"atom.relaxed.sys.global.exch.b32 %r4, [%data+512], {FLAG};", WAIT),
    ],
)
def test_a_flag_that_orders_nothing_overtakes_its_data(write, wait, pair):
    assert read(write, wait, pair) == OLD
    assert read(write.replace("sys", "gpu"), wait, ("eager", 0)) == NEW


def test_strong_stores_to_two_lines_arrive_in_any_order_and_those_to_one_together():
    by_halves = f"st.relaxed.sys.global.u32 [%data], {NEW}; st.relaxed.sys.global.u32 [%data+512], {FLAG};"
    strong = "ld.relaxed.sys.global.u32 %r3, [%data];"
    assert {read(by_halves, RELAXED, pair, strong) for pair in RANDOM} == {OLD, NEW}
    write = f"mov.u32 %r4, {NEW};\nmov.u32 %r5, {FLAG};\nst.volatile.global.v2.u32 [%data], {{%r4, %r5}};"
    wait = RELAXED.replace("[%data+512]", "[%data+4]")
    assert {read(write, wait, pair, strong) for pair in RANDOM} == {NEW}


@pytest.mark.parametrize("pair", [*LATE, *RANDOM])
def test_what_is_under_way_arrives_when_nothing_else_can_go_on(pair):
    """Nobody releases the word that GPU 1 waits for."""
    assert read(f"st.global.u32 [%data+512], {FLAG};", RELAXED, pair, "mov.u32 %r3, 5;") == 5


@pytest.mark.parametrize("pair", [*LATE, *RANDOM])
def test_a_gpu_reads_what_it_wrote_itself_and_an_atomic_what_is_newest(pair):
    own = STORE + f"\nld.global.u32 %r3, [%data];\nst.global.u32 [%data+4], %r3;\n{RAISE}"
    assert read(own, WAIT, pair, "ld.global.u32 %r3, [%data+4];") == NEW
    assert read(STORE + RAISE, RELAXED, pair, "atom.relaxed.sys.global.add.u32 %r3, [%data], 1;") == NEW
