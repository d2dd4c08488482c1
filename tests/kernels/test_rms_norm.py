"""`rms_norm` with a residual: clean, and its mutants are found."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.errors import refused
from warploom.isa.dtypes import bf16
from warploom.kernels.rms_norm import build

COLUMNS = 2056
"""One piece more than 256 threads read: the second chunk is of one thread."""


def arguments() -> tuple[np.ndarray, ...]:
    generator = np.random.default_rng(0)
    return tuple(generator.standard_normal(shape).astype(ml_dtypes.bfloat16)
                 for shape in ((3, COLUMNS), COLUMNS, (3, COLUMNS)))  # fmt: skip


def expected(x: np.ndarray, weight: np.ndarray, residual: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    quotient = (wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5)).astype(ml_dtypes.bfloat16)
    product = (quotient.astype(np.float64) * weight.astype(np.float64)).astype(ml_dtypes.bfloat16)
    return product.astype(np.float64) + residual.astype(np.float64)


def run(text: str | None = None, schedule: str = "lazy"):
    kernel = build(bf16, 8, 2, added=True)
    x, weight, residual = arguments()
    return kernel.emulate(x, weight, residual, EPS=1e-5, check=True, ptx=text, schedule=schedule)


@pytest.mark.parametrize("schedule", ["lazy", "random"])
def test_it_is_right_and_clean(schedule: str):
    report = run(schedule=schedule)
    right = expected(*arguments())
    assert not report.findings
    assert (np.abs(report.outputs[0].astype(np.float64) - right) <= 2.0**-7 * np.abs(right).clip(0.05)).all()


def test_a_barrier_that_is_left_out_is_found():
    text = build(bf16, 8, 2, added=True).ptx()
    assert text.count("bar.sync 0;") == 1
    assert "data-race" in {finding.rule for finding in run(text.replace("bar.sync 0;", "")).findings}


@pytest.mark.parametrize("planted", ["@%p5 ld.global.v4.b32 {%r28", "@%p5 st.global"], ids=["residual", "result"])
def test_an_access_past_the_end_of_a_row_is_found(planted: str):
    text = build(bf16, 8, 2, added=True).ptx()
    assert text.count(planted) == 1
    with refused("out-of-bounds"):
        run(text.replace(planted, planted.removeprefix("@%p5 ")))
