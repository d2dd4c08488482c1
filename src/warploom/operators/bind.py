"""Binds the arrays of a checked call to its program: views if TMA can address them, otherwise copies.

A large copy issues one CopyWarning that gives the reason and the cost.
"""

from __future__ import annotations

import sys
import warnings
from functools import lru_cache, partial
from typing import Any

from ..errors import CopyWarning
from ..isa.dtypes import f32
from ..runtime.arrays import ArrayView
from ..runtime.program import Program
from . import workspace as owned
from .binding import Binding
from .request import Request
from .spec.gpu import Gpu
from .spec.problem import TMA_BYTES
from .spec.scales import BLOCK
from .views import (
    contiguous,
    copy_into,
    item,
    misfit,
    padded_like,
    restrided,
    rows_addressable,
    rows_storable,
    stored,
    transposed,
    with_rows,
    writable,
)

ARGUMENT_OF = {"D": "out", "W": "b", "ScaleA": "scale_a", "ScaleB": "scale_b"}
"""Kernel names of arrays -> `matmul` names; the others differ only by case."""
VECTORS = ("bias", "scale_a", "scale_b", "scale_out", "amax")


class Binder:
    """Binds the products of a call to a program for Hopper.

    Args:
        config: the program's.
        stream: the caller's, or None.

    Attributes:
        copied: True if anything was copied, so that repeating the launch does not repeat the call.
    """

    def __init__(self, request: Request, program: Program, config: Any, gpu: Gpu, stream: Any) -> None:
        self.request, self.program, self.config, self.gpu, self.stream = request, program, config, gpu, stream
        self.copied = False
        self._copies: dict[tuple[str, int], ArrayView] = {}
        self._adds_in_place = any(spec.may_alias == "C" for spec in program.arrays)
        self._mapped = {spec.name for spec in program.arrays if spec.order == "rows"}  # rows at multiples of 16 bytes

    def bind(self, a: ArrayView, b: ArrayView, out: ArrayView, index: tuple[int, ...]) -> Binding:
        """Bind one product. a: (M, K), b: (N, K), out: (M, N), as given; index: of the leading dimensions."""
        request, problem = self.request, self.request.problem
        product = problem.product
        found = {"a": self._operand(a, "a", product.a_major), "b": self._operand(b, "b", product.b_major)}
        if problem.promoted:
            found["scale_a"], found["scale_b"] = self._block_scales()
        for name in VECTORS:
            array = getattr(request, name)
            if array is not None and name not in found:
                found[name] = self._vector(array, name)
        arrays: list[ArrayView] = []
        names: list[str | None] = []
        for spec in self.program.arrays:
            name = ARGUMENT_OF.get(spec.name, spec.name.lower())
            if name in owned.NAMES:
                needed = self.config.workspace(problem.m, problem.n, self.gpu.sms)
                arrays.append(owned.workspace(name, needed, request.a, self.stream))
                names.append(None)
                continue
            if name in ("c", "gate", "out"):
                whole = out if name == "out" else item(getattr(request, name), index)
                found[name] = self._matrix(whole, name, spec.order, spec.name in self._mapped)
                if (
                    name == "c"
                    and request.in_place
                    and not self._adds_in_place
                    and found[name].pointer == whole.pointer
                ):
                    found[name] = self._copied(whole, name, spec.name in self._mapped)
            arrays.append(found[name])
            names.append(name)
        numbers = {parameter.source: getattr(request, parameter.source) for parameter in self.program.scalars}
        moved = found["out"].pointer != out.pointer
        return Binding(
            tuple(arrays), tuple(names), numbers, partial(copy_into, out, found["out"]) if moved else None
        )  # fmt: skip

    def _operand(self, operand: ArrayView, name: str, major: str) -> ArrayView:
        """An operand as (rows, K) in the layout of the kernel; copied if TMA cannot read it."""
        source = operand if major == "K" else transposed(operand)
        if rows_addressable(source):
            return with_rows(source)
        key = (name, source.pointer)
        if key not in self._copies:
            # Here it is (N, K); matmul's caller passes (K, N).
            given = transposed(operand) if name == "b" and self.request.called == "matmul" else operand
            self._announce(name, stored(operand, operand.dtype.bits == 16).copy or misfit(source), given)
            self._copies[key] = padded_like(source, source.shape, source.dtype)
            copy_into(self._copies[key], source)
        return with_rows(self._copies[key])

    def _matrix(self, array: ArrayView, name: str, order: str, mapped: bool) -> ArrayView:
        """An (M, N) array in the layout of the kernel: itself, or a new one (a copy, unless it is the output)."""
        if array.contiguous and any(step < 0 for step in array.strides):  # of a dimension of one element
            array = restrided(array, array.shape, (array.shape[1] * array.dtype.bytes, array.dtype.bytes))
        forward = all(step >= 0 for step in array.strides)
        plain = array.contiguous or (order != "C" and forward)
        fits = rows_storable if name == "out" else rows_addressable
        if plain and (not mapped or fits(array)):
            return with_rows(array) if mapped else array
        why = "it is not contiguous" if not mapped and forward else misfit(array)
        if mapped and rows_addressable(array):
            why = f"its rows are not multiples of {TMA_BYTES} bytes, which a TMA store needs"
        self._announce(name, why, array)
        return self._copied(array, name, mapped)

    def _copied(self, array: ArrayView, name: str, mapped: bool) -> ArrayView:
        """A new array for an (M, N) one, with its elements copied unless it is the output."""
        self.copied = True
        if mapped:
            copy = padded_like(array, array.shape, array.dtype)
        else:
            copy = writable(array, array.shape, array.dtype, name)
        if name != "out":
            copy_into(copy, array)
        return copy

    def _block_scales(self) -> tuple[ArrayView, ArrayView]:
        """The block scales in the kernel's layout, whichever dimension is contiguous, or one number everywhere."""
        request, problem = self.request, self.request.problem
        blocks = -(-problem.k // BLOCK)
        found = []
        for name, shape, exchanged in (
            ("scale_a", (problem.m, blocks), problem.scale_a_major == "MN"),
            ("scale_b", (blocks, -(-problem.n // BLOCK)), problem.scale_b_major == "K"),
        ):
            array = getattr(request, name)
            if array is None or array.size == 1:
                found.append(writable(request.a, shape[::-1] if exchanged else shape, f32, name))
                owned.fill(found[-1], array)
                self.copied = True
            else:
                found.append(self._vector(transposed(array) if exchanged else array, name))
        return found[0], found[1]

    def _vector(self, array: ArrayView, name: str) -> ArrayView:
        self.copied |= not array.contiguous
        return contiguous(array, name)

    def _announce(self, name: str, why: str, array: ArrayView) -> None:
        """Warn once: what is copied, why, and the cost."""
        self.copied = True
        name, called = self.request.said(name), self.request.called
        bytes_ = array.size * array.dtype.bytes
        if warned().first((name, why, array.dtype)):
            warnings.warn(
                f"{called} copies `{name}`: {why}. Each such call reads and writes {bytes_:,} bytes more and needs as "
                f"much extra memory; got {array.describe()}, strides {array.strides} bytes. Rows that start at "
                "multiples of 16 bytes, in the right memory order, avoid it.",
                CopyWarning,
                stacklevel=outside(),
            )


class CopyWarnings:
    """The copies that were already warned about."""

    def __init__(self) -> None:
        self._seen: set[Any] = set()

    def first(self, what: Any) -> bool:
        """True the first time `what` is passed."""
        if what in self._seen:
            return False
        self._seen.add(what)
        return True

    def clear(self) -> None:
        """Forget all warnings, so that each is issued again."""
        self._seen.clear()


@lru_cache(maxsize=1)
def warned() -> CopyWarnings:
    """The process's record."""
    return CopyWarnings()


def outside() -> int:
    """The stacklevel at which `warnings.warn` in the calling function points at the caller of this package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("warploom."):
        frame, level = frame.f_back, level + 1
    return level
