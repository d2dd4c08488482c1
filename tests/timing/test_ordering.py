"""Runs in the machine's order: grouped loads, stalls, and registers that are not carried between iterations."""

from dataclasses import replace

import numpy as np
import pytest

from warploom.driver import toolchain
from warploom.isa.dtypes import f32
from warploom.lang import Tile, kernel, ptx, reg
from warploom.runtime.on_clock import record
from warploom.timing import H200, machine_code, ordering
from warploom.timing.instructions import Facts
from warploom.timing.ordering import CodePosition
from warploom.timing.recording import RUN, Access, Recording, Run
from warploom.timing.runs import cost_of

needs_tools = pytest.mark.skipif(
    not (toolchain.ptxas() and toolchain.find("nvdisasm")), reason="ptxas or nvdisasm is missing"
)
FAR = Access("global", False, 1.0, 4.0, 4.0, 4.0)


def _fact(pc, opcode, pipe, reads=(), writes=(), latency="alu"):
    return Facts(pc, opcode, pipe, 1.0, latency, frozenset(reads), frozenset(writes), ptx_line=pc + 1)


LOAD, ADD, BRANCH = (
    _fact(0, "ld", "lsu", {1}, {2}, "ldg"),
    _fact(1, "add", "fma", {2, 3}, {3}),
    _fact(2, "bra", "control"),
)
"""Of a loop: register 2 is loaded, and added to 3."""


def _recording(turns):
    recording = Recording("k", (1, 1, 1), (32, 1, 1), (1, 1, 1), pcs=[LOAD, ADD, BRANCH])
    recording.runs = [Run((0, 1, 2) * turns, (FAR, None, None) * turns)]
    recording.steps = {(0, 0): [(RUN, 2, 0)]}
    return recording


def _arranged(turns, places):
    recording = _recording(turns)
    ordering.arrange(recording, places)
    return recording, [recording.runs[index].pcs for _, _, index in recording.steps[0, 0]]


def test_a_loop_that_is_not_unrolled_waits_for_each_load():
    _, pieces = _arranged(2, {0: CodePosition(7, 1, (10,)), 1: CodePosition(7, 1, (11,)), 2: CodePosition(7, 1, (12,))})
    assert pieces == [(0,), (1, 2, 0), (1, 2)]


def test_loads_of_an_unrolled_loop_are_on_their_way_together():
    recording, pieces = _arranged(
        2, {0: CodePosition(7, 2, (10, 11)), 1: CodePosition(7, 2, (12, 13)), 2: CodePosition(7, 2, (14,) * 2)}
    )
    assert pieces == [(0, 0), (1, 1, 2, 2)]
    first, second = (writes for _, writes in recording.runs[0].registers)
    assert first != second, "a turn's register is not that of the next one"
    costs = [cost_of(one, recording.pcs, H200) for one in recording.runs]
    assert len(costs[0].late) == 2 and all(outside for _, _, outside in costs[0].late)
    assert costs[1].needs >= {register for register, _, _ in costs[0].late}


def test_a_use_in_front_of_the_next_load_stands_in_its_way():
    recording, pieces = _arranged(
        2, {0: CodePosition(7, 2, (10, 12)), 1: CodePosition(7, 2, (11, 13)), 2: CodePosition(7, 2, (14,) * 2)}
    )
    assert pieces == [(0,), (1, 0), (1, 2, 2)]


def test_what_the_machine_code_does_not_show_follows_its_operands():
    recording = _recording(1)
    ordering.arrange(recording, {0: CodePosition(7, 1, (10,)), 1: CodePosition(7, 1, ()), 2: CodePosition(7, 1, (3,))})
    assert [recording.runs[index].pcs for _, _, index in recording.steps[0, 0]] == [(2, 0), (1,)]


def test_long_rows_of_requests_let_others_have_a_turn():
    count = ordering.MOST_ASKED + 1
    recording = Recording("k", (1, 1, 1), (32, 1, 1), (1, 1, 1), pcs=[LOAD])
    recording.runs = [Run((0,) * count, (Access("shared", False, 1.0),) * count)]
    recording.steps = {(0, 0): [(RUN, 0, 0)]}
    ordering.arrange(recording, {0: CodePosition(-1, 1, (1,))})
    assert [len(recording.runs[index].pcs) for _, _, index in recording.steps[0, 0]] == [ordering.MOST_ASKED, 1]


def test_in_order_nothing_starts_before_what_stands_in_front_of_it():
    """A MUFU and what needs it, then something that does not: in order the last one waits, by data it would not."""
    pcs = [
        _fact(0, "ex2", "mufu", {1}, {2}, "mufu"), _fact(1, "add", "fma", {2}, {3}, "ffma"),
        _fact(2, "ex2", "mufu", {4}, {5}, "mufu"), _fact(3, "add", "fma", {5}, {6}, "ffma"),
    ]  # fmt: skip
    free = Run((0, 1, 2, 3), (None,) * 4)
    bound = Run(free.pcs, free.accesses, tuple((pcs[pc].reads, pcs[pc].writes) for pc in free.pcs))
    both = H200.latency["mufu"].value + H200.latency["ffma"].value
    assert cost_of(free, pcs, H200).chain == pytest.approx(both)
    assert cost_of(bound, pcs, H200).chain == pytest.approx(2 * both - H200.latency["ffma"].value + 1)


def test_places_of_an_unrolled_loop_are_those_of_its_turns():
    facts = [_fact(0, "mov", "none"), _fact(1, "ld", "lsu"), _fact(2, "add", "either"), _fact(3, "bra", "control")]
    code = [(".L_x_1:", 0), ("LDG.E R2, [R4]", 2), ("MOV R9, R4", 2), ("LDG.E R3, [R4+0x4]", 2),
            ("IADD3 R1, R2, R3", 3), ("@!P0 BRA `(.L_x_1)", 4), ("EXIT", 0)]  # fmt: skip
    found = machine_code.Reading.of(code, facts, {3: 1}).places()
    assert (found[1].turns, found[1].at) == (2, (0, 2)), "the move that belongs to a load does not load"
    assert found[2].at == (3, 3)
    assert found[0].at == ()


@pytest.mark.full
@needs_tools
def test_loads_that_ptxas_keeps_apart_cost_their_latencies_one_by_one():
    """A chain through memory has a load in flight, a row of independent ones all of them."""

    def build(chain):
        @kernel(in_specs=(Tile("N", f32),), out_specs=(Tile(32, f32),), grid=(1,), block=32, arch="sm_90a")
        def program(X, Y):
            x, y = ptx.global_ptrs(X, Y)
            at = ptx.special.tid.x().copy()
            total = reg.scalar(f32, init=0.0)
            for step in range(4):
                value = ptx.load(f32, ptx.addr(x + (at + step * 32).to(ptx_u64) * 4))
                total += value
                if chain:
                    ptx.inst.cvt.rzi.u32.f32(at, total)
            ptx.store(ptx.addr(y + ptx.special.tid.x().to(ptx_u64) * 4), total)

        return program

    from warploom.isa.dtypes import u64 as ptx_u64

    pieces = {}
    for chain in (False, True):
        recording, _ = record(build(chain), np.zeros(1024, np.float32), out=np.zeros(32, np.float32))
        pieces[chain] = len(recording.steps[0, 0])
    assert pieces == {False: 2, True: 5}


def test_what_follows_a_slow_pipe_in_the_machines_order_starts_when_it_is_free():
    """Exponentials behind maxima begin after them, each when MUFU has taken the one before; without the order known,
    both pipes work side by side."""
    pcs = [_fact(0, "max", "alu", {1}, {2}), _fact(1, "ex2", "mufu", {3}, {4}, "mufu")]
    order = (0,) * 16 + (1,) * 8
    none = (None,) * len(order)
    known = tuple((frozenset[int](), frozenset[int]()) for _ in order)
    unordered, ordered = (cost_of(Run(order, none, registers), pcs, H200).chain for registers in ((), known))
    assert ordered == pytest.approx(15 * H200.rate["alu"].value + 1 + 7 * H200.rate["mufu"].value + 17.0)
    assert unordered == pytest.approx(17.0)


def test_nothing_starts_behind_a_branch_before_its_condition_is_known():
    """Each turn of a loop of four waits for its comparison and its branch; with ptxas's four turns in one, one does."""
    turn = _fact(0, "setp", "alu", {2}, {1}), _fact(1, "bra", "control", {1}), _fact(2, "xor", "alu", {3}, {4})
    loop = Run((0, 1, 2) * 4, (None,) * 12)
    unrolled = [turn[0], replace(turn[1], machine=(("control", 0.25),)), turn[2]]
    each = H200.latency["alu"].value + H200["branch_clocks"]
    assert cost_of(loop, list(turn), H200).chain == pytest.approx(4 * each + H200.latency["alu"].value)
    assert cost_of(loop, unrolled, H200).chain < 2 * each
