"""Loads of lines that are in flight: what L1 costs if many loads request a line that one has already requested.

Every repetition reads lines that its SM has not touched before, so the first load of each misses; L2 has them. In
`rate.ldg.pending` all warps request the same lines one after the other, in `rate.ldg.apart` each warp its own lines.
The difference between them, and to the rates of hits (`rate.ldg32.w16`), is the cost of a pending line. `rate.ldg.walk`
walks down an array like an inner product: all warps of a CTA through the same rows, each through its own row, or both.
Rows far apart may fall into the same sets of the cache.
"""

from __future__ import annotations

from collections.abc import Iterator

from warploom.isa.dtypes import bf16, f32, u32, u64
from warploom.lang import Kernel, Tile, ptx, reg

from .harness import Measurement, loop, unknown_zero

LINE, COUNT, REPETITIONS = 128, 8, 64
BYTES = 1 << 24
"""16 MiB, which fit in L2."""


def pending(name: str, warps: int, *, shared: bool, again: int = 1, broadcast: bool = False, ctas: int = 1,
            latency: bool = False) -> Measurement:  # fmt: skip
    """In each repetition, a warp loads from COUNT new lines, `again` times from each, and waits for all of them.

    shared: the lines are the same for all warps; else each warp has its own. broadcast: all lanes load one word.
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


def own(name: str, ctas: int, warps: int = 8) -> Measurement:
    """Each warp loads its own 4 KiB from L2 past L1, 16 bytes per lane, again and again; CTAs share no line."""
    bytes_ = COUNT * 512

    def build() -> Kernel:
        def prepare(data):
            (pointer,) = ptx.global_ptrs(data)
            thread = ptx.special.tid.x()
            first = (ptx.special.ctaid.x() * warps + (thread >> 5)) * bytes_ + (thread & 31) * 16
            return first.copy(), pointer, [reg.scalar(u32, init=0) for _ in range(4)]

        def body(state):
            first, pointer, kept = state
            fours = [[reg.scalar(u32) for _ in range(4)] for _ in range(COUNT)]
            for at, four in enumerate(fours):
                ptx.inst("ld.global.cg.v4.u32", four, ptx.addr(pointer + first.to(u64), at * 512))
            for four in fours:
                for one, value in zip(kept, four, strict=True):
                    ptx.inst.xor.b32(one, one, value)
            first ^= kept[0] & 1024  # the data are zeros: the next loads wait for these

        return loop(name, body, repetitions=REPETITIONS, warps=warps, prepare=prepare, ctas=ctas,
                    finish=lambda s: s[2], array=Tile("N", bf16))  # fmt: skip

    return Measurement(
        name, build, operations=COUNT * warps, repetitions=REPETITIONS, ctas=ctas,
        of="ld.global.cg of 512 bytes, each warp its own lines in L2", bytes=bytes_ * warps,
        elements=(BYTES // 2,), data="zeros", facts={"warps": warps},
    )  # fmt: skip


WALKED = {"l2": 1024, "dram": 8192}
"""Rows that `walk` goes down."""
COLUMNS = {"l2": 32, "dram": 256}
"""Adjacent lines that its CTAs divide among them."""


def walk(name: str, pitch: int, *, down: bool, along: bool, ctas: int, warps: int = 32, source: str = "l2",
         ) -> Measurement:  # fmt: skip
    """Rows are `pitch` bytes apart. down: in each step, all warps load 32 words of the next row; along: each warp loads
    one word of its own row, the next one in each step. A step ends with a multiplication; ptxas merges four steps."""
    rows, columns = WALKED[source], COLUMNS[source]

    def prepare(data):
        (pointer,) = ptx.global_ptrs(data)
        thread, cta = ptx.special.tid.x(), ptx.special.ctaid.x()
        below = (pointer + ((cta & columns - 1) * LINE + (thread & 31) * 4).to(u64)).copy()
        own = (pointer + ((thread >> 5) * pitch).to(u64)).copy()
        return below, own, (unknown_zero() + pitch).to(u64), reg.scalar(f32, init=0.0)

    def body(state):
        below, own, step, total = state
        left = right = reg.scalar(f32, init=1.0)
        if along:
            left = reg.scalar(f32)
            ptx.inst("ld.global.f32", left, ptx.addr(own))
            own += 4
        if down:
            right = reg.scalar(f32)
            ptx.inst("ld.global.f32", right, ptx.addr(below))
            below += step
        ptx.inst.fma.rn.f32(total, left, right, total)

    what = " and ".join(["32 words of the next row, the same for all warps"] * down + ["a word of its own row"] * along)
    return Measurement(
        name, lambda: loop(name, body, repetitions=rows, warps=warps, prepare=prepare, ctas=ctas,
                           finish=lambda s: [s[3]], array=Tile("N", bf16)),
        operations=(down + along) * warps, repetitions=rows, ctas=ctas,
        of=f"ld.global of {what}, rows {pitch} bytes apart", bytes=(down + along) * warps * LINE,
        elements=((rows + 1) * pitch // 2 + rows * 2,), data="zeros",
        facts={"warps": warps, "pitch": pitch, "down": down, "along": along, "source": source},
    )  # fmt: skip


def walks() -> Iterator[Measurement]:
    ways = {"down": (True, False), "along": (False, True), "both": (True, True)}
    for way, (down, along) in ways.items():
        for pitch in (4096 + LINE, 32768, 32768 + LINE):
            yield walk(f"rate.ldg.walk.{way}.pitch{pitch}", pitch, down=down, along=along, ctas=264)
        yield walk(f"rate.ldg.walk.{way}.pitch32768.ctas1", 32768, down=down, along=along, ctas=1)
        yield walk(f"rate.ldg.walk.{way}.pitch32768.w8", 32768, down=down, along=along, ctas=132, warps=8)
    for ctas, warps in ((256, 32), (132, 32), (1, 32), (1, 1)):
        name = f"rate.ldg.walk.down.dram.ctas{ctas}.w{warps}"
        yield walk(name, 32768, down=True, along=False, ctas=ctas, warps=warps, source="dram")
    yield walk("rate.ldg.walk.both.dram.ctas256.w32", 32768, down=True, along=True, ctas=256, source="dram")


def measurements() -> Iterator[Measurement]:
    yield from walks()
    yield pending("latency.ldg.pending.w1", 1, shared=True, latency=True)
    yield pending("latency.ldg.pending.w32", 32, shared=True, latency=True)
    for warps in (1, 2, 4, 8, 16, 32):
        yield pending(f"rate.ldg.pending.w{warps}", warps, shared=True)
    for warps in (8, 32):
        yield pending(f"rate.ldg.apart.w{warps}", warps, shared=False)
        yield pending(f"rate.ldg.pending.again4.w{warps}", warps, shared=False, again=4, broadcast=True)
    for ctas in (1, 132, 264, 528):
        yield own(f"rate.ldg.own.ctas{ctas}", ctas)
    yield pending("rate.ldg.pending.broadcast.w32", 32, shared=True, broadcast=True)
    yield pending("rate.ldg.pending.w32.ctas264", 32, shared=True, ctas=264)
