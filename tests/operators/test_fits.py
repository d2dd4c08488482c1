"""All offered configurations can be built: shared memory and registers, for every kind of epilogue."""

from __future__ import annotations

import itertools

import pytest

from tests.errors import refused
from warploom.driver import toolchain
from warploom.isa.dtypes import bf16, e4m3, f32, s8, s32
from warploom.kernels.hopper.description import MOST_OF_FUSED, SHARED_BYTES, Config, Fusion, Product
from warploom.kernels.hopper.gemm import build
from warploom.kernels.hopper.small_m import build as build_small
from warploom.kernels.hopper.small_m_config import MOST_SCALED_TOKENS, SmallMConfig
from warploom.operators import Problem
from warploom.operators.families.free_tile import FreeTile
from warploom.operators.families.hopper_large_tiles import SHAPES, fits, hopper, whole_waves
from warploom.operators.families.small_m import SmallM
from warploom.operators.spec.gpu import EMULATED

ENDS = {
    "bias": Fusion(bias="column"),
    "bias, gelu": Fusion(bias="column", bias_dtype=bf16, activation="gelu"),
    "row scales": Fusion(scales="row"),
    "row scales, bias, gelu": Fusion(scales="row", bias="column", bias_dtype=bf16, activation="gelu"),
    "silu, gate": Fusion(activation="silu", gate=True),
    "gate, C": Fusion(bias="column", activation="silu", gate=True, addend=True),
    "all": Fusion(True, "row", "column", f32, "gelu", True, True, False, True),
}


@pytest.mark.parametrize("end", ["silu, gate", "gate, C"])
@pytest.mark.parametrize("shape", [(4096, 14336, 4096), (4096, 2112, 7168)])
def test_shared_memory_is_counted_as_the_kernel_takes_it(end: str, shape: tuple[int, int, int]):
    fusion = ENDS[end]
    found = list(hopper(Problem.of(*shape, fusion=fusion), EMULATED))
    fullest = sorted(found, key=lambda config: -config.shared_bytes(Product(), fusion))
    assert len(found) > 20
    for config in fullest[:: max(1, len(fullest) // 2)]:
        taken = build(Product(), config, fusion).program().dynamic_smem
        assert taken <= config.shared_bytes(Product(), fusion) <= SHARED_BYTES
        assert config.shared_bytes(Product(), fusion) - taken < 2048


@pytest.mark.parametrize("fusion", [Fusion(), *ENDS.values()], ids=["plain", *ENDS])
def test_every_end_has_candidates_of_every_size(fusion: Fusion):
    for m, n, k in ((8192, 8192, 8192), (300, 72, 40), (1, 1, 1)):
        found = list(hopper(Problem.of(m, n, k, fusion=fusion), EMULATED))
        assert found and all(config.fits_registers(Product(), fusion) for config in found)


@pytest.mark.parametrize("m, n", [(64, 9504), (128, 11616), (100, 13728)])
def test_integers_are_offered_tiles_that_their_wgmma_has(m: int, n: int):
    """Columns cut to whole waves are multiples of 8 for floats; a wgmma of integers has multiples of 16."""
    found = list(whole_waves(Problem.of(m, n, 512, dtype=s8, out=s32), EMULATED))
    assert found
    for config in found:
        assert "wgmma" in build(Product(s8, s8, s32), config).ptx()


def corners(product: Product = Product()) -> list[tuple[Config, str]]:  # noqa: B008 - frozen
    """The largest tile of each form that is offered with each end. Tiles that go row by row (`group=1`) need the most
    registers."""
    found = []
    for (form, split_tail), end in itertools.product(MOST_OF_FUSED, ENDS):
        widest: Config | None = None
        for shape in SHAPES:
            if shape.kernel_schedule != form or shape.consumers > 2:
                continue
            for tile_n in shape.columns:
                config = Config(form, shape.tile_m, tile_n, stages=3, epi_stages=1, split_tail=split_tail, group=1)
                if fits(config, product, ENDS[end]) and (widest is None or config.accumulators >= widest.accumulators):
                    widest = config
        if widest is not None:
            found.append((widest, end))
    return found


@pytest.mark.skipif(toolchain.ptxas() is None, reason="needs ptxas")
@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("config, end", corners(), ids=str)
def test_the_largest_tiles_with_an_end_are_built_without_spills(config: Config, end: str):
    resources = build(Product(), config, ENDS[end]).resources()
    assert (resources.spills, resources.notes) == (0, ())


@pytest.mark.slow
@pytest.mark.skipif(toolchain.ptxas() is None, reason="needs ptxas")
@pytest.mark.parametrize("product", [Product(e4m3, e4m3, e4m3), Product(e4m3, e4m3, f32)], ids=str)
@pytest.mark.parametrize("end", ["row scales", "row scales, bias, gelu"])
def test_other_results_spill_no_more(product: Product, end: str):
    for config, each in corners(product):
        if each == end:
            resources = build(product, config, ENDS[end]).resources()
            assert (resources.spills, resources.notes) == (0, ()), config.name()


@pytest.mark.parametrize("tile_n", [224, 240])
def test_two_cooperative_consumers_whose_activation_spills_are_not_offered(tile_n: int):
    config, gated = Config(tile_n=tile_n, stages=3, epi_stages=3, ctas=1), ENDS["silu, gate"]
    assert not fits(config, Product(), gated) and fits(config, Product(), Fusion(gate=True))
    if toolchain.ptxas() is not None:
        with refused("spills"):
            build(Product(), config, gated).resources()


def test_a_tile_that_an_end_leaves_no_registers_is_offered_with_more_warpgroups():
    """192 x 120 is the fastest tile of this product with scales of tensors on an H200
    (benchmarks/results/nvidia-h200/sweep-losers-e4m3.json)."""
    of = {}
    for scales in ("tensor", "row"):
        problem = Problem.of(232, 75968, 4096, dtype=e4m3, fusion=Fusion(scales=scales))
        of[scales] = FreeTile().candidates(problem, EMULATED)
        assert all(config.fits_registers(problem.product, problem.fusion) for config in of[scales])
    moved = {scales: {each.setmaxnreg for each in found if (each.swap_ab, each.tile_m, each.tile_n) == (True, 192, 120)}
             for scales, found in of.items()}  # fmt: skip
    assert moved == {"tensor": {False}, "row": {True}}


def test_a_kernel_for_few_rows_that_scales_of_rows_make_spill_is_not_offered():
    """232 x 16384 x 3072 was chosen tiles of 128 rows by 232 tokens, which ptxas refused, in a sample on an H100."""
    for tokens, fitting in ((192, True), (232, False)):
        problem = Problem.of(tokens, 16384, 3072, dtype=e4m3, fusion=Fusion(scales="row"))
        found = [each for each in SmallM().candidates(problem, EMULATED, every=True) if each.rows == 128]
        assert bool(found) == fitting
    widest = SmallMConfig(tokens=MOST_SCALED_TOKENS, rows=128, k_tiles=1, vector_store=True).filled()
    if toolchain.ptxas() is not None:
        assert build_small(Product(e4m3, e4m3, bf16), widest, Fusion(scales="row")).resources().spills == 0
