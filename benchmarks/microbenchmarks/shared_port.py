"""Products of two warpgroups while other warps load from, store to or fill shared memory: who waits for whom.

A wgmma reads its operands from shared memory: 32 bytes of each row of B, and of A if it is there. Each repetition is a
group of wgmmas, and meanwhile `count` accesses of each of 8 other warps, 16 bytes a lane (four passes), or `count`
copies of 16 KB by TMA from L2 (fill) or to it (drain). `operations` counts the wgmmas. If all share one port of 128
bytes a clock, a repetition takes at least the clocks of all bytes together. In `rate.port.first` the others go on until
the products are done, and only the products are timed: who waits, they or the others?
"""

from __future__ import annotations

from collections.abc import Iterator

from warploom.isa.dtypes import b32, bf16, f32, u32
from warploom.lang import Kernel, Tile, ptx, reg, smem
from warploom.lang.wgmma import accumulators

from .concurrent_issue import multiply
from .harness import Measurement, loop

STAGES, REPETITIONS, M, DEPTH = 2, 64, 64, 64
OTHERS, PIECE_BYTES = 8, 16384
PIECE_ROWS = PIECE_BYTES // 128


def beside(name: str, n: int, kind: str, count: int, in_registers: bool, products: bool,
           first: bool = False) -> Kernel:  # fmt: skip
    """Warpgroups 0 and 1 multiply (or not), 2 and 3 access shared memory; first: until the products are done."""

    def prepare(data):
        a = smem.wgmma_tile(bf16, (2 * M, DEPTH), stages=STAGES, name="a")
        b = smem.wgmma_tile(bf16, (n, DEPTH), stages=STAGES, name="b")
        other = smem.wgmma_tile(bf16, (PIECE_ROWS, DEPTH), stages=4, name="other")
        full, done = smem.mbarrier(1), smem.array(u32, 1, name="done")
        thread = ptx.special.tid.x()
        with ptx.if_(thread == 0):
            ptx.mbarrier.init(full[0], 1)
            ptx.store(done[0], 0, dtype=u32)
            ptx.fence.mbarrier_init()
        ptx.bar.sync(0)
        group = thread >> 7
        ptx.inst.shfl.sync.idx.b32(group, group, 0, 31, -1)
        acc = reg.array(f32, accumulators(n, f32), init=0.0)
        fragment = reg.array(b32, 4)
        for at in range(4):
            fragment[at] = (thread * 0x01230123 + at).view(b32)
        left = [a[stage].rows(((group & 1) << 6).copy(), M) for stage in range(STAGES)]
        kept = reg.array(u32, 16, init=0)
        address = (other[0].register() + (thread & 255) * 16).copy()
        phase = reg.scalar(u32, init=0)
        right = [b[stage] for stage in range(STAGES)]
        return data, group, acc, left, right, fragment, kept, address, other, full, phase, done

    def access(kept, address):
        for at in range(count):
            place, four = ptx.addr(address, at % 4 * 4096), kept[at % 4 * 4 : at % 4 * 4 + 4]
            if kind == "load":  # all four words are used, or ptxas drops the load
                loaded = reg.array(u32, 4)
                ptx.inst("ld.volatile.shared.v4.u32", loaded, place)
                for word in range(4):
                    ptx.inst.xor.b32(four[word], four[word], loaded[word])
            else:
                ptx.inst("st.volatile.shared.v4.u32", place, four)

    def fill(data, other, full, phase):
        with ptx.if_(ptx.special.tid.x() == 256):
            ptx.mbarrier.arrive_expect_tx(full[0], count * PIECE_BYTES)
            for at in range(count):
                ptx.cp.async_.bulk.tensor_2d(other[at % 4], data.tma_desc(), (0, at % 4 * PIECE_ROWS), full[0])
        ptx.mbarrier.wait(full[0], phase)
        phase ^= 1

    def drain(data, other):
        with ptx.if_(ptx.special.tid.x() == 256):
            for at in range(count):
                ptx.tma.store(data.tma_desc(), other[at % 4], (0, 512 + at % 4 * PIECE_ROWS))
            ptx.cp.async_.bulk.commit_group()
            ptx.cp.async_.bulk.wait_group_read(0)

    def others(state):
        data, _, _, _, _, _, kept, address, other, full, phase, _ = state
        if count and kind == "fill":
            fill(data, other, full, phase)
        elif count and kind == "drain":
            drain(data, other)
        elif count:
            access(kept, address)

    def body(state):
        _, group, acc, left, right, fragment, *_, done = state
        with ptx.if_(group < 2):
            if products:
                ptx.wgmma.fence()
                for _ in range(2):
                    multiply(acc, left, right, n, fragment if in_registers else None)
                ptx.wgmma.commit_group()
                ptx.wgmma.wait_group(0)
            if first:
                ptx.bar.sync(1, 256)
        with ptx.else_():
            if first:
                with ptx.while_(lambda: ptx.load(u32, done[0], cache="volatile") == 0):
                    others(state)
            else:
                others(state)
        if not first:
            ptx.bar.sync(0)

    def finish(state):
        if first:
            with ptx.if_(ptx.special.tid.x() == 0):
                ptx.store(state[-1][0], 1, dtype=u32)
        return [*state[2], *state[6]]

    return loop(
        name, body, repetitions=REPETITIONS, warps=16, prepare=prepare, finish=finish,
        registers=128, array=Tile(1024, DEPTH, bf16, box=(DEPTH, PIECE_ROWS), swizzle="128B"),
    )  # fmt: skip


def measurement(source: str, n: int, kind: str, count: int, first: bool = False) -> Measurement:
    """source: source of A, "ss" or "rs"; "none": no products."""
    name = f"rate.port.{'first.' * first}{source}.n{n}.{kind}.{count}"
    return Measurement(
        name, lambda: beside(name, n, kind, count, source == "rs", source != "none", first), operations=16,
        repetitions=REPETITIONS,
        of=f"wgmma m64n{n} of two warpgroups ({source}) beside {count} accesses to shared memory ({kind}) of "
        + ("a thread, 16 KB each" if kind in ("fill", "drain") else "8 warps, 16 bytes a lane"),
        elements=(1024, DEPTH), data="normal:bf16", facts={"n": n, "count": count, "kind": kind, "source": source},
    )  # fmt: skip


def measurements() -> Iterator[Measurement]:
    for kind, counts in (("load", (16, 32, 64)), ("store", (16, 32, 64)), ("fill", (4, 8)),
                         ("drain", (4, 8))):  # fmt: skip
        for count in counts:
            for source, n in (("ss", 64), ("ss", 128), ("rs", 128), ("none", 64)):
                if kind != "load" or n == 64 or count == 16:  # more registers would spill
                    yield measurement(source, n, kind, count)
    for source, n in (("ss", 64), ("ss", 128), ("rs", 64), ("rs", 128)):
        yield measurement(source, n, "load", 0)
    for kind, count in (("load", 16), ("store", 16), ("drain", 1)):
        for source, n in (("ss", 64), ("ss", 128), ("rs", 64), ("rs", 128)):
            if kind != "load" or n == 64 or source == "ss":
                yield measurement(source, n, kind, count, first=True)
