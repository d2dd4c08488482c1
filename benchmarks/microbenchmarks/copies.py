"""TMA from L2 and DRAM: latency of a copy, and bytes per nanosecond that an SM and the whole chip receive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from warploom.collective import TmaPipeline
from warploom.collective.pipeline.cache_policy import read_once
from warploom.isa.dtypes import bf16, f32, u32, u64
from warploom.lang import Tile, ptx, reg, smem

from .harness import Measurement, initialise, loop

WIDTH = 64
"""Elements of a box's row: 128 bytes."""
SMS = 132
L2_ROWS = 1 << 16
"""Rows of an array that stays in L2: 8 MiB."""
DRAM_ROWS = 1 << 23
"""Rows of an array that does not fit in L2: 1 GiB."""


def refilled(stages: int, issue: Callable[[Any, int], None]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Body and epilogue of a loop in which one thread waits for each stage and refills it.

    The loop state begins with the array, the ring and `full`, and ends with the phase and whether this is the thread.
    """

    def body(state):
        _, _, full, *_, phase, first = state
        with ptx.if_(first):
            for stage in range(stages):
                ptx.mbarrier.wait(full[stage], phase)
                issue(state, stage)
        phase ^= 1

    def finish(state):
        _, _, full, *_, phase, first = state
        with ptx.if_(first):
            for stage in range(stages):
                ptx.mbarrier.wait(full[stage], phase)
        return []

    return body, finish


def tma_loads(
    name: str, rows: int, stages: int, *, ctas: int = 1, same: bool = False, dram: bool = False, outside: int = 0,
    repetitions: int = 200, data: str = "zeros", once: bool = False,
) -> Measurement:  # fmt: skip
    """One thread keeps `stages` boxes of `rows` x 128 bytes in flight.

    same: all CTAs read the same boxes, in step. dram: every box is read for the first time. outside: the number of its
    rows that are out of bounds. once: L2 is asked to evict these boxes first.
    """
    total = DRAM_ROWS if dram else L2_ROWS
    mine = total // ctas // rows * rows if dram else 0

    def prepare(array):
        ring = smem.wgmma_tile(bf16, (rows, WIDTH), stages=stages, name="ring")
        full = smem.mbarrier(stages)
        row, phase = reg.scalar(u32, init=0), reg.scalar(u32, init=0)
        cta = ptx.special.ctaid.x()
        if dram:
            row.set(cta * mine)
        elif not same:
            row.set((cta * (L2_ROWS // 256)) & (L2_ROWS - 1))
        policy = read_once() if once else None
        first = ptx.special.tid.x() == 0
        initialise(full, stages, first)
        state = array, ring, full, row, policy, phase, first
        with ptx.if_(first):
            for stage in range(stages):
                issue(state, stage)
        return state

    def issue(state, stage):
        array, ring, full, row, policy, _, _ = state
        ptx.mbarrier.arrive_expect_tx(full[stage], ring.bytes)
        at = reg.scalar(u32, init=total - rows + outside) if outside else row
        ptx.cp.async_.bulk.tensor_2d(ring[stage], array.tma_desc(), (0, at), full[stage], cache_hint=policy)
        row += rows
        if not dram:
            ptx.inst.and_.b32(row, row, L2_ROWS - 1)

    body, finish = refilled(stages, issue)
    return Measurement(
        name,
        lambda: loop(name, body, repetitions=repetitions, ctas=ctas, prepare=prepare, finish=finish,
                     array=Tile(total, WIDTH, bf16, box=(WIDTH, rows), swizzle="128B")),
        operations=stages, repetitions=repetitions, of=f"TMA load of {rows} rows of 128 bytes, {stages} in flight",
        bytes=stages * rows * 128, ctas=ctas, elements=(total, WIDTH), data=data,
        facts={"rows": rows, "stages": stages, "source": "dram" if dram else "l2", "same": same, "outside": outside}
        | ({"once": True} if once else {}),
    )  # fmt: skip


def far_rows(name: str, rows: int, stages: int, pitch: int, *, ctas: int, dram: bool = False) -> Measurement:
    """One thread keeps `stages` boxes in flight whose rows of 128 bytes are `pitch` bytes apart, as in a wide array.

    A CTA moves along a band of rows; after the last column comes the next band. dram: each byte is read once.
    """
    repetitions, boxes = (10 if dram else 100), pitch // (2 * WIDTH)
    size = (DRAM_ROWS if dram else L2_ROWS) * 2 * WIDTH
    height = size // pitch
    bands = height // rows

    def prepare(array):
        ring = smem.wgmma_tile(bf16, (rows, WIDTH), stages=stages, name="ring")
        full = smem.mbarrier(stages)
        at, phase = (ptx.special.ctaid.x() * (bands * boxes // ctas)).copy(), reg.scalar(u32, init=0)
        first = ptx.special.tid.x() == 0
        initialise(full, stages, first)
        state = array, ring, full, at, phase, first
        with ptx.if_(first):
            for stage in range(stages):
                issue(state, stage)
        return state

    def issue(state, stage):
        array, ring, full, at, _, _ = state
        ptx.mbarrier.arrive_expect_tx(full[stage], ring.bytes)
        place = at % boxes * WIDTH, at // boxes * rows
        ptx.cp.async_.bulk.tensor_2d(ring[stage], array.tma_desc(), place, full[stage])
        at += 1
        ptx.inst.and_.b32(at, at, bands * boxes - 1)

    body, finish = refilled(stages, issue)
    return Measurement(
        name,
        lambda: loop(name, body, repetitions=repetitions, ctas=ctas, prepare=prepare, finish=finish,
                     array=Tile(height, pitch // 2, bf16, box=(WIDTH, rows), swizzle="128B")),
        operations=stages, repetitions=repetitions, bytes=stages * rows * 128, ctas=ctas,
        of=f"TMA load of {rows} rows of 128 bytes, {pitch} bytes apart, {stages} in flight",
        elements=(height, pitch // 2), data="zeros",
        facts={"rows": rows, "stages": stages, "pitch": pitch, "source": "dram" if dram else "l2"},
    )  # fmt: skip


def issued(name: str, rows: int, many: int, warps: int) -> Measurement:
    """One thread of each warp starts `many` copies of a few rows one after the other, then waits for all of them."""
    repetitions, dram_free = 64, L2_ROWS - 1

    def prepare(array):
        ring = smem.wgmma_tile(bf16, (8 * many, WIDTH), stages=warps, name="ring")
        full = smem.mbarrier(warps)
        thread = ptx.special.tid.x()
        with ptx.if_(thread == 0):
            for warp in range(warps):
                ptx.mbarrier.init(full[warp], 1)
            ptx.fence.mbarrier_init()
        ptx.bar.sync(0)
        row = ((thread >> 5) * (L2_ROWS // warps)).copy()
        return array, ring, full, row, reg.scalar(u32, init=0), thread

    def body(state):
        array, ring, full, row, phase, thread = state
        for warp in range(warps):
            with ptx.if_(thread == 32 * warp):
                ptx.mbarrier.arrive_expect_tx(full[warp], many * rows * 128)
                for at in range(many):
                    ptx.cp.async_.bulk.tensor_2d(ring[warp].rows(8 * at, rows), array.tma_desc(), (0, row), full[warp])
                    row += 8
                    ptx.inst.and_.b32(row, row, dram_free)
                ptx.mbarrier.wait(full[warp], phase)
        phase ^= 1

    return Measurement(
        name,
        lambda: loop(name, body, repetitions=repetitions, warps=warps, prepare=prepare,
                     array=Tile(L2_ROWS, WIDTH, bf16, box=(WIDTH, rows), swizzle="128B")),
        operations=many, repetitions=repetitions, bytes=warps * many * rows * 128,
        of=f"TMA load of {rows} rows of 128 bytes, {many} of each of {warps} warps, then a wait",
        elements=(L2_ROWS, WIDTH), data="zeros", facts={"rows": rows, "warps": warps, "many": many},
    )  # fmt: skip


def multicast(
    name: str, rows: int, stages: int, ctas: int, together: int, *, repetitions: int = 200, data: str = "zeros"
) -> Measurement:
    """Each CTA of a cluster loads its slice of every box for all of them; one consumer warpgroup releases stages."""
    repetitions *= stages
    part = rows // together

    def prepare(data):
        tile = smem.wgmma_tile(bf16, (rows, WIDTH), stages=stages, name="ring")
        ring = TmaPipeline(stages=stages, consumers=1, ctas=together, tile=tile)
        ring.initialise()
        rank = ptx.special.cluster_ctarank()
        thread = ptx.special.tid.x()
        return data, ring, rank, thread, ring.producer_state(), ring.consumer_state(), reg.scalar(u32, init=0)

    def body(state):
        data, ring, rank, thread, producer, consumer, row = state
        with ptx.if_(thread == 128):
            with ring.produce(producer) as stage:
                first = rank * part
                ptx.cp.async_.bulk.tensor_2d(
                    stage.tile.rows(first, part),
                    data.tma_desc(),
                    (0, row + first),
                    stage.full,
                    multicast=(1 << together) - 1,
                )
            row += rows
            ptx.inst.and_.b32(row, row, L2_ROWS - 1)
        with ptx.if_(thread < 128):
            ring.consumer_wait(consumer)
            ring.consumer_release(consumer)
            ring.advance(consumer)

    return Measurement(
        name,
        lambda: loop(name, body, repetitions=repetitions, ctas=ctas, warps=5, cluster=together, prepare=prepare,
                     array=Tile(L2_ROWS, WIDTH, bf16, box=(WIDTH, part), swizzle="128B")),
        operations=1, repetitions=repetitions, of=f"box of {rows} rows, multicast to {together} CTAs", bytes=rows * 128,
        ctas=ctas, elements=(L2_ROWS, WIDTH), data=data, facts={"rows": rows, "stages": stages, "cluster": together},
    )  # fmt: skip


def tma_stores(name: str, rows: int, *, ctas: int, read_only: bool = False, in_flight: int = 0) -> Measurement:
    """One thread stores boxes; it waits until all but `in_flight` of them are complete (or have been read)."""
    repetitions = 256
    total = 1 << 18

    def prepare(data):
        tile = smem.wgmma_tile(bf16, (rows, WIDTH), stages=1, name="tile")
        row = ((ptx.special.ctaid.x() * (total // 256)) & (total - 1)).copy()
        return data, tile, row, ptx.special.tid.x() == 0

    def body(state):
        data, tile, row, first = state
        with ptx.if_(first):
            ptx.tma.store(data.tma_desc(), tile[0], (0, row))
            ptx.cp.async_.bulk.commit_group()
            (ptx.cp.async_.bulk.wait_group_read if read_only else ptx.cp.async_.bulk.wait_group)(in_flight)
        row += rows
        ptx.inst.and_.b32(row, row, total - 1)

    def finish(state):
        ptx.cp.async_.bulk.wait_group(0)
        return []

    return Measurement(
        name,
        lambda: loop(name, body, repetitions=repetitions, ctas=ctas, prepare=prepare, finish=finish,
                     array=Tile(total, WIDTH, bf16, box=(WIDTH, rows), swizzle="128B", inout=True)),
        operations=1, repetitions=repetitions, of=f"TMA store of {rows} rows of 128 bytes", bytes=rows * 128, ctas=ctas,
        elements=(total, WIDTH), data="zeros",
        facts={"rows": rows, "waits_for": "read" if read_only else "done", "in_flight": in_flight},
    )  # fmt: skip


def bulk_stores(
    name: str, bytes_: int, *, ctas: int, adds: bool, in_flight: int = 2, pieces: int = 8, shared: bool = False,
    repetitions: int = 256,
) -> Measurement:  # fmt: skip
    """One thread adds a piece of shared memory to pieces of f32 in L2, in bulk, or stores it there.

    shared: all CTAs use the same pieces; otherwise each has its own.
    """

    def prepare(data):
        (pointer,) = ptx.global_ptrs(data)
        thread, piece = ptx.special.tid.x(), smem.array(f32, bytes_ // 4, align=128)
        for at in range(0, bytes_ // 4, 32):
            ptx.store(piece[thread + at], (thread + at).to(f32) * 0.37)
        ptx.fence.proxy_async_shared_cta()
        mine = 0 if shared else ptx.special.ctaid.x() * (pieces * bytes_)
        return pointer, piece, reg.scalar(u32, init=0), mine, thread == 0

    def body(state):
        pointer, piece, turn, mine, first = state
        word = "cp.reduce.async.bulk" if adds else "cp.async.bulk"
        with ptx.if_(first):
            place = pointer + (turn * bytes_ + mine).to(u64)
            opcode = f"{word}.global.shared::cta.bulk_group" + ".add.f32" * adds
            ptx.inst(opcode, ptx.addr(place), piece[0], bytes_)
            ptx.cp.async_.bulk.commit_group()
            ptx.cp.async_.bulk.wait_group(in_flight)
        turn += 1
        ptx.inst.and_.b32(turn, turn, pieces - 1)

    def finish(state):
        ptx.cp.async_.bulk.wait_group(0)
        return []

    return Measurement(
        name, lambda: loop(name, body, repetitions=repetitions, ctas=ctas, prepare=prepare, finish=finish),
        operations=1, repetitions=repetitions, bytes=bytes_, ctas=ctas, data="zeros",
        of=f"bulk {'addition of f32' if adds else 'store'} of {bytes_} bytes",
        elements=(SMS * pieces * bytes_ // 4,), facts={"in_flight": in_flight, "shared": shared},
    )  # fmt: skip


def tma_copies(name: str, rows: int, stages: int) -> Measurement:
    """One thread of each CTA loads boxes of an array, stores them in its other half, and keeps stages - 1 in flight."""
    repetitions, half = 24 * stages, 1 << 20

    def prepare(array):
        ring = smem.wgmma_tile(bf16, (rows, WIDTH), stages=stages, name="ring")
        full = smem.mbarrier(stages)
        row = (ptx.special.ctaid.x() * rows).copy()
        first = ptx.special.tid.x() == 0
        initialise(full, stages, first)
        state = array, ring, full, row, reg.scalar(u32, init=0), first
        with ptx.if_(first):
            for stage in range(stages - 1):
                load(state, stage, row + stage * SMS * rows)
        return state

    def load(state, stage, row):
        array, ring, full, *_ = state
        ptx.mbarrier.arrive_expect_tx(full[stage], ring.bytes)
        ptx.cp.async_.bulk.tensor_2d(ring[stage], array.tma_desc(), (0, row), full[stage])

    def body(state):
        array, ring, full, row, phase, first = state
        with ptx.if_(first):
            for stage in range(stages):
                ptx.mbarrier.wait(full[stage], phase)
                ptx.tma.store(array.tma_desc(), ring[stage], (0, row + half))
                ptx.cp.async_.bulk.commit_group()
                ptx.cp.async_.bulk.wait_group_read(1)
                load(state, (stage - 1) % stages, row + (stages - 1) * SMS * rows)
                row += SMS * rows
        phase ^= 1

    def finish(state):
        _, _, full, _, phase, first = state
        with ptx.if_(first):
            for stage in range(stages - 1):
                ptx.mbarrier.wait(full[stage], phase)
            ptx.cp.async_.bulk.wait_group(0)
        return []

    return Measurement(
        name,
        lambda: loop(name, body, repetitions=repetitions // stages, ctas=SMS, prepare=prepare, finish=finish,
                     array=Tile(2 * half, WIDTH, bf16, box=(WIDTH, rows), swizzle="128B", inout=True)),
        operations=stages, repetitions=repetitions // stages, bytes=stages * rows * 128, ctas=SMS,
        of=f"TMA load and store of {rows} rows of 128 bytes, {stages - 1} in flight",
        elements=(2 * half, WIDTH), data="zeros", facts={"rows": rows, "stages": stages, "source": "dram"},
    )  # fmt: skip


def measurements() -> Iterator[Measurement]:
    for rows in (8, 64, 256):
        yield tma_loads(f"latency.tma.l2.rows{rows}", rows, 1)
    yield tma_loads("latency.tma.dram.rows8", 8, 1, dram=True)
    yield tma_loads("latency.tma.dram.rows64", 64, 1, dram=True)
    for ctas in (1, 8, 33, 66, 99, 132):
        yield tma_loads(f"rate.tma.l2.rows128.ctas{ctas}", 128, 8, ctas=ctas)
    for rows, stages in ((8, 16), (16, 12), (32, 12), (64, 12), (256, 6)):
        yield tma_loads(f"rate.tma.l2.rows{rows}.ctas1", rows, stages)
        yield tma_loads(f"rate.tma.l2.rows{rows}.ctas132", rows, stages, ctas=132)
    yield tma_loads("rate.tma.l2.same.ctas132", 128, 8, ctas=132, same=True)
    yield tma_loads("rate.tma.l2.outside.ctas1", 128, 8, outside=64)
    for ctas in (1, 8, 33, 66, 132):  # rows that do not exist, by one CTA and by many at once
        for outside in (32, 96, 128):
            yield tma_loads(f"rate.tma.l2.outside{outside}.ctas{ctas}", 128, 8, outside=outside, ctas=ctas)
    for stages in (1, 2, 4):
        yield tma_loads(f"rate.tma.l2.rows128.stages{stages}.ctas132", 128, stages, ctas=132)
    for ctas in (8, 33, 66, 132):
        yield tma_loads(f"rate.tma.dram.ctas{ctas}", 128, 8, ctas=ctas, dram=True, repetitions=40)
    for pitch in (1024, 8192, 65536):
        yield far_rows(f"rate.tma.l2.apart{pitch}.rows64.ctas1", 64, 12, pitch, ctas=1)
        yield far_rows(f"rate.tma.l2.apart{pitch}.rows64.ctas132", 64, 12, pitch, ctas=132)
        yield far_rows(f"rate.tma.dram.apart{pitch}.rows64.ctas132", 64, 12, pitch, ctas=132, dram=True)
    yield far_rows("latency.tma.l2.apart65536.rows64", 64, 1, 65536, ctas=1)
    for rows, ctas in ((64, 66), (128, 132), (128, 86), (128, 43)):
        name = f"rate.tma.dram.apart16384.rows{rows}.ctas{ctas}"
        yield far_rows(name, rows, 12, 16384, ctas=ctas, dram=True)
    for rows, many, warps in ((1, 16, 1), (1, 64, 1), (1, 16, 4), (8, 16, 1)):
        yield issued(f"rate.tma.issue.rows{rows}.many{many}.w{warps}", rows, many, warps)
    yield multicast("rate.tma.multicast2.rows128.ctas132", 128, 8, 132, 2)
    yield multicast("rate.tma.multicast2.rows256.ctas132", 256, 6, 132, 2)
    yield multicast("rate.tma.multicast1.rows128.ctas132", 128, 8, 132, 1)
    for rows in (64, 128):
        yield tma_stores(f"latency.tma_store.read.rows{rows}", rows, ctas=1, read_only=True)
        yield tma_stores(f"latency.tma_store.done.rows{rows}", rows, ctas=1)
    yield tma_stores("rate.tma_store.rows64.ctas132", 64, ctas=132, in_flight=8)
    yield tma_stores("rate.tma_store.rows64.ctas1", 64, ctas=1, in_flight=8)
    for word, adds in (("store", False), ("add", True)):
        yield bulk_stores(f"latency.bulk.{word}.ctas1", 16384, ctas=1, adds=adds, in_flight=0)
        yield bulk_stores(f"rate.bulk.{word}.ctas1", 16384, ctas=1, adds=adds)
        yield bulk_stores(f"rate.bulk.{word}.ctas132", 16384, ctas=SMS, adds=adds)
    yield bulk_stores("rate.bulk.add.shared.ctas132", 16384, ctas=SMS, adds=True, shared=True)
    for rows, stages in ((32, 2), (32, 3), (32, 4), (32, 8), (64, 4)):
        yield tma_copies(f"rate.tma.copied.dram.rows{rows}.stages{stages}", rows, stages)
        yield tma_loads(f"rate.tma.dram.rows{rows}.stages{stages}.ctas132", rows, stages, ctas=132, dram=True,
                        repetitions=32)  # fmt: skip
