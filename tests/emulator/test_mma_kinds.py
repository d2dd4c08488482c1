"""mma.sync and mma.sp with a kind in the emulator, against NumPy; registers are filled here, by the ISA's words."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from tests.emulator.tensor_kernels import from_registers, to_registers
from tests.emulator.test_mma_sparse import chosen, packed
from tests.errors import refused
from warploom import asm
from warploom.emulator import api
from warploom.isa import fragments

NUMBERS = {
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn, "e2m1": ml_dtypes.float4_e2m1fn,
}  # fmt: skip
CODES = {"e3m2": 64, "e2m3": 64, "e2m1": 16}
SCALED = {"mxf8f6f4": (1, 32), "mxf4": (2, 64), "mxf4nvf4": (2, 64), "nvfp4": (4, 64)}
"""Factors of a row, and k."""


def run(opcode: str, registers: list[np.ndarray], tail: str, count: int) -> np.ndarray:
    """One instruction of one warp: registers of A, B, C and others in order, each (registers, 32)."""
    flat = np.concatenate(registers).astype(np.uint32)
    names, at = [], 0
    for one in registers[:3]:
        names.append("{" + ", ".join(f"%r{number}" for number in range(at, at + len(one))) + "}")
        at += len(one)
    loads = "\n".join(f"ld.global.b32 %r{number}, [%in+{128 * number}];" for number in range(len(flat)))
    stores = "\n".join(f"st.global.b32 [%out+{128 * number}], %d{number};" for number in range(count))
    d = "{" + ", ".join(f"%d{number}" for number in range(count)) + "}"
    text = f""".version 9.0
.target sm_120a
.address_size 64
.visible .entry kernel(.param .u64 in, .param .u64 out) {{
.reg .b64 %in, %out; .reg .b32 %r<32>, %d<8>, %idx; .reg .b16 %h<4>;
ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %idx, %tid.x;
mad.wide.u32 %in, %idx, 4, %in; mad.wide.u32 %out, %idx, 4, %out;
{loads}
mov.b16 %h0, 2; mov.b16 %h1, 1;
{opcode} {d}, {names[0]}, {names[1]}, {names[2]}{tail};
{stores}
ret;
}}
"""
    out = np.zeros((count, 32), np.uint32)
    api.run(asm.parse(text, name="k.ptx"), "kernel", [flat, out], grid=(1, 1, 1), block=(32, 1, 1))
    return out


def codes(rng: np.random.Generator, shape: tuple[int, int], kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Codes of small numbers, and the numbers."""
    every = np.arange(CODES.get(kind, 256)).astype(np.uint8)
    values = every.view(NUMBERS[kind]).astype(np.float64)
    good = every[np.isfinite(values) & (np.abs(values) <= 2) & (np.abs(values) >= 0.25)]
    found = rng.choice(good, shape).astype(np.uint8)
    return found, found.view(NUMBERS[kind]).astype(np.float64)


def held(found: np.ndarray, kind: str) -> np.ndarray:
    """A code in its byte: 4 bits in the middle, 6 in the low ones; what is around them does not matter."""
    return found << 2 | 0xC3 if kind == "e2m1" else found | 0xC0 if kind in CODES else found


def factors(
    rng: np.random.Generator, rows: int, count: int, byte: int, lane: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """A register of each thread in which those lanes hold the factors of the rows from a byte on, and the factors."""
    found = rng.integers(120, 131, (rows, count)) if count < 4 else rng.integers(0x30, 0x48, (rows, count))
    register = np.full(32, 0xFFFFFFFF, np.uint32)
    for row in range(rows):
        word = bytearray(b"\xff\xff\xff\xff")
        word[byte : byte + count] = found[row].astype(np.uint8).tobytes()
        register[lane[row]] = int.from_bytes(word, "little")
    kind = ml_dtypes.float8_e8m0fnu if count < 4 else ml_dtypes.float8_e4m3fn
    return register[None], found.astype(np.uint8).view(kind).astype(np.float64)


@pytest.mark.parametrize("d", ["f32", "f16"])
@pytest.mark.parametrize(("a", "b"), list(itertools.product(NUMBERS, NUMBERS)))
def test_a_product_of_mixed_types(a: str, b: str, d: str):
    rng = np.random.default_rng(1)
    (left, x), (right, y) = codes(rng, (16, 32), a), codes(rng, (8, 32), b)
    out = fragments.mma_c(16, 32 if d == "f32" else 16)
    given = [
        to_registers(held(left, a), fragments.mma_a(16, 32, 8)),
        to_registers(held(right, b), fragments.mma_b(32, 8)),
        np.zeros((out.registers, 32), np.uint32),
    ]
    raw = run(f"mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.{d}.{a}.{b}.{d}", given, "", out.registers)
    result = from_registers(raw, out).view(np.float32 if d == "f32" else np.float16)
    np.testing.assert_allclose(result, x @ y.T, rtol=2e-3 if d == "f16" else 0)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("kind", SCALED)
@pytest.mark.parametrize(("thread_a", "thread_b", "in_registers"), [(0, 0, False), (1, 3, False), (1, 2, True)])
def test_a_block_scaled_product(kind: str, sparse: bool, thread_a: int, thread_b: int, in_registers: bool):
    rng = np.random.default_rng(2)
    count, k = SCALED[kind]
    k *= 2 if sparse else 1
    bits = 8 if kind == "mxf8f6f4" else 4
    a, b = ("e3m2", "e2m1") if bits == 8 else ("e2m1", "e2m1")
    byte_a, byte_b = {1: (3, 2), 2: (2, 2), 4: (0, 0)}[count] if not in_registers else (2 if count < 4 else 0, 0)
    stored = k // 2 if sparse else k
    (left, x), (right, y) = codes(rng, (16, stored), a), codes(rng, (8, k), b)
    lanes_a = [4 * (row % 8) + 2 * thread_a + row // 8 for row in range(16)]
    lanes_b = [4 * column + thread_b for column in range(8)]
    of_a, s = factors(rng, 16, count, byte_a, lanes_a)
    of_b, t = factors(rng, 8, count, byte_b, lanes_b)
    hold = held if bits == 8 else lambda found, kind: found
    given = [to_registers(hold(left, a), fragments.mma_a(16, stored, bits)),
             to_registers(hold(right, b), fragments.mma_b(k, bits)), np.zeros((4, 32), np.uint32)]  # fmt: skip
    ids = f"{{{byte_a}, {thread_a}}}" if not in_registers else f"{{{'%h0' if count < 4 else '0'}, %h1}}"
    first = sum(map(len, given)) + (1 if sparse else 0)
    whole = x
    if sparse:
        groups, places = chosen(rng, k, bits)
        given.append(packed(groups, k, bits, 0)[None])
        whole = np.zeros((16, k))
        np.put_along_axis(whole, places, x, 1)
    scale = "ue4m3" if count == 4 else "ue8m0"
    opcode = (
        f"mma.{'sp::ordered_metadata.' if sparse else ''}sync.aligned.m16n8k{k}.row.col."
        f"kind::{'mxf4nvf4' if kind == 'nvfp4' else kind}.block_scale.scale_vec::{count}X.f32.{a}.{b}.f32.{scale}"
    )
    middle = f", %r{first - 1}, 0" if sparse else ""
    tail = f"{middle}, %r{first}, {ids}, %r{first + 1}, {{{byte_b}, {thread_b}}}"
    raw = run(opcode, [*given, of_a, of_b], tail, 4)
    expected = (whole * np.repeat(s, k // count, 1)) @ (y * np.repeat(t, k // count, 1)).T
    result = from_registers(raw, fragments.mma_c(16)).view(np.float32)
    np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize(("byte", "thread"), [(4, 0), (1, 0), (0, 2)])
def test_ids_in_registers_that_mean_nothing_end_the_run(byte: int, thread: int):
    zeros = [np.zeros((count, 32), np.uint32) for count in (4, 2, 4, 1, 1)]
    opcode = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"
    tail = ", %r10, {%h2, %h3}, %r11, {0, 0}"
    with refused("invalid-operand", got=f"{byte}, {thread}"):
        run(f"mov.b16 %h2, {byte}; mov.b16 %h3, {thread};\n{opcode}", zeros, tail, 4)
