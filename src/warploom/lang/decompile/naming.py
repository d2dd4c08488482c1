"""Python names for the names of a kernel's PTX: blocks are flattened, and each register, variable and label gets a
unique name.

    %r5 of `.reg .b32 %r<16>`     r[5]          tmp of `.reg .b32 tmp`     tmp
    $L__BB0_2                     L__BB0_2      smem                       smem
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from ...asm import nodes
from ...isa import dtypes
from .structure import Item

TAKEN = {"ptx", "ptx_kernel", "reg", "Param", "pred", *dtypes.ALL, *keyword.kwlist, *keyword.softkwlist}
"""Names that the written file itself uses."""


@dataclass
class Registers:
    """One declaration: Python name, type; used: the register numbers that the kernel uses, empty for a single
    register."""

    name: str
    type: str
    single: bool
    used: set[int] = field(default_factory=set)


@dataclass
class _Scope:
    parent: _Scope | None
    registers: dict[str, Registers] = field(default_factory=dict)
    numbered: dict[str, tuple[Registers, int]] = field(default_factory=dict)  # stem -> registers and their count
    others: dict[str, str] = field(default_factory=dict)


@dataclass
class Named:
    """A kernel under Python names.

    Attributes:
        items: instructions, labels and directives in order, with Python names.
        registers: declarations in order.
        types: Python name of a register -> its declared type.
        variables: Python name -> declaration, for variables that are used.
        parameters: Python names, in order.
        functions: names of functions that are called.
    """

    items: list[Item] = field(default_factory=list)
    registers: list[Registers] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)
    variables: dict[str, nodes.Variable] = field(default_factory=dict)
    parameters: list[str] = field(default_factory=list)
    functions: set[str] = field(default_factory=set)


def named(module: nodes.Module, entry: nodes.Function) -> Named:
    """A kernel of a module under Python names."""
    return _Naming(module, entry).run()


class _Naming:
    def __init__(self, module: nodes.Module, entry: nodes.Function) -> None:
        self.module, self.entry = module, entry
        self.found = Named()
        self.taken = set(TAKEN)
        self.declared: dict[str, nodes.Variable] = {}
        self.functions = {each.name for each in module.functions}

    def run(self) -> Named:
        self.taken.add(_python(self.entry.name))
        outside = _Scope(None)
        for item in self.module.items:
            if isinstance(item, nodes.Variable) and item.name not in outside.others:
                self._variable(outside, item)
        scope = _Scope(outside)
        for parameter in self.entry.parameters:
            name = scope.others[parameter.name] = self._fresh(parameter.name)
            self.found.parameters.append(name)
        self._block(self.entry.body or (), scope)
        return self.found

    def _fresh(self, name: str) -> str:
        stem = _python(name)
        made, number = stem, 2
        while made in self.taken:
            made, number = f"{stem}_{number}", number + 1
        self.taken.add(made)
        return made

    def _variable(self, scope: _Scope, node: nodes.Variable) -> None:
        name = scope.others[node.name] = self._fresh(node.name)
        self.declared[name] = node

    def _block(self, statements: tuple[nodes.Statement, ...], scope: _Scope) -> None:
        for each in statements:
            if isinstance(each, nodes.RegisterDeclaration):
                self._registers(scope, each)
            elif isinstance(each, nodes.Variable):
                self._variable(scope, each)
            elif isinstance(each, nodes.Label):
                scope.others[each.name] = self._fresh(each.name)
        for each in statements:
            if isinstance(each, nodes.Block):
                self._block(each.statements, _Scope(scope))
            elif isinstance(each, nodes.Label):
                self.found.items.append(nodes.Label(scope.others[each.name]))
            elif isinstance(each, nodes.Instruction):
                self.found.items.append(self._instruction(each, scope))
            elif isinstance(each, nodes.Directive):
                self.found.items.append(self._directive(each, scope))

    def _registers(self, scope: _Scope, node: nodes.RegisterDeclaration) -> None:
        for name in node.names:
            made = Registers(self._fresh(name), node.type, node.count is None)
            self.found.registers.append(made)
            if node.count is None:
                scope.registers[name] = made
            else:
                scope.numbered[name] = made, node.count

    def _directive(self, node: nodes.Directive, scope: _Scope) -> nodes.Directive:
        if node.name != "branchtargets":
            return node
        names = [self._name(name, scope) for name in node.text.replace(",", " ").split()]
        return nodes.Directive(node.name, ", ".join(names))

    # -- uses ----------------------------------------------------------------------------------------------------

    def _instruction(self, node: nodes.Instruction, scope: _Scope) -> nodes.Instruction:
        guard = node.guard and nodes.Guard(self._name(node.guard.register, scope), node.guard.negated)
        operands = tuple(self._operand(each, scope) for each in node.operands)
        return replace(node, guard=guard, operands=operands)

    def _operand(self, node: nodes.Operand, scope: _Scope) -> nodes.Operand:
        if isinstance(node, (nodes.Register, nodes.Symbol)):
            return replace(node, name=self._name(node.name, scope))
        if isinstance(node, nodes.Address):
            base = (
                node.base
                if isinstance(node.base, nodes.Integer)
                else replace(node.base, name=self._name(node.base.name, scope))
            )
            return replace(node, base=base)
        if isinstance(node, nodes.TensorAddress):
            coordinates = self._all(node.coordinates, scope)
            address = self._operand(node.base, scope)
            assert isinstance(address, nodes.Address)
            return nodes.TensorAddress(address, coordinates)
        if isinstance(node, (nodes.Vector, nodes.Group)):
            return replace(node, elements=self._all(node.elements, scope))
        if isinstance(node, nodes.Pair):
            return nodes.Pair(self._operand(node.first, scope), self._operand(node.second, scope))
        return node

    def _all(self, operands: Iterable[nodes.Operand], scope: _Scope) -> tuple[nodes.Operand, ...]:
        return tuple(self._operand(each, scope) for each in operands)

    def _name(self, name: str, scope: _Scope | None) -> str:
        """The Python name of a name; special registers and functions keep theirs."""
        known = name
        numbered = list(_splits(name))
        while scope is not None:
            if known in scope.others:
                found = scope.others[known]
                if found in self.declared:
                    self._use(found)
                return found
            if known in scope.registers:
                made = scope.registers[known]
                self.found.types[made.name] = made.type
                made.used.add(0)
                return made.name
            for stem, number in numbered:
                if stem in scope.numbered and number < scope.numbered[stem][1]:
                    made = scope.numbered[stem][0]
                    made.used.add(number)
                    self.found.types[f"{made.name}[{number}]"] = made.type
                    return f"{made.name}[{number}]"
            scope = scope.parent
        if name in self.functions:
            self.found.functions.add(name)
        return name

    def _use(self, name: str) -> None:
        """Mark a variable as used, and the variables that its initialiser names."""
        if name in self.found.variables:
            return
        node = self.declared[name]
        for word in re.findall(r"[A-Za-z_$%][\w$]*", node.initializer):
            other = next((each for each, declared in self.declared.items() if declared.name == word), None)
            if other is not None and other != name:
                self._use(other)
        self.found.variables[name] = node


def _splits(name: str) -> Iterator[tuple[str, int]]:
    """The ways to split a name into a stem and a number: `%r12` is %r and 12, or %r1 and 2."""
    for cut in range(len(name) - 1, 0, -1):
        digits = name[cut:]
        if not digits.isdigit():
            return
        if digits == str(int(digits)):
            yield name[:cut], int(digits)


def _python(name: str) -> str:
    made = re.sub(r"\W", "_", name.lstrip("%$"))
    return made if made and not made[0].isdigit() else f"_{made}"
