"""Machine instructions of a PTX instruction: unrolled loops, hoisted and merged instructions."""

import numpy as np
import pytest

from warploom.driver import toolchain
from warploom.isa.dtypes import f32, u64
from warploom.lang import Tile, kernel, ptx, reg, smem
from warploom.runtime.on_clock import predict, record
from warploom.timing import H200, machine_code
from warploom.timing.instructions import Facts
from warploom.timing.runs import cost_of

needs_tools = pytest.mark.skipif(
    not (toolchain.ptxas() and toolchain.find("nvdisasm")), reason="ptxas or nvdisasm is missing"
)


def _facts(*lines):
    """Instructions, each (opcode, pipe), on lines 1, 2, 3…"""
    return [
        Facts(pc, opcode, pipe, 1.0, "alu", frozenset(), frozenset(), ptx_line=pc + 1)
        for pc, (opcode, pipe) in enumerate(lines)
    ]


LOOP = _facts(("mov", "none"), ("ld", "lsu"), ("add", "either"), ("bra", "control"), ("exit", "control"))
"""0: before the loop; 1 to 3: the loop; 4: after it."""
UNROLLED = [
    ("MOV R1, 0x1", 1), (".L_x_1:", 0), ("LDG.E R2, [R4]", 2), ("LDG.E R3, [R4+0x4]", 2), ("IADD3 R1, R1, R2, R3", 3),
    ("IMAD.MOV.U32 R7, RZ, RZ, R8", 0), ("@!P0 BRA `(.L_x_1)", 4), ("LDG.E R2, [R4]", 2), ("EXIT", 5),
    (".L_x_2:", 0), ("BRA `(.L_x_2)", 0), ("NOP", 0),
]  # fmt: skip


def test_of_an_unrolled_loop_each_turn_has_its_share():
    found = machine_code.Reading.of(UNROLLED, LOOP, {3: 1}).slots()
    assert found[0] == (("either", 1.0),), "MOV"
    assert found[1] == (("lsu", 1.0),)
    assert found[2] == (("alu", 0.5),)
    assert dict(found[3]) == {"control": 0.5, "imad": 0.5}, "the move without a line is the branch's"
    assert found[4] == (("control", 1.0),)


def test_what_was_hoisted_out_of_a_loop_costs_nothing_in_it():
    code = [("IADD3 R1, R1, R2, R3", 3), (".L_x_1:", 0), ("LDG.E R2, [R4]", 2), ("@P0 BRA `(.L_x_1)", 4), ("EXIT", 5)]
    found = machine_code.Reading.of(code, LOOP, {3: 1}).slots()
    assert (found[2], found[1]) == ((), (("lsu", 1.0),))


def _sums(steps):
    @kernel(in_specs=(Tile("N", f32),), out_specs=(Tile(1, f32),), grid=(1,), block=32, arch="sm_90a")
    def program(X, Y):
        (n,) = X.shape
        x, y = ptx.global_ptrs(X, Y)
        total = reg.scalar(f32, init=0.0)
        for at in ptx.range(ptx.special.tid.x(), n, 32):
            total += ptx.load(f32, ptx.addr(x + at.to(u64) * 4))
            for _ in range(steps):
                ptx.inst.fma.rn.f32(total, total, total, 1.0)
        ptx.store(ptx.addr(y), total)

    return program


@pytest.mark.sample(1, all=1)
@needs_tools
@pytest.mark.parametrize("steps", [0, 24, 60])
def test_a_loop_has_one_load_and_its_sums_a_turn_however_ptxas_unrolls(steps):
    recording, _ = record(_sums(steps), np.zeros(1024, np.float32), out=np.zeros(1, np.float32))
    assert recording.uncounted == ""
    (load,) = (one for one in recording.pcs if one.opcode.startswith("ld.global"))
    assert dict(load.machine) == {"lsu": 1.0}
    chain = [dict(one.machine).get("fma", 0.0) for one in recording.pcs if one.opcode.startswith("fma")]
    assert chain == [1.0] * steps
    whole = sum(many for pc in range(min(recording.loops.values()), max(recording.loops) + 1)
                for _, many in recording.pcs[pc].machine)  # fmt: skip
    assert steps + 2 < whole < steps + 10


@needs_tools
def test_neighbouring_words_that_ptxas_loads_together_pass_the_memory_pipe_once():
    @kernel(in_specs=(Tile("N", f32),), out_specs=(Tile(1, f32),), grid=(1,), block=32, arch="sm_90a")
    def program(X, Y):
        x, y = ptx.global_ptrs(X, Y)
        words = smem.array(f32, 64, align=16)
        ptx.store(words[ptx.special.tid.x()], ptx.load(f32, ptx.addr(x)))
        ptx.bar.sync(0)
        total = reg.scalar(f32, init=0.0)
        for i in range(16):
            total += ptx.load(f32, words[i])
        ptx.store(ptx.addr(y), total)

    recording, _ = record(program, np.zeros(64, np.float32), out=np.zeros(1, np.float32))
    loads = [dict(one.machine) for one in recording.pcs if one.opcode.startswith("ld.shared")]
    assert (len(loads), sum(one.get("LDS.128", 0.0) for one in loads)) == (16, 4.0)
    run = next(one for one in recording.runs if sum(a is not None and a.space == "shared" for a in one.accesses) == 16)
    assert cost_of(run, recording.pcs, H200).wavefronts == 4 * 2, "a pass fills one register of all lanes, or two alike"


def test_without_a_disassembler_the_ptx_is_counted_and_the_prediction_says_so(monkeypatch):
    found = toolchain.find
    monkeypatch.setattr(toolchain, "find", lambda name: None if name == "nvdisasm" else found(name))
    made = predict(_sums(0), np.zeros(1024, np.float32), out=np.zeros(1, np.float32), registers=32)
    assert made.counted.startswith("PTX")
    assert "nvdisasm" in made.counted
    assert made.us > 0.5


def _started(opcode, engine):
    return Facts(1, opcode, "none", 0.0, "none", frozenset(), frozenset(), True, starts=engine, ptx_line=2)


def _in_a_loop(facts, *code):
    """A reading of a loop of one instruction and a branch."""
    pcs = [LOOP[0], facts, LOOP[3], LOOP[4]]
    lines = [(".L_x_1:", 0), *((text, 2) for text in code), ("@P0 BRA `(.L_x_1)", 4), ("EXIT", 5)]
    return machine_code.Reading.of(lines, pcs, {2: 1})


@pytest.mark.parametrize(("moves", "moved"), [(0, set()), (1, set()), (2, {1}), (4, {1})])
def test_a_product_is_moved_where_each_has_moves_of_its_own(moves, moved):
    code = ["R2UR UR4, R2"] * moves + ["HGMMA.64x32x16.F32.BF16 R24, gdesc[UR4], R24"]
    assert _in_a_loop(_started("wgmma.mma_async", "warpgroup_mma"), *code).moved() == moved


def test_a_copy_is_repeated_where_it_stands_in_a_loop_over_the_lanes():
    copy = _started("cp.async.bulk.tensor", "tma")
    once, lanes = "UTMALDG.2D [UR4], [UR8]", "@P0 BRA.U.ANY `(.L_x_9)"
    assert _in_a_loop(copy, once).repeated() == set()
    assert _in_a_loop(copy, ".L_x_9:", once, lanes).repeated() == {1}
