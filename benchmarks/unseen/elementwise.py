"""Elementwise kernels: copies of every width, strides, gathers, transcendental functions, integers, tiny launches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from warploom.lang import Kernel, Tile, kernel, ptx, reg, tiles
from warploom.types import f32, f64, u32, u64

from .case import Array, Case

MILLION = 1 << 20


def each(
    body: Callable[[Any], Any], *, name: str, dtype: Any = f32, vector: int = 1, threads: int = 256, ctas: int = 0,
    ahead: int = 1, pdl: bool = False,
) -> Kernel:  # fmt: skip
    """Y[i] = body(X[i]).

    vector: elements per load; ctas: CTAs of a grid that strides over the array; ahead: loads of a thread before the
    first is used; pdl: it waits for the previous launch and lets the next begin.
    """
    piece = threads * vector * ahead

    @kernel(
        in_specs=(Tile("N", dtype, multiple=(piece * max(1, ctas),)),), out_specs=(Tile("N", dtype),),
        grid=(ctas,) if ctas else (tiles("N", piece),), block=threads, arch="sm_90a", name=name, pdl=pdl,
    )  # fmt: skip
    def program(X, Y):
        (n,) = X.shape
        x, y = ptx.global_ptrs(X, Y)
        if pdl:
            ptx.inst.griddepcontrol.launch_dependents()
            ptx.inst.griddepcontrol.wait()

        def one(first):
            offsets = [(first + i * threads * vector).to(u64) * dtype.bytes for i in range(ahead)]
            loaded = [ptx.load(dtype, ptx.addr(x + offset), vector=vector) for offset in offsets]
            for offset, values in zip(offsets, loaded, strict=True):
                many = values if vector > 1 else [values]
                made = [body(value) for value in many]
                ptx.store(ptx.addr(y + offset), made if vector > 1 else made[0])

        start = ptx.special.ctaid.x() * piece + ptx.special.tid.x() * vector
        if ctas:
            for first in ptx.range(start, n, ctas * piece, dtype=u32):
                one(first)
        else:
            one(start)

    return program


def same(value: Any) -> Any:
    return value


def gelu(value: Any) -> Any:
    """GELU by tanh.approx."""
    inner = value * 0.7978845608 + value * value * value * 0.0356774081
    out = reg.scalar(f32)
    ptx.inst.tanh.approx.f32(out, inner)
    return value * 0.5 * (out + 1.0)


def exact_division(value: Any) -> Any:
    """1 / (1 + sqrt(x x)), both rounded correctly."""
    root, out = reg.scalar(f32), reg.scalar(f32)
    ptx.inst.sqrt.rn.f32(root, value * value)
    ptx.inst.div.rn.f32(out, value, root + 1.0)
    return out


def polynomial(terms: int) -> Callable[[Any], Any]:
    def of(value: Any) -> Any:
        total = value * 0.5
        for term in range(terms):
            ptx.inst.fma.rn.f32(total, total, value, 1.0 / (term + 2))
        return total

    return of


def polynomial64(value: Any) -> Any:
    total = value * 0.5
    for term in range(32):
        ptx.inst.fma.rn.f64(total, total, value, 1.0 / (term + 2))
    return total


def hashed(value: Any) -> Any:
    """Rounds of a 32-bit mixing function: multiplications, shifts, exclusive ors."""
    mixed = value.copy()
    for _ in range(16):
        mixed = (mixed ^ (mixed >> 15)) * 0x2C1B3C6D
        mixed = (mixed ^ (mixed >> 12)) * 0x297A2D39
    return mixed


def divided(value: Any) -> Any:
    """Quotient and remainder by a number that the compiler does not know."""
    by = ptx.special.ntid.x() + 7
    return value // by + value % by


def strided(step: int) -> Kernel:
    """Y[i] = X[step i]."""

    @kernel(
        in_specs=(Tile("M", f32),), out_specs=(Tile("N", f32),), grid=(tiles("N", 256),), block=256, arch="sm_90a",
        name=f"strided{step}",
    )  # fmt: skip
    def program(X, Y):
        (n,) = Y.shape
        x, y = ptx.global_ptrs(X, Y)
        at = ptx.special.ctaid.x() * 256 + ptx.special.tid.x()
        with ptx.if_(at < n):
            value = ptx.load(f32, ptx.addr(x + (at * step).to(u64) * f32.bytes))
            ptx.store(ptx.addr(y + at.to(u64) * f32.bytes), value)

    return program


def gather() -> Kernel:
    """Y[i] = X[I[i]]."""

    @kernel(
        in_specs=(Tile("M", f32), Tile("N", u32)), out_specs=(Tile("N", f32),), grid=(tiles("N", 256),), block=256,
        arch="sm_90a",
    )  # fmt: skip
    def program(X, I, Y):  # noqa: E741 - the usual name of indices
        x, i, y = ptx.global_ptrs(X, I, Y)
        at = (ptx.special.ctaid.x() * 256 + ptx.special.tid.x()).to(u64) * f32.bytes
        index = ptx.load(u32, ptx.addr(i + at))
        ptx.store(ptx.addr(y + at), ptx.load(f32, ptx.addr(x + index.to(u64) * f32.bytes)))

    return program


def chase(steps: int) -> Kernel:
    """One thread follows indices."""

    @kernel(in_specs=(Tile("N", u32),), out_specs=(Tile(1, u32),), grid=(1,), block=32, arch="sm_90a")
    def program(X, Y):
        x, y = ptx.global_ptrs(X, Y)
        at = reg.scalar(u32, init=0)
        for _ in ptx.range(steps, unroll=False):
            at.set(ptx.load(u32, ptx.addr(x + at.to(u64) * u32.bytes)))
        with ptx.if_(ptx.special.tid.x() == 0):
            ptx.store(ptx.addr(y), at)

    return program


def tiny(ctas: int, threads: int) -> Kernel:
    """Each CTA stores one number."""

    @kernel(in_specs=(Tile(32, f32),), out_specs=(Tile("N", f32),), grid=("N",), block=threads, arch="sm_90a",
            name=f"tiny{ctas}x{threads}")  # fmt: skip
    def program(X, Y):
        (y,) = ptx.global_ptrs(Y)
        with ptx.if_(ptx.special.tid.x() == 0):
            ptx.store(ptx.addr(y + ptx.special.ctaid.x().to(u64) * f32.bytes), ptx.special.ctaid.x().to(f32))

    return program


def cases(million: int = MILLION) -> Iterator[Case]:
    def of(name: str, count: int, dtype: Any = f32, body: Callable[[Any], Any] = same, **options: Any) -> Case:
        fill = million if dtype is u32 else "normal"
        array, out = Array((count,), dtype, fill), Array((count,), dtype, "zeros")
        return Case(name, "elementwise", lambda: each(body, name=name, dtype=dtype, **options), (array,), (out,))

    sms, rounds = (132, 64) if million == MILLION else (4, 3)
    yield of("copy_4_bytes", 16 * million)
    yield of("copy_16_bytes", 64 * million, vector=4)
    yield of("copy_16_bytes_small", million, vector=4)
    yield of("copy_16_bytes_four_ahead", 32 * million, vector=4, ahead=4)
    yield of("copy_strides_over_grid", 8 * sms * 256 * rounds, ctas=8 * sms)
    yield of("copy_one_cta_per_sm", sms * 256 * 4 * rounds, ctas=sms, vector=4)
    yield of("copy_small_dependent", million, vector=4, pdl=True)
    yield of("gelu", 16 * million, body=gelu, vector=4)
    yield of("exact_division", 16 * million, body=exact_division, vector=4)
    yield of("polynomial_512", 4 * million, body=polynomial(512))
    yield of("polynomial_512_four", 4 * million, body=polynomial(512), vector=4)
    yield of("polynomial_f64", 8 * million, f64, polynomial64)
    yield of("hash", 8 * million, u32, hashed)
    yield of("integer_division", 8 * million, u32, divided)
    for step in (2, 8, 32):
        count = 128 * million // step // 2
        yield Case(f"strided_{step}", "elementwise", lambda step=step: strided(step),
                   (Array((count * step,), f32),), (Array((count,), f32, "zeros"),),
                   moved=count * (4 + min(32, 4 * step)))  # fmt: skip
    count = 4 * million
    yield Case("gather_from_l2", "elementwise", gather, (Array((million,), f32), Array((count,), u32, million)),
               (Array((count,), f32, "zeros"),))  # fmt: skip
    yield Case("chase_4096", "latency", lambda: chase(4096), (Array((million // 16,), u32, "chain"),),
               (Array((1,), u32, "zeros"),))  # fmt: skip
    for ctas, threads in ((1, 32), (132, 1024), (million // 16, 32), (million // 64, 256)):
        yield Case(f"tiny_{ctas}_x_{threads}", "launch", lambda ctas=ctas, threads=threads: tiny(ctas, threads),
                   (Array((32,), f32),), (Array((ctas,), f32, "zeros"),))  # fmt: skip
