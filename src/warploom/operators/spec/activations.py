"""The activations as array operations: values and derivatives. Their PTX is in `collective`.

    relu        max(x, 0)
    gelu        x Phi(x), Phi the normal distribution (by erf)
    gelu_tanh   x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))          Hendrycks and Gimpel, arXiv 1606.08415
    silu        x / (1 + exp(-x))

Each function takes x and the module to compute with: torch, `NUMPY`, or `jax.numpy` with erf (`where, exp, tanh, erf`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

SQRT_HALF = math.sqrt(0.5)
DENSITY = 1 / math.sqrt(2 * math.pi)
TANH_FACTOR, CUBIC = math.sqrt(2 / math.pi), 0.044715

NUMPY = SimpleNamespace(
    where=np.where, exp=np.exp, tanh=np.tanh,
    erf=lambda x: np.vectorize(math.erf, otypes=[np.float64])(x) if np.size(x) else x,
)  # fmt: skip


@dataclass(frozen=True)
class Activation:
    """An activation.

    Attributes:
        forward: (x, module) -> y.
        slope: (x, module) -> dy/dx.
    """

    forward: Callable[[Any, Any], Any]
    slope: Callable[[Any, Any], Any]


def _relu(x: Any, m: Any) -> Any:
    return m.where(x <= 0, 0.0, x)  # keeps NaN


def _relu_slope(x: Any, m: Any) -> Any:
    return m.where(x > 0, 1.0, 0.0)


def _logistic(x: Any, m: Any) -> Any:
    return 1 / (1 + m.exp(-x))


def _silu(x: Any, m: Any) -> Any:
    return x / (1 + m.exp(-x))


def _silu_slope(x: Any, m: Any) -> Any:
    s = _logistic(x, m)
    return s * (1 + x * (1 - s))


def _gelu(x: Any, m: Any) -> Any:
    return 0.5 * x * (1 + m.erf(x * SQRT_HALF))


def _gelu_slope(x: Any, m: Any) -> Any:
    return 0.5 * (1 + m.erf(x * SQRT_HALF)) + x * DENSITY * m.exp(-0.5 * x * x)


def _gelu_tanh(x: Any, m: Any) -> Any:
    return 0.5 * x * (1 + m.tanh(TANH_FACTOR * (x + CUBIC * x**3)))


def _gelu_tanh_slope(x: Any, m: Any) -> Any:
    t = m.tanh(TANH_FACTOR * (x + CUBIC * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * TANH_FACTOR * (1 + 3 * CUBIC * x * x)


ACTIVATIONS = {
    "relu": Activation(_relu, _relu_slope),
    "gelu": Activation(_gelu, _gelu_slope),
    "gelu_tanh": Activation(_gelu_tanh, _gelu_tanh_slope),
    "silu": Activation(_silu, _silu_slope),
}
