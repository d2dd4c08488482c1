"""Predicates as Python values, and why neither they nor registers have a Python truth value.

While a kernel is traced, nothing has a value yet. `if x > 3`, `for i in range(n)` or `[x]` on a register would decide
once, in Python, for all threads. `Traced` refuses each of these and names the construct to use instead.
"""

from __future__ import annotations

import operator as operators
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np

from ..asm import nodes
from ..errors import TraceError
from ..isa import dtypes
from .emit import Operand, issue
from .trace import Trace

_OPERATORS = {
    "add": operators.add, "subtract": operators.sub, "multiply": operators.mul, "divide": operators.truediv,
    "floor_divide": operators.floordiv, "remainder": operators.mod, "bitwise_and": operators.and_,
    "bitwise_or": operators.or_, "bitwise_xor": operators.xor, "left_shift": operators.lshift,
    "right_shift": operators.rshift, "equal": operators.eq, "not_equal": operators.ne, "less": operators.lt,
    "less_equal": operators.le, "greater": operators.gt, "greater_equal": operators.ge,
}  # fmt: skip
"""The ufuncs that NumPy calls for an operator between a NumPy number and a register."""


def _no_python(trace: Trace | None, what: str, hint: str) -> NoReturn:
    where = trace.location() if trace is not None else None
    raise TraceError(
        f"{what} has no value while the kernel is traced",
        where=where,
        consequence="Python would decide once, for all threads, before the kernel runs",
        hint=hint,
        code="no-value-yet",
    )


class Traced(Operand):
    """The base of registers and predicates, which are not Python values."""

    trace: Trace
    name: str
    node: nodes.Register

    def __bool__(self) -> bool:
        _no_python(
            self.trace,
            f"the {self._noun}",
            "branch with ptx.if_(...), loop with ptx.range(...) or ptx.while_(...), choose with ptx.select(...); "
            "combine predicates with & | ~ instead of and, or, not",
        )

    def __index__(self) -> int:
        _no_python(
            self.trace, f"the {self._noun}", "a Python index or count must be a number; loop with ptx.range(...)"
        )

    __int__ = __index__

    def __float__(self) -> float:
        _no_python(self.trace, f"the {self._noun}", "convert a register with x.to(f32)")

    def __iter__(self) -> Iterator[Any]:
        _no_python(self.trace, f"the {self._noun}", "loop up to a register with `for i in ptx.range(n):`")

    def __len__(self) -> int:
        _no_python(self.trace, f"the {self._noun}", "loop up to a register with `for i in ptx.range(n):`")

    def __contains__(self, item: object) -> bool:
        _no_python(self.trace, f"the {self._noun}", "compare with == and branch with ptx.if_(...)")

    def __format__(self, form: str) -> str:
        if form:
            _no_python(self.trace, f"the {self._noun}", "print values from the kernel's outputs after the run")
        return str(self)

    def __round__(self, digits: int | None = None) -> NoReturn:
        _no_python(self.trace, f"the {self._noun}", "round with x.to(s32), or ptx.inst.cvt.rni.f32.f32(result, x)")

    def __trunc__(self) -> NoReturn:
        _no_python(self.trace, f"the {self._noun}", "truncate with x.to(s32)")

    def _without_instruction(self, *others: object) -> NoReturn:
        raise self.trace.error(
            "Python's abs, **, divmod and @ have no meaning for registers", got=repr(self),
            hint="x * x for a square; ptx.inst.abs.f32(result, x), ex2.approx, lg2.approx; // and % for integers",
            code="host-function",
        )  # fmt: skip

    __abs__ = __pow__ = __rpow__ = __divmod__ = __rdivmod__ = __matmul__ = __rmatmul__ = _without_instruction

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Apply the register's own operator for `np.float32(2) * x`; for other NumPy functions, raise an error with a
        hint."""
        operator = _OPERATORS.get(function.__name__)
        if operator is not None and method == "__call__" and not options:
            return operator(*(each.item() if isinstance(each, np.generic) else each for each in inputs))
        raise self.trace.error(
            f"np.{function.__name__} computes on the host; the {self._noun} has no value while the kernel is traced",
            hint="use the instruction: ptx.inst.lg2.approx.f32, ex2, sqrt.rn, sin.approx, max, …",
            code="host-function",
        )

    __hash__ = object.__hash__

    @property
    def _noun(self) -> str:
        return f"register {self.name}"

    def operand(self, trace: Trace, kind: str) -> nodes.Operand:
        if kind == "address":
            raise trace.error(
                "the instruction takes an address here, and got a bare register",
                got=repr(self),
                hint="put it in brackets: ptx.addr(pointer) or ptx.addr(pointer, offset)",
            )
        return self.node


class Predicate(Traced):
    """A predicate register: the result of a comparison, the condition of `ptx.if_`.

    `&`, `|`, `^` and `~` emit and.pred, or.pred, xor.pred and not.pred.
    """

    code = "pred"

    def __init__(self, trace: Trace, name: str | None = None, *, is_negated: bool = False) -> None:
        self.trace = trace
        self.name = name or trace.fresh(dtypes.pred)
        self.is_negated = is_negated
        self.node = nodes.Register(self.name, is_negated)

    @property
    def negated(self) -> Predicate:
        """The negation of this predicate as an operand, `!%p1`: the guard of an instruction or branch.

        Emits nothing, and follows the predicate if that is overwritten. `~p` is a predicate of its own.
        """
        return Predicate(self.trace, self.name, is_negated=not self.is_negated)

    def guard(self, unless: bool = False) -> nodes.Guard:
        """The guard `@p`; with `unless`, `@!p`."""
        return nodes.Guard(self.name, self.is_negated is not unless)

    @property
    def _noun(self) -> str:
        return f"predicate {self.name}"

    def _combine(self, operation: str, other: object) -> Predicate:
        if isinstance(other, (bool, np.bool_)):
            fixed = {"and": (not other, False), "or": (bool(other), True), "xor": (False, False)}[operation]
            if operation == "xor":
                return ~self if other else self
            return constant_predicate(self.trace, fixed[1]) if fixed[0] else self
        if not isinstance(other, Predicate):
            raise self.trace.error(
                "a predicate combines with predicates only", got=repr(other), hint="compare the register first: x != 0"
            )
        result = Predicate(self.trace)
        issue(f"{operation}.pred", result, self, other, trace=self.trace)
        return result

    def __and__(self, other: object) -> Predicate:
        return self._combine("and", other)

    def __or__(self, other: object) -> Predicate:
        return self._combine("or", other)

    def __xor__(self, other: object) -> Predicate:
        return self._combine("xor", other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> Predicate:
        result = Predicate(self.trace)
        issue("not.pred", result, self, trace=self.trace)
        return result

    def __eq__(self, other: object) -> Any:
        """Equality by identity, for `in` and dict; comparing with a value is refused."""
        if isinstance(other, (bool, int, float, np.generic, Operand)) and other is not self:
            raise self.trace.error(
                "a predicate compares with nothing: it is a truth already",
                got=repr(other),
                hint="use p or ~p, and p ^ q where two predicates differ",
            )
        return self is other

    def __ne__(self, other: object) -> Any:
        return not self == other

    __hash__ = object.__hash__

    def _number(self, other: object = None) -> NoReturn:
        raise self.trace.error(
            "a predicate is not a number", got=repr(self), hint="make it one with ptx.select(p, reg.scalar(u32, 1), 0)"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __lt__ = __le__ = __gt__ = __ge__ = _number
    __neg__ = __pos__ = _number

    def set(self, value: Predicate | bool) -> None:
        """Overwrite this predicate: mov.pred, or for a Python bool setp.eq.b32 with constants."""
        if isinstance(value, (bool, np.bool_)):
            issue("setp.eq.b32", self, 0, int(not value), trace=self.trace)
        else:
            issue("mov.pred", self, value, trace=self.trace)

    def __repr__(self) -> str:
        return f"Predicate({self.name})"


def constant_predicate(trace: Trace, value: bool) -> Predicate:
    """A predicate that is always `value`, set once in the prologue (setp.ne.b32)."""

    def make() -> Predicate:
        result = Predicate(trace)
        trace.emit("setp.ne.b32", result.node, nodes.Integer(int(value)), nodes.Integer(0))
        return result

    return trace.once(("constant predicate", bool(value)), make)
