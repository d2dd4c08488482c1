"""Functions of scores and masks written in Python, as FlexAttention has them, traced into the kernel.

    score_mod(score, batch, head, query, key) -> score          score is f32 and scaled, the others are s32
    mask_mod(batch, head, query, key) -> bool

They see `Value`s: registers with torch's arithmetic, in which integers become floats where they meet floats. torch's
functions accept them (`__torch_function__`): where, abs, exp, tanh, minimum, logical_and and the others of `FUNCTIONS`.
Arrays that a function captures are `Lookup`s, indexed by values or numbers, one for each dimension.

A value that depends on the score may have a `slope`, its derivative with respect to it, which is a value, too: the
rules of differentiation are applied while the function is traced (`Function.derive`). Where a function has none, at the
kink of abs, minimum and the like, slopes are torch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ...errors import TraceError
from ...isa.dtypes import ALL, DType, f32, s32, u8, u64
from ...lang import ptx, reg
from ...lang.predicate import Predicate
from ...lang.tile import ArrayHandle
from ...lang.trace import Trace
from ...lang.values import Register


@dataclass(frozen=True)
class Function:
    """A function, and what it captures.

    Attributes:
        key: says all that its text depends on.
        arrays: types and shapes of the captured arrays.
        call: gets the values, and a Lookup for each array.
    """

    key: str
    arrays: tuple[tuple[str, tuple[int, ...]], ...]
    call: Callable[[Sequence[Any], Sequence[Any]], Any] = field(compare=False, repr=False)

    def apply(self, handles: Sequence[ArrayHandle], *values: Register) -> Value:
        """Trace it."""
        return Value.of(self.call([Value(value) for value in values], self._lookups(handles)))

    def derive(self, handles: Sequence[ArrayHandle], score: Register, *values: Register) -> tuple[Value, Value]:
        """Trace a function of scores, and its derivative with respect to the score."""
        found = Value.of(self.call([Value(score, Value(1.0)), *map(Value, values)], self._lookups(handles)))
        return found, slope_of(found)

    def _lookups(self, handles: Sequence[ArrayHandle]) -> list[Lookup]:
        return [Lookup(handle, shape) for handle, (_, shape) in zip(handles, self.arrays, strict=True)]

    def sizes(self) -> list[tuple[int, DType]]:
        """Elements and types of the arrays."""
        return [(max(1, math.prod(shape)), ALL[name]) for name, shape in self.arrays]


class Lookup:
    """A captured array inside the kernel."""

    def __init__(self, array: ArrayHandle, shape: tuple[int, ...]) -> None:
        self._array, self.shape, self.ndim = array, shape, len(shape)

    def __getitem__(self, index: Any) -> Value:
        places = index if isinstance(index, tuple) else (index,)
        if len(places) != len(self.shape):
            raise _error("a captured array takes an index for each of its dimensions", len(self.shape), len(places))
        at: Value = Value.of(0)
        for place, length in zip(places, self.shape, strict=True):
            at = at * length + place
        dtype = self._array.dtype
        found = ptx.load(dtype, ptx.addr(self._array.pointer() + at.integer().to(u64) * dtype.bytes))
        if dtype is u8:
            return Value(found.to(s32) != 0)
        return Value(found.to(f32) if dtype.is_float else found.to(s32))


class Value:
    """A number or truth inside the kernel: a register of f32 or s32, a predicate, or a Python number.

    slope: its derivative with respect to the score; None where it does not depend on it, or nobody asks.
    """

    def __init__(self, held: Register | Predicate | float | bool, slope: Value | None = None) -> None:
        self.held, self.slope = held, slope

    @classmethod
    def of(cls, value: Any) -> Value:
        """A value, or a Python number as one."""
        if isinstance(value, Value):
            return value
        if isinstance(value, (bool, int, float)):
            return cls(value)
        item = getattr(value, "item", None)
        if item is not None and getattr(value, "ndim", 1) == 0:
            return cls(item())
        raise _error("a function of scores gives something else than a number", "a number or a truth", repr(value)[:80])

    # -- as registers ----------------------------------------------------------------------------------------------

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point number."""
        held = self.held
        return held.dtype.is_float if isinstance(held, Register) else isinstance(held, float)

    def floating(self) -> Register:
        """As f32."""
        held = self.held
        if isinstance(held, Predicate):
            return ptx.select(held, reg.scalar(f32, init=1.0), 0.0)
        if isinstance(held, Register):
            return held.to(f32)
        return reg.scalar(f32, init=float(held))

    def integer(self) -> Register:
        """As s32; a float is cut off."""
        held = self.held
        if isinstance(held, Predicate):
            return ptx.select(held, reg.scalar(s32, init=1), 0)
        return held.to(s32) if isinstance(held, Register) else reg.scalar(s32, init=int(held))

    def truth(self) -> Predicate:
        """As a predicate: whether it is not 0."""
        held = self.held
        if isinstance(held, Predicate):
            return held
        if isinstance(held, Register):
            return held != (0.0 if held.dtype.is_float else 0)
        return reg.predicate(bool(held))

    # -- arithmetic ------------------------------------------------------------------------------------------------

    def _pair(self, other: Any, *, floats: bool = False) -> tuple[Register, Register]:
        right = Value.of(other)
        if floats or self.is_float or right.is_float:
            return self.floating(), right.floating()
        return self.integer(), right.integer()

    def _compute(self, other: Any, operate: Callable[[Any, Any], Any], *, floats: bool = False) -> Value:
        right = Value.of(other)
        if not any(isinstance(each.held, (Register, Predicate)) for each in (self, right)):
            return Value(operate(self.held, right.held))
        return Value(operate(*self._pair(right, floats=floats)))

    def __add__(self, other: Any) -> Value:
        right = Value.of(other)
        return self._compute(right, lambda a, b: a + b).sloping(total(self.slope, right.slope))

    def __sub__(self, other: Any) -> Value:
        right = Value.of(other)
        return self._compute(right, lambda a, b: a - b).sloping(total(self.slope, scaled(right.slope, -1.0)))

    def __mul__(self, other: Any) -> Value:
        right = Value.of(other)
        slope = total(scaled(self.slope, right), scaled(right.slope, self))
        return self._compute(right, lambda a, b: a * b).sloping(slope)

    def __truediv__(self, other: Any) -> Value:
        right = Value.of(other)
        found = self._compute(right, lambda a, b: a / b, floats=True)
        above = total(self.slope, None if right.slope is None else scaled(right.slope, -found))
        return found.sloping(None if above is None else above.flat() / right.flat())

    def sloping(self, slope: Value | None) -> Value:
        """Itself, with a derivative."""
        self.slope = slope
        return self

    def flat(self) -> Value:
        """Itself without its derivative: slopes have none."""
        return Value(self.held)

    def __floordiv__(self, other: Any) -> Value:
        return self._divided(other)[0]

    def __mod__(self, other: Any) -> Value:
        return self._divided(other)[1]

    def _divided(self, other: Any) -> tuple[Value, Value]:
        """Quotient and rest of integers, rounded down as in Python; the divisor is positive."""
        left, right = self._pair(other)
        if left.dtype.is_float:
            raise _error("// and % are for integers here", "integers", "floats")
        quotient = reg.scalar(s32)
        ptx.inst.div.s32(quotient, left, right)
        rest = left - quotient * right
        below = rest < 0
        return (
            Value(ptx.select(below, quotient - 1, quotient)),
            Value(ptx.select(below, rest + right, rest)),
        )

    def __radd__(self, other: Any) -> Value:
        return Value.of(other) + self

    def __rsub__(self, other: Any) -> Value:
        return Value.of(other) - self

    def __rmul__(self, other: Any) -> Value:
        return Value.of(other) * self

    def __rtruediv__(self, other: Any) -> Value:
        return Value.of(other) / self

    def __rfloordiv__(self, other: Any) -> Value:
        return Value.of(other) // self

    def __rmod__(self, other: Any) -> Value:
        return Value.of(other) % self

    def __neg__(self) -> Value:
        return Value(0.0 if self.is_float else 0) - self

    def __abs__(self) -> Value:
        found = Value(ptx.math.abs(self.floating() if self.is_float else self.integer()))
        if self.slope is not None:
            falling = where(self.flat() < 0, scaled(self.slope, -1.0), 0.0)
            found.slope = where(self.flat() > 0, self.slope, falling)
        return found

    def __pow__(self, power: Any) -> Value:
        if not isinstance(power, int) or not 1 <= power <= 8:
            raise _error("a power is a small whole number", "1 to 8", repr(power))
        result = self
        for _ in range(power - 1):
            result = result * self
        return result

    # -- truths ----------------------------------------------------------------------------------------------------

    def __lt__(self, other: Any) -> Value:
        return self._compute(other, lambda a, b: a < b)

    def __le__(self, other: Any) -> Value:
        return self._compute(other, lambda a, b: a <= b)

    def __gt__(self, other: Any) -> Value:
        return self._compute(other, lambda a, b: a > b)

    def __ge__(self, other: Any) -> Value:
        return self._compute(other, lambda a, b: a >= b)

    def __eq__(self, other: object) -> Value:  # type: ignore[override]
        return self._compute(other, lambda a, b: a == b)

    def __ne__(self, other: object) -> Value:  # type: ignore[override]
        return self._compute(other, lambda a, b: a != b)

    __hash__ = object.__hash__

    def __and__(self, other: Any) -> Value:
        return Value(self.truth() & Value.of(other).truth())

    def __or__(self, other: Any) -> Value:
        return Value(self.truth() | Value.of(other).truth())

    def __xor__(self, other: Any) -> Value:
        return Value(self.truth() ^ Value.of(other).truth())

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> Value:
        return Value(~self.truth())

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Functions of torch as methods: `(i - j).abs()`."""
        if name.startswith("_") or name not in FUNCTIONS:
            raise AttributeError(
                f"a value inside the kernel has no method {name!r}, only {', '.join(sorted(FUNCTIONS))}"
            )
        return partial(FUNCTIONS[name], self)

    def __bool__(self) -> bool:
        raise _error("a value inside the kernel has no truth while it is traced", "torch.where, & and |", "if, and, or")

    @classmethod
    def __torch_function__(cls, function: Any, _: Any, args: Any = (), named: Any = None) -> Any:
        name = function.__name__
        if name not in FUNCTIONS:
            raise _error(f"torch.{name} does not exist inside the kernel", ", ".join(sorted(FUNCTIONS)), name)
        return FUNCTIONS[name](*args, **(named or {}))


def _error(what: str, expected: object, got: object) -> TraceError:
    return Trace.current().error(what, expected=str(expected), got=str(got))


def total(a: Value | None, b: Value | None) -> Value | None:
    """The sum of two slopes; None is 0."""
    return b if a is None else a if b is None else a + b


def slope_of(value: Value) -> Value:
    """0 where it has none."""
    return Value(0.0) if value.slope is None else value.slope.flat()


def scaled(slope: Value | None, factor: Value | float) -> Value | None:
    """A slope times a factor."""
    if slope is None:
        return None
    by = Value.of(factor).flat()
    return by if isinstance(slope.held, float) and slope.held == 1.0 else slope.flat() * by


Slope = Callable[[Value, Value], Value]
"""The derivative of a function, of its argument and of its value there."""


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
    """minimum (sign -1) and maximum (1); of two equal ones each has half of the slope."""

    def apply(a: Any, b: Any) -> Value:
        left, right = Value.of(a), Value.of(b)
        found = left._compute(right, operate)
        if left.slope is None and right.slope is None:
            return found
        of_left, of_right, ahead = slope_of(left), slope_of(right), (left.flat() - right.flat()) * sign
        both = (of_left + of_right) * 0.5
        return found.sloping(where(ahead > 0, of_left, where(ahead < 0, of_right, both)))

    return apply


def where(condition: Any, a: Any, b: Any) -> Value:
    """`a` where the condition holds, else `b`."""
    left, right = Value.of(a), Value.of(b)
    if isinstance(left.held, Predicate) and isinstance(right.held, Predicate):
        chosen = Value.of(condition).truth()
        return Value((chosen & left.held) | (~chosen & right.held))
    found = Value(ptx.select(Value.of(condition).truth(), *left._pair(right)))
    if left.slope is None and right.slope is None:
        return found
    return found.sloping(where(condition, slope_of(left), slope_of(right)))


def _clamped(x: Any, min: Any = None, max: Any = None) -> Value:  # noqa: A002 - torch's names
    value = Value.of(x)
    if (slope := value.slope) is not None:  # torch's: that of x between the bounds and on them
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


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "where": where, "abs": lambda x: abs(Value.of(x)), "absolute": lambda x: abs(Value.of(x)), "exp": _exp,
    "exp2": _unary(ptx.math.ex2, lambda x, y: y * _LN2), "log2": _unary(ptx.math.lg2, lambda x, y: 1.0 / (x * _LN2)),
    "log": _unary(lambda x: ptx.math.lg2(x) * _LN2, lambda x, y: 1.0 / x),
    "tanh": _approximate("tanh.approx.f32", lambda x, y: 1.0 - y * y), "sin": _sin, "cos": _cos,
    "sqrt": _approximate("sqrt.approx.f32", lambda x, y: 0.5 / y),
    "rsqrt": _approximate("rsqrt.approx.f32", lambda x, y: y * y * y * -0.5), "sigmoid": _sigmoid,
    "maximum": _extreme(ptx.math.max, 1), "minimum": _extreme(ptx.math.min, -1), "clamp": _clamped,
    "neg": lambda x: -Value.of(x),
    "logical_and": lambda a, b: Value.of(a) & b, "logical_or": lambda a, b: Value.of(a) | b,
    "logical_xor": lambda a, b: Value.of(a) ^ b, "logical_not": lambda a: ~Value.of(a),
    "bitwise_and": lambda a, b: Value.of(a) & b, "bitwise_or": lambda a, b: Value.of(a) | b,
}  # fmt: skip
"""Functions of torch that values go through, by name."""
