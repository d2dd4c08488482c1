"""`tune --fit`: a mock card on which a family is slower than the model says; interrupted, next to another, full."""

from __future__ import annotations

from dataclasses import replace

import pytest

from warploom import config
from warploom.errors import ArgumentError, CacheWarning, NoGpuError
from warploom.operators import Problem, choose
from warploom.operators.families import family_of, ranked
from warploom.operators.fitted import FittedModels, fits
from warploom.operators.recalibrate import recalibrate
from warploom.operators.select import _chosen, ranking
from warploom.operators.spec.gpu import EMULATED
from warploom.operators.tuned import tables

CARD = replace(EMULATED, name="another card", driver="14.0")
SIZES = [(m, n, k) for m in (16, 64, 200, 512, 2048) for n, k in ((4096, 4096), (6144, 2048), (14336, 4096))]
PROBLEMS = [Problem.of(*sizes) for sizes in SIZES]


@pytest.fixture(autouse=True)
def cache(tmp_path):
    fits.cache_clear()
    _chosen.cache_clear()
    with config.override(cache_dir=tmp_path):
        yield tmp_path
    fits.cache_clear()
    _chosen.cache_clear()


def card(slower: dict[str, float], seen: list | None = None, last: int | None = None):
    """A timer of a card on which families take so many times as long as the model expects."""

    def timer(problem, configs, device, rounds, step):
        if last is not None and seen is not None and len(seen) == last:
            raise KeyboardInterrupt
        if seen is not None:
            seen.append(problem)
        expected = {one: guess.time_us for one, guess in ranked(list(configs), problem, CARD)}
        return {one: us * slower.get(family_of(one, problem).name, 1.0) for one, us in expected.items()}, {}

    return timer


def regret(problem: Problem, slower: dict[str, float]) -> float:
    """How much longer the choice takes on that card than the fastest candidate."""
    configs = [config for config, _ in ranking(problem, CARD)]
    times, _ = card(slower)(problem, configs, 0, 1, None)
    return times[choose(problem, CARD).config] / min(times.values()) - 1


def test_a_family_that_is_slower_on_this_card_is_chosen_less_on_products_that_were_not_timed():
    unseen = [Problem.of(m, n, k) for m in (8, 32, 600, 3000) for n, k in ((5120, 5120), (8192, 1024))]
    slower = {"free_tile": 3.0}
    before = [regret(each, slower) for each in unseen]
    assert sum(before) / len(before) > 0.3
    found = recalibrate(PROBLEMS, gpu=CARD, progress=False, timer=card(slower))
    assert found.timed_now == found.products == len(PROBLEMS) and found.after < found.before - 0.1
    assert found.weights["free_tile"][0] > found.weights["hopper_large"][0]
    after = [regret(each, slower) for each in unseen]
    assert sum(after) / len(after) < 0.05
    assert f"{found.before:.2%}" in found.text() and f"{found.after:.2%}" in found.text()
    elsewhere = replace(CARD, name="a third card")
    assert family_of(choose(unseen[0], elsewhere).config, unseen[0]).name == "free_tile"


def test_where_the_model_is_right_it_stays_as_it_is():
    order = ranking(PROBLEMS[0], CARD)
    found = recalibrate(PROBLEMS, gpu=CARD, progress=False, timer=card({}))
    assert not found.weights and found.before == 0.0 and ranking(PROBLEMS[0], CARD) == order


def test_another_process_reads_the_fit():
    recalibrate(PROBLEMS, gpu=CARD, progress=False, timer=card({"free_tile": 3.0}))
    weights = fits().weights(CARD)
    assert FittedModels().weights(CARD) == weights and len(FittedModels().times(CARD)) == len(PROBLEMS)


def test_what_an_interrupted_run_has_timed_is_kept_and_not_timed_again():
    seen: list = []
    with pytest.raises(KeyboardInterrupt):
        recalibrate(PROBLEMS, gpu=CARD, progress=False, timer=card({"free_tile": 3.0}, seen, last=6))
    fits.cache_clear()
    again: list = []
    found = recalibrate(PROBLEMS, gpu=CARD, progress=False, timer=card({"free_tile": 3.0}, again))
    assert len(seen) == 6 and again == PROBLEMS[6:] and found.timed_now == len(again)
    assert found.products == len(PROBLEMS) and found.weights


def test_two_processes_that_fit_keep_what_both_have_timed():
    mine, theirs = FittedModels(), FittedModels()
    assert not mine.times(CARD) and not theirs.times(CARD)
    name = {"free_tile:": 1.0}
    mine.keep(CARD, {"one": name}, {})
    theirs.keep(CARD, {"two": name})
    assert set(FittedModels().times(CARD)) == {"one", "two"}


def test_a_full_disk_loses_nothing_of_this_process(monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("warploom.operators.fitted.replace_file", full)
    with pytest.warns(CacheWarning):
        found = recalibrate(PROBLEMS, gpu=CARD, progress=False, timer=card({"free_tile": 3.0}))
    assert found.kept == "" and found.weights and regret(PROBLEMS[0], {"free_tile": 3.0}) < 0.05


@pytest.mark.parametrize("content", [
    "{ no json", "[]", '{"times": 3}', '{"times": {"a": {"free_tile:": "x"}}}', '{"times": {"a": {"no family:": 1}}}',
    '{"times": {"a": {"free_tile:": -1}}}', '{"weights": {"free_tile": [1]}}',
    '{"weights": {"free_tile": [1, 1, NaN]}}',
])  # fmt: skip
def test_a_fit_that_cannot_be_read_is_none_and_said_to_be_none(cache, content):
    path = tables().path(CARD, str(cache)).with_suffix(".fit.json")
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.warns(CacheWarning):
        assert not FittedModels().weights(CARD)


def test_products_that_cannot_be_timed_are_named_and_too_few_are_refused():
    def none(problem, configs, device, rounds, step):
        return {}, {"all": "it does not launch"}

    with pytest.raises(ArgumentError) as caught:
        recalibrate(PROBLEMS, gpu=CARD, progress=False, timer=none)
    assert caught.value.code == "argument" and "it does not launch" in str(caught.value)
    with pytest.raises(ArgumentError):
        recalibrate(PROBLEMS[:2], gpu=CARD, progress=False, timer=none)


def test_without_a_gpu_nothing_is_fitted(monkeypatch):
    def missing(device):
        raise NoGpuError("there is no GPU (none)")

    monkeypatch.setattr("warploom.operators.tune.gpu_of", missing)
    with pytest.raises(NoGpuError):
        recalibrate(PROBLEMS, progress=False)
