"""TMA boxes of 4- and 6-bit elements (sm_100) against the definition, element by element; what maps of them may say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.emulator.async_kernels import TILE_BYTES, dump, emulate, init, wait
from tests.emulator.test_tma import load, swizzled
from tests.errors import refused
from warploom.emulator.engines.tma import TensorMapArgument
from warploom.errors import ArgumentError
from warploom.isa.tensor_map import TensorMapSpec
from warploom.runtime import launch_file
from warploom.testing import check_text

BITS = {"b4x16": 4, "b4x16_p64": 4, "b6x16_p32": 6}
GROUP_BYTES = {"b4x16": 8, "b4x16_p64": 16, "b6x16_p32": 16}
"""Bytes of shared memory from one group of 16 elements to the next."""
SWIZZLES = ("NONE", "128B")


def codes_and_bytes(kind: str, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Elements as numbers (rows, columns), and as the bytes that hold them, the first in the lowest bits."""
    bits = BITS[kind]
    codes = np.random.default_rng(rows * columns).integers(0, 1 << bits, (rows, columns)).astype(np.uint8)
    single = (codes[..., None] >> np.arange(bits)) & 1
    return codes, np.packbits(single.reshape(rows, -1), axis=1, bitorder="little")


def expected_tile(
    kind: str, codes: np.ndarray, box: tuple[int, int], at: tuple[int, int], swizzle: str, gaps: int
) -> np.ndarray:
    """A poisoned tile after a load: sixteen elements side by side, then the gap, which holds `gaps`."""
    tile, bits, group = np.full(TILE_BYTES, 0xFF, np.uint8), BITS[kind], GROUP_BYTES[kind]
    pitch = box[0] // 16 * group if swizzle == "NONE" else 128
    for row in range(box[1]):
        for first in range(0, box[0], 16):
            found = [0] * 16
            for number in range(16):
                place = (at[1] + row, at[0] + first + number)
                if 0 <= place[0] < codes.shape[0] and 0 <= place[1] < codes.shape[1]:
                    found[number] = int(codes[place])
            whole = sum(code << bits * number for number, code in enumerate(found))
            raw = whole.to_bytes(2 * bits, "little") + bytes([gaps]) * (group - 2 * bits)
            for number, byte in enumerate(raw):
                tile[swizzled(row * pitch + first // 16 * group + number, swizzle)] = byte
    return tile


@pytest.mark.parametrize("swizzle", SWIZZLES)
@pytest.mark.parametrize("at", [(0, 0), (128, 3), (-128, -2), (0, 7)])
@pytest.mark.parametrize("kind", BITS)
def test_a_load_spreads_elements_as_their_type_says(kind: str, at: tuple[int, int], swizzle: str):
    codes, raw = codes_and_bytes(kind, 10, 256)
    out, box = np.zeros(TILE_BYTES, np.uint8), (128, 8)
    spec = TensorMapSpec.tiled(raw.shape, raw.strides, kind, box, swizzle=swizzle)
    body = init(1) + load(size=spec.box_bytes) + wait(0) + dump("%a1", TILE_BYTES)
    emulate(body, TensorMapArgument(spec, raw), out, np.int32(at[0]), np.int32(at[1]), target="sm_100a")
    assert spec.box_bytes == 8 * 128 * BITS[kind] // 8  # mbarriers do not count the gaps
    assert np.array_equal(out, expected_tile(kind, codes, box, at, swizzle, gaps=0))


@pytest.mark.parametrize("kind", ["b4x16", "b6x16_p32"])
def test_a_store_leaves_the_gaps_out(kind: str):
    _, raw = codes_and_bytes(kind, 8, 256)
    out = np.zeros_like(raw)
    maps = [TensorMapArgument(TensorMapSpec.tiled(each.shape, each.strides, kind, (128, 8)), each)
            for each in (raw, out)]  # fmt: skip
    body = (
        init(1)
        + load(size=maps[0].spec.box_bytes, coordinates="%s2, %s3")
        + wait(0)
        + """
    @%first cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%a1, {%s2, %s3}], [tile];
    @%first cp.async.bulk.commit_group;
    @%first cp.async.bulk.wait_group 0;
    """
    )
    emulate(body, *maps, np.int32(128), np.int32(3), target="sm_100a")
    half = raw.shape[1] // 2
    assert np.array_equal(out[3:, half:], raw[3:, half:])
    assert not out[:3].any() and not out[:, :half].any()


def test_nothing_is_stored_through_a_map_that_pads_four_bits_to_bytes():
    raw = np.zeros((8, 64), np.uint8)
    spec = TensorMapSpec.tiled(raw.shape, raw.strides, "b4x16_p64", (128, 8))
    body = (
        init(1)
        + """
    @%first cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%a0, {%s1, %s1}], [tile];
    """
    )
    with refused("invalid-operand", expected="b4x16 or b6x16_p32"):
        emulate(body, TensorMapArgument(spec, raw), np.int32(0), target="sm_100a")


def test_a_map_becomes_one_of_packed_elements_by_its_code():
    codes, raw = codes_and_bytes("b4x16_p64", 8, 128)
    plain = TensorMapSpec.tiled(raw.shape, raw.strides, "u8", (64, 8))
    packed = replace(plain.with_mode("elemtype", 14), dims=(128, 8), box=(128, 8))
    packed.validate()
    assert packed == TensorMapSpec.tiled(raw.shape, raw.strides, "b4x16_p64", (128, 8))
    assert (packed.driver_element, packed.replace_element) == (14, 14)


GOOD = TensorMapSpec.tiled((8, 96), None, "b6x16_p32", (128, 8), swizzle="128B")


@pytest.mark.parametrize(
    "change, expected",
    [
        ({"dims": (192, 8)}, 128),
        ({"box": (64, 8)}, 128),
        ({"strides": (112,)}, "a multiple of 32"),
        ({"swizzle": "64B"}, "NONE, 128B"),
        ({"dims": (128, 8, 1), "strides": (96, 768), "box": (128, 8, 1), "interleave": "16B"}, "interleave NONE"),
        ({"oob_fill": "NAN"}, "f16, bf16"),
    ],
)
def test_limits_of_maps_with_gaps(change: dict[str, object], expected: object):
    with refused("argument") as caught:
        replace(GOOD, **change).validate()
    assert str(expected) in str(caught.value.expected)


def test_a_tensor_of_packed_pairs_has_an_even_extent():
    plain = TensorMapSpec.tiled((8, 64), None, "b4x16", (64, 8))
    with pytest.raises(ArgumentError) as error:
        replace(plain, dims=(127, 8)).validate()
    assert error.value.got == 127


def test_a_launch_description_counts_packed_elements(tmp_path):
    """Shapes and strides of a map's array are in elements, whatever their width; the array itself is of bytes."""
    text = """.version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .align 64 .b8 a[128], .param .u64 out) {
.reg .pred %p; .reg .b32 %r<4>; .reg .b64 %rd<4>;
.shared .align 1024 .b8 tile[2048];
.shared .align 8 .b64 bar;
mov.u32 %r0, %tid.x;
setp.eq.u32 %p, %r0, 0;
mov.b64 %rd0, a;
@%p mbarrier.init.shared::cta.b64 [bar], 1;
@%p fence.mbarrier_init.release.cluster;
bar.sync 0;
@%p mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1024;
@%p cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [tile], [%rd0, {0, 1}], [bar];
again:
mbarrier.try_wait.parity.shared::cta.b64 %p, [bar], 0;
@!%p bra again;
ld.param.u64 %rd1, [out];
mad.wide.u32 %rd1, %r0, 4, %rd1;
shl.b32 %r1, %r0, 2;
mov.u32 %r2, tile;
add.u32 %r2, %r2, %r1;
ld.shared.u32 %r3, [%r2];
st.global.u32 [%rd1], %r3;
ret;
}
"""
    (tmp_path / "k.ptx").write_text(text)
    (tmp_path / "k.launch.toml").write_text("""
grid = [1]
block = [32]
[[parameter]]
name = "a"
kind = "tensor_map"
dtype = "b4x16_p64"
shape = [17, 128]
strides = [192, 1]
fill = 37
box = [128, 16]
[[parameter]]
name = "out"
dtype = "u32"
shape = [32]
[[expect]]
name = "out"
value = "np.where(np.arange(32) % 4 < 2, 0x25252525, 0)"
""")
    checked = check_text(tmp_path / "k.ptx")
    assert not checked.findings
    described = launch_file.read(tmp_path / "k.launch.toml")
    arrays = described.made(described.program(text)).arrays
    assert (arrays["a"].shape, arrays["a"].strides, arrays["a"].dtype) == ((17, 64), (96, 1), np.uint8)
