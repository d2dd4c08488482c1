"""wgmma, its operands, and every wrong use of them."""

from __future__ import annotations

import pytest

from tests.errors import refused
from tests.lang.tools import line_of, make, statements
from warploom.errors import TraceError
from warploom.lang import Tile, kernel, ptx, reg, smem
from warploom.types import b32, bf16, e4m3, f16, f16x2, f32, s8, s32, tf32, u32, u64


def multiply(**changes: object):
    """The body of a kernel with one m64n64k16 wgmma, some arguments changed."""

    def body():
        arguments = {
            "shape": (64, 64, 16), "dtype_d": f32, "dtype_a": bf16, "dtype_b": bf16,
            "d": lambda: reg.array(f32, 32),
            "a": lambda: smem.wgmma_tile(bf16, (64, 16)),
            "b": lambda: smem.wgmma_tile(bf16, (16, 64), major="MN"),
            **changes,
        }  # fmt: skip
        arguments = {name: value() if callable(value) else value for name, value in arguments.items()}
        ptx.wgmma.fence()
        ptx.wgmma.mma_async(**arguments)  # the wgmma
        ptx.wgmma.commit_group()
        ptx.wgmma.wait_group(0)

    return make(body, block=128)


def opcode(kernel) -> str:
    """The wgmma of a kernel, accumulators left out."""
    (line,) = [line for line in statements(kernel) if line.startswith("wgmma.mma_async")]
    return line.partition(" ")[0] + line.rpartition("}")[2]


def test_majors_become_the_transpose_bits():
    assert opcode(multiply()).endswith(", 1, 1, 0, 1;")
    k_major = {"b": lambda: smem.wgmma_tile(bf16, (64, 16))}
    assert opcode(multiply(**k_major)).endswith(", 1, 1, 0, 0;")


@pytest.mark.parametrize(
    "changes",
    [
        {"scale_d": False},
        {"scale_d": lambda: reg.predicate(True)},
        {"scale_a": -1, "scale_b": -1},
        {"dtype_d": f16, "dtype_a": f16, "dtype_b": f16, "d": lambda: reg.array(f16x2, 16),
         "a": lambda: smem.wgmma_tile(f16, (64, 16)), "b": lambda: smem.wgmma_tile(f16, (64, 16))},
        {"a": lambda: reg.array(b32, 4)},
        {"a": lambda: reg.scalar(u64), "trans_a": 1},
        {"shape": (64, 64, 8), "dtype_a": tf32, "dtype_b": tf32,
         "a": lambda: smem.wgmma_tile(tf32, (64, 8)), "b": lambda: smem.wgmma_tile(tf32, (64, 8))},
        {"shape": (64, 64, 32), "dtype_a": e4m3, "dtype_b": e4m3,
         "a": lambda: smem.wgmma_tile(e4m3, (64, 32)), "b": lambda: smem.wgmma_tile(e4m3, (64, 32))},
        {"shape": (64, 64, 32), "dtype_d": s32, "dtype_a": s8, "dtype_b": s8, "d": lambda: reg.array(s32, 32),
         "a": lambda: smem.wgmma_tile(s8, (64, 32)), "b": lambda: smem.wgmma_tile(s8, (64, 32))},
        {"shape": (64, 256, 16), "d": lambda: reg.array(f32, 128), "b": lambda: smem.wgmma_tile(bf16, (256, 16))},
    ],
)  # fmt: skip
def test_every_kind_of_wgmma_assembles(changes, assembles):
    assembles(multiply(**changes))


@pytest.mark.parametrize(
    "changes, complaint",
    [
        ({"shape": (64, 250, 16)}, ("trace", "250")),
        ({"shape": (128, 64, 16)}, ("trace", "(128, 64, 16)")),
        ({"shape": (64, 64, 32)}, ("trace", "(64, 64, 32)")),
        ({"d": lambda: reg.array(f32, 16)}, ("trace", "RegisterArray(16 x f32: %f1..%f16)")),
        ({"d": lambda: reg.array(u32, 32)}, ("trace", "RegisterArray(32 x u32: %r1..%r32)")),
        ({"dtype_d": bf16}, ("trace", "bf16")),
        ({"trans_b": 0}, ("trace", "0")),
        ({"trans_a": 1}, ("trace", "1")),
        ({"trans_a": 2}, ("trace", "2")),
        ({"scale_a": 2}, ("trace", "2")),
        ({"scale_d": lambda: reg.scalar(u32)}, ("trace", "Register(%r1: u32)")),
        ({"a": lambda: reg.array(b32, 4), "trans_a": 1}, ("trace", "trans_a=1")),
        ({"a": lambda: smem.wgmma_tile(f16, (64, 16))}, ("trace", "bf16")),
        ({"a": lambda: smem.wgmma_tile(bf16, (64, 64))}, ("trace", "64 x 64 of tile")),
        ({"b": lambda: smem.wgmma_tile(bf16, (16, 128), major="MN")}, ("trace", "128 x 16 of tile")),
        ({"b": lambda: reg.array(b32, 4)}, ("trace", "RegisterArray(4 x b32: %r1..%r4)")),
        ({"a": lambda: reg.scalar(u32)}, ("trace", "Register(%r1: u32)")),
    ],
)
def test_misuse_is_refused_at_its_line(changes, complaint):
    with refused(*complaint) as caught:
        multiply(**changes).ptx()
    assert caught.value.where.line == line_of("the wgmma", __file__)


def test_a_whole_tile_that_is_too_deep_says_how_to_cut_it():
    with refused("trace", got="64 x 64 of tile") as caught:
        multiply(a=lambda: smem.wgmma_tile(bf16, (64, 64))).ptx()
    assert ".k(i)" in str(caught.value)


# -- tiles of arguments against tiles in shared memory -----------------------------------------------------------------


@pytest.mark.parametrize(
    "rows, k, major", [(64, 16, "K"), (64, 64, "K"), (128, 128, "K"), (64, 16, "MN"), (128, 64, "MN")]
)
def test_an_operands_tensor_map_has_the_box_and_swizzle_of_its_shared_tile(rows, k, major):
    stored = (rows, k) if major == "K" else (k, rows)
    a = Tile.wgmma_a(*(8 * n for n in stored), bf16, tile_m=rows, tile_k=k, major=major)
    b = Tile.wgmma_b(*(8 * n for n in stored), bf16, tile_n=rows, tile_k=k, major=major)
    made = []
    make(lambda: made.append(smem.wgmma_tile(bf16, stored, major=major).layout)).ptx()
    for tile in (a, b):
        assert (tile.box, tile.swizzle) == (made[0].box, made[0].swizzle.value)
        assert tile.multiple == stored


def test_a_tile_that_is_no_divisor_is_refused():
    with refused("kernel-declaration"):
        Tile.wgmma_a(100, 64, bf16, tile_m=64, tile_k=64)
    assert Tile.wgmma_a(100, 64, bf16, tile_m=64, tile_k=64, ragged=True).multiple == ()


def test_a_tma_load_fills_a_tile_panel_by_panel():
    @kernel(
        in_specs=(Tile.wgmma_a("M", "K", bf16, tile_m=64, tile_k=128),),
        out_specs=(Tile("M", f32),),
        grid=(1,),
        block=128,
    )
    def load(A, C):
        tile = smem.wgmma_tile(bf16, (64, 128))
        full = smem.mbarrier(1)
        ptx.tma.load(tile[0], A.tma_desc(), (reg.scalar(u32, init=0), 7), full[0])
        ptx.store(ptx.addr(C.pointer()), 0.0, dtype=f32)

    copies = [line for line in statements(load) if line.startswith("cp.async.bulk")]
    assert [line.partition("bytes ")[2] for line in copies] == [
        "[smem], [%rd2, {%r1, 7}], [smem+16384];",
        "[smem+8192], [%rd2, {%r2, 7}], [smem+16384];",
    ]
    assert "add.u32 %r2, %r1, 64;" in statements(load)


def test_a_tma_load_with_another_box_is_refused():
    @kernel(
        in_specs=(Tile.wgmma_a("M", "K", bf16, tile_m=64, tile_k=64),),
        out_specs=(Tile("M", f32),),
        grid=(1,),
        block=128,
    )
    def load(A, C):
        ptx.tma.load(smem.wgmma_tile(bf16, (64, 32))[0], A.tma_desc(), (0, 0), smem.mbarrier(1)[0])

    with refused("trace", got="box (64, 64), swizzle 128B"):
        load.ptx()


@pytest.mark.parametrize("coord", [(0,), (0, 0, 0), (0, 1.5), (1 << 31, 0)])
def test_wrong_coordinates_are_refused(coord):
    @kernel(in_specs=(Tile("M", "N", f32, box=(32, 8)),), out_specs=(Tile("M", f32),), grid=(1,), block=32)
    def load(A, C):
        ptx.cp.async_.bulk.tensor_2d(smem.array(f32, 256, align=128)[0], A.tma_desc(), coord, smem.mbarrier(1)[0])

    with pytest.raises(TraceError):
        load.ptx()


SPARSE = {
    "shape": (64, 64, 32), "metadata": lambda: reg.scalar(b32), "selector": 1,
    "a": lambda: smem.wgmma_tile(bf16, (64, 16)), "b": lambda: smem.wgmma_tile(bf16, (64, 32)),
}  # fmt: skip


def test_metadata_makes_a_sparse_product_of_twice_the_depth():
    found = opcode(multiply(**SPARSE))
    assert found.startswith("wgmma.mma_async.sp.sync.aligned.m64n64k32.f32.bf16.bf16")
    assert found.count(",") == 9 and ", 1, %p" in found


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({"shape": (64, 64, 16)}, "shape=(64, 64, 32)"),
        ({"a": lambda: smem.wgmma_tile(bf16, (64, 32))}, "64 x 16"),
        ({"b": lambda: smem.wgmma_tile(bf16, (64, 16))}, "64 x 32"),
    ],
)
def test_a_sparse_product_of_other_depths_is_refused(changes: dict, expected: str):
    with refused("trace", expected=expected):
        multiply(**{**SPARSE, **changes}).ptx()
