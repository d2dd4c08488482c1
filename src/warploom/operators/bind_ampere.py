"""Binds the arrays of a checked call to the Ampere kernel; array operations compute the epilogue after it.

This is slower than on Hopper: nothing is fused, and operands that are not contiguous along K are copied first.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from typing import Any

from ..errors import CopyWarning
from ..runtime.arrays import ArrayView
from ..runtime.program import Program
from . import reference
from .binding import Binding
from .request import Request
from .spec.activations import ACTIVATIONS
from .spec.gpu import Gpu
from .views import copy_into, item, round_up, to_array, writable

PIECE = 8
"""Elements of one cp.async, and of a store of two pairs: K and N are multiples of it."""


class AmpereBinder:
    """Binds the products of a call to an Ampere program. The arguments are those of `bind.Binder`."""

    copied = True
    """False: repeating the launch does not repeat the call."""

    def __init__(self, request: Request, program: Program, config: Any, gpu: Gpu, stream: Any) -> None:
        self.request, self.program, self.plain = request, program, request.problem.fusion.empty

    def bind(self, a: ArrayView, b: ArrayView, out: ArrayView, index: tuple[int, ...]) -> Binding:
        """Bind one product. a: (M, K), b: (N, K), out: (M, N), as given; index: of the leading dimensions."""
        left, right = (_contiguous(each, name, self.request) for each, name in ((a, "a"), (b, "b")))
        names = "a", "b", "out"
        if self.plain and out.contiguous and out.shape[1] % PIECE == 0:
            return Binding((left, right, out), names, {})
        dtype = self.program.arrays[-1].dtype
        room = writable(out, (out.shape[0], right.shape[0]), dtype, "room")
        return Binding((left, right, room), names, {}, partial(_finish, self.request, room, out, index))


def _contiguous(operand: Any, name: str, request: Request) -> Any:
    """(rows, K) in the kernel's layout; missing rows and columns are padded with zeros."""
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
    copy = writable(operand, wanted, operand.dtype, name)
    host = copy.host
    (host if host is not None else to_array(copy))[...] = 0
    inner = replace(copy, shape=operand.shape, host=None if host is None else host[:rows, :k])
    copy_into(inner, operand)
    return copy


def _finish(request: Request, room: Any, place: Any, index: tuple[int, ...]) -> None:
    """The epilogue of the product, as array operations."""
    import numpy as np

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
    if fusion.activation is not None:
        x = ACTIVATIONS[fusion.activation].forward(x, torch)
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
