"""Reads and stores that other files do not show: by the lanes of all SMs from L2, boxes that a CTA waits for together,
and bytes stored apart.
"""

from __future__ import annotations

from collections.abc import Iterator

from warploom.isa.dtypes import bf16, u32, u64
from warploom.lang import Tile, ptx, reg, smem

from .copies import WIDTH
from .harness import Measurement, initialise, loop, unknown_zero
from .product import ROWS, SQUARE

SMS = 132
BOX = ROWS * 128


def passes(name: str, per_sm: int, vectors: int, *, mib: int = 17, warps: int = 8) -> Measurement:
    """All CTAs read an array in L2, 16 bytes per lane and load, past L1; the next pass begins where the array ends."""
    ctas = per_sm * SMS
    span, size = warps * 512 * vectors, mib << 20
    turns, count = size // (ctas * span), 8

    def prepare(data):
        (pointer,) = ptx.global_ptrs(data)
        thread = ptx.special.tid.x()
        start = pointer + (ptx.special.ctaid.x() * span + thread * 16).to(u64)
        return start, [(thread + i).copy() for i in range(4)]

    def body(state):
        start, kept = state
        address = start.copy()
        for _ in ptx.range(unknown_zero() + turns, unroll=False):
            fresh = [[reg.scalar(u32) for _ in range(4)] for _ in range(vectors)]
            for i in range(vectors):
                ptx.inst("ld.global.cg.v4.u32", fresh[i], ptx.addr(address, i * warps * 512))
            for four in fresh:
                for target, value in zip(kept, four, strict=True):
                    ptx.inst.xor.b32(target, target, value)
            address += ctas * span

    return Measurement(
        name, lambda: loop(name, body, repetitions=count, ctas=ctas, warps=warps, prepare=prepare,
                           finish=lambda state: state[1], array=Tile("N", bf16)),
        operations=turns, repetitions=count, of=f"ld.global.cg, 16 bytes a lane, {vectors} in flight, {mib} MB in L2",
        bytes=turns * span, ctas=ctas, elements=(size // 2,), data="zeros",
        facts={"warps": warps, "ctas_per_sm": per_sm, "vectors": vectors, "mib": mib},
    )  # fmt: skip


def bursts(name: str, boxes: int, ctas: int, spin: int = 0, *, depth: int = 8192) -> Measurement:
    """A thread loads boxes of a product's operands, waits for all of them, and spins; CTAs share as in `wave`."""
    repetitions, rows = 100, 4096

    def prepare(array):
        ring = smem.wgmma_tile(bf16, (ROWS, WIDTH), stages=6, name="ring")  # two CTAs to an SM
        full = smem.mbarrier(1)
        k, phase = reg.scalar(u32, init=0), reg.scalar(u32, init=0)
        cta = ptx.special.ctaid.x() % SMS
        left, right = ((cta % SQUARE) * ROWS).copy(), ((cta // SQUARE) * ROWS + rows // 2).copy()
        first = ptx.special.tid.x() == 0
        initialise(full, 1, first)
        return array, ring, full, (left, right), k, phase, first

    def body(state):
        array, ring, full, places, k, phase, first = state
        with ptx.if_(first):
            ptx.mbarrier.arrive_expect_tx(full[0], boxes * BOX)
            for at in range(boxes):
                ptx.cp.async_.bulk.tensor_2d(ring[at], array.tma_desc(), (k, places[min(at, 1)]), full[0])
            ptx.mbarrier.wait(full[0], phase)
            start = ptx.special.clock64()
            if spin:
                with ptx.while_(lambda: ptx.special.clock64() - start < spin):
                    pass
        k += WIDTH
        ptx.inst.and_.b32(k, k, depth - 1)
        phase ^= 1

    return Measurement(
        name, lambda: loop(name, body, repetitions=repetitions, ctas=ctas, prepare=prepare,
                           array=Tile(rows, depth, bf16, box=(WIDTH, ROWS), swizzle="128B")),
        operations=1, repetitions=repetitions, bytes=boxes * BOX, ctas=ctas, elements=(rows, depth),
        of=f"TMA loads of {boxes} boxes of 128 rows, then {spin} clocks of nothing",
        facts={"boxes": boxes, "spin": spin},
    )  # fmt: skip


def bytes_apart(name: str, apart: int, size: int, ctas: int) -> Measurement:
    """Warps store `size` bytes per lane, `apart` bytes from lane to lane, until every byte is written."""
    repetitions, warps = 64, 8

    def prepare(data):
        (pointer,) = ptx.global_ptrs(data)
        thread = ptx.special.tid.x()
        at = (ptx.special.ctaid.x() * (32 * warps * apart * repetitions)).to(u64) + (thread * apart).to(u64)
        return (pointer + at).copy(), thread.copy()

    def body(state):
        address, value = state
        for at in range(0, apart, size):
            ptx.inst("st.global.u8" if size == 1 else "st.global.u32", ptx.addr(address, at), value)
        address += 32 * warps * apart

    moved = 32 * warps * apart
    return Measurement(
        name, lambda: loop(name, body, repetitions=repetitions, ctas=ctas, warps=warps, prepare=prepare,
                           array=Tile("N", bf16, inout=True)),
        operations=apart // size, repetitions=repetitions, of=f"st.global of {size} bytes a lane, {apart} bytes apart",
        bytes=moved, ctas=ctas, elements=(moved * repetitions * ctas // 2,), data="zeros",
        facts={"apart": apart, "bytes_of_a_lane": size},
    )  # fmt: skip


def measurements() -> Iterator[Measurement]:
    for per_sm, vectors in ((1, 4), (2, 4), (4, 2), (4, 4), (6, 2)):
        yield passes(f"rate.l2.read.per_sm{per_sm}.vectors{vectors}", per_sm, vectors)
    for boxes in (1, 2, 3, 4):
        yield bursts(f"rate.product.burst{boxes}.ctas132", boxes, SMS)
    for boxes, spin in ((3, 0), (3, 1024), (2, 512)):
        yield bursts(f"rate.product.burst{boxes}.spin{spin}.ctas264", boxes, 2 * SMS, spin)
    for apart, size in ((1, 1), (4, 1), (16, 1), (4, 4), (16, 4)):
        for ctas in (1, 8 * SMS):
            yield bytes_apart(f"rate.stg.apart{apart}.bytes{size}.ctas{ctas}", apart, size, ctas)
