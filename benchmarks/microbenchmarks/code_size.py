"""How fast instructions come: loops of straight code that does or does not fit into the caches of instructions.

A machine instruction has 16 bytes. The body is a chain of independent f32 multiply-adds, which a quarter issues once a
clock if it has them; what a repetition takes longer is the wait for instructions.
"""

from __future__ import annotations

from collections.abc import Iterator

from warploom.isa.dtypes import f32
from warploom.lang import ptx

from .arithmetic import values
from .harness import Measurement, loop, unknown_zero

CHAINS = 8
ISSUED = 1 << 18
"""Instructions of a warp in all repetitions, about."""
SIZES = (256, 512, 1024, 1536, 2048, 2560, 3072, 4096, 6144, 8192, 12288, 16384)


def _straight(size: int, warps: int, ctas: int = 1) -> Measurement:
    """All warps run the same loop of `size` instructions."""
    name = f"rate.code.n{size}.w{warps}" + (f".ctas{ctas}" if ctas > 1 else "")
    repetitions = max(8, ISSUED // size)

    def prepare(data):
        return values(f32, CHAINS), values(f32, 2)

    def body(state):
        chains, (y, z) = state
        _multiply_adds(size, chains, y, z)

    return Measurement(
        name,
        lambda: loop(name, body, repetitions=repetitions, warps=warps, ctas=ctas, prepare=prepare,
                     finish=lambda state: state[0]),
        operations=size, repetitions=repetitions, of=f"an instruction of a loop of {size}, {warps} warps", ctas=ctas,
        facts={"warps": warps, "instructions": size},
    )  # fmt: skip


def _apart(size: int, warps: int) -> Measurement:
    """Half of the warps run one loop of `size` instructions, the others another, as kernels with roles do."""
    name = f"rate.code.apart.n{size}.w{warps}"
    repetitions = max(8, ISSUED // size)

    def prepare(data):
        return values(f32, CHAINS), values(f32, 2), ptx.special.tid.x() < warps * 16

    def body(state):
        chains, (y, z), first = state
        with ptx.if_(first):
            _multiply_adds(size, chains, y, z)
        with ptx.else_():
            _multiply_adds(size, chains, z, y)

    return Measurement(
        name,
        lambda: loop(name, body, repetitions=repetitions, warps=warps, prepare=prepare,
                     finish=lambda state: state[0]),
        operations=size, repetitions=repetitions, of=f"an instruction of one of two loops of {size}",
        facts={"warps": warps, "instructions": size},
    )  # fmt: skip


def _jumps(hot: int, cold: int, blocks: int, warps: int) -> Measurement:
    """A loop of `blocks` times `hot` instructions, each followed by a jump over `cold` others that never run."""
    name = f"rate.jump.{hot}over{cold}.blocks{blocks}.w{warps}"
    repetitions = max(8, ISSUED // (hot * blocks))

    def prepare(data):
        return values(f32, CHAINS), values(f32, 2), unknown_zero() != 0

    def body(state):
        chains, (y, z), never = state
        for _ in range(blocks):
            _multiply_adds(hot, chains, y, z)
            if cold:
                with ptx.if_(never):
                    _multiply_adds(cold, chains, z, y)

    return Measurement(
        name,
        lambda: loop(name, body, repetitions=repetitions, warps=warps, prepare=prepare,
                     finish=lambda state: state[0]),
        operations=blocks, repetitions=repetitions,
        of=f"{hot} instructions and a jump over {cold}, {blocks} in a loop, {warps} warps",
        facts={"warps": warps, "hot": hot, "cold": cold, "blocks": blocks},
    )  # fmt: skip


def _multiply_adds(size, chains, y, z):
    for i in range(size):
        value = chains[i % CHAINS]
        ptx.inst("fma.rn.f32", value, value, y, z)


def measurements() -> Iterator[Measurement]:
    for size in SIZES:
        for warps in (1, 4, 8):
            yield _straight(size, warps)
        yield _apart(size, 8)
    for warps in (4, 8):
        for blocks in (4, 8, 16, 32):
            for cold in (0, 32, 128, 384):
                yield _jumps(64, cold, blocks, warps)
        for blocks in (4, 16):
            yield _jumps(256, 384, blocks, warps)
    for size in SIZES[2::2]:
        yield _straight(size, 8, 132)
