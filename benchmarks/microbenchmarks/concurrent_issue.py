"""Products of two warpgroups while two others execute ordinary instructions: how much each slows the other.

Each repetition is a group of wgmmas and `count` instructions of each other warp; `operations` counts the wgmmas. With 0
instructions, a row is the rate of the products alone; with many, it is the rate of the instructions. Eight chains in
two warps fill every slot of a scheduler and thus starve the warps that issue the products. One chain each leaves half
of the slots free, which shows whether slots or units are the shared resource.
"""

from __future__ import annotations

from collections.abc import Iterator

from warploom.isa.dtypes import b32, bf16, f32
from warploom.lang import Kernel, Tile, ptx, reg, smem
from warploom.lang.wgmma import accumulators

from .arithmetic import CHAINS, INSTRUCTIONS, values
from .harness import Measurement, loop

N, STAGES, REPETITIONS, M = 128, 4, 64, 64


def beside(name: str, kind: str, count: int, in_registers: bool, number: int = CHAINS) -> Kernel:
    """Warpgroups 0 and 1 multiply, 2 and 3 execute `count` instructions in `number` chains."""
    dtype, each, emit = INSTRUCTIONS[kind]

    def prepare(data):
        a = smem.wgmma_tile(bf16, (2 * M, 64), stages=STAGES, name="a")
        b = smem.wgmma_tile(bf16, (N, 64), stages=STAGES, name="b")
        group = ptx.special.tid.x() >> 7
        ptx.inst.shfl.sync.idx.b32(group, group, 0, 31, -1)
        acc = reg.array(f32, accumulators(N, f32), init=0.0)
        fragment = reg.array(b32, 4)
        for at in range(4):
            fragment[at] = (ptx.special.tid.x() * 0x01230123 + at).view(b32)
        left = [a[stage].rows(((group & 1) << 6).copy(), M) for stage in range(STAGES)]
        right = [b[stage] for stage in range(STAGES)]
        return group, acc, left, right, fragment, values(dtype, number), values(dtype, 2)

    def body(state):
        group, acc, left, right, fragment, chains, others = state
        with ptx.if_(group < 2):
            ptx.wgmma.fence()
            multiply(acc, left, right, N, fragment if in_registers else None)
            ptx.wgmma.commit_group()
            ptx.wgmma.wait_group(0)
        with ptx.else_():
            for at in range(count // each):
                emit(chains[at % len(chains)], *others)
        ptx.bar.sync(0)

    def finish(state):
        return [*state[1], *state[5]]

    return loop(
        name, body, repetitions=REPETITIONS, warps=16, prepare=prepare, finish=finish, registers=128,
        array=Tile(1024, 64, bf16, box=(64, 8), swizzle="128B"),
    )  # fmt: skip


def multiply(acc, left, right, n: int, fragment=None) -> None:
    """Issue the products m64nNk16 of every stage; fragment: A, if it is in registers."""
    for a, b in zip(left, right, strict=True):
        for k in range(a.k_slices):
            ptx.wgmma.mma_async(
                shape=(M, n, 16), dtype_d=f32, dtype_a=bf16, dtype_b=bf16, d=acc,
                a=a.k(k) if fragment is None else fragment, b=b.k(k),
            )  # fmt: skip


def measurement(source: str, kind: str, count: int, number: int = CHAINS) -> Measurement:
    """source: source of A, "ss" or "rs"."""
    paced = "" if number == CHAINS else f".chains{number}"
    name = f"rate.beside.{source}.{kind}.{count}{paced}"
    return Measurement(
        name, lambda: beside(name, kind, count, source == "rs", number), operations=4 * STAGES, repetitions=REPETITIONS,
        of=f"wgmma m64n{N} of two warpgroups ({source}) beside {count} instructions ({kind}) of 8 warps",
        elements=(1024, 64), data="normal:bf16", facts={"n": N, "count": count, "kind": kind, "chains": number},
    )  # fmt: skip


def measurements() -> Iterator[Measurement]:
    for source in ("ss", "rs"):
        for kind, counts in (("ffma", (0, 384, 768)), ("fmax", (384, 768)), ("mufu", (96, 192)), ("convert", (192,))):
            for count in counts:
                yield measurement(source, kind, count)
        for number in (1, 2):
            yield measurement(source, "ffma", 384, number)
