"""A PTX tree as text: deterministic, one statement per line, parsed back to the same tree."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ..errors import SourceLocation
from . import nodes

_PLAIN_NAME = re.compile(r"([A-Za-z_][\w$]*|[$%][\w$]+)(\.[\w$]+)*", re.ASCII)
_SEMICOLON = {"pragma", "branchtargets", "calltargets", "callprototype", "alias"}
INDENT = "    "


def to_text(module: nodes.Module, *, line_info: bool = False) -> str:
    """The PTX text of a module.

    Args:
        module: the tree.
        line_info: write `.file` and `.loc` from the locations of the instructions, with paths exactly as in the
            locations. If the tree has its own `.loc` directives, these are kept and nothing is added.
    """
    lines = [f".version {module.version[0]}.{module.version[1]}", f".target {', '.join(module.target)}"]
    if module.address_size is not None:
        lines.append(f".address_size {module.address_size}")
    statements = [each for function in module.functions for each in nodes.walk(function.body or ())]
    wanted = line_info and not any([isinstance(each, nodes.LocDirective) for each in statements])
    files = {path: number for number, path in module.files.items()} if wanted else {}
    taken, head = len(files), len(lines)
    printer = _Printer(lines, files if wanted else None)
    for item in module.items:
        printer.item(item)
    lines[head:head] = [f'.file {number} "{path}"' for path, number in list(files.items())[taken:]]
    return "\n".join(lines) + "\n"


@lru_cache(maxsize=16384)
def name_text(name: str) -> str:
    """A name, in quotes if it is not a plain PTX identifier."""
    return name if _PLAIN_NAME.fullmatch(name) else f'"{name}"'


def operand_text(operand: nodes.Operand) -> str:
    """One operand as PTX."""
    return _OPERANDS[type(operand)](operand)


def _register(operand: nodes.Register) -> str:
    name = name_text(operand.name)
    return f"{'-' if operand.minus else '!'}{name}" if operand.negated else name


def _float(operand: nodes.Float) -> str:
    return operand.text or f"0{'f' if operand.bits == 32 else 'd'}{operand.raw:0{operand.bits // 4}X}"


def _inside(address: nodes.Address) -> str:
    return operand_text(address.base) + _offset(address.offset)


def _base_of(operand: nodes.TensorAddress) -> str:
    return _inside(operand.base) + (f", {_register(operand.sampler)}" if operand.sampler else "")


def _offset(offset: int) -> str:
    return f"+{offset}" if offset else ""


def _list(operands: Iterable[nodes.Operand]) -> str:
    """Operands separated by commas; a fast path for registers, the usual case."""
    return ", ".join(
        [
            name_text(operand.name)
            if type(operand) is nodes.Register and not operand.negated
            else _OPERANDS[type(operand)](operand)
            for operand in operands
        ]
    )


_OPERANDS: dict[type, Callable[[Any], str]] = {
    nodes.Register: _register,
    nodes.Integer: lambda operand: operand.text or str(operand.value),
    nodes.Float: _float,
    nodes.Symbol: lambda operand: name_text(operand.name) + _offset(operand.offset),
    nodes.Address: lambda operand: f"[{_inside(operand)}]{'.unified' if operand.unified else ''}",
    nodes.TensorAddress: lambda operand: f"[{_base_of(operand)}, {{{_list(operand.coordinates)}}}]",
    nodes.Vector: lambda operand: f"{{{_list(operand.elements)}}}",
    nodes.Pair: lambda operand: f"{operand_text(operand.first)}|{operand_text(operand.second)}",
    nodes.Group: lambda operand: f"({_list(operand.elements)})",
    nodes.Sink: lambda operand: "_",
    nodes.Raw: lambda operand: operand.text,
}
"""The function that prints each kind of operand."""


def instruction_text(instruction: nodes.Instruction) -> str:
    """One instruction as PTX, semicolon included."""
    operands = _list(instruction.operands)
    text = f"{instruction.opcode} {operands};" if operands else f"{instruction.opcode};"
    return text if instruction.guard is None else guard_text(instruction.guard) + text


def guard_text(guard: nodes.Guard | None) -> str:
    """`@%p1 ` or `@!%p1 `, blank included; empty if there is no guard."""
    return "" if guard is None else f"@{'!' if guard.negated else ''}{name_text(guard.register)} "


def variable_text(variable: nodes.Variable) -> str:
    """A variable or parameter, without a semicolon."""
    attributes = variable.attributes
    split = attributes.index(".ptr") if ".ptr" in attributes else len(attributes)
    parts = [f".{variable.linkage}" if variable.linkage else "", f".{variable.space}"]
    if variable.align is not None:
        parts.append(f".align {variable.align}")
    parts += [*attributes[:split], f".{variable.type}", *attributes[split:]]
    dims = "".join("[]" if size < 0 else f"[{size}]" for size in variable.dims)
    parts.append(name_text(variable.name) + dims)
    if variable.initializer:
        parts.append(f"= {variable.initializer}")
    return " ".join(part for part in parts if part)


def declaration_text(declaration: nodes.RegisterDeclaration) -> str:
    """A register declaration, semicolon included."""
    vector = f".{declaration.vector} " if declaration.vector else ""
    count = f"<{declaration.count}>" if declaration.count is not None else ""
    return f".reg {vector}.{declaration.type} {', '.join(map(name_text, declaration.names))}{count};"


def directive_text(directive: nodes.Directive) -> str:
    """A directive, semicolon included if it has one."""
    text = f".{directive.name} {directive.text}" if directive.name != "@" else f"@{directive.text}"
    return text.rstrip() + (";" if directive.name in _SEMICOLON else "")


@dataclass
class _Printer:
    """Appends to `lines`.

    `files`: path -> file number, None if no line information is requested. New files are numbered in order of
    appearance.
    """

    lines: list[str]
    files: dict[str, int] | None
    _last: SourceLocation | None = field(default=None, init=False)

    def item(self, item: nodes.Directive | nodes.Variable | nodes.Function | nodes.Comment) -> None:
        match item:
            case nodes.Directive():
                self.lines.append(directive_text(item))
            case nodes.Variable():
                self.lines.append(variable_text(item) + ";")
            case nodes.Comment():
                self._comment(item, "")
            case nodes.Function():
                self.function(item)

    def function(self, function: nodes.Function) -> None:
        head = f".{function.linkage} " if function.linkage else ""
        head += f".{function.kind} "
        if function.results:
            head += f"({', '.join(map(variable_text, function.results))}) "
        head += name_text(function.name)
        self.lines.append("")
        if function.parameters:
            self.lines.append(head + "(")
            parameters = [INDENT + variable_text(parameter) for parameter in function.parameters]
            self.lines.extend(text + "," for text in parameters[:-1])
            self.lines.extend([parameters[-1], ")"])
        else:
            self.lines.append(head + "()")
        self.lines.extend(map(directive_text, function.directives))
        if function.body is None:
            self.lines.append(";")
            return
        self._last = None
        self.lines.append("{")
        self.statements(function.body, INDENT)
        self.lines.append("}")

    def statements(self, statements: tuple[nodes.Statement, ...], indent: str) -> None:
        lines = self.lines
        for statement in statements:
            match statement:
                case nodes.Instruction():
                    if self.files is not None:
                        self._loc(statement.location, indent)
                    lines.append(indent + instruction_text(statement))
                case nodes.Label():
                    lines.append(f"{name_text(statement.name)}:")
                case nodes.RegisterDeclaration():
                    lines.append(indent + declaration_text(statement))
                case nodes.Variable():
                    lines.append(f"{indent}{variable_text(statement)};")
                case nodes.LocDirective():
                    lines.append(f"{indent}.loc {statement.file} {statement.line} {statement.column}{statement.rest}")
                case nodes.Directive():
                    lines.append(indent + directive_text(statement))
                case nodes.Comment():
                    self._comment(statement, indent)
                case nodes.Block():
                    lines.append(indent + "{")
                    self.statements(statement.statements, indent + INDENT)
                    lines.append(indent + "}")

    def _comment(self, comment: nodes.Comment, indent: str) -> None:
        self.lines.extend(f"{indent}// {line}".rstrip() for line in comment.text.splitlines() or [""])

    def _loc(self, location: SourceLocation | None, indent: str) -> None:
        if location is None or location is self._last or location == self._last:
            return
        self._last = location
        assert self.files is not None
        number = self.files.get(location.file)
        if number is None:
            number = self.files[location.file] = max(self.files.values(), default=0) + 1
        self.lines.append(f"{indent}.loc {number} {location.line} {location.column}")
