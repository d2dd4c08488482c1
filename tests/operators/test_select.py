"""Which configuration, and why: the model against readings, candidates that fit, tables on disk, tuning, explain."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from multiprocessing import get_context

import numpy as np
import pytest

from tests import command_line
from tests.errors import refused
from tests.operators.readings import READINGS, TILES, readings
from warploom import config
from warploom.errors import ArgumentError, ArgumentTypeError, CacheWarning
from warploom.kernels.hopper.description import Config, Fusion
from warploom.kernels.hopper.free_tile_config import FreeTileConfig
from warploom.kernels.hopper.names import any_config
from warploom.kernels.hopper.small_m_config import SmallMConfig
from warploom.operators import Problem, choose, explain
from warploom.operators.families import candidates, estimate, family_of, from_text, to_text
from warploom.operators.families.hopper_large_tiles import hopper, whole_waves
from warploom.operators.select import _chosen, kernel_of, ranking
from warploom.operators.spec.gpu import EMULATED
from warploom.operators.tune import tune
from warploom.operators.tuned import SHIPPED, Tables, key_of, tables

UNKNOWN = replace(EMULATED, name="a GPU without a table")
"""What ships with the package says nothing of it, so its choices are the model's."""


@pytest.fixture
def cache(tmp_path):
    """A cache folder of the test's own."""
    with config.override(cache_dir=tmp_path):
        yield tmp_path


# -- the model -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", READINGS, ids=str)
def test_the_model_s_pick_is_within_3_percent_of_the_best_reading(shape):
    problem = Problem.of(*shape)
    times = [estimate(tile, problem, UNKNOWN).time_us for tile in TILES]
    ratios = READINGS[shape]
    assert ratios[int(np.argmin(times))] >= 0.97 * max(ratios)


def test_over_all_readings_the_model_is_off_by_less_than_2_percent():
    errors = []
    for shape, ratios in READINGS.items():
        predicted = -np.log([estimate(tile, Problem.of(*shape), UNKNOWN).time_us for tile in TILES])
        measured = np.log(ratios)
        errors.append((predicted - predicted.mean()) - (measured - measured.mean()))
    assert np.sqrt(np.mean(np.square(errors))) < 0.02


@pytest.mark.parametrize("read", readings(), ids=lambda read: read.problem.describe())
def test_the_model_s_pick_is_within_5_percent_of_the_best_of_the_finished_kernels(read):
    times = {name: estimate(config, read.problem, UNKNOWN).time_us for name, config in read.configs.items()}
    assert read.share_of_best(min(times, key=times.__getitem__)) >= 0.95


def test_block_scales_get_the_larger_tile_where_it_needs_fewer_waves():
    block = Fusion(scales="block128")
    tiles = {
        shape: choose(Problem.of(*shape, "e4m3", fusion=block), UNKNOWN).config.tile_m
        for shape in ((4096, 4096, 4096), (4096, 4096, 14336), (8192, 8192, 8192), (4096, 14336, 4096))
    }
    assert list(tiles.values()) == [256, 256, 192, 192]


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "silu"])
def test_heavy_ends_go_where_they_are_hidden(activation):
    for shape in ((4096, 4096, 4096), (4096, 14336, 4096), (8192, 8192, 2048)):
        fusion = Fusion(bias="column", activation=activation)
        assert choose(Problem.of(*shape, fusion=fusion), UNKNOWN).config.kernel_schedule == "ping_pong"


def test_awkward_waves_get_columns_of_their_own():
    for shape in ((4096, 2112, 7168), (2048, 7168, 4096)):
        chosen = choose(Problem.of(*shape), UNKNOWN)
        assert chosen.config not in TILES and chosen.estimate.wave_efficiency > 0.85


@pytest.mark.parametrize("m", [1, 16, 64, 128])
@pytest.mark.parametrize("n, k", [(8192, 8192), (28672, 8192), (4096, 14336)])
def test_few_rows_are_the_small_m_kernel_s_or_whole_waves(m, n, k):
    """Where no free tile has the end that is asked for."""
    problem = Problem.of(m, n, k, fusion=Fusion(gate=True, bias="row"))
    assert isinstance(choose(problem).config, SmallMConfig) == (m <= 32 or n == 8192 or n == 4096)


FEW_ROWS = {
    (128, 28672, 8192): {"small": 1.030, 224: 1.078}, (128, 14336, 4096): {"small": 0.913, 112: 1.050},
    (128, 12288, 4096): {"small": 0.828, 96: 1.014}, (128, 10240, 8192): {"small": 0.792, 80: 1.018},
    (128, 28672, 4096): {"small": 1.009, 224: 1.073, 112: 1.074}, (64, 28672, 8192): {"small": 1.008, 224: 1.050},
    (64, 14336, 4096): {"small": 1.009, 112: 1.088}, (64, 12288, 4096): {"small": 0.952, 96: 1.074},
    (48, 28672, 8192): {"small": 0.980, 224: 1.032},
}  # fmt: skip
"""Ratios to cuBLAS, interleaved, of the small-M kernel and of tiles of that many columns."""


@pytest.mark.parametrize("shape", FEW_ROWS, ids=str)
def test_columns_are_cut_to_whole_waves_where_that_was_faster(shape):
    problem, read = Problem.of(*shape, fusion=Fusion(bias="row")), FEW_ROWS[shape]
    chosen = choose(problem, UNKNOWN).config
    assert read["small" if isinstance(chosen, SmallMConfig) else chosen.tile_n] > 0.99 * max(read.values())
    assert isinstance(chosen, Config) and chosen.tile_m - 64 < shape[0] <= chosen.tile_m


@pytest.mark.parametrize(
    "name", ["", " , ", "epi_stages=1.5", "epi_stages=True", "epi_stages=1e1", "n16_w64k2s" + "9" * 5000]
)
def test_what_is_no_name_of_a_configuration_is_refused(name):
    with refused("argument"):
        any_config(name)


@pytest.mark.sample(3, all=3)
@pytest.mark.parametrize("layout", ["tn", "tt", "nn", "nt"])
@pytest.mark.parametrize("n", [9216, 9504, 11008, 32000])
def test_few_rows_have_candidates_that_can_be_built_in_every_layout(n, layout):
    problem = Problem.of(64, n, 4096, layout=layout)
    assert list(whole_waves(problem, UNKNOWN))
    for candidate in candidates(problem, UNKNOWN):
        kernel_of(problem, candidate).program()


@pytest.mark.parametrize("n", [8448, 8456, 9000, 20000, 33792, 33800, 128256])
def test_whole_waves_leave_few_multiprocessors_idle(n):
    for each in whole_waves(Problem.of(128, n, 4096), UNKNOWN):
        tiles = -(-n // each.tile_n)
        assert tiles / (-(-tiles // 132) * 132) > 0.88 and each.tile_n <= 256
    assert bool(list(whole_waves(Problem.of(128, n, 4096), UNKNOWN))) == (n > 8448)


@pytest.mark.parametrize("shape", [(16, 8192, 8192), (128, 14336, 4096), (2048, 2048, 2048), (8192, 8192, 8192)])
def test_the_promise_of_constant_weights_changes_nothing_but_what_keeps_it(shape):
    plain = choose(Problem.of(*shape)).config
    kept = choose(replace(Problem.of(*shape), constant_weights=True)).config
    if isinstance(plain, SmallMConfig):
        assert kept == replace(plain, constant_weights=True, prefetch=kept.prefetch)
    else:
        assert kept == replace(plain, constant_weights=isinstance(plain, FreeTileConfig) or plain.ctas == 1)


# -- candidates ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(8192, 8192, 8192), (300, 72, 40), (1, 1, 1), (130, 8192, 512)])
@pytest.mark.parametrize(
    "dtype, out", [("bf16", "bf16"), ("bf16", "f32"), ("e4m3", "e4m3"), ("f32", "f32"), ("s8", "s32")]
)
def test_every_candidate_can_be_built(shape, dtype, out):
    problem = Problem.of(*shape, dtype, out=out)
    found = candidates(problem, UNKNOWN, every=True)
    assert found and len(set(found)) == len(found)
    for each in found:
        each.check(problem.product)


@pytest.mark.parametrize("layout", ["tt", "nt"])
def test_tiles_that_are_read_along_n_or_m_are_whole_panels(layout: str):
    """A narrower swizzle is read at half the rate; of an odd number of panels, CTAs would load unequal slices."""
    found = list(hopper(Problem.of(4096, 4096, 4096, layout=layout), UNKNOWN))
    assert {each.tile_n for each in found} == {64, 128, 192, 256}
    for each in found:
        assert each.ctas == 1 or each.multicast != "b" or each.tile_n % 128 == 0
        assert each.ctas == 1 or each.multicast != "a" or each.tile_m % 128 == 0 or layout[0] == "t"


@pytest.mark.parametrize("sms", [78, 114, 132])
def test_no_consumer_of_a_ping_pong_kernel_is_left_without_a_tile(sms: int):
    """2786 x 1152 in tiles of 128 x 192: as many tiles as an H200 has multiprocessors."""
    gpu = replace(UNKNOWN, sms=sms)
    shapes = {
        (config.tile_m, config.tile_n)
        for config in hopper(Problem.of(2786, 1152, 4304), gpu)
        if config.kernel_schedule == "ping_pong" and config.tile_m == 128
    }
    assert ((128, 192) in shapes) == (sms < 132) and (128, 128) in shapes


def test_stages_are_shallow_where_fewer_rows_of_k_are_then_outside():
    def depths(k: int, layout: str = "nt") -> set[int]:
        return {each.tile_k for each in hopper(Problem.of(4096, 4096, k, layout=layout), UNKNOWN)}

    assert depths(2) == {0, 32, 16}
    assert depths(96) == depths(144) == {0, 32}, "nine stages of 16 take longer than what they leave out"
    assert depths(300) == {0, 32}, "so that twice as many stages are in flight"
    assert depths(64) == depths(2, "tt") == depths(2, "tn") == depths(1000) == {0}


def test_a_short_k_has_variants_that_store_row_by_row_and_never_wait_for_a_box():
    problem = Problem.of(32768, 4096, 96, layout="nt")
    found = candidates(problem, UNKNOWN)
    large = [each for each in found if isinstance(each, Config)]
    assert {each.group == 1 for each in large} == {False, True}
    assert any(each.epi_stages == each.boxes(problem.product) > 2 for each in large)
    assert not any(isinstance(each, Config) and each.group == 1
                   for each in candidates(Problem.of(32768, 4096, 4096, layout="nt"), UNKNOWN))  # fmt: skip


def test_tiles_go_row_by_row_only_if_b_stays_in_l2():
    def by_row(m: int, n: int) -> set[bool]:
        found = candidates(Problem.of(m, n, 448), UNKNOWN)
        return {each.group == 1 for each in found if isinstance(each, Config) and each.evict_first}

    assert by_row(640, 151936) == {False}
    assert by_row(16384, 8192) == {False, True}


def test_a_split_tail_is_offered_where_the_last_wave_is_at_most_half_full():
    tails = [each for each in hopper(Problem.of(4096, 2112, 7168), UNKNOWN) if each.split_tail]
    assert tails
    for each in tails:
        rows, columns = each.cluster_tile
        rest = -(-4096 // rows) * -(-2112 // columns) % 66
        assert 0 < rest <= 33


# -- where a choice comes from -------------------------------------------------------------------------------------


def test_what_somebody_pins_is_taken_and_must_fit():
    problem = Problem.of(512, 512, 512)
    pinned = Config("ping_pong", 128, 64, stages=4, epi_stages=1)
    assert choose(problem, pinned=pinned) == replace(choose(problem, pinned=pinned), config=pinned, source="pinned")
    with refused("configuration", got="1000448"):
        choose(problem, pinned=replace(pinned, stages=40))
    assert choose(problem, pinned="ping_pong_128x64x4_2b_g8").config == replace(pinned, epi_stages=2)
    name = "hopper_large:kernel_schedule=ping_pong,tile_n=64,epi_stages=1"
    assert pinned.name() == name and choose(problem, pinned=name).config == pinned
    with refused("argument", got="ping_pong_128x64"):
        choose(problem, pinned="ping_pong_128x64")
    with pytest.raises(ArgumentTypeError):
        choose(problem, pinned=128)


@pytest.mark.parametrize("shape", [(8192, 8192, 8192), (16, 8192, 8192), (100, 14336, 4096), (300, 300, 304)])
@pytest.mark.parametrize("dtype", ["bf16", "e4m3"])
def test_a_name_leads_back_to_its_configuration(shape, dtype):
    for each in candidates(Problem.of(*shape, dtype), UNKNOWN, every=True):
        found = any_config(each.name())
        assert found.name() == each.name() and found == each


@pytest.mark.parametrize(
    "config",
    [Config(), Config("staggered", 256, 160, epi_stages=3, split_tail=True, pdl=False), SmallMConfig(tokens=24),
               SmallMConfig(split_k=3, split_by="last", trigger="off", vector_store=True)]
)  # fmt: skip
def test_a_configuration_survives_as_text(config):
    assert from_text(to_text(config)) == config


def test_the_text_of_a_configuration_says_its_fields():
    assert to_text(Config(tile_n=192, pdl=False)) == "hopper_large:tile_n=192,pdl=false"
    assert from_text("small_m: tokens=8, wide=true") == SmallMConfig(tokens=8, vector_store=True)


@pytest.mark.parametrize(
    "text", ["large:tile_m=8", "hopper_large:rows=8", "small_m:tokens=many", "small_m:wide=2", "x"]
)
def test_another_text_is_refused(text):
    with pytest.raises(ArgumentError):
        from_text(text)


def test_rows_of_another_version_are_left_out_with_a_word(cache):
    problem, gpu = Problem.of(1024, 1024, 1024), replace(UNKNOWN, driver="8")
    path = tables().path(gpu, str(cache))
    path.parent.mkdir(parents=True)
    rows = [None, {}, {"config": None}, {"config": {"kind": "large", "tile_m": 128}}, {"config": "hopper_large:rows=1"}]
    path.write_text(
        json.dumps({"choices": {key_of(problem) if at == 3 else str(at): row for at, row in enumerate(rows)}})
    )
    with pytest.warns(CacheWarning) as caught:
        assert choose(problem, gpu).source == "model"
    assert [word for word in str(caught[0].message).split() if word.isdigit()] == ["5"]


def pretended(times):
    """A timer that has the answers: by name, or much."""

    def timer(problem, configs, device, rounds, step):
        return {each: times.get(each.name(), 1000.0) for each in configs}, {}

    return timer


def test_a_timed_configuration_that_spills_with_this_end_is_passed_over(cache):
    plain, gpu = Problem.of(4096, 4096, 4096), replace(UNKNOWN, driver="13.2")
    fused = replace(plain, fusion=Fusion(bias="column", activation="gelu", gate=True))
    spills = Config("staggered", 256, 192, stages=3, epi_stages=1)
    for problem in (plain, fused):
        tables().keep(gpu, str(cache), key_of(problem), spills, {})
    assert choose(plain, gpu).config == spills
    chosen = choose(fused, gpu)
    assert chosen.source == "model" and chosen.config.fits_registers(fused.product, fused.fusion)


def test_what_was_tuned_is_chosen_from_then_on_for_this_gpu_driver_and_version(cache):
    problem, gpu = Problem.of(4096, 4096, 4096), replace(UNKNOWN, driver="13.0")
    before = choose(problem, gpu)
    other = ranking(problem, gpu)[3][0]
    found = tune(problem, gpu=gpu, progress=False, timer=pretended({other.name(): 10.0, before.config.name(): 20.0}))
    assert (found.best, found.before) == (other, before.config)
    assert list(found.times_us)[0] == other.name() and other.name() in found.text()
    assert found.kept.startswith(str(cache)) and "a-gpu-without-a-table-driver-13-0" in found.kept.replace(
        "13.0", "13-0"
    )
    assert (choose(problem, gpu).source, choose(problem, gpu).config) == ("tuned", other)
    assert choose(problem, replace(gpu, driver="13.1")).source == "model"
    assert choose(Problem.of(4096, 4096, 4097), gpu).source == "model"
    tables.cache_clear()
    _chosen.cache_clear()
    assert choose(problem, gpu).config == other, "another process reads it"


def test_a_full_disk_loses_no_choice_of_this_process_and_leaves_no_file(cache, monkeypatch):
    problem, gpu = Problem.of(4096, 4096, 4096), replace(UNKNOWN, driver="13.0")
    other = ranking(problem, gpu)[2][0]

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("warploom.operators.tuned.os.replace", full)
    with pytest.warns(CacheWarning, match="No space left"):
        found = tune(problem, gpu=gpu, progress=False, timer=pretended({other.name(): 10.0}))
    assert found.kept == "" and CacheWarning.code == "cache"
    assert choose(problem, gpu).config == other
    assert not [path for path in cache.rglob("*") if path.is_file()]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs limits on the sizes of files")
def test_a_disk_that_is_full_in_the_middle_of_a_table_keeps_what_was_there(cache):
    import resource

    problem, gpu = Problem.of(4096, 4096, 4096), replace(UNKNOWN, driver="13.0")
    first, other = (ranking(problem, gpu)[at][0] for at in (1, 2))
    table = tables()
    path = table.keep(gpu, str(cache), key_of(problem), first, {"time_us": 1.0})
    before = path.read_bytes()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limit[1]))
    try:
        with pytest.warns(CacheWarning):
            assert table.keep(gpu, str(cache), key_of(problem), other, {"time_us": 0.5}) is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before and [each for each in path.parent.iterdir()] == [path]
    assert choose(problem, gpu).config == other


def test_two_processes_that_tune_keep_both_choices(cache):
    gpu, one, two = replace(UNKNOWN, driver="13.0"), Problem.of(4096, 4096, 4096), Problem.of(2048, 4096, 4096)
    mine, theirs = tables(), Tables()
    choose(one, gpu), theirs.tuned(gpu, str(cache))
    for table, problem in ((mine, one), (theirs, two)):
        table.keep(gpu, str(cache), key_of(problem), ranking(problem, gpu)[1][0], {"time_us": 1.0})
    assert len(Tables().tuned(gpu, str(cache))) == 2


def test_any_product_has_a_choice_that_fits_it():
    """Sizes that nothing was tuned for: one row, one k-tile, odd columns, rows of K that TMA cannot address."""
    drawn = np.random.default_rng(13)
    for _ in range(30):
        dtype, scales = [("bf16", None), ("f16", None), ("e4m3", "row"), ("e4m3", "block128")][drawn.integers(4)]
        layout = ["tn", "nn", "nt", "tt"][drawn.integers(4)] if dtype in ("bf16", "f16") else "tn"
        m, n, k = (int(np.exp(drawn.uniform(0, np.log(most)))) for most in (16384, 65536, 32768))
        problem = Problem.of(m, n, k, dtype, layout=layout, fusion=Fusion(scales=scales))
        found = choose(problem, UNKNOWN)
        assert family_of(found.config, problem).fits(found.config, problem), problem.describe()
        assert 0 < found.estimate.time_us < 1e7 and from_text(to_text(found.config)) == found.config


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_processes_that_tune_at_once_lose_no_choice(cache):
    gpu, config, each = replace(UNKNOWN, driver="13.0"), ranking(Problem.of(64, 64, 64))[0][0], 6

    def tuned(number):
        for at in range(each):
            Tables().keep(gpu, str(cache), key_of(Problem.of(1 + at, 64 * number, 64)), config, {"time_us": 1.0})

    processes = [get_context("fork").Process(target=tuned, args=(number,)) for number in (1, 2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert len(Tables().tuned(gpu, str(cache))) == 2 * each


def test_a_gain_within_the_noise_changes_nothing(cache):
    problem = Problem.of(2048, 2048, 2048)
    before = choose(problem, UNKNOWN).config
    other = ranking(problem)[1][0]
    found = tune(problem, gpu=UNKNOWN, progress=False, timer=pretended({other.name(): 99.5, before.name(): 100.0}))
    assert found.best == before


def test_no_row_of_a_shipped_table_is_of_another_version():
    for path in SHIPPED.glob("nvidia-*.json"):
        rows = json.loads(path.read_text())["choices"]
        assert rows
        for row in rows.values():
            assert to_text(from_text(row["config"])) == row["config"]


@pytest.mark.parametrize("text", ["{ no json", "[" * 99999, '{"choices": [1]}', "{}", "3"])
def test_a_table_that_cannot_be_read_is_no_table_and_said_to_be_none(cache, text: str):
    problem, gpu = Problem.of(1024, 1024, 1024), replace(UNKNOWN, driver="9")
    path = tables().path(gpu, str(cache))
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.warns(CacheWarning) as caught:
        assert choose(problem, gpu).source == "model"
    assert len(caught) == 1 and str(path) in str(caught[0].message)


def test_everything_that_changes_the_kernel_is_in_the_key():
    plain = Problem.of(64, 64, 64)
    others = [
        Problem.of(64, 64, 65), Problem.of(64, 64, 64, out="f32"), Problem.of(64, 64, 64, layout="nt"),
        replace(plain, fusion=Fusion(bias="column")), replace(plain, fusion=Fusion(activation="silu", gate=True)),
        replace(plain, constant_weights=True), Problem.of(64, 64, 64, "e4m3"),
        replace(Problem.of(64, 64, 64, "e4m3"), accumulate="precise"),
    ]  # fmt: skip
    assert len({key_of(problem) for problem in (plain, *others)}) == len(others) + 1


# -- explain, tune: what is said -----------------------------------------------------------------------------------


def test_explain_says_what_was_chosen_and_why_as_text_and_as_data():
    found = explain(Problem.of(4096, 14336, 4096, fusion=Fusion(activation="silu", gate=True)), UNKNOWN)
    text, data = found.text(), json.loads(json.dumps(found.data()))
    for word in ("4096x14336x4096 bf16 x bf16 -> bf16, tn, fused: silu, gate", "chosen", "waves", "bound by"):
        assert word in text
    assert data["config"] == found.choice.config.name() == data["ranking"][0]["config"]
    assert data["source"] == "model" and data["candidates"] > 20
    times = [row["time_us"] for row in data["ranking"]]
    assert times == sorted(times)


@pytest.mark.parametrize("problem", [
    Problem.of(4096, 4096, 4096), Problem.of(16, 4096, 4096),
    replace(Problem.of(64, 4096, 4096), constant_weights=True),
    Problem.of(512, 512, 512, "e4m3", fusion=Fusion(scales="block128")),
], ids=Problem.describe)  # fmt: skip
@pytest.mark.parametrize("pinned", [None, "worst"])
def test_what_was_chosen_is_in_the_list_once_and_marked(problem, pinned):
    worst = ranking(problem)[-1][0].name() if pinned else None
    found = explain(problem, config=worst)
    marked = [line for line in found.text().splitlines() if line.endswith(", chosen")]
    assert [line.split()[-2] for line in marked] == [f"{found.choice.config.name()},"]
    names = [row["config"] for row in found.data()["ranking"]]
    assert names.count(found.choice.config.name()) == 1 and (worst is None or names[-1] == worst)


@pytest.mark.parametrize(
    "m, words", [(8192, "MHz, which the power limit allows"), (16, "TB/s, and time to start and finish")]
)  # fmt: skip
def test_why_the_model_lies_below_the_roof_is_said(m, words):
    (line,) = [line for line in explain(Problem.of(m, 8192, 8192)).text().splitlines() if "  assumed  " in line]
    assert words in line and "a roof" in line


@pytest.mark.parametrize("m, dtype, scales", [(64, "bf16", None), (8, "e4m3", "block128"), (8, "s8", None)])
def test_the_order_of_the_list_is_the_one_that_is_said(m, dtype, scales):
    found = explain(Problem.of(m, 4096, 4096, dtype, fusion=Fusion(scales=scales)))
    times = [row["time_us"] for row in found.data()["ranking"]]
    assert found.corrected == (dtype == "bf16")
    assert ("fastest first" in found.text()) is not found.preferred
    assert times == sorted(times) or found.preferred


@pytest.mark.parametrize("sizes, layout, copied", [
    ((64, 64, 64), "tn", []), ((64, 64, 33), "tn", ["A", "B"]), ((1, 64, 33), "tn", ["B"]),
    ((33, 64, 64), "nt", ["A"]), ((64, 33, 33), "nt", ["B"]),
])  # fmt: skip
def test_operands_that_are_copied_first_are_named(sizes, layout, copied):
    found = explain(Problem.of(*sizes, layout=layout))
    assert found.data()["copied"] == copied and ("  copied   " in found.text()) == bool(copied)


def test_a_layout_that_is_copied_first_says_so_where_no_kernel_reads_it():
    with refused("argument") as caught:
        explain(Problem.of(64, 64, 64, "f32", layout="tt"))
    assert "tn" in caught.value.hint


def test_one_wave_is_no_waves():
    text = explain(Problem.of(16, 4096, 4096)).text()
    assert "; 1 wave, " in text and "1 waves" not in text


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["0", "8", "8"], "m is not a size"),
        (["8", "8", "8", "--layout", "xy"], "unknown layout"),
        (["8", "8", "8", "--dtype", "f64"], "does not multiply"),
        (["8", "8", "8", "--top", "0"], "there would be nothing to time"),
    ],
)
def test_tune_on_the_command_line_refuses_in_a_sentence(arguments, words):

    result = command_line.run("tune", *arguments)
    assert result.exit_code != 0 and words in result.output + (result.stderr or "")
