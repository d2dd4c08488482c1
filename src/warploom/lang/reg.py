"""Making registers: `reg.scalar`, `reg.array`, `reg.predicate`, `reg.predicates`."""

from __future__ import annotations

from typing import Any

from ..isa import dtypes
from ..isa.dtypes import DType
from . import values
from .arrays import RegisterArray
from .emit import issue
from .predicate import Predicate
from .trace import Trace
from .values import Register

__all__ = ["array", "predicate", "predicates", "scalar"]


def scalar(dtype: DType, init: Register | int | float | None = None) -> Register:
    """One register of a type; with `init`, a mov of that number or register (its current value)."""
    return values.new(Trace.current(), dtypes.of(dtype), init)


def array(dtype: DType, n: int, init: int | float | None = None) -> RegisterArray:
    """`n` registers of a type; with `init`, a mov of that number into each."""
    trace = Trace.current()
    if not isinstance(n, int) or n < 1:
        raise trace.error("a register array needs a positive Python int as its length", got=repr(n))
    dtype = dtypes.of(dtype)
    return RegisterArray([values.new(trace, dtype, init) for _ in range(n)])


def predicate(init: bool | Predicate | None = None) -> Predicate:
    """One predicate register; with `init`, set to it."""
    trace = Trace.current()
    result = Predicate(trace)
    if isinstance(init, Predicate):
        result.set(init)
    elif init is not None:
        issue("setp.ne.b32", result, int(bool(init)), 0, trace=trace)
    return result


def predicates(n: int) -> list[Predicate]:
    """`n` predicate registers."""
    trace = Trace.current()
    if not isinstance(n, int) or n < 1:
        raise trace.error("a list of predicates needs a positive Python int as its length", got=repr(n))
    return [Predicate(trace) for _ in range(n)]


def like(register: Any) -> Register:
    """A new register of another register's type."""
    return Register(register.trace, register.dtype)
