"""Spellings that ptxas accepts and the emulator does not read, rewritten as equivalent plainer ones.

    .reg .v4 .f32 %v;  … %v.x, %v       four registers, `%v.x`; `{%v.x, %v.y, %v.z, %v.w}`
    .func f(.reg .v2 .u32 v) … f, (%v)  two parameters, two arguments
    st.global.u32 [%rd1], %r1 + 4       add.u32 %sum, %r1, 4;  st.global.u32 [%rd1], %sum

The tree is for running, not for printing: names have dots.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace

from ..isa import dtypes
from .nodes import (
    Block,
    Function,
    Group,
    Instruction,
    Integer,
    Module,
    Operand,
    Register,
    RegisterDeclaration,
    Statement,
    Symbol,
    Variable,
    Vector,
    walk,
)
from .widths import SUMS_OF_ANY_WIDTH

VECTORS = (".v2", ".v4")
COMPONENTS = ("x", "y", "z", "w")
COLOURS = dict(zip("rgba", COMPONENTS, strict=True))
"""Alternative names of components (PTX ISA 5.4.2)."""


def lowered(module: Module) -> Module:
    """The module without vector registers and sums of a register and a constant; unchanged if it has none."""
    items = tuple(_function(item) if isinstance(item, Function) and item.body else item for item in module.items)
    return replace(module, items=items) if any(a is not b for a, b in zip(items, module.items, strict=True)) else module


def _function(function: Function) -> Function:
    assert function.body is not None
    statements = list(walk(function.body))
    declared = [each for each in statements if isinstance(each, RegisterDeclaration)]
    types: dict[str, str] = {}
    vectors: dict[str, int] = {}
    for formal in (*function.parameters, *function.results):
        if formal.space == "reg":
            types[formal.name] = formal.type
            for word in formal.attributes:
                if word in VECTORS:
                    vectors[formal.name] = int(word[2:])
    registers = {*types, *(name for each in declared for name in each.every_name())}
    sums = any(
        isinstance(operand, Symbol) and operand.name in registers
        for each in statements
        if isinstance(each, Instruction)
        for operand in each.operands
    )
    if not vectors and not sums and not any(each.vector for each in declared):
        return function
    pass_ = _Pass(types, vectors)
    body = tuple(pass_.statements(function.body))
    parameters, results = (pass_.formals(each) for each in (function.parameters, function.results))
    return replace(function, parameters=parameters, results=results, body=(*pass_.temporaries, *body))


@dataclass
class _Pass:
    """One scope of a function. types: types of registers; vectors: number of components of each vector register."""

    types: dict[str, str]
    vectors: dict[str, int]
    temporaries: list[RegisterDeclaration] = field(default_factory=list)

    def statements(self, statements: tuple[Statement, ...]) -> Iterator[Statement]:
        """The statements of a block, whose declarations hide outer ones of the same name from there on."""
        for each in statements:
            if isinstance(each, Block):
                inner = _Pass(dict(self.types), dict(self.vectors), self.temporaries)
                yield replace(each, statements=tuple(inner.statements(each.statements)))
            elif isinstance(each, RegisterDeclaration):
                for name in each.every_name():
                    self.types[name] = each.type
                    self.vectors.pop(name, None)
                    if each.vector:
                        self.vectors[name] = int(each.vector[1:])
                parts = [part for name in each.every_name() if each.vector for part in self._parts(name)]
                yield RegisterDeclaration(each.type, tuple(parts)) if parts else each
            elif isinstance(each, Instruction):
                operands: list[Operand] = []
                for operand in map(self._operand, each.operands):
                    operands.append((yield from self._sum(operand, each)))
                yield replace(each, operands=tuple(operands))
            else:
                yield each

    def formals(self, variables: tuple[Variable, ...]) -> tuple[Variable, ...]:
        """Parameters or results, with vectors split into components."""
        found: list[Variable] = []
        for each in variables:
            if each.name in self.vectors and each.space == "reg":
                kept = tuple(word for word in each.attributes if word not in VECTORS)
                found += [replace(each, name=part, attributes=kept) for part in self._parts(each.name)]
            else:
                found.append(each)
        return tuple(found)

    def _parts(self, name: str) -> list[str]:
        return [f"{name}.{component}" for component in COMPONENTS[: self.vectors[name]]]

    def _operand(self, operand: Operand) -> Operand:
        """A vector register as its components in braces; a component under its first name."""
        if isinstance(operand, Vector):
            return replace(operand, elements=tuple(self._operand(each) for each in operand.elements))
        if isinstance(operand, Group):
            inner = [self._operand(each) for each in operand.elements]
            flat = [part for each in inner for part in (each.elements if isinstance(each, Vector) else (each,))]
            return Group(tuple(flat))
        if not isinstance(operand, Register):
            return operand
        if operand.name in self.vectors:
            return Vector(tuple(Register(part) for part in self._parts(operand.name)))
        whole, _, component = operand.name.rpartition(".")
        if whole in self.vectors and component in COLOURS:
            return Register(f"{whole}.{COLOURS[component]}")
        return operand

    def _sum(self, operand: Operand, instruction: Instruction) -> Generator[Statement, None, Operand]:
        """A register plus a constant, computed in the register's width before the instruction."""
        if not isinstance(operand, Symbol) or operand.name not in self.types:
            return operand
        declared = dtypes.ALL[self.types[operand.name]]
        bits = declared.register_bits
        result = self._temporary(bits)
        operands = (result, Register(operand.name), Integer(operand.offset))
        yield replace(instruction, opcode=f"add.s{bits}", operands=operands)
        base, *words = instruction.modifiers
        needed = next((dtypes.ALL[word].bits for word in words if word in dtypes.ALL), bits)
        if base not in SUMS_OF_ANY_WIDTH or needed == bits:
            return result
        sign, extended = "s" if declared.is_signed else "u", self._temporary(needed)
        yield replace(instruction, opcode=f"cvt.{sign}{needed}.{sign}{bits}", operands=(extended, result))
        return extended

    def _temporary(self, bits: int) -> Register:
        name = f"%lowered{len(self.temporaries)}"
        self.temporaries.append(RegisterDeclaration(f"b{bits}", (name,)))
        return Register(name)
