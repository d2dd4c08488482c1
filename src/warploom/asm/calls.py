"""Checks of `call` and `brx.idx` against the functions and tables that they name. PTX ISA 9.7.12.4, .5 and 11.

The verdicts are those of ptxas 13.0, which tests/asm/test_declarations.py compares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from ..errors import PtxSyntaxError
from ..isa import dtypes
from ..plural import counted
from . import widths
from .initial_values import Complaint
from .nodes import (
    CALL_TABLES,
    JUMP_TABLE,
    Directive,
    Float,
    Function,
    Group,
    Instruction,
    Integer,
    Label,
    Operand,
    Register,
    Sink,
    Symbol,
    Variable,
    walk,
)
from .printer import operand_text
from .prototypes import prototype
from .scopes import Scope


class Calls:
    """What the calls of one function may name: the module's functions, and the tables at labels of the function."""

    def __init__(self, functions: Mapping[str, Function], caller: Function) -> None:
        self.functions, self.caller = functions, caller
        self.own = {each.name for each in (*caller.parameters, *caller.results)}
        self.tables: dict[str, Directive] = {}
        label = ""
        for statement in walk(caller.body or ()):
            if isinstance(statement, Directive) and label:
                self.tables[label] = statement
            label = statement.name if isinstance(statement, Label) else ""

    def wrong(self, instruction: Instruction, scope: Scope) -> Iterator[Complaint]:
        """Complaints about a `call` or `brx.idx`: the called function, its table, its arguments and results."""
        operands = list(instruction.operands)
        if instruction.opcode.startswith("brx"):
            yield from self._wrong_table(operands[1], (JUMP_TABLE,))
            return
        results = _taken_list(operands)
        target = operands.pop(0) if operands else None
        arguments = _taken_list(operands)
        name = _name(target)
        meaning = scope.find(name)
        if meaning is not None and meaning.kind == "register" and target is not None:
            bits = dtypes.ALL[meaning.type].bits if meaning.type in dtypes.ALL else 0
            if bits != 64 or dtypes.ALL[meaning.type].is_float:
                yield f"`call` goes through `{name}`, declared .{meaning.type}", "a 64-bit register"
            table = operands[0] if operands else None
            yield from self._wrong_table(table, CALL_TABLES)
            for one in self._targets(_name(table)):
                yield from self._wrong_list(one, "argument", arguments, one.parameters, scope)
                yield from self._wrong_list(one, "result", results, one.results, scope)
            return
        called = self.functions.get(name)
        if called is None or called.kind != "func" or operands:
            got = operand_text(operands[0] if called is not None and operands else target) if target else "nothing"
            yield f"`call` goes to `{got}`", "a function (.func), its results before and its arguments after it"
            return
        yield from self._wrong_list(called, "argument", arguments, called.parameters, scope)
        yield from self._wrong_list(called, "result", results, called.results, scope)

    def _targets(self, label: str) -> Iterator[Function]:
        """What a table lets a call reach: the functions of a list, or the one that a prototype describes."""
        table = self.tables.get(label)
        if table is not None and table.name == "callprototype":
            with suppress(PtxSyntaxError):  # the table itself is refused
                yield prototype(label, table.text)
        elif table is not None and table.name == "calltargets":
            yield from (self.functions[name] for name in _listed(table) if name in self.functions)

    def _wrong_table(self, operand: Operand | None, kinds: Sequence[str]) -> Iterator[Complaint]:
        name = _name(operand)
        table = self.tables.get(name)
        if table is None or table.name not in kinds:
            got = operand_text(operand) if operand is not None else "no label"
            yield f"`{got}` names no table of targets", f"the label of a .{' or .'.join(kinds)} directive"

    def _wrong_list(
        self, called: Function, word: str, given: Sequence[Operand], wanted: Sequence[Variable], scope: Scope
    ) -> Iterator[Complaint]:
        if len(given) != len(wanted):
            yield f"{called.name} is called with {counted(len(given), word)}", f"{len(wanted)}"
            return
        for operand, formal in zip(given, wanted, strict=True):
            expected = self._misfit(operand, formal, word, scope)
            if expected is not None:
                yield f"`{operand_text(operand)}` does not fit {word} {formal.name} of {called.name}", expected

    def _misfit(self, operand: Operand, formal: Variable, word: str, scope: Scope) -> str | None:
        """The expected operand if one does not fit a parameter or result, or None."""
        array = f"[{formal.dims[0]}]" if formal.dims else ""
        expected = f".param .{formal.type}{array}" if array else f"a .{formal.type} register or .param variable"
        if isinstance(operand, Sink):
            return None if word == "result" else expected
        if isinstance(operand, (Integer, Float)):
            if word == "result" or array:
                return expected
            raw = dtypes.ALL[formal.type].kind is dtypes.Kind.BITS
            return None if raw or widths.constant_misfit(operand, formal.type) is None else expected
        name = _name(operand)
        meaning = scope.find(name)
        if meaning is None:
            return expected
        if meaning.kind == "register" and not array:
            return None if "." in meaning.type else _fits(meaning.type, formal, expected)
        actual = meaning.variable
        if actual is None or name in self.own or actual.space != "param":
            return expected
        if formal.dims[:1] == (-1,):
            return None
        if actual.dims != formal.dims:
            return expected
        if array and _alignment(actual) != _alignment(formal):
            return f"{expected} aligned to {counted(_alignment(formal), 'byte')}"
        return _fits(actual.type, formal, expected)


def wrong_targets(table: Directive, scope: Scope) -> Iterator[Complaint]:
    """A complaint about each name in a table of targets that is not a function declared above it."""
    for name in _listed(table):
        meaning = scope.find(name)
        if meaning is None or meaning.kind != "function":
            got = "not declared above" if meaning is None else f"a {meaning.kind}"
            yield f"the .calltargets name {name!r}, which is {got}", "a function"


def _listed(table: Directive) -> list[str]:
    return table.text.replace(",", " ").split()


def _name(operand: Operand | None) -> str:
    """The name that an operand consists of; "" for any other operand. The parser makes bare names registers."""
    if isinstance(operand, Symbol) and not operand.offset:
        return operand.name
    return operand.name if isinstance(operand, Register) and not operand.negated else ""


def _taken_list(operands: list[Operand]) -> tuple[Operand, ...]:
    """The operands in the parentheses at the front, which are removed; () without parentheses."""
    first = operands[0] if operands else None
    if not isinstance(first, Group):
        return ()
    del operands[0]
    return first.elements


def _fits(declared: str, formal: Variable, expected: str) -> str | None:
    return None if declared == formal.type or widths.fits(declared, formal.type) else expected


def _alignment(variable: Variable) -> int:
    return variable.align or dtypes.ALL[variable.type].bytes
