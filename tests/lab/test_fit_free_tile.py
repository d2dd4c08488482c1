"""The cost model of free tiles: its constants are those of the evidence, and the fit recovers synthetic constants."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from benchmarks import fit_free_tile as fit
from warploom.kernels.hopper.free_tile_choice import Rates, ranked, terms
from warploom.lab import catalogue
from warploom.runtime.machine import H200

SMS = H200().sms


def test_the_constants_are_those_that_the_evidence_shows():
    assert asdict(Rates()) == pytest.approx(json.loads(fit.MODEL.read_text())["rates"], rel=1e-6)


def test_the_sweep_has_products_of_all_sizes_and_the_evidence_judges_layers_left_out_of_the_fit():
    shown = json.loads(fit.MODEL.read_text())
    found = fit.groups(json.loads(fit.SWEEP.read_text())["rows"])
    assert len(found) == shown["left_out"]["products"] >= 150
    dealt = fit.folds(found)
    layers = [{(group.problem.n, group.problem.k) for group in fold} for fold in dealt]
    assert all(not one & other for one in layers for other in layers if one is not other)
    assert fit.judged(found, Rates())["regret_mean"] == pytest.approx(shown["in_sample"]["regret_mean"], abs=2e-3)


def test_a_fit_to_times_that_the_model_made_chooses_without_regret():
    made, points = replace(fit.START, epilogue=1.5, exchange=0.9, tokens=0.9), []
    for problem in catalogue.draw(5, 30, least=32, most=512):
        size = problem.m, problem.n, problem.k
        tiles = ranked(*size, sms=SMS)[:12]
        times = {tile.name(): terms(tile, *size, sms=SMS, rates=made).total for tile, _ in tiles}
        points.append({**problem.as_dict(), "us": {**times, "cublas": 10.0}, "final_us": {}})
    found = fit.groups(points)
    before, after = (fit.judged(found, rates) for rates in (fit.START, fit.fitted(found, steps=600)))
    assert after["regret_mean"] < before["regret_mean"] * 0.6 and after["error_mean"] < before["error_mean"]


def test_small_m_configurations_are_judged_as_the_tiles_that_they_are_like():
    assert fit.tile_of("n8_w64k2s6_S3c_o2_start_p3").split_k == 3  # type: ignore[union-attr]
    assert fit.tile_of("n8_w64k1s24_stream_start_p3") is None and fit.tile_of("cublas") is None
    assert np.isfinite(terms(fit.tile_of("n8_w64k2s12_S2c_start_p3"), 1, 4096, 4096, sms=SMS).total)  # type: ignore[arg-type]
