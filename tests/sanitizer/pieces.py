"""Pieces of the bodies of small kernels (`sanitizer.rules.Example`), for the tests of rules and of published bugs."""

from __future__ import annotations

INIT = """
@%first mbarrier.init.shared::cta.b64 [bar], 1;
bar.sync 0;
"""
FILL = """
shl.b32 %r0, %idx, 2;
mov.u32 %r1, tile;
add.u32 %r1, %r1, %r0;
st.shared.u32 [%r1], %idx;
"""
"""Each thread writes its word of the tile; %r1 is its address."""


def load(size: int = 512, expected: int | None = None, to: str = "tile", barrier: str = "bar") -> str:
    """Thread 0 announces bytes and copies `size` bytes into the tile."""
    return f"""
@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [{barrier}], {size if expected is None else expected};
@%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{to}], [%data], {size}, [{barrier}];
"""


def wait(parity: int = 0, name: str = "0", barrier: str = "bar", scope: str = "") -> str:
    """All threads wait for a phase."""
    return f"""
wait_{name}:
mbarrier.try_wait.parity{scope}.shared::cta.b64 %p0, [{barrier}], {parity};
@!%p0 bra wait_{name};
"""


STORE = """
@%first cp.async.bulk.global.shared::cta.bulk_group [%data], [tile], 512;
@%first cp.async.bulk.commit_group;
"""
STORED = """
@%first cp.async.bulk.wait_group 0;
"""
READ = """
shl.b32 %r0, %idx, 2;
mov.u32 %r1, tile;
add.u32 %r1, %r1, %r0;
ld.shared.u32 %r2, [%r1];
"""
DESCRIPTORS = """
mov.u32 %r3, tile;
shr.u32 %r3, %r3, 4;
cvt.u64.u32 %d0, %r3;
or.b64 %d0, %d0, 0x0000001000080000;
add.u64 %d1, %d0, 128;
"""
"""Descriptors without swizzle: A, 64 x 16 bf16, at the tile's start, B, 8 x 16, 2 KiB after; %d0 and %d1."""
FENCE_MMA = """
wgmma.fence.sync.aligned;
"""
COMMIT = """
wgmma.commit_group.sync.aligned;
"""
WAIT_MMA = """
wgmma.wait_group.sync.aligned 0;
"""
ZERO = """
mov.f32 %f0, 0f00000000;
mov.f32 %f1, 0f00000000;
mov.f32 %f2, 0f00000000;
mov.f32 %f3, 0f00000000;
"""


def multiply(adds: int = 1, n: int = 8) -> str:
    """One wgmma on the tile, with accumulators %f0 to %f3 (n = 8) or %f7 (n = 16)."""
    registers = ", ".join(f"%f{number}" for number in range(n // 2))
    return f"""
setp.ne.u32 %p1, {adds}, 0;
wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16 {{{registers}}}, %d0, %d1, %p1, 1, 1, 0, 0;
"""


MMA = FENCE_MMA + multiply() + COMMIT + WAIT_MMA
"""A whole MMA, from the fence of its registers to the wait for it."""
CLUSTER_SYNC = """
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
"""
PEER = """
xor.b32 %r4, %rank, 1;
mov.u32 %r5, bar;
mapa.shared::cluster.u32 %r5, %r5, %r4;
"""
"""%r5: the other CTA's first barrier."""
