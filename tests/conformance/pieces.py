"""Building blocks of kernels with asynchronous copies: a tile in shared memory, mbarriers, filling and dumping.

`HEAD` declares `tile` (%r60 holds its address) and eight mbarriers `bars` (%r61); %p30 is true in thread 0.
"""

from __future__ import annotations

from itertools import count

TILE_BYTES = 16384
HEAD = f"""
    .shared .align 1024 .b8 tile[{TILE_BYTES}];
    .shared .align 8 .b64 bars[8];
    mov.u32 %r60, tile;
    mov.u32 %r61, bars;
    setp.eq.u32 %p30, %t, 0;
"""


class Body:
    """A kernel's lines, with labels that never collide."""

    def __init__(self, threads: int, head: str = HEAD) -> None:
        self.threads, self.lines, self._labels = threads, [head], count()

    def do(self, *lines: str) -> Body:
        self.lines += lines
        return self

    def first(self, *lines: str) -> Body:
        """Thread 0 alone does this."""
        label = f"NEXT{next(self._labels)}"
        return self.do(f"@!%p30 bra {label};", *lines, f"{label}:")

    def init(self, *counts: int) -> Body:
        """Barriers with these counts; the whole CTA and the async proxy see them."""
        at = [f"mbarrier.init.shared::cta.b64 [%r61+{8 * n}], {arrivals};" for n, arrivals in enumerate(counts)]
        return self.first(*at, "fence.mbarrier_init.release.cluster;", "fence.proxy.async;").do("bar.sync 0;")

    def wait(self, parity: int = 0, barrier: int = 0) -> Body:
        label = f"WAIT{next(self._labels)}"
        return self.do(
            f"{label}:", f"mbarrier.try_wait.parity.shared::cta.b64 %p31, [%r61+{8 * barrier}], {parity};",
            f"@!%p31 bra {label};",
        )  # fmt: skip

    def _each_word(self, size: int, *lines: str) -> Body:
        """Every thread does this for words %t, %t + threads, …: %r62 is the byte offset."""
        loop, done = f"LOOP{next(self._labels)}", f"DONE{next(self._labels)}"
        return self.do(
            "shl.b32 %r62, %t, 2;", f"{loop}:", f"setp.ge.u32 %p31, %r62, {size};", f"@%p31 bra {done};", *lines,
            f"add.u32 %r62, %r62, {4 * self.threads};", f"bra {loop};", f"{done}:",
        )  # fmt: skip

    def paint(self, size: int, word: int = 0xA5A5A5A5, start: int = 0) -> Body:
        """Fill part of the tile with one word, for all proxies."""
        return self._each_word(
            size, "add.u32 %r63, %r60, %r62;", f"st.shared.b32 [%r63+{start}], {word};",
        ).do("fence.proxy.async;", "bar.sync 0;")  # fmt: skip

    def fill(self, pointer: str, size: int, start: int = 0) -> Body:
        """Copy global memory into the tile, for all proxies."""
        return self._each_word(
            size, "cvt.u64.u32 %rd60, %r62;", f"add.u64 %rd60, %rd60, {pointer};", "ld.global.b32 %r64, [%rd60];",
            "add.u32 %r63, %r60, %r62;", f"st.shared.b32 [%r63+{start}], %r64;",
        ).do("fence.proxy.async;", "bar.sync 0;")  # fmt: skip

    def dump(self, pointer: str, size: int, start: int = 0, offset: int = 0) -> Body:
        """Copy part of the tile to global memory; afterwards the tile may be written again."""
        return self._each_word(
            size, "add.u32 %r63, %r60, %r62;", f"ld.shared.b32 %r64, [%r63+{start}];", "cvt.u64.u32 %rd60, %r62;",
            f"add.u64 %rd60, %rd60, {pointer};", f"st.global.b32 [%rd60+{offset}], %r64;",
        ).do("fence.proxy.async;", "bar.sync 0;")  # fmt: skip

    def expect(self, size: int, barrier: int = 0) -> Body:
        return self.first(f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r61+{8 * barrier}], {size};")

    def cluster_sync(self) -> Body:
        return self.do("barrier.cluster.arrive.aligned;", "barrier.cluster.wait.aligned;")

    def text(self) -> str:
        return "\n".join(self.lines)
