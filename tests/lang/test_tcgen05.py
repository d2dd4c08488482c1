"""The author's interface for Blackwell: tensor memory, products, commits; and errors at the author's line.

The kernels are assembled for sm_100a. They have not run on hardware.
"""

from __future__ import annotations

import re

import pytest

from warploom import Tile, kernel, ptx, reg, smem, tmem
from warploom.errors import ArgumentError, TraceError, VerificationError, WarploomError
from warploom.isa import arch, instruction_descriptor, tensor_memory
from warploom.lang.emit import ptx_version
from warploom.runtime import PixelBox
from warploom.types import b128, bf16, e4m3, f16, f32, f64, s8, s32, u32

BLOCK_K = 64


def traced(body, *, target="sm_100a", cluster=(1, 1, 1), block=128):
    """The kernel whose body is a function without arguments."""

    @kernel(out_specs=(Tile(1, u32),), grid=(1, 1, 1), block=block, cluster=cluster, arch=target)
    def some(out):
        (target_pointer,) = ptx.global_ptrs(out)
        body()
        ptx.store(ptx.addr(target_pointer), reg.scalar(u32, init=0))

    return some


def lines(body, word: str, **options) -> list[str]:
    return [line.strip() for line in traced(body, **options).ptx().splitlines() if line.strip().startswith(word)]


def operands(m: int, n: int, dtype=bf16, *, group: int = 1, k: int = BLOCK_K):
    return smem.umma_tile(dtype, (m // group, k)), smem.umma_tile(dtype, (n // group, k))


def product(m=128, n=128, dtype=bf16, out=f32, *, group=1, columns=512, **options):
    """A body with one tile's products."""

    def body():
        a, b = operands(m, n, dtype, group=group)
        memory = tmem.alloc(columns, group=group)
        acc = memory.accumulator(m, n, out)
        with ptx.if_(ptx.special.tid.x() == 0):
            ptx.tcgen05.multiply(acc[0], a[0], b[0], accumulate=False, **options)
        memory.dealloc()

    return body


# -- what is emitted -----------------------------------------------------------------------------------------------


def test_one_product_for_each_slice_of_k_and_only_the_first_one_overwrites():
    found = lines(product(), "tcgen05.mma")
    assert len(found) == BLOCK_K // 16
    assert [line.rstrip(";").split(", ")[-1] for line in found] == ["0", "1", "1", "1"]


@pytest.mark.parametrize(
    ("m", "n", "dtype", "out", "group", "kind"),
    [
        (128, 256, bf16, f32, 1, "f16"), (64, 64, f16, f16, 1, "f16"), (256, 128, bf16, f32, 2, "f16"),
        (128, 96, e4m3, f32, 1, "f8f6f4"), (128, 64, s8, s32, 1, "i8"), (128, 64, f32, f32, 1, "tf32"),
    ],
)  # fmt: skip
def test_the_instruction_descriptor_follows_from_the_tiles(m, n, dtype, out, group, kind):
    cluster = (group, 1, 1)
    made = traced(product(m, n, dtype, out, group=group), cluster=cluster)
    (first, *_) = re.findall(r"tcgen05\.mma\.cta_group::(\d)\.kind::(\w+) .*?(\d{6,})", made.ptx())
    descriptor = instruction_descriptor.decode(kind, int(first[2]))
    assert (int(first[0]), first[1]) == (group, kind)
    assert (descriptor.m, descriptor.n, descriptor.d) == (m, n, out.name)
    assert made.resources().spill_stores == 0


def test_allocation_waits_for_nobody_else_and_gives_everything_back():
    found = lines(product(columns=128), "tcgen05.")
    words = [re.match(r"tcgen05\.(\w+)", line)[1] for line in found]
    assert [word for word in words if word != "mma"] == [
        "alloc",
        "relinquish_alloc_permit",
        "fence",
        "fence",
        "dealloc",
    ]
    assert found[0].endswith(", 128;") and found[-1].endswith(", 128;")


def test_a_pair_meets_before_it_allocates_and_before_it_gives_back():
    text = traced(product(256, 128, group=2), cluster=(2, 1, 1)).ptx()
    order = re.findall(r"tcgen05\.alloc|tcgen05\.dealloc|barrier\.cluster\.wait", text)
    assert order == [
        "barrier.cluster.wait", "tcgen05.alloc", "barrier.cluster.wait", "barrier.cluster.wait", "tcgen05.dealloc",
    ]  # fmt: skip


@pytest.mark.parametrize("count", [1, 2, 48, 96, 128, 200, 256])
def test_any_number_of_columns_is_loaded_in_powers_of_two_side_by_side(count):
    def body():
        acc = tmem.alloc(256).accumulator(128, 256)
        acc[0].load(0, count)

    found = [re.search(r"x(\d+)\.b32 \{(.*)\}, \[%r\d+\+?(\d*)\]", line) for line in lines(body, "tcgen05.ld")]
    pieces = [(int(each[3] or 0), int(each[1])) for each in found]
    assert sum(size for _, size in pieces) == count
    assert pieces == [(sum(size for _, size in pieces[:at]), size) for at, (_, size) in enumerate(pieces)]
    assert all(size & size - 1 == 0 and size <= 128 for _, size in pieces)
    registers = [name for each in found for name in each[2].split(", ")]
    assert len(set(registers)) == count


def test_an_address_may_be_the_register_that_alloc_s_word_was_read_into():
    def body():
        slot = smem.array(u32, 1)
        ptx.tcgen05.alloc(slot[0], 64)
        base = ptx.load(u32, slot[0])
        ptx.tcgen05.st(base, list(ptx.tcgen05.ld(base, 48)))
        ptx.tcgen05.dealloc(base, 64)

    (loaded,) = {re.search(r"\[(%r\d+)\]", line)[1] for line in lines(body, "tcgen05.ld") if "+" not in line}
    assert [line.split("[")[1].split("]")[0] for line in lines(body, "tcgen05.st")] == [loaded, f"{loaded}+32"]


def test_two_columns_of_an_f16_accumulator_share_a_register():
    def body():
        acc = tmem.alloc(64).accumulator(128, 64, f16)
        fragment = acc[0].load()
        assert len(fragment) == 32
        acc[0].store(fragment.registers)

    (load,), (store,) = lines(body, "tcgen05.ld"), lines(body, "tcgen05.st")
    assert ".x32.pack::16b.b32" in load and ".x32.unpack::16b.b32" in store


@pytest.mark.parametrize(
    ("m", "group", "ws", "layout", "width", "shape"),
    [
        (128, 1, False, "D", 64, "32x32b"), (64, 1, False, "F", 32, "16x32bx2"), (256, 2, False, "A", 64, "32x32b"),
        (128, 2, False, "B", 32, "32x32b"), (64, 1, True, "E", 32, "32x32b"), (32, 1, True, "G", 16, "32x32b"),
    ],
)  # fmt: skip
def test_a_thread_s_columns_follow_from_the_layout(m, group, ws, layout, width, shape):
    def body():
        acc = tmem.alloc(64, group=group).accumulator(m, 64, ws=ws)
        assert acc.path.name == layout and acc[0].width == width
        assert len(acc[0].load()) == width

    assert [line.split(".")[4] for line in lines(body, "tcgen05.ld", cluster=(group, 1, 1))] == [shape]


def test_a_buffer_in_a_register_is_computed_from_the_allocation_s_address():
    def body():
        acc = tmem.alloc(512).accumulator(128, 256, buffers=2)
        turn = reg.scalar(u32, init=1)
        ptx.tcgen05.multiply(acc[turn], *(tile[0] for tile in operands(128, 256)), accumulate=False)

    assert any("mad.lo.u32" in line and ", 256, " in line for line in lines(body, "mad.lo"))


def test_a_commit_may_signal_several_ctas():
    def body():
        bars = smem.mbarrier(2)
        ptx.tcgen05.commit(bars[0])
        ptx.tcgen05.commit(bars[1], group=1, multicast=3)

    single, several = lines(body, "tcgen05.commit", cluster=(2, 1, 1))
    assert ".multicast::cluster" in several and several.count(",") == 1
    assert ".multicast::cluster" not in single


def test_a_box_may_signal_the_other_cta_of_the_pair():
    @kernel(in_specs=(Tile(64, 64, bf16, box=(64, 16)),), grid=1, block=32, cluster=(2, 1, 1), arch="sm_100a")
    def some(A):
        box, full = smem.array(bf16, (16, 64), align=128), smem.mbarrier(1)
        bar = ptx.cluster.leader_of(full[0])
        ptx.cp.async_.bulk.tensor_2d(box[0, 0], A.tma_desc(), (0, 0), bar, multicast=3, group=2)

    assert ".multicast::cluster.cta_group::2 " in some.ptx()


def test_cluster_launch_control_reads_an_answer_of_16_bytes():
    def body():
        answer, bars = smem.array(b128, 1), smem.mbarrier(1)
        ptx.clusterlaunchcontrol.try_cancel(answer[0], bars[0])
        response = ptx.clusterlaunchcontrol.response(answer[0])
        with ptx.if_(ptx.clusterlaunchcontrol.is_canceled(response)):
            x, y, z = ptx.clusterlaunchcontrol.first_ctaid(response)

    made = traced(body)
    assert len(re.findall(r"clusterlaunchcontrol\.query_cancel", made.ptx())) == 4
    assert made.resources().spill_stores == 0


def test_the_protocol_lists_the_columns_and_who_completes_a_barrier():
    def body():
        memory = tmem.alloc(512)
        acc = memory.accumulator(128, 128, buffers=2)
        factors = memory.scales(128, blocks=2)
        bars = smem.mbarrier(1)
        ptx.tcgen05.commit(bars[0])
        assert (acc.start, factors.start) == (0, 256)

    protocol = traced(body).built().protocol
    found = [(item.name, item.start, item.columns, item.buffers) for item in protocol.columns]
    assert found == [("acc", 0, 128, 2), ("factors", 256, 8, 1)]
    assert protocol.allocated == 512
    assert {"tcgen05 commit"} == set.union(*(barrier.completed_by for barrier in protocol.barriers.values()))
    assert "layout D, 2 buffers of 128" in protocol.to_text()


def test_texts_for_blackwell_name_a_version_that_has_it():
    assert ptx_version(arch.get("sm_90a")) == (8, 7)
    assert ptx_version(arch.get("sm_100a")) == (8, 8)
    assert ptx_version(arch.get("sm_110a")) == (9, 0)


def test_mn_major_tiles_may_have_elements_of_8_bits():
    def body():
        a, b = smem.umma_tile(e4m3, (BLOCK_K, 128), "MN"), smem.umma_tile(e4m3, (BLOCK_K, 128), "MN")
        acc = tmem.alloc(128).accumulator(128, 128)
        ptx.tcgen05.multiply(acc[0], a[0], b[0], accumulate=False)

    (first, _) = lines(body, "tcgen05.mma")
    descriptor = instruction_descriptor.decode("f8f6f4", int(re.search(r"(\d{6,})", first)[1]))
    assert descriptor.mn_major_a and descriptor.mn_major_b


def test_a_may_stand_in_tensor_memory_eight_columns_for_each_slice():
    def body():
        memory = tmem.alloc(256)
        acc, left = memory.accumulator(128, 64), memory.matrix_a(BLOCK_K, bf16)
        _, b = operands(128, 64)
        ptx.tcgen05.multiply(acc[0], left[0], b[0], accumulate=False)

    found = [int(re.findall(r"\[%r\d+\+?(\d*)\]", line)[1] or 0) for line in lines(body, "tcgen05.mma")]
    assert found == [64, 72, 80, 88]


# -- what is refused -----------------------------------------------------------------------------------------------


def refusal(body, kind=TraceError, **options) -> WarploomError:
    with pytest.raises(kind) as caught:
        traced(body, **options).ptx()
    assert caught.value.where.file.endswith("test_tcgen05.py")
    return caught.value


def test_a_target_without_tensor_memory_is_told_the_row_and_the_target():
    for target in ("sm_90a", "sm_100", "sm_120a"):
        error = refusal(lambda: tmem.alloc(32), VerificationError, target=target)
        assert "tcgen05.alloc" in error.what and target in error.what


def test_int8_is_not_for_blackwell_ultra():
    error = refusal(product(128, 64, s8, s32), VerificationError, target="sm_103a")
    assert "kind::i8" in error.what and "sm_103a" in error.what


@pytest.mark.parametrize("columns", [0, 16, 96, 1024])
def test_an_allocation_that_no_sm_makes_is_refused(columns):
    error = refusal(lambda: tmem.alloc(columns))
    assert (error.got, error.code) == (columns, "tensor-memory-full")


def test_columns_beyond_the_allocation_are_refused_with_what_is_left():
    def body():
        memory = tmem.alloc(512)
        memory.accumulator(128, 256)
        memory.accumulator(128, 256, buffers=2)

    error = refusal(body)
    assert error.code == "tensor-memory-full"
    assert "256" in str(error.expected) and "512" in str(error.got)


@pytest.mark.parametrize(
    ("second", "relinquish", "code"),
    [(32, False, "tensor-memory-full"), (32, True, "trace"), (512, False, "tensor-memory-full")],
)
def test_a_second_allocation_finds_room_and_the_permit_or_is_refused(second: int, relinquish: bool, code: str):
    def body():
        tmem.alloc(512, relinquish=relinquish)
        tmem.alloc(second)

    assert refusal(body).code == code


def test_an_allocation_that_has_been_freed_leaves_room():
    def body():
        first = tmem.alloc(512, relinquish=False)
        first.dealloc()
        tmem.alloc(512).dealloc()

    assert traced(body).ptx().count("tcgen05.alloc.") == 2


@pytest.mark.parametrize(
    ("m", "n", "dtype", "out", "group"),
    [(256, 48, s8, s32, 2), (64, 64, bf16, f32, 2), (256, 64, bf16, f32, 1), (128, 40, s8, s32, 1)],
    ids=["n of a pair", "m of a pair", "m of one CTA", "n of int8"],
)
def test_a_shape_that_the_kind_does_not_have_is_refused(m, n, dtype, out, group):
    assert refusal(product(m, n, dtype, out, group=group), cluster=(group, 1, 1)).code == "matrix-shape"


@pytest.mark.parametrize(
    ("rows", "dtype", "major", "told"),
    [
        (100, bf16, "K", (".kind::f16", "m 64 or 128", "m 128 or 256")),
        (12, s8, "K", (".kind::i8", "n 8, 16, 24, 32, 48 ... 256", "n 32 to 256 in steps of 32")),
        (100, e4m3, "MN", (".kind::f8f6f4", ".kind::mxf8f6f4", "n 8 to 256 in steps of 8")),
    ],
)
def test_a_tile_of_rows_that_no_product_has_names_the_kinds_and_their_shapes(rows, dtype, major, told):
    shape = (rows, 64) if major == "K" else (64, rows)
    hint = refusal(lambda: smem.umma_tile(dtype, shape, major=major), ArgumentError).hint
    assert [each for each in told if each not in hint] == []


@pytest.mark.parametrize(
    ("m", "n", "out", "kinds"),
    [(100, 32, f32, ("f16", "mxf4nvf4")), (128, 12, f32, ("f16", "tf32")), (128, 40, s32, ("i8",))],
)
def test_an_accumulator_of_no_product_names_the_kinds_of_its_type_and_their_shapes(m, n, out, kinds):
    error = refusal(lambda: tmem.alloc(512).accumulator(m, n, out))
    assert (error.code, error.got) == ("matrix-shape", f"m {m}, n {n}")
    assert [kind for kind in kinds if f".kind::{kind}" not in str(error.expected)] == []


@pytest.mark.parametrize(("dtype", "out"), [(bf16, f16), (s8, f32), (e4m3, s32)])
def test_a_type_of_d_that_the_kind_does_not_have_is_refused(dtype, out):
    assert refusal(product(128, 64, dtype, out)).code == "matrix-shape"


@pytest.mark.parametrize(("box", "rows"), [((8, 1), (0, 1, 2)), ((8, 2), (0, 1, 2, 3))], ids=["three rows", "the box"])
def test_a_gather_takes_four_rows_and_a_box_of_one(box, rows):
    @kernel(out_specs=(Tile(16, 8, u32, box=box),), grid=(1, 1, 1), block=32, arch="sm_100a")
    def scatters(out):
        ptx.cp.async_.bulk.scatter4(out.tma_desc(), smem.array(u32, 32, align=128)[0], 0, rows)

    with pytest.raises(TraceError) as caught:
        scatters.ptx()
    assert caught.value.code == "trace" and str(caught.value.got) in ("4", "out: Tile(16, 8, u32), box (8, 2)")


@pytest.mark.parametrize(
    ("pixels", "box", "offsets", "expected"),
    [
        (PixelBox((0,), (0,), "im2col::w"), (16, 8), (0, 0, 0), "(halo, offset)"),
        (PixelBox((0,), (0,)), (16, 8), (0, 0), "one per spatial dimension"),
        (None, (16, 8, 1), (0,), "Tile(..., box=(channels, pixels), pixels=PixelBox(...))"),
    ],
    ids=["along W", "im2col", "tiles"],
)
def test_a_column_of_pixels_takes_the_offsets_of_its_mode(pixels, box, offsets, expected):
    @kernel(
        out_specs=(Tile(4, 32, 16, u32, box=box, swizzle="64B", pixels=pixels),), grid=1, block=32, arch="sm_100a",
    )  # fmt: skip
    def columns(out):
        bar = smem.mbarrier(1)[0]
        ptx.cp.async_.bulk.im2col(smem.array(u32, 256, align=1024)[0], out.tma_desc(), (0, 0, 0), offsets, bar)

    with pytest.raises(TraceError) as caught:
        columns.ptx()
    assert (caught.value.code, caught.value.expected) == ("trace", expected)


@pytest.mark.parametrize(
    ("mode", "box", "code"),
    [("im2col::v", (16, 8), "kernel-declaration"), ("im2col", (16, 8, 1), "kernel-declaration")],
)
def test_a_box_of_pixels_that_no_map_can_have_is_refused_where_it_is_declared(mode, box, code):
    with pytest.raises(TraceError) as caught:

        @kernel(out_specs=(Tile(4, 32, 16, u32, box=box, pixels=PixelBox((0,), (0,), mode)),), grid=1, block=32)
        def columns(out):
            pass

    assert caught.value.code == code


@pytest.mark.parametrize(
    ("rows", "cells", "options", "code", "got"),
    [
        (128, False, {}, "trace", None), (64, True, {}, "trace", "64"), (128, True, {"ws": True}, "trace", ".ws"),
        (128, True, {"collector": "fill"}, "target-lacks-it", None), (128, True, {"ashift": 1}, "trace", "1"),
    ],
    ids=["shared memory", "64 rows", ".ws", "the collector", "1"],
)  # fmt: skip
def test_only_128_rows_in_tensor_memory_are_moved(rows, cells, options, code, got):
    def body():
        memory = tmem.alloc(128)
        a, b = operands(rows, 64)
        a = memory.matrix_a(16, bf16)[0] if cells else a[0].k(0)
        ptx.tcgen05.mma(memory.accumulator(rows, 64)[0], a, b[0].k(0), **{"ashift": True, **options})

    error = refusal(body, WarploomError)
    assert error.code == code and got in (None, str(error.got))


def test_an_odd_cluster_has_no_pairs():
    error = refusal(product(256, 64, group=2), cluster=(3, 1, 1))
    assert (error.code, error.got) == ("trace", "cluster=(3, 1, 1)")


def test_a_tile_of_hopper_is_not_an_operand_of_blackwell_and_the_other_way_round():
    def newer():
        acc = tmem.alloc(64).accumulator(128, 64)
        ptx.tcgen05.mma(acc[0], smem.wgmma_tile(bf16, (128, 16))[0], smem.wgmma_tile(bf16, (64, 16))[0])

    def older():
        tile = smem.umma_tile(bf16, (64, 16))
        ptx.wgmma.mma_async(
            shape=(64, 64, 16), dtype_d=f32, dtype_a=bf16, dtype_b=bf16, d=reg.array(f32, 32), a=tile[0], b=tile[0]
        )

    assert "umma_tile" in str(refusal(newer).expected)
    assert "wgmma_tile" in str(refusal(older, target="sm_90a").expected)


def test_operands_of_another_extent_are_refused():
    def body():
        acc = tmem.alloc(64).accumulator(128, 64)
        a, b = operands(128, 64)
        ptx.tcgen05.mma(acc[0], a[0], b[0])  # four instructions deep

    assert refusal(body).expected == "128 x 16"


@pytest.mark.parametrize("deep_a", [32, 64])
def test_a_and_b_of_another_depth_are_refused(deep_a):
    """Half of k would be left out without a word."""

    def body():
        acc = tmem.alloc(64).accumulator(128, 64)
        a, b = smem.umma_tile(bf16, (128, deep_a), name="a"), smem.umma_tile(bf16, (64, 96 - deep_a), name="b")
        ptx.tcgen05.multiply(acc[0], a, b)

    error = refusal(body)
    assert error.code == "matrix-shape" and error.got == f"{deep_a} of a"


def test_sums_of_integers_are_not_divided():
    def body():
        acc = tmem.alloc(64).accumulator(128, 32, s32)
        a, b = operands(128, 32, s8)
        ptx.tcgen05.mma(acc[0], a[0].k(0), b[0].k(0), scale_d=2)

    assert refusal(body).got == "scale_d=2"


@pytest.mark.parametrize("move", ["ld", "st"])
@pytest.mark.parametrize("shape", ["8x8b", "16x32bx2"])
def test_registers_move_in_shapes_that_there_are(move, shape):
    def body():
        acc = tmem.alloc(64).accumulator(128, 64)
        if move == "ld":
            ptx.tcgen05.ld(acc[0], 4, shape=shape)
        else:
            ptx.tcgen05.st(acc[0], [reg.scalar(f32, init=0.0)], shape=shape)

    assert refusal(body).got == shape


def test_scale_factors_belong_to_the_kinds_that_have_them():
    def without():
        memory = tmem.alloc(64)
        factors = memory.scales(128)
        a, b = operands(128, 32)
        scales = ptx.tcgen05.Scales(factors[0], factors[0])
        ptx.tcgen05.mma(memory.accumulator(128, 32)[0], a[0].k(0), b[0].k(0), kind="f16", scales=scales)

    def missing():
        a, b = operands(128, 64, e4m3)
        ptx.tcgen05.mma(tmem.alloc(64).accumulator(128, 64)[0], a[0].k(0), b[0].k(0), kind="mxf8f6f4")

    refusal(without)
    assert "scales" in str(refusal(missing).expected)


@pytest.mark.parametrize(
    ("rows_a", "rows_b", "got"),
    [(64, 64, "scale factors of 64"), (128, 32, "scale factors of 32"), (128, 64, ""), (256, 96, "")],
)
def test_scale_factors_of_fewer_rows_than_the_product_has_are_refused(rows_a, rows_b, got):
    def body():
        memory = tmem.alloc(256)
        acc, a, b = memory.accumulator(128, 64), smem.umma_tile(e4m3, (128, 128)), smem.umma_tile(e4m3, (64, 128))
        of_a, of_b = memory.scales(rows_a, blocks=2), memory.scales(rows_b, buffers=2)
        scales = ptx.tcgen05.Scales(of_a[0] + 4, of_b[ptx.special.tid.x() & 1])
        ptx.tcgen05.mma(acc[0], a[0].k(0), b[0].k(0), scales=scales)

    if got:
        error = refusal(body)
        assert (error.code, error.got) == ("matrix-shape", got)
    else:
        traced(body).ptx()


@pytest.mark.parametrize(
    "options",
    [
        {"scales": (1, 2)}, {"metadata": 3}, {"lanes": 5}, {"lanes": [1, 2, 3, 4]}, {"negate": True},
        {"negate": (True,)}, {"collector": 3}, {"ws": "yes"}, {"accumulate": 1}, {"idesc": "f16"}, {"scale_d": "1"},
        {"selector": None},
    ],
    ids=str,
)  # fmt: skip
def test_options_of_other_types_are_refused_in_words(options):
    def body():
        a, b = operands(128, 64)
        ptx.tcgen05.mma(tmem.alloc(64).accumulator(128, 64)[0], a[0].k(0), b[0].k(0), **options)

    assert refusal(body).code == "trace"


def test_factors_are_an_address_and_an_accumulator_has_a_type_of_sums():
    def unindexed():
        memory = tmem.alloc(256)
        factors = memory.scales(128)
        a, b = operands(128, 64, e4m3)
        scales = ptx.tcgen05.Scales(factors, factors)
        ptx.tcgen05.mma(memory.accumulator(128, 64)[0], a[0].k(0), b[0].k(0), scales=scales)

    assert "factors[0]" in refusal(unindexed).hint
    error = refusal(lambda: tmem.alloc(32).accumulator(128, 32, f64))
    assert (error.code, error.got) == ("matrix-shape", "f64")


def test_an_operand_that_the_target_lacks_is_not_taken_for_the_instruction():
    """sm_110a multiplies f16, but does not divide D."""

    def body():
        a, b = operands(128, 64)
        ptx.tcgen05.mma(tmem.alloc(64).accumulator(128, 64)[0], a[0].k(0), b[0].k(0), scale_d=1)

    some, none = (refusal(body, VerificationError, target=target) for target in ("sm_110a", "sm_90a"))
    assert some.what.removesuffix("sm_110a") != none.what.removesuffix("sm_90a")


def test_an_accumulator_is_indexed_and_its_memory_opened():
    def whole():
        a, b = operands(128, 64)
        ptx.tcgen05.mma(tmem.alloc(64).accumulator(128, 64), a[0].k(0), b[0].k(0))

    def closed():
        memory = tmem.reserve(64)
        memory.accumulator(128, 64)[0].load()

    assert "acc[0]" in str(refusal(whole).hint)
    assert "open()" in str(refusal(closed).hint)


def test_whole_products_take_stages_and_say_what_to_index():
    """A ring passed whole is its stage 0, as for wgmma; parts of it or an accumulator are of one stage or buffer."""

    def whole():
        a, b = operands(128, 64)
        ptx.tcgen05.multiply(tmem.alloc(64).accumulator(128, 64)[0], a, b, accumulate=False)

    def hopper():
        a, b = operands(128, 64)
        tile = smem.wgmma_tile(bf16, (64, 64))
        ptx.tcgen05.multiply(tmem.alloc(64).accumulator(128, 64)[0], a, tile)

    assert len(lines(whole, "tcgen05.mma")) == BLOCK_K // 16
    assert "umma_tile" in str(refusal(hopper).expected)
    assert "acc[0].load" in str(refusal(lambda: tmem.alloc(64).accumulator(128, 64).load()).hint)
    assert "tile[0].k" in str(refusal(lambda: operands(128, 64)[0].k(0)).hint)


def test_columns_that_a_thread_does_not_have_are_refused():
    refusal(lambda: tmem.alloc(64).accumulator(128, 64)[0].load(32, 64))
    refusal(lambda: tmem.alloc(64).accumulator(64, 64)[0].load(0, 64))


# -- the map after it -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", tensor_memory.DATA_PATHS, ids=lambda path: path.name)
def test_every_element_of_an_accumulator_has_a_cell_of_its_own(path):
    n = 64
    cells = {path.place(row, column, n) for row in range(path.m) for column in range(n)}
    assert len(cells) == path.m * n
    assert {cta for cta, _, _ in cells} == set(range(path.group))
    assert max(lane for _, lane, _ in cells) < tensor_memory.LANES
    assert {column for _, _, column in cells} == set(range(path.columns(n)))


def test_layouts_follow_from_rows_group_and_variant():
    for (m, group, options), name in {
        (256, 2, ()): "A", (128, 2, ()): "B", (128, 2, ("sparse",)): "C", (128, 1, ()): "D", (128, 1, ("ws",)): "D",
        (64, 1, ("ws",)): "E", (64, 1, ()): "F", (32, 1, ("ws",)): "G",
    }.items():  # fmt: skip
        assert tensor_memory.data_path(m, group, **dict.fromkeys(options, True)).name == name
    with pytest.raises(ArgumentError):
        tensor_memory.data_path(32)


# -- arguments of another kind ---------------------------------------------------------------------------------------

WRONG = ("pair", 1.5, [1], {"a": 1})
CALLS = {
    "m of accumulator": lambda it, v: it.memory.accumulator(v, 64),
    "n of accumulator": lambda it, v: it.memory.accumulator(128, v),
    "ws of accumulator": lambda it, v: it.memory.accumulator(128, 64, ws=v),
    "columns of tile": lambda it, v: it.memory.tile(v),
    "k of matrix_a": lambda it, v: it.memory.matrix_a(v, bf16),
    "dtype of matrix_a": lambda it, v: it.memory.matrix_a(64, v),
    "rows of scales": lambda it, v: it.memory.scales(v),
    "blocks of scales": lambda it, v: it.memory.scales(128, blocks=v),
    "warp of dealloc": lambda it, v: it.memory.dealloc(warp=v),
    "columns of alloc": lambda it, v: tmem.alloc(v),
    "relinquish of alloc": lambda it, v: tmem.alloc(32, relinquish=v),
    "start of load": lambda it, v: it.acc[0].load(v),
    "count of load": lambda it, v: it.acc[0].load(0, v),
    "values of store": lambda it, v: it.acc[0].store(v),
    "address of ld": lambda it, v: ptx.tcgen05.ld(v, 8),
    "count of ld": lambda it, v: ptx.tcgen05.ld(it.acc[0], v),
    "address of st": lambda it, v: ptx.tcgen05.st(v, it.acc[0].load(0, 8).registers),
    "multicast of cp": lambda it, v: ptx.tcgen05.cp(it.acc[0], it.a[0], multicast=v),
    "accumulate of mma": lambda it, v: ptx.tcgen05.multiply(it.acc[0], it.a, it.b, accumulate=v),
    "multicast of commit": lambda it, v: ptx.tcgen05.commit(it.bar[0], multicast=v),
    "response": lambda it, v: ptx.clusterlaunchcontrol.is_canceled(v),
    "shape of umma_tile": lambda it, v: smem.umma_tile(bf16, v),
    "dtype of umma_tile": lambda it, v: smem.umma_tile(v, (128, 64)),
    "columns further": lambda it, v: it.acc[0] + v,
}


class Things:
    """What calls work on."""

    def __init__(self) -> None:
        self.a, self.b = operands(128, 64)
        self.memory = tmem.alloc(256, relinquish=False)
        self.acc = self.memory.accumulator(128, 64)
        self.bar = smem.mbarrier(1)


@pytest.mark.parametrize("what", CALLS)
def test_an_argument_of_another_kind_is_refused_at_its_line(what):
    for wrong in (*WRONG, object()):
        if isinstance(wrong, (str, list)) and what in ("multicast of cp", "values of store", "shape of umma_tile"):
            continue  # of the right kind, and refused for what it says
        refusal(lambda wrong=wrong: CALLS[what](Things(), wrong), WarploomError)


@pytest.mark.parametrize(
    "body",
    [
        lambda it: tmem.alloc(32, warp=4), lambda it: tmem.alloc(32, warp=-1), lambda it: it.memory.dealloc(warp=4),
        lambda it: ptx.tcgen05.commit(it.bar[0], multicast=0), lambda it: ptx.tcgen05.commit(it.bar[0], multicast=2),
        lambda it: it.memory.accumulator(128, 64, None), lambda it: smem.umma_tile(None, (128, 64)),
    ],
)  # fmt: skip
def test_what_the_launch_does_not_have_is_refused_while_it_is_traced(body):
    """Warps beyond the block, CTAs beyond the cluster, no type at all: the kernel would wait forever, or read f64."""
    refusal(lambda: body(Things()), WarploomError)
