"""The two SMs of a TPC, and back-to-back launches: how they share DRAM and L2.

`rate.tpc` lets selected SMs (by %smid) work: of the pairs 2 i and 2 i + 1, which form a TPC, one SM or both. The other
CTAs exit at once. `launch.stream` streams from DRAM with N CTAs, launch after launch: if a grid starts while the
previous one still runs, its CTAs get the remaining SMs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from warploom.collective.pipeline.cache_policy import read_once
from warploom.isa.dtypes import bf16, u32
from warploom.lang import Kernel, Tile, kernel, ptx, reg, smem

from .copies import DRAM_ROWS, L2_ROWS, WIDTH, refilled
from .harness import Measurement, initialise, loop
from .launches import SMS, Launch

ROWS = 128
"""Rows of a box, each of 128 bytes."""
PITCH = 8192
"""Bytes from row to row, as in an array with 4096 columns of two bytes."""
COLUMNS = PITCH // (2 * WIDTH)
"""Boxes per row of the array."""


def ring_of(stages: int, works: Any) -> tuple[Any, ...]:
    """A ring of boxes, its barriers, and the phase."""
    ring = smem.wgmma_tile(bf16, (ROWS, WIDTH), stages=stages, name="ring")
    full = smem.mbarrier(stages)
    initialise(full, stages, works)
    return ring, full, reg.scalar(u32, init=0)


def issue(state: Any, stage: int, policy: Any = None) -> None:
    """The next box of a CTA: along its rows, then the next rows."""
    array, ring, full, at, last, _, _ = state
    ptx.mbarrier.arrive_expect_tx(full[stage], ring.bytes)
    place = at % COLUMNS * WIDTH, at // COLUMNS * ROWS
    ptx.cp.async_.bulk.tensor_2d(ring[stage], array.tma_desc(), place, full[stage], cache_hint=policy)
    at += 1
    ptx.inst.and_.b32(at, at, last)


def pairs(name: str, pairs: int, both: int, stages: int, *, dram: bool = True) -> Measurement:
    """The first SM of `pairs` TPCs works, and the second SM of `both` of them; each reads its own bytes.

    The TPCs are spread over the chip, as are those with both SMs: if not all work, every second, third… does.
    """
    apart = SMS // 2 // pairs
    boxes = (DRAM_ROWS if dram else L2_ROWS) * 128 // (ROWS * 128)
    repetitions = 40 if dram else 100

    def prepare(array):
        smid = ptx.special.smid()
        pair = smid >> 1
        number = pair // apart
        mine = ((smid & 1) == 0) | (number * both % pairs < both)
        works = (pair % apart == 0) & (number < pairs) & mine
        with ptx.if_(~works):
            ptx.inst.exit()
        at = (smid * (boxes // SMS)).copy()
        first = ptx.special.tid.x() == 0
        ring, full, phase = ring_of(stages, first)
        state = array, ring, full, at, boxes - 1, phase, first
        with ptx.if_(first):
            for stage in range(stages):
                issue(state, stage)
        return state

    body, finish = refilled(stages, issue)
    height = boxes // COLUMNS * ROWS
    return Measurement(
        name,
        lambda: loop(name, body, repetitions=repetitions, ctas=SMS, prepare=prepare, finish=finish,
                     array=Tile(height, PITCH // 2, bf16, box=(WIDTH, ROWS), swizzle="128B")),
        operations=stages, repetitions=repetitions, bytes=stages * ROWS * 128, ctas=SMS, data="zeros",
        of=f"TMA load of {ROWS} rows of 128 bytes by {pairs + both} SMs, {both} TPCs with both",
        elements=(height, PITCH // 2), workers=pairs + both,
        facts={"tpcs": pairs, "both": both, "stages": stages, "source": "dram" if dram else "l2"},
    )  # fmt: skip


STREAMED = 256
"""Boxes that a CTA of `launch.stream` reads: 4 MiB."""


def stream(name: str, ctas: int, stages: int, pdl: bool, first_out: bool = False) -> Kernel:
    """Each CTA reads its own boxes. pdl: the next grid may start at once, and waits only for this one's end.

    first_out: what it reads is to be evicted from L2 first.
    """

    @kernel(
        in_specs=(Tile(DRAM_ROWS * 128 // PITCH, PITCH // 2, bf16, box=(WIDTH, ROWS), swizzle="128B"),),
        out_specs=(Tile("M", u32),), grid=(ctas, 1, 1), block=32, arch="sm_90a", pdl=pdl, name=name.replace(".", "_"),
    )  # fmt: skip
    def program(array, out):
        first = ptx.special.tid.x() == 0
        ring, full, phase = ring_of(stages, first)
        if pdl:
            ptx.griddepcontrol.launch_dependents()
            ptx.griddepcontrol.wait()
        at = (ptx.special.ctaid.x() * STREAMED).copy()
        state = array, ring, full, at, DRAM_ROWS // ROWS - 1, phase, first
        policy = read_once() if first_out else None
        with ptx.if_(first):
            for stage in range(stages):
                issue(state, stage, policy)
        body, finish = refilled(stages, partial(issue, policy=policy))
        for _ in ptx.range(STREAMED // stages - 1, unroll=False):
            body(state)
        finish(state)
        (pointer,) = ptx.global_ptrs(out)
        with ptx.if_((ptx.special.ctaid.x() + ptx.special.tid.x()) == 0):
            ptx.store(ptx.addr(pointer), ptx.special.tid.x())

    return program


def measurements() -> Iterator[Measurement]:
    for stages in (4, 8, 12):
        yield pairs(f"rate.tpc.dram.alone1.stages{stages}", 1, 0, stages)
        yield pairs(f"rate.tpc.dram.both1.stages{stages}", 1, 1, stages)
    for tpcs in (11, 22, 33, 66):
        yield pairs(f"rate.tpc.dram.alone{tpcs}.stages12", tpcs, 0, 12)
        yield pairs(f"rate.tpc.dram.both{tpcs}.stages12", tpcs, tpcs, 12)
    for both in (1, 6, 14, 20, 30, 46):
        yield pairs(f"rate.tpc.dram.mixed{both}.stages12", 66, both, 12)
    yield pairs("rate.tpc.dram.mixed14.stages8", 66, 14, 8)
    for tpcs in (1, 33, 66):
        yield pairs(f"rate.tpc.l2.alone{tpcs}.stages12", tpcs, 0, 12, dram=False)
        yield pairs(f"rate.tpc.l2.both{tpcs}.stages12", tpcs, tpcs, 12, dram=False)


def launches() -> Iterator[Launch]:
    several = [(ctas, pdl, False) for ctas in (44, 48, 64, 66, 67, 72, 80, 96, 112, 132) for pdl in (False, True)]
    for ctas, pdl, first_out in (*several, (66, False, True), (132, False, True)):
        name = f"launch.stream{'.pdl' if pdl else ''}{'.first_out' if first_out else ''}.ctas{ctas}"
        yield Launch(
            name, partial(stream, name, ctas, 12, pdl, first_out),
            f"{STREAMED // 12 * 12} boxes of {ROWS * 128} bytes by each of {ctas} CTAs, from DRAM",
            {"ctas": ctas, "bytes": ctas * (STREAMED // 12 * 12) * ROWS * 128, "pdl": pdl},
            elements=(DRAM_ROWS * 128 // PITCH, PITCH // 2),
        )  # fmt: skip
