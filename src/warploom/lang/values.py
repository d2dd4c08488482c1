"""Registers and predicates as Python values, and the instructions that their operators emit.

An operator makes a new register. An in-place operator (`x += y`) and `x.set(y)` write the left register, so that a
value can change inside `ptx.range`. A Python number takes the register's type and must fit it. `arithmetic` has the
rules for mixed types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..asm import nodes
from ..isa import dtypes
from ..isa.dtypes import DType
from .arithmetic import BITWISE, CONSTANT_FIRST, arithmetic, common, integers_only, strength_reduced
from .arithmetic import opcode as opcode_of
from .emit import float_bits, integer_range, issue, literal
from .predicate import Predicate, Traced
from .trace import Trace

Number = int | float


def _operator(
    symbol: str, swap: bool = False, in_place: bool = False
) -> Callable[[Register, Register | Number], Register]:
    """The method of a Python operator: `a + b`; with `swap`, `1 + a`; in place, `a += b`."""

    def apply(self: Register, other: Register | Number) -> Register:
        return self._binary(symbol, other, swap=swap, into=self if in_place else None)

    return apply


def _comparison(symbol: str) -> Callable[[Register, Register | Number], Any]:
    def compare(self: Register, other: Register | Number) -> Any:
        return self._compare(symbol, other)

    return compare


class Register(Traced):
    """A register of one type.

    Operators emit one instruction each (and a cvt if widths differ): + - * & | ^ ~ << >> and comparisons for
    integers, // and % for unsigned integers, + - * / and comparisons for floats. For mixed types, see the module.

    Attributes:
        dtype: its type.
        name: its PTX name.
        constant: it has one value in the whole kernel (a parameter); writing it is an error.
    """

    def __init__(self, trace: Trace, dtype: DType, *, constant: bool = False, name: str | None = None) -> None:
        self.trace = trace
        self.dtype = dtype
        self.name = name or trace.fresh(dtype)
        self.constant = constant
        self.code = dtype.name + "!" if constant else dtype.name
        self.node = nodes.Register(self.name)

    def __repr__(self) -> str:
        return f"Register({self.name}: {self.dtype})"

    # -- conversions -------------------------------------------------------------------------------------------

    def to(self, dtype: DType) -> Register:
        """The value converted to another type.

        Emits cvt: integers truncate or extend by their own signedness; float to integer rounds to zero (cvt.rzi),
        integer to float and float to a narrower float round to nearest even (cvt.rn). PTX ISA 9.7.9.21.
        """
        dtype = dtypes.of(dtype)
        if dtype is self.dtype:
            return self
        source, target = arithmetic(self.dtype), arithmetic(dtype)
        result = Register(self.trace, dtype)
        if not source.is_float and not target.is_float and source.bits == target.bits:
            issue(f"mov.b{target.bits}", result, self, trace=self.trace)
            return result
        rounding = ""
        if source.is_float and not target.is_float:
            rounding = ".rzi"
        elif target.is_float and (not source.is_float or target.bits < source.bits or target.bits == source.bits == 16):
            rounding = ".rn"
        issue(f"cvt{rounding}.{target}.{source}", result, self, trace=self.trace)
        return result

    def view(self, dtype: DType) -> Register:
        """The same bits read as another type of the same width (mov.bN)."""
        dtype = dtypes.of(dtype)
        if dtype.register_bits != self.dtype.register_bits:
            raise self.trace.error(
                "view reads the same bits, so the widths must agree", expected=f"{self.dtype.bits} bits", got=str(dtype)
            )
        result = Register(self.trace, dtype)
        issue(f"mov.b{dtype.register_bits}", result, self, trace=self.trace)
        return result

    def set(self, value: Register | Number) -> None:
        """Overwrite this register."""
        if isinstance(value, Register) and value.dtype is not self.dtype:
            value = _operand_as(self, value, self.dtype)
        move(self.trace, self, value)

    def copy(self) -> Register:
        """A new register with this register's current value."""
        result = Register(self.trace, self.dtype)
        move(self.trace, result, self)
        return result

    # -- arithmetic ----------------------------------------------------------------------------------------------

    def _common(self, other: Any, symbol: str) -> DType:
        """The type of an operation on this register and `other`."""
        if symbol in BITWISE:
            integers_only(self.trace, self.dtype, symbol)
        if symbol in ("<<", ">>") or not isinstance(other, Register):
            return self.dtype
        return common(self.trace, self.dtype, other.dtype, symbol)

    def _binary(self, symbol: str, other: object, *, swap: bool = False, into: Register | None = None) -> Register:
        if not isinstance(other, (Register, int, float, np.integer, np.floating)):
            return NotImplemented
        dtype = self._common(other, symbol)
        if not swap:
            symbol, other = strength_reduced(symbol, other, dtype)
        opcode = opcode_of(self.trace, symbol, dtype)
        if into is not None and dtype is not into.dtype and dtype.bits != into.dtype.bits:
            raise self.trace.error(
                f"`{symbol}=` keeps the register's type", expected=str(into.dtype), got=f"a result of type {dtype}"
            )
        left, right = _operand_as(self, self, dtype), _operand_as(self, other, dtype)
        if swap:
            left, right = right, left
            if not isinstance(left, Register) and symbol not in CONSTANT_FIRST:
                left = new(self.trace, dtype, left)
        if symbol in ("<<", ">>"):
            right = _shift_amount(self.trace, right, dtype)
        result = into if into is not None else Register(self.trace, dtype)
        issue(opcode, result, left, right, trace=self.trace)
        return result

    def _compare(self, comparison: str, other: object) -> Any:
        if other is None:
            return NotImplemented
        if not isinstance(other, (Register, int, float, np.integer, np.floating)):
            raise self.trace.error("a register compares with registers and numbers", got=repr(other))
        dtype = self._common(other, comparison)
        names = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
        result = Predicate(self.trace)
        type_name = arithmetic(dtype).name
        word = names[comparison]
        if comparison == "!=" and dtype.is_float:
            word = "neu"  # Python's != is true for NaN
        issue(
            f"setp.{word}.{type_name}",
            result,
            _operand_as(self, self, dtype),
            _operand_as(self, other, dtype),
            trace=self.trace,
        )
        return result

    __add__ = _operator("+")
    __sub__ = _operator("-")
    __mul__ = _operator("*")
    __truediv__ = _operator("/")
    __floordiv__ = _operator("//")
    __mod__ = _operator("%")
    __and__ = _operator("&")
    __or__ = _operator("|")
    __xor__ = _operator("^")
    __lshift__ = _operator("<<")
    __rshift__ = _operator(">>")

    __radd__ = _operator("+", swap=True)
    __rsub__ = _operator("-", swap=True)
    __rmul__ = _operator("*", swap=True)
    __rtruediv__ = _operator("/", swap=True)
    __rfloordiv__ = _operator("//", swap=True)
    __rmod__ = _operator("%", swap=True)
    __rand__ = _operator("&", swap=True)
    __ror__ = _operator("|", swap=True)
    __rxor__ = _operator("^", swap=True)
    __rlshift__ = _operator("<<", swap=True)
    __rrshift__ = _operator(">>", swap=True)

    __iadd__ = _operator("+", in_place=True)
    __isub__ = _operator("-", in_place=True)
    __imul__ = _operator("*", in_place=True)
    __itruediv__ = _operator("/", in_place=True)
    __ifloordiv__ = _operator("//", in_place=True)
    __imod__ = _operator("%", in_place=True)
    __iand__ = _operator("&", in_place=True)
    __ior__ = _operator("|", in_place=True)
    __ixor__ = _operator("^", in_place=True)
    __ilshift__ = _operator("<<", in_place=True)
    __irshift__ = _operator(">>", in_place=True)

    def __eq__(self, other: object) -> Any:
        return self._compare("==", other)

    def __ne__(self, other: object) -> Any:
        return self._compare("!=", other)

    __lt__ = _comparison("<")
    __le__ = _comparison("<=")
    __gt__ = _comparison(">")
    __ge__ = _comparison(">=")

    __hash__ = object.__hash__

    def __invert__(self) -> Register:
        integers_only(self.trace, self.dtype, "~")
        result = Register(self.trace, self.dtype)
        issue(f"not.b{self.dtype.bits}", result, self, trace=self.trace)
        return result

    def __neg__(self) -> Register:
        result = Register(self.trace, self.dtype)
        if self.dtype.is_float:
            issue(f"neg.{self.dtype}", result, self, trace=self.trace)
        elif self.dtype.is_signed:
            issue(f"neg.{self.dtype}", result, self, trace=self.trace)
        else:
            raise self.trace.error(f"a {self.dtype} cannot be negated", got=repr(self), hint="x.view(s32) first")
        return result


# -- operands of operators -----------------------------------------------------------------------------------------


def _operand_as(register: Register, value: Any, dtype: DType) -> Any:
    """A register widened to the type of the operation; a number checked against it."""
    if not isinstance(value, Register):
        if isinstance(value, (float, np.floating)) and not dtype.is_float:
            raise register.trace.error(
                f"a float meets the integer register {register.name}",
                expected=f"a Python int or an integer register ({dtype})",
                got=value,
                hint="write the integer, or convert the register with x.to(f32)",
            )
        if dtype.is_float and dtype.name not in ("f32", "f64"):
            return new(register.trace, dtype, value)
        return value
    if value.dtype is dtype:
        return value
    if value.dtype.is_float != dtype.is_float:
        raise register.trace.error(
            f"a {value.dtype} register is used where a {dtype} is needed",
            got=repr(value),
            hint=f"convert it with x.to({dtype})",
        )
    if value.dtype.bits < dtype.bits and not dtype.is_float:
        source = arithmetic(value.dtype)
        widened = Register(register.trace, dtypes.ALL[f"{'s' if source.is_signed else 'u'}{dtype.bits}"])
        issue(f"cvt.{widened.dtype}.{source}", widened, value, trace=register.trace)
        return widened
    if value.dtype.bits > dtype.bits or (dtype.is_float and value.dtype is not dtype):
        raise register.trace.error(
            f"a {value.dtype} value does not go into a {dtype} register by itself",
            got=repr(value),
            hint=f"say so: x.to({dtype})",
        )
    return _view_free(value, dtype)


def _view_free(value: Register, dtype: DType) -> Register:
    """The same register read with the other signedness: no instruction, both live in one class of registers."""
    if value.dtype is dtype or arithmetic(value.dtype) is arithmetic(dtype):
        return value
    alias = Register(value.trace, dtype, constant=value.constant, name=value.name)
    alias.origin = value.origin
    return alias


def _shift_amount(trace: Trace, amount: Any, dtype: DType) -> Any:
    """A shift count: a u32 register or a number. A count of at least the width is an error at trace time."""
    if isinstance(amount, Register):
        return amount if amount.dtype.bits == 32 else amount.to(dtypes.u32)
    if not 0 <= amount < dtype.bits:
        raise trace.error(f"a shift of a {dtype} by {amount}", expected=f"0 to {dtype.bits - 1}", got=amount)
    return amount


# -- making and moving ---------------------------------------------------------------------------------------------


def move(trace: Trace, target: Register, value: Register | Number) -> None:
    """Write a register or a number into a register of the same width (mov)."""
    dtype = target.dtype
    bits = dtype.register_bits
    if isinstance(value, Register):
        issue(f"mov.{dtype}" if dtype.name in ("f32", "f64") else f"mov.b{bits}", target, value, trace=trace)
        return
    if dtype.is_float and dtype.name not in ("f32", "f64"):
        if dtype.name.endswith("x2"):
            half = float_bits(float(value), dtypes.ALL[dtype.name[:-2]])
            value = half | half << bits // 2
        else:
            value = float_bits(float(value), dtype)
        issue(f"mov.b{bits}", target, int(value), trace=trace)
        return
    literal(trace, value, dtype)  # range and kind by the register's own type
    if dtype.name in ("f32", "f64"):
        issue(f"mov.{dtype}", target, float(value), trace=trace)
    else:
        issue(f"mov.b{bits}", target, _as_bits(int(value), bits), trace=trace)


def _as_bits(value: int, bits: int) -> int:
    low, high = integer_range(dtypes.ALL[f"b{bits}"])
    return value if low <= value <= high else value & ((1 << bits) - 1)


def new(trace: Trace, dtype: DType, init: Register | Number | None = None) -> Register:
    """A new register, initialised if a value is given."""
    register = Register(trace, dtype)
    if init is not None:
        register.set(init)
    return register
