"""Kernels of the DSL for `brought`: rings filled by TMA for a reduction, a stencil, and two products in one."""

from __future__ import annotations

import math
from typing import Any

from warploom.collective import WARPGROUP, TmaPipeline, each_consumer, producer, warpgroup_index
from warploom.collective.epilogue.direct_store import store_accumulators
from warploom.collective.mma.wgmma import wgmma_accumulators, wgmma_stage
from warploom.lang import Kernel, Tile, kernel, ptx, reg, smem, tiles
from warploom.types import bf16, f32, u64

from .rows import over_the_warp

LOG2_E = math.log2(math.e)


def logarithms_of_sums(columns: int, ctas: int) -> Kernel:
    """Y[row] = log(sum(exp(X[row]))): one warp loads rows by bulk copies, each of the others takes every eighth row."""
    stages, consumers = 8, 8

    @kernel(in_specs=(Tile("M", columns, f32),), out_specs=(Tile("M", f32),), grid=(ctas,), block=(1 + consumers) * 32,
            arch="sm_90a")  # fmt: skip
    def program(X, Y):
        m, _ = X.shape
        x, y = ptx.global_ptrs(X, Y)
        ring = smem.array(f32, (stages, columns), align=128)
        full, empty = smem.mbarrier(stages), smem.mbarrier(stages)
        thread, cta = ptx.special.tid.x(), ptx.special.ctaid.x()
        with ptx.if_(thread == 0):
            for stage in range(stages):
                ptx.mbarrier.init(full[stage], 1)
                ptx.mbarrier.init(empty[stage], 32)
            ptx.fence.mbarrier_init()
        ptx.bar.sync(0)
        warp, lane = thread // 32, thread % 32
        count = (m - cta + (ctas - 1)) // ctas
        with ptx.if_(thread == consumers * 32):
            for at in ptx.range(count):
                stage = at % stages
                ptx.mbarrier.wait(empty[stage], at // stages & 1 ^ 1)
                ptx.mbarrier.arrive_expect_tx(full[stage], columns * f32.bytes)
                source = ptx.addr(x + (at * ctas + cta).to(u64) * (columns * f32.bytes))
                ptx.cp.async_.bulk.load(ring[stage, 0], source, columns * f32.bytes, full[stage])
        with ptx.elif_(lambda: warp < consumers):
            for at in ptx.range(warp, count, consumers):
                stage = at % stages
                ptx.mbarrier.wait(full[stage], at // stages & 1)
                largest = reg.scalar(f32, init=-math.inf)
                for first in range(0, columns, 128):
                    for value in ptx.load(f32, ring[stage, lane * 4 + first], vector=4):
                        ptx.inst.max.f32(largest, largest, value)
                over_the_warp(largest, ptx.inst.max.f32)
                total = reg.scalar(f32, init=0.0)
                for first in range(0, columns, 128):
                    for value in ptx.load(f32, ring[stage, lane * 4 + first], vector=4):
                        ptx.inst.ex2.approx.f32(value, (value - largest) * LOG2_E)
                        total += value
                ptx.fence.proxy_async_shared_cta()
                ptx.mbarrier.arrive(empty[stage])
                over_the_warp(total, ptx.inst.add.rn.f32)
                with ptx.if_(lane == 0):
                    ptx.inst.lg2.approx.f32(total, total)
                    place = y + (at * ctas + cta).to(u64) * f32.bytes
                    ptx.store(ptx.addr(place), largest + total * (1 / LOG2_E))

    return program


def edges_by_boxes(ctas: int) -> Kernel:
    """Lengths of Sobel gradients: boxes with their border by TMA, zeros outside; results leave by TMA."""
    rows, columns, stages, consumers = 16, 64, 3, 128

    @kernel(
        in_specs=(Tile("M", "N", f32, box=(columns + 8, rows + 2)),),
        out_specs=(Tile("M", "N", f32, box=(columns, rows)),),
        grid=(ctas,), block=consumers + 32, arch="sm_90a",
    )  # fmt: skip
    def program(X, Y):
        m, n = X.shape
        ring = smem.array(f32, (stages, rows + 4, columns + 8), align=128)  # two rows more: stages begin at 128 bytes
        made = smem.array(f32, (rows, columns), align=128)
        full, empty = smem.mbarrier(stages), smem.mbarrier(stages)
        thread, cta = ptx.special.tid.x(), ptx.special.ctaid.x()
        with ptx.if_(thread == 0):
            for stage in range(stages):
                ptx.mbarrier.init(full[stage], 1)
                ptx.mbarrier.init(empty[stage], consumers)
            ptx.fence.mbarrier_init()
        ptx.bar.sync(0)
        across = n // columns
        count = (m // rows * across - cta + (ctas - 1)) // ctas

        def place(at: Any) -> tuple[Any, Any]:
            tile = cta + at * ctas
            return tile % across * columns, tile // across * rows

        with ptx.if_(thread == consumers):
            for at in ptx.range(count):
                stage = at % stages
                ptx.mbarrier.wait(empty[stage], at // stages & 1 ^ 1)
                ptx.mbarrier.arrive_expect_tx(full[stage], (rows + 2) * (columns + 8) * f32.bytes)
                left, top = place(at)
                ptx.cp.async_.bulk.tensor_2d(ring[stage, 0, 0], X.tma_desc(), (left - 4, top - 1), full[stage])
        with ptx.elif_(lambda: thread < consumers):
            column, below = thread % columns, thread // columns
            for at in ptx.range(count):
                stage = at % stages
                ptx.mbarrier.wait(full[stage], at // stages & 1)
                sums, slopes = [], []
                for i in range(rows // 2 + 2):
                    one, two, three = (
                        ptx.load(f32, ring[stage, below * (rows // 2) + i, column + j]) for j in (3, 4, 5)
                    )
                    sums.append(one + 2.0 * two + three)
                    slopes.append(three - one)
                ptx.mbarrier.arrive(empty[stage])
                with ptx.if_(thread == 0):
                    ptx.cp.async_.bulk.wait_group_read(0)
                ptx.bar.sync(1, consumers)
                for i in range(rows // 2):
                    down, side = sums[i + 2] - sums[i], slopes[i] + 2.0 * slopes[i + 1] + slopes[i + 2]
                    length = reg.scalar(f32)
                    ptx.inst.sqrt.approx.f32(length, down * down + side * side)
                    ptx.store(made[below * (rows // 2) + i, column], length)
                ptx.fence.proxy_async_shared_cta()
                ptx.bar.sync(1, consumers)
                with ptx.if_(thread == 0):
                    left, top = place(at)
                    ptx.cp.async_.bulk.tensor_store(Y.tma_desc(), made[0, 0], (left, top))
                    ptx.cp.async_.bulk.commit_group()
            with ptx.if_(thread == 0):
                ptx.cp.async_.bulk.wait_group(0)

    return program


def gated_product(stages: int) -> Kernel:
    """silu(A B^T) * (A D^T) with wgmma: two consumers with 64 rows and 128 columns of both products each."""
    rows, columns, depth, consumers = 64, 128, 64, 2

    @kernel(
        in_specs=(Tile("M", "K", bf16, box=(depth, consumers * rows), swizzle="128B"),
                  Tile("N", "K", bf16, box=(depth, columns), swizzle="128B"),
                  Tile("N", "K", bf16, box=(depth, columns), swizzle="128B")),
        out_specs=(Tile("M", "N", bf16, multiple=(1, 8)),), grid=(tiles("N", columns), tiles("M", consumers * rows)),
        block=(1 + consumers) * WARPGROUP, arch="sm_90a",
    )  # fmt: skip
    def program(A, B, D, C):
        a = smem.wgmma_tile(bf16, (consumers * rows, depth), stages=stages)
        b, d = (smem.wgmma_tile(bf16, (columns, depth), stages=stages) for _ in range(2))
        ring = TmaPipeline(stages=stages, consumers=consumers, a=a, b=b, d=d)
        ring.initialise()
        _, k = A.shape
        count, warpgroup = k // depth, warpgroup_index()
        row, column = ptx.special.ctaid.y() * (consumers * rows), ptx.special.ctaid.x() * columns
        with producer(warpgroup):
            state = ring.producer_state()
            for at in ptx.range(count):
                with ring.produce(state) as stage:
                    ptx.tma.load(stage.a, A.tma_desc(), (at * depth, row), stage.full)
                    ptx.tma.load(stage.b, B.tma_desc(), (at * depth, column), stage.full)
                    ptx.tma.load(stage.d, D.tma_desc(), (at * depth, column), stage.full)
        for me in each_consumer(warpgroup, consumers):
            state = ring.consumer_state()
            gate, value = (wgmma_accumulators(rows, columns, zero=True) for _ in range(2))
            for _ in ptx.range(count):
                stage = ring.consumer_wait(state)
                mine = stage.a.rows(me * rows, rows)
                wgmma_stage(gate, mine, stage.b)
                wgmma_stage(value, mine, stage.d)
                ptx.wgmma.wait_group(0)
                ring.consumer_release(state.index)
                ring.advance(state)
            for one, two in zip(gate[0], value[0], strict=True):
                power = reg.scalar(f32)
                ptx.inst.ex2.approx.f32(power, one * -LOG2_E)
                ptx.inst.rcp.approx.f32(power, power + 1.0)
                two.set(one * power * two)
            store_accumulators(value, C, row + me * rows, column)

    return program
