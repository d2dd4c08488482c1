"""Further kernels over tiles, predicted before they ran: queues, transposes, copies by TMA, products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from warploom.collective import WARPGROUP, TmaPipeline, each_consumer, producer, warpgroup_index
from warploom.collective.epilogue.direct_store import store_accumulators
from warploom.collective.mma.wgmma import wgmma_accumulators, wgmma_stage
from warploom.lang import Kernel, Tile, kernel, ptx, reg, smem, tiles
from warploom.types import bf16, f32, u32, u64

from .case import Array, Case
from .elementwise import MILLION


def tiles_from_a_queue(ctas: int) -> Kernel:
    """Persistent CTAs take blocks of 4 KiB from an atomic counter and square them."""
    threads, piece = 256, 1024

    @kernel(in_specs=(Tile("N", f32, multiple=(piece,)), Tile(1, u32, inout=True)), out_specs=(Tile("N", f32),),
            grid=(ctas,), block=threads, arch="sm_90a")  # fmt: skip
    def program(X, Counter, Y):
        (n,) = X.shape
        x, counter, y = ptx.global_ptrs(X, Counter, Y)
        next_one = smem.array(u32, 1)
        thread = ptx.special.tid.x()
        pieces = n // piece
        mine = ptx.special.ctaid.x().copy()
        with ptx.while_(lambda: mine < pieces):
            place = (mine * piece + thread * 4).to(u64) * 4
            ptx.store(ptx.addr(y + place), [value * value for value in ptx.load(f32, ptx.addr(x + place), vector=4)])
            with ptx.if_(thread == 0):
                ptx.store(next_one[0], ptx.atomic.inc(ptx.addr(counter), pieces - 1) + ctas)
            ptx.bar.sync(0)
            mine.set(ptx.load(u32, next_one[0]))
            ptx.bar.sync(0)

    return program


def transposed_halves() -> Kernel:
    """bf16 by tiles of 64 x 64 in shared memory without padding, two elements per lane when reading, one when
    writing."""
    side = 64

    @kernel(
        in_specs=(Tile("M", "N", bf16, multiple=(side, side)),), out_specs=(Tile("N", "M", bf16),),
        grid=(tiles("N", side), tiles("M", side)), block=(32, 8), arch="sm_90a",
    )  # fmt: skip
    def program(X, Y):
        m, n = X.shape
        x, y = ptx.global_ptrs(X, Y)
        piece = smem.array(u32, (side, side // 2))
        across, down = ptx.special.tid.x(), ptx.special.tid.y()
        left, top = ptx.special.ctaid.x() * side, ptx.special.ctaid.y() * side
        for i in range(0, side, 8):
            source = (top + down + i).to(u64) * n + left + across * 2
            ptx.store(piece[down + i, across], ptx.load(u32, ptx.addr(x + source * 2)))
        ptx.bar.sync(0)
        for i in range(0, side, 8):
            column = down + i
            low, high = ptx.load(u32, piece[across * 2, column // 2]), ptx.load(u32, piece[across * 2 + 1, column // 2])
            shift = (column & 1) * 16
            both = ((low >> shift) & 0xFFFF) | ((high >> shift) << 16)
            ptx.store(ptx.addr(y + ((left + column).to(u64) * m + top + across * 2) * 2), both)

    return program


def ampere_product() -> Kernel:
    """mma.sync from a ring of three stages filled by cp.async, tiles of 128 x 64, 64 deep, XOR swizzle."""
    rows, columns, depth, stages, threads = 128, 64, 64, 3, 128

    @kernel(
        in_specs=(Tile("M", "K", bf16, multiple=(rows, depth)), Tile("N", "K", bf16, multiple=(columns, depth))),
        out_specs=(Tile("M", "N", f32),), grid=(tiles("N", columns), tiles("M", rows)), block=threads, arch="sm_90a",
    )  # fmt: skip
    def program(A, B, C):
        left, right = (
            smem.array(bf16, (stages, rows, depth), align=128),
            smem.array(bf16, (stages, columns, depth), align=128),
        )
        _, k = A.shape
        _, n = C.shape
        a, b, c = ptx.global_ptrs(A, B, C)
        thread = ptx.special.tid.x()
        top, side = ptx.special.ctaid.y() * rows, ptx.special.ctaid.x() * columns
        count = k // depth

        def start(stage: Any, at: Any) -> None:
            with ptx.if_(at < count):
                for shared, pointer, first, many in ((left, a, top, rows), (right, b, side, columns)):
                    for piece in range(0, many * 8, threads):
                        row, chunk = (thread + piece) // 8, (thread + piece) % 8
                        source = ((first + row).to(u64) * k + at * depth + chunk * 8) * 2
                        ptx.cp.async_.cg(shared[stage, row, (chunk ^ (row & 7)) * 8], ptx.addr(pointer + source))
            ptx.cp.async_.commit_group()

        warp, lane = thread // 32, thread % 32
        sums = [[reg.array(f32, 4, init=0.0) for _ in range(8)] for _ in range(2)]
        zero = (thread * 0).copy()
        start(0, zero)
        start(1, zero + 1)
        for at in ptx.range(count):
            stage = at % stages
            ptx.cp.async_.wait_group(1)
            ptx.bar.sync(0)
            start((at + 2) % stages, at + 2)
            for inner in range(4):

                def of(shared: Any, row: Any, chunk: Any) -> Any:
                    return ptx.ldmatrix(shared[stage, row, (chunk ^ (row & 7)) * 8])  # noqa: B023 - used at once

                one = [of(left, warp * 32 + i * 16 + lane % 16, inner * 2 + lane // 16) for i in range(2)]
                two = [of(right, i * 16 + lane // 16 * 8 + lane % 8, inner * 2 + lane // 8 % 2) for i in range(4)]
                for i in range(2):
                    for j in range(8):
                        ptx.mma_sync(shape=(16, 8, 16), dtype_d=f32, dtype_a=bf16, dtype_b=bf16, d=sums[i][j], a=one[i],
                                     b=two[j // 2][j % 2 * 2 : j % 2 * 2 + 2])  # fmt: skip
        for i in range(2):
            for j in range(8):
                for half in range(2):
                    row = top + warp * 32 + i * 16 + lane // 4 + half * 8
                    column = side + j * 8 + lane % 4 * 2
                    place = (row.to(u64) * n + column) * 4
                    ptx.store(ptx.addr(c + place), [sums[i][j][2 * half], sums[i][j][2 * half + 1]])

    return program


def narrow_product(columns: int, stages: int, dtype: Any = bf16) -> Kernel:
    """wgmma of 64 x `columns`, 128 bytes of k per stage, from a ring that a warp fills by TMA; many CTAs per SM."""
    rows, depth = 64, 128 // dtype.bytes

    @kernel(
        in_specs=(Tile("M", "K", dtype, box=(depth, rows), swizzle="128B"),
                  Tile("N", "K", dtype, box=(depth, columns), swizzle="128B")),
        out_specs=(Tile("M", "N", bf16, multiple=(1, 8)),), grid=(tiles("N", columns), tiles("M", rows)),
        block=2 * WARPGROUP, arch="sm_90a",
    )  # fmt: skip
    def program(A, B, C):
        a = smem.wgmma_tile(dtype, (rows, depth), stages=stages)
        b = smem.wgmma_tile(dtype, (columns, depth), stages=stages)
        ring = TmaPipeline(stages=stages, consumers=1, every_thread=True, a=a, b=b)
        ring.initialise()
        _, k = A.shape
        count, warpgroup = k // depth, warpgroup_index()
        row, column = ptx.special.ctaid.y() * rows, ptx.special.ctaid.x() * columns
        with producer(warpgroup):
            state = ring.producer_state()
            for at in ptx.range(count):
                with ring.produce(state) as stage:
                    ptx.tma.load(stage.a, A.tma_desc(), (at * depth, row), stage.full)
                    ptx.tma.load(stage.b, B.tma_desc(), (at * depth, column), stage.full)
        for _ in each_consumer(warpgroup, 1):
            state, acc = ring.consumer_state(), wgmma_accumulators(rows, columns, zero=True)
            for _ in ptx.range(count):
                stage = ring.consumer_wait(state)
                wgmma_stage(acc, stage.a, stage.b)
                ptx.wgmma.wait_group(0)
                ring.consumer_release(state.index)
                ring.advance(state)
            store_accumulators(acc, C, row, column)

    return program


def box_copies(rows: int, ctas: int, stages: int) -> Kernel:
    """Y = X by TMA, boxes of `rows` x 64 bf16, two warps: one loads, the other stores."""

    @kernel(
        in_specs=(Tile("M", "N", bf16, box=(64, rows), multiple=(rows, 64)),),
        out_specs=(Tile("M", "N", bf16, box=(64, rows)),), grid=(ctas,), block=64, arch="sm_90a",
    )  # fmt: skip
    def program(X, Y):
        m, n = X.shape
        ring = smem.array(bf16, (stages, rows, 64), align=128)
        full, empty = smem.mbarrier(stages), smem.mbarrier(stages)
        thread, cta = ptx.special.tid.x(), ptx.special.ctaid.x()
        with ptx.if_(thread == 0):
            for stage in range(stages):
                ptx.mbarrier.init(full[stage], 1)
                ptx.mbarrier.init(empty[stage], 1)
            ptx.fence.mbarrier_init()
        ptx.bar.sync(0)
        wide = n // 64
        count = m // rows * wide
        with ptx.if_(thread == 0):
            turn = reg.scalar(u32, init=0)
            for at in ptx.range(cta, count, ctas, dtype=u32):
                stage = turn % stages
                ptx.mbarrier.wait(empty[stage], turn // stages & 1 ^ 1)
                ptx.mbarrier.arrive_expect_tx(full[stage], rows * 128)
                ptx.cp.async_.bulk.tensor_2d(
                    ring[stage, 0, 0], X.tma_desc(), (at % wide * 64, at // wide * rows), full[stage]
                )
                turn.set(turn + 1)
        with ptx.elif_(lambda: thread == 32):
            turn = reg.scalar(u32, init=0)
            for at in ptx.range(cta, count, ctas, dtype=u32):
                stage = turn % stages
                ptx.mbarrier.wait(full[stage], turn // stages & 1)
                ptx.cp.async_.bulk.tensor_store(Y.tma_desc(), ring[stage, 0, 0], (at % wide * 64, at // wide * rows))
                ptx.cp.async_.bulk.commit_group()
                ptx.cp.async_.bulk.wait_group_read(0)
                ptx.mbarrier.arrive(empty[stage])
                turn.set(turn + 1)
            ptx.cp.async_.bulk.wait_group(0)

    return program


def cases(million: int = MILLION) -> Iterator[Case]:
    whole = million == MILLION
    sms, side, size = (132, 8192, 4096) if whole else (2, 128, 128)

    def halves(rows: int, columns: int, fill: str = "normal") -> tuple[Array, ...]:
        return (Array((rows, columns), bf16, fill),)

    floats = Array((32 * million,), f32), Array((32 * million,), f32, "zeros")
    yield Case("tiles_from_a_queue", "persistent", lambda: tiles_from_a_queue(4 * sms),
               (floats[0], Array((1,), u32, "zeros")), floats[1:])  # fmt: skip
    yield Case("transposed_halves", "transpose", transposed_halves, halves(side, side), halves(side, side, "zeros"))
    for box, ctas, stages in ((128, sms, 8), (16, 2 * sms, 6)):
        yield Case(f"box_copies_{box}_rows", "pipeline",
                   lambda box=box, ctas=ctas, stages=stages: box_copies(box, ctas, stages),
                   halves(side, side // 2), halves(side, side // 2, "zeros"))  # fmt: skip
    square = halves(size, size)
    yield Case("swizzled_ampere_product", "product", ampere_product, square * 2, (Array((size, size), f32, "zeros"),),
               flops=2.0 * size**3)  # fmt: skip
    for columns, stages in ((32, 4), (128, 3)):
        yield Case(f"narrow_product_{columns}", "product",
                   lambda columns=columns, stages=stages: narrow_product(columns, stages),
                   halves(size // 2, size) + square, halves(size // 2, size, "zeros"), flops=1.0 * size**3)  # fmt: skip
