"""Atomics and stores of single words: how many L2 processes per nanosecond."""

from __future__ import annotations

from collections.abc import Iterator

from warploom.isa.dtypes import u32, u64
from warploom.lang import Tile, ptx, reg, smem

from .harness import Measurement, loop

WORDS = 1 << 21
"""8 MiB, which fit in L2."""
COUNT, REPETITIONS = 8, 32


def _places(apart: int, same: bool) -> tuple[object, list[object]]:
    """Word offsets of a lane's accesses: lanes `apart` from each other, warps and iterations in separate places."""
    thread, lane = ptx.special.tid.x(), ptx.special.tid.x() & 31
    warp = (ptx.special.ctaid.x() * ptx.special.ntid.x() + thread) >> 5
    if same:
        return lane, [lane * apart for _ in range(COUNT)]
    first = warp * (32 * max(apart, 1) * COUNT)
    return lane, [(first + lane * apart + i * 32 * max(apart, 1)) & (WORDS - 1) for i in range(COUNT)]


def _mixed(lines: int) -> tuple[object, list[object]]:
    """A word of one of `few` lines for each lane, warp and iteration, by a multiplicative hash (Knuth's)."""
    lane = ptx.special.tid.x() & 31
    thread = ptx.special.ctaid.x() * ptx.special.ntid.x() + ptx.special.tid.x()
    places = [(((thread * COUNT + i) * 2654435761) >> 12) & (lines * 32 - 1) for i in range(COUNT)]
    return lane, places


def updates(
    name: str, of: str, apart: int, ctas: int, *, warps: int = 8, same: bool = False, opcode: str = "red.add.u32",
    latency: bool = False, few: int = 0,
) -> Measurement:  # fmt: skip
    """Atomic additions to global memory; latency: each waits for the result of the previous one.

    few: all of them go to this many lines, in an order that mixes warps and iterations.
    """
    word, *rest = opcode.split(".", 1)
    full = f"{word}.global.{rest[0]}"

    def prepare(data):
        (pointer,) = ptx.global_ptrs(data)
        _, places = _mixed(few) if few else _places(apart, same)
        return [(pointer + (place * 4).to(u64)).copy() for place in places], reg.scalar(u32, init=0)

    def body(state):
        places, got = state
        for place in places:
            if latency:
                ptx.inst(full, got, ptx.addr(place), got)
            else:
                ptx.inst(full, ptx.addr(place), 1)

    return Measurement(
        name, lambda: loop(name, body, repetitions=REPETITIONS, ctas=ctas, warps=warps, prepare=prepare,
                           finish=lambda s: [s[1]], array=Tile("N", u32, inout=True)),
        operations=COUNT, repetitions=REPETITIONS, of=of, ctas=ctas, elements=(WORDS,), data="zeros",
        bytes=COUNT * warps * 32 * 4, facts={"warps": warps},
    )  # fmt: skip


def words(name: str, of: str, apart: int, ctas: int, warps: int = 8) -> Measurement:
    """Stores of one word per lane."""

    def prepare(data):
        (pointer,) = ptx.global_ptrs(data)
        _, places = _places(apart, False)
        return [(pointer + (place * 4).to(u64)).copy() for place in places], ptx.special.tid.x().copy()

    def body(state):
        places, value = state
        for place in places:
            ptx.inst("st.global.u32", ptx.addr(place), value)

    return Measurement(
        name, lambda: loop(name, body, repetitions=REPETITIONS, ctas=ctas, warps=warps, prepare=prepare,
                           array=Tile("N", u32, inout=True)),
        operations=COUNT, repetitions=REPETITIONS, of=of, ctas=ctas, elements=(WORDS,), data="zeros",
        bytes=COUNT * warps * 32 * 4, facts={"warps": warps},
    )  # fmt: skip


def shared_updates(name: str, of: str, apart: int) -> Measurement:
    """Atomic additions to shared memory by eight warps."""

    def prepare(data):
        array = smem.array(u32, 8192, align=128, name="array")
        thread, lane = ptx.special.tid.x(), ptx.special.tid.x() & 31
        base = reg.scalar(u32)
        ptx.inst.mov.u32(base, array[0].register())
        return ((base + (thread >> 5) * 4096 + lane * (4 * apart)).copy(),)

    def body(state):
        for i in range(COUNT):
            ptx.inst("red.shared.add.u32", ptx.addr(state[0], 4 * i if apart else 0), 1)

    return Measurement(
        name, lambda: loop(name, body, repetitions=REPETITIONS, warps=8, prepare=prepare),
        operations=COUNT, repetitions=REPETITIONS, of=of, bytes=COUNT * 8 * 128, facts={"warps": 8},
    )  # fmt: skip


def measurements() -> Iterator[Measurement]:
    yield updates("latency.atom", "atom.global.add, each waits for the one before", 1, 1, warps=1, latency=True,
                  opcode="atom.add.u32")  # fmt: skip
    for ctas in (1, 132, 528):
        yield updates(f"rate.red.words.ctas{ctas}", "red.global.add of 32 neighbouring words", 1, ctas)
        yield updates(f"rate.red.lines.ctas{ctas}", "red.global.add of 32 words, a line each", 32, ctas)
        yield updates(f"rate.red.same.ctas{ctas}", "red.global.add of one word by all", 0, ctas, same=True)
    for lines in (1, 8, 32, 128, 1024):
        yield updates(f"rate.red.few{lines}.ctas528", f"red.global.add of words of {lines} lines, mixed", 1, 528,
                      few=lines)  # fmt: skip
    yield updates("rate.red.few32.ctas132", "red.global.add of words of 32 lines, mixed", 1, 132, few=32)
    yield updates("rate.red_f32.same.ctas132", "red.global.add.f32 of one word by all", 0, 132, same=True,
                  opcode="red.add.f32")  # fmt: skip
    yield updates("rate.red_f32.lines.ctas528", "red.global.add.f32 of 32 words, a line each", 32, 528,
                  opcode="red.add.f32")  # fmt: skip
    for apart, of in ((1, "words"), (8, "sectors"), (32, "lines")):
        yield words(f"rate.stg.{of}.ctas528", f"stg, 32 {of}", apart, 528)
    yield shared_updates("rate.red_shared.words.w8", "red.shared.add of 32 neighbouring words", 1)
    yield shared_updates("rate.red_shared.same.w8", "red.shared.add of one word", 0)
