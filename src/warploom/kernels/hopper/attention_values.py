"""Values inside a function of scores or masks while it is traced: registers with torch's arithmetic.

Values are bools, 32-bit integers and f32. Bools become integers, and integers floats, if the other operand requires it.
Integers of 8 and 16 bits wrap around as in torch. For `slope`, see `attention_functions`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from ...errors import TraceError
from ...isa.dtypes import DType, f32, s32, u32
from ...lang import ptx, reg
from ...lang.predicate import Predicate
from ...lang.trace import Trace
from ...lang.values import Register
from . import attention_grad_mode
from .attention_integers import common, wrapped

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""torch's functions and operators that accept values, by name; filled by `attention_pointwise`."""
LISTED = "warploom.kernels.hopper.attention_pointwise.FUNCTIONS"
SCORE = -1
"""The score among the variables of a derivative; the others are reads of captured arrays, by number."""
Slopes: TypeAlias = "dict[int, Value]"
"""Derivatives of a value, by variable; a variable that is missing has the derivative 0."""


class Value:
    """A number or bool inside the kernel: a register of f32 or s32, a predicate, or a Python number.

    slope: the derivatives with respect to the score and to reads of captured arrays; None if the value is constant in
        them, or no derivative is wanted.
    natural: the value is known not to be negative. narrow: its type in torch, if that is an integer of 8 or 16 bits.
    """

    def __init__(
        self, held: Register | Predicate | float | bool, slope: Slopes | None = None, *, natural: bool = False,
        narrow: DType | None = None,
    ) -> None:  # fmt: skip
        self.held, self.slope, self.natural, self.narrow = held, slope, natural, narrow

    @classmethod
    def of(cls, value: Any) -> Value:
        """A value unchanged, or a Python number as a value."""
        if isinstance(value, Value):
            return value
        if isinstance(value, (bool, int, float)):
            return cls(value)
        item = getattr(value, "item", None)
        if item is not None and getattr(value, "ndim", 1) == 0:
            return cls(item())
        raise trace_error(
            "a function of scores returns something other than a number", "a number or a bool", repr(value)[:80]
        )

    # -- as registers ----------------------------------------------------------------------------------------------

    @property
    def is_float(self) -> bool:
        """True for a floating-point number."""
        held = self.held
        return held.dtype.is_float if isinstance(held, Register) else isinstance(held, float)

    @property
    def is_truth(self) -> bool:
        """True for a bool."""
        return isinstance(self.held, (Predicate, bool))

    def floating(self) -> Register:
        """The value as f32."""
        held = self.held
        if isinstance(held, Predicate):
            return ptx.select(held, reg.scalar(f32, init=1.0), 0.0)
        if isinstance(held, Register):
            return held.to(f32)
        return reg.scalar(f32, init=float(held))

    def integer(self) -> Register:
        """The value as s32; floats are truncated."""
        held = self.held
        if isinstance(held, Predicate):
            return ptx.select(held, reg.scalar(s32, init=1), 0)
        return held.to(s32) if isinstance(held, Register) else reg.scalar(s32, init=int(held))

    def truth(self) -> Predicate:
        """A predicate: true if the value is not 0."""
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
        return self._joined(right, operate(*self._pair(right, floats=floats)))

    def _joined(self, right: Value, found: Register | Predicate) -> Value:
        """A result of both values: an integer wraps around if both are narrow, or one is a number."""
        if isinstance(found, Predicate) or found.dtype.is_float:
            return Value(found)
        narrow = common((self.narrow, self.held), (right.narrow, right.held))
        return Value(found if narrow is None else wrapped(found, narrow), narrow=narrow)

    def __add__(self, other: Any) -> Value:
        right = Value.of(other)
        if self.is_truth and right.is_truth:  # as in torch
            return self | right
        return self._compute(right, lambda a, b: a + b).sloping(total(self.slope, right.slope))

    def __sub__(self, other: Any) -> Value:
        right = Value.of(other)
        return self._compute(right, lambda a, b: a - b).sloping(total(self.slope, scaled(right.slope, -1.0)))

    def __mul__(self, other: Any) -> Value:
        right = Value.of(other)
        if self.is_truth and right.is_truth:
            return self & right
        slope = total(scaled(self.slope, right), scaled(right.slope, self))
        return self._compute(right, lambda a, b: a * b).sloping(slope)

    def __truediv__(self, other: Any) -> Value:
        right = Value.of(other)
        found = self._compute(right, lambda a, b: a / b, floats=True)
        above = total(self.slope, None if right.slope is None else scaled(right.slope, -found))
        return found.sloping(each(above, lambda slope: slope.flat() / right.flat()))

    def sloping(self, slope: Slopes | None) -> Value:
        """This value, with derivatives, unless it is computed under torch.no_grad()."""
        self.slope = slope if attention_grad_mode.enabled() else None
        return self

    def flat(self) -> Value:
        """This value without its derivative: slopes have no derivatives of their own."""
        return Value(self.held)

    def __floordiv__(self, other: Any) -> Value:
        found: Value = FUNCTIONS["floor_divide"](self, other)
        return found

    def __mod__(self, other: Any) -> Value:
        found: Value = FUNCTIONS["remainder"](self, other)
        return found

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
            falling = picked(self.flat() < 0, scaled(self.slope, -1.0), None)
            found.sloping(picked(self.flat() > 0, self.slope, falling))
        return found

    def __pow__(self, power: Any) -> Value:
        found: Value = FUNCTIONS["pow"](self, power)
        return found

    def __rpow__(self, base: Any) -> Value:
        found: Value = FUNCTIONS["pow"](base, self)
        return found

    # -- bits ------------------------------------------------------------------------------------------------------

    def _bits(self, other: Any, operate: Callable[[Any, Any], Any]) -> Value:
        """A logical operation on two bools, or a bitwise operation on two integers."""
        right = Value.of(other)
        if self.is_truth and right.is_truth:
            return Value(operate(self.truth(), right.truth()))
        if self.is_float or right.is_float:
            raise trace_error("bitwise operations take integers and bools", "integers or bools", "floats")
        return self._compute(right, operate)

    def __and__(self, other: Any) -> Value:
        return self._bits(other, lambda a, b: a & b)

    def __or__(self, other: Any) -> Value:
        return self._bits(other, lambda a, b: a | b)

    def __xor__(self, other: Any) -> Value:
        return self._bits(other, lambda a, b: a ^ b)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> Value:
        if self.is_truth:
            return Value(~self.truth())
        return self ^ -1

    def _shifted(self, other: Any, opcode: str) -> Value:
        right = Value.of(other)
        if self.is_float or right.is_float:
            raise trace_error("shifts take integers", "integers", "floats")
        found = reg.scalar(s32)
        ptx.inst(opcode, found, self.integer(), right.integer().view(u32))
        return self._joined(right, found)

    def __lshift__(self, other: Any) -> Value:
        return self._shifted(other, "shl.b32")

    def __rshift__(self, other: Any) -> Value:
        return self._shifted(other, "shr.s32")

    def __rlshift__(self, other: Any) -> Value:
        return Value.of(other) << self

    def __rrshift__(self, other: Any) -> Value:
        return Value.of(other) >> self

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

    # -- torch's methods and functions -----------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        """torch's functions as methods, `(i - j).abs()`, and a tensor's attributes."""
        if name in ATTRIBUTES:
            return ATTRIBUTES[name](self)
        if name.startswith("_") or name not in FUNCTIONS | METHODS:
            raise AttributeError(
                f"a value inside the kernel has no method {name!r}, only {', '.join(sorted(FUNCTIONS | METHODS))}"
            )
        return partial((FUNCTIONS | METHODS)[name], self)

    def __bool__(self) -> bool:
        raise trace_error(
            "a value inside the kernel has no truth value during tracing", "torch.where, & and |", "if, and, or"
        )

    @classmethod
    def __torch_function__(cls, function: Any, _: Any, args: Any = (), named: Any = None) -> Any:
        name = function.__name__.partition(".")[0].removeprefix("__").removesuffix("__")  # tanh.default, __and__
        if name not in FUNCTIONS or not _of_torch(function):
            called = f"torch.{name}" if _of_torch(function) else f"{function.__module__}.{name}"
            if name == "getitem":
                raise trace_error("the kernel has no arrays but captured ones", "one made outside", called)
            raise trace_error(f"{called} does not exist inside the kernel", f"a function in {LISTED}", name)
        return FUNCTIONS[name](*args, **(named or {}))


def _of_torch(function: Any) -> bool:
    """False for others' functions and registered operators that have the name of one of torch's."""
    module = getattr(function, "__module__", None) or "torch"
    return bool(module == "torch._ops.aten" or (module.startswith("torch") and not module.startswith("torch._ops")))


def converted(x: Value, dtype: Any) -> Value:
    """The value converted to another torch dtype."""
    name = str(dtype).removeprefix("torch.")
    if name not in _CONVERSIONS:
        raise trace_error("a value inside the kernel has no such type", ", ".join(_CONVERSIONS), name)
    if isinstance(x.held, (bool, int, float)):
        return Value(float(x.held) if name == "float32" else bool(x.held) if name == "bool" else int(x.held))
    return _CONVERSIONS[name](x)


def _as_float(x: Value) -> Value:
    return Value(x.floating(), x.slope)


def _as_integer(x: Value) -> Value:
    return Value(x.integer())


def as_truth(x: Any) -> Value:
    """A bool: true if the value is not 0."""
    return Value(Value.of(x).truth())


_CONVERSIONS: dict[str, Callable[[Value], Value]] = {
    "float32": _as_float, "int32": _as_integer, "int64": _as_integer, "bool": as_truth,
}  # fmt: skip
METHODS: dict[str, Callable[..., Any]] = {
    "float": _as_float, "int": _as_integer, "long": _as_integer, "bool": as_truth, "to": converted,
    "where": lambda x, condition, other: where(condition, x, other),
}  # fmt: skip
"""Tensor methods that torch lacks as functions, or whose arguments are in another order."""
ATTRIBUTES: dict[str, Callable[[Value], Any]] = {}
"""Tensor attributes of values; `attention_functions` fills this."""


def trace_error(what: str, expected: object, got: object) -> TraceError:
    """The error for a fault in the caller's function."""
    return Trace.current().error(what, expected=str(expected), got=str(got))


def total(a: Slopes | None, b: Slopes | None) -> Slopes | None:
    """The sums of slopes; None is 0."""
    if a is None or b is None:
        return b if a is None else a
    return a | {name: a[name] + slope if name in a else slope for name, slope in b.items()}


def slope_of(value: Value, name: int = SCORE) -> Value:
    """A slope of a value, 0 if it has none."""
    return slope_in(value.slope, name).flat()


def slope_in(slopes: Slopes | None, name: int) -> Value:
    """One of the slopes, 0 if it is missing."""
    return (slopes or {}).get(name, Value(0.0))


def each(slopes: Slopes | None, operate: Callable[[Value], Value]) -> Slopes | None:
    """The slopes after an operation on each."""
    return None if slopes is None else {name: operate(slope) for name, slope in slopes.items()}


def scaled(slopes: Slopes | None, factor: Value | float) -> Slopes | None:
    """Slopes times a factor."""
    by = Value.of(factor).flat()

    def multiplied(slope: Value) -> Value:
        return by if isinstance(slope.held, float) and slope.held == 1.0 else slope.flat() * by

    return each(slopes, multiplied)


def picked(condition: Any, a: Slopes | None, b: Slopes | None) -> Slopes | None:
    """The slopes `a` if the condition holds, else `b`."""
    names = dict.fromkeys((*(a or ()), *(b or ())))
    return {name: where(condition, slope_in(a, name), slope_in(b, name)) for name in names} or None


def where(condition: Any, a: Any, b: Any) -> Value:
    """`a` if the condition holds, else `b`."""
    left, right = Value.of(a), Value.of(b)
    if left.is_truth and right.is_truth:
        chosen = Value.of(condition).truth()
        return Value((chosen & left.truth()) | (~chosen & right.truth()))
    found = left._joined(right, ptx.select(Value.of(condition).truth(), *left._pair(right)))
    return found.sloping(picked(condition, left.slope, right.slope))
