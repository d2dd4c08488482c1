"""wgmma in the emulator: every type, both majors, all swizzles, A from registers, chains and groups."""

import re
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.emulator.tensor_kernels import (
    A_REGISTERS,
    COMMIT,
    FENCE,
    from_registers,
    issue,
    run_wgmma,
    shared_image,
    to_registers,
    wait,
    wgmma_text,
)
from tests.errors import refused
from warploom.driver import toolchain
from warploom.emulator.machine.model import Model
from warploom.isa import dtypes, fragments
from warploom.isa.shared_layout import SharedLayout

NUMPY = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "s8": np.int8,
    "u8": np.uint8,
    "f32": np.float32,
    "s32": np.int32,
}


def numbers(rng, shape, kind):
    """Numbers with few bits, exact in every type and every order of summation."""
    low = 0 if kind == "u8" else -3
    return rng.integers(low, 4, shape).astype(NUMPY[kind])


def bits(matrix):
    return matrix.view(f"u{matrix.itemsize}")


def product(a, b, c=None):
    """a · bᵀ + c in float64."""
    total = a.astype(np.float64) @ b.astype(np.float64).T
    return total if c is None else total + c.astype(np.float64)


def immediates(kind, in_registers=False, scale=(1, 1), trans=(0, 0)):
    """The immediates after scale-d that the form of a type has."""
    if kind in ("s8", "u8"):
        return ""
    words = [*map(str, scale)]
    if kind in ("bf16", "f16"):
        words += [str(flag) for flag in (trans[1:] if in_registers else trans)]
    return ", " + ", ".join(words)


def multiply(
    a,
    b,
    c,
    types,
    d_type="f32",
    *,
    a_layout=None,
    b_layout=None,
    in_registers=False,
    scale_d=1,
    scale=(1, 1),
    **options,
):
    """D of wgmmas over all of k: A is 64 x k, B is n x k, C is 64 x n."""
    n, k = b.shape
    a_type, b_type = types
    a_layout = a_layout or SharedLayout.for_operand(dtypes.ALL[a_type], 64, k)
    b_layout = b_layout or SharedLayout.for_operand(dtypes.ALL[b_type], n, k)
    image, (a_start, b_start) = shared_image((a_layout, a), (b_layout, b))
    accumulator = fragments.warpgroup_d(n, 16 if d_type == "f16" else 32)
    step = a_layout.instruction_k
    trans = (int(a_layout.major == "MN"), int(b_layout.major == "MN"))
    lines, descriptors = [FENCE], []
    for at in range(0, k, step):
        names = []
        for layout, start in ((a_layout, a_start), (b_layout, b_start)):
            names.append(f"%p{3 + len(descriptors)}")
            descriptors.append(layout.descriptor(start + layout.k_offset(at)).encode())
        left = A_REGISTERS if in_registers else names[0]
        adds = scale_d if at == 0 else 1
        rest = immediates(a_type, in_registers, scale, trans)
        opcode = f"m64n{n}k{step}.{d_type}.{a_type}.{b_type}"
        lines.append(issue(opcode, accumulator.registers, f"{left}, {names[1]}, {adds}{rest}"))
    lines += [COMMIT, wait(0)]
    d = to_registers(bits(c), accumulator)
    a_registers = to_registers(bits(a), fragments.warpgroup_a(a.itemsize * 8)) if in_registers else None
    run_wgmma(lines, image, d, descriptors, a_registers, **options)
    return from_registers(d, accumulator).view(c.dtype)


PAIRS = [
    ("bf16", "bf16"), ("f16", "f16"), ("tf32", "tf32"), ("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3"),
    ("e5m2", "e5m2"), ("s8", "s8"), ("u8", "u8"), ("s8", "u8"), ("u8", "s8"),
]  # fmt: skip


@pytest.mark.parametrize("in_registers", [False, True], ids=["shared", "registers"])
@pytest.mark.parametrize("types", PAIRS, ids="-".join)
def test_every_type_multiplies(types, in_registers):
    rng = np.random.default_rng(1)
    d_type = "s32" if types[0] in ("s8", "u8") else "f32"
    k = 32 // NUMPY[types[0]](0).itemsize * (1 if in_registers else 2)
    a, b, c = numbers(rng, (64, k), types[0]), numbers(rng, (16, k), types[1]), numbers(rng, (64, 16), d_type)
    d = multiply(a, b, c, types, d_type, in_registers=in_registers)
    assert np.array_equal(d, product(a, b, c))


@pytest.mark.parametrize("types", [("f16", "f16"), ("e4m3", "e5m2")], ids="-".join)
@pytest.mark.parametrize("n", [8, 24])
def test_half_accumulators_are_packed_in_pairs(types, n):
    rng = np.random.default_rng(2)
    k = 32 // NUMPY[types[0]](0).itemsize
    a, b, c = numbers(rng, (64, k), types[0]), numbers(rng, (n, k), types[1]), numbers(rng, (64, n), "f16")
    assert np.array_equal(multiply(a, b, c, types, "f16"), product(a, b, c))


@pytest.mark.parametrize("n", [8, 40, 64, 128, 248, 256])
def test_every_width_multiplies(n):
    rng = np.random.default_rng(n)
    a, b, c = numbers(rng, (64, 16), "bf16"), numbers(rng, (n, 16), "bf16"), numbers(rng, (64, n), "f32")
    assert np.array_equal(multiply(a, b, c, ("bf16", "bf16")), product(a, b, c))


@pytest.mark.parametrize("swizzle", ["NONE", "32B", "64B", "128B"])
@pytest.mark.parametrize("a_major", ["K", "MN"])
@pytest.mark.parametrize("b_major", ["K", "MN"])
def test_every_layout_multiplies_the_same(a_major, b_major, swizzle):
    rng = np.random.default_rng(3)
    a, b, c = numbers(rng, (64, 64), "f16"), numbers(rng, (128, 64), "f16"), numbers(rng, (64, 128), "f32")
    a_layout = SharedLayout.for_operand(dtypes.f16, 64, 64, a_major, swizzle)
    b_layout = SharedLayout.for_operand(dtypes.f16, 128, 64, b_major, swizzle)
    d = multiply(a, b, c, ("f16", "f16"), a_layout=a_layout, b_layout=b_layout)
    assert np.array_equal(d, product(a, b, c))


@pytest.mark.parametrize("types", [("e4m3", "e4m3"), ("tf32", "tf32"), ("s8", "s8")], ids="-".join)
@pytest.mark.parametrize("swizzle", ["NONE", "32B", "64B", "128B"])
def test_every_swizzle_serves_every_element_size(types, swizzle):
    rng = np.random.default_rng(4)
    d_type = "s32" if types[0] == "s8" else "f32"
    k = 128 // NUMPY[types[0]](0).itemsize
    a, b, c = numbers(rng, (64, k), types[0]), numbers(rng, (48, k), types[1]), numbers(rng, (64, 48), d_type)
    a_layout = SharedLayout.for_operand(dtypes.ALL[types[0]], 64, k, "K", swizzle)
    b_layout = SharedLayout.for_operand(dtypes.ALL[types[1]], 48, k, "K", swizzle)
    d = multiply(a, b, c, types, d_type, a_layout=a_layout, b_layout=b_layout)
    assert np.array_equal(d, product(a, b, c))


def test_without_scale_d_the_accumulator_is_ignored():
    rng = np.random.default_rng(5)
    a, b = numbers(rng, (64, 32), "bf16"), numbers(rng, (16, 32), "bf16")
    c = np.full((64, 16), np.nan, np.float32)
    assert np.array_equal(multiply(a, b, c, ("bf16", "bf16"), scale_d=0), product(a, b))


@pytest.mark.parametrize("types", [("bf16", "bf16"), ("tf32", "tf32"), ("e4m3", "e5m2")], ids="-".join)
@pytest.mark.parametrize("scale", [(1, -1), (-1, 1), (-1, -1)])
@pytest.mark.parametrize("in_registers", [False, True])
def test_operands_can_be_negated(types, scale, in_registers):
    rng = np.random.default_rng(6)
    k = 32 // NUMPY[types[0]](0).itemsize
    a, b, c = numbers(rng, (64, k), types[0]), numbers(rng, (8, k), types[1]), numbers(rng, (64, 8), "f32")
    d = multiply(a, b, c, types, scale=scale, in_registers=in_registers)
    assert np.array_equal(d, scale[0] * scale[1] * product(a, b) + c)


def test_tf32_drops_the_low_bits_of_its_inputs():
    a = np.full((64, 8), np.float32(1 + 2**-11), np.float32)
    b, c = np.eye(8, dtype=np.float32), np.zeros((64, 8), np.float32)
    assert np.array_equal(multiply(a, b, c, ("tf32", "tf32")), np.ones((64, 8)))


def test_integers_wrap_or_saturate():
    a, b = np.full((64, 32), 127, np.int8), np.full((8, 32), 127, np.int8)
    c = np.full((64, 8), 2**31 - 1, np.int32)
    assert np.all(multiply(a, b, c, ("s8", "s8"), "s32") == 2**31 - 1 + 32 * 127 * 127 - 2**32)
    layout = SharedLayout.for_operand(dtypes.s8, 64, 32), SharedLayout.for_operand(dtypes.s8, 8, 32)
    image, starts = shared_image((layout[0], a), (layout[1], b))
    for opcode in ("m64n8k32.s32.s8.s8.satfinite", "m64n8k32.satfinite.s32.s8.s8"):
        d = to_registers(bits(c), fragments.warpgroup_d(8))
        descriptors = [part.descriptor(start).encode() for part, start in zip(layout, starts, strict=True)]
        run_wgmma([FENCE, issue(opcode, 4, "%p3, %p4, 1"), COMMIT, wait(0)], image, d, descriptors)
        assert np.all(d.view(np.int32) == 2**31 - 1)


def test_single_bits_are_counted():
    rng = np.random.default_rng(7)
    a, b = rng.integers(0, 256, (64, 32)).astype(np.uint8), rng.integers(0, 256, (8, 32)).astype(np.uint8)
    layout = SharedLayout.for_operand(dtypes.u8, 64, 32), SharedLayout.for_operand(dtypes.u8, 8, 32)
    image, starts = shared_image((layout[0], a), (layout[1], b))
    d = np.zeros((4, 128), np.uint32)
    descriptors = [part.descriptor(start).encode() for part, start in zip(layout, starts, strict=True)]
    run_wgmma([FENCE, issue("m64n8k256.s32.b1.b1.and.popc", 4, "%p3, %p4, 1"), COMMIT, wait(0)], image, d, descriptors)
    assert np.array_equal(from_registers(d, fragments.warpgroup_d(8)), np.bitwise_count(a[:, None] & b[None]).sum(-1))


# -- asynchrony ----------------------------------------------------------------------------------------------------


def tile(k=64, n=16, seed=8):
    """Operands and their image: (a, b, c, image, descriptors of each k-step, accumulator fragment)."""
    rng = np.random.default_rng(seed)
    a, b, c = numbers(rng, (64, k), "bf16"), numbers(rng, (n, k), "bf16"), numbers(rng, (64, n), "f32")
    layouts = SharedLayout.for_operand(dtypes.bf16, 64, k), SharedLayout.for_operand(dtypes.bf16, n, k)
    image, starts = shared_image((layouts[0], a), (layouts[1], b))
    descriptors = [
        layout.descriptor(start + layout.k_offset(at)).encode()
        for at in range(0, k, 16)
        for layout, start in zip(layouts, starts, strict=True)
    ]
    return a, b, c, image, descriptors


def chain(steps, n=16):
    """One wgmma of each of the first `steps` k-steps, on one accumulator."""
    return [
        issue(f"m64n{n}k16.f32.bf16.bf16", n // 2, f"%p{3 + 2 * at}, %p{4 + 2 * at}, 1, 1, 1, 0, 0")
        for at in range(steps)
    ]


SCHEDULES = ["eager", "lazy", "random", "starve"]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_chain_takes_the_earlier_result_without_a_wait(schedule):
    a, b, c, image, descriptors = tile()
    d = to_registers(bits(c), fragments.warpgroup_d(16))
    report = run_wgmma([FENCE, *chain(4), COMMIT, wait(0)], image, d, descriptors, schedule=schedule)
    assert np.array_equal(from_registers(d, fragments.warpgroup_d(16)).view(np.float32), product(a, b, c))
    assert report.counters.wgmma == 4
    assert report.counters.tensor_flops == 4 * 2 * 64 * 16 * 16


BESIDE = "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%d8, %d9, %d10, %d11, %d12, %d13, %d14, %d15}"
RENAMED = BESIDE.replace("%d8, %d9, %d10, %d11", "%d0, %d1, %d2, %d3")
IN_FLIGHT = {
    "read, no wait": [*chain(4), COMMIT],
    "read, no commit": [*chain(4), wait(0)],
    "read behind a wait for others": [*chain(4), COMMIT, wait(1)],
    "copied and continued": [
        *chain(2), COMMIT, *(f"mov.b32 %d{8 + at}, %d{at};" for at in range(8)), FENCE,
        f"{BESIDE}, %p7, %p8, 1, 1, 1, 0, 0;", f"{BESIDE}, %p9, %p10, 1, 1, 1, 0, 0;", COMMIT, wait(0),
        *(f"mov.b32 %d{at}, %d{8 + at};" for at in range(8)),
    ],
    "half renamed and continued": [
        *chain(2), COMMIT, *(f"mov.b32 %d{8 + at}, %d{at};" for at in range(4, 8)), FENCE,
        f"{RENAMED}, %p7, %p8, 1, 1, 1, 0, 0;", f"{RENAMED}, %p9, %p10, 1, 1, 1, 0, 0;", COMMIT, wait(0),
        *(f"mov.b32 %d{at}, %d{8 + at};" for at in range(4, 8)),
    ],
    "overwritten": [*chain(4), COMMIT, "mov.b32 %d0, 0;", wait(0)],
}  # fmt: skip
"""Accesses to an accumulator in flight."""


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("case", IN_FLIGHT)
def test_an_instruction_that_names_an_accumulator_in_flight_waits_for_it(case, schedule):
    """As in machine code by ptxas; the sanitizer reports it, since the ISA calls it undefined."""
    a, b, c, image, descriptors = tile()
    first = to_registers(bits(c), fragments.warpgroup_d(16))
    d = np.concatenate([first, first])
    run_wgmma([FENCE, *IN_FLIGHT[case]], image, d, descriptors, schedule=schedule)
    expected = to_registers(bits(product(a, b, c).astype(np.float32)), fragments.warpgroup_d(16))
    expected[0] *= case != "overwritten"
    assert np.array_equal(d[:8], expected)


@pytest.mark.parametrize("case", [None, *IN_FLIGHT])
def test_ptxas_says_that_it_waits_for_accumulators_in_flight(case):
    """But for products that belong to no group: its wait for all groups waits for them, too."""
    tool = toolchain.ptxas()
    if tool is None or not tool.version.startswith("13.0"):
        pytest.skip("no ptxas 13.0 here")
    steps = [FENCE, *(IN_FLIGHT[case] if case else [*chain(4), COMMIT, wait(0)])]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "k.ptx").write_text(wgmma_text(steps, 8192, 16, 0, 8, 128))
        done = tool.run("-v", "-arch=sm_90a", "-o", "k.cubin", "k.ptx", cwd=Path(folder))
    assert done.returncode == 0, done.stderr
    assert bool(re.search(r"C751[0-57]", done.stdout + done.stderr)) is (case not in (None, "read, no commit"))


def second_accumulator(n=16):
    """A wgmma of the first k-step on registers after the first accumulator's."""
    registers = ", ".join(f"%d{n // 2 + index}" for index in range(n // 2))
    return f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16 {{{registers}}}, %p3, %p4, 0, 1, 1, 0, 0;"


@pytest.mark.parametrize("order", ["a wait for all but one group", "a read of the first accumulator"])
def test_the_newest_group_stays_in_flight_behind(order):
    """It reads A later, when that has been overwritten with zeros."""
    a, b, c, image, descriptors = tile()
    first = to_registers(bits(c), fragments.warpgroup_d(16))
    d = np.concatenate([first, first])
    known = wait(1) if "wait" in order else "mov.b32 %at, %d0;\nshl.b32 %at, %tid_x, 4;\nadd.u32 %at, %at, 1024;"
    overwrite = [f"st.shared.v4.b32 [%at+{at}], {{0, 0, 0, 0}};" for at in range(0, 8192, 2048)]
    steps = [FENCE, *chain(4), COMMIT, second_accumulator(), COMMIT, known, *overwrite, "bar.sync 0;", wait(0)]
    run_wgmma(steps, image, d, descriptors)
    assert np.array_equal(from_registers(d[:8], fragments.warpgroup_d(16)).view(np.float32), product(a, b, c))
    assert not d[8:].any()


def test_shared_operands_are_read_when_the_operation_executes():
    a, b, c, image, descriptors = tile(k=16)
    d = to_registers(bits(c), fragments.warpgroup_d(16))
    overwrite = "st.shared.v4.b32 [%at], {0, 0, 0, 0};"  # 2 KiB from the start of the tile: all of A
    run_wgmma([FENCE, *chain(1), COMMIT, overwrite, "bar.sync 0;", wait(0)], image, d, descriptors, schedule="lazy")
    assert np.array_equal(from_registers(d, fragments.warpgroup_d(16)).view(np.float32), c)
    d = to_registers(bits(c), fragments.warpgroup_d(16))
    run_wgmma([FENCE, *chain(1), COMMIT, overwrite, "bar.sync 0;", wait(0)], image, d, descriptors, schedule="eager")
    assert np.array_equal(from_registers(d, fragments.warpgroup_d(16)).view(np.float32), product(a, b, c))


def test_hardware_numerics_chain_as_recorded():
    recorded = np.load(Path(__file__).parent.parent / "golden" / "bf16.npz")
    for group in range(0, 22, 7):
        a = np.concatenate(list(recorded["chain_A"][group]), axis=1).view(ml_dtypes.bfloat16)
        b = np.concatenate(list(recorded["chain_B"][group]), axis=1).view(ml_dtypes.bfloat16)
        c = recorded["chain_C"][group].view(np.float32)
        d = multiply(a, b, c, ("bf16", "bf16"), numerics="hardware")
        assert np.array_equal(d.view(np.uint32), recorded["chain_D_w_bf16_chain4"][group])


def test_a_guard_may_pick_a_warpgroup():
    a, b, c, image, descriptors = tile(k=16)
    first = to_registers(bits(c), fragments.warpgroup_d(16))
    d = np.concatenate([first, first], axis=1)  # both warpgroups hold C
    lines = ["setp.ge.u32 %adds, %tid_x, 128;", FENCE, "@%adds " + chain(1)[0], COMMIT, wait(0)]
    run_wgmma(lines, image, d, descriptors, threads=256)
    expected = np.concatenate([c, product(a, b, c)])
    found = np.concatenate([from_registers(d[:, part : part + 128], fragments.warpgroup_d(16)) for part in (0, 128)])
    assert np.array_equal(found.view(np.float32), expected)


def test_a_cta_that_exits_in_flight_does_not_write_the_registers_of_the_next():
    a, b, c, image, descriptors = tile()
    first = to_registers(bits(c), fragments.warpgroup_d(16))
    d = np.concatenate([first, first])
    lines = [
        "mov.u32 %v0, %ctaid.x;",
        "setp.ne.u32 %adds, %v0, 0;",
        "@%adds bra SECOND;",
        *[FENCE, *chain(4), COMMIT, "exit;"],
        "SECOND:",
        *[FENCE, second_accumulator(), COMMIT, wait(0)],  # the older operations complete before this one
    ]
    run_wgmma(lines, image, d, descriptors, grid=2, model=Model(sms=1, max_ctas_per_sm=1), schedule="starve", seed=0)
    assert np.array_equal(d[:8], first)
    found = from_registers(d[8:], fragments.warpgroup_d(16)).view(np.float32)
    assert np.array_equal(found, product(a[:, :16], b[:, :16]))


@pytest.mark.parametrize("seed", range(6))
def test_two_warpgroups_and_two_accumulators_in_any_order(seed):
    a, b, c, image, descriptors = tile()
    first = to_registers(bits(c), fragments.warpgroup_d(16))
    d = np.concatenate([np.concatenate([first, first], axis=1)] * 2)
    lines = [FENCE, *chain(2), second_accumulator(), COMMIT, *chain(4)[2:], COMMIT, wait(1), wait(0)]
    run_wgmma(lines, image, d, descriptors, threads=256, schedule="random", seed=seed)
    for part in (0, 128):
        columns = slice(part, part + 128)
        found = [from_registers(d[rows, columns], fragments.warpgroup_d(16)) for rows in (slice(8), slice(8, 16))]
        assert np.array_equal(found[0].view(np.float32), product(a, b, c))
        assert np.array_equal(found[1].view(np.float32), product(a[:, :16], b[:, :16]))


# -- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change, sentence",
    [
        (1 << 14, "zero in bits 14-15, 30-31, 46-48 and 52-61"),
        (1 << 53, "zero in bits 14-15, 30-31, 46-48 and 52-61"),
        (0x3000, "bytes 1024 to 5120"),
        (0x3F00 << 32, "bytes 1024 to 5120"),
    ],
)
@pytest.mark.parametrize("operand", [0, 1])
def test_a_bad_descriptor_is_refused(change, sentence, operand):
    *_, c, image, descriptors = tile(k=16)
    descriptors[operand] |= change
    d = to_registers(bits(c), fragments.warpgroup_d(16))
    with refused("invalid-operand", expected=sentence) as caught:
        run_wgmma([FENCE, *chain(1), COMMIT, wait(0)], image, d, descriptors)
    assert "wgmma.mma_async" in str(caught.value)


def test_a_descriptor_that_differs_between_threads_is_refused():
    *_, c, image, descriptors = tile(k=16)
    d = to_registers(bits(c), fragments.warpgroup_d(16))
    lines = ["cvt.u64.u32 %address, %tid_x;", "add.u64 %p3, %p3, %address;", FENCE, *chain(1), COMMIT, wait(0)]
    with refused("invalid-operand", got="0xc000001000010041"):
        run_wgmma(lines, image, d, descriptors)


def test_a_width_that_does_not_exist_is_refused_with_the_rule():
    *_, c, image, descriptors = tile(k=16)
    lines = [issue("m64n250k16.f32.bf16.bf16", 125, "%p3, %p4, 1, 1, 1, 0, 0")]
    with refused("verification"):
        run_wgmma(lines, image, np.zeros((125, 128), np.uint32), descriptors)


@pytest.mark.parametrize("rest, sentence", [("2, 1, 0, 0", "2"), ("1, 1, 0, 3", "3")])
def test_an_immediate_that_does_not_exist_is_refused(rest, sentence):
    *_, c, image, descriptors = tile(k=16)
    lines = [issue("m64n16k16.f32.bf16.bf16", 8, f"%p3, %p4, 1, {rest}")]
    with refused("verification", got=sentence):
        run_wgmma(lines, image, np.zeros((8, 128), np.uint32), descriptors)
