"""The kernels of `benchmarks/unseen/brought.py` compute what their descriptions say."""

import pytest

from benchmarks.unseen import SMALL, brought
from benchmarks.unseen.brought_exact import compare
from warploom.runtime import emulate
from warploom.runtime.on_clock import predict

CASES = {case.name: case for case in brought.cases(SMALL)}


@pytest.mark.sample(4, all=6)
@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_its_description_says(name):
    case = CASES[name]
    inputs, outputs = [one.made() for one in case.inputs], tuple(one.made() for one in case.outputs)
    emulate(case.build(), *inputs, out=outputs[0] if len(outputs) == 1 else outputs, **case.scalars)
    compare(case, inputs, outputs)


@pytest.mark.parametrize(
    ("name", "waits"), [("nvcc_looked_back", True), ("nvcc_relaxed", False), ("nvcc_queued_picture", False)]
)
def test_a_prediction_says_that_it_does_not_know_how_long_ctas_wait_for_flags(name, waits):
    """All CTAs of a barrier of the grid are recorded, so that these waits are known."""
    case = CASES[name]
    inputs, outputs = [one.made() for one in case.inputs], tuple(one.made() for one in case.outputs)
    found = predict(case.build(), *inputs, out=outputs, registers=32, clusters=case.clusters, **case.scalars)
    assert ("flags" in found.note) == waits
