"""A ring that one thread fills and one to three warpgroups multiply from, its state uniform or of each lane.

`uniform`: ptxas can prove that the stage's index is the same in a warp. `lanes`: it cannot, as the index begins with
what a lane has loaded, so descriptors move into uniform registers (R2UR) before each product. `bare`: the producer
copies nothing and only arrives; what is left is what the products pay.
"""

from __future__ import annotations

from collections.abc import Iterator

from warploom.collective import each_consumer, producer, warpgroup_index
from warploom.isa.dtypes import bf16, f32, u32, u64
from warploom.lang import Kernel, Tile, kernel, ptx, reg, smem
from warploom.lang.wgmma import accumulators

from .harness import READINGS, Measurement, clock, keep, own_readings, unknown_zero, write_readings

M, DEPTH, STAGES, STEPS, ROWS = 64, 64, 4, 256, 1024


def ring(name: str, consumers: int, n: int, *, lanes: bool, copies: bool) -> Kernel:
    """The roles do not meet again: where they do, ptxas keeps all of their state in registers of each lane."""

    def advance(index, phase):
        index += 1
        with ptx.if_(index == STAGES):
            index.set(0)
            phase ^= 1

    def produce(data, a, b, full, empty, first):
        index, phase, row = first.copy(), reg.scalar(u32, init=1), reg.scalar(u32, init=0)
        for _ in ptx.range(unknown_zero() + STEPS, unroll=False):
            ptx.mbarrier.wait(empty[index], phase)
            if copies:
                ptx.mbarrier.arrive_expect_tx(full[index], a.bytes + b.bytes)
                ptx.cp.async_.bulk.tensor_2d(a[index], data.tma_desc((DEPTH, M * consumers)), (0, row), full[index])
                ptx.cp.async_.bulk.tensor_2d(b[index], data.tma_desc((DEPTH, n)), (0, row), full[index])
            else:
                ptx.mbarrier.arrive(full[index])
            row += M
            ptx.inst.and_.b32(row, row, ROWS // 2 - 1)
            advance(index, phase)

    def consume(a, b, full, empty, first, acc, me):
        index, phase, previous = first.copy(), reg.scalar(u32, init=0), first.copy()
        leader = (ptx.special.tid.x() & 127) == 0
        for step in ptx.range(unknown_zero() + STEPS, unroll=False):
            ptx.mbarrier.wait(full[index], phase)
            left, right = a[index].rows(me * M, M), b[index]
            ptx.wgmma.fence()
            for k in range(left.k_slices):
                ptx.wgmma.mma_async(
                    shape=(M, n, 16), dtype_d=f32, dtype_a=bf16, dtype_b=bf16, d=acc, a=left.k(k), b=right.k(k),
                )  # fmt: skip
            ptx.wgmma.commit_group()
            ptx.wgmma.wait_group(1)
            ptx.mbarrier.arrive(empty[previous], pred=leader & (step != 0))
            previous.set(index)
            advance(index, phase)
        ptx.wgmma.wait_group(0)
        return leader

    @kernel(
        in_specs=(Tile(ROWS, DEPTH, bf16, box=(DEPTH, n), swizzle="128B"),), out_specs=(Tile("CTAS", READINGS, u64),),
        grid=(1, 1, 1), block=128 * (1 + consumers), arch="sm_90a", registers=128, name=name.replace(".", "_"),
    )  # fmt: skip
    def program(data, out):
        a = smem.wgmma_tile(bf16, (M * consumers, DEPTH), stages=STAGES, name="a")
        b = smem.wgmma_tile(bf16, (n, DEPTH), stages=STAGES, name="b")
        full, empty, cell = smem.mbarrier(STAGES), smem.mbarrier(STAGES), smem.array(u32, 32, name="cell")
        mine, thread = own_readings(out), ptx.special.tid.x()
        with ptx.if_(thread == 0):
            for stage in range(STAGES):
                ptx.mbarrier.init(full[stage], 1)
                ptx.mbarrier.init(empty[stage], consumers)
            ptx.fence.mbarrier_init()
        ptx.store(cell[ptx.special.laneid()], 0, dtype=u32)
        ptx.bar.sync(0)
        group, before = warpgroup_index(), clock()
        first = ptx.load(u32, cell[ptx.special.laneid()]) if lanes else reg.scalar(u32, init=0)
        with producer(group):
            produce(data, a, b, full, empty, first)
        for me in each_consumer(group, consumers):
            acc = reg.array(f32, accumulators(n, f32), init=0.0)
            leader = consume(a, b, full, empty, first, acc, me)
            after = clock()
            if me == 0:
                with ptx.if_(leader):
                    write_readings(mine, before, after)
            keep(mine, *acc)

    return program


def measurement(consumers: int, n: int, state: str, *, copies: bool) -> Measurement:
    name = f"rate.ring.{state}.c{consumers}.n{n}{'' if copies else '.bare'}"
    return Measurement(
        name, lambda: ring(name, consumers, n, lanes=state == "lanes", copies=copies),
        operations=STEPS, repetitions=1,
        of=f"step of a ring of {STAGES} stages: 64 x {n} x {DEPTH} by each of {consumers} warpgroups",
        elements=(ROWS, DEPTH), data="normal:bf16",
        facts={"n": n, "consumers": consumers, "state": state, "copies": copies},
    )  # fmt: skip


def measurements() -> Iterator[Measurement]:
    for consumers in (1, 2, 3):
        for n in (32, 128):
            for state in ("uniform", "lanes"):
                for copies in (True, False):
                    yield measurement(consumers, n, state, copies=copies)
