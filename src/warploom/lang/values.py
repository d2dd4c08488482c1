"""Registers and predicates as Python values, and what the operators on them emit.

An operator makes a new register; an in-place operator (`x += y`) and `x.set(y)` write the register they stand on, so
that a value can change inside `ptx.range`. A Python number takes the register's type and must fit it. Integers of
different widths: the narrower is widened by its own signedness (u64 + s32 sign-extends the s32) and the result has the
wider type. Integers of one width and different signedness may be added, multiplied and combined bitwise (the result is
unsigned), but not compared, divided or shifted right: say which is meant with `x.view(s32)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn, overload

import numpy as np

from ..asm import nodes
from ..errors import TraceError
from ..isa import dtypes
from ..isa.dtypes import DType, Kind
from .emit import Operand, float_bits, integer_range, issue, literal
from .trace import Trace

Number = int | float


def _no_python(trace: Trace | None, what: str, hint: str) -> NoReturn:
    where = trace.location() if trace is not None else None
    raise TraceError(
        f"{what} has no value while the kernel is traced",
        where=where,
        consequence="Python would decide once, for all threads, before the kernel runs",
        hint=hint,
    )


class Traced(Operand):
    """What registers and predicates share: they are no Python values."""

    trace: Trace
    name: str

    def __bool__(self) -> bool:
        _no_python(
            self.trace,
            f"the {self._noun}",
            "branch with ptx.if_(...), loop with ptx.range(...) or ptx.while_(...), choose with ptx.select(...); "
            "combine predicates with & | ~ instead of and, or, not",
        )

    def __index__(self) -> int:
        _no_python(self.trace, f"the {self._noun}", "a Python index or count must be a number; loop with ptx.range(...)")

    __int__ = __index__

    def __float__(self) -> float:
        _no_python(self.trace, f"the {self._noun}", "convert a register with x.to(f32)")

    def __iter__(self) -> Iterator[Any]:
        _no_python(self.trace, f"the {self._noun}", "loop up to a register with `for i in ptx.range(n):`")

    def __len__(self) -> int:
        _no_python(self.trace, f"the {self._noun}", "loop up to a register with `for i in ptx.range(n):`")

    def __contains__(self, item: object) -> bool:
        _no_python(self.trace, f"the {self._noun}", "compare with == and branch with ptx.if_(...)")

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

    def __init__(self, trace: Trace, name: str | None = None) -> None:
        self.trace = trace
        self.name = name or trace.fresh(dtypes.pred)
        self.node = nodes.Register(self.name)

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

    def set(self, value: Predicate) -> None:
        """Overwrite this predicate (mov.pred)."""
        issue("mov.pred", self, value, trace=self.trace)

    def __repr__(self) -> str:
        return f"Predicate({self.name})"


def constant_predicate(trace: Trace, value: bool) -> Predicate:
    """A predicate that is always `value`, made once in the prologue (setp.ne.b32)."""

    def make() -> Predicate:
        result = Predicate(trace)
        trace.emit("setp.ne.b32", result.node, nodes.Integer(int(value)), nodes.Integer(0))
        return result

    return trace.once(("constant predicate", bool(value)), make)


class Register(Traced):
    """A register of one type.

    Operators emit one instruction each (and a cvt where widths differ): + - * & | ^ ~ << >> and comparisons for
    integers, // and % for unsigned integers, + - * / and comparisons for floats. See the module for mixed types.

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
        integer to float and to a narrower float rounds to nearest even (cvt.rn). PTX ISA 9.7.9.21.
        """
        dtype = dtypes.of(dtype)
        if dtype is self.dtype:
            return self
        source, target = _arithmetic(self.dtype), _arithmetic(dtype)
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
        """A new register with the value this one has here."""
        result = Register(self.trace, self.dtype)
        move(self.trace, result, self)
        return result

    # -- arithmetic ----------------------------------------------------------------------------------------------

    def _binary(self, symbol: str, other: object, *, swap: bool = False, into: Register | None = None) -> Register:
        if not isinstance(other, (Register, int, float, np.integer, np.floating)):
            return NotImplemented
        dtype = _common(self, other, symbol)
        opcode = _opcode(self.trace, symbol, dtype)
        if into is not None and dtype is not into.dtype and dtype.bits != into.dtype.bits:
            raise self.trace.error(
                f"`{symbol}=` keeps the register's type", expected=str(into.dtype), got=f"a result of type {dtype}"
            )
        left, right = _operand_as(self, self, dtype), _operand_as(self, other, dtype)
        if swap:
            left, right = right, left
            if not isinstance(left, Register) and not _takes_constant_first(symbol):
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
        dtype = _common(self, other, comparison)
        names = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
        result = Predicate(self.trace)
        type_name = _arithmetic(dtype).name
        word = names[comparison]
        if comparison == "!=" and dtype.is_float:
            word = "neu"  # Python's != is true for NaN
        issue(
            f"setp.{word}.{type_name}", result, _operand_as(self, self, dtype), _operand_as(self, other, dtype), trace=self.trace
        )
        return result

    def __eq__(self, other: object) -> Any:
        return self._compare("==", other)

    def __ne__(self, other: object) -> Any:
        return self._compare("!=", other)

    def __lt__(self, other: Register | Number) -> Any:
        return self._compare("<", other)

    def __le__(self, other: Register | Number) -> Any:
        return self._compare("<=", other)

    def __gt__(self, other: Register | Number) -> Any:
        return self._compare(">", other)

    def __ge__(self, other: Register | Number) -> Any:
        return self._compare(">=", other)

    __hash__ = object.__hash__

    def __invert__(self) -> Register:
        _integers_only(self, "~")
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
            raise self.trace.error(f"a {self.dtype} has no negative", got=repr(self), hint="x.view(s32) first")
        return result


def _install_operators() -> None:
    """`x + y`, `y + x` and `x += y` for every symbol, all through `_binary`."""
    names = {
        "add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^",
        "lshift": "<<", "rshift": ">>", "floordiv": "//", "mod": "%", "truediv": "/",
    }  # fmt: skip

    def methods(symbol: str) -> tuple[Any, Any, Any]:
        def forward(self: Register, other: object) -> Register:
            return self._binary(symbol, other)

        def reflected(self: Register, other: object) -> Register:
            return self._binary(symbol, other, swap=True)

        def in_place(self: Register, other: object) -> Register:
            return self._binary(symbol, other, into=self)

        return forward, reflected, in_place

    for name, symbol in names.items():
        forward, reflected, in_place = methods(symbol)
        setattr(Register, f"__{name}__", forward)
        setattr(Register, f"__r{name}__", reflected)
        setattr(Register, f"__i{name}__", in_place)


_install_operators()


# -- rules of types ------------------------------------------------------------------------------------------------


def _arithmetic(dtype: DType) -> DType:
    """The type an operator calculates in: untyped bits count as unsigned."""
    return dtypes.ALL[f"u{dtype.bits}"] if dtype.kind is Kind.BITS and dtype.bits <= 64 else dtype


def _integers_only(register: Register, symbol: str) -> None:
    if register.dtype.is_float:
        raise register.trace.error(
            f"`{symbol}` needs integers", got=repr(register), hint="read the bits with x.view(u32), or convert with x.to(s32)"
        )


def _common(register: Register, other: Any, symbol: str) -> DType:
    """The type in which an operator works on these two."""
    mine = register.dtype
    if symbol in ("&", "|", "^", "<<", ">>", "%", "//"):
        _integers_only(register, symbol)
    if symbol in ("<<", ">>"):
        return mine
    if not isinstance(other, Register):
        return mine
    theirs = other.dtype
    if mine is theirs:
        return mine
    if mine.is_float or theirs.is_float:
        integer = other if mine.is_float else register
        both = mine.is_float and theirs.is_float
        raise register.trace.error(
            f"`{symbol}` between {mine} and {theirs}",
            expected="two registers of one floating-point type" if both else "two integers, or two floats of one type",
            got=f"{register!r} and {other!r}",
            hint="convert one with x.to(f32)" if both else f"convert the integer with {integer.name}.to(f32) or the float with .to(s32)",
        )
    mine, theirs = _arithmetic(mine), _arithmetic(theirs)
    if mine.bits != theirs.bits:
        wider, narrower = (mine, theirs) if mine.bits > theirs.bits else (theirs, mine)
        if narrower.is_signed and not wider.is_signed and symbol in ("//", "%", "<", "<=", ">", ">="):
            raise _mixed_signs(register, other, symbol)
        return wider
    if mine.is_signed != theirs.is_signed and symbol in ("//", "%", "<", "<=", ">", ">=", "/"):
        raise _mixed_signs(register, other, symbol)
    return theirs if mine.is_signed else mine


def _mixed_signs(register: Register, other: Register, symbol: str) -> TraceError:
    return register.trace.error(
        f"`{symbol}` between a signed and an unsigned integer has two meanings",
        got=f"{register!r} and {other!r}",
        hint="say which with x.view(s32) or x.view(u32)",
    )


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
    if value.dtype.is_float != dtype.is_float:
        raise register.trace.error(
            f"a {value.dtype} register stands where a {dtype} is needed", got=repr(value), hint=f"convert it with x.to({dtype})"
        )
    if value.dtype.bits < dtype.bits and not dtype.is_float:
        source = _arithmetic(value.dtype)
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
    if value.dtype is dtype or _arithmetic(value.dtype) is _arithmetic(dtype):
        return value
    alias = Register(value.trace, dtype, constant=value.constant, name=value.name)
    alias.origin = value.origin
    return alias


def _takes_constant_first(symbol: str) -> bool:
    return symbol in ("+", "*", "&", "|", "^", "-")


def _shift_amount(trace: Trace, amount: Any, dtype: DType) -> Any:
    """Shift counts are u32 registers or numbers; a count of the width or more is a mistake while tracing."""
    if isinstance(amount, Register):
        return amount if amount.dtype.bits == 32 else amount.to(dtypes.u32)
    if not 0 <= amount < dtype.bits:
        raise trace.error(f"a shift of a {dtype} by {amount}", expected=f"0 to {dtype.bits - 1}", got=amount)
    return amount


def _opcode(trace: Trace, symbol: str, dtype: DType) -> str:
    """The instruction of an operator on a type."""
    kind = _arithmetic(dtype)
    if kind.is_float:
        words = {"+": f"add.{kind}", "-": f"sub.{kind}", "*": f"mul.{kind}", "/": f"div.rn.{kind}"}
        if symbol not in words or (symbol == "/" and kind.name not in ("f32", "f64")):
            raise trace.error(f"`{symbol}` does not exist for {dtype}", expected=f"one of {' '.join(words)}")
        if kind.name in ("f32", "f64"):
            return words[symbol].replace(f".{kind}", f".rn.{kind}") if symbol != "/" else words[symbol]
        return words[symbol]
    if symbol == "/":
        raise trace.error(f"`/` is no integer operation, and the register is {dtype}", hint="use // or x.to(f32)")
    if symbol in ("//", "%") and kind.is_signed:
        raise trace.error(
            f"`{symbol}` on a signed register: Python rounds down, the GPU rounds toward zero",
            hint=f"use ptx.inst.{'div' if symbol == '//' else 'rem'}.{kind}(d, a, b), or a u{kind.bits} view",
        )
    shift = f"shr.{kind}" if kind.is_signed else f"shr.u{kind.bits}"
    return {
        "+": f"add.{kind}", "-": f"sub.{kind}", "*": f"mul.lo.{kind}", "//": f"div.{kind}", "%": f"rem.{kind}",
        "&": f"and.b{kind.bits}", "|": f"or.b{kind.bits}", "^": f"xor.b{kind.bits}", "<<": f"shl.b{kind.bits}", ">>": shift,
    }[symbol]  # fmt: skip


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
    """A fresh register, with a value if one is given."""
    register = Register(trace, dtype)
    if init is not None:
        register.set(init)
    return register


class RegisterArray(Operand):
    """A fixed number of registers of one type, indexed by Python integers; in braces where an instruction takes it.

    `array[i] = value` overwrites a register, `array[a:b]` is the shorter array of the same registers.
    """

    def __init__(self, registers: Sequence[Register]) -> None:
        self.elements = tuple(registers)
        self.trace = registers[0].trace
        self.dtype = registers[0].dtype
        self.code = ("{}", *[register.code for register in registers])
        self._node = nodes.Vector(tuple([register.node for register in registers]))

    def operand(self, trace: Trace, kind: str) -> nodes.Operand:
        return self._node

    def __len__(self) -> int:
        return len(self.elements)

    def __iter__(self) -> Iterator[Register]:
        return iter(self.elements)

    @overload
    def __getitem__(self, index: int) -> Register: ...
    @overload
    def __getitem__(self, index: slice) -> RegisterArray: ...
    def __getitem__(self, index: int | slice) -> Register | RegisterArray:
        if isinstance(index, Register):
            raise self.trace.error(
                "registers cannot be indexed by a register",
                got=repr(index),
                hint="unroll with Python's range, or keep the values in shared memory",
            )
        if isinstance(index, slice):
            return RegisterArray(self.elements[index])
        try:
            return self.elements[index]
        except IndexError:
            raise self.trace.error(
                "the index is outside the register array", expected=f"0 to {len(self) - 1}", got=index
            ) from None

    def __setitem__(self, index: int, value: Register | Number) -> None:
        target = self[index]
        if value is not target:  # `array[i] += x` has already written it
            target.set(value)

    def __repr__(self) -> str:
        return f"RegisterArray({len(self)} x {self.dtype}: {self.elements[0].name}..{self.elements[-1].name})"
