"""Power: what a unit draws while it runs alone for a second, and the clock that the GPU then selects.

A row has watts (NVML), the clock that the kernel counted, and the operations and bytes per second. The energy of each
follows from differences between rows, at the clock of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from warploom.isa.dtypes import b32, bf16, e4m3, f16, f32, u32
from warploom.lang import Tile, ptx, reg

from . import arithmetic, copies, memory, product, shared
from .harness import Measurement, loop
from .tensor import wgmma_loop

SMS = 132


@dataclass(frozen=True)
class Load:
    """A kernel that keeps a unit busy. flop, bytes: per repetition of one CTA, by kind of memory."""

    measurement: Measurement
    flop: float = 0.0
    moved: str = ""


def _wgmma(
    name: str, n: int, ctas: int = SMS, data: str = "normal", dtype=bf16, in_registers: bool = False,
    sparse: bool = False, positive: bool = False,
) -> Load:  # fmt: skip
    """flop: for a sparse product, the multiplications done, half of the dense product's. in_registers: A is what the
    array holds; positive: its absolute values."""
    repetitions = 3000 if n == 256 else 6000
    depth, stages = 128 // dtype.bytes, 2 if sparse else 3
    kernel = lambda: wgmma_loop(  # noqa: E731
        name, n, dtype=dtype, in_registers=in_registers, groups=2, ctas=ctas, stages=stages, filled=True,
        repetitions=repetitions, sparse=sparse, loaded=in_registers, positive=positive,
    )  # fmt: skip
    measured = Measurement(
        name, kernel, operations=4 * stages, repetitions=repetitions,
        of=f"wgmma{'.sp' * sparse} m64n{n} {dtype}, two warpgroups, {data}",
        ctas=ctas, elements=(1024, depth), data=f"{data}:{dtype}", facts={"n": n, "ctas": ctas, "data": data},
    )  # fmt: skip
    return Load(measured, flop=2 * 4 * stages * 2 * 64 * n * (32 // dtype.bytes))


def _mma_sync(name: str) -> Load:
    repetitions, count = 20000, 16

    def prepare(data):
        (pointer,) = ptx.global_ptrs(data)
        base = (pointer + ptx.special.tid.x().to(pointer.dtype) * 4).copy()
        words = [ptx.load(u32, ptx.addr(base, i * 1024)).view(b32) for i in range(24)]
        return [reg.array(f32, 4, init=0.0) for _ in range(8)], words

    def body(state):
        acc, words = state
        for i in range(count):
            d, a, b = acc[i % 8], words[4 * (i % 4) : 4 * (i % 4) + 4], words[16 + 2 * (i % 4) : 18 + 2 * (i % 4)]
            ptx.inst("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", d, a, b, d)

    measured = Measurement(
        name,
        lambda: loop(name, body, repetitions=repetitions, warps=8, ctas=SMS, prepare=prepare,
                     finish=lambda s: [x for d in s[0] for x in d], array=Tile("N", bf16)),
        operations=count, repetitions=repetitions, of="mma.sync m16n8k16 bf16", ctas=SMS, elements=(1 << 16,),
    )  # fmt: skip
    return Load(measured, flop=count * 8 * 2 * 16 * 8 * 16)


def _mma_f64(name: str) -> Load:
    repetitions, count = 4000, 8
    measured = Measurement(
        name, arithmetic.mma_f64_loop(name, warps=8, ctas=SMS, repetitions=repetitions, count=count),
        operations=count, repetitions=repetitions, of="mma.sync m16n8k16 f64", ctas=SMS,
    )  # fmt: skip
    return Load(measured, flop=count * 8 * 2 * 16 * 8 * 16)


def _instruction(name: str, instruction: str) -> Load:
    dtype, each, emit = arithmetic.INSTRUCTIONS[instruction]
    repetitions, count = 8000, 32 // each

    def prepare(data):
        return arithmetic.values(dtype, 8), arithmetic.values(dtype, 2)

    def body(state):
        registers, (y, z) = state
        for i in range(count):
            emit(registers[i % 8], y, z)

    measured = Measurement(
        name, lambda: loop(name, body, repetitions=repetitions, warps=16, ctas=SMS, prepare=prepare,
                           finish=lambda s: s[0]),
        operations=count * each * 16, repetitions=repetitions, of=f"{instruction}, 16 warps", ctas=SMS,
    )  # fmt: skip
    return Load(measured)


def _chaos(name: str, exponential: bool) -> Load:
    """Floats that never repeat: x = 4 x (1 - x), so that all bits of the results toggle; or each with an ex2."""
    repetitions, count = 4000, 16

    def prepare(data):
        return [(ptx.special.tid.x() + i).to(f32) * 0.0009 + 0.01 for i in range(8)]

    def body(state):
        for i in range(count):
            x = state[i % 8]
            if exponential:
                ptx.inst("ex2.approx.ftz.f32", x, x)
                ptx.inst("add.rn.f32", x, x, -1.0)
            twice = reg.scalar(f32)
            ptx.inst("mul.rn.f32", twice, x, 4.0)
            ptx.inst("fma.rn.f32", x, twice, -x, twice)

    each = 4 if exponential else 2
    measured = Measurement(
        name, lambda: loop(name, body, repetitions=repetitions, warps=16, ctas=SMS, prepare=prepare,
                           finish=lambda s: s),
        operations=count * each * 16, repetitions=repetitions, of=f"{each} of chaotic floats, 16 warps", ctas=SMS,
        facts={"mufu": int(exponential)},
    )  # fmt: skip
    return Load(measured)


def _shared_loads(name: str) -> Load:
    measured = shared.loads(name, 4, 4, 8, repetitions=20000, ctas=SMS)
    return Load(measured, moved="shared")


def _tma(name: str, data: str = "normal", **options) -> Load:
    measured = copies.tma_loads(name, 128, 8, ctas=SMS, data=data, **options)
    return Load(measured, moved="dram" if options.get("dram") else "l2")


def loads() -> Iterator[Load]:
    yield _instruction("power.alu", "alu")
    yield _instruction("power.ffma", "ffma")
    yield _chaos("power.chaos.floats", False)
    yield _chaos("power.chaos.exponentials", True)
    for ctas in (33, 66, 99, SMS):
        yield _wgmma(f"power.wgmma.n256.ctas{ctas}", 256, ctas)
    yield _wgmma("power.wgmma.n256.zeros", 256, data="zeros")
    yield _wgmma("power.wgmma.n128", 128)
    yield _wgmma("power.wgmma.n64", 64)
    yield _wgmma("power.wgmma.n256.rs", 256, in_registers=True)
    yield _wgmma("power.wgmma.n256.rs.positive", 256, in_registers=True, positive=True)
    yield _wgmma("power.wgmma.f16.n256", 256, dtype=f16)
    yield _wgmma("power.wgmma.f16.n256.rs", 256, dtype=f16, in_registers=True)
    yield _wgmma("power.wgmma.f16.n256.rs.positive", 256, dtype=f16, in_registers=True, positive=True)
    yield _wgmma("power.wgmma.e4m3.n256", 256, dtype=e4m3)
    for dtype, n in ((bf16, 192), (bf16, 256), (e4m3, 192)):
        yield _wgmma(f"power.wgmma_sp.{dtype}.n{n}", n, dtype=dtype, sparse=True)
    yield _mma_sync("power.mma_sync")
    yield _mma_f64("power.mma_f64")
    yield _shared_loads("power.lds128")
    yield _tma("power.tma.l2", repetitions=4000)
    yield _tma("power.tma.l2.zeros", data="zeros", repetitions=4000)
    yield _tma("power.tma.l2.same", same=True, repetitions=4000)
    yield _tma("power.dram.read", dram=True, repetitions=60)
    yield _tma("power.dram.read.once", dram=True, repetitions=60, once=True)
    for repetitions in (4, 15):  # 69 and 260 MB that each launch reads again
        yield _tma(f"power.dram.again{repetitions}", dram=True, repetitions=repetitions)
        yield _tma(f"power.dram.again{repetitions}.once", dram=True, repetitions=repetitions, once=True)
    yield Load(product.wave("power.product", 8, repetitions=4000), moved="l2")
    yield Load(product.wave("power.product.own", 8, depth=1024, sharing=False, repetitions=4000), moved="l2")
    yield Load(product.wave("power.product.zeros", 8, data="zeros", repetitions=4000), moved="l2")
    for together, ctas in ((1, SMS), (2, SMS), (4, 120)):  # 120: as many as run at once
        multicast = copies.multicast(
            f"power.multicast{together}", 128, 8, ctas, together, repetitions=4000, data="normal"
        )  # fmt: skip
        yield Load(multicast, moved="l2")
    for depth in (256, 512, 1024):  # small enough for L2
        yield Load(product.wave(f"power.product.depth{depth}", 8, depth=depth, repetitions=4000), moved="l2")
    for word, adds in (("store", False), ("add", True)):
        yield Load(copies.bulk_stores(f"power.bulk.{word}", 16384, ctas=SMS, adds=adds, repetitions=6000), moved="l2")
    yield Load(memory.streamed("power.dram.copy", "copy", 8, 4, 4), moved="dram")
