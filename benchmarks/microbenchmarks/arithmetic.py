"""Pipes of ordinary instructions: latency of a dependent one, and how many issue per clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from warploom.isa.dtypes import b32, bf16x2, f32, f64, u32, u64
from warploom.lang import Kernel, ptx, reg

from .harness import Measurement, loop

UNROLLED, REPETITIONS = 32, 256
CHAINS = 8

Instruction = Callable[[object, object, object], object]


def _float(opcode: str) -> Instruction:
    return lambda x, y, z: ptx.inst(opcode, x, x, y, z)


def _unary(opcode: str) -> Instruction:
    return lambda x, y, z: ptx.inst(opcode, x, x)


def _alternating(first: str, second: str) -> Instruction:
    """Two dependent instructions that ptxas cannot merge."""

    def emit(x, y, z):
        ptx.inst(first, x, x, *([] if first.startswith("rcp") else [y]))
        ptx.inst(second, x, x, z)

    return emit


def _select(x, y, z):
    flag = reg.predicate()
    ptx.inst("setp.lt.u32", flag, x, y)
    ptx.inst("selp.b32", x, y, z, flag)
    ptx.inst("add.u32", x, x, z)


def _shuffle(x, y, z):
    ptx.inst("shfl.sync.bfly.b32", x, x, 1, 31, -1)


def _wide(x, y, z):
    product, high = reg.scalar(u64), reg.scalar(u32)
    ptx.inst("mul.wide.u32", product, x, y)
    ptx.inst("shr.u64", product2 := reg.scalar(u64), product, 32)
    ptx.inst("cvt.u32.u64", high, product2)
    ptx.inst("cvt.u32.u64", x, product)
    ptx.inst("xor.b32", x, x, high)


def _rotation(x, y, z):
    ptx.inst("shf.l.wrap.b32", x, x, x, 7)
    ptx.inst("xor.b32", x, x, z)


def _floats_between(x, y, z):
    """mad.lo on the bits of a float's fused multiply-add."""
    ptx.inst("mad.lo.u32", x, x, y, z)
    ptx.inst("fma.rn.f32", x, x, y, z)


INSTRUCTIONS: dict[str, tuple[object, int, Instruction]] = {
    "ffma": (f32, 1, _float("fma.rn.f32")),
    "fadd": (f32, 1, lambda x, y, z: ptx.inst("add.rn.f32", x, x, y)),
    "fmul": (f32, 1, lambda x, y, z: ptx.inst("mul.rn.f32", x, x, y)),
    "hfma2": (bf16x2, 1, lambda x, y, z: ptx.inst("fma.rn.bf16x2", x, x, y, z)),
    "imad": (u32, 1, _float("mad.lo.u32")),
    "alu": (u32, 2, _alternating("add.u32", "xor.b32")),
    "shift": (u32, 2, _alternating("shl.b32", "xor.b32")),
    "select": (u32, 3, _select),
    "sum": (u32, 2, lambda x, y, z: (ptx.inst("add.u32", x, x, y), ptx.inst("add.u32", x, x, z))),
    "immediate": (u32, 2, lambda x, y, z: (ptx.inst("add.u32", x, x, 12345), ptx.inst("xor.b32", x, x, z))),
    "sum_product": (u32, 3, lambda x, y, z: (ptx.inst("add.u32", x, x, y), ptx.inst("add.u32", x, x, z),
                                             ptx.inst("mad.lo.u32", x, x, y, z))),
    "product_high": (u32, 1, lambda x, y, z: ptx.inst("mul.hi.u32", x, x, y)),
    "product_wide": (u32, 2, _wide),
    "product_float": (b32, 2, _floats_between),
    "rotation": (u32, 2, _rotation),
    "fmax": (f32, 2, _alternating("max.f32", "add.rn.f32")),
    "mufu": (f32, 1, _unary("ex2.approx.ftz.f32")),
    "rcp": (f32, 2, _alternating("rcp.approx.ftz.f32", "add.rn.f32")),
    "shuffle": (b32, 1, _shuffle),
    "popc": (u32, 1, lambda x, y, z: ptx.inst("popc.b32", x, x)),
    "convert": (f32, 2, lambda x, y, z: (ptx.inst("cvt.rni.s32.f32", whole := reg.scalar(u32).view(b32), x),
                                        ptx.inst("cvt.rn.f32.s32", x, whole))),
    "ffma64": (f64, 1, _float("fma.rn.f64")),
    "divide": (f32, 1, lambda x, y, z: ptx.inst("div.rn.f32", x, z, x)),
    "divide_full": (f32, 1, lambda x, y, z: ptx.inst("div.full.f32", x, z, x)),
    "root": (f32, 2, lambda x, y, z: (ptx.inst("sqrt.rn.f32", x, x), ptx.inst("add.rn.f32", x, x, y))),
    "reciprocal": (f32, 2, lambda x, y, z: (ptx.inst("rcp.rn.f32", x, x), ptx.inst("add.rn.f32", x, x, y))),
    "quotient": (u32, 2, lambda x, y, z: (ptx.inst("div.u32", x, x, y), ptx.inst("xor.b32", x, x, z))),
    "remainder": (u32, 2, lambda x, y, z: (ptx.inst("rem.u32", x, z, x), ptx.inst("xor.b32", x, x, y))),
    "divide64": (f64, 1, lambda x, y, z: ptx.inst("div.rn.f64", x, z, x)),
    "sine": (f32, 2, lambda x, y, z: (ptx.inst("sin.approx.f32", x, x), ptx.inst("add.rn.f32", x, x, y))),
}  # fmt: skip
"""By name: type, number of instructions emitted, and the function that emits them."""


def values(dtype, count):
    lane = ptx.special.tid.x()
    if dtype in (f32, f64):
        return [(lane + i).to(dtype) for i in range(count)]
    return [
        (lane + i).copy() if dtype is u32 else (lane + i).view(b32 if dtype is not bf16x2 else dtype)
        for i in range(count)
    ]


def _kept(state):
    """The values, as 32-bit words."""
    return [one.to(f32) if one.dtype is f64 else one for one in state[0]]


def _measurement(name: str, warps: int, chains: int) -> Measurement:
    dtype, each, emit = INSTRUCTIONS[name]
    count = UNROLLED // each * each

    def prepare(data):
        return values(dtype, chains), values(dtype, 2)

    def body(state):
        values, (y, z) = state
        for i in range(count // each):
            emit(values[i % chains], y, z)

    kind = "latency" if chains == 1 else f"rate.{warps}"
    full = f"{kind.split('.')[0]}.{name}" + (f".w{warps}" if chains > 1 else "")
    return Measurement(
        full, lambda: loop(full, body, repetitions=REPETITIONS, warps=warps, prepare=prepare, finish=_kept),
        operations=count, repetitions=REPETITIONS, of=f"{name}, one warp's, {chains} chains, {warps} warps per CTA",
        facts={"warps": warps, "chains": chains},
    )  # fmt: skip


def _outer_product(side: int, warps: int, across: int = 8) -> Measurement:
    """c[i][j] += a[i] * b[j]: FFMA with the operands of a register-tiled product."""
    repetitions = 256

    def prepare(data):
        return values(f32, side), values(f32, across), values(f32, side * across)

    def body(state):
        a, b, c = state
        for i in range(side):
            for j in range(across):
                ptx.inst.fma.rn.f32(c[i * across + j], a[i], b[j], c[i * across + j])
        a[0].set(b[0])

    name = f"rate.ffma_outer{side}.w{warps}"
    return Measurement(
        name, lambda: loop(name, body, repetitions=repetitions, warps=warps, prepare=prepare, finish=lambda s: s[2]),
        operations=side * across, repetitions=repetitions, of=f"ffma of an outer product, {side} a side",
        facts={"warps": warps},
    )  # fmt: skip


def _mma(name: str, warps: int, chains: int) -> Measurement:
    """mma.sync m16n8k16 of bf16."""
    repetitions, count = 256, 16

    def prepare(data):
        return [reg.array(f32, 4, init=0.0) for _ in range(chains)], [
            [(ptx.special.tid.x() * 3 + i).view(b32) for i in range(n)] for n in (4, 2)
        ]

    def body(state):
        acc, (a, b) = state
        for i in range(count):
            d = acc[i % chains]
            ptx.inst("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", d, a, b, d)

    return Measurement(
        name,
        lambda: loop(name, body, repetitions=repetitions, warps=warps, prepare=prepare,
                     finish=lambda s: [x for d in s[0] for x in d]),
        operations=count, repetitions=repetitions, of=f"mma.sync m16n8k16 bf16, {chains} chains",
        facts={"warps": warps},
    )  # fmt: skip


def mma_f64_loop(name: str, *, warps: int, chains: int = 4, ctas: int = 1, repetitions: int = 256, count: int = 8
                 ) -> Callable[[], Kernel]:  # fmt: skip
    """mma.sync m16n8k16 of f64: `count` per warp and repetition, on values with full mantissas."""

    def prepare(data):
        thread = ptx.special.tid.x().to(f64)
        a, b = ([(thread * 0.6180339887498949 + at * 1.324717957244746) for at in range(n)] for n in (12, 6))
        return [reg.array(f64, 4, init=0.0) for _ in range(chains)], a, b

    def body(state):
        acc, a, b = state
        for i in range(count):
            first, second = 4 * (i % 2), 2 * (i % 2)
            ptx.mma_sync(
                shape=(16, 8, 16), dtype_d=f64, dtype_a=f64, dtype_b=f64, d=acc[i % chains], a=a[first : first + 8],
                b=b[second : second + 4],
            )  # fmt: skip

    return lambda: loop(
        name, body, repetitions=repetitions, warps=warps, ctas=ctas, prepare=prepare,
        finish=lambda s: [x.to(f32) for d in s[0] for x in d],
    )  # fmt: skip


def _mma_f64(name: str, warps: int, chains: int) -> Measurement:
    return Measurement(
        name, mma_f64_loop(name, warps=warps, chains=chains), operations=8, repetitions=256,
        of=f"mma.sync m16n8k16 f64, {chains} chains", facts={"warps": warps},
    )  # fmt: skip


def measurements() -> Iterator[Measurement]:
    for name in INSTRUCTIONS:
        yield _measurement(name, 1, 1)
        yield _measurement(name, 4, CHAINS)
        yield _measurement(name, 16, CHAINS)
    yield _outer_product(8, 4)
    yield _outer_product(8, 8)
    yield _outer_product(16, 8)
    yield _mma("latency.mma_sync", 1, 1)
    for warps in (4, 8):
        yield _mma(f"rate.mma_sync.w{warps}", warps, 8)
    yield _mma_f64("latency.mma_f64", 1, 1)
    for warps in (4, 8):
        yield _mma_f64(f"rate.mma_f64.w{warps}", warps, 4)
