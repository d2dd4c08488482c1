"""mma.sync in the emulator, for every type and shape, against NumPy."""

import ml_dtypes
import numpy as np
import pytest

from tests.emulator.tensor_kernels import from_registers, run_mma, to_registers
from tests.errors import refused
from warploom import asm
from warploom.emulator import api
from warploom.isa import fragments

FLOATS = {
    "bf16": (ml_dtypes.bfloat16, 16),
    "f16": (np.float16, 16),
    "tf32": (np.float32, 32),
    "e4m3": (ml_dtypes.float8_e4m3fn, 8),
    "e5m2": (ml_dtypes.float8_e5m2, 8),
    "f32": (np.float32, 32),
    "f64": (np.float64, 64),
}


def small_floats(rng, shape, kind):
    """Numbers with few bits, so that sums are exact in every type."""
    dtype, bits = FLOATS[kind]
    numbers = rng.integers(-4, 5, shape).astype(np.float64) / 2
    return numbers, numbers.astype(dtype).view(f"u{bits // 8}")


def numbers_of(bits, kind):
    return bits.view(FLOATS[kind][0]).astype(np.float64)


FLOAT_SHAPES = [
    *(("f16", "f16", d, k) for d in ("f32", "f16") for k in (8, 16)),
    *(("bf16", "bf16", "f32", k) for k in (8, 16)),
    *(("tf32", "tf32", "f32", k) for k in (4, 8)),
    *((a, b, d, k) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2") for d in ("f32", "f16") for k in (16, 32)),
]


@pytest.mark.parametrize("numerics", ["exact", "hardware"])
@pytest.mark.parametrize("a_type, b_type, d_type, k", FLOAT_SHAPES)
def test_a_float_product_is_that_of_numpy(a_type, b_type, d_type, k, numerics):
    rng = np.random.default_rng(k)
    a, a_bits = small_floats(rng, (16, k), a_type)
    b, b_bits = small_floats(rng, (8, k), b_type)
    c, c_bits = small_floats(rng, (16, 8), d_type)
    bits, accumulator = FLOATS[a_type][1], fragments.mma_c(16, FLOATS[d_type][1])
    d = run_mma(
        f"mma.sync.aligned.m16n8k{k}.row.col.{d_type}.{a_type}.{b_type}.{d_type}",
        to_registers(a_bits, fragments.mma_a(16, k, bits)),
        to_registers(b_bits, fragments.mma_b(k, bits)),
        to_registers(c_bits, accumulator),
        accumulator.registers,
        numerics=numerics,
    )
    assert np.array_equal(numbers_of(from_registers(d, accumulator), d_type), a @ b.T + c)


@pytest.mark.parametrize("m, k", [(8, 4), (16, 4), (16, 8), (16, 16)])
def test_a_double_product_is_that_of_numpy(m, k):
    rng = np.random.default_rng(m + k)
    a, b, c = rng.standard_normal((m, k)), rng.standard_normal((8, k)), rng.standard_normal((m, 8))
    accumulator = fragments.mma_c(m, 64)
    d = run_mma(
        f"mma.sync.aligned.m{m}n8k{k}.row.col.f64.f64.f64.f64",
        to_registers(a.view(np.uint64), fragments.mma_a(m, k, 64)),
        to_registers(b.view(np.uint64), fragments.mma_b(k, 64)),
        to_registers(c.view(np.uint64), accumulator),
        accumulator.registers,
    )
    assert np.allclose(from_registers(d, accumulator).view(np.float64), a @ b.T + c, rtol=1e-14)


INTEGER_SHAPES = [(m, k, 8) for m, k in ((8, 16), (16, 16), (16, 32))] + [
    (m, k, 4) for m, k in ((8, 32), (16, 32), (16, 64))
]


@pytest.mark.parametrize("a_signed", [True, False])
@pytest.mark.parametrize("b_signed", [True, False])
@pytest.mark.parametrize("m, k, bits", INTEGER_SHAPES)
def test_an_integer_product_is_that_of_numpy(m, k, bits, a_signed, b_signed):
    rng = np.random.default_rng(m * k)

    def numbers(rows, signed):
        low = -(1 << bits - 1) if signed else 0
        values = rng.integers(low, low + (1 << bits), (rows, k))
        return values, (values & (1 << bits) - 1).astype(np.uint8)

    a, a_bits = numbers(m, a_signed)
    b, b_bits = numbers(8, b_signed)
    c = rng.integers(-(2**31), 2**31, (m, 8))
    accumulator = fragments.mma_c(m)
    types = f"{'s' if a_signed else 'u'}{bits}.{'s' if b_signed else 'u'}{bits}"
    for saturate in ("", ".satfinite"):
        d = run_mma(
            f"mma.sync.aligned.m{m}n8k{k}.row.col{saturate}.s32.{types}.s32",
            to_registers(a_bits, fragments.mma_a(m, k, bits)),
            to_registers(b_bits, fragments.mma_b(k, bits)),
            to_registers(c.astype(np.uint32), accumulator),
            accumulator.registers,
        )
        exact = a @ b.T + c
        expected = np.clip(exact, -(2**31), 2**31 - 1) if saturate else exact.astype(np.uint32).view(np.int32)
        assert np.array_equal(from_registers(d, accumulator).view(np.int32), expected)


@pytest.mark.parametrize("operation, ufunc", [("and", np.bitwise_and), ("xor", np.bitwise_xor)])
@pytest.mark.parametrize("m, k", [(8, 128), (16, 128), (16, 256)])
def test_a_single_bit_product_counts_bits(m, k, operation, ufunc):
    rng = np.random.default_rng(k)
    a, b = rng.integers(0, 2, (m, k)).astype(np.uint8), rng.integers(0, 2, (8, k)).astype(np.uint8)
    c = rng.integers(-100, 100, (m, 8))
    accumulator = fragments.mma_c(m)
    d = run_mma(
        f"mma.sync.aligned.m{m}n8k{k}.row.col.s32.b1.b1.s32.{operation}.popc",
        to_registers(a, fragments.mma_a(m, k, 1)),
        to_registers(b, fragments.mma_b(k, 1)),
        to_registers(c.astype(np.uint32), accumulator),
        accumulator.registers,
    )
    expected = ufunc(a[:, None], b[None]).sum(-1, dtype=np.int64) + c
    assert np.array_equal(from_registers(d, accumulator).view(np.int32), expected)


@pytest.mark.parametrize("d_type, c_type", [("f32", "f32"), ("f32", "f16"), ("f16", "f16")])
@pytest.mark.parametrize("a_layout", ["row", "col"])
@pytest.mark.parametrize("b_layout", ["row", "col"])
def test_the_volta_shape_is_four_products(a_layout, b_layout, d_type, c_type):
    rng = np.random.default_rng(5)
    a, a_bits = small_floats(rng, (32, 4), "f16")
    b, b_bits = small_floats(rng, (32, 4), "f16")
    c, c_bits = small_floats(rng, (32, 8), c_type)
    out = fragments.volta_c(FLOATS[d_type][1])
    d = run_mma(
        f"mma.sync.aligned.m8n8k4.{a_layout}.{b_layout}.{d_type}.f16.f16.{c_type}",
        to_registers(a_bits, fragments.volta_a(a_layout)),
        to_registers(b_bits, fragments.volta_b(b_layout)),
        to_registers(c_bits, fragments.volta_c(FLOATS[c_type][1])),
        out.registers,
        arch="sm_80",
    )
    expected = np.concatenate([a[i : i + 8] @ b[i : i + 8].T + c[i : i + 8] for i in range(0, 32, 8)])
    assert np.array_equal(numbers_of(from_registers(d, out), d_type), expected)


def test_each_warp_has_its_own_matrices():
    rng = np.random.default_rng(6)
    parts = [[small_floats(rng, shape, "f16") for shape in ((16, 16), (8, 16))] for _ in range(3)]
    zero = np.zeros((4, 96), np.uint32)
    a = np.concatenate([to_registers(part[0][1], fragments.mma_a(16, 16, 16)) for part in parts], axis=1)
    b = np.concatenate([to_registers(part[1][1], fragments.mma_b(16, 16)) for part in parts], axis=1)
    d = run_mma("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", a, b, zero, 4, warps=3)
    for warp, part in enumerate(parts):
        found = from_registers(d[:, 32 * warp : 32 * warp + 32], fragments.mma_c(16)).view(np.float32)
        assert np.array_equal(found, part[0][0] @ part[1][0].T)


def test_a_warp_that_is_not_whole_is_refused():
    text = """.version 8.0
.target sm_80
.address_size 64
.visible .entry kernel() {
.reg .b32 %r<8>;
.reg .f32 %f<4>;
mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3}, {%r0,%r1}, {%r2}, {%f0,%f1,%f2,%f3};
ret;
}
"""
    with refused("emulation", got="16 of 32 threads"):
        api.run(asm.parse(text), "kernel", [], grid=(1, 1, 1), block=(16, 1, 1))
