"""Common operators, predicted before they ran: texts of nvcc (`ptx/common.cu`) and five kernels of this package's
language: split-K by atomics, a ring of TMA copies, sums over a cluster, products of bf16 and of e4m3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from warploom.lang import Kernel, Tile, kernel, ptx, reg, smem, tiles
from warploom.types import bf16, e4m3, f16, f32, f64, s8, u8, u32, u64

from .case import Array, Case
from .elementwise import MILLION
from .rings import narrow_product
from .rows import over_the_cta
from .texts import case


def split_k_by_atomics(splits: int) -> Kernel:
    """mma.sync of bf16, tiles of 64 x 64; the CTAs of a tile share k and add their parts in L2."""
    side, depth, threads, stages = 64, 32, 128, 4
    pitch, chunks = depth + 8, depth // 8

    @kernel(
        in_specs=(Tile("M", "K", bf16, multiple=(side, depth * splits)), Tile("N", "K", bf16, multiple=(side, depth))),
        out_specs=(Tile("M", "N", f32),), grid=(tiles("N", side), tiles("M", side), splits), block=threads,
        arch="sm_90a",
    )  # fmt: skip
    def program(A, B, C):
        left, right = (smem.array(bf16, (stages, side, pitch), align=128) for _ in range(2))
        _, k = A.shape
        _, n = C.shape
        a, b, c = ptx.global_ptrs(A, B, C)
        thread = ptx.special.tid.x()
        top, aside = ptx.special.ctaid.y() * side, ptx.special.ctaid.x() * side
        count = k // (depth * splits)
        begin = ptx.special.ctaid.z() * (count * depth)

        def start(stage: Any, at: Any) -> None:
            with ptx.if_(at < count):
                for shared, pointer, first in ((left, a, top), (right, b, aside)):
                    for piece in range(0, side * chunks, threads):
                        row, chunk = (thread + piece) // chunks, (thread + piece) % chunks
                        source = ((first + row).to(u64) * k + (begin + at * depth + chunk * 8).to(u64)) * 2
                        ptx.cp.async_.cg(shared[stage, row, chunk * 8], ptx.addr(pointer + source))
            ptx.cp.async_.commit_group()

        warp, lane = thread // 32, thread % 32
        sums = [[reg.array(f32, 4, init=0.0) for _ in range(4)] for _ in range(2)]
        zero = (thread * 0).copy()
        for stage in range(stages - 1):
            start(zero + stage, zero + stage)
        down, across = warp // 2 * 32, warp % 2 * 32
        for at in ptx.range(count):
            stage = at % stages
            ptx.cp.async_.wait_group(stages - 2)
            ptx.bar.sync(0)
            start((at + (stages - 1)) % stages, at + (stages - 1))
            for inner in range(0, depth, 16):
                one = [ptx.ldmatrix(left[stage, down + i * 16 + lane % 16, inner + lane // 16 * 8]) for i in range(2)]
                two = [
                    ptx.ldmatrix(right[stage, across + i * 16 + lane // 16 * 8 + lane % 8, inner + lane // 8 % 2 * 8])
                    for i in range(2)
                ]
                for i in range(2):
                    for j in range(4):
                        ptx.mma_sync(shape=(16, 8, 16), dtype_d=f32, dtype_a=bf16, dtype_b=bf16, d=sums[i][j], a=one[i],
                                     b=two[j // 2][j % 2 * 2 : j % 2 * 2 + 2])  # fmt: skip
        for i in range(2):
            for j in range(4):
                for part in range(4):
                    row = top + down + i * 16 + lane // 4 + part // 2 * 8
                    column = aside + across + j * 8 + lane % 4 * 2 + part % 2
                    place = (row.to(u64) * n + column.to(u64)) * 4
                    ptx.inst.red.global_.add.f32(ptx.addr(c + place), sums[i][j][part])

    return program


def added_by_boxes(ctas: int, stages: int) -> Kernel:
    """Z = X + Y: one warp loads boxes of both by TMA, four warps add them in shared memory, TMA stores."""
    rows, columns, consumers = 32, 64, 128

    @kernel(
        in_specs=(Tile("M", columns, f32, box=(columns, rows)), Tile("M", columns, f32, box=(columns, rows))),
        out_specs=(Tile("M", columns, f32, box=(columns, rows)),), grid=(ctas,), block=consumers + 32, arch="sm_90a",
    )  # fmt: skip
    def program(X, Y, Z):
        m, _ = X.shape
        one, two = (smem.array(f32, (stages, rows, columns), align=128) for _ in range(2))
        full, empty = smem.mbarrier(stages), smem.mbarrier(stages)
        thread, cta = ptx.special.tid.x(), ptx.special.ctaid.x()
        with ptx.if_(thread == 0):
            for stage in range(stages):
                ptx.mbarrier.init(full[stage], 1)
                ptx.mbarrier.init(empty[stage], 1)
            ptx.fence.mbarrier_init()
        ptx.bar.sync(0)
        count = m // (rows * ctas)
        with ptx.if_(thread == consumers):
            for at in ptx.range(count):
                stage = at % stages
                ptx.mbarrier.wait(empty[stage], at // stages & 1 ^ 1)
                ptx.mbarrier.arrive_expect_tx(full[stage], 2 * rows * columns * 4)
                for array, tile in ((one, X), (two, Y)):
                    ptx.cp.async_.bulk.tensor_2d(
                        array[stage, 0, 0], tile.tma_desc(), (0, (cta + at * ctas) * rows), full[stage]
                    )
        with ptx.elif_(lambda: thread < consumers):
            for at in ptx.range(count):
                stage = at % stages
                ptx.mbarrier.wait(full[stage], at // stages & 1)
                for first in range(0, rows * columns, consumers * 4):
                    row, column = (thread * 4 + first) // columns, (thread * 4 + first) % columns
                    place = one[stage, row, column]
                    other = ptx.load(f32, two[stage, row, column], vector=4)
                    ptx.store(place, [x + y for x, y in zip(ptx.load(f32, place, vector=4), other, strict=True)])
                ptx.fence.proxy_async_shared_cta()
                ptx.bar.sync(1, consumers)
                with ptx.if_(thread == 0):
                    ptx.cp.async_.bulk.tensor_store(Z.tma_desc(), one[stage, 0, 0], (0, (cta + at * ctas) * rows))
                    ptx.cp.async_.bulk.commit_group()
                    ptx.cp.async_.bulk.wait_group_read(0)
                    ptx.mbarrier.arrive(empty[stage])
            with ptx.if_(thread == 0):
                ptx.cp.async_.bulk.wait_group(0)

    return program


def normalised_over_a_cluster(columns: int, cluster: int) -> Kernel:
    """RMS norm of rows that a cluster shares: every CTA sends its sum to all others and waits once."""
    threads = 256
    mine, each = columns // cluster, columns // cluster // threads // 4

    @kernel(
        in_specs=(Tile("M", columns, f32),), out_specs=(Tile("M", columns, f32),), grid=(cluster, "M"), block=threads,
        cluster=(cluster, 1, 1), arch="sm_90a",
    )  # fmt: skip
    def program(X, Y):
        x, y = ptx.global_ptrs(X, Y)
        partial, sums = smem.array(f32, threads // 32), smem.array(f32, cluster)
        thread, rank = ptx.special.tid.x(), ptx.special.cluster_ctarank()
        first = ptx.special.ctaid.y() * columns + ptx.special.ctaid.x() * mine + thread * 4
        place = first.to(u64) * 4
        fours = [ptx.load(f32, ptx.addr(x + place, i * threads * 16), vector=4) for i in range(each)]
        ptx.cluster.sync()  # all CTAs of the cluster run
        total = reg.scalar(f32, init=0.0)
        for four in fours:
            for value in four:
                ptx.inst.fma.rn.f32(total, value, value, total)
        over_the_cta(partial, total, threads)
        with ptx.if_(thread < cluster):
            ptx.inst("st.shared::cluster.f32", ptx.addr(ptx.cluster.map_shared(sums[rank], thread)), total)
        ptx.cluster.sync()
        of_all = reg.scalar(f32, init=0.0)
        for other in range(cluster):
            of_all += ptx.load(f32, sums[other])
        scale = reg.scalar(f32)
        ptx.inst.rsqrt.approx.f32(scale, of_all * (1.0 / columns) + 1e-6)
        for i, four in enumerate(fours):
            ptx.store(ptx.addr(y + place, i * threads * 16), [value * scale for value in four])

    return program


def cases(million: int = MILLION) -> Iterator[Case]:
    yield from texts(million)
    whole = million == MILLION
    sms, size = (132, 4096) if whole else (2, 128)

    def made(dtype: Any, *shape: int, fill: str | int = "normal") -> tuple[Array, ...]:
        return (Array(shape, dtype, fill),)

    rows, k = (512, 16384) if whole else (64, 256)
    yield Case("split_k_by_atomics_8", "product", lambda: split_k_by_atomics(8), made(bf16, rows, k) * 2,
               made(f32, rows, rows, fill="zeros"), flops=2.0 * rows * rows * k)  # fmt: skip
    yield Case("added_by_boxes", "pipeline", lambda: added_by_boxes(sms, 4), made(f32, 32 * sms * 64, 64) * 2,
               made(f32, 32 * sms * 64, 64, fill="zeros"))  # fmt: skip
    many = 1024 if whole else 2
    yield Case("normalised_over_a_cluster_of_4", "cluster", lambda: normalised_over_a_cluster(16384, 4),
               made(f32, many, 16384), made(f32, many, 16384, fill="zeros"))  # fmt: skip
    for dtype, wide in ((bf16, 256), (e4m3, 128)):
        yield Case(f"plain_product_{dtype.name}_{wide}", "product",
                   lambda dtype=dtype, wide=wide: narrow_product(wide if whole else 64, 3, dtype),
                   made(dtype, size, size) * 2, made(bf16, size, size, fill="zeros"), flops=2.0 * size**3)  # fmt: skip


def texts(million: int) -> Iterator[Case]:
    whole = million == MILLION

    def floats(*shape: int) -> tuple[Array, ...]:
        return (Array(shape, f32),)

    def out(*shape: int, dtype: Any = f32) -> tuple[Array, ...]:
        return (Array(shape, dtype, "zeros"),)

    rows, each = (65536, 256) if whole else (16, 64)
    yield case("nvcc_common_sparse_rows", "gather", "common", "sparse_rows",
               (Array((rows, each), u32, rows), *floats(rows, each), *floats(rows)), out(rows), (rows, each),
               (rows // 8, 1, 1), 256)  # fmt: skip
    rows, columns = (8192, 4096) if whole else (64, 64)
    yield case("nvcc_column_statistics", "reduction", "common", "column_statistics", floats(rows, columns),
               out(columns) * 2, (rows, columns), (columns // 32, 16 if whole else 2, 1), (32, 8))  # fmt: skip
    count = 8 * million
    doubles = Array((count,), f64), Array((count,), f64)
    yield case("nvcc_dot_of_doubles", "reduction", "common", "dot_of_doubles", doubles, out(1, dtype=f64), (count,),
               (1056 if whole else 4, 1, 1), 256)  # fmt: skip
    words = Array((4 * count,), u32, 1 << 31)
    yield case("nvcc_byte_histogram", "atomics", "common", "byte_histogram", (words,), out(256, dtype=u32), (count,),
               (1056 if whole else 4, 1, 1), 256)  # fmt: skip
    side = 4096 if whole else 64
    yield case("nvcc_heat", "stencil", "common", "heat", floats(side, side), out(side, side), (side,),
               (side // 32, side // 32, 1), (32, 8))  # fmt: skip
    few = million
    yield case("nvcc_modular_powers", "integers", "common", "modular_powers", (Array((few,), u32, 998244353),),
               out(few, dtype=u32), (998244353, 998244351, 256 if whole else 8), (few // 256, 1, 1), 256)  # fmt: skip
    yield case("nvcc_hash_rounds", "integers", "common", "hash_rounds", (Array((few, 4), u32, 1 << 31),),
               out(few, 4, dtype=u32), (512 if whole else 8,), (few // 256, 1, 1), 256)  # fmt: skip
    tokens = 8192 if whole else 8
    yield case("nvcc_quantise_rows", "elementwise", "common", "quantise_rows", (Array((tokens, 4096), bf16),),
               (Array((tokens, 4096), s8, "zeros"), *out(tokens)), (), (tokens, 1, 1), 256)  # fmt: skip
    positions, heads = (4096, 32) if whole else (8, 8)
    yield case("nvcc_rotary", "elementwise", "common", "rotary",
               (Array((positions, heads, 128), f16), *floats(positions, 64, 2)), out(positions, heads, 128, dtype=f16),
               (heads,), (positions, 1, 1), 256)  # fmt: skip
    wide, k = (16384, 8192) if whole else (16, 1024)
    packed = Array((wide, k // 2), u8, 256), Array((wide, k // 128), f16), Array((k,), f16)
    yield case("nvcc_four_bit_rows", "matrix times vector", "common", "four_bit_rows", packed, out(wide), (k,),
               (wide // 8, 1, 1), 256)  # fmt: skip
    length, channels = (4096, 4096) if whole else (128, 256)
    yield case("nvcc_causal_taps", "stencil", "common", "causal_taps", floats(length, channels) + floats(channels, 4),
               out(length, channels), (length, channels), (channels // 256, length // 64, 1), 256)  # fmt: skip
    yield case("nvcc_doubling_scan", "scan", "common", "doubling_scan", floats(8 * million), out(8 * million), (),
               (8 * million // 512, 1, 1), 512)  # fmt: skip
    points = 8 * million
    yield case("nvcc_apart", "elementwise", "common", "apart", floats(points, 3), out(points) * 4, (points,),
               (points // 256, 1, 1), 256)  # fmt: skip
