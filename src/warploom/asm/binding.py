"""Binding of an instruction to the row of the instruction table that reads it, and of its operands to the row's names.

Several rows share an opcode, such as `mov.b64` of a register or pair. The row is the first whose operands fit in count,
kind, length of braces and, if declared, register class and width (PTX ISA 6.1, 9.2, 9.4.1; ptxas 13.0 where silent).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NoReturn

from ..errors import VerificationError
from ..isa import dtypes
from ..isa.instructions import table
from ..isa.instructions.nearest import unknown_opcode
from ..isa.instructions.schema import Match, OperandSpec
from ..isa.instructions.video import MULTIPLY_ADD, SELECTOR, signs, takes
from ..isa.special_registers import SPECIAL_REGISTERS
from ..plural import counted
from . import coordinates, widths
from .immediates import in_ranges
from .lone_braces import may_stand_in_braces
from .nodes import (
    Address,
    Float,
    Instruction,
    Integer,
    Operand,
    Pair,
    Register,
    Sink,
    Symbol,
    TensorAddress,
    Vector,
)
from .printer import instruction_text, operand_text
from .sinks import NEVER, discards_too_much, may_stand_alone
from .variables import INSTRUCTION_TYPES

MatchFunction = Callable[[str], tuple[Match, ...]]

TAKES_SPECIAL = {"mov", "cvt"}
"""The instructions that read special registers."""


@dataclass(frozen=True)
class Bound:
    """An instruction bound to a row.

    Attributes:
        match: the row and the choice of each modifier slot.
        operands: by the row's names; both halves of a pair under their own names; omitted optional ones are missing.
    """

    match: Match
    operands: dict[str, Operand]


@dataclass(eq=False)
class _Misfit(Exception):
    """The reason why a row does not read an instruction. `depth`: the operand reached; the farthest row is reported."""

    depth: int
    what: str
    expected: str | None = None
    got: str | None = None
    hint: str | None = None


def bind(
    instruction: Instruction, declarations: Mapping[str, str] | None = None, match: MatchFunction | None = None
) -> Bound:
    """The row that reads an instruction, and its operands by name.

    Args:
        instruction: the instruction to bind.
        declarations: register name -> declared PTX type without its dot; None: registers are not checked. Missing names
            fit everything.
        match: opcode -> rows; by default `isa.instructions.table.match`.

    Raises:
        VerificationError: unknown opcode or modifier, wrong number or kind of operands, wrong register type.
    """
    rows = (match or table.match)(instruction.opcode)
    if not rows:
        what, got, hint = unknown_opcode(instruction.opcode)
        raise VerificationError(what, where=instruction.location, got=got, hint=hint, code="unknown-instruction")
    farthest: _Misfit | None = None
    out_of_range: Bound | None = None
    # Rows may share a spelling and differ in the modifiers they may combine: those that allow it come first.
    # They may also differ in the constants that they take.
    for row in sorted(rows, key=lambda row: bool(row.form.check and row.form.check(row.modifiers))):
        try:
            bound = Bound(row, _Binder(instruction, row, declarations).operands())
            if not in_ranges(row.form, bound.operands):
                out_of_range = out_of_range or bound
                continue
            return bound
        except _Misfit as misfit:
            if farthest is None or misfit.depth > farthest.depth:
                farthest = misfit
    if out_of_range is not None:
        return out_of_range
    assert farthest is not None
    raise VerificationError(
        farthest.what,
        where=instruction.location,
        expected=farthest.expected,
        got=farthest.got or instruction_text(instruction)[:200],
        hint=farthest.hint,
        code="wrong-operands",
    )


@lru_cache(maxsize=4096)
def _takes(widens: bool, declared: str, needed: str) -> bool:
    """True if an instruction takes a register of a declared type, which is no component of a vector register."""
    if declared.startswith("v") and "." in declared:
        return False
    return widths.fits(declared, needed, relaxed=widths.is_relaxed(widens, needed))


class _Binder:
    """The binding of one instruction to one row."""

    def __init__(self, instruction: Instruction, match: Match, declarations: Mapping[str, str] | None) -> None:
        self.instruction = instruction
        self.match = match
        self.declarations = declarations
        self.base = match.form.base
        self.widens = widths.may_widen(self.base, instruction.modifiers)
        self.depth = 0

    def operands(self) -> dict[str, Operand]:
        """Operands by name. Raises _Misfit."""
        specs, given = self.match.form.operands, self.instruction.operands
        needed = next((index for index, spec in enumerate(specs) if spec.optional), len(specs))
        if not needed <= len(given) <= len(specs):
            span = str(needed) if needed == len(specs) else f"{needed} to {len(specs)}"
            raise _Misfit(
                0,
                f"`{self.instruction.opcode}` has {span} operand{'' if span == '1' else 's'}, not {len(given)}",
                self.match.operand_words,
            )
        found: dict[str, Operand] = {}
        for index, (spec, operand) in enumerate(zip(specs, given, strict=False)):
            self.depth = index + 1
            self._bind(spec, operand, found)
        if self.match.form.key == MULTIPLY_ADD:
            negated = [name for name, operand in found.items() if isinstance(operand, Register) and operand.minus]
            wrong = signs(negated, bool(self.match.modifiers.get("po")))
            if isinstance(wrong, str):
                raise _Misfit(self.depth, f"`{self.instruction.opcode}`: {wrong}", "one of a and b, or c")
        return found

    def _fail(self, what: str, expected: str, operand: Operand, hint: str | None = None) -> NoReturn:
        raise _Misfit(self.depth, what, expected, f"`{operand_text(operand)}`", hint)

    def _place(self, spec: OperandSpec) -> str:
        return f"operand {self.depth} ({spec.name}) of `{self.instruction.opcode}`"

    def _bind(self, spec: OperandSpec, operand: Operand, found: dict[str, Operand]) -> None:
        if isinstance(operand, (Pair, Vector)) and discards_too_much(self.base, operand):
            self._fail(f"{self._place(spec)} discards a result that is needed", "a register instead of `_`", operand)
        if isinstance(operand, Pair):
            if spec.second is None:
                self._fail(f"{self._place(spec)} is not a pair", "one operand", operand)
            self._bind_one(spec, operand.first, in_pair=True)
            self._bind_one(spec.second, operand.second, in_pair=True)
            found[spec.name] = operand.first
            found[spec.second.name] = operand.second
            return
        if (
            isinstance(operand, Vector)
            and len(operand.elements) == 1
            and may_stand_in_braces(self.match, spec, self.instruction)
        ):
            operand = operand.elements[0]
        found[spec.name] = self._address(spec, operand) if spec.kind == "address" else operand
        self._bind_one(spec, operand)

    def _bind_one(self, spec: OperandSpec, operand: Operand, in_pair: bool = False) -> None:
        kind = spec.kind
        if kind in ("any", "address"):
            return
        if kind == "tensor_address":
            self._tensor_address(spec, operand)
        elif kind == "sink":
            if not isinstance(operand, Sink):
                self._fail(f"{self._place(spec)} must be `_`: there is no result", "`_`", operand)
        elif kind == "label" or kind == "symbol":
            named = (
                isinstance(operand, Register)
                and not operand.negated
                and (kind == "label" or operand.name not in SPECIAL_REGISTERS)
                and self._declared(operand.name) is None
            )
            if not (named or (kind == "symbol" and isinstance(operand, Symbol) and not operand.offset)):
                self._fail(f"{self._place(spec)} is not a {kind}", f"the name of a {kind}", operand)
        elif kind == "immediate":
            if not isinstance(operand, Integer):
                self._fail(f"{self._place(spec)} is not a constant", "an integer constant", operand)
        else:
            self._values(spec, operand, in_pair)

    # -- addresses -----------------------------------------------------------------------------------------------

    def _address(self, spec: OperandSpec, operand: Operand) -> Address:
        bare = self.match.form.bare and not getattr(operand, "negated", False)
        if bare and isinstance(operand, (Register, Symbol)):
            operand = Address(Register(operand.name), operand.offset if isinstance(operand, Symbol) else 0)
        elif not isinstance(operand, Address):
            self._fail(f"{self._place(spec)} is not an address", "an address in brackets", operand)
        elif isinstance(operand.base, Register) and "." in operand.base.name and self._declared(operand.base.name):
            self._fail(f"{self._place(spec)} is an element of a vector register", "a whole register", operand)
        self._address_base(spec, operand)
        return operand

    def _address_base(self, spec: OperandSpec, operand: Address) -> None:
        base = operand.base
        declared = self._declared(base.name) if isinstance(base, Register) else None
        if declared is not None and not widths.addresses(declared, spec.space, spec.type):
            self._fail(
                f"{self._place(spec)} takes its address from `{operand_text(base)}`, a .{declared} register",
                f"a .{spec.type} register"
                if spec.type
                else f"an integer or .b register of 32{' or 64' * (spec.space != 'tensor')} bits",
                operand,
            )

    def _tensor_address(self, spec: OperandSpec, operand: Operand) -> None:
        if not isinstance(operand, TensorAddress):
            self._fail(f"{self._place(spec)} is not a tensor address", "`[map, {coordinates}]`", operand)
        if operand.base.offset or not isinstance(operand.base.base, Register):
            self._fail(f"{self._place(spec)} names more than a tensor map", "a register or a variable", operand)
        if not spec.space:
            self._address_base(spec, operand.base)
        first = operand.coordinates[0] if operand.coordinates else None
        if spec.space and isinstance(first, Register) and (self._declared(first.name) or "")[2:3] == ".":
            return  # all coordinates in a vector register
        wrong = coordinates.wrong_number(self.match, spec, operand)
        if wrong is not None:
            self._fail(f"{self._place(spec)} {wrong[0]}", wrong[1], operand)
        for coordinate, type_name in zip(
            operand.coordinates, coordinates.types(self.match, spec, operand), strict=True
        ):
            self._value(spec, coordinate, type_name, "read")

    # -- values --------------------------------------------------------------------------------------------------

    def _values(self, spec: OperandSpec, operand: Operand, in_pair: bool) -> None:
        length = self.match.length_of(spec)
        type_name = self.match.type_of(spec)
        if length is None:
            if isinstance(operand, Vector):
                self._fail(f"{self._place(spec)} is not a vector", "one operand without braces", operand)
            if isinstance(operand, Sink) and not in_pair and not may_stand_alone(self.instruction.opcode):
                self._fail(f"the result of `{self.instruction.opcode}` cannot be discarded", "a register", operand)
            if spec.exact or spec.integral or not self._fits(operand, type_name):
                self._value(spec, operand, type_name, spec.access, register_only=spec.kind == "register")
            return
        if isinstance(operand, Register) and length > 1:
            if self.declarations is None or (self._declared(operand.name) or "").startswith(f"v{length}."):
                return
        if not isinstance(operand, Vector):
            self._fail(f"{self._place(spec)} lacks its braces", f"{{…}} with {length} operands", operand)
        count = len(operand.elements)
        if (count != length or not count) and not (spec.padded and coordinates.padded(count, length)):
            what = f"{self._place(spec)} has {counted(count, 'element')} in braces, not {length}"
            raise _Misfit(self.depth, what, f"{length} for these modifiers", f"{count}")
        for element in operand.elements:
            if spec.integral or not self._fits(element, type_name):
                self._value(spec, element, type_name, spec.access, register_only=spec.kind == "register")
        given = [self._declared(each.name) for each in operand.elements if spec.packed and isinstance(each, Register)]
        raw = INSTRUCTION_TYPES  # the DSL holds them in .b registers
        if given and not any(each is None or each in raw or widths.fits(each, spec.packed) for each in given):
            expected = widths.accepted(spec.packed)
            self._fail(f"{self._place(spec)} is in .{given[0]} registers", expected, operand)

    def _fits(self, operand: Operand, type_name: str) -> bool:
        """True if an operand is a declared register of the right type: a fast path for the usual case."""
        if type(operand) is not Register or operand.negated or self.declarations is None:
            return False
        declared = self.declarations.get(operand.name)
        return declared is not None and _takes(self.widens, declared, type_name)

    def _value(
        self, spec: OperandSpec, operand: Operand, type_name: str, access: str, register_only: bool = False
    ) -> None:
        """Check one register or constant against a type."""
        if isinstance(operand, Register):
            self._register(spec, operand, type_name, access, register_only)
        elif isinstance(operand, Sink):
            skips = self.match.form.key.startswith("st.wide")  # 9.7.9.11: an element that is not written
            if (access != "write" and not skips) or self.base in NEVER:
                self._fail(f"{self._place(spec)} is read; `_` is for results only", "a register", operand)
        elif isinstance(operand, (Integer, Float)):
            if access != "read" or register_only:
                self._fail(f"{self._place(spec)} is a constant", f"a .{type_name} register", operand)
            complaint = widths.constant_misfit(operand, type_name, self.base in widths.FRAGMENTS)
            if spec.integral and isinstance(operand, Float):
                complaint = "an integer"
            if complaint:
                self._fail(
                    f"{self._place(spec)} is {'an integer' if isinstance(operand, Integer) else 'a floating-point'} "
                    f"constant where .{type_name} is needed",
                    complaint,
                    operand,
                )
        elif isinstance(operand, Symbol) and self.declarations is not None and operand.name in self.declarations:
            if access != "read" or register_only:  # `%r1 + 4`, which ptxas adds up before the instruction
                self._fail(f"{self._place(spec)} is a sum", f"a .{type_name} register", operand)
            declared = self.declarations[operand.name]
            if spec.variables and self.base in widths.SUMS_OF_ANY_WIDTH and widths.fits(declared, f"u{declared[1:]}"):
                return
            self._register(spec, Register(operand.name), type_name, access, register_only)
        elif isinstance(operand, Symbol):
            self._name(spec, operand, access, register_only)
        else:
            self._fail(f"{self._place(spec)} is not a register", f"a .{type_name} register", operand)

    def _name(self, spec: OperandSpec, operand: Symbol, access: str, register_only: bool) -> None:
        if access != "read" or register_only or not spec.variables or operand.name in SPECIAL_REGISTERS:
            what = f"{self._place(spec)} is the address of a variable, or a sum"
            self._fail(what, "a register", operand, "take the address with mov first")

    def _register(self, spec: OperandSpec, operand: Register, type_name: str, access: str, register_only: bool) -> None:
        declared = self._declared(operand.name)
        if operand.minus:
            negatable = self.match.form.key == MULTIPLY_ADD and access == "read"
        else:
            negatable = type_name == "pred" and access == "read"
        if operand.negated and not negatable:
            self._fail(
                f"{self._place(spec)} cannot be negated",
                f"a .{type_name} register without `{'-' if operand.minus else '!'}`",
                operand,
            )
        if declared is None and "." in operand.name:
            declared = self._selected(spec, operand)
        if declared is None:
            return self._special(spec, operand, type_name, access)
        if declared.startswith("v") and "." in declared:
            self._fail(f"{self._place(spec)} is a vector register", f"one .{type_name} register", operand)
        if spec.integral and declared in dtypes.ALL and dtypes.ALL[declared].is_float:
            self._fail(f"{self._place(spec)} is declared .{declared}", "an integer or .b register", operand)
        if spec.exact and declared != type_name:
            self._fail(f"{self._place(spec)} is declared .{declared}", f"a .{type_name} register", operand)
        relaxed = not spec.integral and spec.kind != "tensor_address" and widths.is_relaxed(self.widens, type_name)
        if not widths.fits(declared, type_name, relaxed):
            self._fail(
                f"{self._place(spec)} is `{operand_text(operand)}`, declared .{declared}, where .{type_name} is needed",
                widths.accepted(type_name, relaxed),
                operand,
            )

    def _selected(self, spec: OperandSpec, operand: Register) -> str | None:
        """The declared type of a register if its byte or half-word is named and the instruction allows that."""
        whole, _, selector = operand.name.rpartition(".")
        declared = self._declared(whole)
        if declared is None or not SELECTOR.fullmatch(selector):
            return None
        if not takes(self.match.form.key, spec.name, selector):
            self._fail(f"{self._place(spec)} takes no such part of a register", f"a .{declared} register", operand)
        return declared

    def _special(self, spec: OperandSpec, operand: Register, type_name: str, access: str) -> None:
        if operand.name[0] != "%" or operand.name not in SPECIAL_REGISTERS:
            return
        if access != "read":
            self._fail(f"{self._place(spec)} writes a special register", f"a .{type_name} register", operand)
        floats = any(word in dtypes.ALL and dtypes.ALL[word].is_float for word in self.instruction.modifiers)
        if self.base not in TAKES_SPECIAL or (self.base == "cvt" and (floats or "pack" in self.instruction.modifiers)):
            self._fail(
                f"{self._place(spec)} is a special register, which only mov and cvt read",
                f"a .{type_name} register",
                operand,
                f"mov {operand.name} into a register first",
            )
        special = SPECIAL_REGISTERS[operand.name].dtype.name
        relaxed = self.base == "cvt" and widths.is_relaxed(self.widens, type_name)
        if not widths.fits(special, type_name, relaxed=relaxed):
            self._fail(f"{self._place(spec)} is {operand.name}, a .{special}", f"a .{type_name} operand", operand)

    def _declared(self, name: str) -> str | None:
        """The declared type of a register; for a component of a vector register, its element's type."""
        if self.declarations is None:
            return None
        found = self.declarations.get(name)
        if found is None and "." in name:
            base, _, component = name.rpartition(".")
            whole = self.declarations.get(base)
            if whole is not None and "." in whole and component in "xyzwrgba":
                return whole.split(".")[1]
        return found
