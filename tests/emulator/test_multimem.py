"""multimem.ld_reduce, st and red against NumPy: types, operations and vectors, on buffers of one GPU and of several."""

from __future__ import annotations

from functools import reduce

import ml_dtypes
import numpy as np
import pytest

import warploom
from tests.emulator.async_kernels import SCHEDULES
from warploom import asm
from warploom.emulator import api
from warploom.emulator.arguments import MultimemArgument
from warploom.errors import ArgumentError, InvalidOperandError, OutOfBoundsError
from warploom.runtime import Multimem
from warploom.sanitizer import Sanitizer

LANES = 32
NUMPY = {
    "u32": np.uint32, "s32": np.int32, "u64": np.uint64, "s64": np.int64, "b32": np.uint32, "b64": np.uint64,
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip
INTEGERS = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip
REGISTERS = {8: "b8", 16: "b16", 32: "b32", 64: "b64"}


def text_of(lines: str, target: str = "sm_90a", more: str = "") -> str:
    """Lane n works at byte %off of the multimem address %m, and has %out for results; %p16 is whether it is lane 0."""
    return f"""
.version 8.7
.target {target}
.address_size 64
.visible .entry k(.param .u64 together, .param .u64 out, .param .u32 gpu)
{{
    .reg .pred %p<18>; .reg .b8 %c<9>; .reg .b16 %h<9>; .reg .b32 %r<16>; .reg .b64 %d<16>; .reg .b32 %gpu;
    .reg .b64 %m; .reg .b64 %out; .reg .b32 %t; .reg .b64 %off;
    ld.param.u64 %m, [together];
    ld.param.u64 %out, [out];
    ld.param.u32 %gpu, [gpu];
    mov.u32 %t, %tid.x;
    setp.eq.u32 %p16, %t, 0;
{lines}
    ret;
}}
"""


def run(lines: str, arrays: list[np.ndarray], out: np.ndarray, target: str = "sm_90a", **options: object) -> None:
    arguments = [MultimemArgument(tuple(arrays)), out, np.uint32(0)]
    api.run(asm.parse(text_of(lines, target)), "k", arguments, grid=(1, 1, 1), block=(LANES, 1, 1), **options)


def spelled(kind: str, vector: int) -> tuple[str, int, str]:
    """Base type, bytes of a lane's access, and its registers in braces."""
    base, _, packed = kind.partition("x")
    bits = np.dtype(NUMPY[base]).itemsize * 8 * int(packed or 1)
    prefix = {"b8": "c", "b16": "h", "b32": "r", "b64": "d"}[REGISTERS[bits]]
    names = ", ".join(f"%{prefix}{number}" for number in range(vector))
    return base, bits * vector // 8, f"{{{names}}}" if vector > 1 else names


def values_of(base: str, count: int, seed: int) -> np.ndarray:
    dtype = np.dtype(NUMPY[base])
    rng = np.random.default_rng(seed)
    if dtype.kind in "ui":
        return rng.integers(0, 2**63, count, dtype=np.int64).astype(dtype)
    return (rng.standard_normal(count) * 4).astype(np.float32).astype(dtype)


def summed(parts: list[np.ndarray], base: str, accumulator: str) -> np.ndarray:
    """A sum in order, rounded to the accumulator after each step."""
    wide = NUMPY[accumulator or base]
    total = parts[0].astype(wide)
    for part in parts[1:]:
        total = (total.astype(np.float64) + part.astype(wide).astype(np.float64)).astype(wide)
    return total.astype(NUMPY[base])


INTEGER_LOADS = [
    (operation, kind, 1, "")
    for operation, kinds in {
        "add": "u32 s32 u64", "min": "u32 s32 u64 s64", "max": "u32 s32 u64 s64", "and": "b32 b64", "or": "b32 b64",
        "xor": "b32 b64",
    }.items()
    for kind in kinds.split()
]  # fmt: skip
FLOAT_LOADS = [
    *((operation, kind, vector, "") for operation in ("add", "min", "max") for kind, vector in (
        ("f16x2", 1), ("f16", 2), ("f16", 8), ("bf16x2", 4), ("bf16", 4),
    )),
    ("add", "f32", 1, ""), ("add", "f32", 2, ""), ("add", "f32", 4, ""), ("add", "f64", 1, ""),
    ("add", "f16x2", 4, "f32"), ("add", "bf16", 8, "f32"), ("add", "bf16x2", 1, "f32"),
]  # fmt: skip
BYTE_LOADS = [
    (operation, kind, vector, accumulator)
    for kind, vector in (("e4m3x4", 1), ("e5m2x4", 4), ("e4m3x2", 8), ("e5m2x2", 2), ("e4m3", 4), ("e5m2", 8))
    for operation, accumulator in (("add", ""), ("add", "f16"), ("min", ""), ("max", ""))
]


@pytest.mark.parametrize("operation, kind, vector, accumulator", [*INTEGER_LOADS, *FLOAT_LOADS, *BYTE_LOADS])
def test_a_load_reduces_what_all_buffers_hold(operation, kind, vector, accumulator):
    base, size, registers = spelled(kind, vector)
    dtype = np.dtype(NUMPY[base])
    parts = [values_of(base, LANES * size // dtype.itemsize, seed) for seed in range(3)]
    out = np.zeros_like(parts[0])
    opcode = f".acc::{accumulator}" if accumulator else ""
    opcode = f"multimem.ld_reduce.relaxed.sys.global.{operation}{opcode}{f'.v{vector}' if vector > 1 else ''}.{kind}"
    step = size // vector
    names = registers.strip("{}").split(", ")
    stores = "\n".join(f"st.global.b{8 * step} [%out+{step * at}], {name};" for at, name in enumerate(names))
    run(
        f"mul.wide.u32 %off, %t, {size}; add.u64 %m, %m, %off; add.u64 %out, %out, %off;\n"
        f"{opcode} {registers}, [%m];\n{stores}",
        parts, out, "sm_100a" if base in ("e4m3", "e5m2") else "sm_90a",
    )  # fmt: skip
    if operation == "add" and dtype.kind not in "ui":
        expected = summed(parts, base, accumulator)
    elif dtype.kind in "ui":
        expected = reduce(INTEGERS[operation], parts)
    else:
        expected = reduce(np.minimum if operation == "min" else np.maximum, (part.astype(np.float64) for part in parts))
        expected = expected.astype(dtype)
    assert out.tobytes() == expected.tobytes()


def test_sums_of_eight_bits_stop_at_the_greatest_value_and_keep_nan():
    parts = [np.array([0x7E, 0xFE, 0x7F, 0x38], np.uint8).repeat(LANES).reshape(4, LANES).T.copy() for _ in range(2)]
    out = np.zeros_like(parts[0])
    run(
        "mul.wide.u32 %off, %t, 4; add.u64 %m, %m, %off; add.u64 %out, %out, %off;\n"
        "multimem.ld_reduce.weak.add.e4m3x4 %r0, [%m];\nst.global.b32 [%out], %r0;",
        parts, out, "sm_100a",
    )  # fmt: skip
    np.testing.assert_array_equal(out, np.broadcast_to(np.uint8([0x7E, 0xFE, 0x7F, 0x40]), out.shape))


@pytest.mark.parametrize("kind, vector", [("u32", 1), ("b64", 1), ("f32", 4), ("f16x2", 2), ("bf16", 8), ("f64", 1)])
@pytest.mark.parametrize("how", ["weak", "relaxed.gpu", "release.sys"])
def test_a_store_reaches_all_buffers(kind, vector, how):
    base, size, registers = spelled(kind, vector)
    source = values_of(base, LANES * size // np.dtype(NUMPY[base]).itemsize, 7)
    arrays = [np.zeros_like(source) for _ in range(3)]
    step = size // vector
    names = registers.strip("{}").split(", ")
    loads = "\n".join(f"ld.global.b{8 * step} {name}, [%out+{step * at}];" for at, name in enumerate(names))
    run(
        f"mul.wide.u32 %off, %t, {size}; add.u64 %m, %m, %off; add.u64 %out, %out, %off;\n{loads}\n"
        f"multimem.st.{how}.global{f'.v{vector}' if vector > 1 else ''}.{kind} [%m], {registers};",
        arrays, source,
    )  # fmt: skip
    assert all(array.tobytes() == source.tobytes() for array in arrays)


@pytest.mark.parametrize(
    "operation, kind, vector",
    [("add", "u32", 1), ("min", "s32", 1), ("max", "u64", 1), ("xor", "b32", 1), ("add", "f32", 4), ("add", "f16x2", 2),
     ("add", "bf16", 2), ("add", "f64", 1)],
)  # fmt: skip
def test_a_reduction_is_carried_out_in_all_buffers(operation, kind, vector):
    base, size, registers = spelled(kind, vector)
    count = LANES * size // np.dtype(NUMPY[base]).itemsize
    source, arrays = values_of(base, count, 7), [values_of(base, count, seed) for seed in range(3)]
    whole = source.dtype.kind in "ui"
    expected = [INTEGERS[operation](old, source) if whole else summed([old, source], base, "") for old in arrays]
    step = size // vector
    names = registers.strip("{}").split(", ")
    loads = "\n".join(f"ld.global.b{8 * step} {name}, [%out+{step * at}];" for at, name in enumerate(names))
    run(
        f"mul.wide.u32 %off, %t, {size}; add.u64 %m, %m, %off; add.u64 %out, %out, %off;\n{loads}\n"
        f"multimem.red.relaxed.sys.global.{operation}{f'.v{vector}' if vector > 1 else ''}.{kind} [%m], {registers};",
        arrays, source,
    )  # fmt: skip
    for array, wanted in zip(arrays, expected, strict=True):
        np.testing.assert_array_equal(array, wanted)


def test_lanes_that_meet_add_one_after_the_other_and_masked_ones_do_not():
    arrays = [np.array([seed, 100], np.uint32) for seed in range(3)]
    run(
        "setp.lt.u32 %p1, %t, 20;\n@%p1 multimem.red.add.u32 [%m], 2;\n@!%p1 multimem.red.add.u32 [%m+4], 1;",
        arrays, np.zeros(1, np.uint32),
    )  # fmt: skip
    assert [array.tolist() for array in arrays] == [[40, 112], [41, 112], [42, 112]]


# -- addresses -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line, kind",
    [
        ("multimem.ld_reduce.add.u32 %r0, [%out];", InvalidOperandError),
        ("ld.global.u32 %r0, [%m];", InvalidOperandError),
        ("st.global.u32 [%m], 1;", InvalidOperandError),
        ("red.global.add.u32 [%m], 1;", InvalidOperandError),
        ("multimem.st.u32 [%m+16], 1;", InvalidOperandError),
        ("multimem.st.v4.f32 [%m+8], {%r0, %r0, %r0, %r0};", OutOfBoundsError),
    ],
)
def test_only_multimem_takes_multimem_addresses_and_only_inside_the_buffers(line, kind):
    arrays = [np.zeros(4, np.uint32) for _ in range(2)]
    if "v4" in line:
        arrays = [np.zeros(5, np.uint32) for _ in range(2)]
        line = line.replace("+8", "+16")
    with pytest.raises(kind):
        run(f"@%p16 {line}" if not line.startswith("@") else line, arrays, np.zeros(4, np.uint32))


@pytest.mark.parametrize("arrays", [[], [np.zeros(4, np.uint32), np.zeros(5, np.uint32)]])
def test_a_multimem_address_names_arrays_of_one_size(arrays):
    with pytest.raises(ArgumentError):
        Multimem(arrays)


# -- several GPUs --------------------------------------------------------------------------------------------------

ALL_REDUCE = """
    // each GPU fills its own buffer: 64 times its rank and one
    mul.wide.u32 %off, %t, 4;
    add.u64 %d0, %out, %off;
    add.u32 %r0, %gpu, 1;
    cvt.rn.f32.u32 %r0, %r0;
    st.global.b32 [%d0], %r0;
    st.global.b32 [%d0+128], %r0;
    // it says to all that it has, and waits for the others
    bar.sync 0;
    @!%p16 bra met;
    multimem.red.release.sys.global.add.u32 [%m+256], 1;
    come:
    ld.acquire.sys.global.u32 %r1, [%out+256];
    setp.ne.u32 %p1, %r1, 2;
    @%p1 bra come;
    met:
    bar.sync 0;
    // its half of the sums goes to all GPUs
    cvt.u64.u32 %d1, %gpu;
    mad.lo.u64 %d1, %d1, 128, %off;
    add.u64 %d1, %m, %d1;
    multimem.ld_reduce.relaxed.sys.global.add.f32 %r0, [%d1];
    multimem.st.relaxed.sys.global.f32 [%d1], %r0;
"""


def all_reduce(schedule: str = "lazy", seed: int = 0, lines: str = ALL_REDUCE) -> tuple[list[np.ndarray], set[str]]:
    """Two GPUs with 64 numbers each to sum, and behind them the number of GPUs that have come."""
    buffers = [np.zeros(72, np.float32) for _ in range(2)]
    report = warploom.emulate(
        text_of(lines), [Multimem(buffers)] * 2, buffers, [np.uint32(0), np.uint32(1)], grid=1, block=32, devices=2,
        schedule=schedule, seed=seed,
    )  # fmt: skip
    return buffers, {finding.rule for finding in report.findings if finding.severity == "error"}


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES, ids=str)
def test_two_gpus_reduce_what_both_hold(schedule, seed):
    buffers, rules = all_reduce(schedule, seed)
    for buffer in buffers:
        np.testing.assert_array_equal(buffer[:64], np.float32(3))
    assert rules == set()


@pytest.mark.parametrize(
    "good, bad, rule",
    [
        ("@%p1 bra come;", "", "global-data-race"),
        ("multimem.red.release.sys", "multimem.red.relaxed.sys", "global-hand-off"),
        ("multimem.red.release.sys", "multimem.red.release.gpu", "peer-scope"),
        ("ld.acquire.sys", "ld.acquire.gpu", "peer-scope"),
    ],
)
def test_gpus_that_do_not_wait_for_each_other_are_found(good, bad, rule):
    assert good in ALL_REDUCE
    assert rule in all_reduce(lines=ALL_REDUCE.replace(good, bad))[1]


def test_one_gpu_s_buffers_race_where_lanes_store_to_one_place():
    arrays = [np.zeros(4, np.uint32) for _ in range(2)]
    arguments = [MultimemArgument(tuple(arrays)), np.zeros(1, np.uint32), np.uint32(0)]
    report = api.run(
        asm.parse(text_of("multimem.st.u32 [%m], %t;")), "k", arguments, grid=(2, 1, 1), block=(LANES, 1, 1),
        detailed=True, watch=[Sanitizer],
    )  # fmt: skip
    assert {finding.rule for finding in report.findings} == {"lane-race", "global-data-race"}
