"""Choices on GPUs of sm_90 with other numbers of multiprocessors: an H20 has 78, an H100 PCIe 114."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from warploom.kernels.hopper import free_tile_choice, grouped_config
from warploom.kernels.hopper.description import Config, Fusion
from warploom.kernels.hopper.free_tile_config import FreeTileConfig, FreeTileGrid
from warploom.kernels.hopper.small_m_config import SmallMConfig
from warploom.kernels.hopper.small_m_config import choose as choose_decode
from warploom.operators import Gpu, Problem, choose, explain
from warploom.operators.families import candidates, estimate
from warploom.operators.families.estimate import H200_MHZ, MOST_MHZ
from warploom.operators.families.free_tile import rates_of
from warploom.operators.families.hopper_large_tiles import band, hopper, whole_waves
from warploom.operators.spec.gpu import EMULATED

H20, H100_PCIE = Gpu("NVIDIA H20", "sm_90a", 78), Gpu("NVIDIA H100 PCIe", "sm_90a", 114)
BOTH = pytest.mark.parametrize("gpu", [H20, H100_PCIE], ids=lambda gpu: gpu.slug)


@BOTH
def test_the_model_counts_the_waves_of_this_gpu(gpu: Gpu):
    problem = Problem.of(4096, 4096, 4096)
    for config in hopper(problem, gpu):
        rows, columns = config.cluster_tile
        tiles, clusters = math.ceil(4096 / rows) * math.ceil(4096 / columns), gpu.sms // config.ctas
        full, rest = divmod(tiles, clusters)
        expected = full + 0.5 if config.split_tail else full + bool(rest)
        assert estimate(config, problem, gpu).waves == expected


@BOTH
def test_a_tail_is_split_where_the_last_wave_of_this_gpu_is_at_most_half_full(gpu: Gpu):
    tails = []
    for n in (2048, 2112, 4096, 7168):
        for config in hopper(Problem.of(4096, n, 4096), gpu):
            if config.split_tail:
                rows, columns = config.cluster_tile
                tails.append(math.ceil(4096 / rows) * math.ceil(n / columns) % (gpu.sms // 2) / (gpu.sms // 2))
    assert tails and all(0 < share <= 0.5 for share in tails)


@BOTH
def test_columns_are_cut_to_whole_waves_of_this_gpu(gpu: Gpu):
    for n in (9000, 20000, 33792):
        found = list(whole_waves(Problem.of(128, n, 4096), gpu))
        assert found
        for config in found:
            tiles = math.ceil(n / config.tile_n)
            assert tiles / (math.ceil(tiles / gpu.sms) * gpu.sms) > 0.88


def test_a_small_m_product_is_split_into_as_many_parts_as_the_gpu_has_multiprocessors_for():
    """2048 columns are 32 tiles of 64: 78 multiprocessors take two parts of each, 114 three, 132 four."""
    configs = [choose_decode(16, 2048, 8192, sms) for sms in (H20.sms, H100_PCIE.sms, EMULATED.sms)]
    assert [config.split_k for config in configs] == [2, 3, 4]


def test_free_tiles_fill_one_wave_of_this_gpu():
    """At 256 x 6144: tiles of 80 columns are 2 * 77 CTAs, of 96 columns 128, of 112 columns 110."""
    for gpu in (H100_PCIE, replace(EMULATED, name="no table")):
        config = choose(Problem.of(256, 6144, 4096), gpu).config
        assert isinstance(config, FreeTileConfig)
        ctas, _, _ = FreeTileGrid(config)({"M": 256, "N": 6144}, gpu)
        assert 0.8 * gpu.sms < ctas <= gpu.sms


def test_the_workspace_of_streamed_tiles_has_room_for_the_ctas_of_this_gpu():
    config = SmallMConfig(split_by="stream", ctas_per_sm=2)
    for gpu in (H20, H100_PCIE):
        (blocks, _), _ = config.workspace(16, 28672, gpu.sms)
        assert blocks == 2 * 2 * gpu.sms == 2 * config.ctas(28672, gpu.sms)


def test_a_raster_band_is_as_high_as_the_square_that_runs_at_one_time():
    square = Config("cooperative", 128, 128, ctas=1)
    assert [band(square, replace(EMULATED, sms=sms)) for sms in (16, 78, 114, 132)] == [4, 8, 8, 16]


def test_grouped_tiles_go_by_the_waves_of_this_gpu():
    """Four groups of 448 rows on average, four row tiles of 128 each: tiles of 128 x 256 are 4 * 4 * 8 = 128, which is
    one wave of 132 and more of 114."""
    problem = replace(Problem.of(4 * 448, 2048, 8192), groups=4)
    found = {sms: explain(problem, replace(EMULATED, name="no table", sms=sms)) for sms in (114, 132)}
    waves = {sms: dict(each.others)[grouped_config.CONFIG].waves for sms, each in found.items()}
    assert waves[132] == 1 and 1.75 < waves[114] <= 2
    assert found[132].choice.config == grouped_config.CONFIG != found[114].choice.config


HALF, FULL = replace(EMULATED, clock_mhz=H200_MHZ // 2), replace(EMULATED, clock_mhz=H200_MHZ)


def test_a_lower_clock_lengthens_what_is_counted_in_clocks_and_nothing_else():
    config = FreeTileConfig(tile_n=64)
    known = free_tile_choice.features(config, 512, 4096, 4096, sms=132)
    half, full = (free_tile_choice.expected(known, rates_of(gpu)) for gpu in (HALF, FULL))
    assert (half.mma, half.tma) == pytest.approx((2 * full.mma, 2 * full.tma))
    assert (half.hbm, half.l2, half.end) == (full.hbm, full.l2, full.end)
    assert full == free_tile_choice.expected(known) and rates_of(EMULATED) == rates_of(FULL)


def test_a_clock_below_that_of_the_power_limit_is_the_one_that_is_assumed():
    problem = Problem.of(8192, 8192, 8192)
    config = choose(problem, EMULATED).config
    half, full = (estimate(config, problem, gpu) for gpu in (HALF, FULL))
    assert full == estimate(config, problem, EMULATED) and full.bound == "tensor cores"
    assert half.clock_mhz == MOST_MHZ / 2 < full.clock_mhz < MOST_MHZ
    assert half.time_us == pytest.approx(full.time_us * full.clock_mhz / half.clock_mhz)
    slightly = replace(EMULATED, clock_mhz=1900)  # still above what the power limit allows
    assert estimate(config, problem, slightly) == full


def test_what_memory_bounds_does_not_depend_on_the_clock():
    problem = Problem.of(1, 28672, 8192, fusion=Fusion(activation="silu"))  # by the kernels for few rows alone
    config = choose_decode(1, 28672, 8192, 132)
    half, full = (estimate(config, problem, replace(gpu, name="no table")) for gpu in (HALF, FULL))
    assert full.bound == "memory" and half.time_us == full.time_us


def test_the_driver_tells_the_clock(pretend):  # noqa: F811 - the fixture
    script = """
from warploom.operators.spec.gpu import gpu_of
gpu = gpu_of(0)
assert (gpu.arch, gpu.sms, gpu.clock_mhz) == ("sm_90a", 114, 1755), gpu
"""
    pretend(script, FAKE_CUDA_SMS=114, FAKE_CUDA_KHZ=1755000)


@pytest.mark.parametrize(("arch", "size", "data_sheet"), [("sm_80", 1024, 1410), ("sm_100a", 4096, 1850)])
def test_other_generations_assume_the_clock_of_their_data_sheet_if_none_is_known(arch, size, data_sheet):
    gpu, problem = Gpu("a GPU", arch, 108), Problem.of(size, size, size)
    config = choose(problem, gpu).config
    unknown, known, half = (
        estimate(config, problem, replace(gpu, clock_mhz=clock)) for clock in (0, data_sheet, data_sheet // 2)
    )
    assert unknown == known and half.time_us > 1.3 * known.time_us


@BOTH
def test_explain_says_what_holds_for_this_gpu(gpu: Gpu):
    problem = Problem.of(4096, 4096, 4096)
    found = explain(problem, gpu)
    assert found.gpu is gpu and found.data()["gpu"] == gpu.name and gpu.name in found.text()
    assert found.data()["estimate"]["waves"] == estimate(found.choice.config, problem, gpu).waves
    assert found.candidates == len(candidates(problem, gpu))
    elsewhere = explain(problem, replace(EMULATED, name="no table"))
    assert found.data()["estimate"] != elsewhere.data()["estimate"]


@pytest.mark.parametrize("sms", [78, 114, 132])
@pytest.mark.parametrize("m, n, k", [(64, 4096, 4096), (256, 4096, 4096), (384, 1024, 8192)])
def test_clusters_of_free_tiles_are_those_that_the_gpu_holds_at_one_time(m, n, k, sms):
    clustered = [one for one in free_tile_choice.fitting(m, n, k, sms=sms) if one.ctas > 1]
    persistent = {one.ctas for one in clustered if one.persistent}  # such clusters take tile after tile
    assert clustered and persistent <= {2}
    for one in (each for each in clustered if not each.persistent):
        assert -(-m // one.tokens) * -(-n // one.weights) * one.split_k <= sms, one
