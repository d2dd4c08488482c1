"""Passes through the memory pipe: registers that a load fills, lines that a store writes to, conflicts of copies, small
arrays that all CTAs read."""

import numpy as np
import pytest

from warploom.isa.dtypes import f32, u32, u64
from warploom.lang import Tile, kernel, ptx, reg, smem
from warploom.runtime.on_clock import predict, record
from warploom.timing import H200


def _shared_loads(lane_of):
    """A load of 16 bytes of a warp, and how its lanes find their place."""

    @kernel(in_specs=(Tile(1024, f32),), out_specs=(Tile(32, f32),), grid=(1,), block=32, arch="sm_90a")
    def program(X, Y):
        (y,) = ptx.global_ptrs(Y)
        words = smem.array(f32, 1024, align=16)
        thread = ptx.special.tid.x()
        for first in range(0, 1024, 32):
            ptx.store(words[thread + first], 0.0, dtype=f32)
        ptx.bar.sync(0)
        total = reg.scalar(f32, init=0.0)
        for value in ptx.load(f32, words[lane_of(thread) * 4], vector=4):
            total += value
        ptx.store(ptx.addr(y + thread.to(u64) * 4), total)

    recording, _ = record(program, np.zeros(1024, np.float32), out=np.zeros(32, np.float32), registers=32)
    accesses = [one for run in recording.runs for one in run.accesses if one and one.space == "shared"]
    return [one.wavefronts for one in accesses if not one.writes]


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize(
    "lane_of, passes",
    [
        (lambda lane: lane, 4),
        (lambda lane: lane // 32, 2),
        (lambda lane: lane // 2, 2),
        (lambda lane: lane % 2, 2),
        (lambda lane: lane % 8, 4),
        (lambda lane: lane * 2, 8),
    ],
    ids=["its own", "one for all", "pairs", "every other", "every eighth", "two words of a bank"],
)
def test_a_load_of_16_bytes_fills_a_register_in_a_pass_or_two_where_lanes_ask_in_pairs(lane_of, passes):
    assert _shared_loads(lane_of) == [passes]


@pytest.mark.full
def test_a_copy_by_lanes_meets_conflicts_in_shared_memory():
    def copying(pitch):
        @kernel(in_specs=(Tile(8192, f32),), out_specs=(Tile(32, f32),), grid=(1,), block=32, arch="sm_90a")
        def program(X, Y):
            x, y = ptx.global_ptrs(X, Y)
            ring = smem.array(f32, 32 * pitch, align=16)
            thread = ptx.special.tid.x()
            ptx.cp.async_.cg(ring[thread * pitch], ptx.addr(x + (thread * 16).to(u64)))
            ptx.cp.async_.commit_group()
            ptx.cp.async_.wait_group(0)
            ptx.store(ptx.addr(y + thread.to(u64) * 4), ptx.load(f32, ring[thread * pitch]))

        recording, _ = record(program, np.zeros(8192, np.float32), out=np.zeros(32, np.float32), registers=32)
        return next(one.conflicts for one in recording.operations if one.engine == "cp_async" and one.bytes)

    assert (copying(4), copying(8), copying(32)) == (0, 4, 28)


def _storing(apart):
    """Every thread stores a word, `apart` words from its neighbour's."""

    @kernel(in_specs=(Tile(1, f32),), out_specs=(Tile("N", f32),), grid=(1056,), block=256, arch="sm_90a")
    def program(X, Y):
        (y,) = ptx.global_ptrs(Y)
        thread = ptx.special.ctaid.x() * 256 + ptx.special.tid.x()
        for turn in range(16):
            ptx.store(ptx.addr(y + ((thread + turn * (1056 * 256)) * apart).to(u64) * 4), 1.0, dtype=f32)

    out = np.zeros(1056 * 256 * 16 * apart, np.float32)
    return predict(program, np.zeros(1, np.float32), out=out, registers=16)


@pytest.mark.full
def test_a_store_takes_the_chip_the_time_of_its_lines():
    lines = 1056 * 256 * 16
    apart = _storing(32)
    assert apart.us > lines / H200["written_lines_per_ns"] / 1e3
    assert _storing(1).us < apart.us / 8


def _scaled(columns):
    """Y = X W, a row of X for each CTA, W of a row; the same W for all, of `columns` floats."""

    @kernel(
        in_specs=(Tile("M", columns, f32), Tile(columns, f32)), out_specs=(Tile("M", columns, f32),), grid=("M",),
        block=128, arch="sm_90a",
    )  # fmt: skip
    def program(X, W, Y):
        x, w, y = ptx.global_ptrs(X, W, Y)
        row = ptx.special.ctaid.x().to(u64) * (columns * 4)
        for at in ptx.range(ptx.special.tid.x(), columns, 128):
            place = at.to(u64) * 4
            ptx.store(
                ptx.addr(y + row + place), ptx.load(f32, ptx.addr(x + row + place)) * ptx.load(f32, ptx.addr(w + place))
            )

    return program


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("ctas, turns", [(132, 1), (132 * 8, 8)])
def test_ctas_find_a_small_array_that_all_of_them_read_in_the_first_level_cache(ctas, turns):
    columns = 1024
    x, w = np.zeros((ctas, columns), np.float32), np.zeros(columns, np.float32)
    recording, _ = record(_scaled(columns), x, w, out=np.zeros_like(x), registers=32)
    assert recording.fetched == pytest.approx(columns * 4 * (1 + 1 / turns))


def _counting(lines, several):
    """Atomic additions by all threads to words of so many lines: to one word of each, or to all of them."""

    @kernel(in_specs=(Tile(1, u32),), out_specs=(Tile(lines * 32, u32),), grid=(528,), block=256, arch="sm_90a")
    def program(X, Y):
        (y,) = ptx.global_ptrs(Y)
        thread = ptx.special.ctaid.x() * 256 + ptx.special.tid.x()
        for turn in range(8):
            word = (thread + turn) % lines * 32 + ((thread // lines + turn) % 32 if several else 0)
            ptx.inst.red.global_.add.u32(ptx.addr(y + word.to(u64) * 4), 1)

    return predict(program, np.zeros(1, np.uint32), out=np.zeros(lines * 32, np.uint32), registers=16)


@pytest.mark.full
def test_atomics_on_several_words_of_a_line_take_longer_turns_than_those_on_one():
    one, all_of_them = (_counting(32, several) for several in (False, True))
    assert all_of_them.bound == "atomics"
    assert all_of_them.us > 3 * one.us


@pytest.mark.full
def test_dram_waits_for_the_first_requests():
    found = _storing(1)
    read = predict(_scaled(1024), np.zeros((1056, 1024), np.float32), np.zeros(1024, np.float32), registers=32)
    assert found.us < 1056 * 256 * 16 * 4 / H200["dram_bytes_per_ns"] / 1e3 + 2.0
    start = (H200["cta_start"] + H200["dram_latency"]) / 1.98e3
    assert read.us > read.dram_bytes / H200["dram_bytes_per_ns"] / 1e3 + start


def _sums(registers_read):
    """One chain of additions and multiplications a thread, of two registers and a number or of three registers."""

    @kernel(in_specs=(Tile("N", f32),), out_specs=(Tile("N", f32),), grid=(132,), block=1024, arch="sm_90a")
    def program(X, Y):
        x, y = ptx.global_ptrs(X, Y)
        place = (ptx.special.ctaid.x() * 1024 + ptx.special.tid.x()).to(u64) * 4
        value = ptx.load(f32, ptx.addr(x + place))
        total, third = (value * 0.5).copy(), (value * 0.25).copy()
        for _ in range(512):
            ptx.inst.fma.rn.f32(total, total, value, third if registers_read == 3 else 0.25)
        ptx.store(ptx.addr(y + place), total)

    x = np.zeros(132 * 1024, np.float32)
    return predict(program, x, registers=32, clock_mhz=1980.0)


@pytest.mark.full
def test_multiplications_of_two_registers_issue_every_clock():
    two, three = (_sums(registers_read) for registers_read in (2, 3))
    more = 8 * 512 * (H200["issue_clocks"] - 1.0)
    assert three.clocks - two.clocks == pytest.approx(more, rel=0.1)


@pytest.mark.full
@pytest.mark.parametrize(
    "step, each",
    [("redux.sync.add.u32 %a{n}, %a{n}, 0xffffffff;", 16), ("min.s32 %a{n}, %a{n}, %i; min.s32 %a{n}, %a{n}, %k;", 64)],
)
def test_no_pipe_gives_more_results_a_clock_than_nvidia_says(step, each):
    """ "Arithmetic instructions" of the CUDA C++ programming guide; ptxas makes one minimum of three of two of them."""
    chains, turns, threads = 4, 300, 1024
    body = "\n".join(step.format(n=n) for n in range(chains))
    started = "\n".join(f"add.u32 %a{n}, %i, {n};" for n in range(chains))
    joined = "\n".join(f"xor.b32 %a0, %a0, %a{n};" for n in range(1, chains))
    text = f""".version 8.0
.target sm_90a
.address_size 64
.visible .entry steps(.param .u64 y)
{{
.reg .pred %p;
.reg .b32 %a<{chains}>, %i, %k;
.reg .b64 %y, %at;
ld.param.u64 %y, [y];
mov.u32 %i, %tid.x;
mov.u32 %k, 0;
{started}
again:
{body}
add.u32 %k, %k, 1;
setp.lt.u32 %p, %k, {turns};
@%p bra again;
{joined}
mul.wide.u32 %at, %i, 4;
add.u64 %y, %y, %at;
st.global.u32 [%y], %a0;
ret;
}}
"""
    found = predict(text, np.zeros(threads, np.uint32), grid=(132,), block=(threads,), clock_mhz=1980.0)
    assert found.clocks > chains * turns * threads / each
