"""TMA tile copies through PTX against an element-wise reference: ranks, swizzles, edges, multicast, reductions."""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.emulator.async_kernels import SCHEDULES, TILE_BYTES, cluster_sync, dump, emulate, fill, init, text_of, wait
from tests.errors import refused
from warploom import asm
from warploom.emulator import api
from warploom.emulator.engines.boxes import Box
from warploom.emulator.engines.tma import BoundMap, TensorMapArgument
from warploom.emulator.machine.memory import GlobalMemory
from warploom.errors import (
    InvalidOperandError,
)
from warploom.isa import dtypes
from warploom.isa.tensor_map import TensorMapSpec

POISON = 0xFF
ZERO = (np.zeros(1, np.uint8), np.int32(0), np.int32(0))
"""A buffer nobody looks at and the coordinates (0, 0): what `load` expects after the map."""


def argument(array: np.ndarray, box: tuple[int, ...], **options: object) -> TensorMapArgument:
    return TensorMapArgument(TensorMapSpec.tiled(array.shape, array.strides, array.dtype, box, **options), array)


def load(map_name: str = "%a0", coordinates: str = "%s2, %s3", size: int = 0, rank: int = 2, offset: int = 0) -> str:
    """Thread 0 announces `size` bytes and loads a box."""
    return f"""
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {size};
    @%first cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes
        [tile+{offset}], [{map_name}, {{{coordinates}}}], [bar];
    """


# -- the reference: one element after the other ------------------------------------------------------------------


def swizzled(address: int, mode: str) -> int:
    """PTX ISA 5.5.7, bit by bit: the 16-byte chunk's number is combined with that of the 128-byte line."""
    bits = {"NONE": 0, "32B": 1, "64B": 2, "128B": 3}[mode]
    return address ^ (((address >> 7) & ((1 << bits) - 1)) << 4)


def expected_tile(array: np.ndarray, spec: TensorMapSpec, at: tuple[int, ...], offset: int = 0) -> np.ndarray:
    """What a load puts into a poisoned tile of shared memory, by the definition."""
    tile = np.full(TILE_BYTES, POISON, np.uint8)
    size = array.itemsize
    steps = spec.element_strides or (1,) * spec.rank
    counts = [-(-box // step) if axis else box for axis, (box, step) in enumerate(zip(spec.box, steps, strict=True))]
    inner = counts[0] * size
    pitch = inner if spec.swizzle == "NONE" else int(spec.swizzle[:-1])
    for row, outer in enumerate(itertools.product(*(range(count) for count in counts[:0:-1]))):
        for column in range(counts[0]):
            index = (column, *outer[::-1])
            where = [
                start + position * (step if axis else 1)
                for axis, (start, position, step) in enumerate(zip(at, index, steps, strict=True))
            ]
            inside = all(0 <= place < extent for place, extent in zip(where, spec.dims, strict=True))
            value = array[tuple(where[::-1])] if inside else array.dtype.type(0)
            start = swizzled(offset + row * pitch + column * size, spec.swizzle)
            tile[start : start + size] = np.array([value], array.dtype).view(np.uint8)
    return tile


@lru_cache(maxsize=16)
def loading_module(rank: int, size: int, offset: int) -> tuple[asm.nodes.Module, str]:
    array = np.zeros((1,) * (rank - 1) + (16,), np.uint8)
    coordinates = ", ".join(f"%s{2 + axis}" for axis in range(rank))
    body = init(1) + load(coordinates=coordinates, size=size, rank=rank, offset=offset) + wait(0)
    body += dump("%a1", TILE_BYTES)
    shape = (argument(array, (16,) + (1,) * (rank - 1)), array, *[np.int32(0)] * rank)
    return asm.parse(text_of(body, shape)), "k"


def loaded(array: np.ndarray, spec: TensorMapSpec, at: tuple[int, ...], offset: int = 0) -> np.ndarray:
    """What the emulator's tile holds after a load of one box."""
    out = np.zeros(TILE_BYTES, np.uint8)
    module, entry = loading_module(spec.rank, spec.box_bytes, offset)
    arguments = [TensorMapArgument(spec, array), out, *[np.int32(place) for place in at]]
    api.run(module, entry, arguments, grid=(1, 1, 1), block=(32, 1, 1))
    return out


@st.composite
def tensors_and_boxes(draw: st.DrawFn) -> tuple[np.ndarray, TensorMapSpec, tuple[int, ...], int]:
    rank = draw(st.integers(1, 5))
    swizzle = draw(st.sampled_from(["NONE", "32B", "64B", "128B"]))
    dtype = np.dtype(draw(st.sampled_from(["u1", "u2", "u4", "u8"])))
    widest = 128 if swizzle == "NONE" else int(swizzle[:-1])
    inner = draw(st.integers(1, widest // 16)) * 16 // dtype.itemsize
    offset = draw(st.sampled_from([0, 128, 640]))
    rows = (TILE_BYTES - offset) // max(inner * dtype.itemsize, 0 if swizzle == "NONE" else widest)
    outer = []
    for most in [8, 6, 3, 2][: rank - 1]:  # the box has to fit into the tile
        outer.append(draw(st.integers(1, min(most, rows // math.prod(outer)))))
    dims = [draw(st.integers(1, 40)), *(draw(st.integers(1, 9)) for _ in range(rank - 1))]
    padded = -(-dims[0] * dtype.itemsize // 16) * 16 // dtype.itemsize
    steps = [1, *(draw(st.sampled_from([1, 1, 1, 2, 3])) for _ in range(rank - 1))]
    aligned = 16 // dtype.itemsize
    at = (
        draw(st.integers(-12, dims[0] // aligned + 2)) * aligned,
        *(draw(st.integers(-12, extent + 4)) for extent in dims[1:]),
    )
    whole = np.random.default_rng(draw(st.integers(0, 99))).integers(1, 200, (*dims[:0:-1], padded)).astype(dtype)
    array = whole[..., : dims[0]]
    spec = TensorMapSpec.tiled(
        array.shape, whole.strides, dtype, (inner, *outer), swizzle=swizzle, element_strides=tuple(steps)
    )
    return array, spec, at, offset


@settings(max_examples=60)
@given(tensors_and_boxes())
def test_a_load_is_the_definition_for_every_rank_swizzle_and_edge(case):
    array, spec, at, offset = case
    assert np.array_equal(loaded(array, spec, at, offset), expected_tile(array, spec, at, offset))


@pytest.mark.parametrize("swizzle", ["NONE", "32B", "64B", "128B"])
@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_each_rank_and_swizzle(rank, swizzle):
    dims = [64, 9, 5, 3, 2][:rank]
    array = np.arange(1, 1 + np.prod(dims), dtype=np.int64).astype(np.uint16).reshape(dims[::-1])
    inner = {"NONE": 64, "32B": 16, "64B": 32, "128B": 64}[swizzle]
    spec = TensorMapSpec.tiled(array.shape, None, "u16", (inner, 4, 2, 2, 2)[:rank], swizzle=swizzle)
    at = (32, -2, 4, 1, 0)[:rank]
    assert np.array_equal(loaded(array, spec, at), expected_tile(array, spec, at))


def test_outside_elements_may_read_as_nan():
    array = np.ones((4, 16), np.float32)
    spec = TensorMapSpec.tiled(array.shape, None, "f32", (16, 8), oob_fill="NAN")
    tile = loaded(array, spec, (0, 0))[: spec.box_bytes].view(np.float32).reshape(8, 16)
    assert (tile[:4] == 1).all() and np.isnan(tile[4:]).all()


F32_AND_TF32 = {
    "halves, to the even one": (0x3F801000, 0x3F800000),
    "halves, up to the even one": (0xBF803000, 0xBF804000),
    "just below a half": (0x3F800FFF, 0x3F800000),
    "just above a half": (0x3F801001, 0x3F802000),
    "into the exponent": (0x3FFFFFFF, 0x40000000),
    "beyond the largest": (0x7F7FFFFF, 0x7F800000),
    "a NaN": (0x7F800001, 0x7F800001),
}


@pytest.mark.parametrize(("bits", "rounded"), F32_AND_TF32.values(), ids=F32_AND_TF32)
@pytest.mark.parametrize("rows", [4, 8], ids=["inside", "with rows outside"])
@pytest.mark.parametrize("element", ["tf32", "f32"])
def test_a_load_of_tf32_rounds_f32_to_the_nearest(element: str, rows: int, bits: int, rounded: int):
    array = np.full((4, 16), bits, np.uint32)
    spec = TensorMapSpec.tiled(array.shape, None, element, (16, rows))
    tile = loaded(array, spec, (0, 0))[: spec.box_bytes].view(np.uint32).reshape(rows, 16)
    assert (tile[:4] == (rounded if element == "tf32" else bits)).all() and not tile[4:].any()
    assert (array == bits).all()


def test_coordinates_and_strides_may_add_up_to_all_addresses():
    """As Triton's maps of ragged tensors do, which read rows 2 to 4 here and nothing behind them."""
    array, memory = np.arange(1, 161, dtype=np.float32).reshape(10, 16), GlobalMemory()
    rows, many, size = 1 << 30, 0x7FFF0000, 3
    base = memory.allocate(array, "x").base
    spec = TensorMapSpec(dtypes.f32, (16, rows, many, many), (64, 64, (1 << 36) - 64), (16, 4, 1, 1))
    box = Box(BoundMap(spec, base), (0, rows - size, 2 + size, rows))
    found = box.gather(memory, None).view(np.float32)[0, 0]  # type: ignore[arg-type]
    np.testing.assert_array_equal(found, [*array[2:5], np.zeros(16, np.float32)])


# -- stores ------------------------------------------------------------------------------------------------------


def stored(array: np.ndarray, spec: TensorMapSpec, at: tuple[int, ...], tile: np.ndarray) -> np.ndarray:
    """The tensor after a store of a tile's box."""
    result = array.copy()
    coordinates = ", ".join(f"%s{2 + axis}" for axis in range(spec.rank))
    emulate(
        fill("%a1", TILE_BYTES)
        + f"""
        @!%first bra end;
        cp.async.bulk.tensor.{spec.rank}d.global.shared::cta.bulk_group [%a0, {{{coordinates}}}], [tile];
        cp.async.bulk.commit_group;
        cp.async.bulk.wait_group 0;
        end:
        """,
        TensorMapArgument(spec, result), tile, *[np.int32(place) for place in at],
    )  # fmt: skip
    return result


@pytest.mark.parametrize("swizzle", ["NONE", "32B", "64B", "128B"])
@pytest.mark.parametrize("at", [(0, 0, 0), (16, 3, 1), (40, 7, 2)], ids=["inside", "inside too", "across the end"])
def test_a_store_writes_what_a_load_reads_and_nothing_outside(swizzle, at):
    rng = np.random.default_rng(1)
    array = rng.integers(0, 60000, (3, 9, 48)).astype(np.uint16)
    spec = TensorMapSpec.tiled(array.shape, None, "u16", (16, 4, 2), swizzle=swizzle)
    tile = rng.integers(0, 256, TILE_BYTES).astype(np.uint8)
    result = stored(array, spec, at, tile)
    reached = tuple(slice(place, place + size) for place, size in zip(at[::-1], spec.box[::-1], strict=True))
    outside = np.ones(array.shape, bool)
    outside[reached] = False
    assert np.array_equal(result[outside], array[outside])
    again = loaded(result, spec, at)
    written = expected_tile(np.ones_like(array), spec, at) == 1  # low bytes of the elements inside the tensor
    assert written.any()
    assert np.array_equal(again[written], tile[written])


def test_a_store_wholly_past_the_end_writes_nothing():
    array = np.arange(64, dtype=np.uint32).reshape(4, 16)
    spec = TensorMapSpec.tiled(array.shape, None, "u32", (16, 4))
    assert np.array_equal(stored(array, spec, (0, 4), np.zeros(TILE_BYTES, np.uint8)), array)


def test_a_store_may_not_start_at_a_negative_coordinate():
    array = np.zeros((4, 16), np.uint32)
    spec = TensorMapSpec.tiled(array.shape, None, "u32", (16, 4))
    with refused("invalid-operand", expected="coordinates of 0 or more"):
        stored(array, spec, (0, -1), np.zeros(TILE_BYTES, np.uint8))


@pytest.mark.parametrize("kind, at", [("u1", 8), ("u2", 4), ("u2", -4), ("u4", 1), ("u4", -1)])
def test_a_box_starts_at_a_multiple_of_16_bytes_of_its_row(kind: str, at: int):
    array = np.zeros((4, 64), kind)
    spec = TensorMapSpec.tiled(array.shape, None, array.dtype, (16, 4))
    with refused("misaligned", got=f"element {at}"):
        loaded(array, spec, (at, 0))
    if at > 0:
        with refused("misaligned", got=f"element {at}"):
            stored(array, spec, (at, 0), np.zeros(TILE_BYTES, np.uint8))


REDUCTIONS = [
    ("add", np.uint32, lambda old, new: old + new),
    ("add", np.float32, lambda old, new: old + new),
    ("add", np.float16, lambda old, new: old + new),
    ("add", ml_dtypes.bfloat16, lambda old, new: old + new),
    ("min", np.int32, np.minimum),
    ("max", np.int64, np.maximum),
    ("max", np.float16, np.maximum),
    ("and", np.uint32, np.bitwise_and),
    ("or", np.int64, np.bitwise_or),
    ("xor", np.uint32, np.bitwise_xor),
    ("inc", np.uint32, lambda old, new: np.where(old >= new, 0, old + 1)),
    ("dec", np.uint32, lambda old, new: np.where((old == 0) | (old > new), new, old - 1)),
]


@pytest.mark.parametrize("operation, dtype, rule", REDUCTIONS, ids=lambda value: getattr(value, "__name__", str(value)))
def test_a_reduction_combines_every_element_inside(operation, dtype, rule):
    rng = np.random.default_rng(2)
    kind = np.dtype(dtype)
    old = rng.integers(0, 100, (6, 32)).astype(kind)
    new = rng.integers(0, 100, (8, 32)).astype(kind)
    tile = np.zeros(TILE_BYTES, np.uint8)
    tile[: new.nbytes] = new.reshape(-1).view(np.uint8)
    result = old.copy()
    box = (32, 8)
    emulate(
        fill("%a1", TILE_BYTES)
        + f"""
        mov.u32 %r1, 0;
        mov.u32 %r2, 2;
        @%first cp.reduce.async.bulk.tensor.2d.global.shared::cta.{operation}.bulk_group [%a0, {{%r1, %r2}}], [tile];
        @%first cp.async.bulk.commit_group;
        @%first cp.async.bulk.wait_group 0;
        """,
        argument(result, box), tile,
    )  # fmt: skip
    assert np.array_equal(result[:2], old[:2])
    assert np.array_equal(result[2:], rule(old[2:], new[:4]).astype(kind))


STORED = {
    "f32": {4: 3, 5: 7, 7: 7, 8: 7, 13: 15, 29: 31},
    "bf16": {8: 7, 9: 15, 13: 15, 16: 15, 29: 31, 57: 63, 77: 79},
}
"""Innermost extent -> the last column that an H200 writes (benchmarks/tensor_store_edges.py)."""
KINDS = {"f32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16)}


def written(operation: str, array: np.ndarray, box: tuple[int, ...], value: float = 5.0) -> None:
    """Store or reduce a box full of one value at the array's first element."""
    tile = np.full(TILE_BYTES // array.itemsize, value, array.dtype).view(np.uint8)
    rank = array.ndim
    zeros = ", ".join(["%r1"] * rank)
    opcode = "cp.async.bulk.tensor" if operation == "store" else "cp.reduce.async.bulk.tensor"
    middle = "" if operation == "store" else f".{operation}"
    emulate(
        fill("%a1", TILE_BYTES)
        + f"""
        mov.u32 %r1, 0;
        @%first {opcode}.{rank}d.global.shared::cta{middle}.bulk_group [%a0, {{{zeros}}}], [tile];
        @%first cp.async.bulk.commit_group;
        @%first cp.async.bulk.wait_group 0;
        """,
        argument(array, box), tile,
    )  # fmt: skip


@pytest.mark.parametrize("operation", ["store", "add"])
@pytest.mark.parametrize("kind, extent", [(kind, extent) for kind in STORED for extent in STORED[kind]])
def test_a_store_writes_rows_in_whole_pieces_of_16_bytes(kind: str, extent: int, operation: str):
    whole = np.full((8, 96), 96, KINDS[kind])
    box = (80, 8)
    written(operation, whole[:6, :extent], box)
    changed = np.argwhere(whole != 96)
    last = STORED[kind][extent]
    assert changed[:, 1].max() == last
    assert (whole[:6, : last + 1] == (5 if operation == "store" else 101)).all()
    assert (whole[6:] == 96).all()  # the outer extent is exact


@pytest.mark.parametrize("operation", ["store", "xor"])
@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_rows_of_every_rank_are_written_in_whole_pieces(rank: int, operation: str):
    extents, box = (1, 2, 2, 1, 5)[-rank:], (8, 1, 3, 3, 2)[:rank]
    whole = np.zeros((2, 3, 4, 3, 12)[-rank:], np.uint32)
    view = whole[tuple(slice(extent) for extent in extents)]
    written(operation, view, box, 5)
    wanted = np.zeros_like(whole)
    reached = (*(min(extent, most) for extent, most in zip(extents[:-1], box[:0:-1], strict=True)), 8)
    wanted[tuple(slice(extent) for extent in reached)] = 5
    assert np.array_equal(whole, wanted)


def test_a_box_that_ends_with_its_row_does_not_write_behind_it():
    whole = np.full((4, 96), 96, np.float32)
    written("store", whole[:, :29], (28, 4))
    assert (whole[:, :28] == 5).all() and (whole[:, 28:] == 96).all()


def test_a_store_behind_the_buffer_is_out_of_bounds():
    with refused("out-of-bounds", got="dims (13,) of f32"):
        written("store", np.zeros(13, np.float32), (16,))


def test_a_load_is_exact():
    whole = np.full((4, 96), 96, np.float32)
    spec = TensorMapSpec.tiled((4, 29), whole.strides, "f32", (32, 4))
    tile = loaded(whole[:, :29], spec, (0, 0))[: spec.box_bytes].view(np.float32).reshape(4, 32)
    assert (tile[:, :29] == 96).all() and (tile[:, 29:] == 0).all()


def test_a_reduction_the_type_does_not_have_is_an_error():
    with refused("invalid-operand", expected="u32 s32 u64 s64 f16 bf16"):
        emulate(
            "mov.u32 %r1, 0;\n"
            "@%first cp.reduce.async.bulk.tensor.1d.global.shared::cta.min.bulk_group [%a0, {%r1}], [tile];",
            argument(np.zeros(16, np.float32), (16,)),
        )


# -- clusters ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule, seed", SCHEDULES)
@pytest.mark.parametrize("size, mask", [(2, 0b11), (4, 0b1011)])
def test_a_multicast_load_reaches_every_cta_of_its_mask_and_signals_there(size, mask, schedule, seed):
    array = np.arange(32 * 64, dtype=np.uint16).reshape(32, 64)
    out = np.zeros((size, 4096), np.uint8)
    spec = TensorMapSpec.tiled(array.shape, None, "u16", (64, 32), swizzle="128B")
    emulate(
        init(1)
        + f"""
        mov.u32 %r1, %cluster_ctarank;
        mul.wide.u32 %rd1, %r1, 4096;
        add.u64 %rd1, %rd1, %a1;
        mov.u32 %r2, 0;
        mov.u16 %h0, {mask};
        shr.u32 %r3, {mask}, %r1;
        and.b32 %r3, %r3, 1;
        setp.eq.u32 %p1, %r3, 0;
        @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 4096;
        {cluster_sync()}
        setp.eq.u32 %p2, %r1, 0;
        and.pred %p2, %p2, %first;
        @%p2 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
            [tile], [%a0, {{%r2, %r2}}], [bar], %h0;
        @%p1 bra skip;
        {wait(0)}
        {dump("%rd1", 4096)}
        skip:
        {cluster_sync()}
        """,
        TensorMapArgument(spec, array), out, grid=size, cluster=size, schedule=schedule, seed=seed,
    )  # fmt: skip
    wanted = expected_tile(array, spec, (0, 0))[:4096]
    for rank in range(size):
        assert np.array_equal(out[rank], wanted if mask >> rank & 1 else np.zeros(4096, np.uint8)), rank


def test_a_multicast_mask_beyond_the_cluster_is_an_error():
    with refused("invalid-operand", expected="ranks 0 to 1 of this cluster, at least one"):
        emulate(
            init(1) + "mov.u32 %r2, 0;\nmov.u16 %h0, 5;\n"
            + "@%first cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
            + "[tile], [%a0, {%r2}], [bar], %h0;",
            argument(np.zeros(64, np.uint16), (64,)), grid=2, cluster=2,
        )  # fmt: skip


# -- schedules ---------------------------------------------------------------------------------------------------


def ring() -> str:
    """A ring of two stages: thread 32 loads boxes of 1 KiB, warp 0 writes them out."""
    return (
        init(1, 1, 32, 32)
        + """
        mov.u32 %r1, 0;                 // step
        setp.ge.u32 %p2, %idx, 32;
        @%p2 bra producer;
    consume:
        and.b32 %r2, %r1, 1;            // stage
        shr.u32 %r3, %r1, 1;
        and.b32 %r4, %r3, 1;            // parity
        shl.b32 %r5, %r2, 3;
        add.u32 %r10, %bar, %r5;
        add.u32 %r11, %r10, 16;
    full:
        mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r10], %r4;
        @!%p1 bra full;
        shl.b32 %r6, %r2, 10;
        shl.b32 %r7, %idx, 5;
        add.u32 %r6, %r6, %r7;
        add.u32 %r6, %r6, %tile;
        shl.b32 %r8, %r1, 10;
        add.u32 %r8, %r8, %r7;
        cvt.u64.u32 %rd1, %r8;
        add.u64 %rd1, %rd1, %a1;
        ld.shared.v4.u32 {%r20, %r21, %r22, %r23}, [%r6];
        ld.shared.v4.u32 {%r24, %r25, %r26, %r27}, [%r6+16];
        st.global.v4.u32 [%rd1], {%r20, %r21, %r22, %r23};
        st.global.v4.u32 [%rd1+16], {%r24, %r25, %r26, %r27};
        mbarrier.arrive.shared::cta.b64 _, [%r11];
        add.u32 %r1, %r1, 1;
        setp.lt.u32 %p3, %r1, 8;
        @%p3 bra consume;
        bra end;
    producer:
        setp.ne.u32 %p4, %idx, 32;
        @%p4 bra end;
    produce:
        and.b32 %r2, %r1, 1;
        shr.u32 %r3, %r1, 1;
        and.b32 %r4, %r3, 1;
        xor.b32 %r4, %r4, 1;
        shl.b32 %r5, %r2, 3;
        add.u32 %r10, %bar, %r5;
        add.u32 %r11, %r10, 16;
    empty:
        mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r11], %r4;
        @!%p1 bra empty;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r10], 1024;
        shl.b32 %r6, %r2, 10;
        add.u32 %r6, %r6, %tile;
        shl.b32 %r8, %r1, 3;
        mov.u32 %r9, 0;
        cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r6], [%a0, {%r9, %r8}], [%r10];
        add.u32 %r1, %r1, 1;
        setp.lt.u32 %p3, %r1, 8;
        @%p3 bra produce;
    end:
        """
    )


def run_ring(schedule: str, seed: int) -> tuple[np.ndarray, np.ndarray, object]:
    array = np.random.default_rng(3).integers(0, 2**32, (64, 32), dtype=np.uint32)
    out = np.zeros((64, 32), np.uint32)
    report = emulate(ring(), argument(array, (32, 8)), out, threads=64, schedule=schedule, seed=seed)
    return array, out, report


@pytest.mark.parametrize("schedule, seed", [*SCHEDULES, ("random", 7), ("starve", 0), ("starve", 1)])
def test_a_correct_pipeline_gives_the_same_result_under_every_schedule(schedule, seed):
    array, out, _ = run_ring(schedule, seed)
    assert np.array_equal(array, out)


@pytest.mark.parametrize("waits", [True, False])
def test_without_its_wait_a_load_shows_poison_in_the_lazy_schedule(waits):
    array = np.arange(1, 1 + 16 * 64, dtype=np.uint16).reshape(16, 64)
    out = np.zeros(2048, np.uint8)
    emulate(
        init(1) + load(size=2048) + (wait(0) if waits else "bar.sync 0;") + dump("%a1", 2048),
        argument(array, (64, 16)), out, np.int32(0), np.int32(0),
    )  # fmt: skip
    assert (out == array.reshape(-1).view(np.uint8)).all() if waits else (out == POISON).all()


def test_the_same_schedule_and_seed_replay_the_same_run():
    first, second = (run_ring("random", 11)[2].counters.as_dict() for _ in range(2))
    assert first == second


def test_a_store_whose_source_is_reused_without_waiting_writes_the_wrong_bytes():
    array = np.zeros((4, 32), np.uint32)
    body = """
        mov.u32 %r1, 0;
        st.shared.u32 [tile], 7;
        fence.proxy.async;
        @%first cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%a0, {%r1, %r1}], [tile];
        @%first cp.async.bulk.commit_group;
        WAIT
        st.shared.u32 [tile], 8;
    """
    emulate(body.replace("WAIT", "@%first cp.async.bulk.wait_group.read 0;"), argument(array, (32, 4)), threads=1)
    assert array[0, 0] == 7
    emulate(body.replace("WAIT", ""), argument(array, (32, 4)), threads=1)
    assert array[0, 0] == 8


def test_a_deadlock_for_lack_of_bytes_names_the_loads_that_came():
    array = np.zeros((16, 64), np.uint16)
    with refused("deadlock") as caught:
        emulate(init(1) + load(size=3072) + wait(0), argument(array, (64, 16)), *ZERO)
    (wanted,) = caught.value.waits
    assert wanted.missing == "1024 bytes missing"
    assert wanted.came[-1].startswith("completed 2048 bytes: TMA load of box (64, 16)")


# -- maps --------------------------------------------------------------------------------------------------------


def test_a_map_copied_to_global_memory_and_rewritten_there_is_used_as_it_then_is():
    first = np.arange(8 * 64, dtype=np.uint16).reshape(8, 64)
    second = first[::-1].copy()
    out, place = np.zeros(TILE_BYTES, np.uint8), np.zeros(256, np.uint8)
    body = (
        init(1)
        + """
        shl.b32 %r1, %idx, 2;
        cvt.u64.u32 %rd1, %r1;
        add.u64 %rd2, %a0, %rd1;
        ld.u32 %r2, [%rd2];
        mov.u32 %r3, tile;
        add.u32 %r3, %r3, %r1;
        st.shared.u32 [%r3], %r2;
        bar.sync 0;
        @%first tensormap.replace.tile.global_address.shared::cta.b1024.b64 [tile], %a4;
        @%first tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [tile], 1, 4;
        @%first tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [tile], 1, 2;
        @%first tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [tile], 3;
        bar.warp.sync 0xffffffff;
        tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%a1], [tile], 128;
        fence.proxy.tensormap::generic.acquire.gpu [%a1], 128;
        """
        + load("%a1", "%s2, %s2", 512, offset=1024).replace("%s2", "%s3")
        + wait(0)
        + dump("%a2", 8192, start=1024)
    )
    emulate(body, argument(first, (64, 8)), place, out, np.int32(0), second)
    changed = second[:2]
    spec = TensorMapSpec.tiled(changed.shape, None, "u16", (64, 4), swizzle="128B")
    assert np.array_equal(out[:512], expected_tile(changed, spec, (0, 0))[:512])


def test_a_map_can_be_made_from_zeros():
    """As Triton makes its maps: 128 zero bytes, and every field replaced; rank and extents of zero bytes are 1."""
    array = np.arange(5 * 64, dtype=np.uint16).reshape(5, 64)
    out, place = np.zeros(TILE_BYTES, np.uint8), np.zeros(256, np.uint8)
    fields = [
        ("global_address", "b64 [tile], %a4"), ("rank", "b32 [tile], 1"),
        ("box_dim", "b32 [tile], 0, 64"), ("box_dim", "b32 [tile], 1, 4"),
        ("global_dim", "b32 [tile], 0, 64"), ("global_dim", "b32 [tile], 1, 5"),
        ("global_stride", "b64 [tile], 0, 128"), ("elemtype", "b32 [tile], 1"), ("swizzle_mode", "b32 [tile], 3"),
        ("element_stride", "b32 [tile], 0, 1"), ("element_stride", "b32 [tile], 1, 1"),
    ]  # fmt: skip
    body = (
        init(1)
        + "shl.b32 %r1, %idx, 2;\nmov.u32 %r3, tile;\nadd.u32 %r3, %r3, %r1;\nst.shared.u32 [%r3], 0;\nbar.sync 0;\n"
        + "\n".join(
            f"@%first tensormap.replace.tile.{field}.shared::cta.b1024.{operands};" for field, operands in fields
        )
        + """
        bar.warp.sync 0xffffffff;
        tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%a1], [tile], 128;
        fence.proxy.tensormap::generic.acquire.gpu [%a1], 128;
        """
        + load("%a1", "%s3, %s3", 512, offset=1024)
        + wait(0)
        + dump("%a2", 8192, start=1024)
    )
    emulate(body, argument(array, (64, 4)), place, out, np.int32(0), array)
    spec = TensorMapSpec.tiled(array.shape, None, "u16", (64, 4), swizzle="128B")
    assert np.array_equal(out[:512], expected_tile(array, spec, (0, 0))[:512])


def test_a_copy_of_another_rank_than_its_map_is_an_error():
    with refused("invalid-operand", expected="a .3d copy"):
        emulate(init(1) + load(size=32), argument(np.zeros((2, 2, 16), np.uint16), (16, 1, 1)), *ZERO)


def test_an_address_without_a_map_is_an_error():
    with refused("no-tensor-map"):
        emulate(init(1) + load(size=32), np.zeros(256, np.uint8), *ZERO)


def test_a_destination_off_128_bytes_is_an_error():
    with refused("misaligned", got="64 bytes past one"):
        emulate(init(1) + load(size=2048, offset=64), argument(np.zeros((16, 64), np.uint16), (64, 16)), *ZERO)


def test_a_box_beyond_shared_memory_is_an_error():
    with refused("out-of-bounds", expected="inside the CTA's shared memory, bytes 1024 to 17440"):
        emulate(init(1) + load(size=2048, offset=15360), argument(np.zeros((16, 64), np.uint16), (64, 16)), *ZERO)


def test_a_map_that_reaches_beyond_its_array_is_refused_before_the_launch():
    spec = TensorMapSpec.tiled((32, 64), None, "u16", (64, 16))
    with refused("argument", expected="dims (64, 32) (innermost first) inside the array of shape (16, 64)"):
        emulate("", TensorMapArgument(spec, np.zeros((16, 64), np.uint16)))


def test_a_load_without_a_barrier_is_an_error():
    with refused("no-mbarrier", got="has not been initialised"):
        emulate(load(size=2048).split(";", 1)[1], argument(np.zeros((16, 64), np.uint16), (64, 16)), *ZERO)


@pytest.mark.parametrize("swizzle", ["NONE", "128B"])
@pytest.mark.parametrize("schedule", ["lazy", "random"])
def test_a_gather_brings_four_rows_from_anywhere(swizzle: str, schedule: str):
    """.tile::gather4 of sm_100: a column and four rows, one of them outside; as four boxes of a row each."""
    array = np.random.default_rng(0).integers(1, 200, (20, 128)).astype(np.uint8)
    map_, rows, out = argument(array, (64, 1), swizzle=swizzle), (7, 19, 20, 2), np.zeros(TILE_BYTES, np.uint8)
    coordinates = ", ".join(f"%s{number}" for number in range(2, 7))
    body = init(1) + f"""
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256;
    @%first cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes
        [tile], [%a0, {{{coordinates}}}], [bar];
    """ + wait(0) + dump("%a1", TILE_BYTES)  # fmt: skip
    emulate(
        body, map_, out, np.int32(16), *map(np.int32, rows), target="sm_100a", schedule=schedule, seed=1
    )  # fmt: skip
    wanted = np.full(TILE_BYTES, POISON, np.uint8)
    for number, row in enumerate(rows):
        place = number * map_.spec.pitch
        own = expected_tile(array, map_.spec, (16, row), place)
        wanted = np.where(own != POISON, own, wanted)
    np.testing.assert_array_equal(out[: 4 * map_.spec.pitch], wanted[: 4 * map_.spec.pitch])


def test_a_gather_takes_a_map_of_single_rows():
    array = np.zeros((20, 128), np.uint8)
    body = init(1) + """
    @%first cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes
        [tile], [%a0, {%s1, %s1, %s1, %s1, %s1}], [bar];
    """  # fmt: skip
    with pytest.raises(InvalidOperandError) as caught:
        emulate(body, argument(array, (64, 4)), np.int32(0), target="sm_100a")
    assert caught.value.expected == "a box of one row"


@pytest.mark.parametrize("swizzle", ["NONE", "128B"])
@pytest.mark.parametrize("schedule", ["lazy", "random"])
def test_a_scatter_is_the_inverse_of_a_gather(swizzle: str, schedule: str):
    """.tile::scatter4: rows from shared memory to four places, one of them outside, which is not written."""
    array = np.random.default_rng(0).integers(1, 200, (20, 128)).astype(np.uint8)
    map_, rows, tile = argument(array.copy(), (64, 1), swizzle=swizzle), (7, 19, 20, 2), np.zeros(TILE_BYTES, np.uint8)
    new = np.random.default_rng(1).integers(1, 200, (4, 64)).astype(np.uint8)
    for number, row in enumerate(new):
        place = number * map_.spec.pitch
        source = np.zeros_like(array)
        source[0, :64] = row
        own = expected_tile(source, map_.spec, (0, 0), place)
        tile[own != POISON] = own[own != POISON]
    coordinates = ", ".join(f"%s{number}" for number in range(2, 7))
    emulate(
        fill("%a1", TILE_BYTES)
        + f"""
        @!%first bra end;
        cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%a0, {{{coordinates}}}], [tile];
        cp.async.bulk.commit_group;
        cp.async.bulk.wait_group 0;
        end:
        """,
        map_, tile, np.int32(16), *map(np.int32, rows), target="sm_100a", schedule=schedule, seed=1,
    )  # fmt: skip
    wanted = array.copy()
    for row, values in zip(rows, new, strict=True):
        if row < 20:
            wanted[row, 16:80] = values
    np.testing.assert_array_equal(map_.array, wanted)
