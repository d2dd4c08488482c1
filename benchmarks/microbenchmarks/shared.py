"""Shared memory and L1: latency, wavefronts per clock, bank conflicts, ldmatrix and stmatrix.

Of the 16 loads of a repetition ptxas keeps the last 8 (as for ldmatrix), because the registers of the first are
overwritten. The rates of loads from shared memory are thus for half as many as `operations`, so a pass takes a clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from warploom.isa.dtypes import b32, bf16, u32, u64
from warploom.lang import Kernel, Tile, ptx, reg, smem

from .harness import Measurement, loop, unknown_zero

REPETITIONS, COUNT = 256, 16
WARP_BYTES = 2048
"""Each warp begins at its own address: the pipe may serve two warps at once if they read the same."""
WORDS = 8192
"""Words of shared memory, 32 KiB."""


def _lanes(data: Any, stride: int) -> tuple[Any, Any, list[Any]]:
    """An array, and the address of each lane's word: `stride` words apart."""
    array = smem.array(u32, WORDS, align=128, name="array")
    thread = ptx.special.tid.x()
    lane = thread & 31
    base = reg.scalar(u32)
    ptx.inst.mov.u32(base, array[0].register())
    own = (thread >> 5) * WARP_BYTES
    return array, (base + own + (lane * (stride * 4) & (WARP_BYTES - 1))).copy(), []


def loads(
    name: str,
    vector: int,
    stride: int,
    warps: int,
    latency: bool = False,
    repetitions: int = REPETITIONS,
    ctas: int = 1,
) -> Measurement:
    def prepare(data):
        array, address, _ = _lanes(data, stride)
        kept = [reg.scalar(u32, init=0) for _ in range(8 * vector)]
        ptx.inst.st.shared.u32(ptx.addr(address), address)
        return address, kept

    def body(state):
        address, kept = state
        for i in range(COUNT):
            if latency:
                ptx.inst.ld.volatile.shared.u32(address, ptx.addr(address))
                continue
            first = i % 8 * vector
            target = kept[first : first + vector] if vector > 1 else kept[first]
            suffix = f".v{vector}" if vector > 1 else ""
            ptx.inst(f"ld.volatile.shared{suffix}.u32", target, ptx.addr(address, i * 512))

    return Measurement(
        name, lambda: loop(name, body, repetitions=repetitions, warps=warps, ctas=ctas, prepare=prepare,
                           finish=lambda s: [s[0], *s[1]]),
        operations=COUNT, repetitions=repetitions, of=f"ld.shared, {4 * vector} bytes a lane, {stride} words apart",
        bytes=COUNT * warps * 128 * vector, ctas=ctas, facts={"warps": warps},
    )  # fmt: skip


def _stores(name: str, vector: int, stride: int, warps: int) -> Measurement:
    def prepare(data):
        _, address, _ = _lanes(data, stride)
        return address, [(ptx.special.tid.x() + i).copy() for i in range(vector)]

    def body(state):
        address, values = state
        suffix = f".v{vector}" if vector > 1 else ""
        for i in range(COUNT):
            ptx.inst(f"st.volatile.shared{suffix}.u32", ptx.addr(address, i * 512), values if vector > 1 else values[0])

    return Measurement(
        name, lambda: loop(name, body, repetitions=REPETITIONS, warps=warps, prepare=prepare),
        operations=COUNT, repetitions=REPETITIONS, of=f"st.shared, {4 * vector} bytes a lane, {stride} words apart",
        bytes=COUNT * warps * 128 * vector, facts={"warps": warps},
    )  # fmt: skip


def _ldmatrix(name: str, warps: int, latency: bool = False) -> Measurement:
    def prepare(data):
        _, address, _ = _lanes(data, 4)
        for i in range(16):
            for word in range(4):
                ptx.inst.st.shared.u32(ptx.addr(address, i * 512 + word * 4), 0)
        return address, [reg.scalar(b32, init=0) for _ in range(8)], unknown_zero()

    def body(state):
        address, kept, zero = state
        for i in range(COUNT):
            values = ptx.ldmatrix(ptx.addr(address, i * 512), 4)
            if latency:
                ptx.inst.add.u32(address, address, values[0].view(u32))
            else:
                ptx.inst.xor.b32(kept[i % 8], values[0], values[3])
        if not latency:
            ptx.inst.add.u32(address, address, zero)

    return Measurement(
        name, lambda: loop(name, body, repetitions=REPETITIONS, warps=warps, prepare=prepare,
                           finish=lambda s: [s[0], *s[1]]),
        operations=COUNT, repetitions=REPETITIONS, of="ldmatrix.x4" + (" and an add" if latency else ""),
        bytes=COUNT * warps * 512, facts={"warps": warps},
    )  # fmt: skip


def _stmatrix(name: str, warps: int) -> Measurement:
    def prepare(data):
        _, address, _ = _lanes(data, 4)
        return address, [(ptx.special.tid.x() + i).view(b32) for i in range(4)]

    def body(state):
        address, values = state
        for i in range(COUNT):
            ptx.stmatrix(ptx.addr(address, i * 512), values)

    return Measurement(
        name, lambda: loop(name, body, repetitions=REPETITIONS, warps=warps, prepare=prepare),
        operations=COUNT, repetitions=REPETITIONS, of="stmatrix.x4", bytes=COUNT * warps * 512, facts={"warps": warps},
    )  # fmt: skip


def _global_loads(
    name: str, lane_bytes: int, vector: int, warps: int, cache: str = "", ctas: int = 1, step: int = 512
) -> Measurement:
    """Loads that hit L1, or L2 with `cache` "cg"."""
    count = 8

    def build() -> Kernel:
        def prepare(data):
            (pointer,) = ptx.global_ptrs(data)
            thread = ptx.special.tid.x()
            address = (pointer + thread.to(u64) * lane_bytes).copy()
            return address, [reg.scalar(u32, init=0) for _ in range(count * vector)], reg.scalar(u64, init=0)

        def body(state):
            base, kept, toggle = state
            address = base + toggle
            word = f"ld.global{cache}{f'.v{vector}' if vector > 1 else ''}.u32"
            fresh = [reg.scalar(u32) for _ in range(count * vector)]
            for i in range(count):
                target = fresh[i * vector : (i + 1) * vector]
                ptx.inst(word, target if vector > 1 else target[0], ptx.addr(address, i * step))
            for target, value in zip(kept, fresh, strict=True):
                ptx.inst.xor.b32(target, target, value)
            toggle ^= 16384  # so that every repetition loads

        return loop(name, body, repetitions=REPETITIONS, warps=warps, prepare=prepare, ctas=ctas,
                    finish=lambda s: s[1], array=Tile("N", bf16))  # fmt: skip

    return Measurement(
        name, build, operations=count, repetitions=REPETITIONS, of=f"ld.global, {lane_bytes} bytes apart",
        data="zeros", elements=(1 << 20,), bytes=count * warps * 128 * vector, ctas=ctas, facts={"warps": warps},
    )  # fmt: skip


def measurements() -> Iterator[Measurement]:
    yield loads("latency.lds", 1, 1, 1, latency=True)
    for vector in (1, 2, 4):
        yield loads(f"rate.lds{32 * vector}.w8", vector, vector, 8)
    yield loads("rate.lds32.two_way.w8", 1, 2, 8)
    yield loads("rate.lds32.broadcast.w8", 1, 0, 8)
    for vector in (1, 4):
        yield _stores(f"rate.sts{32 * vector}.w8", vector, vector, 8)
    yield _stores("rate.sts32.eight_way.w8", 1, 8, 8)
    yield _ldmatrix("latency.ldmatrix", 1, latency=True)
    for warps in (4, 8):
        yield _ldmatrix(f"rate.ldmatrix.w{warps}", warps)
    yield _stmatrix("rate.stmatrix.w8", 8)
    yield _global_loads("rate.ldg32.w16", 4, 1, 16)
    yield _global_loads("rate.ldg128.w16", 16, 4, 16)
    yield _global_loads("rate.ldg32.broadcast.w16", 0, 1, 16)
    yield _global_loads("rate.ldg32.sectors32.w16", 64, 1, 16, step=4)
    yield _global_loads("rate.ldg32.cg.w16", 4, 1, 16, cache=".cg")
