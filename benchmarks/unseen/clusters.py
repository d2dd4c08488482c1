"""Products by mma.sync and wgmma in other tiles than elsewhere, and small kernels on cold data, predicted before they
ran."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from warploom.collective import WARPGROUP, TmaPipeline, each_consumer, producer, warpgroup_index
from warploom.collective.epilogue.direct_store import store_accumulators
from warploom.collective.mma.wgmma import wgmma_accumulators, wgmma_stage
from warploom.collective.tile import cluster as whole_cluster
from warploom.lang import Kernel, Tile, kernel, ptx, smem, tiles
from warploom.types import bf16, f32

from .case import Array, Case
from .elementwise import MILLION, each, gelu, same
from .rows import example, layer_norm, matrix_times_vector
from .texts import case
from .tiles import stencil


def shared_columns(columns: int, stages: int, ctas: int) -> Kernel:
    """wgmma of two consumers with 64 rows each; the CTAs of a cluster lie below each other and load a part of B each,
    by multicast. With one CTA per cluster: without multicast."""
    rows, consumers, depth = 128, 2, 64
    part = columns // ctas
    everyone = (1 << ctas) - 1 if ctas > 1 else None

    @kernel(
        in_specs=(Tile("M", "K", bf16, box=(depth, rows), swizzle="128B"),
                  Tile("N", "K", bf16, box=(depth, part), swizzle="128B")),
        out_specs=(Tile("M", "N", bf16, multiple=(1, 8)),), grid=(tiles("M", rows), tiles("N", columns)),
        block=(1 + consumers) * WARPGROUP, cluster=(ctas, 1, 1), arch="sm_90a",
    )  # fmt: skip
    def program(A, B, C):
        a = smem.wgmma_tile(bf16, (rows, depth), stages=stages)
        b = smem.wgmma_tile(bf16, (columns, depth), stages=stages)
        ring = TmaPipeline(stages=stages, consumers=consumers, ctas=ctas, a=a, b=b)
        ring.initialise()
        _, k = A.shape
        count, warpgroup, rank = k // depth, warpgroup_index(), ptx.special.cluster_ctarank()
        row, column = ptx.special.ctaid.x() * rows, ptx.special.ctaid.y() * columns
        with producer(warpgroup):
            state = ring.producer_state()
            for at in ptx.range(count):
                with ring.produce(state) as stage:
                    ptx.tma.load(stage.a, A.tma_desc(), (at * depth, row), stage.full)
                    ptx.cp.async_.bulk.tensor_2d(
                        stage.b.rows(rank * part, part), B.tma_desc(), (at * depth, column + rank * part), stage.full,
                        multicast=everyone,
                    )  # fmt: skip
        for me in each_consumer(warpgroup, consumers):
            state, acc = ring.consumer_state(), wgmma_accumulators(rows // consumers, columns, zero=True)
            for _ in ptx.range(count):
                stage = ring.consumer_wait(state)
                wgmma_stage(acc, stage.a.rows(me * (rows // consumers), rows // consumers), stage.b)
                ptx.wgmma.wait_group(0)
                ring.consumer_release(state.index)
                ring.advance(state)
            store_accumulators(acc, C, row + me * (rows // consumers), column)
        if ctas > 1:
            whole_cluster.leave()

    return program


def cases(million: int = MILLION) -> Iterator[Case]:
    whole = million == MILLION
    size = 4096 if whole else 512

    def array(dtype: Any, *shape: int, fill: str = "normal") -> Array:
        return Array(shape, dtype, fill)

    for columns, stages, ctas, n in ((160, 5, 1, 2560), (192, 5, 2, 3072), (224, 4, 4, 3584)):
        n = n if whole else columns
        m = size if whole else 128 * ctas
        yield Case(f"product_of_{columns}_columns_in_clusters_of_{ctas}", "product",
                   lambda columns=columns, stages=stages, ctas=ctas: shared_columns(columns, stages, ctas),
                   (array(bf16, m, size), array(bf16, n, size)), (array(bf16, m, n, fill="zeros"),),
                   flops=2.0 * m * n * size)  # fmt: skip
    for entry, (rows, columns, depth, stages, threads), (m, n, k), splits in (
        ("four_stages", (128, 256, 32, 4, 256), (2048, 4096, 2048), 1),
        ("two_stages", (64, 64, 32, 2, 128), (1024, 1024, 1024), 1),
        ("split", (32, 128, 64, 3, 128), (32, 8192, 4096), 8),
        ("split", (32, 128, 64, 3, 128), (32, 65536, 512), 1),  # as many additions, each to a place of its own
    ):
        m, n, k = (m, n, k) if whole else (rows, columns, 4 * depth * splits)
        name = "nvcc_split_in_one" if (entry, splits) == ("split", 1) else f"nvcc_{entry}"
        yield case(name, "product", "mma", entry, (array(bf16, m, k), array(bf16, n, k)),
                   (array(f32, m, n, fill="zeros"),), (n, k), (n // columns, m // rows, splits), threads,
                   2 * stages * (rows + columns) * (depth + 8), flops=2.0 * m * n * k)  # fmt: skip
    heads, length = (32, 2048) if whole else (1, 128)
    shape = array(bf16, heads, length, 128)
    yield case("nvcc_attended", "attention", "mma", "attended", (shape,) * 3,
               (array(bf16, heads, length, 128, fill="zeros"),), (length,), (length // 64, heads, 1), 128,
               2 * 2 * 64 * 136, flops=4.0 * heads * length * length * 128)  # fmt: skip
    less = million // 1024 if whole else 4
    for thousands, vector, ahead in ((512, 4, 1), (256, 1, 1), (1024, 4, 2)):
        numbers = array(f32, thousands * less), array(f32, thousands * less, fill="zeros")
        body, label = (gelu, "gelu") if vector == 4 else (same, "copy")
        yield Case(f"cold_{label}_of_{thousands}_thousand", "elementwise",
                   lambda body=body, vector=vector, ahead=ahead, label=label: each(
                       body, name=f"cold_{label}", vector=vector, ahead=ahead),
                   numbers[:1], numbers[1:])  # fmt: skip
    side = 1024 if whole else 64
    square = (array(f32, side, side),), (array(f32, side, side, fill="zeros"),)
    yield Case("cold_transpose_1024", "transpose", lambda: example("transpose"), *square)
    yield Case("cold_stencil_1024", "stencil", stencil, *square)
    rows = 512 if whole else 4
    yield Case("cold_layer_norm_512_x_2048", "layer norm", lambda: layer_norm(2048, 256),
               (array(f32, rows, 2048), array(f32, 2048), array(f32, 2048)),
               (array(f32, rows, 2048, fill="zeros"),))  # fmt: skip
    yield Case("cold_matrix_times_vector_1024_x_2048", "matrix times vector", lambda: matrix_times_vector(4),
               (array(f32, side, 2048), array(f32, 2048)), (array(f32, side, fill="zeros"),))  # fmt: skip
