"""Kernels that were never run on hardware: one warning per family, and a check of the first result of each kernel.

The check is slow and simple: some rows of every band of 128, all columns, in float64 on the host. It finds tiles that
are missing, doubled or misplaced, overwritten stages, and misread fragments, but not intermittent errors.
`config.check_unproven` (WARPLOOM_CHECK_UNPROVEN=off) turns it off.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any, Protocol

import ml_dtypes
import numpy as np

from ..collective.epilogue.spec import Fusion
from ..errors import UnprovenWarning, WrongResultError
from ..isa.dtypes import DType, tf32
from ..runtime.arrays import ArrayView
from ..settings import config as settings
from . import reference
from .bind import outside, warned
from .families import KernelFamily
from .grouped_request import Grouped
from .quantization import LARGEST
from .request import Request
from .views import broadcast, item, to_array, transposed

BAND = 128
"""Band of rows from which some are checked: no kernel has a smaller tile."""
MOST_WORK = 2**36
"""Multiply-adds of a check: about a second of a CPU."""
SLACK = 2.0**-9
"""Tolerance relative to the largest element, for f32 sums and fused activations; a wrong element is off by far more."""


class UnprovenFamily(Protocol):
    """A kernel family by name, and why it is unproven; "" if it is not."""

    name: str
    unproven: str


def warn_unproven(family: KernelFamily | UnprovenFamily) -> None:
    """Warn once per process that these kernels were never run on hardware."""
    if family.unproven and warned().first(("unproven", family.name)):
        checked = "; the first result of each is compared with a slow reference" if settings.check_unproven else ""
        warnings.warn(
            f"the {family.name} kernels are {family.unproven} ({UnprovenWarning.code}){checked}",
            UnprovenWarning,
            stacklevel=outside(),
        )


def check_first(request: Request, config: Any, result: ArrayView) -> None:
    """Compare the first result of a configuration, for these types and this epilogue, with the reference.

    result: (…, M, N). Raises WrongResultError if an element is off by more than rounding explains. A result that is
    being captured into a graph, or has no view in its framework, is left for a later call.
    """
    problem = request.problem
    if not due(("checked", config, problem.product, problem.fusion), result):
        return
    first = (0,) * len(problem.batch)
    rows = _rows(problem.m, problem.n, problem.k)
    a = numbers_in(item(broadcast(request.a, problem.batch), first), rows, problem.product.a)
    b = transposed(item(transposed(broadcast(request.b, problem.batch)), first))
    got = numbers_in(item(result, first), rows)
    exact = reference.matmul(a, numbers_in(b, dtype=problem.product.b), **_end(request, first, rows))
    _compare(config, got, exact, rows, problem.product.out, problem.fusion)


def check_groups(group: Grouped, config: Any, result: ArrayView) -> None:
    """Like `check_first` for a grouped product: some rows of each group; result: (Rows, N) or (Groups, MaxRows, N)."""
    if not due(("grouped", config, group.product, group.fusion, group.what), result):
        return
    marks = numbers_in(group.views["marks"]).astype(int)
    room = group.rows // group.groups
    begins = np.concatenate([[0], marks[:-1]]) if group.what == "offsets" else np.arange(group.groups) * room
    ends = marks if group.what == "offsets" else begins + np.minimum(marks, room)
    left, got = (numbers_in(array).reshape(group.rows, -1) for array in (group.views["a"], result))
    vectors = {name: numbers_in(group.views[name]) for name in ("scale_a", "scale_b", "bias") if name in group.views}
    each = max(1, MOST_WORK // (group.n * group.k * group.groups))
    for number, (begin, end) in enumerate(zip(begins, np.clip(ends, 0, group.rows), strict=True)):
        rows = np.arange(begin, end)[:: max(1, (end - begin) // each)]
        of_group = {"bias": vectors["bias"][number]} if "bias" in vectors else {}
        if group.fusion.scales == "row":
            of_group |= {"scale_a": vectors["scale_a"].reshape(-1, 1)[rows],
                         "scale_b": vectors["scale_b"].reshape(group.groups, 1, -1)[number]}  # fmt: skip
        elif group.fusion.scales == "tensor":
            of_group |= {name: vectors[name].reshape(-1)[0] for name in ("scale_a", "scale_b")}
        b = numbers_in(item(group.views["b"], (number,)), dtype=group.product.b)
        exact = reference.matmul(left[rows], b, activation=group.fusion.activation, **of_group)
        _compare(config, got[rows], exact, rows, group.product.out, group.fusion)


def due(key: Any, result: ArrayView) -> bool:
    """True if a result is the first of its kind, and can be read now."""
    readable = result.host is not None or result.framework == "torch"
    return settings.check_unproven and readable and not _capturing() and warned().first(key)


def _compare(config: Any, got: np.ndarray, exact: np.ndarray, rows: np.ndarray, out: DType, fusion: Fusion) -> None:
    """Raise WrongResultError if an element is off by more than rounding explains."""
    largest = LARGEST.get(out)
    if largest is not None:
        exact = np.clip(exact, -largest, largest)
    allowed = _unit(out) * np.abs(exact) + SLACK * np.abs(exact).max(initial=0) + _least(fusion)
    off = ~(np.abs(got - exact) <= allowed)
    if off.any():
        row, column = np.argwhere(off)[0]
        raise WrongResultError(
            f"the first result of {config.name()} is wrong: {off.sum()} of {off.size} checked elements differ",
            expected=f"about {exact[row, column]:.6g} at ({rows[row]}, {column})",
            got=f"{got[row, column]:.6g}",
            consequence="the kernel was never run on hardware before, and is wrong here",
            hint="please report it with this message; another config= or torch.matmul may be right",
        )


def _rows(m: int, n: int, k: int) -> np.ndarray:
    """The rows to compare: all rows of a small product, otherwise the same number from each band, spread over it."""
    bands = -(-m // BAND)
    each = max(1, min(BAND, MOST_WORK // max(n * k * bands, 1)))
    rows = np.arange(bands)[:, None] * BAND + (np.arange(each) * BAND // each)[None, :]
    return rows[rows < m]


def _end(request: Request, index: tuple[int, ...], rows: np.ndarray) -> dict[str, Any]:
    """The reference's arguments besides the operands."""
    fusion = request.problem.fusion
    end: dict[str, Any] = {"alpha": request.alpha, "beta": request.beta, "activation": fusion.activation}
    for name in ("c", "gate"):
        array = getattr(request, name)
        end[name] = None if array is None else numbers_in(item(array, index), rows)
    for name in ("bias", "scale_a", "scale_b", "scale_out"):
        array = getattr(request, name)
        end[name] = None if array is None else numbers_in(array)
    if fusion.bias == "row":
        end["bias"] = end["bias"][rows, None]
    if fusion.scales == "row":
        end["scale_a"], end["scale_b"] = end["scale_a"][rows, None], end["scale_b"][None, :]
    return end


def numbers_in(array: ArrayView, rows: np.ndarray | None = None, dtype: DType | None = None) -> np.ndarray:
    """Values in float64; f32 that is multiplied as tf32 is truncated like in the tensor core."""
    if array.host is not None:
        host = array.host if rows is None else array.host[rows]
    else:
        import torch

        owner = to_array(array)
        owner = owner if rows is None else owner[torch.from_numpy(rows).to(owner.device)]
        host = (owner if owner.dtype is torch.float64 else owner.double()).cpu().numpy()
    if dtype is tf32:
        host = (np.ascontiguousarray(host, np.float32).view(np.uint32) & 0xFFFFE000).view(np.float32)
    return host.astype(np.float64)


def _unit(out: DType) -> float:
    return float(ml_dtypes.finfo(out.numpy).eps) if out.is_float else 0.0


def _least(fusion: Fusion) -> float:
    """Absolute tolerance for results near zero."""
    return 1e-6 if fusion.activation else 1e-30


def _capturing() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
