"""The definition of `matmul` in plain array operations: the reference for tests, and the epilogue for K = 0.

    x = alpha * scale_a * scale_b * (A B);  x += bias;  x = activation(x);  x *= gate;  x += beta * C
    D = x * scale_out

Operates on NumPy arrays, in float64 unless stated otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..runtime.arrays import ArrayView, view
from .quantization import LARGEST
from .spec.activations import ACTIVATIONS, NUMPY
from .views import new_array, to_array

if TYPE_CHECKING:
    from .request import Request

NO_SCALE: dict[str, Any] = {"scale_out": None}


def finish(
    x: np.ndarray, *, bias: Any = None, activation: str | None = None, gate: Any = None, c: Any = None,
    beta: float = 1.0, scale_out: Any = None,
) -> np.ndarray:  # fmt: skip
    """The epilogue: bias (N,) or (M, 1), activation, gate, beta C, scale of the output."""
    if bias is not None:
        x = x + np.asarray(bias, x.dtype)
    if activation is not None:
        x = ACTIVATIONS[activation].forward(x, NUMPY)
    if gate is not None:
        x = x * np.asarray(gate, x.dtype)
    if c is not None and beta != 0:
        x = x + beta * np.asarray(c, x.dtype)
    if scale_out is not None:
        x = x * np.asarray(scale_out, x.dtype)
    return x


def matmul(
    a: np.ndarray, b: np.ndarray, *, alpha: float = 1.0, scale_a: Any = None, scale_b: Any = None,
    dtype: Any = np.float64, **end: Any,
) -> np.ndarray:  # fmt: skip
    """The exact product of NumPy arrays in `dtype`, with the fused epilogue, not rounded to an output type.

    Scales: one number each; (M, 1) and (1, N); or (M, K/128) and (K/128, N/128) for blocks.
    """
    left, right = np.asarray(a).astype(dtype), np.asarray(b).astype(dtype)
    by_rows = (left.shape[-2], 1), (1, right.shape[-1])
    if np.ndim(scale_a) == 2 and np.size(scale_a) > 1 and (np.shape(scale_a), np.shape(scale_b)) != by_rows:
        left = left * _spread(scale_a, left.shape, (1, 128))
        right = right * _spread(scale_b, right.shape, (128, 128))
        scale_a = scale_b = None
    x = alpha * (left @ right)
    for scale in (scale_a, scale_b):
        if scale is not None:
            x = x * np.asarray(scale, dtype)
    return finish(x, **end)


def _spread(scale: Any, shape: tuple[int, ...], block: tuple[int, int]) -> np.ndarray:
    """Each scale, repeated for all elements of its block."""
    wide = np.repeat(np.repeat(np.asarray(scale, np.float64), block[0], 0), block[1], 1)
    return wide[: shape[0], : shape[1]]


def without_product(request: Request, out: Any) -> Any:
    """The result of a product with K = 0: the epilogue applied to zeros."""
    problem = request.problem
    result = out if out is not None else new_array(request.a, request.shape, problem.product.out)
    target = request.out if request.out is not None else view(result, "out")
    shape = (*problem.batch, problem.m, problem.n)
    parts = {name: _numbers(getattr(request, name)) for name in ("bias", "c", "gate", "scale_out")}
    if problem.fusion.bias == "row" and parts["bias"] is not None:
        parts["bias"] = parts["bias"][:, None]
    x = finish(np.zeros(shape), activation=problem.fusion.activation, beta=request.beta, **parts)
    if request.amax is not None and x.size:  # the largest before the output's scale, as in the kernel
        unscaled = finish(np.zeros(shape), activation=problem.fusion.activation, beta=request.beta, **parts | NO_SCALE)
        _largest(request.amax, float(np.abs(unscaled).max()))
    if problem.product.out in LARGEST:  # eight-bit floats saturate
        x = np.clip(x, -LARGEST[problem.product.out], LARGEST[problem.product.out])
    if target.host is not None:
        target.host[...] = x.reshape(target.shape).astype(target.host.dtype)
        return result
    import torch

    place = to_array(target)
    place.copy_(torch.from_numpy(x.reshape(target.shape)).to(place.device, place.dtype))
    return result


def _largest(amax: ArrayView, value: float) -> None:
    """amax = max(amax, value), like the kernel's atomic."""
    place = amax.host if amax.host is not None else to_array(amax)
    if value > float(place.reshape(-1)[0]):
        place[...] = value


def _numbers(array: ArrayView | None) -> np.ndarray | None:
    """An argument's values in float64."""
    if array is None:
        return None
    return to_array(array).float().cpu().numpy() if array.host is None else array.host.astype(np.float64)
