"""Every rung: right on several shapes under every schedule, clean, and built without spills or remarks of ptxas."""

from __future__ import annotations

import ast
import inspect
import json
import re
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.collective.ends import padded
from tests.errors import refused
from warploom import runtime
from warploom.driver import toolchain
from warploom.errors import ArgumentError
from warploom.kernels.hopper import gemm
from warploom.kernels.hopper.description import Config
from warploom.kernels.ladder import RUNGS, Rung, find
from warploom.lab import evidence
from warploom.lang import Kernel
from warploom.runtime.machine import H200
from warploom.types import bf16, f32

ROOT = Path(__file__).resolve().parents[2]
A_SCREEN = 60
"""Lines of a function."""
SMS = 2
"""Multiprocessors of the emulated machine: few, so that a persistent kernel has several tiles for each CTA."""

ALL_RUNGS = pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.module)


def shapes(rung: Rung) -> list[tuple[int, int, int]]:
    """One tile or less, and several tiles with ragged edges in every dimension that may have them."""
    if rung.number <= 3:
        return [(32, 32, 32), (45, 70, 37)]
    if rung.name == "warp_tiling":
        return [(64, 64, 32), (130, 132, 36)]
    _, n, k = rung.multiples
    return [(64, 64, 64), (200, 328 // n * n, 136 // k * k)]


def operands(rung: Rung, m: int, n: int, k: int, seed: int = 0, whole: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Random A and B as the rung takes them: normal, or small whole numbers, whose sums are exact."""
    draw = np.random.default_rng(seed)
    dtype = ml_dtypes.bfloat16 if rung.dtype is bf16 else np.float32
    shape = (n, k) if rung.layout == "TN" else (k, n)
    if whole:
        return tuple(draw.integers(-2, 3, s).astype(dtype) for s in ((m, k), shape))  # type: ignore[return-value]
    return tuple(draw.standard_normal(s).astype(dtype) for s in ((m, k), shape))  # type: ignore[return-value]


def reference(rung: Rung, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    b = b.T if rung.layout == "TN" else b
    return a.astype(np.float64) @ b.astype(np.float64)


@cache
def built(rung: Rung) -> Kernel:
    """With the configuration that the book shows."""
    return rung.build()


@cache
def emulated(rung: Rung, shape: tuple[int, int, int], schedule: str = "lazy", seed: int = 0) -> np.ndarray:
    """What a run with all checks on gives, and finds nothing in."""
    report = built(rung).emulate(*operands(rung, *shape), schedule=schedule, seed=seed, machine=H200(sms=SMS))
    assert report.ok, report.findings
    return report.outputs[0].astype(np.float64)


@ALL_RUNGS
def test_it_is_right_and_clean(rung: Rung):
    for shape in shapes(rung):
        exact = reference(rung, *operands(rung, *shape))
        error = np.linalg.norm(emulated(rung, shape) - exact) / np.linalg.norm(exact)
        assert error < (2.5e-3 if rung.out is bf16 else 1e-6)


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("schedule, seed", [("eager", 0), ("random", 1)])
@ALL_RUNGS
def test_every_schedule_gives_the_same_bits(rung: Rung, schedule: str, seed: int):
    for shape in shapes(rung):
        np.testing.assert_array_equal(emulated(rung, shape, schedule, seed), emulated(rung, shape))


@pytest.mark.sample(5, all=5)
@ALL_RUNGS
def test_sums_that_are_exact_come_out_exact(rung: Rung):
    m, n, k = shapes(rung)[-1]
    a, b = operands(rung, m, n, k, seed=1, whole=True)
    exact = reference(rung, a, b)
    result = built(rung).emulate(a, b, check=False, machine=H200(sms=SMS)).outputs[0]
    np.testing.assert_array_equal(result, exact.astype(result.dtype))


@pytest.mark.parametrize(
    "rung, arch",
    [(rung, rung.arch) for rung in RUNGS]
    + [pytest.param(rung, "sm_90a", marks=pytest.mark.full) for rung in RUNGS if rung.arch != "sm_90a"],
    ids=lambda value: value if isinstance(value, str) else value.module,
)
def test_it_assembles_without_spills_and_remarks_for_its_target_and_for_hopper(rung: Rung, arch: str):
    if toolchain.ptxas() is None:
        pytest.skip("no ptxas here")
    kernel = built(rung)
    resources = runtime.build(kernel.program(), arch).resources[kernel.name]
    assert (resources.spills, resources.stack, resources.notes) == (0, 0, ())


@ALL_RUNGS
def test_sizes_it_cannot_do_are_refused(rung: Rung):
    for dimension, multiple in enumerate(rung.multiples):
        if multiple == 1:
            continue
        sizes = [64, 64, 64]
        sizes[dimension] += multiple // 2
        with pytest.raises(ArgumentError):
            built(rung).emulate(*operands(rung, *sizes))


BY_TMA = [rung for rung in RUNGS if rung.number >= 17]


@pytest.mark.parametrize("rung", BY_TMA, ids=lambda rung: rung.module)
def test_rows_behind_which_tma_would_write_are_refused_and_what_to_do_is_said(rung: Rung):
    a, b = operands(rung, 64, 75, 64)
    with refused("wrong-shape", got="shape (64, 75)") as caught:
        built(rung).emulate(a, b, out=padded(np.zeros((64, 75)), rung.out))
    assert "multiple of 8 " in caught.value.expected
    assert "80" in caught.value.hint and "warploom.matmul" in caught.value.hint


@pytest.mark.parametrize("which", ["warp_tiling", "register_staged", "cp_async_wgmma", "tma_wgmma", "staggered"])
def test_an_odd_k_is_refused_and_what_to_do_is_said(which: str):
    rung = find(which)
    with pytest.raises(ArgumentError) as caught:
        built(rung).emulate(*operands(rung, 64, 64, 63))
    multiple = 4 if which == "warp_tiling" else 8 if rung.number < 8 else 16
    assert f"multiple of {multiple}" in str(caught.value.expected) and "warploom.matmul" in caught.value.hint


@ALL_RUNGS
def test_its_docstring_is_its_design(rung: Rung):
    said = re.findall(r"^(\w+(?:, \w+)*) ", rung.description, re.MULTILINE)
    sections = {word for line in said for word in line.split(", ")}
    assert sections >= {"Idea", "Roles", "Barriers", "Buffers", "Timeline", "Measured"}
    assert rung.description.startswith(f"Rung {rung.number}: ")
    assert built(rung).arch == rung.arch
    assert inspect.signature(rung.build).parameters["config"].default == rung.load().Config()


@ALL_RUNGS
def test_the_file_that_it_names_has_its_figure(rung: Rung):
    (file,) = re.findall(r"^Measured   (\S+\.json);", rung.description, re.MULTILINE)
    rows = json.loads((ROOT / file).read_text())["rows"]
    assert any(row["kernel"] == rung.module for row in rows if row["provider"] == "warploom")
    if rung.seed is not None:
        assert f"seed: {rung.seed.tflops:.3g} TFLOP/s" in rung.description


def tree(rung: Rung) -> ast.Module:
    return ast.parse(inspect.getsource(rung.load()))


SPOKEN = {"PRODUCER_REGISTERS": "the registers", "CONSUMER_REGISTERS": "the registers"}
"""What a docstring calls two constants together."""


@ALL_RUNGS
def test_what_it_takes_from_earlier_rungs_is_what_its_docstring_says(rung: Rung):
    taken: dict[int, set[str]] = {}
    for node in tree(rung).body:
        if isinstance(node, ast.ImportFrom) and (found := re.fullmatch(r"r(\d\d)_\w+", node.module or "")):
            taken[int(found[1])] = {SPOKEN.get(alias.name, alias.name) for alias in node.names}
    assert all(number < rung.number for number in taken), "an earlier rung does not use a later one"
    reuses = re.search(r"^Reuses     (.*(?:\n {11}.*)*)", rung.description, re.MULTILINE)
    said = re.sub(r"\s+", " ", reuses[1]) if reuses else ""
    parts = re.findall(r"(.+?) of rung (\d+)", said)
    told = {int(number): set(re.split(r", (?:and )?| and ", names.strip(", ").removeprefix("and "))) - {""}
            for names, number in parts}  # fmt: skip
    assert told == taken


@ALL_RUNGS
def test_every_function_fits_a_screen_and_every_choice_is_used_in_its_own_file(rung: Rung):
    source = inspect.getsource(rung.load())
    for node in ast.walk(tree(rung)):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < A_SCREEN, node.name
        if isinstance(node, ast.ClassDef) and node.name == "Config":
            fields = [field.target.id for field in node.body if isinstance(field, ast.AnnAssign)]
            assert fields and [name for name in fields if not re.search(rf"\b(config|self)\.{name}\b", source)] == []


@pytest.mark.parametrize("number, form", [(22, "cooperative"), (23, "staggered")])
def test_the_last_rungs_are_the_kernels_that_the_library_makes_from_a_description(number: int, form: str):
    made = gemm.build(config=Config(form, tile_m=256, tile_n=192, stages=3, epi_stages=3, split_tail=True))
    assert evidence.ptx_sha256(made.ptx()) == evidence.ptx_sha256(find(number).build().ptx())


OTHER_CONFIGURATIONS = [
    ("warp_tiling", {"tile_m": 128, "tile_n": 256}),
    ("register_staged", {"tile_k": 64, "warps": (4, 2)}),
    ("ampere_multistage", {"tile_k": 32, "stages": 4, "out": f32}),
    ("ampere_multistage", {"tile_n": 256, "tile_k": 32, "warps": (2, 4)}),
    ("cp_async_wgmma", {"tile_m": 64, "stages": 2}),
    ("tma_wgmma", {"tile_m": 128, "tile_n": 72}),
    ("warp_specialised", {"tile_m": 64, "stages": 2}),
    ("two_consumers", {"tile_m": 256, "tile_n": 128}),
    ("persistent", {"tile_m": 256, "tile_n": 96}),
    ("multicast", {"tile_n": 192}),
    ("stmatrix", {"tile_m": 256, "tile_n": 128}),
    ("stmatrix", {"tile_n": 128, "epi_stages": 3}),
    ("ping_pong", {"tile_n": 128, "stages": 6, "epi_stages": 2}),
    ("ping_pong", {"tile_m": 64, "tile_n": 256, "stages": 4}),
    ("large_tiles", {"tile_n": 128, "stages": 4, "epi_stages": 2}),
]


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("which, options", OTHER_CONFIGURATIONS, ids=lambda value: str(value).replace(" ", ""))
def test_other_tiles_stages_and_clusters_are_right_and_assemble_too(which: str, options: dict):
    rung = find(which)
    kernel = rung.build(rung.load().Config(**options))
    # Threads that multiply by themselves take long to emulate: few k there, and each tile of the sizes still cut off.
    sizes = (136, 264, 40) if rung.number < 5 else (136, 264, 200) if rung.number < 8 else (264, 392, 200)
    a, b = operands(rung, *sizes)
    report = kernel.emulate(a, b, schedule="random", seed=3, machine=H200(sms=4))
    assert report.ok, report.findings
    exact = reference(rung, a, b)
    bound = 2.5e-3 if kernel.out_specs[0].dtype is bf16 else 1e-6
    assert np.linalg.norm(report.outputs[0] - exact) / np.linalg.norm(exact) < bound
    if toolchain.ptxas() is not None:
        resources = kernel.resources()
        assert (resources.spills, resources.stack, resources.notes) == (0, 0, ())


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize(
    "m, n, k", [(1, 8, 8), (8, 8, 512), (129, 264, 72), pytest.param(512, 512, 8, marks=pytest.mark.slow)]
)
def test_hopper_rungs_do_the_smallest_and_the_oddest_sizes(m: int, n: int, k: int):
    for rung in RUNGS:
        if rung.arch == "sm_90a":
            a, b = operands(rung, m, n, k, whole=True)
            result = built(rung).emulate(a, b, check=False, machine=H200(sms=SMS)).outputs[0]
            np.testing.assert_array_equal(result, reference(rung, a, b).astype(result.dtype), err_msg=rung.module)


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("which", ["two_consumers", "multicast", "stmatrix", "ping_pong"])
def test_holding_back_any_one_engine_or_warp_changes_nothing(which: str, seed: int):
    rung = find(which)
    a, b = operands(rung, 264, 520, 200)
    lazily = built(rung).emulate(a, b, machine=H200(sms=SMS)).outputs[0]
    starved = built(rung).emulate(a, b, machine=H200(sms=SMS), schedule="starve", seed=seed).outputs[0]
    np.testing.assert_array_equal(starved, lazily)


def test_the_numbers_are_the_order_of_climbing():
    assert [rung.number for rung in RUNGS] == list(range(1, len(RUNGS) + 1))
    assert [rung.module[:3] for rung in RUNGS] == [f"r{rung.number:02}" for rung in RUNGS]


def test_a_rung_is_found_by_number_and_name():
    assert find(4) is find("4") is find("warp_tiling") is find("r04_warp_tiling") is RUNGS[3]
    with refused("argument", got="'r99'"):
        find("r99")


# -- on a GPU -------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("m, n, k", [(1, 8, 8), (200, 328, 136), (1000, 1048, 520), (2048, 2048, 1024)])
@ALL_RUNGS
def test_on_a_gpu_it_is_right_repeats_its_bits_and_keeps_to_its_array(rung: Rung, m: int, n: int, k: int):
    torch = pytest.importorskip("torch")
    dtype = torch.bfloat16 if rung.dtype is bf16 else torch.float32
    out = torch.bfloat16 if rung.out is bf16 else torch.float32
    draw = torch.Generator(device="cuda").manual_seed(0)
    shape = (n, k) if rung.layout == "TN" else (k, n)
    a, b = (torch.randn(s, generator=draw, device="cuda").to(dtype) for s in ((m, k), shape))
    exact = a.double() @ (b.T if rung.layout == "TN" else b).double()
    kernel, guard = built(rung), 64
    results = []
    for _ in range(3):
        memory = torch.full((m + guard, n), 7.0, device="cuda", dtype=out)
        kernel(a, b, out=memory[:m])
        torch.cuda.synchronize()
        assert bool((memory[m:] == 7.0).all()), "rows after C were written"
        results.append(memory[:m].double())
    error = float((results[0] - exact).norm() / exact.norm())
    assert error < (2.5e-3 if rung.out is bf16 else 2e-6 + 1e-8 * k)
    assert all(torch.equal(result, results[0]) for result in results)


# -- why each is better: what the emulator counts -------------------------------------------------------------------


def counters(which: str, m: int = 64, n: int = 64, k: int = 64, conflicts: bool = False):
    """What a rung does for a product of that size. conflicts: count bank conflicts and sectors, too."""
    rung = find(which)
    a, b = operands(rung, m, n, k)
    return rung.build(rung.load().Config()).emulate(a, b, machine=H200(sms=SMS), check=conflicts).counters


def test_coalescing_touches_a_fraction_of_the_sectors_for_the_same_bytes():
    down, along = (counters(which, conflicts=True) for which in ("naive_uncoalesced", "naive_coalesced"))
    assert along.global_load_bytes == down.global_load_bytes
    assert along.instructions == down.instructions
    assert along.global_sectors * 6 < down.global_sectors


def test_shared_memory_fetches_each_element_once_for_a_tile():
    naive, shared = counters("naive_coalesced"), counters("shared_memory", conflicts=True)
    assert shared.global_load_bytes * 32 == naive.global_load_bytes
    assert shared.bank_conflicts == 0


def test_register_tiles_read_shared_memory_less_and_fetch_less():
    shared, tiled = counters("shared_memory", 128, 128, 64), counters("warp_tiling", 128, 128, 64, conflicts=True)
    assert tiled.global_load_bytes * 4 == shared.global_load_bytes
    assert tiled.shared_load_bytes * 10 < shared.shared_load_bytes
    assert tiled.bank_conflicts == 0
    assert tiled.instructions * 2 < shared.instructions


def test_tensor_cores_take_the_multiply_adds_out_of_the_instruction_stream():
    scalar, tensor = counters("warp_tiling", 128, 128, 64), counters("register_staged", 128, 128, 64, conflicts=True)
    assert tensor.instructions * 4 < scalar.instructions
    assert tensor.tensor_flops >= 2 * 128 * 128 * 64
    assert tensor.bank_conflicts == 0


def test_asynchronous_copies_spare_the_way_through_registers():
    staged, copied = counters("register_staged", k=256), counters("ampere_multistage", k=256)
    assert (copied.global_load_bytes, copied.shared_store_bytes) == (0, 0)
    assert staged.shared_store_bytes > 0 and staged.global_load_bytes > 0
    assert copied.barrier_waits < staged.barrier_waits


@pytest.mark.full
def test_wgmma_reads_shared_memory_by_itself():
    by_fragments, by_descriptor = counters("ampere_multistage", k=256), counters("cp_async_wgmma", k=256)
    assert by_fragments.shared_load_bytes > 0
    assert by_descriptor.shared_load_bytes == 0
    assert by_descriptor.instructions < by_fragments.instructions


def test_a_larger_tile_loads_each_byte_for_more_uses():
    small, large = counters("tma_wgmma", 128, 256, 128), counters("larger_tile", 128, 256, 128)
    assert large.tma_load_bytes * 2 == small.tma_load_bytes
    assert large.tensor_flops == small.tensor_flops
    largest = counters("two_consumers", 128, 256, 128)
    assert largest.tma_load_bytes * 4 == large.tma_load_bytes * 3


def test_one_copy_of_a_tile_replaces_a_thousand_of_chunks():
    by_threads, by_engine = counters("cp_async_wgmma", 128, 128, 512), counters("larger_tile", 128, 128, 512)
    assert by_threads.tensor_flops == by_engine.tensor_flops
    assert by_engine.instructions * 3 < by_threads.instructions * 2


def test_one_arrival_a_warpgroup_replaces_those_of_all_threads():
    k_tiles, tiles = 4, 2
    every, one = counters("persistent", 128, 512, 256), counters("one_arrival", 128, 512, 256)
    assert every.mbarrier_arrivals == tiles * k_tiles * (1 + 2 * 256)
    assert one.mbarrier_arrivals == tiles * k_tiles * (1 + 2)
    assert one.mbarrier_waits == every.mbarrier_waits


def test_multicast_fetches_a_third_less_for_the_same_stages():
    alone, shared = counters("one_arrival", 256, 256, 256), counters("multicast", 256, 256, 256)
    assert shared.tma_load_bytes == alone.tma_load_bytes == alone.tma_fetch_bytes
    assert shared.tma_fetch_bytes * 3 == alone.tma_fetch_bytes * 2


def test_scale_d_saves_the_zeroing_of_each_tile():
    tiles, warps, accumulators = 2, 8, 128
    zeroed, overwritten = counters("multicast", 256, 256, 64), counters("registers", 256, 256, 64)
    assert zeroed.instructions - overwritten.instructions > 0.8 * tiles * warps * accumulators


def test_tma_stores_take_the_stores_of_c_from_the_threads():
    direct, boxed = counters("registers", 256, 256, 64), counters("tma_store", 256, 256, 64, conflicts=True)
    assert direct.global_store_bytes == boxed.tma_store_bytes == 256 * 256 * 2
    assert boxed.global_store_bytes == 0
    assert boxed.bank_conflicts == 0


@pytest.mark.full
def test_stmatrix_writes_the_same_boxes_with_fewer_instructions():
    single, matrices = counters("hilbert", 256, 256, 64), counters("stmatrix", 256, 256, 64, conflicts=True)
    tiles, warps, stores = 2, 8, 64
    assert single.shared_store_bytes == matrices.shared_store_bytes
    assert single.instructions - matrices.instructions >= tiles * warps * stores // 2
    assert matrices.bank_conflicts == 0


@pytest.mark.full
def test_ping_pong_loads_more_and_its_consumers_share_no_stage():
    together, turns = counters("stmatrix", 256, 768, 256), counters("ping_pong", 256, 768, 256)
    assert together.tensor_flops == turns.tensor_flops
    assert turns.tma_fetch_bytes > together.tma_fetch_bytes
    k_tiles, tiles, ctas = 4, 8, 2
    assert turns.mbarrier_arrivals == tiles * k_tiles * (1 + ctas)


@pytest.mark.full
def test_large_tiles_fill_two_ninths_less_shared_memory_for_the_same_products():
    wide, large = counters("stmatrix", 512, 768, 128), counters("large_tiles", 512, 768, 128)
    assert wide.tensor_flops == large.tensor_flops
    assert large.tma_load_bytes * 9 == wide.tma_load_bytes * 7


@pytest.mark.full
def test_sharing_the_larger_operand_fetches_less():
    a, b = operands(find("large_tiles"), 512, 768, 128)
    below, beside = (
        gemm.build(config=Config(tile_m=256, tile_n=192, stages=3, epi_stages=3, multicast=shared))
        .emulate(a, b, machine=H200(sms=SMS), check=False)
        .counters
        for shared in "ba"
    )
    assert below.tma_load_bytes == beside.tma_load_bytes
    assert beside.tma_fetch_bytes * (256 + 192 // 2) == below.tma_fetch_bytes * (256 // 2 + 192)


@pytest.mark.parametrize("which", ["tma_store", "stmatrix"])
def test_a_tile_may_be_no_whole_number_of_boxes(which: str):
    rung = find(which)
    a, b = operands(rung, 100, 192, 64, whole=True)
    report = rung.build(rung.load().Config(tile_n=96)).emulate(a, b, machine=H200(sms=SMS))
    assert report.ok, report.findings
    np.testing.assert_array_equal(report.outputs[0], reference(rung, a, b).astype(report.outputs[0].dtype))
