"""The first use of a model of many products, measured without a GPU: its parts, and what they divide."""

from __future__ import annotations

import time

import pytest

import warploom
from benchmarks import first_use
from warploom.driver import toolchain
from warploom.operators import Problem
from warploom.operators.spec.gpu import EMULATED
from warploom.operators.warm import warm

TINY = [Problem.of(16, 64, 64), Problem.of(16, 128, 64)]


def test_the_products_are_those_that_warm_builds_each_once():
    found = first_use.products("Llama-3-8B", "1,16,64,256,1024", 40)
    assert len(found) == len(set(found)) == 40
    assert any(problem.fusion.gate for problem in found)


def test_a_call_is_divided_into_the_choice_and_the_rest():
    found = first_use.timed(TINY, EMULATED, lambda problem: lambda: time.sleep(0.02))
    assert (found["products"], found["kernels"]) == (2, len({first_use.choose(each).config for each in TINY}))
    assert found["each_s"]["min"] >= 0.02 and found["seconds"] >= 0.04
    assert 0 <= found["first_choice_s"] <= found["choices_s"] <= found["seconds"] - 0.04 + 1e-3


@pytest.mark.skipif(toolchain.ptxas() is None, reason="needs ptxas")
def test_kernels_that_warm_built_are_not_built_again(tmp_path):
    with warploom.config.override(cache_dir=tmp_path):
        cold = first_use.measured("cold", TINY, 0, builds=True)
        assert warm(TINY, EMULATED, workers=0, progress=False).built == 0
    assert cold["products"] == 2 and cold["each_s"]["min"] > 0
