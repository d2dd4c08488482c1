"""What attention does between its products: a softmax beside products whose A is in registers, turns, a tile's draw.

A step of a warpgroup is S = Q K of 64 x 128 x 128, a softmax of it, and O += P V with P in registers. `alone` is one
warpgroup, `pair` two, `turns` two that hand a named barrier to each other before S and after it was issued. Without
`overlap` a step waits for each product; with it, P V of the step before runs beside the softmax. Its parts: `none`;
`exp`: a multiply-add, an exponential and an addition of each score, and the conversion to bf16; `all`: also maxima, and
O multiplied by a factor. Shared memory holds zeros, so that no value is out of the ordinary.
"""

from __future__ import annotations

from collections.abc import Iterator

from warploom.isa.dtypes import b32, bf16, f32, u32
from warploom.lang import Kernel, Tile, ptx, reg, smem
from warploom.lang.wgmma import accumulators

from .harness import Measurement, loop

M, KEYS, COLUMNS, STEPS = 64, 128, 128, 64
LARGEST = 1e30
TURN = 1
"""The first of two named barriers."""


def multiply(acc, left, right, *, n: int) -> None:
    """A product whose A is a tile or registers, four of which are a slice."""
    for k in range(right.k_slices):
        ptx.wgmma.mma_async(
            shape=(M, n, 16), dtype_d=f32, dtype_a=bf16, dtype_b=bf16, d=acc,
            a=left.k(k) if hasattr(left, "k") else [left[4 * k + i] for i in range(4)], b=right.k(k),
        )  # fmt: skip


def add_values(out, p, v) -> None:
    for half in range(2):
        multiply(out, [p[16 * half + i] for i in range(16)], v[half], n=COLUMNS)
    ptx.wgmma.commit_group()


def soften(part: str, scores, p, largest, total) -> None:
    if part == "none":
        return
    if part == "all":
        found = [scores[0].copy(), scores[2].copy()]
        for at in range(len(scores)):
            ptx.inst.max.f32(found[at >> 1 & 1], found[at >> 1 & 1], scores[at])
        for row, one in enumerate(found):
            for lane in (1, 2):
                other = reg.scalar(f32)
                ptx.inst("shfl.sync.bfly.b32", other, one, lane, 31, -1)
                ptx.inst.max.f32(one, one, other)
            ptx.inst.max.f32(largest[row], largest[row], one)
    below = [-largest[row] for row in range(2)]
    for at, value in enumerate(scores):
        ptx.inst.fma.rn.f32(value, value, largest[2], below[at >> 1 & 1])
        ptx.inst("ex2.approx.ftz.f32", value, value)
        ptx.inst.add.f32(total[at >> 1 & 1], total[at >> 1 & 1], value)
    for at in range(len(p)):
        ptx.inst("cvt.rn.bf16x2.f32", p[at], scores[2 * at + 1], scores[2 * at])
    with ptx.if_(ptx.warp.any((total[0] > LARGEST) | (total[1] > LARGEST))):  # never: what is above stays above
        ptx.inst.trap()


def softmax(name: str, how: str, part: str, overlap: bool) -> Kernel:
    groups = 1 if how == "alone" else 2

    def prepare(data):
        q = smem.wgmma_tile(bf16, (M * groups, 64), stages=2, name="q")
        k = smem.wgmma_tile(bf16, (KEYS, 64), stages=2, name="k")
        v = smem.wgmma_tile(bf16, (COLUMNS, 64), stages=2, name="v")
        thread = ptx.special.tid.x()
        first = reg.scalar(u32)
        ptx.inst.mov.u32(first, q[0].register())
        for at in ptx.range(thread * 16, (q.bytes + k.bytes + v.bytes) * 2, 16 * 128 * groups):
            ptx.inst("st.shared.v4.u32", ptx.addr((first + at).copy()), [reg.scalar(u32, init=0) for _ in range(4)])
        ptx.fence.proxy_async_shared_cta()
        group = thread >> 7
        ptx.inst.shfl.sync.idx.b32(group, group, 0, 31, -1)
        if how == "turns":
            with ptx.if_(group == 1):
                ptx.bar.arrive(TURN, 256)
        scores = reg.array(f32, accumulators(KEYS, f32), init=0.0)
        out = reg.array(f32, accumulators(COLUMNS, f32), init=0.0)
        p = [reg.array(b32, KEYS // 4, init=0) for _ in range(2 if overlap else 1)] * (1 if overlap else 2)
        left = [q[half].rows((group << 6).copy(), M) for half in range(2)]
        numbers = [(thread >> 12).to(f32) for _ in range(5)]
        return left, k, v, scores, out, p, numbers[:3], numbers[3:], group

    def body(state):
        for turn in range(2):
            step(state, state[5][turn], state[5][turn if not overlap else 1 - turn])

    def step(state, before, after):
        """before: P of the step before, which overlaps; after: where this step's P goes."""
        left, k, v, scores, out, _, largest, total, group = state
        if how == "turns":
            ptx.bar.sync(group + TURN, 256)
        ptx.wgmma.fence()
        for half in range(2):
            multiply(scores, left[half], k[half], n=KEYS)
        ptx.wgmma.commit_group()
        if overlap:
            add_values(out, before, v)
        if how == "turns":
            ptx.bar.arrive((group ^ 1) + TURN, 256)
        ptx.wgmma.wait_group(1 if overlap else 0)
        soften(part, scores, after, largest, total)
        if overlap:
            ptx.wgmma.wait_group(0)
        if part == "all":
            for at in range(len(out)):
                ptx.inst.mul.f32(out[at], out[at], largest[at >> 1 & 1])
        if not overlap:
            ptx.wgmma.fence()
            add_values(out, after, v)
            ptx.wgmma.wait_group(0)

    def finish(state):
        _, _, _, scores, out, _, _, total, group = state
        if how == "turns":
            with ptx.if_(group == 0):
                ptx.bar.sync(TURN, 256)
        return [*scores, *out, *total]

    return loop(
        name, body, repetitions=STEPS, warps=4 * groups, prepare=prepare, finish=finish, registers=240,
        array=Tile("N", bf16),
    )  # fmt: skip


def measurement(how: str, part: str, overlap: bool) -> Measurement:
    name = f"rate.softmax.{how}.{part}{'.overlap' if overlap else ''}"
    return Measurement(
        name, lambda: softmax(name, how, part, overlap), operations=2, repetitions=STEPS,
        of=f"step of attention, 64 x {KEYS} x {COLUMNS} twice by each warpgroup, softmax: {part}", elements=(256,),
        data="zeros", facts={"how": how, "part": part, "overlap": overlap},
    )  # fmt: skip


def draw(ctas: int, warps: int = 12) -> Measurement:
    """One thread takes the next number of a counter that all CTAs share, and tells its CTA through shared memory."""
    name, repetitions = f"latency.draw.ctas{ctas}", 128

    def prepare(data):
        (counter,) = ptx.global_ptrs(data)
        return counter, smem.array(u32, 1, name="drawn"), ptx.special.tid.x() == 0, reg.scalar(u32, init=0)

    def body(state):
        counter, drawn, first, total = state
        with ptx.if_(first):
            number = reg.scalar(u32)
            ptx.inst("atom.global.add.u32", number, ptx.addr(counter), 1)
            ptx.store(drawn[0], number)
        ptx.bar.sync(0)
        total += ptx.load(u32, drawn[0])
        ptx.bar.sync(0)

    return Measurement(
        name, lambda: loop(name, body, repetitions=repetitions, ctas=ctas, warps=warps, prepare=prepare,
                           finish=lambda s: [s[3]], array=Tile("N", u32, inout=True)),
        operations=1, repetitions=repetitions, of="a number drawn from one counter and told to 12 warps", ctas=ctas,
        elements=(32,), data="zeros", facts={"warps": warps},
    )  # fmt: skip


def measurements() -> Iterator[Measurement]:
    for how in ("alone", "pair", "turns"):
        for part in ("none", "exp", "all"):
            for overlap in (False, True):
                yield measurement(how, part, overlap)
    for ctas in (1, 132):
        yield draw(ctas)
