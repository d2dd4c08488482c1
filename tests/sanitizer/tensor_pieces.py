"""As `pieces`, of kernels that use tensor memory."""

from __future__ import annotations

from functools import partial

from warploom.sanitizer.rules import Example

from .pieces import INIT, load, wait

Blackwell = partial(Example, target="sm_100a")
ALLOC = """
setp.lt.u32 %p2, %idx, 32;
@%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [bar+8], 32;
bar.sync 0;
ld.shared.u32 %r8, [bar+8];
"""
"""Warp 0 allocates 32 columns; %r8 is the first, in all threads."""
FREE = """
bar.sync 0;
@%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r8, 32;
"""
DESCRIPTOR = """
mov.u32 %r3, tile;
shr.u32 %r3, %r3, 4;
cvt.u64.u32 %d0, %r3;
or.b64 %d0, %d0, 0x0000401000080000;
"""
"""%d0: A, 128 x 16 bf16, and B, its first rows, without swizzle."""
READY = INIT + ALLOC + load(4096) + wait() + DESCRIPTOR


def multiply(adds: int = 0, n: int = 16, who: str = "%first") -> str:
    """One product, 128 x n, into the first columns."""
    return f"""
setp.ne.u32 %p3, {adds}, 0;
@{who} tcgen05.mma.cta_group::1.kind::f16 [%r8], %d0, %d0, {0x08000490 | n >> 3 << 17:#x}, %p3;
"""


COMMIT = """
@%first tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];
"""
LOAD = """
tcgen05.ld.sync.aligned.32x32b.x4.b32 {%r9, %r10, %r11, %r12}, [%r8];
"""
WAIT_LOAD = """
tcgen05.wait::ld.sync.aligned;
"""
DONE = COMMIT + wait(1, "1")
USE = "add.u32 %r13, %r9, %r10;\n"
READ = LOAD + WAIT_LOAD + USE
PAIR_ALLOC = """
setp.lt.u32 %p2, %idx, 32;
@%p2 tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [bar+8], 32;
bar.sync 0;
ld.shared.u32 %r8, [bar+8];
"""
PAIR_FREE = """
@%p2 tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r8, 32;
"""
