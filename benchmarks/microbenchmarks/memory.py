"""L2 and DRAM by loads and stores of threads: latency of a dependent load, and bytes per nanosecond."""

from __future__ import annotations

from collections.abc import Iterator

from warploom.isa.dtypes import bf16, u32, u64
from warploom.lang import Tile, ptx, reg

from .harness import Measurement, loop


def chase(name: str, elements: int, apart: int) -> Measurement:
    """One thread chases pointers that are `apart` bytes from each other."""
    repetitions, count = 64, 16

    def prepare(data):
        (pointer,) = ptx.global_ptrs(data)
        return (pointer.copy(),)

    def body(state):
        for _ in range(count):
            ptx.inst("ld.global.cg.u64", state[0], ptx.addr(state[0]))

    def finish(state):
        return [state[0].to(u32)]

    return Measurement(
        name, lambda: loop(name, body, repetitions=repetitions, prepare=prepare, finish=finish, array=Tile("N", u64)),
        operations=count, repetitions=repetitions, of=f"dependent load, {apart} bytes apart", elements=(elements,),
        data=f"chain:{apart}",
    )  # fmt: skip


def streamed(name: str, what: str, warps: int, per_sm: int, vectors: int, *, mib: int = 1024) -> Measurement:
    """Each thread of all CTAs reads (or writes, or copies) 16 bytes at a time, each byte once."""
    ctas = 132 * per_sm
    span = warps * 32 * 16 * vectors
    repetitions = (mib << 20) // (2 if what == "copy" else 1) // (ctas * span)

    def prepare(data):
        (pointer,) = ptx.global_ptrs(data)
        thread = ptx.special.tid.x()
        address = (pointer + (ptx.special.ctaid.x() * span + thread * 16).to(u64)).copy()
        return address, [(thread + i).copy() for i in range(4)]

    def body(state):
        address, kept = state
        fresh = [[reg.scalar(u32) for _ in range(4)] for _ in range(vectors)]
        for i in range(vectors):
            place = ptx.addr(address, i * warps * 512)
            if what != "write":
                ptx.inst("ld.global.L1::no_allocate.v4.u32", fresh[i], place)
        for i in range(vectors):
            if what == "read":
                for target, value in zip(kept, fresh[i], strict=True):
                    ptx.inst.xor.b32(target, target, value)
            else:
                there = address if what == "write" else address + (mib << 19)
                ptx.inst("st.global.v4.u32", ptx.addr(there, i * warps * 512), kept if what == "write" else fresh[i])
        address += ctas * span

    moved = span * (2 if what == "copy" else 1)
    return Measurement(
        name, lambda: loop(name, body, repetitions=repetitions, ctas=ctas, warps=warps, prepare=prepare,
                           finish=lambda s: s[1], array=Tile("N", bf16, inout=what != "read")),
        operations=1, repetitions=repetitions, of=f"{what}, 16 bytes a thread, {vectors} in flight", bytes=moved,
        ctas=ctas, elements=(mib << 19,), data="zeros", facts={"warps": warps, "ctas_per_sm": per_sm},
    )  # fmt: skip


def scattered_stores(name: str, lane_bytes: int, row_bytes: int, ctas: int) -> Measurement:
    """st.global of fragments: four lanes per row of `lane_bytes` each, eight rows."""
    repetitions, count = 64, 8

    def prepare(data):
        (pointer,) = ptx.global_ptrs(data)
        thread, lane = ptx.special.tid.x(), ptx.special.tid.x() & 31
        rows = (lane >> 2) + (thread >> 5) * 8 + ptx.special.ctaid.x() * 64
        place = pointer + (rows * row_bytes + (lane & 3) * lane_bytes).to(u64)
        return place.copy(), [(thread + i).copy() for i in range(lane_bytes // 4)]

    def body(state):
        place, values = state
        for i in range(count):
            word = f"st.global{f'.v{len(values)}' if len(values) > 1 else ''}.u32"
            ptx.inst(word, ptx.addr(place, i * 4 * lane_bytes), values if len(values) > 1 else values[0])

    return Measurement(
        name, lambda: loop(name, body, repetitions=repetitions, ctas=ctas, warps=8, prepare=prepare,
                           array=Tile("N", bf16, inout=True)),
        operations=count * 8, repetitions=repetitions, of=f"st.global, eight rows of {4 * lane_bytes} bytes", ctas=ctas,
        bytes=count * 8 * 32 * lane_bytes, elements=(row_bytes // 2 * 64 * 132 + 65536,), data="zeros",
    )  # fmt: skip


def measurements() -> Iterator[Measurement]:
    yield chase("latency.ldg.l2", 1 << 18, 512)
    yield chase("latency.ldg.dram", 1 << 27, 256 * 1024 + 512)
    yield streamed("rate.dram.read", "read", 8, 4, 4)
    yield streamed("rate.dram.read.one_cta", "read", 8, 1, 4)
    yield streamed("rate.dram.write", "write", 8, 4, 4)
    yield streamed("rate.dram.copy", "copy", 8, 4, 4)
    yield scattered_stores("rate.stg32.ctas132", 4, 16384, 132)
    yield scattered_stores("rate.stg128.ctas132", 16, 16384, 132)
    yield scattered_stores("rate.stg32.ctas1", 4, 16384, 1)
