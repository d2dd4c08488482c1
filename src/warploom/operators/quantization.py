"""`quantize`: converts a matrix to eight bits with scales such that x is approximately q * scale.

    "tensor"     one scale                                     f32, ()
    "row"        one for each row (of all but the last dim)    f32, (…, M, 1)
    "block128"   one for each 128 columns of each row          f32, (…, M, K/128)
                 and for weights, block=(128, 128), one for each 128 x 128

The shapes are those of torch._scaled_mm for the left operand; those of the right operand are transposed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError
from ..isa import dtypes
from ..isa.dtypes import DType, e4m3, e5m2
from ..runtime.arrays import root_module
from .spec.scales import BLOCK, SCALES

LARGEST: dict[DType, float] = {e4m3: 448.0, e5m2: 57344.0}
LEAST_SCALE = float(np.finfo(np.float32).tiny)
"""Smallest scale. A smaller one would be subnormal, or zero, and its reciprocal infinite."""


def quantize(x: Any, kind: str = "tensor", *, dtype: object = "e4m3", block: tuple[int, int] = (1, BLOCK)) -> Any:
    """Eight-bit floats and their scales; the largest |x| of each group maps to the type's largest value.

    Args:
        x: a NumPy or JAX array or a torch tensor of floats, at least a matrix.
        kind: "tensor", "row" or "block128".
        dtype: e4m3 or e5m2.
        block: for "block128": (1, 128) for activations, (128, 128) for weights. Edge blocks may be partial.

    Returns (q, scale), in x's framework and on its device. For a weight qb of (N, K), call
    `matmul(qa, qb.T, scale_a=sa, scale_b=sb.T)`. A group of zeros has scale 1; one with an infinity or NaN becomes NaN.

    Raises ArgumentError, ArgumentTypeError.
    """
    wanted = dtypes.of(dtype)
    if wanted not in LARGEST:
        raise ArgumentTypeError("quantize makes eight-bit floats", expected="e4m3 or e5m2", got=wanted)
    if kind not in SCALES:
        raise ArgumentError(f"unknown quantization {kind!r}", expected=", ".join(SCALES))
    if kind == "block128" and block not in ((1, BLOCK), (BLOCK, BLOCK)):
        raise ArgumentError("unknown block size", expected="(1, 128) or (128, 128)", got=block)
    if root_module(x) == "torch":
        return _torch(x, kind, wanted, block)
    array = np.asarray(x)
    if array.dtype.kind in "iubcOSUMm" or array.ndim < 2:
        raise ArgumentTypeError(
            "quantize takes a matrix of floats",
            expected="(…, M, K) f32, f16 or bf16",
            got=f"{array.dtype} {array.shape}",
        )
    quantized, scale = _numpy(array.astype(np.float32), kind, wanted, block)
    if root_module(x) in ("jax", "jaxlib"):
        import jax

        return jax.numpy.asarray(quantized), jax.numpy.asarray(scale)
    return quantized, scale


def _numpy(x: np.ndarray, kind: str, dtype: DType, block: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    largest = np.float32(LARGEST[dtype])
    if kind == "block128":
        most = _block_most(np.abs(x), block, np.maximum.reduceat)
    else:
        size = np.abs(x)
        most = size.max(axis=-1, keepdims=True, initial=0.0) if kind == "row" else size.max(initial=0.0)
    scale = np.where(most > 0, np.maximum(most / largest, LEAST_SCALE), np.float32(1)).astype(np.float32)
    full = scale if kind != "block128" else _spread(scale, x.shape, block, np.repeat)
    with np.errstate(invalid="ignore"):
        return np.clip(x / full, -largest, largest).astype(dtype.numpy), scale


def _block_most(x: np.ndarray, block: tuple[int, int], reduceat: Any) -> np.ndarray:
    for axis, size in ((-1, block[1]), (-2, block[0])):
        if size > 1:
            x = reduceat(x, np.arange(0, x.shape[axis], size), axis=axis)
    return x


def _spread(scale: Any, shape: tuple[int, ...], block: tuple[int, int], repeat: Any) -> Any:
    """Each scale, repeated for all elements of its block."""
    for axis, size in ((-1, block[1]), (-2, block[0])):
        if size > 1:
            scale = repeat(scale, size, axis)
    return scale[..., : shape[-2], : shape[-1]]


def _torch(x: Any, kind: str, dtype: DType, block: tuple[int, int]) -> tuple[Any, Any]:
    import torch

    if not x.is_floating_point() or x.ndim < 2:
        raise ArgumentTypeError(
            "quantize takes a matrix of floats",
            expected="(…, M, K) f32, f16 or bf16",
            got=f"{x.dtype} {tuple(x.shape)}",
        )
    largest = LARGEST[dtype]
    values = x.detach().float()
    size = values.abs()
    if kind == "tensor":
        most = size.amax() if size.numel() else size.new_zeros(())
    elif kind == "row":
        most = size.amax(-1, keepdim=True) if size.shape[-1] else size.new_zeros((*size.shape[:-1], 1))
    else:
        rows, columns = size.shape[-2:]
        padded = torch.nn.functional.pad(size, (0, -columns % block[1], 0, -rows % block[0]))
        shape = (*padded.shape[:-2], padded.shape[-2] // block[0], block[0], padded.shape[-1] // block[1], block[1])
        most = padded.reshape(shape).amax((-3, -1))
    scale = torch.where(most > 0, (most / largest).clamp(min=LEAST_SCALE), torch.ones_like(most))
    full = scale if kind != "block128" else _spread(scale, values.shape, block, torch.repeat_interleave)
    quantized = (values / full).clamp(-largest, largest).to(getattr(torch, dtypes.torch_name(dtype)))
    return quantized, scale
