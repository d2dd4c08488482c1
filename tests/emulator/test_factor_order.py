"""Scale factors in tensor memory that are overwritten while the previous product may still read them.

A thread's copy or next product follows its products that read the same cells, whenever the hardware executes them.
CUTLASS's kernels for 4-bit types copy the factors of each stage to the same columns without a wait, and its attention
multiplies into the columns of the P that the previous product reads.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.async_kernels import SCHEDULES, TILE_BYTES, emulate, init, wait
from warploom.errors import InvalidOperandError
from warploom.isa.instruction_descriptor import InstructionDescriptor
from warploom.isa.swizzle import Swizzle
from warploom.isa.tcgen05_descriptor import Descriptor

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
    setp.lt.u32 %p2, %idx, 32;
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
    mad.wide.u32 %rd2, %idx, 4, %a1;
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


@pytest.mark.parametrize(("part", "factors"), [(0, [1, 1, 1, 1, 2, 2]), (2, [1, 1, 2, 2, 2, 2])])
def test_a_product_of_96_elements_goes_on_in_the_next_atom_of_factors_and_at_the_leading_address(part, factors):
    """A row of 48 bytes begins at byte 96 of its 128; its last 16 bytes are the row's first."""
    bits = InstructionDescriptor(
        "mxf4nvf4", 128, 16, "e2m1", "e2m1", scale="ue8m0", scale_a_id=part, scale_b_id=part, wide_k=True
    ).encode()
    begin = Descriptor(96, 0, 1024, Swizzle.B128, absolute=True).encode()
    body = (
        init(1, 1)
        + f"""
    setp.lt.u32 %p2, %idx, 32;
    @%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [bar+16], 32;
    bar.sync 0;
    ld.shared.u32 %r0, [bar+16];
    add.u32 %r1, %r0, {16 + (part << 30)};
    add.u32 %r4, %r1, {0 - (part << 30)};
    mov.u32 %r5, 0x7f7f7f7f;
    tcgen05.st.sync.aligned.32x32b.x4.b32 [%r4], {{%r5, %r5, %r5, %r5}};
    add.u32 %r4, %r4, 4;
    mov.u32 %r5, 0x80808080;
    tcgen05.st.sync.aligned.32x32b.x4.b32 [%r4], {{%r5, %r5, %r5, %r5}};
    tcgen05.wait::st.sync.aligned;
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {TILE_BYTES};
    @%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%a0], {TILE_BYTES}, [bar];
    {wait(0)}
    bar.sync 0;
    shr.u32 %r2, %tile, 4;
    mul.wide.u32 %rd0, %r2, 0x10001;
    add.u64 %rd0, %rd0, {begin:#x};
    setp.ne.u32 %p1, 0, 0;
    @%first tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16 [%r0], %rd0, %rd0, {bits:#x}, [%r1], [%r1], %p1;
    @%first tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar+8];
    {wait(0, 1, "1")}
    tcgen05.fence::after_thread_sync;
    tcgen05.ld.sync.aligned.32x32b.x16.b32 {{{", ".join(f"%r{at}" for at in range(10, 26))}}}, [%r0];
    tcgen05.wait::ld.sync.aligned;
    mad.wide.u32 %rd2, %idx, 64, %a1;
    {"".join(f"st.global.u32 [%rd2+{4 * at}], %r{10 + at};" for at in range(16))}
    bar.sync 0;
    @%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r0, 32;
    """
    )
    codes = np.random.default_rng(part).integers(0, 16, (128, 256)).astype(np.uint8)
    numbers = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])[codes & 7] * np.where(codes & 8, -1, 1)
    rows = np.concatenate([numbers[:, 192:], numbers[:, :32]], axis=1) * np.repeat(factors, 16)
    octets = codes[:, ::2] | codes[:, 1::2] << 4
    place = np.asarray(Swizzle.B128.apply(np.arange(TILE_BYTES, dtype=np.int64), 0))
    source = np.zeros(TILE_BYTES, np.uint8)
    source[place] = octets.reshape(-1)
    out = np.zeros((128, 16), np.float32)
    emulate(body, source, out, threads=128, target="sm_103a")
    np.testing.assert_array_equal(out, rows @ rows[:16].T)
    with pytest.raises(InvalidOperandError):
        emulate(body, source, out, threads=128, target="sm_100a")
