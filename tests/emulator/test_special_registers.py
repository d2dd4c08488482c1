"""Special registers in the emulator, through PTX text."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.ptx_text import emulate, kernel_text
from warploom import asm
from warploom.emulator import api
from warploom.emulator.machine.special_values import SPECIAL
from warploom.errors import OutOfBoundsError
from warploom.isa.special_registers import SPECIAL_REGISTERS


def test_every_special_register_has_a_value():
    assert set(SPECIAL) == set(SPECIAL_REGISTERS)


def read(name: str, **launch: object) -> np.ndarray:
    """A 32-bit special register of every thread, by linear thread number within linear CTA number."""
    grid, block = launch.get("grid", (1, 1, 1)), launch.get("block", (32, 1, 1))
    out = np.zeros(int(np.prod(grid)) * int(np.prod(block)), np.uint32)
    body = f"""
        mov.u32 %r1, %ntid.x; mov.u32 %r2, %ntid.y; mov.u32 %r3, %ntid.z;
        mov.u32 %r4, %tid.z; mov.u32 %r5, %tid.y; mov.u32 %r6, %tid.x;
        mad.lo.u32 %r7, %r4, %r2, %r5;
        mad.lo.u32 %r7, %r7, %r1, %r6;
        mov.u32 %r8, %nctaid.x; mov.u32 %r9, %nctaid.y;
        mov.u32 %r10, %ctaid.z; mov.u32 %r11, %ctaid.y; mov.u32 %r12, %ctaid.x;
        mad.lo.u32 %r13, %r10, %r9, %r11;
        mad.lo.u32 %r13, %r13, %r8, %r12;
        mul.lo.u32 %r14, %r1, %r2;
        mul.lo.u32 %r14, %r14, %r3;
        mad.lo.u32 %r15, %r13, %r14, %r7;
        mul.wide.u32 %rd10, %r15, 4;
        add.s64 %rd11, %rd0, %rd10;
        mov.u32 %r16, {name};
        st.global.u32 [%rd11], %r16;
    """
    api.run(asm.parse(kernel_text(body)), "k", [out], grid=grid, block=block, cluster=launch.get("cluster"))  # type: ignore[arg-type]
    return out.reshape(int(np.prod(grid)), int(np.prod(block)))


def test_threads_and_ctas_are_numbered_x_first():
    launch = {"grid": (2, 3, 2), "block": (4, 3, 2)}
    threads, ctas = np.arange(24), np.arange(12)
    np.testing.assert_array_equal(read("%tid.x", **launch)[5], threads % 4)
    np.testing.assert_array_equal(read("%tid.y", **launch)[5], threads // 4 % 3)
    np.testing.assert_array_equal(read("%tid.z", **launch)[5], threads // 12)
    np.testing.assert_array_equal(read("%ctaid.x", **launch)[:, 3], ctas % 2)
    np.testing.assert_array_equal(read("%ctaid.y", **launch)[:, 3], ctas // 2 % 3)
    np.testing.assert_array_equal(read("%ctaid.z", **launch)[:, 3], ctas // 6)


def test_clusters_are_numbered_among_themselves():
    launch = {"grid": (4, 2, 1), "cluster": (2, 2, 1)}
    ctas = np.arange(8)
    np.testing.assert_array_equal(read("%clusterid.x", **launch)[:, 0], ctas % 4 // 2)
    np.testing.assert_array_equal(read("%cluster_ctarank", **launch)[:, 0], ctas % 2 + ctas // 4 * 2)
    np.testing.assert_array_equal(read("%cluster_ctaid.y", **launch)[:, 0], ctas // 4)
    assert set(read("%cluster_nctarank", **launch).ravel()) == {4}
    assert set(read("%nclusterid.x", **launch).ravel()) == {2}


@pytest.mark.parametrize(
    "name, holds",
    [
        ("eq", lambda bit, lane: bit == lane), ("lt", lambda bit, lane: bit < lane),
        ("le", lambda bit, lane: bit <= lane), ("gt", lambda bit, lane: bit > lane),
        ("ge", lambda bit, lane: bit >= lane),
    ],
)  # fmt: skip
def test_lane_masks_compare_bits_with_the_own_lane(name, holds):
    found = read(f"%lanemask_{name}", block=(64, 1, 1))[0]
    expected = [sum(1 << bit for bit in range(32) if holds(bit, thread % 32)) for thread in range(64)]
    np.testing.assert_array_equal(found, np.array(expected, np.uint32))


def test_lanes_and_warps_are_numbered():
    np.testing.assert_array_equal(read("%laneid", block=(64, 1, 1))[0], np.arange(64) % 32)
    np.testing.assert_array_equal(read("%warpid", block=(64, 1, 1))[0], np.arange(64) // 32)


def test_clocks_grow():
    times = np.zeros(2, np.uint64)
    read_twice = "mov.u64 %rd10, %clock64; mov.u64 %rd11, %clock64;"
    emulate(read_twice + "st.global.v2.u64 [%rd0], {%rd10, %rd11};", times)
    assert times[1] > times[0]


IN_RESERVED = """
    .reg .u32 %start; .reg .u64 %there;
    mov.u32 %start, %reserved_smem_offset_1;
    cvt.u64.u32 %there, %start;
    cvta.shared.u64 %there, %there;
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd2, %there, %rd1;
    st.u32 [%rd2+OFFSET], %r0;
    bar.sync 0;
    xor.b64 %rd3, %rd1, 28;
    add.u64 %rd2, %there, %rd3;
    ld.u32 %r1, [%rd2+OFFSET];
    add.u64 %rd4, %rd0, %rd1;
    st.global.u32 [%rd4], %r1;
"""


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_a_kernel_may_use_the_reserved_memory_whose_place_it_asks_for(target: str):
    """Cooperative groups keep there what tiles wider than a warp exchange: 288 bytes."""
    out = np.zeros(32, np.uint32)
    text = kernel_text(IN_RESERVED.replace("OFFSET", "160"), target=target)
    api.run(asm.parse(text), "k", [out], grid=(1, 1, 1), block=(32, 1, 1))
    np.testing.assert_array_equal(out, np.arange(32) ^ 7)
    with pytest.raises(OutOfBoundsError):
        api.run(asm.parse(text.replace("160]", "164]")), "k", [out], grid=(1, 1, 1), block=(32, 1, 1))


def test_a_kernel_that_does_not_ask_for_it_may_not():
    text = kernel_text(IN_RESERVED.replace("OFFSET", "0").replace("%reserved_smem_offset_1", "4"))
    with pytest.raises(OutOfBoundsError):
        api.run(asm.parse(text), "k", [np.zeros(32, np.uint32)], grid=(1, 1, 1), block=(32, 1, 1))
