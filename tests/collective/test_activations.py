"""Activation functions against float64: the bounds they state, and their limits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from warploom.collective.epilogue.activations import ERRORS, FUNCTIONS, TAIL, TAIL_END
from warploom.lang import Kernel, Tile, kernel, ptx
from warploom.types import f32, u64

THREADS = 256


def exact(name: str, x: np.ndarray) -> np.ndarray:
    """The function in float64; at infinity its limit."""
    x = x.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        if name == "relu":
            return np.where(np.isnan(x), x, np.maximum(x, 0))
        if name == "gelu":
            y = 0.5 * x * np.vectorize(math.erfc)(-x / math.sqrt(2))
        elif name == "gelu_tanh":
            y = x / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        else:
            y = x / (1 + np.exp(-x))
    return np.where(x == -np.inf, 0.0, np.where(x == np.inf, x, y))


def kernel_of(name: str) -> Kernel:
    @kernel(in_specs=(Tile("N", f32),), out_specs=(Tile("N", f32),), grid=(1,), block=THREADS, arch="sm_90a")
    def apply(X, Y):
        thread = ptx.special.tid.x()
        for index in ptx.range(thread, X.shape[0], THREADS):
            offset = index.to(u64) * 4
            ptx.store(ptx.addr(Y.pointer() + offset), FUNCTIONS[name](ptx.load(f32, ptx.addr(X.pointer() + offset))))

    return apply


def bound(name: str, y: np.ndarray) -> np.ndarray:
    relative, absolute = ERRORS[name]
    return relative * np.abs(y) + absolute


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_error_is_what_is_stated(name: str):
    spread = np.random.default_rng(0).standard_normal(10000) * np.exp(np.random.default_rng(1).uniform(-30, 6, 10000))
    x = np.concatenate([np.linspace(-15, 15, 30001), spread]).astype(np.float32)
    y = exact(name, x)
    off = np.abs(kernel_of(name)(x).astype(np.float64) - y)
    worst = np.argmax(off - bound(name, y))
    assert off[worst] <= bound(name, y)[worst], x[worst]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_limits_and_numbers_far_out(name: str):
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 3e38, -3e38, 1e20, -1e20, 200, -200, 1e-40, -1e-40], np.float32)
    got = kernel_of(name)(x).astype(np.float64)
    np.testing.assert_array_equal(got[:3], [np.inf, 0.0, np.nan])
    y = exact(name, x[3:])
    assert (np.abs(got[3:] - y) <= bound(name, y)).all(), got


def test_the_tail_of_the_normal_distribution_ends_below_the_smallest_normal_number():
    end = sum(c * TAIL_END**power for power, c in enumerate(TAIL))
    assert end < -126


def test_the_tail_keeps_its_size_where_it_is_small():
    """A 16-bit output shows relative errors: down to -4 they are an eighth of bf16's half ulp."""
    x = np.linspace(-4, 0, 2001, dtype=np.float32)[:-1]
    y = exact("gelu", x)
    assert (np.abs(kernel_of("gelu")(x) - y) / np.abs(y)).max() < 2.0**-12
