"""Equivalence of two texts of a kernel: the same instructions in the same order, under any names.

`normal_form` numbers registers, variables and parameters in order of appearance, replaces labels by the instruction
after them, and omits everything without effect: declarations, comments, `.loc`, braces, the hint `.uni`.
"""

from __future__ import annotations

import struct
from collections import ChainMap
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..isa import dtypes
from ..isa.special_registers import SPECIAL_REGISTERS
from . import nodes
from .lowering import lowered

Line: TypeAlias = tuple[Any, ...]


def normal_form(module: nodes.Module, entry: str) -> list[Line]:
    """The normal form of a kernel of a module: one line per instruction, preceded by those of its head."""
    module = lowered(module)
    function = next(each for each in module.entries if each.name == entry)
    return _Normal(module, function).lines()


@dataclass(eq=False)
class _Thing:
    """The referent of a name: `says` is the content of its declaration except the name."""

    kind: str
    says: Any = ()


_Scope = ChainMap[str, _Thing]
"""The names of a block, followed by those of the enclosing blocks."""


class _Normal:
    def __init__(self, module: nodes.Module, function: nodes.Function) -> None:
        self.module, self.function = module, function
        self.flat: list[tuple[nodes.Instruction | nodes.Directive, _Scope]] = []
        self.places: dict[int, int] = {}  # a label -> the instruction after it
        self.numbers: dict[int, tuple[Any, ...]] = {}  # a thing -> its representation
        self.counts: dict[str, int] = {}

    def lines(self) -> list[Line]:
        """The head, then the body."""
        outside = _Scope()
        for item in self.module.items:
            if isinstance(item, nodes.Variable):
                outside.setdefault(item.name, _variable(item))
            elif isinstance(item, nodes.Function):
                outside.setdefault(item.name, _Thing("function", item.name))
        scope = outside.new_child()
        parameters = []
        for number, parameter in enumerate(self.function.parameters):
            thing = _Thing("parameter", number)
            scope[parameter.name] = thing
            parameters.append((parameter.type, parameter.dims, parameter.align))
        self._flatten(self.function.body or (), scope)
        directives = sorted((each.name, each.text.replace(" ", "")) for each in self.function.directives)
        head: list[Line] = [("target", self.module.arch), ("parameters", *parameters), ("directives", *directives)]
        return [*head, *filter(None, (self._line(item, scope) for item, scope in self.flat))]

    def _flatten(self, statements: tuple[nodes.Statement, ...], scope: _Scope) -> None:
        for each in statements:
            if isinstance(each, nodes.RegisterDeclaration):
                for name in each.every_name():
                    scope[name] = _Thing("register", dtypes.ALL[each.type].register_bits)
            elif isinstance(each, nodes.Variable):
                scope[each.name] = _variable(each)
            elif isinstance(each, nodes.Label):
                scope[each.name] = _Thing("label")
        for each in statements:
            if isinstance(each, nodes.Block):
                self._flatten(each.statements, scope.new_child())
            elif isinstance(each, nodes.Label):
                self.places[id(scope[each.name])] = len(self.flat)
            elif isinstance(each, nodes.Instruction) or (isinstance(each, nodes.Directive) and each.name != "file"):
                self.flat.append((each, scope))

    # -- one line ------------------------------------------------------------------------------------------------

    def _line(self, item: nodes.Instruction | nodes.Directive, scope: _Scope) -> Line:
        if isinstance(item, nodes.Directive):
            words = item.text.replace(",", " ").split() if item.name == "branchtargets" else [item.text]
            return (f".{item.name}", *(self._name(word, scope) for word in words))
        opcode = "bra" if item.opcode == "bra.uni" else item.opcode
        guard: Line = ()
        if item.guard is not None:
            guard = (item.guard.negated, self._name(item.guard.register, scope))
        return (opcode, guard, *(self._operand(each, scope) for each in item.operands))

    def _operand(self, operand: nodes.Operand, scope: _Scope) -> Any:
        if isinstance(operand, nodes.Register):
            return (self._name(operand.name, scope), operand.negated, operand.minus)
        if isinstance(operand, nodes.Symbol):
            return (self._name(operand.name, scope), False, False, operand.offset)
        if isinstance(operand, nodes.Integer):
            return operand.value
        if isinstance(operand, nodes.Float):
            return _bits(operand)
        if isinstance(operand, nodes.Address):
            base = operand.base
            shown = base.value if isinstance(base, nodes.Integer) else self._name(base.name, scope)
            return ("[]", shown, operand.offset, operand.unified)
        if isinstance(operand, nodes.TensorAddress):
            inside = [self._operand(each, scope) for each in operand.coordinates]
            sampler = operand.sampler and self._name(operand.sampler.name, scope)
            return ("[{}]", self._operand(operand.base, scope), sampler, *inside)
        if isinstance(operand, (nodes.Vector, nodes.Group)):
            inside = [self._operand(each, scope) for each in operand.elements]
            return ("{}" if isinstance(operand, nodes.Vector) else "()", *inside)
        if isinstance(operand, nodes.Pair):
            return ("|", self._operand(operand.first, scope), self._operand(operand.second, scope))
        return repr(operand)

    def _name(self, name: str, scope: _Scope) -> Any:
        """The representation of a name: its kind and number; for a label, its target."""
        thing = scope.get(name)
        if thing is None:
            return name if name in SPECIAL_REGISTERS else ("?", name)
        if thing.kind == "label":
            return ("to", self.places[id(thing)])
        if thing.kind in ("parameter", "function"):
            return (thing.kind, thing.says)
        if id(thing) not in self.numbers:
            number = self.counts[thing.kind] = self.counts.get(thing.kind, 0) + 1
            self.numbers[id(thing)] = (thing.kind, number, thing.says)
        return self.numbers[id(thing)]


def _variable(node: nodes.Variable) -> _Thing:
    align = node.align or (dtypes.ALL[node.type].bytes if node.type in dtypes.ALL else 1)
    linkage = node.linkage == "extern"
    return _Thing("variable", (node.space, node.type, node.dims, align, linkage, "".join(node.initializer.split())))


def _bits(constant: nodes.Float) -> Any:
    """A number by its value, so that 1.0 and 0f3F800000 are equal; NaN by its bits."""
    if constant.bits == 64:
        return ("number", constant.raw)
    value = struct.unpack("<f", struct.pack("<I", constant.raw))[0]
    return ("number", struct.unpack("<Q", struct.pack("<d", value))[0]) if value == value else ("nan", constant.raw)
