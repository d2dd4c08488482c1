"""GPUs of sm_80 to sm_89: the ladder's Ampere kernel multiplies bf16; the rest is done by torch behind it.

Slower than what Hopper gets: nothing is fused, operands that are not contiguous along k are copied first.
"""

from __future__ import annotations

import itertools
import warnings
from dataclasses import replace
from typing import Any

from ...errors import ArgumentTypeError, CopyWarning
from ...isa.dtypes import bf16, f32
from ...runtime.arrays import view
from ..request import Request
from ..views import broadcast, copy_into, item, new_array, round_up, to_array, transposed

PIECE = 8
"""Elements that a cp.async brings and a store of two pairs writes: K and N are multiples of it."""


def run_ampere(request: Request, out: Any, stream: Any = None) -> Any:
    """All products of a call, on a GPU or, to be tried, in the emulator. Gives back the result.

    Raises ArgumentTypeError for types other than bf16.
    """
    from functools import partial

    from ...kernels.ladder.r06_ampere_multistage import Config, build

    problem, product = request.problem, request.problem.product
    if product.a is not bf16 or product.out not in (bf16, f32):
        raise ArgumentTypeError(
            "on GPUs before Hopper (sm_90) matmul multiplies bf16 only",
            expected="bf16 x bf16 -> bf16 or f32",
            got=f"{product.a} x {product.b} -> {product.out}",
        )
    plain = problem.fusion.empty
    kernel = build(Config(out=product.out if plain else f32))
    result = out if out is not None else new_array(request.a, request.shape, product.out)
    target = request.out or replace(view(result, "out"), writable=True)
    batch = problem.batch
    if not batch and len(target.shape) > 2:
        from ..views import merged

        target = merged(target) or target
    a, b = broadcast(request.a, batch), transposed(broadcast(request.b, batch))
    run = partial(kernel, stream=stream) if stream is not None else kernel
    for index in itertools.product(*map(range, batch)):
        left, right = (_contiguous(item(x, index), name, request) for x, name in ((a, "a"), (b, "b")))
        place = item(target, index)
        direct = plain and place.contiguous and place.shape[1] % PIECE == 0
        room = place if direct else _room(place, right.shape[0], kernel.program().arrays[-1].dtype)
        run(left, right, out=room)
        if not direct:
            _finish(request, room, place, index)
    return result


def _contiguous(operand: Any, name: str, request: Request) -> Any:
    """(rows, K) with rows and K as the kernel wants them; rows and columns of zeros are added where they miss."""
    rows, k = operand.shape
    wanted = (round_up(rows, PIECE) if name == "b" else rows, round_up(k, PIECE))
    if operand.contiguous and operand.shape == wanted and operand.pointer % 16 == 0:
        return operand
    warnings.warn(
        f"{request.called} copies `{request.said(name)}` on this GPU: its kernel reads contiguous rows of multiples of "
        f"{PIECE} elements",
        CopyWarning,
        stacklevel=2,
    )
    copy = replace(view(new_array(operand, wanted, operand.dtype), name), writable=True)
    host = copy.host
    (host if host is not None else to_array(copy))[...] = 0
    inner = replace(copy, shape=operand.shape, host=None if host is None else host[:rows, :k])
    copy_into(inner, operand)
    return copy


def _room(place: Any, columns: int, dtype: Any) -> Any:
    return replace(view(new_array(place, (place.shape[0], columns), dtype), "room"), writable=True)


def _finish(request: Request, room: Any, place: Any, index: tuple[int, ...]) -> None:
    """The end of the product, by array operations."""
    import numpy as np

    from .. import reference

    fusion = request.problem.fusion
    n = place.shape[1]
    if room.host is not None:
        end = {name: _part(request, name, index) for name in ("bias", "c", "gate")}
        if fusion.bias == "row":
            end["bias"] = end["bias"][:, None]
        x = reference.finish(
            room.host[:, :n].astype(np.float64) * request.alpha, activation=fusion.activation, beta=request.beta, **end
        )
        place.host[...] = x.astype(place.host.dtype)
        return
    import torch

    x = to_array(room)[:, :n].float() * request.alpha
    if request.bias is not None:
        bias = to_array(request.bias).float()
        x = x + (bias[:, None] if fusion.bias == "row" else bias)
    functions = torch.nn.functional
    activations: dict[str | None, Any] = {
        None: lambda x: x, "relu": functions.relu, "silu": functions.silu, "gelu": functions.gelu,
        "gelu_tanh": lambda x: functions.gelu(x, approximate="tanh"),
    }  # fmt: skip
    x = activations[fusion.activation](x)
    if request.gate is not None:
        x = x * to_array(item(request.gate, index)).float()
    if request.c is not None:
        x = x + request.beta * to_array(item(request.c, index)).float()
    to_array(place).copy_(x)


def _part(request: Request, name: str, index: tuple[int, ...]) -> Any:
    import numpy as np

    array = getattr(request, name)
    if array is None:
        return None
    host = (array if name == "bias" else item(array, index)).host
    return None if host is None else host.astype(np.float64)
