"""Which configuration attention runs: the default or a tuned one; what is timed, and how it is stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warploom
from tests import command_line
from tests.errors import refused
from warploom.isa.dtypes import bf16, f16
from warploom.kernels.hopper import attention, attention_decode
from warploom.kernels.hopper.attention_config import Attention, Config, default
from warploom.kernels.hopper.attention_decode_config import Decode, DecodeConfig, clustered, decode_config
from warploom.lab.attention_explanation import problem_of
from warploom.operators.attention import calls, tune
from warploom.operators.attention.choice import Call, _chosen, call_of, candidates, chosen, fits
from warploom.operators.families import from_text, to_text
from warploom.operators.spec.gpu import EMULATED, Gpu
from warploom.operators.tuned import tables

GPU = Gpu("A GPU without a table", "sm_90a", 132, "13.0")
FORWARD = Call(Attention(head_dim=64, value_dim=64), 1, 2, 1, 70, 70)
DECODED = Call(Decode(head_dim=64, value_dim=64), 2, 8, 2, 1, 96)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Path]:
    tables.cache_clear()
    _chosen.cache_clear()
    with warploom.config.override(cache_dir=tmp_path):
        yield tmp_path
    tables.cache_clear()
    _chosen.cache_clear()


def pretended(times: dict[str, float]) -> Callable[..., Any]:
    def timer(call: Call, configs: list[Any], device: int, rounds: int, step: Callable[[], None]) -> Any:
        found = {config: times.get(config.name(), 100.0) for config in configs}
        return found, {}

    return timer


# -- candidates ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [64, 96, 128, 192, 256])
@pytest.mark.parametrize("above", [False, True])
def test_every_candidate_fits_and_the_rules_comes_first(dim: int, above: bool) -> None:
    call = replace(FORWARD, of=Attention(head_dim=dim, value_dim=dim, window_right=above))
    found = candidates(call)
    assert found[0] == default(call.of) and fits(found[0], call)  # type: ignore[arg-type]
    assert len(found) == len(set(found)) >= 4 and all(fits(config, call) for config in found)
    assert len({config.tile_n for config in found}) > 1


@pytest.mark.parametrize("page", [0, 16, 256])
def test_candidates_of_decoding_copy_whole_parts_of_pages(page: int) -> None:
    call = replace(DECODED, of=replace(DECODED.of, paged=bool(page)), page=page)  # type: ignore[arg-type]
    found = candidates(call)
    rule = decode_config(call.of, 4, page or None, 2 * 2 * 96 // EMULATED.sms)  # type: ignore[arg-type]
    assert found[0] == clustered(call.of, rule, 2 * 2, 96, EMULATED.sms)  # type: ignore[arg-type]
    assert len(found) >= 4
    assert all(not page or page % config.copy_rows == 0 for config in found)


def test_candidates_build() -> None:
    for config in candidates(FORWARD)[1:4]:
        assert attention.build(FORWARD.of, config).program().arrays  # type: ignore[arg-type]
    for config in candidates(DECODED)[1:4]:
        assert attention_decode.build(DECODED.of, config).program().arrays  # type: ignore[arg-type]


def test_what_does_not_fit_is_no_candidate() -> None:
    assert not fits(Config(tile_n=176, consumers=3), FORWARD), "registers"
    assert not fits(Config(tile_n=128, key_stages=12, value_stages=12), FORWARD), "memory"
    assert not fits(Config(tile_n=72), FORWARD), "whole steps of the product"
    assert not fits(DecodeConfig(), FORWARD) and not fits(Config(), DECODED)


def test_everything_that_changes_the_choice_is_in_the_name() -> None:
    of = Attention()
    calls_ = [
        Call(of, 1, 2, 1, 70, 70), Call(of, 2, 2, 1, 70, 70), Call(of, 1, 4, 1, 70, 70), Call(of, 1, 2, 2, 70, 70),
        Call(of, 1, 2, 1, 71, 70), Call(of, 1, 2, 1, 70, 71), *(Call(replace(of, **{name: True}), 1, 2, 1, 70, 70)
        for name in ("window_right", "window_left", "softcap", "sinks")), Call(replace(of, dtype=f16), 1, 2, 1, 70, 70),
        Call(replace(of, head_dim=96), 1, 2, 1, 70, 70), Call(Decode(), 1, 2, 1, 70, 70),
        Call(Decode(paged=True), 1, 2, 1, 70, 70, 16), Call(Decode(paged=True), 1, 2, 1, 70, 70, 32),
        Call(Decode(fp8_kv=True), 1, 2, 1, 70, 70),
    ]  # fmt: skip
    assert len({call.describe() for call in calls_}) == len(calls_)
    assert Call(Attention(window_right=True), 1, 1, 1, 3, 5).flops == 2 * (3 + 4 + 5) * 256


@pytest.mark.parametrize("config", [Config(), Config(tile_n=96, consumers=3, guarded=False), DecodeConfig(pdl=False)])
def test_a_configuration_is_text_and_back(config: Any) -> None:
    assert from_text(to_text(config)) == config and to_text(config) == config.name()


def test_former_names_are_read_from_files_and_refused_in_python() -> None:
    assert from_text("attention:keys=96,consumers=3,weighed=false") == Config(
        tile_n=96, consumers=3, rounded_row_sum=False
    )
    assert from_text("attention_decode:loaders=2,residents=2") == DecodeConfig(producer_warps=2, ctas_per_sm=2)
    for kind in (Config, DecodeConfig):
        assert set(kind.former.values()) <= {field.name for field in fields(kind)}
        for name, now in kind.former.items():
            with refused("renamed", expected=now):
                kind(**{name: 1})


# -- choice and tuning -----------------------------------------------------------------------------------------------


def test_what_was_tuned_is_chosen_for_these_sizes_on_this_gpu(cache: Path) -> None:
    before, other = candidates(FORWARD)[0], candidates(FORWARD)[2]
    timer = pretended({other.name(): 10.0, before.name(): 20.0})
    found = tune.tune_attention(FORWARD, gpu=GPU, progress=False, timer=timer)
    assert (found.best, found.before) == (other, before) and other.name() in found.text()
    assert (chosen(FORWARD, GPU).config, chosen(FORWARD, GPU).source) == (other, "tuned")
    assert chosen(replace(FORWARD, keys=71), GPU).source == "rule"
    assert chosen(FORWARD, replace(GPU, driver="13.1")).source == "rule"
    tables.cache_clear()
    _chosen.cache_clear()
    assert chosen(FORWARD, GPU).config == other, "another process reads it"
    rows = json.loads(Path(found.kept).read_text())["choices"]
    assert rows[FORWARD.describe()]["config"] == other.name()


def test_a_gain_within_the_noise_changes_nothing_and_nothing_timed_is_an_error(cache: Path) -> None:
    before, other = candidates(DECODED)[:2]
    timer = pretended({other.name(): 99.5, before.name(): 100.0})
    assert tune.tune_attention(DECODED, gpu=GPU, progress=False, timer=timer).best == before
    with refused("argument", got="a: it spills"):
        tune.tune_attention(DECODED, gpu=GPU, progress=False, timer=lambda *rest: ({}, {"a": "it spills"}))
    with refused("argument", got="NVIDIA B200, sm_100a"):
        tune.tune_attention(DECODED, gpu=Gpu("NVIDIA B200", "sm_100a", 148), progress=False)


@pytest.mark.full
def test_the_call_runs_what_was_tuned(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, heads, 70, 64)).astype(np.float16) for heads in (2, 1, 1))
    wanted = warploom.attention(q, k, v)
    call = replace(FORWARD, of=Attention(f16, 64, 64))
    config = candidates(call)[3]
    tables().keep(EMULATED, str(cache), call.describe(), config, {})
    built = []
    real = calls.program_of
    monkeypatch.setattr(
        calls, "program_of", lambda of, config, folder: built.append(config) or real(of, config, folder)
    )
    np.testing.assert_allclose(warploom.attention(q, k, v), wanted, atol=2e-3)
    warploom.attention(q, k, v, window=(8, 8))
    assert built[0] == config and built[1] != config, "a window goes by the rule"


@pytest.mark.full
def test_arrays_are_made_and_computed_with_each_configuration() -> None:
    pytest.importorskip("torch")
    for call in (FORWARD, DECODED):
        sets = tune.arrays(call, "cpu", most=2)
        assert len(sets) == 2 and sets[0]["q"].shape == (call.batch, call.heads, call.queries, 64)
        outs = []
        for config in candidates(call)[:2]:
            tune.caller(call, config, sets)(1)
            outs.append(sets[1]["out"].float().clone())
        assert bool((outs[0] - outs[1]).abs().max() < 2e-2) and not bool(outs[0].isnan().any())


def test_the_request_says_which_call_it_is() -> None:
    from warploom.operators.attention.request import read

    arrays = {name: np.zeros((2, heads, 5, 64), np.float16) for name, heads in (("q", 4), ("k", 2), ("v", 2))}
    request = read(arrays, layout="bhsd", causal=True, scale=None, window=None, softcap=None)
    assert call_of(request) == Call(Attention(f16, 64, 64, window_right=True), 2, 4, 2, 5, 5)
    assert problem_of("2x4x5x64", kv_heads=2, causal=True).call.of == Attention(bf16, 64, 64, window_right=True)


# -- the command line ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--attention", "4x16x4096"], "attention has four sizes"),
        (["--attention", "4x16x4096x12"], "no kernel for the head dimension"),
        (["8", "8", "8", "--attention", "4x16x4096x128"], "only one problem is timed at a time"),
        (["8", "8"], "a product has three sizes"),
        ([], "a product has three sizes"),
        (["--attention", "4x16x4096x128", "--top", "0"], "there would be nothing to time"),
    ],
)
def test_tune_refuses_in_a_sentence(arguments: list[str], words: str) -> None:
    result = command_line.run("tune", *arguments)
    assert result.exit_code == 2 and words in result.stderr


def test_tune_without_a_gpu_says_what_can_be_done(monkeypatch: pytest.MonkeyPatch) -> None:
    from warploom.errors import NoGpuError
    from warploom.operators import tune as products

    def none(index: int) -> Gpu:
        raise NoGpuError("no CUDA GPU (nobody is here)")

    monkeypatch.setattr(products, "gpu_of", none)
    result = command_line.run("tune", "--attention", "4x16x4096x128")
    assert result.exit_code == 1 and "nobody is here" in result.stderr and "explain --attention" in result.stderr


def test_tune_and_explain_show_the_choice(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from warploom.lab import attention_explanation
    from warploom.operators import tune as products

    here = Gpu("NVIDIA H200", "sm_90a", 132, "13.0")
    monkeypatch.setattr(products, "gpu_of", lambda index: here)
    monkeypatch.setattr(attention_explanation, "gpu_of", lambda index: here)
    call = problem_of("1x2x256x128").call
    other = candidates(call)[1]
    monkeypatch.setattr(tune, "time_on_gpu", pretended({other.name(): 1.0}))
    told = json.loads(command_line.run("tune", "--attention", "1x2x256x128", "--json").stdout)
    assert (told["chosen"], told["problem"]) == (other.name(), call.describe())
    explained = json.loads(command_line.run("explain", "--attention", "1x2x256x128", "--json").stdout)
    assert explained["source"] == "tuned" and explained["config"]["ping_pong"] == other.ping_pong
    other_machine = ["explain", "--attention", "1x2x256x128", "--machine", "H100", "--json"]
    assert json.loads(command_line.run(*other_machine).stdout)["source"] == "rule"
    assert "timed on this GPU" in command_line.run("explain", "--attention", "1x2x256x128").stdout
