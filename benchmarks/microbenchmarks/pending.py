"""Loads on lines that are on their way: what the first-level cache costs where many ask for what one has asked for.

Every repetition goes to lines that its SM has not touched before, so that the first load of each misses; L2 has them.
`rate.ldg.pending` lets all warps ask for the same lines one after the other, `rate.ldg.apart` each warp for lines of
its own: the difference between them, and to the rates of hits (`rate.ldg32.w16`), is what a pending line costs.
"""

from __future__ import annotations

from collections.abc import Iterator

from warploom.isa.dtypes import bf16, u32, u64
from warploom.lang import Kernel, Tile, ptx, reg

from .harness import Measurement, loop

LINE, COUNT, REPETITIONS = 128, 8, 64
BYTES = 1 << 24
"""16 MiB: L2 has it."""


def pending(name: str, warps: int, *, shared: bool, again: int = 1, broadcast: bool = False, ctas: int = 1,
            latency: bool = False) -> Measurement:  # fmt: skip
    """Each repetition, a warp loads from COUNT new lines, `again` times from each, and waits for all of them.

    shared: the lines are the same for all warps; otherwise each warp has its own. broadcast: all lanes load one word.
    latency: one line instead.
    """
    lines = 1 if latency else COUNT
    step = lines * (1 if shared else warps) * LINE

    def build() -> Kernel:
        def prepare(data):
            (pointer,) = ptx.global_ptrs(data)
            thread = ptx.special.tid.x()
            place = ptx.special.ctaid.x() * (step * REPETITIONS)
            if not broadcast:
                place = place + (thread & 31) * 4
            if not shared:
                place = place + (thread >> 5) * (lines * LINE)
            return pointer, (place & (BYTES - 1)).copy(), [reg.scalar(u32, init=0) for _ in range(lines * again)]

        def body(state):
            pointer, place, kept = state
            address = pointer + place.to(u64)
            fresh = [reg.scalar(u32) for _ in range(lines * again)]
            for at, target in enumerate(fresh):
                word = 4 * (at // lines) if broadcast else 0
                ptx.inst("ld.global.u32", target, ptx.addr(address, at % lines * LINE + word))
            for target, value in zip(kept, fresh, strict=True):
                ptx.inst.xor.b32(target, target, value)
            place += fresh[-1] + step  # the data are zeros: what comes next waits for what came
            ptx.inst.and_.b32(place, place, BYTES - 1)

        return loop(name, body, repetitions=REPETITIONS, warps=warps, prepare=prepare, ctas=ctas,
                    finish=lambda s: s[2], array=Tile("N", bf16))  # fmt: skip

    what = "of one word" if broadcast else "of 32 words"
    whose = "the same lines for all warps" if shared else "each warp its own lines"
    return Measurement(
        name, build, operations=lines * again, repetitions=REPETITIONS, ctas=ctas,
        of=f"ld.global {what}, {again} of each of {lines} new lines, {whose}",
        bytes=step, elements=(BYTES // 2,), data="zeros", facts={"warps": warps, "again": again},
    )  # fmt: skip


def measurements() -> Iterator[Measurement]:
    yield pending("latency.ldg.pending.w1", 1, shared=True, latency=True)
    yield pending("latency.ldg.pending.w32", 32, shared=True, latency=True)
    for warps in (1, 2, 4, 8, 16, 32):
        yield pending(f"rate.ldg.pending.w{warps}", warps, shared=True)
    for warps in (8, 32):
        yield pending(f"rate.ldg.apart.w{warps}", warps, shared=False)
        yield pending(f"rate.ldg.pending.again4.w{warps}", warps, shared=False, again=4, broadcast=True)
    yield pending("rate.ldg.pending.broadcast.w32", 32, shared=True, broadcast=True)
    yield pending("rate.ldg.pending.w32.ctas264", 32, shared=True, ctas=264)
