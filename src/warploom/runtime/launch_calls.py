"""A kernel with the functions that it calls in its place, so that what is read from a text includes them.

It is for guesses: the result has the instructions in an order that shows which value goes where, not one that runs.
Names of blocks and functions become unique, and a .param variable that passes values becomes registers, one for each
offset: `mov` instead of `st.param` and `ld.param`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..asm import nodes
from ..asm.scopes import MAX_REGISTERS
from ..isa import dtypes

_DEEPEST, _MOST = 8, 1 << 16
"""Calls inside calls, and instructions, from which on a call is left as it is."""


def inlined(module: nodes.Module, function: nodes.Function) -> nodes.Function:
    """A kernel without blocks and without calls of functions whose body the module has."""
    bodies = {item.name: item for item in module.items if isinstance(item, nodes.Function) and item.body is not None}
    return replace(function, body=tuple(_Inliner(bodies).statements(function.body or (), {}, 0)))


class _Inliner:
    """Renames as it goes. `passed`: the .param variables that pass values, by their new names."""

    def __init__(self, bodies: Mapping[str, nodes.Function]) -> None:
        self.bodies = bodies
        self.passed: set[str] = set()
        self.blocks = self.made = 0

    def statements(
        self, statements: tuple[nodes.Statement, ...], outer: Mapping[str, str], depth: int, unique: bool = False
    ) -> Iterator[nodes.Statement]:
        names = dict(outer)
        self.blocks += 1
        for each in statements:
            if isinstance(each, (nodes.Variable, nodes.Label)):
                own: list[str] = [each.name]
            elif isinstance(each, nodes.RegisterDeclaration) and (each.count or 0) <= MAX_REGISTERS:
                own = each.every_name()
            else:
                own = []
            static = isinstance(each, nodes.Variable) and each.space != "param"  # one for all calls
            names.update({name: f"{name}~{self.blocks}" if unique and not static else name for name in own})
            if isinstance(each, nodes.Variable) and not static:
                self.passed.add(names[each.name])
        for each in statements:
            if isinstance(each, nodes.Block):
                yield from self.statements(each.statements, names, depth, unique=True)
            elif isinstance(each, nodes.Instruction):
                self.made += 1
                yield from self._instruction(each, names, depth)
            elif isinstance(each, (nodes.Variable, nodes.Label)):
                yield replace(each, name=names[each.name])

    def _instruction(self, one: nodes.Instruction, names: Mapping[str, str], depth: int) -> Iterator[nodes.Statement]:
        guard = one.guard and replace(one.guard, register=names.get(one.guard.register, one.guard.register))
        made = replace(one, operands=tuple(_renamed(operand, names) for operand in one.operands), guard=guard)
        word = one.opcode.split(".")[0]
        if word == "call" and depth < _DEEPEST and self.made < _MOST:
            yield from self._call(made, depth)
        elif word in ("ld", "st") and ".param" in one.opcode and len(one.operands) == 2:
            yield from self._moves(made)
        else:
            yield made

    def _call(self, call: nodes.Instruction, depth: int) -> Iterator[nodes.Statement]:
        groups = [operand.elements for operand in call.operands if isinstance(operand, nodes.Group)]
        called = next((one for one in call.operands if isinstance(one, (nodes.Symbol, nodes.Register))), None)
        callee = self.bodies.get(called.name) if called is not None else None
        results = groups.pop(0) if groups and isinstance(call.operands[0], nodes.Group) else ()
        arguments = groups[0] if groups else ()
        if callee is None or callee.body is None:
            yield call
            return
        names: dict[str, str] = {}
        for formal, actual in zip((*callee.parameters, *callee.results), (*arguments, *results), strict=False):
            if isinstance(actual, (nodes.Register, nodes.Symbol)):
                names[formal.name] = actual.name
            else:  # a constant
                self.blocks += 1
                names[formal.name] = f"{formal.name}~{self.blocks}"
                yield nodes.Instruction(f"mov.{formal.type}", (nodes.Register(names[formal.name]), actual))
        inside = self.statements(callee.body, names, depth + 1, unique=True)
        yield from (one for one in inside if not isinstance(one, nodes.Instruction) or one.opcode != "ret")

    def _moves(self, one: nodes.Instruction) -> Iterator[nodes.Instruction]:
        """What a load or store of a passed .param variable moves, one `mov` for each element."""
        stores = one.opcode.startswith("st")
        place, value = one.operands if stores else reversed(one.operands)
        name = getattr(place.base, "name", "") if isinstance(place, nodes.Address) else ""
        kind = one.opcode.rpartition(".")[2]
        if not isinstance(place, nodes.Address) or name not in self.passed or kind not in dtypes.ALL:
            yield one
            return
        for number, element in enumerate(value.elements if isinstance(value, nodes.Vector) else (value,)):
            held = nodes.Register(f"{name}+{place.offset + number * dtypes.ALL[kind].bytes}")
            yield replace(one, opcode=f"mov.{kind}", operands=(held, element) if stores else (element, held))


def _renamed(operand: Any, names: Mapping[str, str]) -> Any:
    if isinstance(operand, (nodes.Register, nodes.Symbol)):
        return replace(operand, name=names[operand.name]) if operand.name in names else operand
    if isinstance(operand, (nodes.Vector, nodes.Group)):
        return replace(operand, elements=tuple(_renamed(each, names) for each in operand.elements))
    if isinstance(operand, nodes.Address):
        return replace(operand, base=_renamed(operand.base, names))
    if isinstance(operand, nodes.TensorAddress):
        coordinates = tuple(_renamed(each, names) for each in operand.coordinates)
        return replace(operand, base=_renamed(operand.base, names), coordinates=coordinates)
    if isinstance(operand, nodes.Pair):
        return nodes.Pair(_renamed(operand.first, names), _renamed(operand.second, names))
    return operand
