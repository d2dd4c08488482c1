"""What a copy of a whole range of shared memory leaves of the accesses before it."""

from __future__ import annotations

from tests.sanitizer.pieces import COMMIT, DESCRIPTORS, FENCE_MMA, INIT, READ, WAIT_MMA, ZERO, load, multiply, wait
from tests.sanitizer.running import rules
from warploom.sanitizer.rules import Example

REORDERED = """
shl.b32 %r0, %idx, 4;
mov.u32 %r1, tile;
add.u32 %r1, %r1, %r0;
and.b32 %r2, %idx, 48;
xor.b32 %r2, %r2, %r0;
cvt.u64.u32 %d2, %r2;
add.u64 %d2, %data, %d2;
cp.async.cg.shared.global [%r1], [%d2], 16;
cp.async.cg.shared.global [%r1+2048], [%d2], 16;
cp.async.wait_all;
fence.proxy.async;
bar.sync 0;
"""
"""cp.async fills the tile, in an order of chunks that no descriptor reads."""
PRODUCT = ZERO + DESCRIPTORS + FENCE_MMA + multiply() + COMMIT + WAIT_MMA


def test_a_copy_of_no_bytes_leaves_the_copy_before_it():
    nothing = load(0).splitlines()[-1]
    assert "copy-not-waited" in rules(Example(INIT + load() + nothing + READ))
    assert "uninitialised-shared-read" not in rules(Example(INIT + load() + nothing + wait() + READ))


def test_a_copy_replaces_the_layout_of_the_tile_before_it():
    assert rules(Example(REORDERED + PRODUCT)) == {"layout-mismatch"}
    assert rules(Example(INIT + REORDERED + load(4096) + wait() + PRODUCT)) == set()
