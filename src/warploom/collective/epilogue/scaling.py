"""alpha and beta: D = alpha * A Bᵀ + beta * C, for every way in which a result is stored.

Threads that store what they hold (`epilogue`) read the same elements of C first; stores by TMA (`tma_store`) get a
`FusedEnd`, whose boxes of C come by TMA. Both round alpha * x once and add beta * C with one fma, in f32.

As in BLAS, C is not read where beta is 0, and may then hold anything, NaN too (Dongarra, Du Croz, Hammarling, Duff: A
set of level 3 basic linear algebra subprograms, ACM TOMS 16, 1990). alpha multiplies the product even where it is 0.
D may be C's own memory: who writes an element has read it before, and nobody else reads it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeVar

from ...errors import TraceError
from ...isa.dtypes import b32, f32
from ...lang import Scalar, Tile, ptx, reg
from ...lang.arrays import RegisterArray
from ...lang.predicate import Predicate
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from .apply import FusedEnd
from .direct_store import unpacked
from .spec import Fusion

ADDEND = "C"
SCALED = Fusion(alpha=True, addend=True)
SPARE = 8
"""Registers that a FusedEnd may fill ahead: the kernels here leave few beside their accumulators."""
Function = TypeVar("Function", bound=Callable[..., None])


class Scaling:
    """What a kernel of A and B declares for its result: plain, or with C, alpha and beta.

        end = Scaling(config.scaled, result)

        @kernel(in_specs=(*operands, *end.inputs), out_specs=(end.output,), ...)
        @end.arguments
        def gemm(A, B, *rest):
            C, scaled = end.of(rest)

    Plain, the kernel is called as gemm(a, b) and its result's name is C; scaled, as gemm(a, b, c, alpha=, beta=), and
    the result's name is D.

    Args:
        scaled: whether there are C, alpha and beta.
        result: of the result; C is an array like it.
    """

    def __init__(self, scaled: bool, result: Tile) -> None:
        self.scaled = scaled
        self.inputs: tuple[Tile | Scalar, ...] = (addend(result), Scalar(f32), Scalar(f32)) if scaled else ()
        self.output = in_place(result) if scaled else result

    def arguments(self, gemm: Function) -> Function:
        """Name the arguments of a function (A, B, *rest)."""
        names = ("A", "B", ADDEND, "alpha", "beta", "D") if self.scaled else ("A", "B", "C")
        parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        gemm.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return gemm

    def of(self, rest: Sequence[Any]) -> tuple[ArrayHandle, Scaled]:
        """The result, and what is done to an element on its way there."""
        *others, result = rest
        return result, Scaled(*others)


def addend(result: Tile) -> Tile:
    """The Tile of an array like the result that is only read: what lies behind its rows is nobody's business."""
    found = copy(result)
    found.multiple, found.overhang = (), False
    return found


def in_place(result: Tile) -> Tile:
    """The Tile of a result that may be the addend's own memory."""
    found = copy(result)
    found.over = ADDEND
    return found


@dataclass(frozen=True)
class Scaled:
    """alpha * x + beta * C in a thread's registers; x as it is where there is no C.

    Attributes:
        C: the addend, of the result's shape and type.
        alpha, beta: f32.
    """

    C: ArrayHandle | None = None
    alpha: Register | None = None
    beta: Register | None = None

    def read(self, offset: Register, count: int = 1, inside: Predicate | None = None, index: int = 0) -> list[Register]:
        """Begin to load elements of C, in one access; [] where there is no C.

        Args:
            offset: of the first one, in bytes.
            count: 1, 2 or 4 (f32); 1 or 2 (16 bits). Together they are aligned to their size.
            inside: whether they exist.
            index: elements to add to `offset`.

        Gives back f32 registers; zeros where they do not exist, or where beta is 0.
        """
        if self.C is None or self.beta is None:
            return []
        dtype = self.C.dtype
        if dtype is not f32 and (dtype.bits != 16 or count > 2):
            raise TraceError(
                f"{count} elements of {dtype} are not read at once", expected="4 of f32, 2 of 16 bits", got=count
            )
        wanted = self.beta != 0.0
        wanted = wanted if inside is None else wanted & inside
        place = ptx.addr(self.C.pointer() + offset, index * dtype.bytes)
        if dtype is f32:
            values = reg.array(f32, count, init=0.0)
            vector = f".v{count}" if count > 1 else ""
            ptx.inst(f"ld.global{vector}.f32", values if count > 1 else values[0], place, pred=wanted)
            return list(values)
        if count == 1:
            value = reg.scalar(dtype, init=0.0)
            ptx.inst("ld.global.b16", value, place, pred=wanted)
            return [value.to(f32)]
        word = reg.scalar(b32, init=0)
        ptx.inst("ld.global.b32", word, place, pred=wanted)
        return list(unpacked(word, dtype))

    def apply(self, values: Sequence[Register] | RegisterArray, addends: Sequence[Register]) -> Sequence[Register]:
        """The results of some accumulators and what `read` gave for them."""
        if self.alpha is None:
            return list(values)
        results = []
        for value, addend in zip(values, addends, strict=True):
            result = reg.scalar(f32)
            ptx.inst.fma.rn.f32(result, addend, self.beta, value * self.alpha)
            results.append(result)
        return results

    def transform(self, D: ArrayHandle, *, pdl: bool = False) -> FusedEnd | None:
        """The same for `TmaStore`; None where there is no C. `pdl`: consumers wait for the kernel before this one."""
        if self.C is None:
            return None
        given = {"alpha": self.alpha, "beta": self.beta, ADDEND: self.C}
        return FusedEnd(SCALED, D, given, spare=SPARE, pdl=pdl)
