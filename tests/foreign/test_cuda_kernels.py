"""CUDA C++ kernels of our own, as nvcc compiles them: products, copies, clusters, rows, whole grids."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

from tests.foreign.compile_cuda import TARGETS, compiled, find_nvcc
from tests.foreign.cuda_texts import run, targets_of, text
from tests.thinning import SCHEDULES
from warploom.runtime.tensor_map import TensorMap

schedules = pytest.mark.parametrize("schedule, seed", [("lazy", 0), *SCHEDULES])


@pytest.mark.slow
@pytest.mark.parametrize("name, target", [(name, target) for name, targets in TARGETS.items() for target in targets])
def test_the_texts_are_what_nvcc_makes_of_the_sources(name: str, target: str) -> None:
    """Where the nvcc is that made them: another version's text differs, and says so in its head."""
    found = find_nvcc()
    if found is None:
        pytest.skip("no nvcc with libcu++'s headers here")
    made, stored = compiled(name, target, *found), text(name, target)
    if head(made) != head(stored):
        pytest.skip("another version of nvcc")
    assert without_folder(made) == without_folder(stored)


def without_folder(ptx: str) -> str:
    """The text without the hash of the source's folder that nvcc puts into internal names."""
    return re.sub(r"(?<=_INTERNAL_)[0-9a-f]{8}|(?<=_GLOBAL__N__)[0-9a-f]{8}", "folder", ptx)


def head(ptx: str) -> str:
    return ptx.split(".version")[0]


def normal(*shape: int, dtype: object = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.sample(2, all=2)
@pytest.mark.parametrize("m, n, k", [(64, 64, 16), (70, 131, 37), (1, 1, 1)])
@pytest.mark.parametrize("entry, dtype, tile", [("single", np.float32, 64), ("twofold", np.float64, 32)])
def test_tiled_product_on_cuda_cores(entry: str, dtype: type, tile: int, m: int, n: int, k: int) -> None:
    a, b, c = normal(m, k, dtype=dtype), normal(k, n, dtype=dtype, seed=1), normal(m, n, dtype=dtype, seed=2)
    expected = 1.5 * (a.astype(float) @ b.astype(float)) - 0.5 * c
    grid = (-(-n // tile), -(-m // tile), 1)
    run("simt_gemm", "sm_80", entry, a, b, c, m, n, k, dtype(1.5), dtype(-0.5), grid=grid, block=256)
    np.testing.assert_allclose(c, expected, rtol=1e-5 if dtype is np.float32 else 1e-13, atol=1e-5)


@pytest.mark.sample(1, full=4)
@schedules
@pytest.mark.parametrize("entry, dtype", [("gemm_bf16", ml_dtypes.bfloat16), ("gemm_f16", np.float16)])
def test_product_with_cp_async_and_mma(entry: str, dtype: type, schedule: str, seed: int) -> None:
    m, n, k = 100, 72, 168
    a, b, c = normal(m, k, dtype=dtype), normal(n, k, dtype=dtype, seed=1), np.full((m, n), np.nan, np.float32)
    grid = (-(-n // 64), -(-m // 64), 1)
    run("ampere_gemm", "sm_80", entry, a, b, c, m, n, k, grid=grid, block=128, schedule=schedule, seed=seed)
    np.testing.assert_allclose(c, a.astype(float) @ b.astype(float).T, rtol=1e-5, atol=1e-4)


@pytest.mark.sample(2, full=4)
@schedules
@pytest.mark.parametrize("k_tiles", [1, 5])
def test_product_with_tma_and_wgmma(k_tiles: int, schedule: str, seed: int) -> None:
    m, n, k = 104, 200, 64 * k_tiles - 8
    a = normal(m, k, dtype=ml_dtypes.bfloat16)
    b = normal(n, k, dtype=ml_dtypes.bfloat16, seed=1)
    c = np.zeros((m, n), ml_dtypes.bfloat16)
    maps = [TensorMap.tiled(x, box=(64, rows), swizzle="128B") for x, rows in ((a, 64), (b, 128), (c, 64))]
    shared = 3 * (64 + 128) * 64 * 2 + 2 * 64 * 64 * 2 + 1024
    run("hopper_gemm", "sm_90a", "gemm", *maps, k_tiles, grid=(2, 2, 1), block=256, dynamic_smem=shared,
        schedule=schedule, seed=seed)  # fmt: skip
    np.testing.assert_allclose(c.astype(float), a.astype(float) @ b.astype(float).T, rtol=2**-8, atol=1e-3)


# -- barriers and pipelines of libcu++ ---------------------------------------------------------------------------


@targets_of("barriers")
@pytest.mark.sample(2, full=4)
@schedules
def test_a_cuda_barrier_hands_buffers_over(target: str, schedule: str, seed: int) -> None:
    values, sums = normal(5, 128), np.zeros(128, np.float32)
    run("barriers", target, "handed_over", values, sums, 5, block=160, schedule=schedule, seed=seed)
    np.testing.assert_allclose(sums, values.sum(0), rtol=1e-5, atol=1e-6)


@targets_of("barriers")
@pytest.mark.sample(2, full=4)
@schedules
def test_a_cuda_pipeline_of_the_whole_block(target: str, schedule: str, seed: int) -> None:
    values, out = normal(5, 64), np.zeros((5, 64), np.float32)
    run("barriers", target, "piped", values, out, 5, block=64, dynamic_smem=2 * 64 * 4, schedule=schedule, seed=seed)
    assert np.array_equal(out, 2 * values[:, ::-1])


@targets_of("barriers")
@pytest.mark.sample(2, full=4)
@schedules
def test_a_cuda_pipeline_with_a_producer_and_consumers(target: str, schedule: str, seed: int) -> None:
    values, out = normal(7, 32, 4), np.zeros((7, 32, 4), np.float32)
    run("barriers", target, "roles", values, out, 7, block=96, schedule=schedule, seed=seed)
    assert np.array_equal(out, values[:, :, ::-1])


@targets_of("barriers")
@pytest.mark.sample(2, full=4)
@schedules
def test_a_thread_s_own_pipeline_and_a_copy_on_a_barrier(target: str, schedule: str, seed: int) -> None:
    values, out = np.arange(128, dtype=np.int32), np.zeros(64, np.int32)
    run("barriers", target, "own", values, out, block=64, schedule=schedule, seed=seed)
    assert np.array_equal(out, values[:64] + 1000 * values[:63:-1])


# -- clusters ----------------------------------------------------------------------------------------------------


@pytest.mark.sample(2, full=4)
@schedules
def test_a_histogram_spread_over_a_cluster(schedule: str, seed: int) -> None:
    values = np.random.default_rng(0).integers(0, 256, 3000, dtype=np.int32)
    bins = np.zeros(256, np.int32)
    run("cluster", "sm_90a", "histogram", values, values.size, bins, grid=(4, 1, 1), block=128, schedule=schedule,
        seed=seed)  # fmt: skip
    assert np.array_equal(bins, np.bincount(values, minlength=256))


@pytest.mark.sample(2, full=4)
@schedules
def test_each_cta_of_a_cluster_writes_its_neighbour(schedule: str, seed: int) -> None:
    values, out = np.arange(4 * 64, dtype=np.float32), np.zeros(4 * 64, np.float32)
    run(
        "cluster",
        "sm_90a",
        "ring",
        values,
        out,
        grid=(2, 2, 1),
        block=64,
        dynamic_smem=256,
        schedule=schedule,
        seed=seed,
        known=frozenset({"cta-may-not-have-started"}),  # it really does not wait for its neighbour before it writes
    )
    received = np.roll(values.reshape(4, 64), 1, axis=0)
    largest = np.repeat(received.reshape(4, 2, 32).max(-1), 32, axis=-1)
    assert np.array_equal(out.reshape(4, 64), values.reshape(4, 64) + 100 * received + 10000 * largest)


# -- rows --------------------------------------------------------------------------------------------------------


@targets_of("rows")
@pytest.mark.parametrize("columns", [1, 100, 777])
def test_softmax(target: str, columns: int) -> None:
    values, out = 4 * normal(3, columns), np.zeros((3, columns), np.float32)
    run("rows", target, "softmax", values, out, columns, grid=(3, 1, 1), block=128)
    powers = np.exp(values.astype(float) - values.max(1, keepdims=True))
    np.testing.assert_allclose(out, powers / powers.sum(1, keepdims=True), rtol=1e-5)


@targets_of("rows")
def test_layer_norm(target: str) -> None:
    rows, columns = 6, 200
    values, out = normal(rows, columns, dtype=np.float16), np.zeros((rows, columns), np.float16)
    weight, bias = normal(columns, seed=1), normal(columns, seed=2)
    run(
        "rows",
        target,
        "layer_norm",
        values,
        weight,
        bias,
        out,
        rows,
        columns,
        np.float32(1e-5),
        grid=(2, 1, 1),
        block=128,
    )
    exact = values.astype(float)
    expected = (exact - exact.mean(1, keepdims=True)) / np.sqrt(exact.var(1, keepdims=True) + 1e-5) * weight + bias
    np.testing.assert_allclose(out.astype(float), expected, rtol=2**-10, atol=1e-3)


# -- grids -------------------------------------------------------------------------------------------------------


@targets_of("grid")
@pytest.mark.sample(2, full=4)
@schedules
def test_the_last_block_adds_up_what_all_have_written(target: str, schedule: str, seed: int) -> None:
    values = normal(5000)
    parts, done, result = np.zeros(7, np.float32), np.zeros(1, np.uint32), np.zeros(1, np.float32)
    run("grid", target, "total", values, values.size, parts, done, result, grid=(7, 1, 1), block=128, schedule=schedule,
        seed=seed)  # fmt: skip
    np.testing.assert_allclose(result, values.astype(float).sum(), rtol=1e-4)
    assert done[0] == 0


@targets_of("grid")
@pytest.mark.sample(2, full=4)
@schedules
def test_a_lock_lets_one_block_in_at_a_time(target: str, schedule: str, seed: int) -> None:
    lock, total, largest, longest = np.zeros(1, np.int32), np.zeros(1), np.zeros(1), np.zeros(1, np.uint64)
    run("grid", target, "locked", lock, total, largest, longest, grid=(5, 1, 1), block=64, schedule=schedule, seed=seed)
    assert total[0] == sum(block * 0.5 + thread for block in range(5) for thread in range(64))
    assert largest[0] == 4 * 0.5 + 1
    assert longest[0] == 4 << 40 | 63


@targets_of("grid")
@pytest.mark.sample(2, full=4)
@schedules
def test_blocks_that_wait_for_the_block_before(target: str, schedule: str, seed: int) -> None:
    values, out, flags = np.arange(6 * 32, dtype=np.int32), np.zeros(6, np.int32), np.zeros(6, np.int32)
    run("grid", target, "chained", values, out, flags, grid=(6, 1, 1), schedule=schedule, seed=seed)
    assert np.array_equal(out, values.reshape(6, 32).sum(1).cumsum())


# -- nvcuda::wmma ------------------------------------------------------------------------------------------------

BF16 = ml_dtypes.bfloat16


@pytest.mark.parametrize(
    "entry, shape, layouts, dtype, out_type",
    [
        ("f16_row_row", (16, 16, 16), "CC", np.float16, np.float32),
        ("f16_row_col", (16, 16, 16), "CF", np.float16, np.float32),
        ("f16_col_row", (16, 16, 16), "FC", np.float16, np.float32),
        ("f16_col_col", (32, 8, 16), "FF", np.float16, np.float32),
        ("f16_wide", (8, 32, 16), "CF", np.float16, np.float16),
        ("bf16_square", (16, 16, 16), "CC", BF16, np.float32),
        ("bf16_tall", (32, 8, 16), "FC", BF16, np.float32),
        ("tf32_square", (16, 16, 8), "CF", np.float32, np.float32),
        ("s8_square", (16, 16, 16), "CF", np.int8, np.int32),
        ("u8_wide", (8, 32, 16), "CC", np.uint8, np.int32),
        ("f64_small", (8, 8, 4), "CF", np.float64, np.float64),
    ],
)
def test_opaque_fragments(entry: str, shape: tuple[int, int, int], layouts: str, dtype: type, out_type: type) -> None:
    """Whole numbers, so that every type is exact; A and B by rows or columns, C with padded rows, D by columns."""
    m, n, k = shape
    random = np.random.default_rng(0)
    low = 0 if dtype is np.uint8 else -7
    a, b = random.integers(low, 8, (m, k)).astype(dtype), random.integers(low, 8, (k, n)).astype(dtype)
    c, d = random.integers(-99, 99, (m, n + 8)).astype(out_type), np.zeros((n, m), out_type)
    stored = [np.ascontiguousarray(x if layout == "C" else x.T) for x, layout in zip((a, b), layouts, strict=True)]
    run("wmma", "sm_80", entry, *stored, c, d)
    assert np.array_equal(d.T.astype(float), 2 * (a.astype(float) @ b.astype(float)) + c[:, :n].astype(float))


@pytest.mark.sample(2, full=4)
@schedules
def test_tiled_product_of_opaque_fragments(schedule: str, seed: int) -> None:
    m, n, k = 128, 64, 80
    a, b, c = normal(m, k, dtype=np.float16), normal(k, n, dtype=np.float16, seed=1), np.zeros((m, n), np.float32)
    run("wmma", "sm_80", "tiled", a, b, c, n, k, grid=(1, 2, 1), block=128, schedule=schedule, seed=seed)
    np.testing.assert_allclose(c, a.astype(float) @ b.astype(float), rtol=1e-5, atol=1e-4)


# -- libraries ---------------------------------------------------------------------------------------------------


@targets_of("library")
@pytest.mark.sample(1, full=4)
@schedules
def test_block_wide_scan_sort_and_reduction_of_cub(target: str, schedule: str, seed: int) -> None:
    random = np.random.default_rng(0)
    values, sums = random.integers(-1000, 1000, 128, dtype=np.int32), np.zeros(128, np.int32)
    keys, items, total = random.integers(0, 300, 512, dtype=np.uint32), np.zeros(512, np.int32), np.zeros(1, np.int64)
    order = np.argsort(keys, kind="stable")
    expected = keys[order]
    run("library", target, "block_wide", values, sums, keys, items, total, block=128, schedule=schedule, seed=seed)
    assert np.array_equal(sums, values.cumsum())
    assert np.array_equal(keys, expected)
    assert np.array_equal(items, order)
    assert total[0] == (values.astype(int) ** 2).sum()


@targets_of("library")
@pytest.mark.sample(2, full=4)
@schedules
def test_all_threads_of_a_grid_wait_for_each_other(target: str, schedule: str, seed: int) -> None:
    count, largest, after = np.zeros(1, np.int32), np.zeros(1, np.float32), np.zeros(3 * 64, np.int32)
    run("library", target, "meet", count, largest, after, grid=(3, 1, 1), block=64, schedule=schedule, seed=seed)
    assert count[0] == 3 * 64
    assert (after == int((2 * 64 + 63 * 0.5) * 2)).all()
