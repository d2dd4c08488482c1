"""What lanes do to DRAM and L2 together: rows read in pieces, and stores of parts of lines beside reads.

Each is one pass over arrays that L2 does not hold, by as many CTAs as fit, so its time is that of a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator

from warploom.isa.dtypes import bf16, u32, u64
from warploom.lang import Tile, ptx, reg

from .harness import Measurement, loop, unknown_zero

SMS = 132
MIB = 1 << 20


def pieces(name: str, piece: int, pitch: int, *, per_sm: int = 4, warps: int = 4, ahead: int = 4) -> Measurement:
    """A warp reads a piece of each of several rows by 16 bytes a lane, then the next piece of the same rows, `ahead`
    of them in flight."""
    ctas, size = per_sm * SMS, 264 * MIB
    lanes, rows = piece // 16, 512 // piece
    steps = pitch // piece
    of_warp = rows * pitch
    turns = max(1, size // (ctas * warps * of_warp))

    def prepare(data):
        (pointer,) = ptx.global_ptrs(data)
        thread = ptx.special.tid.x()
        warp, lane = ptx.special.ctaid.x() * warps + thread // 32, thread % 32
        start = pointer + warp.to(u64) * of_warp + ((lane // lanes) * pitch + lane % lanes * 16).to(u64)
        return start, [(thread + i).copy() for i in range(4)], reg.scalar(u32, init=0)

    def body(state):
        start, kept, turn = state
        address = (start + turn.to(u64) * (ctas * warps * of_warp)).copy()
        for _ in ptx.range(unknown_zero() + steps // ahead, unroll=False):
            fresh = [[reg.scalar(u32) for _ in range(4)] for _ in range(ahead)]
            for i in range(ahead):
                ptx.inst("ld.global.nc.v4.u32", fresh[i], ptx.addr(address, i * piece))
            for four in fresh:
                for target, value in zip(kept, four, strict=True):
                    ptx.inst.xor.b32(target, target, value)
            address += ahead * piece
        turn += 1

    return Measurement(
        name, lambda: loop(name, body, repetitions=turns, ctas=ctas, warps=warps, prepare=prepare,
                           finish=lambda state: state[1], array=Tile("N", bf16)),
        operations=steps, repetitions=turns, of=f"ld.global of {piece} bytes of rows {pitch} apart, {ahead} in flight",
        bytes=warps * of_warp, ctas=ctas, elements=(size // 2,), data="zeros",
        facts={"warps": warps, "ctas_per_sm": per_sm, "piece": piece, "pitch": pitch, "ahead": ahead},
    )  # fmt: skip


def beside(name: str, reads: int, stores: int, rows: int, *, per_sm: int = 8, warps: int = 8) -> Measurement:
    """A warp reads `reads` times 512 bytes and stores `stores` times 32 words, in `rows` rows of 128 bytes at a time,
    until those are full."""
    ctas, size = per_sm * SMS, 256 * MIB
    turns = size // 2 // (ctas * warps * max(reads * 512, stores * 128, 1))

    def prepare(data):
        (pointer,) = ptx.global_ptrs(data)
        thread = ptx.special.tid.x()
        warp, lane = ptx.special.ctaid.x() * warps + thread // 32, thread % 32
        source = pointer + warp.to(u64) * (reads * 512) + (lane * 16).to(u64)
        words = 32 // rows
        target = pointer + warp.to(u64) * (stores * 128) + (size // 2 + lane // words * 128 + lane % words * 4).to(u64)
        return source, target, [(thread + i).copy() for i in range(4)], reg.scalar(u32, init=0)

    def body(state):
        source, target, kept, turn = state
        fresh = [[reg.scalar(u32) for _ in range(4)] for _ in range(reads)]
        here = (source + turn.to(u64) * (ctas * warps * reads * 512)).copy()
        there = (target + turn.to(u64) * (ctas * warps * stores * 128)).copy()
        for i in range(reads):
            ptx.inst("ld.global.nc.v4.u32", fresh[i], ptx.addr(here, i * 512))
        for i in range(stores):
            place = i // rows * rows * 128 + i % rows * (128 // rows)
            ptx.store(ptx.addr(there, place), kept[i % 4])
        for four in fresh:
            for value, more in zip(kept, four, strict=True):
                ptx.inst.xor.b32(value, value, more)
        turn += 1

    return Measurement(
        name, lambda: loop(name, body, repetitions=turns, ctas=ctas, warps=warps, prepare=prepare,
                           finish=lambda state: state[2], array=Tile("N", bf16)),
        operations=1, repetitions=turns,
        of=f"{reads} reads of 512 bytes and {stores} stores of 32 words in {rows} lines, by each warp",
        bytes=warps * (reads * 512 + stores * 128), ctas=ctas, elements=(size // 2,), data="zeros",
        facts={"warps": warps, "ctas_per_sm": per_sm, "reads": reads, "stores": stores, "rows": rows},
    )  # fmt: skip


def measurements() -> Iterator[Measurement]:
    for piece, pitch in ((512, 4096), (128, 1024), (64, 1024), (32, 1024), (16, 1024), (128, 8192), (32, 8192)):
        yield pieces(f"rate.ldg.pieces{piece}.pitch{pitch}", piece, pitch)
    yield pieces("rate.ldg.pieces128.pitch1024.ahead2", 128, 1024, ahead=2)
    yield pieces("rate.ldg.pieces16.pitch1024.per_sm16", 16, 1024, per_sm=16, warps=2)
    for reads, stores, rows in (
        (4, 0, 1), (0, 8, 1), (0, 8, 8), (4, 8, 1), (4, 8, 8), (4, 8, 4), (2, 8, 8), (4, 4, 4)
    ):  # fmt: skip
        yield beside(f"rate.beside.reads{reads}.stores{stores}.rows{rows}", reads, stores, rows)
