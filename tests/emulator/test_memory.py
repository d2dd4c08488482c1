"""ld, st, cvta, isspacep and the cache hints in the emulator, through PTX text."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.ptx_text import emulate
from tests.errors import refused
from warploom.emulator.machine.counters import Counters, bank_conflicts, global_sectors
from warploom.errors import MisalignedError, OutOfBoundsError, VerificationError
from warploom.runtime import emulate as run_text

LANE = "cvt.u64.u32 %rd10, %r0;"
"""%rd10: the lane as a 64-bit number."""


def at(base: int, bytes_per_lane: int, into: str) -> str:
    """The address of lane i's element of parameter `base`."""
    return f"mul.lo.u64 {into}, %rd10, {bytes_per_lane}; add.s64 {into}, {into}, %rd{base};"


TYPES = {
    "b8": np.uint8, "u8": np.uint8, "s8": np.int8, "b16": np.uint16, "u16": np.uint16, "s16": np.int16,
    "b32": np.uint32, "u32": np.uint32, "s32": np.int32, "b64": np.uint64, "u64": np.uint64, "s64": np.int64,
    "f32": np.float32, "f64": np.float64,
}  # fmt: skip


def register(name: str) -> str:
    """A register that holds a value of a type."""
    width = max(16, int(name[1:]))
    return {"f32": "%f1", "f64": "%fd1"}.get(name, {16: "%h1", 32: "%r1", 64: "%rd20"}[width])


def random_of(dtype: np.dtype, count: int) -> np.ndarray:
    generator = np.random.default_rng(1)
    if np.dtype(dtype).kind == "f":
        return generator.standard_normal(count).astype(dtype)
    info = np.iinfo(dtype)
    return generator.integers(info.min, info.max, count, dtype=dtype, endpoint=True)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("space", ["global.", "", "shared.", "local."])
def test_every_type_goes_through_every_space_unchanged(name, space):
    dtype = np.dtype(TYPES[name])
    size, values = dtype.itemsize, random_of(dtype, 32)
    out = np.zeros(32, dtype)
    one = register(name)
    body = LANE + at(0, size, "%rd11") + at(1, size, "%rd12") + f"ld.global.{name} {one}, [%rd11];"
    if space == "shared.":
        body += f"""
            .shared .align 8 .b8 box[256];
            mov.u32 %r10, box;
            mad.lo.u32 %r11, %r0, {size}, %r10;
            st.shared.{name} [%r11], {one};
            ld.shared.{name} {one}, [%r11];
        """
    elif space == "local.":
        body += f".local .align 8 .b8 own[16]; st.local.{name} [own+8], {one}; ld.local.{name} {one}, [own+8];"
    else:
        body += f"st.{space}{name} [%rd12], {one}; ld.{space}{name} {one}, [%rd12];"
    emulate(body + f"st.global.{name} [%rd12], {one};", values, out)
    np.testing.assert_array_equal(out.view(np.uint8), values.view(np.uint8))


@pytest.mark.parametrize(
    "name, length", [("f32", 2), ("f32", 4), ("u16", 4), ("b8", 4), ("u64", 2), ("f64", 2), ("s32", 4)]
)
def test_vectors_move_consecutive_elements(name, length):
    dtype = np.dtype(TYPES[name])
    size = dtype.itemsize * length
    values, out = random_of(dtype, 32 * length), np.zeros(32 * length, dtype)
    letter = register(name).rstrip("0123456789")
    names = ", ".join(f"{letter}{20 + number}" for number in range(length))
    emulate(
        LANE + at(0, size, "%rd11") + at(1, size, "%rd12")
        + f"ld.global.v{length}.{name} {{{names}}}, [%rd11]; st.global.v{length}.{name} [%rd12], {{{names}}};",
        values, out,
    )  # fmt: skip
    np.testing.assert_array_equal(out, values)


def test_a_vector_may_be_stored_in_another_order_and_hold_constants():
    values, out = np.arange(64, dtype=np.uint32), np.zeros(128, np.uint32)
    body = LANE + at(0, 8, "%rd11") + at(1, 16, "%rd12")
    emulate(body + "ld.global.v2.u32 {%r9, %r3}, [%rd11]; st.global.v4.u32 [%rd12], {%r3, 7, %r9, %r3};", values, out)
    rows, pairs = out.reshape(32, 4), values.reshape(32, 2)
    np.testing.assert_array_equal(rows, np.stack([pairs[:, 1], np.full(32, 7), pairs[:, 0], pairs[:, 1]], axis=1))


def test_16_bytes_move_through_a_128_bit_register():
    values, out = np.arange(64, dtype=np.uint64), np.zeros(64, np.uint64)
    body = LANE + at(0, 16, "%rd11") + at(1, 16, "%rd12")
    emulate(body + "ld.global.b128 %q1, [%rd11]; st.global.b128 [%rd12], %q1;", values, out)
    np.testing.assert_array_equal(out, values)


def test_32_bytes_move_on_blackwell_and_a_sink_leaves_memory_alone():
    values, out = np.arange(256, dtype=np.uint32), np.full(256, 5, np.uint32)
    names = ", ".join(f"%r{20 + number}" for number in range(8))
    kept = names.replace("%r22", "_")
    body = LANE + at(0, 32, "%rd11") + at(1, 32, "%rd12")
    body += f"ld.global.v8.b32 {{{names}}}, [%rd11]; st.global.v8.b32 [%rd12], {{{kept}}};"
    emulate(body, values, out, target="sm_100")
    expected = values.reshape(32, 8).copy()
    expected[:, 2] = 5
    np.testing.assert_array_equal(out.reshape(32, 8), expected)


@pytest.mark.parametrize(
    "name, wide, dtype",
    [
        ("s8", "%r1", np.int32), ("u8", "%r1", np.int32), ("s16", "%r1", np.int32), ("b16", "%r1", np.int32),
        ("s8", "%rd20", np.int64), ("s32", "%rd20", np.int64), ("u32", "%rd20", np.int64),
    ],
)  # fmt: skip
def test_a_wider_register_is_filled_by_the_sign_or_by_zeros(name, wide, dtype):
    narrow = np.dtype(TYPES[name])
    values = random_of(narrow, 32)
    out = np.zeros(32, dtype)
    bits = np.dtype(dtype).itemsize * 8
    body = LANE + at(0, narrow.itemsize, "%rd11") + at(1, bits // 8, "%rd12")
    emulate(body + f"ld.global.{name} {wide}, [%rd11]; st.global.b{bits} [%rd12], {wide};", values, out)
    np.testing.assert_array_equal(out, values.astype(dtype))


def test_a_narrow_store_writes_the_low_bits_of_a_wide_register():
    values, out = random_of(np.uint32, 32), np.zeros(32, np.uint16)
    body = LANE + at(0, 4, "%rd11") + at(1, 2, "%rd12")
    emulate(body + "ld.global.u32 %r1, [%rd11]; st.global.u16 [%rd12], %r1;", values, out)
    np.testing.assert_array_equal(out, values.astype(np.uint16))


@pytest.mark.parametrize(
    "load",
    [
        "ld.global.nc", "ld.global.cg", "ld.global.L1::no_allocate.L2::128B", "ld.volatile.global",
        "ld.global.volatile", "ld.relaxed.gpu.global", "ld.acquire.sys.global", "ld.global.acquire.gpu",
        "ld.global.gpu.relaxed", "ldu.global", "ld.weak.global", "ld.mmio.relaxed.sys.global",
        "ld.global.nc.L1::no_allocate.L2::256B",
    ],
)  # fmt: skip
def test_the_variants_of_a_load_all_load(load):
    values, out = random_of(np.float32, 32), np.zeros(32, np.float32)
    body = LANE + at(0, 4, "%rd11") + at(1, 4, "%rd12")
    emulate(body + f"{load}.f32 %f1, [%rd11]; st.global.f32 [%rd12], %f1;", values, out)
    np.testing.assert_array_equal(out, values)


@pytest.mark.parametrize(
    "store",
    ["st.global.wt", "st.volatile.global", "st.relaxed.gpu.global", "st.release.cta.global", "st.global.release.gpu"],
)
def test_the_variants_of_a_store_all_store(store):
    out = np.zeros(32, np.uint32)
    emulate(LANE + at(0, 4, "%rd11") + f"{store}.u32 [%rd11], %r0;", out)
    np.testing.assert_array_equal(out, np.arange(32))


def test_a_cache_policy_changes_nothing():
    values, out = random_of(np.float32, 128), np.zeros(128, np.float32)
    body = LANE + at(0, 16, "%rd11") + at(1, 16, "%rd12")
    body += """
        createpolicy.fractional.L2::evict_first.b64 %rd20, 1.0;
        createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %rd21;
        prefetch.global.L2 [%rd11];
        ld.global.nc.L1::no_allocate.L2::cache_hint.v4.f32 {%f1, %f2, %f3, %f4}, [%rd11], %rd20;
        st.global.L2::cache_hint.v4.f32 [%rd12], {%f1, %f2, %f3, %f4}, %rd21;
    """
    emulate(body, values, out)
    np.testing.assert_array_equal(out, values)


def test_a_discarded_line_holds_no_data_any_more():
    data = np.zeros(64, np.uint32)
    emulate("setp.ne.u32 %p1, %r0, 0; @%p1 exit; discard.global.L2 [%rd0+128], 128;", data)
    assert (data[:32] == 0).all() and (data[32:] == 0xFFFFFFFF).all()


# -- generic addresses -------------------------------------------------------------------------------------------


def test_generic_addresses_reach_shared_local_and_global_memory_in_one_instruction():
    values, out = np.arange(32, dtype=np.uint32), np.zeros(32, np.uint32)
    body = (
        LANE
        + at(0, 4, "%rd11")
        + at(1, 4, "%rd12")
        + """
        .shared .align 4 .b32 box[32];
        .local .align 4 .b32 own[4];
        cvta.shared.u64 %rd20, box;
        cvta.local.u64 %rd21, own;
        add.u32 %r5, %r0, 100;
        st.local.u32 [own], %r5;
        mov.u32 %r6, box;
        mad.lo.u32 %r6, %r0, 4, %r6;
        add.u32 %r5, %r0, 200;
        st.shared.u32 [%r6], %r5;
        shl.b64 %rd22, %rd10, 2;
        add.s64 %rd20, %rd20, %rd22;
        setp.ge.u32 %p1, %r0, 10;
        setp.ge.u32 %p2, %r0, 20;
        mov.u64 %rd23, %rd11;
        @%p1 mov.u64 %rd23, %rd20;
        @%p2 mov.u64 %rd23, %rd21;
        ld.u32 %r7, [%rd23];
        st.u32 [%rd12], %r7;
    """
    )
    emulate(body, values, out)
    lanes = np.arange(32)
    np.testing.assert_array_equal(out, np.select([lanes < 10, lanes < 20], [lanes, lanes + 200], lanes + 100))


@pytest.mark.parametrize(
    "space", ["shared", "shared::cta", "shared::cluster", "local", "param::entry", "param", "global"]
)
def test_an_address_converted_there_and_back_is_itself(space):
    out = np.zeros(32, np.uint64)
    variable = {"s": "box+8", "l": "own+8", "p": "p0", "g": "words"}[space[0]]
    body = f"""
        .shared .align 8 .b8 box[64];
        .local .align 8 .b8 own[64];
        cvta.{space}.u64 %rd20, {variable};
        cvta.to.{space}.u64 %rd21, %rd20;
        cvta.{space}.u64 %rd22, %rd21;
        sub.u64 %rd23, %rd22, %rd20;
    """
    out[:] = 1
    body += LANE + at(0, 8, "%rd11") + "st.global.u64 [%rd11], %rd23;"
    emulate(body, out, before=".global .align 8 .b8 words[64];")
    assert (out == 0).all()


def test_isspacep_tells_the_windows_apart():
    """A constant is not global: tests/golden/conformance.npz decides."""
    out = np.zeros(5, np.uint32)
    spaces = ["shared", "local", "global", "const", "shared::cluster"]
    asks = "".join(
        f"isspacep.{space} %p1, %rd{20 + where}; selp.u32 %r5, {1 << where}, 0, %p1;"
        f" ld.global.u32 %r6, [%rd0+{4 * number}]; or.b32 %r6, %r6, %r5; st.global.u32 [%rd0+{4 * number}], %r6;"
        for number, space in enumerate(spaces)
        for where in range(4)
    )
    body = f"""
        .shared .align 8 .b8 box[64];
        .local .align 8 .b8 own[64];
        setp.ne.u32 %p2, %r0, 0;
        @%p2 exit;
        cvta.shared.u64 %rd20, box;
        cvta.local.u64 %rd21, own;
        mov.u64 %rd22, %rd0;
        cvta.const.u64 %rd23, fixed;
        {asks}
    """
    emulate(body, out, before=".const .align 4 .b32 fixed[2] = {3, 4};")
    assert [bin(word) for word in out] == ["0b1", "0b10", "0b100", "0b1000", "0b1"]


def test_constants_and_initialised_globals_are_read():
    out = np.zeros(2, np.uint32)
    body = """
        ld.const.u32 %r1, [fixed+4];
        ld.global.u32 %r2, [table+8];
        st.global.v2.u32 [%rd0], {%r1, %r2};
    """
    emulate(body, out, before=".const .align 4 .u32 fixed[2] = {3, 4};\n.global .align 4 .u32 table[3] = {5, 6, 7};")
    assert out.tolist() == [4, 7]


@pytest.mark.parametrize(
    ("type_name", "value", "bits"),
    [
        ("u32", "010", 8), ("u32", "8U", 8), ("u32", "WARP_SZ", 32), ("u32", "1.0 < 2.0", 1), ("b32", "-1", 2**32 - 1),
        ("b32", "1.5", 0x3FC00000), ("b32", "0d3ff8000000000000", 0x3FC00000), ("f32", "1.0 + 0.5", 0x3FC00000),
        ("f32", "0f3fc00000", 0x3FC00000),
    ],
)  # fmt: skip
def test_an_initial_value_has_the_bits_that_ptxas_stores(type_name: str, value: str, bits: int):
    out = np.zeros(1, np.uint32)
    emulate("ld.global.u32 %r1, [one]; st.global.u32 [%rd0], %r1;", out, before=f".global .{type_name} one = {value};")
    assert out[0] == bits


def test_kernel_parameters_are_read_by_type():
    out = np.zeros(2, np.uint32)
    body = "ld.param.u32 %r1, [p0]; ld.param::entry.u32 %r2, [p0+4]; st.global.v2.u32 [%rd0], {%r1, %r2};"
    emulate(body, out)
    assert int(out[0]) | int(out[1]) << 32 >= 0x7F00_0000_0000


# -- what goes wrong ---------------------------------------------------------------------------------------------


def test_an_access_past_the_end_names_buffer_instruction_thread_and_line():
    data = np.zeros(20, np.float32)
    with pytest.raises(OutOfBoundsError) as caught:
        emulate(LANE + at(0, 4, "%rd11") + "\n    ld.global.f32 %f1, [%rd11];", data)
    message = str(caught.value)
    assert "p0 with 80 bytes" in message and "byte 80" in message
    assert "ld.global.f32 %f1, [%rd11];" in message and "thread (20, 0, 0)" in message and "<ptx>:" in message


def test_the_line_of_a_loc_directive_is_named():
    data = np.zeros(1, np.float32)
    with refused("out-of-bounds") as caught:
        emulate(".loc 1 41 0\n ld.global.f32 %f1, [%rd0+64];", data, before='.file 1 "kernel.py"')
    assert "kernel.py:41" in str(caught.value)


def test_a_misaligned_vector_names_the_lane_and_by_how_much():
    data = np.zeros(64, np.float32)
    with pytest.raises(MisalignedError) as caught:
        emulate(LANE + at(0, 4, "%rd11") + "ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd11];", data)
    message = str(caught.value)
    assert "a multiple of 16" in message and "4 bytes past one" in message and "thread (1, 0, 0)" in message


@pytest.mark.parametrize("store", ["st.shared.u32 [box+64], %r0;", "ld.shared.u32 %r1, [%r2];"])
def test_shared_memory_ends(store):
    body = ".shared .align 4 .b8 box[64]; mov.u32 %r2, box; add.u32 %r2, %r2, 4096;"
    with pytest.raises(OutOfBoundsError):
        emulate(body + store)


def test_local_memory_ends():
    with refused("out-of-bounds"):
        emulate(".local .align 4 .b8 own[16]; st.local.u32 [own+16], %r0;")


def test_a_guarded_lane_accesses_nothing():
    data = np.zeros(4, np.uint32)
    emulate(LANE + at(0, 4, "%rd11") + "setp.lt.u32 %p1, %r0, 4; @%p1 st.global.u32 [%rd11], %r0;", data)
    assert data.tolist() == [0, 1, 2, 3]


def test_a_constant_cannot_be_written():
    with refused("invalid-operand"):
        body = "cvta.const.u64 %rd20, fixed; st.u32 [%rd20], %r0;"
        emulate(body, before=".const .align 4 .u32 fixed[2] = {3, 4};")


@pytest.mark.parametrize("seed", range(40))
def test_a_pattern_of_addresses_costs_the_same_wherever_it_begins(seed):
    random = np.random.default_rng(seed)
    counters = Counters(detailed=True)
    lanes = np.sort(random.choice(256, int(random.choice([1, 5, 32, 64])), replace=False))
    size = int(random.choice([1, 2, 4, 8, 16]))
    pattern = random.integers(0, 40, lanes.size) * size * int(random.choice([1, 2, 8]))
    for start in (0, 128, 4096 + size, 128 * int(random.integers(1, 99))):
        found = []
        for space in ("shared", "global"):
            counters.count_access(0, space, "load", size, lanes, pattern + start)
            found.append((counters.bank_conflicts, counters.global_sectors))
            counters.bank_conflicts = counters.global_sectors = 0
        fresh = bank_conflicts(lanes, pattern + start, size), global_sectors(lanes, pattern + start, size)[1]
        assert found == [(fresh[0], 0), (0, fresh[1])]


VOLATILE_LOCAL = """
.version 9.1
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
  .reg .b32 %r<5>;
  .reg .b64 %rd<3>;
  .local .align 16 .b8 own[16];
  mov.u32 %r0, %tid.x;
  st.volatile.local.v2.b32 [own+8], {%r0, 7};
  st.local.volatile.b32 [own+4], %r0;
  ld.local.volatile.v2.u32 {%r1, %r2}, [own+8];
  ld.volatile.local.u32 %r3, [own+4];
  mad.lo.u32 %r4, %r2, %r3, %r1;
  ld.param.u64 %rd1, [out];
  mul.wide.u32 %rd2, %r0, 4;
  add.u64 %rd1, %rd1, %rd2;
  st.global.u32 [%rd1], %r4;
  ret;
}
"""


def test_volatile_local_memory_is_each_thread_s_own():
    """As nvcc since 13.1 writes a volatile local variable."""
    out = np.zeros(64, np.uint32)
    run_text(VOLATILE_LOCAL, out, grid=1, block=64)
    np.testing.assert_array_equal(out, np.arange(64) * 8)
    with pytest.raises(VerificationError):
        run_text(VOLATILE_LOCAL.replace(".version 9.1", ".version 9.0"), out, grid=1, block=64)
