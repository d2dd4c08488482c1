"""Tensor copies in im2col modes against the definition: the list of all base pixels, read off from where a copy starts.

tests/golden has columns of every rank that an H200 loaded, and images that it stored; modes along W were not run there.
The four columns of single values are what Triton's tutorial of im2col asserts on a GPU.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import warploom
from tests.emulator.async_kernels import SCHEDULES, TILE_BYTES, cluster_sync, dump, emulate, fill, init, text_of, wait
from tests.emulator.test_tma import swizzled
from tests.errors import refused
from warploom.emulator.engines.tma import TensorMapArgument
from warploom.errors import ArgumentError, EmulationError, InvalidOperandError
from warploom.isa.tensor_map import TensorMapSpec
from warploom.runtime import PixelBox, TensorMap
from warploom.sanitizer import Sanitizer

POISON = 0xFF
WIDE = "one of 64B, 128B, 128B_ATOM_32B, and no interleave"


def argument(
    images: np.ndarray, channels: int, pixels: int, box: PixelBox, steps: tuple[int, ...] = (), swizzle: str = "NONE"
) -> TensorMapArgument:
    spec = TensorMapSpec.tiled(
        images.shape, None, images.dtype, (channels, pixels), swizzle=swizzle, element_strides=steps, pixels=box
    )
    return TensorMapArgument(spec, images)


def images_of(*dims: int) -> np.ndarray:
    """16-bit elements that number themselves from 1 on; dims innermost first."""
    return np.arange(1, 1 + np.prod(dims), dtype=np.uint16).reshape(dims[::-1])


def pixel(images: np.ndarray, channel: int, at: tuple[int, ...], channels: int) -> np.ndarray:
    """Channels of the pixel (n, …, w), zeros outside."""
    if any(not 0 <= place < extent for place, extent in zip(at, images.shape, strict=False)):
        return np.zeros(channels, images.dtype)
    line = np.zeros(channels, images.dtype)
    found = images[at][channel : channel + channels]
    line[: len(found)] = found
    return line


def column(map_: TensorMapArgument, at: tuple[int, ...], offsets: tuple[int, ...]) -> np.ndarray:
    """The pixels of an im2col copy: (pixels, channels). at, offsets: innermost first."""
    spec, images = map_.spec, map_.array
    channels, pixels = spec.box
    box, steps = spec.pixels, spec.element_strides or (1,) * spec.rank
    assert box is not None
    ranges = [
        range(low, extent + up, step)
        for low, up, extent, step in zip(box.lower, box.upper, spec.dims[1:], steps[1:], strict=False)
    ]
    bases = list(itertools.product(range(at[-1], at[-1] + pixels + 1), *ranges[::-1]))
    first = bases.index(at[:0:-1])
    moved = [
        (n, *(place + by for place, by in zip(spatial, offsets[::-1], strict=True)))
        for n, *spatial in bases[first : first + pixels]
    ]
    return np.array([pixel(images, at[0], place, channels) for place in moved])


def tile_of(rows: np.ndarray, swizzle: str) -> np.ndarray:
    """Rows at their places in a poisoned tile of shared memory."""
    tile = np.full(TILE_BYTES, POISON, np.uint8)
    raw = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)
    pitch = raw.shape[1] if swizzle == "NONE" else int(swizzle.split("B")[0])
    for number, row in enumerate(raw):
        for chunk in range(0, len(row), 16):
            start = swizzled(number * pitch + chunk, swizzle)
            tile[start : start + 16] = row[chunk : chunk + 16]
    return tile


def loaded(
    map_: TensorMapArgument, at: tuple[int, ...], offsets: tuple[int, ...], rows: int = 0, mode: str = "im2col",
    **options: object,
) -> np.ndarray:  # fmt: skip
    out = np.zeros(TILE_BYTES, np.uint8)
    rank, spec = len(at), map_.spec
    size = (rows or spec.box[1]) * spec.box[0] * spec.dtype.bytes
    coordinates = ", ".join(f"%s{2 + axis}" for axis in range(rank))
    halves = [f"mov.b16 %h{number}, {by};" for number, by in enumerate(offsets)]
    names = ", ".join(f"%h{number}" for number in range(len(offsets)))
    to = "shared::cluster" if mode == "im2col" else "shared::cta"
    body = "\n".join([init(1), *halves]) + f"""
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {size};
    @%first cp.async.bulk.tensor.{rank}d.{to}.global.{mode}.mbarrier::complete_tx::bytes
        [tile], [%a0, {{{coordinates}}}], [bar], {{{names}}};
    """ + wait(0) + dump("%a1", TILE_BYTES)  # fmt: skip
    target = "sm_90a" if mode == "im2col" else "sm_100a"
    emulate(body, map_, out, *map(np.int32, at), target=target, **options)
    return out


def test_offsets_may_be_constants():
    map_ = argument(images_of(64, 9, 3), 64, 8, PixelBox((-1,), (-1,)), swizzle="128B")
    out = np.zeros(TILE_BYTES, np.uint8)
    body = init(1) + """
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1024;
    @%first cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes
        [tile], [%a0, {0, 2, 1}], [bar], {3};
    """ + wait(0) + dump("%a1", TILE_BYTES)  # fmt: skip
    emulate(body, map_, out)
    np.testing.assert_array_equal(out[:1024], loaded(map_, (0, 2, 1), (3,))[:1024])
    assert out[:1024].any()


CASES = [
    # dims, lower, upper, steps, pixels, at, offsets; all innermost first
    ((64, 9, 3), (-1,), (-1,), (), 20, (16, -1, 0), (2,)),
    ((64, 9, 14, 3), (-1, -1), (-1, -1), (), 64, (0, 3, 4, 0), (0, 0)),
    ((64, 9, 14, 3), (0, 0), (-2, -2), (), 64, (8, 6, 4, 1), (2, 2)),
    ((64, 8, 14, 3), (-1, -1), (-1, -1), (1, 2, 2, 1), 32, (0, 5, 7, 0), (1, 1)),
    ((64, 4, 5, 3, 2), (-1, 0, -2), (1, -1, 0), (1, 1, 2, 3, 1), 60, (0, -1, 2, 1, 0), (1, 2, 3)),
    ((40, 3, 3, 2), (0, 0), (0, 0), (), 40, (32, 1, 2, 1), (0, 0)),  # past the last channel and the last image
]


@pytest.mark.parametrize("swizzle", ["NONE", "64B", "128B"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{len(case[0])}d at {case[5]}")
def test_a_column_of_pixels_is_the_definition(case, swizzle):
    dims, lower, upper, steps, pixels, at, offsets = case
    channels = {"NONE": 24, "64B": 32, "128B": 48}[swizzle]
    map_ = argument(images_of(*dims), channels, pixels, PixelBox(lower, upper), steps, swizzle)
    expected = tile_of(column(map_, at, offsets), swizzle)
    np.testing.assert_array_equal(loaded(map_, at, offsets), expected)


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES, ids=str)
def test_a_column_is_the_same_under_every_schedule(schedule, seed):
    map_ = argument(images_of(64, 5, 4, 3), 64, 50, PixelBox((-1, -1), (-1, -1)), swizzle="128B")
    found = loaded(map_, (0, 2, 1, 0), (1, 0), schedule=schedule, seed=seed)
    np.testing.assert_array_equal(found, tile_of(column(map_, (0, 2, 1, 0), (1, 0)), "128B"))


@pytest.mark.parametrize(
    "count, corner, at, offsets, values",
    [
        (1, 0, (0, 0, 0, 0), (0, 0), [*range(1, 17)]),
        (1, -1, (0, -1, -1, 0), (0, 0), [0, 0, 0, 0, 0, 1, 2, 3, 0, 5, 6, 7, 0, 9, 10, 11]),
        (1, -1, (0, -1, -1, 0), (1, 1), [*range(1, 17)]),
        (2, 0, (0, 3, 1, 0), (0, 0), [*range(8, 24)]),
    ],
)
def test_columns_are_those_that_a_gpu_loads(count, corner, at, offsets, values):
    images = np.repeat(np.arange(1, 1 + 16 * count, dtype=np.float32), 32).reshape(count, 4, 4, 32)
    map_ = argument(images, 32, 16, PixelBox((corner,) * 2, (corner,) * 2))
    found = loaded(map_, at, offsets)[: 16 * 128].view(np.float32).reshape(16, 32)
    np.testing.assert_array_equal(found, np.repeat(np.array(values, np.float32), 32).reshape(16, 32))


def test_a_convolution_is_a_sum_over_the_filter_of_columns_times_weights():
    rng = np.random.default_rng(0)
    images = rng.integers(-4, 5, (2, 6, 5, 16)).astype(np.float32)
    weights = rng.integers(-4, 5, (3, 3, 16)).astype(np.float32)
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    direct = np.zeros((2, 3, 3))
    for n, p, q in np.ndindex(direct.shape):
        direct[n, p, q] = (padded[n, 2 * p : 2 * p + 3, 2 * q : 2 * q + 3] * weights).sum()
    map_ = argument(images, 16, 18, PixelBox((-1, -1), (-1, -1)), (1, 2, 2, 1))
    total = np.zeros(18)
    for r, s in np.ndindex(3, 3):
        found = loaded(map_, (0, -1, -1, 0), (s, r))[: 18 * 64].view(np.float32).reshape(18, 16)
        total += found @ weights[r, s]
    np.testing.assert_array_equal(total, direct.reshape(-1))


def test_a_column_of_packed_elements_has_their_gaps():
    """b6x16_p32: 128 channels are 96 bytes of global memory, and 8 times 12 bytes and 4 of gap in shared memory."""
    images = np.random.default_rng(0).integers(1, 255, (2, 5, 96)).astype(np.uint8)
    spec = TensorMapSpec.tiled(images.shape, None, "b6x16_p32", (128, 6), pixels=PixelBox((-1,), (-1,)))
    body = init(1) + f"""
    mov.b16 %h0, 0;
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {6 * 96};
    @%first cp.async.bulk.tensor.3d.shared::cta.global.im2col.mbarrier::complete_tx::bytes
        [tile], [%a0, {{0, 2, 0}}], [bar], {{%h0}};
    """ + wait(0) + dump("%a1", 6 * 128)  # fmt: skip
    out = np.zeros(6 * 128, np.uint8)
    emulate(body, TensorMapArgument(spec, images), out, target="sm_100a")
    wanted = np.array([pixel(images, 0, (n, w), 96) for n, w in [(0, 2), (0, 3), *((1, w) for w in range(-1, 3))]])
    np.testing.assert_array_equal(out.reshape(6, 8, 16)[..., :12].reshape(6, 96), wanted)


def test_a_text_takes_a_map_of_pixels_made_of_an_array():
    images = images_of(32, 5, 4, 2)
    out = np.zeros(12 * 64, np.uint8)
    body = init(1) + f"""
    mov.b16 %h0, 0;
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {out.size};
    @%first cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes
        [tile], [%a0, {{0, 1, 2, 0}}], [bar], {{%h0, %h0}};
    """ + wait(0) + dump("%a1", out.size)  # fmt: skip
    map_ = argument(images, 32, 12, PixelBox((0, 0), (-1, -1)))
    mine = TensorMap.tiled(images, box=(32, 12), pixels=PixelBox((0, 0), (-1, -1)))
    report = warploom.emulate(text_of(body, (map_, out)), mine, out, grid=1, block=32)
    assert not report.findings
    np.testing.assert_array_equal(out.view(np.uint16).reshape(12, 32), column(map_, (0, 1, 2, 0), (0, 0)))


def test_a_multicast_column_reaches_each_cta_of_the_mask():
    map_ = argument(images_of(64, 5, 3), 64, 12, PixelBox((0,), (-1,)), swizzle="128B")
    out = np.zeros((2, TILE_BYTES), np.uint8)
    body = init(1) + f"""
    mov.b16 %h0, 1;
    mov.b16 %h1, 3;
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {12 * 128};
    {cluster_sync()}
    mov.u32 %r0, %cluster_ctarank;
    setp.eq.and.u32 %p1, %r0, 0, %first;
    @%p1 cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.multicast::cluster
        [tile], [%a0, {{0, 1, 0}}], [bar], {{%h0}}, %h1;
    cvt.u64.u32 %rd0, %r0;
    mad.lo.u64 %rd0, %rd0, {TILE_BYTES}, %a1;
    """ + wait(0) + dump("%rd0", TILE_BYTES)  # fmt: skip
    emulate(body, map_, out, grid=2, cluster=2)
    expected = tile_of(column(map_, (0, 1, 0), (1,)), "128B")
    np.testing.assert_array_equal(out, [expected, expected])


@pytest.mark.parametrize("operation", ["", "add"])
def test_columns_are_written_back_where_they_came_from(operation):
    """im2col_no_offs: base pixels; those of images past the last one are not written."""
    images = images_of(32, 4, 3, 2).astype(np.uint32)
    map_ = argument(images.copy(), 32, 26, PixelBox((1, 0), (0, -1)))
    rows = np.random.default_rng(0).integers(1, 999, (26, 32)).astype(np.uint32)
    tile = np.zeros(TILE_BYTES, np.uint8)
    tile[: rows.nbytes] = rows.view(np.uint8).reshape(-1)
    verb = "cp.reduce" if operation else "cp"
    dot = f".{operation}" if operation else ""
    emulate(
        fill("%a1", TILE_BYTES)
        + f"""
        @!%first bra end;
        {verb}.async.bulk.tensor.4d.global.shared::cta{dot}.im2col_no_offs.bulk_group [%a0, {{0, 2, 0, 0}}], [tile];
        cp.async.bulk.commit_group;
        cp.async.bulk.wait_group 0;
        end:
        """,
        map_, tile,
    )  # fmt: skip
    places = list(itertools.product(range(5), range(0, 2), range(1, 4)))
    wanted = images.copy()
    for (n, h, w), row in zip(places[places.index((0, 0, 2)) :][:26], rows, strict=False):
        if n < 2:
            wanted[n, h, w] = wanted[n, h, w] + row if operation else row
    np.testing.assert_array_equal(map_.array, wanted)


# -- along W only ------------------------------------------------------------------------------------------------


def line(images: np.ndarray, low: int, high: int, step: int, at: tuple[int, ...], count: int) -> list[np.ndarray]:
    """`count` pixels of all channels from `at` (w, h, n) on along W, image after image."""
    w, h, n = at
    places = [(n, at) for at in range(w, high + 1, step)]
    while len(places) < count:
        n += 1
        places += [(n, at) for at in range(low, high + 1, step)]
    return [pixel(images, 0, (image, h, at), images.shape[-1]) for image, at in places[:count]]


@pytest.mark.parametrize(
    "w, low, up, step, halo, offset",
    [(2, 0, 0, 1, 2, 0), (0, -1, -1, 1, 0, 1), (-1, -1, 0, 2, 1, 0), (-1, -1, 0, 2, 0, 1), (-4, -1, -1, 3, 0, 2)],
)
def test_a_wide_column_goes_along_w_from_image_to_image(w, low, up, step, halo, offset):
    images = images_of(32, 9, 3, 8)
    map_ = argument(images, 32, 40, PixelBox((low,), (up,), "im2col::w"), (1, step, 1, 1), "64B")
    found = loaded(map_, (0, w, 2, 1), (halo, offset), 40 + halo, "im2col::w")
    rows = line(images, low + offset, 8 + up + offset, step, (w + offset, 2, 1), 40 + halo)
    np.testing.assert_array_equal(found, tile_of(np.array(rows), "64B"))


@pytest.mark.parametrize("halo", [0, 2])
def test_a_column_of_128_has_its_halo_behind_each_32_pixels(halo):
    images = images_of(32, 60, 2, 5)
    map_ = argument(images, 32, 128, PixelBox((0,), (0,), "im2col::w::128"), swizzle="64B")
    found = loaded(map_, (0, 0, 1, 0), (halo, 0), 4 * (32 + halo), "im2col::w::128")
    walked = line(images, 0, 59, 1, (0, 1, 0), 128 + halo)
    rows = [row for at in range(0, 128, 32) for row in walked[at : at + 32 + halo]]
    np.testing.assert_array_equal(found, tile_of(np.array(rows), "64B"))


def test_a_halo_that_the_manual_leaves_open_is_refused():
    """Behind pixel 8 of 9 comes the next image's first, or nothing: 5.5.5.3 does not say."""
    map_ = argument(images_of(32, 9, 3, 8), 32, 9, PixelBox((0,), (0,), "im2col::w"), swizzle="64B")
    with refused("invalid-operand"):
        loaded(map_, (0, 0, 0, 0), (1, 0), 10, "im2col::w")


# -- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "at, offsets, expected",
    [
        ((0, 8, 0, 0), (0, 0), "w from -1 to 7"),
        ((0, 0, -2, 0), (0, 0), "h from -1 to 12"),
        ((0, 0, 0, 0), (0, 256), "less than 256"),
    ],
)
def test_a_base_pixel_outside_the_box_and_a_far_offset_are_errors(at, offsets, expected):
    map_ = argument(images_of(64, 9, 14, 2), 64, 8, PixelBox((-1, -1), (-1, -1)))
    with pytest.raises(InvalidOperandError) as caught:
        loaded(map_, at, offsets)
    assert caught.value.expected == expected


@pytest.mark.parametrize("verb, dot", [("cp", ""), ("cp.reduce", ".add")])
@pytest.mark.parametrize(
    "lower, upper, expected",
    [((-1, 0), (0, 0), "0 or more"), ((0, 0), (0, 1), "0 or less"), ((-2, 0), (0, 2), "0 or more")],
)
def test_a_column_is_not_written_through_a_box_that_reaches_outside(verb, dot, lower, upper, expected):
    map_ = argument(images_of(64, 9, 14, 2).astype(np.uint32), 32, 8, PixelBox(lower, upper))
    body = f"""
    {init(1)}
    @%first {verb}.async.bulk.tensor.4d.global.shared::cta{dot}.im2col_no_offs.bulk_group [%a0, {{0, 1, 1, 0}}], [tile];
    """
    with refused("invalid-operand", expected=expected):
        emulate(body, map_)


def test_copy_and_map_are_of_one_mode():
    images = images_of(64, 9, 14, 2)
    tiles = TensorMapArgument(TensorMapSpec.tiled(images.shape, None, "u16", (64, 8, 1, 1)), images)
    with pytest.raises(InvalidOperandError) as caught:
        loaded(tiles, (0, 0, 0, 0), (0, 0), 8)
    assert caught.value.expected == ".tile"
    wide = argument(images, 64, 8, PixelBox((0,), (0,), "im2col::w"), swizzle="128B")
    with pytest.raises(InvalidOperandError) as caught:
        loaded(wide, (0, 0, 0, 0), (0, 0), 8)
    assert caught.value.expected == ".im2col::w"
    body = init(1) + """
    @%first cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
        [tile], [%a0, {0, 0, 0, 0}], [bar];
    """  # fmt: skip
    with pytest.raises(InvalidOperandError) as caught:
        emulate(body, wide)
    assert caught.value.expected == ".im2col::w"


@pytest.mark.parametrize(
    "dims, box, pixels, swizzle, expected",
    [
        ((64, 9), (64, 8), PixelBox((), ()), "NONE", "rank 3 to 5"),
        ((64, 9, 4), (64, 8), PixelBox((0, 0), (0, 0)), "NONE", "1 of -32768 to 32767"),
        ((64, 9, 9, 4), (64, 8), PixelBox((-129, 0), (0, 0)), "NONE", "2 of -128 to 127"),
        ((64, 9, 9, 9, 4), (64, 8), PixelBox((0, 0, 0), (0, 0, 16)), "NONE", "3 of -16 to 15"),
        ((64, 9, 4), (64, 8), PixelBox((5,), (-5,)), "NONE", "a lower corner that is not above"),
        ((64, 9, 4), (64, 1025), PixelBox((0,), (0,)), "NONE", "1 to 1024"),
        ((64, 9, 4), (64, 8), PixelBox((0,), (0,)), "64B", "at most 64 bytes, 32 elements"),
        ((64, 9, 4), (64, 8), PixelBox((0,), (0,), "im2col::w"), "NONE", WIDE),
        ((64, 9, 4), (64, 64), PixelBox((0,), (0,), "im2col::w::128"), "128B", 128),
        ((64, 9, 4), (64, 64), PixelBox((0,), (0,), "im2col::v"), "128B", "one of im2col, im2col::w, im2col::w::128"),
    ],
)  # fmt: skip
def test_maps_beyond_the_drivers_limits_are_refused(dims, box, pixels, swizzle, expected):
    with pytest.raises(ArgumentError) as caught:
        TensorMapSpec.tiled(dims[::-1], None, "u16", box, swizzle=swizzle, pixels=pixels)
    assert caught.value.expected == expected


# -- what the sanitizer sees ---------------------------------------------------------------------------------------


def found_by_the_sanitizer(body: str, *arguments: object, grid: int = 1) -> set[str]:
    try:
        report = emulate(body, *arguments, grid=grid, detailed=True, watch=[Sanitizer])
    except EmulationError as error:
        return {finding.rule for finding in error.findings}
    return {finding.rule for finding in report.findings}


@pytest.mark.parametrize("waits", [True, False])
def test_a_column_that_is_read_before_it_has_arrived_is_found(waits):
    map_ = argument(images_of(64, 5, 3), 64, 12, PixelBox((0,), (-1,)), swizzle="128B")
    body = init(1) + f"""
    mov.b16 %h0, 1;
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {12 * 128};
    @%first cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes
        [tile], [%a0, {{0, 1, 0}}], [bar], {{%h0}};
    """ + (wait(0) if waits else "") + dump("%a1", 12 * 128) + ("" if waits else wait(0))  # fmt: skip
    rules = found_by_the_sanitizer(body, map_, np.zeros(12 * 128, np.uint8))
    assert rules == (set() if waits else {"copy-not-waited"})


def test_a_column_stored_over_pixels_that_another_cta_writes_is_found():
    map_ = argument(images_of(64, 5, 3), 64, 4, PixelBox((0,), (0,)))
    store = init(1) + """
    @!%first bra end;
    mov.u32 %r0, %ctaid.x;
    mul.lo.u32 %r0, %r0, STEP;
    cp.async.bulk.tensor.3d.global.shared::cta.im2col_no_offs.bulk_group [%a0, {0, %r0, 0}], [tile];
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    end:
    """  # fmt: skip
    near, far = (found_by_the_sanitizer(store.replace("STEP", step), map_, grid=2) for step in ("1", "4"))
    assert "same-value-race" in near and "same-value-race" not in far
