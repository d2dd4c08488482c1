"""Functions of scores and masks written in Python, as in FlexAttention, traced into the kernel.

    score_mod(score, batch, head, query, key) -> score          score is f32 and scaled, the others are s32
    mask_mod(batch, head, query, key) -> bool

They receive `Value`s: registers with torch's arithmetic, which converts integers to floats if an operand is a float.
torch's functions accept them (`__torch_function__`): where, abs, exp, minimum, logical_and and the rest of `FUNCTIONS`.
Captured arrays become `Lookup`s, indexed by values or numbers; negative indices count from the end.

A value that depends on the score may have a `slope`, its derivative with respect to the score, which is also a value.
Derivatives are computed while the function is traced (`Function.derive`). Where a function has no derivative, at the
kinks of abs, minimum and similar functions, the slope is torch's.
"""

from __future__ import annotations

import math
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import SourceLocation, WarploomError
from ...isa.dtypes import ALL, DType, f32, pred, s32, u8, u64
from ...lang import ptx, reg
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from .attention_values import (
    ATTRIBUTES,
    FUNCTIONS,
    METHODS,
    Value,
    as_truth,
    converted,
    scaled,
    slope_of,
    trace_error,
    where,
)

PACKAGE = str(Path(__file__).parents[2])


def _line_outside(error: Exception) -> SourceLocation | None:
    """The innermost line of the caller's code in the traceback: neither this package's nor torch's."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(PACKAGE) and "torch" not in Path(frame.filename).parts:
            return SourceLocation(frame.filename, frame.lineno or 0)
    return None


@dataclass(frozen=True)
class Function:
    """A function and the arrays that it captures.

    Attributes:
        key: identifies everything that the traced PTX depends on.
        arrays: types and shapes of the captured arrays.
        call: called with the values and a Lookup for each array.
        where: the line where the caller defined the function, if it is known.
    """

    key: str
    arrays: tuple[tuple[str, tuple[int, ...]], ...]
    call: Callable[[Sequence[Any], Sequence[Any]], Any] = field(compare=False, repr=False)
    where: SourceLocation | None = field(default=None, compare=False)

    def apply(self, handles: Sequence[ArrayHandle], *values: Register) -> Value:
        """Trace the function."""
        return self._traced(handles, values, None)

    def derive(self, handles: Sequence[ArrayHandle], score: Register, *values: Register) -> tuple[Value, Value]:
        """Trace a function of scores and its derivative with respect to the score."""
        found = self._traced(handles, (score, *values), Value(1.0))
        return found, slope_of(found)

    def _traced(self, handles: Sequence[ArrayHandle], values: Sequence[Register], slope: Value | None) -> Value:
        given = [Value(value, natural=not value.dtype.is_float) for value in values]
        given[0].slope = slope
        found = [Lookup(handle, dtype, shape) for handle, (dtype, shape) in zip(handles, self.arrays, strict=True)]
        try:
            return Value.of(self.call(given, [each if each.ndim else each[()] for each in found]))
        except WarploomError as error:
            error.where = _line_outside(error) or self.where or error.where
            raise
        except Exception as error:  # raised by the caller's function
            failed = trace_error(
                "a function of scores or masks fails while it is traced into the kernel",
                "arithmetic, comparisons, torch's functions, captured arrays by index",
                f"{type(error).__name__}: {error}",
            )
            failed.where = _line_outside(error) or self.where or failed.where
            raise failed from error

    def sizes(self) -> list[tuple[int, DType]]:
        """Element counts and types of the arrays."""
        return [(math.prod(shape), u8 if name == pred.name else ALL[name]) for name, shape in self.arrays]


class Lookup:
    """A captured array inside the kernel, or the subarray left after its first indices.

    Attributes:
        shape: shape of the remaining array.
    """

    def __init__(self, array: ArrayHandle, dtype: str, shape: tuple[int, ...], at: Value | None = None) -> None:
        self._array, self._dtype, self._at = array, dtype, at
        self.shape, self.ndim = shape, len(shape)

    def __len__(self) -> int:
        return self.shape[0]

    def size(self, axis: int | None = None) -> Any:
        """The same as torch.Tensor.size."""
        return self.shape if axis is None else self.shape[axis]

    def dim(self) -> int:
        """The number of remaining indices."""
        return self.ndim

    def __getitem__(self, index: Any) -> Any:
        places = index if isinstance(index, tuple) else (index,)
        if len(places) > self.ndim:
            raise trace_error("a captured array has fewer dimensions", self.ndim, f"{len(places)} indices")
        at = Value.of(0) if self._at is None else self._at
        for place, length in zip(places, self.shape, strict=False):
            at = at * length + _place(place, length)
        left = self.shape[len(places) :]
        if left:
            return Lookup(self._array, self._dtype, left, at)
        dtype = self._array.dtype
        found = ptx.load(dtype, ptx.addr(self._array.pointer() + at.integer().to(u64) * dtype.bytes))
        if self._dtype == pred.name:
            return Value(found.to(s32) != 0)
        return Value(found.to(f32) if dtype.is_float else found.to(s32))


def _place(index: Any, length: int) -> Value:
    """A nonnegative index: negative indices count from the end."""
    if isinstance(index, slice) or index is None or index is Ellipsis:
        raise trace_error("a captured array is indexed by whole numbers", "one for each dimension", repr(index))
    place = Value.of(index)
    if place.is_truth or place.is_float:
        raise trace_error("a captured array is indexed by whole numbers", "an integer", "a bool or a float")
    if isinstance(place.held, int):
        if not -length <= place.held < length:
            raise trace_error("an index is outside of a captured array", f"{-length} to {length - 1}", place.held)
        return Value(place.held % length)
    if place.natural:
        return place
    return where(place < 0, place + length, place)


Slope = Callable[[Value, Value], Value]
"""Computes the derivative of a function from its argument and its value."""


def _unary(operate: Callable[[Register], Register], slope: Slope) -> Callable[[Any], Value]:
    def apply(x: Any) -> Value:
        given = Value.of(x)
        found = Value(operate(given.floating()))
        return found if given.slope is None else found.sloping(scaled(given.slope, slope(given.flat(), found.flat())))

    return apply


def _approximate(opcode: str, slope: Slope) -> Callable[[Any], Value]:
    def operate(x: Register) -> Register:
        result = reg.scalar(f32)
        ptx.inst(opcode, result, x)
        return result

    return _unary(operate, slope)


def _extreme(operate: Callable[[Any, Any], Any], sign: int) -> Callable[[Any, Any], Value]:
    """minimum (sign -1) and maximum (1); two equal arguments each get half of the slope."""

    def apply(a: Any, b: Any) -> Value:
        left, right = Value.of(a), Value.of(b)
        found = left._compute(right, operate)
        if left.slope is None and right.slope is None:
            return found
        of_left, of_right, ahead = slope_of(left), slope_of(right), (left.flat() - right.flat()) * sign
        both = (of_left + of_right) * 0.5
        return found.sloping(where(ahead > 0, of_left, where(ahead < 0, of_right, both)))

    return apply


def _clamped(x: Any, min: Any = None, max: Any = None) -> Value:  # noqa: A002 - torch's names
    value = Value.of(x)
    if (slope := value.slope) is not None:  # as in torch: the slope of x between the bounds and on them
        inside = Value(True)
        for bound, beyond in ((min, lambda a, b: a >= b), (max, lambda a, b: a <= b)):
            inside = inside if bound is None else inside & beyond(value.flat(), Value.of(bound).flat())
        slope = where(inside, slope.flat(), 0.0)
    if min is not None:
        value = value._compute(min, ptx.math.max)
    if max is not None:
        value = value._compute(max, ptx.math.min)
    return Value(value.held, slope)


_LN2 = math.log(2)
_exp = _unary(lambda x: ptx.math.ex2(x * math.log2(math.e)), lambda x, y: y)
_sin: Callable[[Any], Value] = _approximate("sin.approx.f32", lambda x, y: _cos(x))
_cos: Callable[[Any], Value] = _approximate("cos.approx.f32", lambda x, y: -_sin(x))


def _sigmoid(x: Any) -> Value:
    given = Value.of(x)
    found = 1.0 / (1.0 + _exp(-given.flat()))
    return found if given.slope is None else found.sloping(scaled(given.slope, found * (1.0 - found)))


FUNCTIONS |= {
    "where": where, "abs": lambda x: abs(Value.of(x)), "absolute": lambda x: abs(Value.of(x)), "exp": _exp,
    "exp2": _unary(ptx.math.ex2, lambda x, y: y * _LN2), "log2": _unary(ptx.math.lg2, lambda x, y: 1.0 / (x * _LN2)),
    "log": _unary(lambda x: ptx.math.lg2(x) * _LN2, lambda x, y: 1.0 / x),
    "tanh": _approximate("tanh.approx.f32", lambda x, y: 1.0 - y * y), "sin": _sin, "cos": _cos,
    "sqrt": _approximate("sqrt.approx.f32", lambda x, y: 0.5 / y),
    "rsqrt": _approximate("rsqrt.approx.f32", lambda x, y: y * y * y * -0.5), "sigmoid": _sigmoid,
    "maximum": _extreme(ptx.math.max, 1), "minimum": _extreme(ptx.math.min, -1), "clamp": _clamped,
    "neg": lambda x: -Value.of(x),
    "logical_and": lambda a, b: as_truth(a) & as_truth(b), "logical_or": lambda a, b: as_truth(a) | as_truth(b),
    "logical_xor": lambda a, b: as_truth(a) ^ as_truth(b), "logical_not": lambda a: ~as_truth(a),
    "bitwise_and": lambda a, b: Value.of(a) & b, "bitwise_or": lambda a, b: Value.of(a) | b,
    "bitwise_xor": lambda a, b: Value.of(a) ^ b, "bitwise_not": lambda a: ~Value.of(a),
    "bitwise_left_shift": lambda a, b: Value.of(a) << b, "bitwise_right_shift": lambda a, b: Value.of(a) >> b,
}  # fmt: skip

# -- constants -----------------------------------------------------------------------------------------------------


def _kind(x: Value) -> str:
    return "bool" if x.is_truth else "float32" if x.is_float else "int32"


def _like(x: Any, number: Any, *, dtype: Any = None, **_: Any) -> Value:
    """A constant of the value's type, or of `dtype`, like torch.full_like."""
    return converted(Value.of(number), _kind(Value.of(x)) if dtype is None else dtype)


def _new(x: Value, size: Any, number: Any, **named: Any) -> Value:
    """A constant, like torch.Tensor.new_full."""
    if isinstance(size, int) or len(size):
        raise trace_error("a value inside the kernel has no dimensions", "size ()", repr(size))
    return _like(x, number, **named)


FUNCTIONS |= {
    "full_like": _like,
    "ones_like": lambda x, **named: _like(x, 1, **named),
    "zeros_like": lambda x, **named: _like(x, 0, **named),
}
METHODS |= {
    "new_full": _new,
    "new_ones": lambda x, size=(), **named: _new(x, size, 1, **named),
    "new_zeros": lambda x, size=(), **named: _new(x, size, 0, **named),
}
ATTRIBUTES |= {
    "dtype": lambda x: getattr(sys.modules.get("torch"), _kind(x), None),
    "device": lambda _: None,
    "ndim": lambda _: 0,
    "shape": lambda _: (),
}
