"""From a call to one checked instruction.

`issue` turns Python arguments into PTX operands, lets the instruction table choose the matching row, and appends the
instruction to the current trace. The row's decisions for a combination of opcode and argument kinds are cached, so
that unrolled code pays for the check once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..asm import binding, nodes
from ..errors import TraceError, VerificationError, WarploomError
from ..isa import arch as isa_arch
from ..isa import dtypes
from ..isa.dtypes import DType, Kind
from ..isa.instructions import table
from .notes import Note, note, notes_of
from .trace import CURRENT, Trace

PTX_VERSION = (8, 7)
"""PTX version that this layer writes: the first with everything that our kernels use of sm_90a."""
BLACKWELL_VERSION = (8, 8)
"""The first PTX version with all of tcgen05, and with family targets."""


def ptx_version(target: isa_arch.Arch) -> tuple[int, int]:
    """PTX version for a target."""
    return max(PTX_VERSION if target.number < 100 else BLACKWELL_VERSION, target.ptx)


class Operand:
    """The base of all operands.

    `code` names the properties that the instruction table needs (a register's type, "address", …): arguments with equal
    codes are interchangeable. `origin` holds the names of the arrays whose pointers the operand derives from.
    """

    code: Any = ""
    origin: frozenset[str] = frozenset()
    trace: Any = None

    def operand(self, trace: Trace, kind: str) -> nodes.Operand:
        """The operand's node; `kind` is what the row takes there ("address" or a value), if both are possible."""
        raise NotImplementedError


class Sink(Operand):
    """The destination `_`, which discards a result."""

    code = "sink"

    def operand(self, trace: Trace, kind: str) -> nodes.Operand:
        return nodes.Sink()


class Label(Operand):
    """A jump target made by `ptx.label`."""

    code = "label"

    def __init__(self, name: str) -> None:
        self.name = name

    def operand(self, trace: Trace, kind: str) -> nodes.Operand:
        return nodes.Register(self.name)


class Pair(Operand):
    """Two destinations joined by a bar, `d|p`."""

    def __init__(self, first: Operand, second: Operand) -> None:
        self.first, self.second = first, second
        self.code = ("|", first.code, second.code)

    def operand(self, trace: Trace, kind: str) -> nodes.Operand:
        return nodes.Pair(self.first.operand(trace, kind), self.second.operand(trace, kind))


# -- literals ----------------------------------------------------------------------------------------------------


def integer_range(dtype: DType) -> tuple[int, int]:
    """Smallest and largest Python integer that fits a register of the type; `.bN` accepts both readings."""
    if dtype.kind is Kind.SIGNED:
        return -(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1
    if dtype.kind is Kind.BITS:
        return -(1 << dtype.bits - 1), (1 << dtype.bits) - 1
    return 0, (1 << dtype.bits) - 1


def float_bits(value: float, dtype: DType) -> int:
    """The bits of a Python number in a floating-point type, rounded to nearest even."""
    if dtype.name == "f64":
        return struct.unpack("<Q", struct.pack("<d", value))[0]
    if dtype.name == "f32":
        try:
            return struct.unpack("<I", struct.pack("<f", value))[0]
        except OverflowError:  # it rounds to infinity
            return 0x7F800000 if value > 0 else 0xFF800000
    with np.errstate(over="ignore"):
        return int(np.asarray(value, np.float64).astype(dtype.numpy).view(f"u{dtype.numpy.itemsize}"))


def literal(trace: Trace, value: Any, dtype: DType | None) -> nodes.Integer | nodes.Float:
    """A Python number as a PTX constant of a type (None: any type, if the row does not specify one).

    Raises TraceError for a float where an integer is needed, an integer out of range, or a type without constants.
    """
    is_float = isinstance(value, (float, np.floating))
    if dtype is None:
        if is_float:
            raise trace.error("the instruction takes an integer constant, not a float", got=value)
        return _integer(int(value))
    if dtype.is_float:
        if dtype.name in ("f32", "f64"):
            return _float(float_bits(float(value), dtype), dtype.bits)
        if not is_float and value == 0 and dtype.name in ("f16x2", "bf16x2"):
            return _integer(0)
        raise trace.error(
            f"PTX has no constants of type {dtype}",
            got=value,
            hint=f"put it into a register: reg.scalar({dtype}, init={value})",
        )
    if is_float:
        raise trace.error(
            f"the instruction takes a {dtype}",
            expected=f"a Python int or a {dtype} register",
            got=value,
            hint="convert it with int(...), or use the instruction of the floating-point type",
        )
    low, high = integer_range(dtype)
    if not low <= value <= high:
        raise trace.error(
            f"the constant {int(value)} does not fit a {dtype}",
            expected=f"{low} to {high}",
            got=int(value),
            hint="use a wider or a signed type, or subtract" if value < 0 else "use a wider type",
        )
    return _integer(int(value))


# Few distinct constants occur in many instructions.
_integer, _float = lru_cache(maxsize=1024)(nodes.Integer), lru_cache(maxsize=1024)(nodes.Float)


# -- one instruction ---------------------------------------------------------------------------------------------


def _codes(trace: Trace, values: Iterable[Any]) -> list[Any]:
    """The codes of all arguments; most are registers of this trace, which have theirs."""
    return [
        value.code if isinstance(value, Operand) and value.trace is trace else _code(trace, value) for value in values
    ]


def _code(trace: Trace, value: Any) -> Any:
    """The code of an argument, hashable."""
    if isinstance(value, Operand):
        if value.trace is not None and value.trace is not trace:
            raise trace.error(
                "this register belongs to another kernel",
                got=repr(value),
                hint="make registers inside the kernel that uses them; pass data through its arguments",
                code="outside-kernel",
            )
        return value.code
    if isinstance(value, (float, np.floating)):
        return "#float"
    if isinstance(value, (int, np.integer)):
        return "#int"
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return ("{}", *_codes(trace, value))
    if isinstance(value, (str, bytes)) or value is None or not hasattr(value, "elements"):
        raise trace.error(
            f"{value!r} cannot be an operand",
            expected="a register, a predicate, a number, an address (ptx.addr), or a list of registers for braces",
            got=type(value).__name__,
        )
    return ("{}", *_codes(trace, value.elements))


@dataclass(frozen=True, slots=True)
class OperandConversion:
    """The conversion of an argument to an operand: the kind that its row takes, and the type of numbers in it."""

    kind: str = "value"
    dtype: DType | None = None


def _node(trace: Trace, value: Any, treatment: OperandConversion) -> nodes.Operand:
    """An argument as a node."""
    if isinstance(value, Operand):
        return value.operand(trace, treatment.kind)
    if isinstance(value, (int, float, np.integer, np.floating)):
        return literal(trace, value, treatment.dtype)
    elements = value if isinstance(value, Sequence) else value.elements
    return nodes.Vector(tuple([_node(trace, item, treatment) for item in elements]))


def _has_literal(code: Any) -> bool:
    return code in ("#int", "#float") or (isinstance(code, tuple) and any(_has_literal(item) for item in code[1:]))


@dataclass(frozen=True)
class Form:
    """The properties shared by all instructions of one opcode with arguments of the same kinds.

    Attributes:
        treatments: per argument, what the row takes there.
        notes: what the trace records of the instruction.
        may_point: whether its result may be a pointer, computed from a pointer among its operands.
    """

    treatments: tuple[OperandConversion, ...]
    notes: tuple[Note, ...]
    may_point: bool


def _treatments(match: Any, codes: Sequence[Any]) -> tuple[OperandConversion, ...] | None:
    """What a row takes for each argument, or None if the counts cannot fit."""
    specs = match.form.operands
    if not sum(not spec.optional for spec in specs) <= len(codes) <= len(specs):
        return None
    return tuple(
        OperandConversion(dtype=dtypes.ALL.get(match.type_of(spec)))
        if _has_literal(code)
        else OperandConversion(spec.kind)
        for spec, code in zip(specs, codes, strict=False)
    )


def _constant_written(trace: Trace, opcode: str, match: Any, codes: Sequence[Any]) -> None:
    for spec, code in zip(match.form.operands, codes, strict=False):
        if spec.access != "read" and "!" in str(code):
            raise trace.error(
                f"`{opcode}` would write a register that has one value for the whole kernel",
                got="a parameter, a dimension or an address of the prologue",
                hint="copy it first: x = reg.scalar(dtype, init=value)",
            )


def _check_target(trace: Trace, opcode: str, match: Any) -> None:
    """Raise VerificationError unless the kernel's target has the row and its chosen modifiers."""
    target = isa_arch.get(trace.arch)
    needed = [(match.form.arch, match.form.ptx)]
    needed += [(arch, ptx) for _, arch, ptx in match.form.requirements(match.modifiers)]
    for arch, ptx in needed:
        if not target.supports(arch):
            wanted = arch.split()[0]
            fewer = any(_is_known(target, other) for other in table.match(opcode))
            raise VerificationError(
                f"`{opcode}` {'with these operands ' * fewer}does not exist on {trace.arch}",
                where=trace.location(),
                expected=f"arch={wanted!r}" + (" (the plain target lacks it)" if wanted[:-1] == trace.arch else ""),
                got=f"arch={trace.arch!r}",
                consequence="ptxas would refuse the text",
            )
        if ptx > trace.ptx_version:
            raise VerificationError(
                f"`{opcode}` needs PTX {ptx[0]}.{ptx[1]}",
                where=trace.location(),
                got=f"PTX {trace.ptx_version[0]}.{trace.ptx_version[1]}",
            )


def _is_known(target: isa_arch.Arch, match: Any) -> bool:
    """Whether a target has a row with its modifiers."""
    requirements = (arch for _, arch, _ in match.form.requirements(match.modifiers))
    return all(map(target.supports, (match.form.arch, *requirements)))


def _form(trace: Trace, opcode: str, arguments: Sequence[Any], codes: tuple[Any, ...]) -> Form:
    """Find the row that takes these arguments. Raises VerificationError at the user's line if none does."""
    location = trace.location()
    first_error: WarploomError | None = None
    for match in table.match(opcode):
        treatments = _treatments(match, codes)
        if treatments is None:
            continue
        try:
            operands = tuple(_node(trace, a, t) for a, t in zip(arguments, treatments, strict=True))
            bound = binding.bind(nodes.Instruction(opcode, operands, None, location), trace.declared)
        except WarploomError as error:
            first_error = first_error or error
            continue
        _constant_written(trace, opcode, bound.match, codes)
        _check_target(trace, opcode, bound.match)
        return Form(treatments, notes_of(bound.match), any(map(_may_point, codes[1:])))
    if first_error is not None:
        if first_error.where is None:
            first_error.where = location
        raise first_error
    operands = tuple(_node(trace, a, OperandConversion()) for a in arguments if not isinstance(a, float))
    binding.bind(nodes.Instruction(opcode, operands, None, location), trace.declared)  # raises the reason if it fails
    raise VerificationError(f"no form of `{opcode}` takes {len(arguments)} operands of these kinds", where=location)


def issue(opcode: str, *arguments: Any, pred: Any = None, trace: Trace | None = None) -> nodes.Instruction:
    """Append one instruction to the current trace, checked against the instruction table.

    Args:
        opcode: whole dotted opcode.
        arguments: operands in PTX order: registers, predicates, Python numbers, `ptx.addr(...)`, shared-memory
            addresses, lists (braces).
        pred: predicate that guards it, `@p`.

    Raises VerificationError for an unknown opcode, a wrong modifier, a wrong number or kind of operands, or an
    instruction that the kernel's target lacks; TraceError for a value that cannot be an operand.
    """
    trace = trace or Trace.current()
    if CURRENT.get() is not trace:
        raise TraceError(
            "a register is used outside the kernel it belongs to",
            where=trace.location(),
            got=f"an instruction {opcode} for the kernel {trace.name}",
            hint="make registers inside the kernel that uses them; pass data through its arguments",
            code="outside-kernel",
        )
    key = (opcode, *_codes(trace, arguments))
    form = trace.forms.get(key)
    if form is None:
        form = trace.forms[key] = _form(trace, opcode, arguments, key[1:])
    operands = tuple(
        [
            argument.operand(trace, how.kind) if isinstance(argument, Operand) else _node(trace, argument, how)
            for argument, how in zip(arguments, form.treatments, strict=True)
        ]
    )
    guard = None
    if pred is not None:
        if getattr(pred, "code", None) != "pred":
            raise trace.error("the guard of an instruction must be a predicate", got=repr(pred), hint="compare: x != 0")
        _code(trace, pred)
        guard = pred.guard()
    if form.notes:
        note(trace, form.notes, arguments)
    elif form.may_point:
        _carry_origin(arguments)
    instruction = nodes.Instruction(opcode, operands, guard, trace.location())
    trace.append(instruction)
    return instruction


# -- pointers ----------------------------------------------------------------------------------------------------


def _may_point(code: Any) -> bool:
    """True if an argument of this code may be a pointer: numbers, predicates and floats are not."""
    dtype = dtypes.ALL.get(code.rstrip("!")) if isinstance(code, str) else None
    return code not in ("#int", "#float", "pred") and (dtype is None or not dtype.is_float)


def _carry_origin(arguments: Sequence[Any]) -> None:
    """Propagate array names along with pointers: a value computed from a pointer points to the same array."""
    origins = [argument.origin for argument in arguments if isinstance(argument, Operand) and argument.origin]
    if origins and isinstance(arguments[0], Operand):
        arguments[0].origin = frozenset().union(*origins)
