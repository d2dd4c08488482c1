"""wmma beyond the use in CUDA's headers: default strides, saturation, mixed accumulators, missing threads.

nvcc's output for `nvcuda::wmma`, in tests/foreign, covers types, shapes and layouts.
"""

from __future__ import annotations

import numpy as np
import pytest

from warploom import asm
from warploom.emulator import api
from warploom.errors import MisalignedError, WarploomError


def registers(prefix: str, count: int) -> str:
    return "{" + ", ".join(f"%{prefix}{index}" for index in range(count)) + "}"


def product(
    kinds: tuple[str, str, str, str],
    counts: tuple[int, int, int],
    arrays: list[np.ndarray],
    guard: str = "",
    shape: str = "m16n16k16",
    b_layout: str = "row",
    stride: str = "",
) -> None:
    """D = A B + C of one product, A, C and D by rows.

    kinds: the types of A and B, of C, of D, and the words of wmma.mma that say them. counts: registers of A, C, D.
    stride: of A and B as an operand; the default without it.
    """
    factor, c_kind, d_kind, words = kinds
    a_count, c_count, d_count = counts
    text = f"""
    .version 8.7
    .target sm_90a
    .address_size 64
    .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d) {{
    .reg .b64 %p<4>; .reg .b32 %a<8>, %b<8>, %lane; .reg .pred %q;
    .reg .{"b32" if c_kind == "f16" else c_kind} %c<8>; .reg .{"b32" if d_kind == "f16" else d_kind} %d<8>;
    ld.param.u64 %p0, [a]; ld.param.u64 %p1, [b]; ld.param.u64 %p2, [c]; ld.param.u64 %p3, [d];
    {guard}
    wmma.load.a.sync.aligned.row.{shape}.global.{factor} {registers("a", a_count)}, [%p0]{stride};
    wmma.load.b.sync.aligned.{b_layout}.{shape}.global.{factor} {registers("b", a_count)}, [%p1]{stride};
    wmma.load.c.sync.aligned.row.{shape}.global.{c_kind} {registers("c", c_count)}, [%p2];
    wmma.mma.sync.aligned.row.{b_layout}.{shape}.{words}
        {registers("d", d_count)}, {registers("a", a_count)}, {registers("b", a_count)}, {registers("c", c_count)};
    wmma.store.d.sync.aligned.row.{shape}.global.{d_kind} [%p3], {registers("d", d_count)};
    ret; }}
    """
    api.run(asm.parse(text), "k", arrays, grid=(1, 1, 1), block=(32, 1, 1))


def operands(factor: type, c: type, d: type, low: int = -7) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    a, b = (random.integers(low, 8, (16, 16)).astype(factor) for _ in range(2))
    return [a, b, random.integers(-99, 99, (16, 16)).astype(c), np.zeros((16, 16), d)]


@pytest.mark.parametrize("c", ["f16", "f32"])
@pytest.mark.parametrize("d", ["f16", "f32"])
def test_half_precision_with_accumulators_of_two_types(c: str, d: str) -> None:
    types, count = {"f16": np.float16, "f32": np.float32}, {"f16": 4, "f32": 8}
    arrays = operands(np.float16, types[c], types[d])
    product(("f16", c, d, f"{d}.{c}"), (8, count[c], count[d]), arrays)
    left, right, third, out = (array.astype(float) for array in arrays)
    assert np.array_equal(out, left @ right + third)


@pytest.mark.parametrize("saturates", [True, False])
def test_an_integer_sum_is_clamped_or_wraps(saturates: bool) -> None:
    arrays = operands(np.int8, np.int32, np.int32)
    arrays[2][...] = np.where(np.arange(16) % 2, 2**31 - 5, -(2**31) + 5)
    product(("s8", "s32", "s32", f"s32.s8.s8.s32{'.satfinite' if saturates else ''}"), (2, 8, 8), arrays)
    exact = arrays[0].astype(np.int64) @ arrays[1].astype(np.int64) + arrays[2]
    expected = np.clip(exact, -(2**31), 2**31 - 1) if saturates else exact.astype(np.int32)
    assert (exact != exact.astype(np.int32)).any()
    assert np.array_equal(arrays[3], expected)


def packed(matrix: np.ndarray, bits: int) -> np.ndarray:
    """The rows of a matrix with elements of four bits or of one, low bits first."""
    raw = np.unpackbits((matrix & 15).astype(np.uint8)[..., None], axis=-1, bitorder="little")[..., :bits]
    return np.packbits(raw.reshape(len(matrix), -1), axis=-1, bitorder="little").view(np.uint32)


SUBBYTE = {
    "s4": (4, "m8n8k32", (-8, 8), "s32.s4.s4.s32", np.matmul),
    "u4": (4, "m8n8k32", (0, 16), "s32.u4.u4.s32", np.matmul),
    "b1": (1, "m8n8k128", (0, 2), "s32.b1.b1.s32.and.popc", lambda a, b: np.bitwise_and(a[..., None], b).sum(1)),
    "b1 xor": (1, "m8n8k128", (0, 2), "s32.b1.b1.s32.xor.popc", lambda a, b: np.bitwise_xor(a[..., None], b).sum(1)),
}


@pytest.mark.parametrize("kind", SUBBYTE)
@pytest.mark.parametrize("wider", [0, 64])
def test_elements_below_eight_bits_give_exact_sums(kind: str, wider: int) -> None:
    """`wider`: elements between two rows of A and two columns of B."""
    bits, shape, bounds, words, product_of = SUBBYTE[kind]
    random = np.random.default_rng(0)
    k = int(shape.partition("k")[2])
    a, b = (random.integers(*bounds, (8, k + wider * 4 // bits)).astype(np.int64) for _ in range(2))
    c = random.integers(-99, 99, (8, 8)).astype(np.int32)
    arrays = [packed(a, bits), packed(b, bits), c, np.zeros((8, 8), np.int32)]
    stride = f", {a.shape[1]}" if wider else ""
    product((kind[:2], "s32", "s32", words), (1, 2, 2), arrays, "", shape, "col", stride)
    assert np.array_equal(arrays[3], product_of(a[:, :k], b[:, :k].T) + c)


@pytest.mark.parametrize("saturates", [True, False])
def test_a_sum_of_four_bit_products_is_clamped_or_wraps(saturates: bool) -> None:
    a = np.full((8, 4), 0x88888888, np.uint32)
    arrays = [a, a, np.full((8, 8), 2**31 - 5, np.int32), np.zeros((8, 8), np.int32)]
    words = f"s32.s4.s4.s32{'.satfinite' if saturates else ''}"
    product(("s4", "s32", "s32", words), (1, 2, 2), arrays, "", "m8n8k32", "col")
    assert (arrays[3] == (2**31 - 1 if saturates else 2**31 - 5 + 32 * 64 - 2**32)).all()


def test_a_row_that_begins_inside_a_register_is_an_error() -> None:
    arrays = [np.zeros((9, 4), np.uint32)] * 2 + [np.zeros((8, 8), np.int32) for _ in range(2)]
    with pytest.raises(MisalignedError):
        product(("s4", "s32", "s32", "s32.s4.s4.s32"), (1, 2, 2), arrays, "", "m8n8k32", "col", ", 33")


def test_a_thread_that_is_missing_is_an_error() -> None:
    guard = "mov.u32 %lane, %laneid; setp.eq.u32 %q, %lane, 3; @%q bra skip; bra go; skip: bar.sync 1, 64; go:"
    with pytest.raises(WarploomError):
        product(("f16", "f32", "f32", "f32.f32"), (8, 8, 8), operands(np.float16, np.float32, np.float32), guard)
