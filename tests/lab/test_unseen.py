"""The unseen kernels of `benchmarks/unseen` are clean on small problems, and the timing model predicts each."""

import math

import numpy as np
import pytest

from benchmarks.unseen import SMALL, cases
from warploom.runtime import emulate
from warploom.runtime.on_clock import predict

CASES = {case.name: case for case in cases(SMALL)}


def _call(case, zeros=False):
    outputs = tuple(one.made() for one in case.outputs)
    return [one.made(zeros) for one in case.inputs], outputs[0] if len(outputs) == 1 else outputs


def test_no_two_kernels_have_one_name():
    names = [case.name for case in cases()]
    assert len(names) == len(set(names)), "evidence is kept by name"


@pytest.mark.sample(8, all=9)
@pytest.mark.parametrize("name", CASES)
def test_an_unseen_kernel_does_nothing_wrong(name):
    case = CASES[name]
    inputs, out = _call(case)
    report = emulate(case.build(), *inputs, out=out, check=True, **case.scalars)
    assert not [finding for finding in report.findings if finding.severity == "error"]


@pytest.mark.sample(2, all=2)
@pytest.mark.parametrize("name", CASES)
def test_an_unseen_kernel_is_predicted_from_its_launch_up(name):
    case = CASES[name]
    inputs, out = _call(case, zeros=not case.steered)
    found = predict(case.build(), *inputs, out=out, registers=64, clusters=case.clusters, **case.scalars)
    assert math.isfinite(found.us)
    assert 0.3 < found.us < 2000.0
    assert 0.0 <= min(found.roofs.values())
    assert max(found.roofs.values()) <= 1.02


def test_a_sum_a_norm_and_a_transpose_are_right():
    case = CASES["layer_norm_8192_x_4096"]
    (x, w, b), out = _call(case)
    case.build()(x, w, b, out=out)
    exact = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * w + b
    np.testing.assert_allclose(out, exact, rtol=1e-3, atol=1e-4)
    case = CASES["transpose_naive"]
    (x,), out = _call(case)
    np.testing.assert_array_equal(case.build()(x).T, x)
