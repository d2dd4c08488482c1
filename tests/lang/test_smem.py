"""Shared memory: layout, indexing, and descriptors of tiles."""

from __future__ import annotations

import pytest

from tests.errors import refused
from tests.lang.tools import emitted, line_of, make
from warploom.errors import ArgumentError, TraceError
from warploom.isa.shared_layout import SharedLayout
from warploom.lang import ptx, reg, smem
from warploom.types import b32, bf16, e4m3, f32, tf32, u32, u64


def test_allocations_lie_one_behind_the_other_each_aligned():
    def body():
        first = smem.array(f32, 3)
        bar = smem.mbarrier(2)
        tile = smem.wgmma_tile(bf16, (64, 64), stages=2)
        assert [first.buffer.offset, bar.buffer.offset, tile.buffer.offset] == [0, 16, 1024]
        assert tile.stage_bytes == tile.bytes == 64 * 64 * 2
        assert Trace.current().protocol.shared_bytes == 1024 + 2 * 8192

    from warploom.lang.trace import Trace

    assert ".shared .align 1024 .b8 smem[17408];" in make(body).ptx()


def test_small_memory_is_static_and_large_memory_dynamic():
    small, large = (make(lambda n=n: smem.array(f32, n) and None) for n in (12 * 1024, 12 * 1024 + 1))
    assert "b8 smem[49152];" in small.ptx() and small.program().dynamic_smem == 0
    assert ".extern .shared" in large.ptx() and large.program().dynamic_smem == 49156


def test_a_constant_index_is_part_of_the_address_and_a_register_is_calculated():
    def body():
        array = smem.array(f32, (4, 8))
        i, j = reg.scalar(u32), reg.scalar(u64)
        ptx.load(f32, array[1, 2])
        ptx.load(f32, array[i, 2])
        ptx.load(f32, array[3, j])
        ptx.load(f32, array[i])
        ptx.load(f32, array[0] + 4)

    assert [line for line in emitted(body) if line.startswith(("mad", "ld", "cvt"))] == [
        "ld.shared.f32 %f1, [smem+40];",
        "mad.lo.u32 %r2, %r1, 32, %r3;",
        "ld.shared.f32 %f2, [%r2+8];",
        "cvt.u32.u64 %r5, %rd1;",
        "mad.lo.u32 %r4, %r5, 4, %r6;",
        "ld.shared.f32 %f3, [%r4];",
        "mad.lo.u32 %r7, %r1, 32, %r3;",
        "ld.shared.f32 %f4, [%r7];",
        "ld.shared.f32 %f5, [smem+4];",
    ]


@pytest.mark.parametrize("index", [4, -5, (0, 8), (0, 0, 0), 1.0])
def test_an_index_outside_is_refused(index):
    with pytest.raises(TraceError):
        make(lambda: smem.array(f32, (4, 8))[index]).ptx()


@pytest.mark.parametrize("index", [2, -3, True, "x"])
def test_a_barrier_outside_is_refused(index):
    with pytest.raises(TraceError):
        make(lambda: smem.mbarrier(2)[index]).ptx()


@pytest.mark.parametrize("arch, limit", [("sm_80", 163 * 1024), ("sm_90", 227 * 1024), ("sm_90a", 227 * 1024)])
def test_more_shared_memory_than_the_target_has_is_refused_at_its_line(arch, limit):
    def body():
        smem.array(b32, limit // 4)
        smem.mbarrier(1)  # one too many

    with refused("shared-memory-full") as caught:
        make(body, arch=arch).ptx()
    assert caught.value.where.line == line_of("one too many", __file__)


@pytest.mark.parametrize(
    "dtype, shape, major",
    [
        (bf16, (64, 64), "K"),
        (bf16, (64, 16), "K"),
        (bf16, (16, 64), "MN"),
        (e4m3, (96, 128), "K"),
        (tf32, (48, 64), "K"),
    ],
)
def test_a_tile_of_a_stage_has_the_layouts_descriptor(dtype, shape, major):
    rows, k = shape if major == "K" else shape[::-1]
    layout = SharedLayout.for_operand(dtype, rows, k, major)

    def body():
        tile = smem.wgmma_tile(dtype, shape, major=major, stages=3)
        assert tile.layout == layout
        tile[0].descriptor()
        tile[2].descriptor()

    text = make(body).ptx()
    assert f"or.b64 %rd2, %rd1, {layout.descriptor_bits};" in text
    assert f"add.s64 %rd3, %rd2, {2 * layout.bytes >> 4};" in text


def test_slices_add_their_offset():
    layout = SharedLayout.for_operand(bf16, 128, 128, "K")

    def body():
        tile = smem.wgmma_tile(bf16, (128, 128))
        assert tile[0].k_slices == 8
        assert tile[0].k(5).offset == layout.k_offset(80)
        assert tile[0].rows(64, 64).k(1).offset == layout.row_offset(64) + layout.k_offset(16)
        assert tile[0].rows(64, 64).bytes == 64 * 128 * 2
        for i in (-1, 8, 1.0):
            with refused("trace", expected="0 to 7"):
                tile[0].k(i)
        for start, count in ((100, 64), (-8, 64), (0, 0), (0, -8), (reg.scalar(u32, init=0), 136)):
            with refused("trace", expected="0 to 127"):
                tile[0].rows(start, count)
        for width in (0, 3, 1.5):
            with refused("trace", expected="width 1 or 2"):
                tile[0].k(0, width)

    make(body).ptx()


def test_a_stage_in_a_register_means_its_value_there():
    def body():
        tile = smem.wgmma_tile(bf16, (64, 64), stages=4)
        index = reg.scalar(u32, init=1)
        stage = tile[index]
        index += 1
        stage.k(2).descriptor()

    text = emitted(body)
    assert text.index("mad.wide.u32 %rd1, %r1, 512, %rd3;") < text.index("add.u32 %r1, %r1, 1;")
    assert text[-1] == "add.s64 %rd4, %rd1, 4;"


def test_rows_may_start_at_a_register_in_k_major_tiles_only():
    def body():
        tile = smem.wgmma_tile(bf16, (128, 64))
        start = reg.scalar(u32, init=64)
        tile[0].rows(start, 64).k(1).descriptor()
        with refused("trace", got="Register(%r1: u32)"):
            smem.wgmma_tile(bf16, (64, 128), major="MN")[0].rows(start, 64)

    text = emitted(body)
    assert any(line.startswith("mad.wide.u32") and ", %r1, 8, " in line for line in text)


@pytest.mark.parametrize(
    "arguments",
    [
        {"dtype": bf16, "shape": (64, 10)},
        {"dtype": bf16, "shape": (60, 64)},
        {"dtype": e4m3, "shape": (32, 64), "major": "MN"},
        {"dtype": bf16, "shape": (64, 64), "major": "N"},
        {"dtype": bf16, "shape": (64, 16), "swizzle": "128B"},
    ],
)
def test_tiles_that_no_layout_fits_are_refused_at_the_users_line(arguments):
    def body():
        smem.wgmma_tile(**arguments)  # no layout

    with pytest.raises(ArgumentError) as caught:
        make(body).ptx()
    assert caught.value.where.line == line_of("no layout", __file__)


def test_a_name_may_be_given_and_is_taken_from_the_line_otherwise():
    def body():
        bars = smem.mbarrier(1)
        assert bars.buffer.name == "bars"
        assert smem.mbarrier(1, name="full").buffer.name == "full"
        several = [smem.mbarrier(1) for _ in range(2)]
        assert [bar.buffer.name for bar in several] == ["several", "several[1]"]

    make(body).ptx()
