"""Copies with a product's access pattern: boxes with rows far apart, which several SMs read at about the same time."""

from __future__ import annotations

from collections.abc import Iterator

from warploom.isa.dtypes import bf16, u32, u64
from warploom.lang import Tile, ptx, reg, smem

from .copies import refilled
from .harness import Measurement, initialise, loop

WIDTH, ROWS = 64, 128
SQUARE = 12
"""CTAs of a wave: 12 x 11 of them share rows and columns."""


def wave(
    name: str, stages: int, *, depth: int = 8192, ctas: int = 132, sharing: bool = True, data: str = "normal",
    repetitions: int = 100, warps: int = 1, across: int = SQUARE, cluster: int = 1, splits: int = 1,
) -> Measurement:  # fmt: skip
    """One thread loads boxes of 128 rows, `depth` elements apart, moving along k; A and B alternate.

    sharing: CTA (i, j) of a square reads rows i of A and j of B, so twelve CTAs read the same; else each reads its own.
    across: the number of different rows of A in a wave that is not square; those of B follow from it.
    cluster: CTAs of a cluster; if `across` is as large, they share the rows of B. splits: so many neighbours read the
    same rows at different k.
    """
    tall = max(across, -(-ctas // splits // across))
    rows = ROWS * ctas if not sharing else 4096 if across == SQUARE else 2 * ROWS * tall

    def prepare(array):
        ring = smem.wgmma_tile(bf16, (ROWS, WIDTH), stages=stages, name="ring")
        full = smem.mbarrier(stages)
        k, phase = reg.scalar(u32, init=0), reg.scalar(u32, init=0)
        cta = ptx.special.ctaid.x()
        if splits > 1:
            k.set(cta % splits * (depth // splits))
            cta = cta // splits
        left = ((cta % across) * ROWS if sharing else cta * ROWS).copy()
        right = ((cta // across) * ROWS + rows // 2 if sharing else cta * ROWS).copy()
        first = ptx.special.tid.x() == 0
        initialise(full, stages, first)
        state = array, ring, full, (left, right), k, phase, first
        with ptx.if_(first):
            for stage in range(stages):
                issue(state, stage)
        return state

    def issue(state, stage):
        array, ring, full, places, k, _, _ = state
        ptx.mbarrier.arrive_expect_tx(full[stage], ring.bytes)
        ptx.cp.async_.bulk.tensor_2d(ring[stage], array.tma_desc(), (k, places[stage % 2]), full[stage])
        if stage % 2 or not sharing or stages == 1:
            k += WIDTH
            ptx.inst.and_.b32(k, k, depth - 1)

    body, finish = refilled(stages, issue)
    return Measurement(
        name,
        lambda: loop(name, body, repetitions=repetitions, ctas=ctas, warps=warps, prepare=prepare, finish=finish,
                     array=Tile(rows, depth, bf16, box=(WIDTH, ROWS), swizzle="128B"), cluster=cluster),
        operations=stages, repetitions=repetitions, of=f"TMA load of 128 rows {2 * depth} bytes apart",
        bytes=stages * ROWS * 128, ctas=ctas, elements=(rows, depth), data=data,
        facts={"stages": stages, "depth": depth, "sharing": sharing, "data": data}
        | ({} if across == SQUARE else {"across": across}) | ({} if cluster == 1 else {"cluster": cluster})
        | ({} if splits == 1 else {"splits": splits}),
    )  # fmt: skip


def cp_async(name: str, ctas: int, in_flight: int, *, depth: int = 8192) -> Measurement:
    """cp.async.cg of 16 bytes per lane by eight warps, eight lanes per row of 128 bytes; `in_flight` groups of
    eight."""
    repetitions, count, warps = 64, 8, 8
    rows = 4096

    def prepare(data):
        ring = smem.array(u32, warps * 32 * 4 * count * (in_flight + 1), align=128, name="ring")
        (pointer,) = ptx.global_ptrs(data)
        thread, cta = ptx.special.tid.x(), ptx.special.ctaid.x()
        row = (cta % SQUARE) * 256 + (thread >> 3)
        source = (pointer + (row * (depth * 2) + (thread & 7) * 16).to(u64)).copy()
        base = reg.scalar(u32)
        ptx.inst.mov.u32(base, ring[0].register())
        return source, (base + thread * 16).copy()

    def body(state):
        source, target = state
        for i in range(count):
            ptx.inst("cp.async.cg.shared.global", ptx.addr(target, i * warps * 512),
                     ptx.addr(source, i * (warps * 4) * depth * 2), 16)  # fmt: skip
        ptx.cp.async_.commit_group()
        ptx.cp.async_.wait_group(in_flight)
        source += 128

    def finish(state):
        ptx.cp.async_.wait_group(0)
        return []

    return Measurement(
        name, lambda: loop(name, body, repetitions=repetitions, ctas=ctas, warps=warps, prepare=prepare, finish=finish,
                           array=Tile(rows, depth, bf16)),
        operations=count * warps, repetitions=repetitions, of="cp.async.cg, 16 bytes a lane", ctas=ctas,
        bytes=count * warps * 512, elements=(rows, depth), facts={"in_flight": in_flight},
    )  # fmt: skip


def measurements() -> Iterator[Measurement]:
    yield wave("latency.product.stages1.ctas1", 1, ctas=1)
    for stages in (1, 2, 4, 8, 12):
        yield wave(f"rate.product.stages{stages}.ctas132", stages)
    for ctas in (12, 36, 66, 96):
        yield wave(f"rate.product.stages8.ctas{ctas}", 8, ctas=ctas)
    yield wave("rate.product.zeros.ctas132", 8, data="zeros")
    yield wave("rate.product.depth1024.ctas132", 8, depth=1024)
    for repetitions in (6, 12, 25, 50, 200, 400):  # how long CTAs that began in step stay so
        yield wave(f"rate.product.long{repetitions}.ctas132", 8, repetitions=repetitions)
    for across in (2, 4, 33, 66, 132):  # who shares with how many: 132 / across read the same rows of A
        for repetitions in (12, 100):
            yield wave(f"rate.product.across{across}.long{repetitions}", 8, across=across, repetitions=repetitions)
    for repetitions in (12, 100):  # those who share B in one cluster
        for across in (2, 3, 4):
            name = f"rate.product.across{across}.clusters.long{repetitions}"
            yield wave(name, 8, across=across, cluster=across, repetitions=repetitions)
        for across in (2, 4, 8):  # two halves of k
            name = f"rate.product.across{across}.halves.long{repetitions}"
            yield wave(name, 8, across=across, splits=2, repetitions=repetitions)
        yield wave(f"rate.product.across3.long{repetitions}", 8, across=3, repetitions=repetitions)
        yield wave(f"rate.product.across8.long{repetitions}", 8, across=8, repetitions=repetitions)
    for ctas in (33, 66, 132):
        yield wave(f"rate.product.own.ctas{ctas}", 8, depth=1024, sharing=False, ctas=ctas)
    for ctas in (33, 48, 66, 86, 99, 115, 132):  # every row is read once: from DRAM, 64 KiB apart
        yield wave(f"rate.product.dram.ctas{ctas}", 8, depth=1 << 15, sharing=False, ctas=ctas, repetitions=60)
    for ctas in (1, 132):
        for in_flight in (0, 2):
            yield cp_async(f"rate.cp_async.flight{in_flight}.ctas{ctas}", ctas, in_flight)
