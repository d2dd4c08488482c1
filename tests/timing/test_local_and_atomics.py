"""Local memory: the same word of a warp's threads is one line, and stays in L1 if there is room. Atomics: which mix the
words of a line, and which take turns."""

import numpy as np
import pytest

from warploom.lang import Tile, kernel, ptx
from warploom.runtime.on_clock import predict, record
from warploom.runtime.program import Program
from warploom.timing import H200
from warploom.types import f32, u32, u64

TEXT = """.version 9.0
.target sm_90a
.address_size 64
.visible .entry kept(.param .u64 out) .maxntid 128, 1, 1
{{
    .local .align 4 .b8 words[{size}];
    .reg .b32 %r<6>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mov.u32 %r4, %ctaid.x;
    and.b32 %r2, %r1, {mask};
    mov.u64 %rd2, words;
    mul.wide.u32 %rd3, %r2, 4;
    add.s64 %rd4, %rd2, %rd3;
    st.local.u32 [%rd4], %r1;
    ld.local.u32 %r3, [%rd4];
    mad.lo.u32 %r5, %r4, 128, %r1;
    mul.wide.u32 %rd5, %r5, 4;
    add.s64 %rd6, %rd1, %rd5;
    st.global.u32 [%rd6], %r3;
    ret;
}}
"""


def local_accesses(size, mask, grid=132):
    program = Program.from_text(TEXT.format(size=size, mask=mask), entry="kept", grid=(grid, 1, 1), block=(128, 1, 1))
    found, _ = record(program, np.zeros(grid * 128, np.uint32), registers=32)
    return found, [one for run in found.runs for one in run.accesses if one is not None and one.space == "local"][:2]


@pytest.mark.parametrize(("mask", "lines"), [(0, 1), (7, 8), (31, 32)])
def test_a_warp_passes_once_for_each_word_that_its_threads_name(mask, lines):
    _, accesses = local_accesses(128, mask)
    assert [one.wavefronts for one in accesses] == [lines, lines]


def test_it_stays_in_l1_if_there_is_room_and_goes_to_l2_if_not():
    few, accesses = local_accesses(64, 0)
    assert [one.missed for one in accesses] == [0, 0]
    many, accesses = local_accesses(4096, 0)
    assert [one.missed for one in accesses] == [4, 4]
    assert many.stored - few.stored == 4 * 4 * 32


@pytest.mark.parametrize(("second", "mixed"), [(0, 0.0), (1, 1 / 8), (8, 1.0)])
def test_atomics_mix_the_words_of_a_line_as_often_as_one_follows_another(second, mixed):
    """Eight updates of a word, and as many of `second` of its neighbour, after the others or in turns."""

    @kernel(in_specs=(Tile("N", u32),), out_specs=(Tile(64, u32),), grid=(8,), block=32, arch="sm_90a")
    def counted(X, Y):
        x, y = ptx.global_ptrs(X, Y)
        with ptx.if_(ptx.special.tid.x() == 0):
            for turn in range(8):
                ptx.inst.red.global_.add.u32(ptx.addr(y), 1)
                if second == 8 or second and turn == 7:
                    ptx.inst.red.global_.add.u32(ptx.addr(y, 4), 1)

    found, _ = record(counted, np.zeros(64, np.uint32), out=np.zeros(64, np.uint32), registers=32)
    assert found.shared_updates.mixed == pytest.approx(mixed)


@pytest.mark.parametrize(("dtype", "words", "each"), [(f32, 1, 32), (f32, 32, 1), (u32, 1, 0)])
def test_additions_of_floats_to_one_word_are_counted(dtype, words, each):
    @kernel(in_specs=(Tile("N", dtype),), out_specs=(Tile(words, dtype),), grid=(8,), block=32, arch="sm_90a")
    def added(X, Y):
        x, y = ptx.global_ptrs(X, Y)
        lane = ptx.special.tid.x()
        value = ptx.load(dtype, ptx.addr(x + lane.to(u64) * 4))
        ptx.inst(f"red.global.add.{dtype.name}", ptx.addr(y + (lane % words).to(u64) * 4), value)

    found, _ = record(added, np.zeros(64, dtype.numpy), out=np.zeros(words, dtype.numpy), registers=32)
    assert found.piled == each


def test_a_wave_that_adds_floats_to_one_word_at_its_end_waits_for_them():
    def added(words):
        @kernel(in_specs=(Tile("N", f32),), out_specs=(Tile(words, f32),), grid=(1056,), block=256, arch="sm_90a")
        def program(X, Y):
            x, y = ptx.global_ptrs(X, Y)
            place = (ptx.special.ctaid.x() * 256 + ptx.special.tid.x()) % words
            ptx.inst.red.global_.add.f32(ptx.addr(y + place.to(u64) * 4), ptx.load(f32, ptx.addr(x)))

        return program

    x = np.zeros(64, np.float32)
    one, many = (predict(added(words), x, out=np.zeros(words, np.float32), registers=32) for words in (1, 1 << 16))
    all_lanes = 1056 * 256 * H200["update_float_ns"] / 1e3
    assert one.us == pytest.approx(all_lanes, rel=0.2)
    assert many.us < 0.1 * one.us
