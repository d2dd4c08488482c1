"""The 2:4 sparse product: stored elements and layout of metadata, right and clean, mutants found."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from examples.hopper.sparse import Config, Metadata, build
from examples.hopper.sparse_operand import compress, group_of, prune
from tests.errors import refused
from warploom.driver import toolchain
from warploom.errors import WarploomError
from warploom.lang import Kernel, ptx
from warploom.runtime.machine import H200
from warploom.types import DType, bf16, e4m3, e5m2, f16, f32, s8, tf32

SCHEDULES = (("lazy", 0), ("eager", 0), ("random", 1), ("starve", 0), ("starve", 1))
SMS = 2
"""Multiprocessors of the emulated machine: a CTA has several tiles."""
SMALL = Config(tile_n=64, stages=2, epi_stages=1, ctas=1, out=f32)
PAIR = replace(SMALL, ctas=2)
EXPECTED = "out of bf16, f32, 1 or 2 CTAs, tile_n a multiple of 8 times the CTAs to 192"
TYPES = (bf16, f16, tf32, e4m3, e5m2)


def operands(dtype: DType, m: int, n: int, k: int, whole: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """A, pruned, and B: small whole numbers, whose sums are exact, or normal ones."""
    draw = np.random.default_rng(0)
    make = (lambda shape: draw.integers(-2, 3, shape)) if whole else draw.standard_normal
    size, _ = group_of(dtype)
    a = np.zeros((m, -(-k // size) * size), dtype.numpy)
    a[:, :k] = make((m, k)).astype(dtype.numpy)
    return np.ascontiguousarray(prune(a, dtype)[:, :k]), make((n, k)).astype(dtype.numpy)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(np.float64) @ b.astype(np.float64).T


# -- the operand -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [bf16, f16], ids=str)
def test_each_thread_holds_the_bits_that_the_isa_gives_it(dtype: DType):
    """Figures of PTX ISA 9.7.15.6.1, read thread by thread: threads 2s and 2s + 1 of four hold 32 s to 32 s + 31."""
    a, _ = operands(dtype, 70, 8, 192)
    found = compress(a, dtype)
    words = found.metadata.reshape(8, 3, 128)
    padded = np.zeros((512, 192), dtype.numpy)
    padded[:70] = a
    whole = np.zeros((512, 192), np.float32)
    stored = np.zeros((512, 96), np.float32)
    stored[:70] = found.values
    for block, k_tile, thread, half, group in np.ndindex(8, 3, 128, 2, 4):
        code = int(words[block, k_tile, thread]) >> (16 * half + 4 * group) & 15
        row = 64 * block + 16 * (thread // 32) + thread % 32 // 4 + 8 * half
        first = 64 * k_tile + 16 * (thread % 4) + 4 * group
        low, high = code & 3, code >> 2
        assert low < high
        whole[row, first + low], whole[row, first + high] = stored[row, first // 2], stored[row, first // 2 + 1]
    np.testing.assert_array_equal(whole, padded.astype(np.float32))


def test_pruning_keeps_the_largest():
    a = np.array([[1, -3, 2, 0.5, 0, 0, 7, -7]], np.float16)
    np.testing.assert_array_equal(prune(a, f16), [[0, -3, 2, 0, 0, 0, 7, -7]])
    np.testing.assert_array_equal(prune(a.astype(np.float32), tf32), [[0, -3, 2, 0, 0, 0, 0, -7]])


def test_what_cannot_be_compressed_or_built_is_said():
    with refused("argument", expected="at most 2 of 4"):
        compress(np.ones((3, 8), np.float16), f16)
    with refused("argument", expected="(M, K) of bf16"):
        compress(np.ones((3, 8), np.float16), bf16)
    with refused("argument", expected="bf16, f16, tf32, e4m3, e5m2"):
        build(replace(SMALL, a=s8))
    with refused("argument", expected="(N, 8)"):
        compress(np.zeros((3, 8), np.float16), f16).arguments(np.zeros((4, 16), np.float16))
    for wrong in (replace(SMALL, tile_n=200), replace(SMALL, ctas=2, tile_n=72), replace(SMALL, out=f16)):
        with refused("argument", expected=EXPECTED):
            build(wrong)


# -- the product -----------------------------------------------------------------------------------------------------


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("schedule, seed", SCHEDULES)
@pytest.mark.parametrize("config", [SMALL, PAIR, Config()], ids=["one", "two", "shipped"])
def test_it_is_exact_and_clean_under_every_schedule(config: Config, schedule: str, seed: int):
    a, b = operands(bf16, 300, 200, 328)
    report = build(config).emulate(*compress(a, bf16).arguments(b), schedule=schedule, seed=seed,
                                   machine=H200(sms=SMS))  # fmt: skip
    assert report.ok and "generic-access-before-async-write" not in {one.rule for one in report.findings}
    np.testing.assert_array_equal(report.outputs[0].astype(np.float64), product(a, b).astype(config.out.numpy))


@pytest.mark.sample(2, full=5)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_every_type(dtype: DType):
    a, b = operands(dtype, 130, 72, 400)
    report = build(replace(SMALL, a=dtype)).emulate(*compress(a, dtype).arguments(b), machine=H200(sms=SMS))
    assert report.ok
    np.testing.assert_array_equal(report.outputs[0], product(a, b))


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("m, n, k", [(1, 8, 8), (257, 8, 64), (64, 264, 72), (512, 64, 200)])
def test_the_smallest_and_the_oddest_sizes(m: int, n: int, k: int):
    for config in (SMALL, Config()):
        a, b = operands(bf16, m, n, k)
        report = build(config).emulate(*compress(a, bf16).arguments(b), machine=H200(sms=SMS))
        assert report.ok
        np.testing.assert_array_equal(report.outputs[0], product(a, b).astype(config.out.numpy))


def test_it_needs_half_of_the_instructions_and_of_the_bytes_of_a():
    a, b = operands(bf16, 256, 64, 512)
    counters = build(SMALL).emulate(*compress(a, bf16).arguments(b), machine=H200(sms=1)).counters
    k_tiles = 512 // 64
    assert counters.matrix["wgmma"] == 4 * 2 * k_tiles
    assert counters.tma_load_bytes == k_tiles * (256 * 64 + 4 * 512 + 64 * 128)


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("config", [Config(), SMALL, replace(SMALL, a=e4m3)], ids=["shipped", "narrow", "bytes"])
def test_it_is_built_without_spills_and_remarks(config: Config):
    if toolchain.ptxas() is None:
        pytest.skip("no ptxas here")
    resources = build(config).resources()
    assert (resources.spills, resources.stack, resources.notes) == (0, 0, ())


# -- mutants ---------------------------------------------------------------------------------------------------------


def findings(kernel: Kernel, **options: Any) -> set[str]:
    """Rules and codes of what is found in a kernel on a ring that wraps around three times, whatever the schedule."""
    a, b = operands(bf16, 512, 64, 384)
    found: set[str] = set()
    for schedule, seed in SCHEDULES:
        try:
            report = kernel.emulate(*compress(a, bf16).arguments(b), schedule=schedule, seed=seed,
                                    machine=H200(sms=2), **options)  # fmt: skip
            found |= {one.rule for one in report.findings}
        except WarploomError as error:
            found.add(error.code)
    return found


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize(
    "rule, line, by",
    [
        ("warp-synchronous", r".*bar\.warp\.sync.*\n", ""),
        ("generic-access-before-async-write", r".*fence\.proxy\.async\.shared::cta.*\n", ""),
        ("operand-overwritten", r"wgmma\.wait_group\.sync\.aligned 1", "wgmma.wait_group.sync.aligned 7"),
    ],
)
def test_bugs_in_the_text_are_found(rule: str, line: str, by: str):
    kernel = build(PAIR)
    mutant, count = re.subn(line, by, kernel.ptx())
    assert count >= 2 and rule in findings(kernel, ptx=mutant)


def _no_wait(self: Metadata, E: Any, state: Any, k_tile: Any, block: Any, full: Any) -> None:
    place = (k_tile * (128 * self.words), block)
    ptx.cp.async_.bulk.tensor(self.array[state.index], E.tma_desc(), place, full)


READ, RELEASE = Metadata.of, Metadata.release


def _release_first(self: Metadata, state: Any, block: int) -> Any:
    if block % 2:
        RELEASE(self, state)
    return READ(self, state, block)


def _nothing(self: Metadata, state: Any) -> None:
    pass


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize(
    "rule, changes",
    [
        ("data-race", {"load": _no_wait}),
        ("data-race", {"of": _release_first, "release": _nothing}),
        ("deadlock", {"release": _nothing}),
    ],
    ids=["the producer does not wait", "released before it is read", "never released"],
)
def test_bugs_in_the_protocol_of_the_metadata_are_found(rule: str, changes: dict, monkeypatch: pytest.MonkeyPatch):
    for name, function in changes.items():
        monkeypatch.setattr(Metadata, name, function)
    assert rule in findings(build.__wrapped__(PAIR))


def test_metadata_of_too_few_rows_is_not_taken_for_something():
    a, b = operands(bf16, 256, 64, 128)
    values, metadata, _ = compress(a, bf16).arguments(b)
    with refused("invalid-operand"):
        build(SMALL).emulate(values, metadata[:2].copy(), b, machine=H200(sms=1))


# -- on a GPU --------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("m, n, k", [(1, 16, 16), (300, 264, 336), (1000, 1048, 528), (2048, 2048, 1024)])
def test_on_a_gpu_it_is_exact_and_repeats_its_bits(dtype: DType, m: int, n: int, k: int):
    torch = pytest.importorskip("torch")
    names = {bf16: "bfloat16", f16: "float16", tf32: "float32", e4m3: "float8_e4m3fn", e5m2: "float8_e5m2"}

    def on_gpu(array: np.ndarray):
        raw = torch.from_numpy(array.view(f"i{array.itemsize}")).cuda()
        return raw.view(getattr(torch, names[dtype])) if array.dtype != np.uint32 else raw.view(torch.uint32)

    for config in (Config(a=dtype, out=f32), Config(a=dtype), replace(SMALL, a=dtype)):
        a, b = operands(dtype, m, n, k)
        given = [on_gpu(array) for array in compress(a, dtype).arguments(b)]
        results = []
        for _ in range(3):
            memory = torch.full((m + 64, n), 7.0, device="cuda", dtype=getattr(torch, "float32"
                                if config.out is f32 else "bfloat16"))  # fmt: skip
            build(config)(*given, out=memory[:m])
            torch.cuda.synchronize()
            assert bool((memory[m:] == 7.0).all())
            results.append(memory[:m].float().cpu().numpy())
        exact = product(a, b).astype(np.float32 if config.out is f32 else ml_dtypes.bfloat16).astype(np.float32)
        for result in results:
            np.testing.assert_array_equal(result, exact)
