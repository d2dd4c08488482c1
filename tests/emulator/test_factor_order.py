"""Scale factors in tensor memory that are overwritten while the previous product may still read them.

A thread's copy or next product follows its products that read the same cells, whenever the hardware executes them.
CUTLASS's kernels for 4-bit types copy the factors of each stage to the same columns without a wait, and its attention
multiplies into the columns of the P that the previous product reads.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.async_kernels import SCHEDULES, emulate, init, wait
from warploom.isa.instruction_descriptor import InstructionDescriptor

ONE = {"e4m3": 0x38, "ue8m0": 127}
"""The codes of 1.0."""
FACTORS = (1, 2, 4)
BYTES = 4096 + 512 * len(FACTORS)
DESCRIPTOR = 0x0000400800800000
"""Rows of 16 bytes, eight to a matrix of 128 bytes, without swizzle; 32 bytes of k are two matrices 2 KiB apart."""


PLAIN = InstructionDescriptor("f8f6f4", 128, 16, "e4m3", "e4m3").encode()
OVER = f"setp.ne.u32 %p1, 0, 0;\n@%first tcgen05.mma.cta_group::1.kind::f8f6f4 [%r1], %rd0, %rd0, {PLAIN:#x}, %p1;\n"
"""A product whose D is where the factors were."""


@pytest.mark.parametrize("after", ["", OVER], ids=["alone", "with a product over the factors"])
def test_each_product_reads_the_factors_that_were_copied_for_it(after: str):
    bits = InstructionDescriptor("mxf8f6f4", 128, 16, "e4m3", "e4m3", scale="ue8m0").encode()
    steps = "".join(
        f"""
    add.u64 %rd1, %rd0, {(4096 + 512 * number) // 16};
    @%first tcgen05.cp.cta_group::1.32x128b.warpx4 [%r1], %rd1;
    setp.ne.u32 %p1, {number}, 0;
    @%first tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale [%r0], %rd0, %rd0, {bits:#x}, [%r1], [%r1], %p1;
    """
        for number in range(len(FACTORS))
    )
    body = (
        init(1, 1)
        + f"""
    setp.lt.u32 %p2, %tid, 32;
    @%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [bar+16], 32;
    bar.sync 0;
    ld.shared.u32 %r0, [bar+16];
    add.u32 %r1, %r0, 16;
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {BYTES};
    @%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%a0], {BYTES}, [bar];
    {wait(0)}
    shr.u32 %r2, %tile, 4;
    cvt.u64.u32 %rd0, %r2;
    or.b64 %rd0, %rd0, {DESCRIPTOR:#x};
    {steps}
    {after}
    @%first tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar+8];
    {wait(0, 1, "1")}
    tcgen05.fence::after_thread_sync;
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r3}}, [%r0];
    tcgen05.wait::ld.sync.aligned;
    mad.wide.u32 %rd2, %tid, 4, %a1;
    st.global.u32 [%rd2], %r3;
    bar.sync 0;
    @%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r0, 32;
    """
    )
    codes = [ONE["ue8m0"] + int(np.log2(factor)) for factor in FACTORS]
    source = np.repeat([ONE["e4m3"], *codes], [4096, *[512] * len(codes)]).astype(np.uint8)
    expected = 32 * sum(factor**2 for factor in FACTORS)  # both operands take the same factors
    for schedule, seed in SCHEDULES + [("random", seed) for seed in range(2, 8)] + [("pct", 1), ("starve", 102)]:
        out = np.zeros(128, np.float32)
        emulate(body, source, out, threads=128, target="sm_100a", schedule=schedule, seed=seed)
        assert (out == expected).all(), (schedule, seed)
