"""wgmma with a sparse A in the emulator: every type, A in shared memory and in registers, selectors, bad metadata.

The expected values come from a dense A that NumPy multiplies; metadata is packed here thread by thread.
"""

import numpy as np
import pytest

from tests.emulator.tensor_kernels import (
    A_REGISTERS,
    COMMIT,
    FENCE,
    from_registers,
    run_wgmma,
    shared_image,
    to_registers,
    wait,
)
from tests.emulator.tensor_kernels import _braces as braces
from tests.emulator.test_wgmma import bits, immediates, numbers, product
from tests.errors import refused
from warploom import asm
from warploom.isa import dtypes, fragments
from warploom.isa.shared_layout import SharedLayout

PAIRS = [("f16", "f16"), ("bf16", "bf16"), ("tf32", "tf32"), ("e4m3", "e5m2"), ("s8", "u8")]
CHOICES = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
N = 16


def sparse(rng, kind, k):
    """A dense A, (64, k), the half of it that is stored, (64, k / 2), and the four bits of each group of it."""
    whole = numbers(rng, (64, k), kind)
    size = 2 if kind == "tf32" else 4
    stored = np.zeros((64, k // 2), whole.dtype)
    codes = np.zeros((64, k // size), np.uint32)
    for row in range(64):
        for group in range(k // size):
            first = group * size
            if size == 2:
                kept = [int(rng.integers(2))]
                codes[row, group] = 0xE if kept[0] else 0x4
            else:
                kept = list(CHOICES[rng.integers(len(CHOICES))])
                codes[row, group] = kept[0] | kept[1] << 2
            part = whole[row, first : first + size].copy()
            stored[row, group * len(kept) : (group + 1) * len(kept)] = part[kept]
            whole[row, first : first + size] = 0
            whole[row, [first + place for place in kept]] = part[kept]
    return whole, stored, codes


def packed(codes, kind, selector):
    """A register of each thread. PTX ISA 9.7.15.6.1: of four neighbouring threads that hold rows r and r + 8, of bytes
    all four hold 32 of k each, two for either row; of wider types the two that are selected half of k for both."""
    registers = np.full(128, 0x4EE4_4EE4, np.uint32)  # threads that are not asked hold what looks like metadata
    for thread in range(128):
        row, place = thread // 32 * 16 + thread % 32 // 4, thread % 4
        if kind in ("s8", "u8", "e4m3", "e5m2"):
            found = codes[row + 8 * (place % 2), 8 * (place // 2) : 8 * (place // 2) + 8]
        elif place // 2 != selector:
            continue
        else:
            half = slice(4 * (place % 2), 4 * (place % 2) + 4)
            found = np.concatenate([codes[row, half], codes[row + 8, half]])
        registers[thread] = sum(int(code) << 4 * at for at, code in enumerate(found))
    return registers


def multiply(stored, codes, b, c, types, d_type, in_registers=False, selector=0):
    """D of one sparse wgmma."""
    k = b.shape[1]
    layouts = [SharedLayout.for_operand(dtypes.ALL[kind], rows, columns)
               for kind, rows, columns in ((types[0], 64, k // 2), (types[1], N, k))]  # fmt: skip
    image, starts = shared_image((layouts[0], stored), (layouts[1], b))
    descriptors = [layout.descriptor(start).encode() for layout, start in zip(layouts, starts, strict=True)]
    accumulator = fragments.warpgroup_d(N, 16 if d_type == "f16" else 32)
    a = to_registers(bits(stored), fragments.warpgroup_a(stored.itemsize * 8)) if in_registers else np.zeros((4, 128))
    a = np.concatenate([a.astype(np.uint32), packed(codes, types[0], selector)[None]])
    left = A_REGISTERS if in_registers else "%p3"
    rest = immediates(types[0], in_registers)
    shape = f"m64n{N}k{k}.{d_type}.{types[0]}.{types[1]}"
    line = (f"wgmma.mma_async.sp.sync.aligned.{shape} {braces('d', accumulator.registers)}, {left}, %p4, "
            f"%a4, {selector}, 1{rest};")  # fmt: skip
    d = to_registers(bits(c), accumulator)
    run_wgmma([FENCE, line, COMMIT, wait(0)], image, d, descriptors, a)
    return from_registers(d, accumulator).view(c.dtype)


@pytest.mark.parametrize("in_registers", [False, True], ids=["shared", "registers"])
@pytest.mark.parametrize("types", PAIRS, ids="-".join)
def test_a_sparse_product_is_that_of_the_dense_matrix(types, in_registers):
    rng = np.random.default_rng(3)
    d_type = "s32" if types[0] == "s8" else "f32"
    k = 64 // numbers(rng, 1, types[0]).itemsize
    whole, stored, codes = sparse(rng, types[0], k)
    b, c = numbers(rng, (N, k), types[1]), numbers(rng, (64, N), d_type)
    for selector in (0,) if k == 64 else (0, 1):
        d = multiply(stored, codes, b, c, types, d_type, in_registers, selector)
        assert np.array_equal(d, product(whole, b, c))


def test_an_infinity_that_meets_nothing_stored_is_not_multiplied():
    rng = np.random.default_rng(4)
    whole, stored, codes = sparse(rng, "f16", 32)
    codes[:], stored[:] = 0x4, 1  # places 0 and 1 of each group
    b, c = np.ones((N, 32), np.float16), np.zeros((64, N), np.float32)
    b[0, 2], b[1, 1] = np.inf, np.inf
    d = multiply(stored, codes, b, c, ("f16", "f16"), "f32")
    assert (d[:, 0] == 16).all() and np.isinf(d[:, 1]).all() and (d[:, 2:] == 16).all()


@pytest.mark.parametrize("left, right, before, result", [
    (np.inf, np.inf, 0.0, np.inf), (-np.inf, np.inf, 0.0, -np.inf), (np.inf, 0.0, 0.0, np.nan),
    (0.0, np.inf, 0.0, np.nan),
    (np.inf, np.inf, -np.inf, np.nan), (np.inf, -np.inf, -np.inf, -np.inf), (2.0, -np.inf, 60000.0, -np.inf),
])  # fmt: skip
@pytest.mark.parametrize("d_type", ["f32", "f16"])
def test_infinities_that_are_stored_are_multiplied_and_added(left, right, before, result, d_type):
    rng = np.random.default_rng(4)
    _, stored, codes = sparse(rng, "f16", 32)
    codes[:], stored[:] = 0x4, 64  # places 0 and 1 of each group
    b, c = np.full((N, 32), 1.0, np.float16), np.full((64, N), before, dtypes.ALL[d_type].numpy)
    b[3], b[3, 5], stored[7, 3] = 64, right, left  # finite terms of column 3 overflow an f16: infinities outweigh them
    b[3, 6] = np.inf  # meets nothing
    d = multiply(stored, codes, b, c, ("f16", "f16"), d_type)
    np.testing.assert_array_equal(d[7, 3].astype(float), result)


def test_metadata_that_means_nothing_is_an_error():
    rng = np.random.default_rng(5)
    _, stored, codes = sparse(rng, "bf16", 32)
    codes[21, 3] = 0x5
    b, c = numbers(rng, (N, 32), "bf16"), numbers(rng, (64, N), "f32")
    with refused("invalid-operand", expected="0x4, 0x8, 0xc, 0x9, 0xd, 0x6, 0xe"):
        multiply(stored, codes, b, c, ("bf16", "bf16"), "f32")


@pytest.mark.parametrize("selector, refusals", [(0, 0), (1, 1)])
def test_bytes_have_nothing_to_select(selector, refusals):
    text = f""".version 8.2
.target sm_90a
.address_size 64
.visible .entry k() {{
.reg .b32 %r<8>; .reg .b64 %rd<2>; .reg .pred %p;
wgmma.mma_async.sp.sync.aligned.m64n8k64.s32.s8.s8 {{%r0, %r1, %r2, %r3}}, %rd0, %rd1, %r4, {selector}, %p;
ret;
}}
"""
    assert len(asm.verify(asm.parse(text))) == refusals
