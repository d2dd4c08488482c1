"""tcgen05 against NumPy: kinds, layouts of the accumulator, places of A and B, masks and fragments.

Each case is a kernel of one tile, written with `tmem` and `ptx.tcgen05`. The emulator's map of tensor memory and that
of `isa.tensor_memory`, which the kernels use for stores, were written independently. Nothing was run on hardware.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from warploom import Tile, asm, kernel, ptx, reg, smem, tmem
from warploom.emulator import api
from warploom.emulator.engines.umma_plan import plan
from warploom.emulator.numerics.block_scaled import Scaling, multiply_scaled
from warploom.emulator.numerics.tensor_core import Product, multiply_accumulate, values
from warploom.errors import DeadlockError, InvalidOperandError
from warploom.isa.instruction_descriptor import InstructionDescriptor
from warploom.isa.tensor_cells import accumulator
from warploom.isa.tensor_memory import DATA_PATHS, data_path
from warploom.isa.zero_columns import column_shift, zero_columns
from warploom.runtime import emulate
from warploom.types import b32, bf16, e4m3, e5m2, f16, f32, s8, s32, u8, u32, u64

NUMPY: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32, "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2, "s8": np.int8, "u8": np.uint8,
}  # fmt: skip


def begin() -> tuple[Any, Any, Any, Any]:
    """The barriers of the loads and of the products, whether this is thread 0, and the CTA's rank."""
    full, done = smem.mbarrier(1), smem.mbarrier(1)
    first = ptx.special.tid.x() == 0
    rank = ptx.special.cluster_ctarank()
    with ptx.if_(first):
        ptx.mbarrier.init(full[0], 1)
        ptx.mbarrier.init(done[0], 1)
        ptx.fence.mbarrier_init()
    return full, done, first, rank


def store(acc: Any, C: Any, n: int, out: Any) -> None:
    """Each thread stores its part of an accumulator to C, whose rows have n elements."""
    fragment = acc.load()
    ptx.tcgen05.wait_ld()
    start = C.pointer() + (fragment.row.to(u64) * n + fragment.column) * out.bytes
    for index, value in enumerate(fragment.registers):
        ptx.store(ptx.addr(start, index * 4), value)


def product_kernel(
    m: int, n: int, dtype: Any, out: Any = f32, *, group: int = 1, major_a: str = "K", major_b: str = "K",
    a_in_cells: bool = False, before: bool = False, stored_n: int = 0, **options: Any,
) -> Any:  # fmt: skip
    """C = A @ Bᵀ of one instruction's rows and columns and 64 bytes or more of k; `before`: what C holds is added;
    `stored_n`: columns of B, if more than the product's."""
    k = 128 // dtype.bytes
    rows, columns = m // group, (stored_n or n) // group
    ws = options.get("ws", False)
    shape_a = ("M", "K") if major_a == "K" else ("K", "M")
    shape_b = ("N", "K") if major_b == "K" else ("K", "N")

    @kernel(
        in_specs=(
            Tile.umma_a(*shape_a, dtype, tile_m=rows, tile_k=k, major=major_a),
            Tile.umma_b(*shape_b, dtype, tile_n=columns, tile_k=k, major=major_b),
        ),
        out_specs=(Tile("M", "N", out, inout=False),),
        grid=(group, 1, 1), block=128, cluster=(group, 1, 1), arch="sm_100a",
    )  # fmt: skip
    def product(A, B, C):
        a = smem.umma_tile(dtype, (rows, k) if major_a == "K" else (k, rows), major_a)
        b = smem.umma_tile(dtype, (columns, k) if major_b == "K" else (k, columns), major_b)
        full, done, first, rank = begin()
        memory = tmem.alloc(512, group=group)
        acc = memory.accumulator(m, n, out if out is not bf16 else f32, ws=ws)
        with ptx.if_(first):
            ptx.mbarrier.arrive_expect_tx(full[0], a.bytes + b.bytes)
            at_a = (0, rank * rows) if major_a == "K" else (rank * rows, 0)
            at_b = (0, rank * columns) if major_b == "K" else (rank * columns, 0)
            ptx.tma.load(a[0], A.tma_desc(), at_a, full[0])
            ptx.tma.load(b[0], B.tma_desc(), at_b, full[0])
        ptx.mbarrier.wait(full[0], 0)
        left: Any = a[0]
        if group == 2:
            ptx.cluster.sync()
        with ptx.if_(first & (rank == 0)):
            right = b[0].rows(0, n) if stored_n else b[0]
            ptx.tcgen05.multiply(acc[0], left, right, accumulate=False, **options)
            ptx.tcgen05.commit(done[0], group=group, multicast=3 if group == 2 else None)
        ptx.mbarrier.wait(done[0], 0)
        ptx.tcgen05.fence_after_thread_sync()
        store(acc[0], C, n, out)
        memory.dealloc()

    return product


def matrix(dtype: Any, rows: int, columns: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    if dtype.name in ("s8", "u8"):
        return random.integers(-100 if dtype is s8 else 0, 100, (rows, columns)).astype(NUMPY[dtype.name])
    return random.standard_normal((rows, columns)).astype(NUMPY[dtype.name])


CASES = {
    "bf16 D": (128, 64, bf16, f32, {}),
    "f16 F": (64, 32, f16, f32, {}),
    "f16 accumulators": (128, 32, f16, f16, {}),
    "tf32": (128, 32, f32, f32, {}),
    "e5m2": (128, 32, e5m2, f32, {}),
    "e4m3 F": (64, 48, e4m3, f32, {}),
    "s8": (128, 64, s8, s32, {}),
    "u8 F": (64, 32, u8, s32, {}),
    "pair A": (256, 64, bf16, f32, {"group": 2}),
    "pair B": (128, 64, bf16, f32, {"group": 2}),
    "pair s8": (256, 64, s8, s32, {"group": 2}),
    "stationary E": (64, 64, bf16, f32, {"ws": True}),
    "stationary G": (32, 128, bf16, f32, {"ws": True}),
    "MN-major": (128, 64, bf16, f32, {"major_a": "MN", "major_b": "MN"}),
    "MN-major B of 8 bits": (128, 128, e4m3, f32, {"major_b": "MN"}),
    "negated": (128, 32, bf16, f32, {"negate": (True, False)}),
}


@pytest.mark.parametrize(("a", "b", "major", "accepted"), [
    ("e2m1", "e4m3", "b", True), ("e3m2", "e5m2", "b", True), ("e4m3", "e2m1", "a", True),
    ("e2m1", "e4m3", "a", False), ("e4m3", "e2m3", "b", False),
])  # fmt: skip
@pytest.mark.parametrize("kind", ["f8f6f4", "mxf8f6f4"])
def test_an_operand_of_8_bits_may_be_mn_major_beside_one_of_fewer(
    kind: str, a: str, b: str, major: str, accepted: bool
):
    """As in Gluon's product of e2m1 in tensor memory and e4m3 in rows of k."""
    scale = {"scale": "ue8m0"} if kind == "mxf8f6f4" else {}
    bits = InstructionDescriptor(kind, 128, 32, a, b, **{f"mn_major_{major}": True}, **scale).encode()
    if accepted:
        assert getattr(plan(kind, bits, 1, False, False), major).major == "MN"
        return
    with pytest.raises(InvalidOperandError, match="K-major"):
        plan(kind, bits, 1, False, False)


def mask_bits(start: int, first: int, zeros: int, used: int, on: int = 1, shift: int = 0) -> int:
    """A zero-column mask: starts of a byte each, first spans of a bit each, and the counts of both runs."""
    return start | first << 32 | on << 39 | (zeros - 1) << 40 | (used - 1) << 48 | shift << 56


ZEROED = {
    "one mask, used first": (128, mask_bits(0, 0, 3, 4), "0000111" * 10, 0),
    "two masks": (64, mask_bits(0, 0b01, 3, 4), "1110000" * 5, "0000111" * 5),
    "four masks, some columns left out": (
        32,
        mask_bits(0x01020100, 0b0011, 3, 4),
        "1110000" * 3,
        "1100001" + "1100001" + "11",
    ),
    "no mask": (128, mask_bits(0, 0, 3, 4, on=0), "0" * 64, 0),
}
"""Rows of A, the descriptor, and the first columns of the first two masks: the examples of PTX ISA 9.7.16.4.3."""


@pytest.mark.parametrize("name", ZEROED)
def test_columns_of_b_that_a_mask_names_count_as_zeros(name: str):
    m, bits, first, second = ZEROED[name]
    n = 64
    zeros = zero_columns(bits, m, n)
    part = n * m // 128
    for start, wanted in ((0, first), (part, second)):
        if wanted:
            assert "".join(str(int(one)) for one in zeros[start : start + part]) == wanted[:part]
    a, b = matrix(bf16, m, 64, 1), matrix(bf16, n, 64, 2)
    b[np.flatnonzero(zeros)] = np.inf  # whatever stands there
    kernel = product_kernel(m, n, bf16, f32, ws=True)
    got = emulate(masked(kernel, bits), a, b).outputs[-1].astype(float)
    exact = a.astype(float) @ np.where(zeros[:, None], 0, b.astype(float)).T
    np.testing.assert_allclose(got, exact, rtol=1e-5, atol=1e-5 * np.abs(exact).max())


def masked(kernel: Any, bits: int, more: str = "") -> Any:
    """A kernel whose products have a zero-column mask and a use of a collector."""
    text, edits = re.subn(r"(tcgen05\.mma\.ws[^ ]*)( [^;]*);", rf"\1{more}\2, {bits:#x};", kernel.ptx())
    assert edits == 4
    return replace(kernel.program(), text=text)


@pytest.mark.parametrize(("m", "major"), [(128, "K"), (64, "MN"), (32, "K")])
def test_a_mask_shifts_b_to_its_columns_and_counts_those_of_the_result(m: int, major: str):
    n, shift, k = 64, 3, 64
    bits = mask_bits(0, 0b1111, 5, 59, shift=shift)
    zeros = zero_columns(bits, m, n)
    a, b = matrix(bf16, m, k, 1), matrix(bf16, 2 * n, k, 2)
    kernel = product_kernel(m, n, bf16, f32, ws=True, major_b=major, stored_n=2 * n)
    report = emulate(masked(kernel, bits), a, b if major == "K" else np.ascontiguousarray(b.T))
    exact = a.astype(float) @ np.where(zeros[:, None], 0, b[shift : shift + n].astype(float)).T
    got = report.outputs[-1].reshape(-1)[: m * n].reshape(m, n).astype(float)  # C is told stored_n columns
    np.testing.assert_allclose(got, exact, rtol=1e-5, atol=1e-5 * np.abs(exact).max())
    assert [finding for finding in report.findings if finding.severity == "error"] == []


def test_a_shift_beyond_the_limit_and_reserved_bits_are_refused():
    with pytest.raises(InvalidOperandError, match="reserved"):
        zero_columns(1 << 36, 128, 64)
    assert column_shift(mask_bits(0, 0, 3, 4, shift=32), 64) == 32
    with pytest.raises(InvalidOperandError, match="at most 16"):
        column_shift(mask_bits(0, 0, 3, 4, shift=17), 32)


def test_a_collector_that_holds_b_serves_every_shift_that_its_descriptor_declares():
    kernel = product_kernel(128, 64, bf16, f32, ws=True, stored_n=128)
    program = masked(kernel, mask_bits(0, 0, 3, 4, on=0))
    lines = [line for line in program.text.splitlines() if "tcgen05.mma.ws" in line]
    idesc = lines[0].split(", ")[3]
    declared = [line.replace(idesc, str(int(idesc) | 1 << 30)) for line in lines]  # 8 columns
    filled = declared[0].replace("f16 ", "f16.collector::b0::fill ")
    shifted = hex(mask_bits(0, 0, 3, 4, on=0, shift=3))
    used = ", ".join([*declared[0].replace("f16 ", "f16.collector::b0::lastuse ").split(", ")[:4], "1", f"{shifted};"])
    text = program.text.replace(lines[0], filled).replace(lines[3], f"{lines[3]}\n{used}")
    a, b = matrix(bf16, 128, 64, 1), matrix(bf16, 128, 64, 2)
    report = emulate(replace(program, text=text), a, b)
    assert "collector-without-fill" not in {finding.rule for finding in report.findings}
    left, right = a.astype(float), b.astype(float)
    exact = left @ right[:64].T + left[:, :16] @ right[3:67, :16].T
    got = report.outputs[-1].reshape(-1)[: 128 * 64].reshape(128, 64).astype(float)
    np.testing.assert_allclose(got, exact, rtol=1e-5, atol=1e-5 * np.abs(exact).max())
    last = used.replace(lines[0].split(", ")[2], lines[3].split(", ")[2])
    report = emulate(replace(program, text=text.replace(used, last)), a, b)
    assert "collector-without-fill" in {finding.rule for finding in report.findings}


def test_a_reused_b_is_shifted_no_further_than_its_descriptor_declares():
    kernel = product_kernel(128, 64, bf16, f32, ws=True, stored_n=128)
    program = masked(kernel, mask_bits(0, 0, 3, 4, on=0, shift=3), ".collector::b0::use")
    with pytest.raises(InvalidOperandError, match="declares"):
        emulate(program, matrix(bf16, 128, 64, 1), matrix(bf16, 128, 64, 2))


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", CASES)
def test_a_product_is_numpys(name: str):
    m, n, dtype, out, options = CASES[name]
    k = 128 // dtype.bytes
    a, b = matrix(dtype, m, k, 1), matrix(dtype, n, k, 2)
    expected = a.astype(float) @ b.astype(float).T
    if dtype is f32:
        cut = [(one.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(float) for one in (a, b)]
        expected = cut[0] @ cut[1].T
    if "negate" in options:
        expected = -expected
    stored = [
        np.ascontiguousarray(one.T) if options.get(major) == "MN" else one
        for one, major in ((a, "major_a"), (b, "major_b"))
    ]
    report = product_kernel(m, n, dtype, out, **options).emulate(*stored)
    assert [finding for finding in report.findings if finding.severity == "error"] == []
    got = report.outputs[-1].astype(float)
    if out is s32:
        np.testing.assert_array_equal(got, expected)
    else:
        tolerance = 2e-2 if out is f16 else 1e-5
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("path", DATA_PATHS, ids=lambda path: path.name)
def test_the_two_maps_of_the_accumulator_agree(path: Any):
    n, sparse, ws = 64, path.name == "C", path.name in "EG"
    assert data_path(path.m, path.group, sparse=sparse, ws=ws) == path
    seen = {}
    for block in accumulator(path.m, n, path.group, sparse, ws):
        lanes, cells = np.arange(128)[block.lanes], np.arange(512)[block.cells]
        for row, lane in zip(range(path.m)[block.rows], lanes, strict=True):
            for column, cell in zip(range(n)[block.columns], cells, strict=True):
                seen[row, column] = (block.who, int(lane), int(cell))
    assert seen == {(row, column): path.place(row, column, n) for row in range(path.m) for column in range(n)}


# -- registers and cells ---------------------------------------------------------------------------------------------

FRAME = """\
.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 data)
.reqntid 128
{{
    .reg .pred %p<4>;
    .reg .b32 %r<64>;
    .reg .b64 %d<4>;
    .shared .align 8 .b32 slot[2];
    ld.param.u64 %d0, [data];
    mov.u32 %r0, %tid.x;
    setp.lt.u32 %p0, %r0, 32;
    @%p0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 64;
    bar.sync 0;
    ld.shared.u32 %r1, [slot];
{body}
    bar.sync 0;
    @%p0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 64;
    ret;
}}
"""


def moved(load: str, count: int) -> np.ndarray:
    """What `load` gives each of 128 threads, (count, 128), where register r of thread t was stored as 256 t + r."""
    put = [f"shl.b32 %r2, %r0, 8;\nadd.u32 %r{10 + r}, %r2, {r};" for r in range(8)]
    listed = ", ".join(f"%r{10 + r}" for r in range(8))
    out = [f"st.global.u32 [%d1+{512 * r}], %r{10 + r};" for r in range(count)]
    body = [
        *put, f"tcgen05.st.sync.aligned.32x32b.x8.b32 [%r1], {{{listed}}};", "tcgen05.wait::st.sync.aligned;",
        load.replace("REGISTERS", ", ".join(f"%r{10 + r}" for r in range(count))), "tcgen05.wait::ld.sync.aligned;",
        "mul.wide.u32 %d1, %r0, 4;", "add.u64 %d1, %d1, %d0;", *out,
    ]  # fmt: skip
    data = np.zeros((count, 128), np.uint32)
    api.run(asm.parse(FRAME.format(body="\n".join(body))), "k", [data], grid=(1, 1, 1), block=(128, 1, 1))
    return data


def test_a_thread_loads_the_row_that_it_stored():
    got = moved("tcgen05.ld.sync.aligned.32x32b.x8.b32 {REGISTERS}, [%r1];", 8)
    np.testing.assert_array_equal(got, np.arange(128)[None] * 256 + np.arange(8)[:, None])


@pytest.mark.parametrize(
    ("shape", "number", "place"),
    [
        ("16x64b", "x4", lambda t, r: (8 * (t % 2) + t // 4, t // 2 % 2 + 2 * r)),
        ("16x128b", "x2", lambda t, r: (t // 4 + 8 * (r % 2), t % 4 + 4 * (r // 2))),
        ("16x256b", "x1", lambda t, r: (t // 4 + 8 * (r // 2), 2 * (t % 4) + r % 2)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("half", [0, 16])
def test_shapes_of_16_lanes_read_the_cells_of_their_layout(shape: str, number: str, place: Any, half: int):
    """Layouts as CUTLASS has them: 16x256b is the accumulator of mma.m16n8."""
    address = f"add.u32 %r3, %r1, {half << 16};\n"
    got = moved(f"{address}tcgen05.ld.sync.aligned.{shape}.{number}.b32 {{REGISTERS}}, [%r3];", 4)
    for warp in range(4):
        for t in range(32):
            for r in range(4):
                lane, column = place(t, r)
                assert got[r, 32 * warp + t] == (32 * warp + half + lane) * 256 + column


def test_packed_loads_join_the_low_halves_of_two_columns():
    got = moved("tcgen05.ld.sync.aligned.32x32b.x4.pack::16b.b32 {REGISTERS}, [%r1];", 4)
    threads = np.arange(128)
    for r in range(4):
        low, high = (threads * 256 + 2 * r) & 0xFFFF, (threads * 256 + 2 * r + 1) & 0xFFFF
        np.testing.assert_array_equal(got[r], low | high << 16)


# -- allocation ------------------------------------------------------------------------------------------------------


def allocating(body: str, ctas: int = 1, model: Any = None) -> Any:
    data = np.zeros(64, np.uint32)
    return api.run(
        asm.parse(FRAME.format(body=body)), "k", [data], grid=(ctas, 1, 1), block=(128, 1, 1), model=model,
        schedule="eager",
    )  # fmt: skip


def test_an_allocation_waits_for_another_cta_of_the_multiprocessor():
    from warploom.emulator.machine.model import Model

    text = FRAME.format(body="").replace(", 64;", ", 512;")
    one = Model(name="B200", sms=1)
    report = api.run(
        asm.parse(text), "k", [np.zeros(4, np.uint32)], grid=(5, 1, 1), block=(128, 1, 1), model=one, schedule="eager"
    )
    assert report.counters.ctas == 5
    holds = text.replace("@%p0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 512;", "")
    with pytest.raises(DeadlockError) as caught:
        api.run(
            asm.parse(holds), "k", [np.zeros(4, np.uint32)], grid=(2, 1, 1), block=(128, 1, 1), model=one,
            schedule="eager",
        )  # fmt: skip
    assert any("tcgen05.alloc" in wait.text for wait in caught.value.waits)


@pytest.mark.parametrize(
    "body",
    [
        "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r5}, [%r1+64];",
        "@%p0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 32;",
        "@%p0 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n"
        "@%p0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot+4], 32;",
        "and.b32 %r5, %r0, 1;\nadd.u32 %r5, %r5, %r1;\ntcgen05.ld.sync.aligned.32x32b.x1.b32 {%r6}, [%r5];",
    ],
    ids=["columns of nobody", "another size", "after relinquish", "an address for each lane"],
)
def test_what_the_machine_refuses(body: str):
    with pytest.raises(InvalidOperandError):
        allocating(body)


# -- arithmetic ------------------------------------------------------------------------------------------------------


def test_the_published_model_keeps_25_bits_of_a_sum_of_fp8_where_hopper_keeps_13():
    a = np.full((1, 32), 0x38, np.uint8)  # ones of e4m3
    b = np.full((1, 32), 0x38, np.uint8)
    b[0, 1:] = 0x01  # 2^-9
    exact = 1 + 31 * 2.0**-9
    for unit, kept in (("tcgen05", exact), ("warpgroup", 1 + 31 * 2.0**-9)):
        got = multiply_accumulate(a, b, None, Product("e4m3", "e4m3", "f32", unit), "hardware").view(np.float32)
        assert got[0, 0] == kept
    c = np.array([[2.0**13]], np.float32).view(np.uint32)
    fine = multiply_accumulate(a, b, c, Product("e4m3", "e4m3", "f32", "tcgen05"), "hardware").view(np.float32)
    coarse = multiply_accumulate(a, b, c, Product("e4m3", "e4m3", "f32", "warpgroup"), "hardware").view(np.float32)
    assert fine[0, 0] == 2.0**13 + exact - exact % 2.0**-10 and coarse[0, 0] == 2.0**13 + 1


@pytest.mark.parametrize("mode", ["exact", "hardware"])
@pytest.mark.parametrize(("element", "factor", "block", "k"), [("e4m3", "ue8m0", 32, 32), ("e2m1", "ue8m0", 32, 64),
                                                                ("e2m1", "ue4m3", 16, 64)])  # fmt: skip
def test_scaled_products_are_those_of_scaled_operands(mode: str, element: str, factor: str, block: int, k: int):
    random = np.random.default_rng(0)
    top = 16 if element == "e2m1" else 0x78
    a, b = (random.integers(0, top, (8, k)).astype(np.uint8) for _ in range(2))
    low, high = (120, 134) if factor == "ue8m0" else (0x30, 0x48)
    of_a, of_b = (random.integers(low, high, (8, k // block)).astype(np.uint8) for _ in range(2))
    got = multiply_scaled(
        a, b, None, Product(element, element, "f32", "tcgen05"), Scaling(factor, block), of_a, of_b, mode
    ).view(np.float32)
    left, right = (
        values(one, element) * np.repeat(values(scales, factor), block, 1) for one, scales in ((a, of_a), (b, of_b))
    )
    expected = left @ right.T
    np.testing.assert_allclose(
        got, expected, rtol=1e-6 if mode == "exact" else 1e-5, atol=1e-6 * np.abs(expected).max()
    )


def test_a_factor_that_is_no_number_makes_the_sum_none():
    ones = np.full((1, 32), 0x38, np.uint8)
    bad, good = np.array([[0xFF]], np.uint8), np.array([[127]], np.uint8)
    kind, scaling = Product("e4m3", "e4m3", "f32", "tcgen05"), Scaling("ue8m0", 32)
    for mode in ("exact", "hardware"):
        assert multiply_scaled(ones, ones, None, kind, scaling, bad, good, mode)[0, 0] == 0x7FFFFFFF


@pytest.mark.parametrize("split", [0, 4])
@pytest.mark.parametrize("words", ["min.f32", "max.f32", "max.abs.f32", "min.NaN.f32", "max.u32", "min.s32"])
def test_a_load_that_reduces_gives_each_thread_its_least_or_largest(words: str, split: int):
    """tcgen05.ld.red of sm_103a; -0 is below +0, NaN is left out unless asked for. Split: 16 lanes of each warp, their
    columns 0 to 3 in its first 16 threads and 4 to 7 in the others."""
    operation, *flags, kind = words.split(".")
    dtype = {"f32": np.float32, "u32": np.uint32, "s32": np.int32}[kind]
    rng = np.random.default_rng(0)
    given: np.ndarray = rng.integers(-9, 9, (128, 8), np.int32)
    if kind == "f32":
        given = rng.standard_normal((128, 8)).astype(np.float32)
        given[3, 2], given[4, :] = np.nan, np.nan

    @kernel(in_specs=(Tile(128, 8, b32),), out_specs=(Tile(128, 9, b32),), grid=(1, 1, 1), block=128, arch="sm_103a")
    def reduces(A, C):
        memory = tmem.alloc(32)
        cells, row = memory.tile(8), ptx.special.tid.x().to(u64)
        words_of_row = [ptx.load(b32, ptx.addr(A.pointer() + row * 32, 4 * column)) for column in range(8)]
        ptx.tcgen05.st(cells[0].mine(), words_of_row)
        ptx.tcgen05.wait_st()
        found, most = reg.array(b32, split or 8), reg.scalar({"f32": f32, "u32": u32, "s32": s32}[kind])
        shape, *more = ("16x32bx2.x4", split) if split else ("32x32b.x8",)
        ptx.inst(f"tcgen05.ld.red.sync.aligned.{shape}.{words}", found, most, cells[0].mine(), *more)
        ptx.tcgen05.wait_ld()
        for column, value in enumerate([*found, most.view(b32)]):
            ptx.store(ptx.addr(C.pointer() + row * 36, 4 * column if column < len(found) else 32), value)
        memory.dealloc()

    report = reduces.emulate(given.view(np.uint32))
    result = report.outputs[-1]
    if split:  # thread t of a warp: lane t % 16, columns from 4 * (t // 16) on
        given = given.reshape(4, 32, 2, 4)[:, :16].transpose(0, 2, 1, 3).reshape(128, 4)
    np.testing.assert_array_equal(result[:, : split or 8], given.view(np.uint32))
    values_of = np.abs(given) if "abs" in flags else given.view(dtype)
    best = {"min": np.min, "max": np.max}[operation]
    if kind == "f32" and "NaN" not in flags:
        best = {"min": np.nanmin, "max": np.nanmax}[operation]
    with np.errstate(invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_array_equal(result[:, 8].view(dtype), best(values_of, 1))
    assert [finding.rule for finding in report.findings if finding.severity != "performance"] == []
