"""Microbenchmarks: what describes one, and how its kernel is assembled and run.

A kernel of `loop` reads %clock64 and %globaltimer, runs a body many times in a loop that is not unrolled, and reads
them again; the result is the difference over the repetitions. Every CTA reports its own readings; a row keeps the
median of the CTAs and the fastest of several launches. Stores that never execute keep the body's results alive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from warploom.isa.dtypes import b32, u32, u64
from warploom.lang import Kernel, Tile, kernel, ptx, reg
from warploom.lang.values import Register

READINGS = 4
"""Words that a CTA writes: clocks and nanoseconds, each before and after."""
SMALL_ARRAY = 1 << 16
NEVER = 0x7FC0_DEAD
"""A bit pattern that no result has."""

Body = Callable[[Any], Any]


@dataclass(frozen=True)
class Measurement:
    """One microbenchmark.

    Attributes:
        name: name of the constant, dotted: "mma.wgmma.n256.ss".
        build: makes the kernel.
        operations: operations of one warp (or thread, or CTA: `of`) per repetition; the time is divided by it.
        repetitions: iterations of the loop.
        of: what an operation is, in words.
        bytes: bytes moved by all of a CTA's operations in one repetition; 0 if not meaningful.
        data: contents of the input array: "normal", "zeros", "chain:<bytes apart>"; `elements` is its size in bf16.
        workers: how many CTAs work if the others exit at once without readings; 0: all.
        facts: further columns of the row: warps, shape…
    """

    name: str
    build: Callable[[], Kernel]
    operations: float
    repetitions: int
    of: str
    ctas: int = 1
    bytes: float = 0.0
    data: str = "normal"
    elements: tuple[int, ...] = (SMALL_ARRAY,)
    launches: int = 3
    workers: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)


def keep(out: Register, *values: Register) -> None:
    """Keep 32-bit values alive: store their combination if it equals a pattern that never occurs."""
    mixed = values[0].view(b32) if values[0].dtype is not b32 else values[0]
    for value in values[1:]:
        mixed = mixed ^ (value.view(b32) if value.dtype is not b32 else value)
    with ptx.if_(mixed.view(u32) == NEVER):
        ptx.store(ptx.addr(out), mixed)


def clock() -> tuple[Register, Register]:
    """Read %clock64 and %globaltimer."""
    return ptx.special.clock64(), ptx.special.globaltimer()


def own_readings(out: Any) -> Register:
    """Where this CTA writes its readings."""
    (pointer,) = ptx.global_ptrs(out)
    return (pointer + ptx.special.ctaid.x().to(u64) * (READINGS * u64.bytes)).copy()


def write_readings(mine: Register, before: Sequence[Register], after: Sequence[Register]) -> None:
    for at, value in enumerate((before[0], after[0], before[1], after[1])):
        ptx.store(ptx.addr(mine, at * u64.bytes), value)


def unknown_zero() -> Register:
    """0, but unknown to the compiler, which therefore neither unrolls a loop fully nor merges reads of the same
    address."""
    return ptx.special.ntid.x() >> 12


def loop(
    name: str, body: Body, *, repetitions: int, warps: int = 1, ctas: int = 1, cluster: int = 1,
    prepare: Callable[..., Any] = lambda _: (), finish: Body = lambda _: (), array: Tile | None = None,
    registers: int | None = None,
) -> Kernel:  # fmt: skip
    """A kernel in which all warps time `body(state)`, `repetitions` times.

    prepare(data): runs before the first reading and returns the state. finish(state): runs after the loop, still timed,
    and returns values to keep. array: the input; by default 64 Ki words.
    """

    @kernel(
        in_specs=(array or Tile("N", u32),), out_specs=(Tile("CTAS", READINGS, u64),),
        grid=(ctas, 1, 1), block=32 * warps, cluster=(cluster, 1, 1), arch="sm_90a", registers=registers,
        name=name.replace(".", "_"),
    )  # fmt: skip
    def program(data, out):
        mine = own_readings(out)
        state = prepare(data)
        ptx.bar.sync(0)
        before = clock()
        for _ in ptx.range(unknown_zero() + repetitions, unroll=False):
            body(state)
        kept = finish(state)
        ptx.bar.sync(0)
        after = clock()
        with ptx.if_(ptx.special.tid.x() == 0):
            write_readings(mine, before, after)
        if kept:
            keep(mine, *kept)
        if cluster > 1:
            ptx.cluster.sync()

    return program


def words(count: int, value: int = 1) -> list[Register]:
    """Registers whose values the compiler does not know."""
    thread = ptx.special.tid.x()
    return [(thread + value * (i + 1)).copy() for i in range(count)]


def in_turn(items: Sequence[Any], count: int) -> list[Any]:
    """The first `count` items, cyclically."""
    return [items[i % len(items)] for i in range(count)]


def scalar(value: int = 0) -> Register:
    return reg.scalar(u32, init=value)


def initialise(full: Any, stages: int, works: Any) -> None:
    """Initialise the barriers of a ring for one arrival each, by the thread that works; all threads wait for it."""
    with ptx.if_(works):
        for stage in range(stages):
            ptx.mbarrier.init(full[stage], 1)
        ptx.fence.mbarrier_init()
    ptx.bar.sync(0)
