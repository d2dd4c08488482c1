"""Name resolution: one table of names per block, looked up outwards. PTX ISA 4.4 and 5.4.

Registers, variables and labels of one block share a namespace; an inner block may redeclare their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..isa.instructions.video import SELECTOR
from ..isa.special_registers import SPECIAL_REGISTERS
from .declarations import VECTORS
from .nodes import Block, Function, Label, Module, RegisterDeclaration, Statement, Variable

MAX_REGISTERS = 1 << 17
"""More registers than this in one `name<N>` are treated as an error."""


@dataclass(frozen=True)
class Meaning:
    """The referent of a name.

    Attributes:
        kind: "register", "variable", "label", "function" or "special".
        type: type of a register: "f32", "pred", or "v4.f32" for a vector of four.
        space: state space of a variable.
        variable: the declaration of a variable.
    """

    kind: str
    type: str = ""
    space: str = ""
    variable: Variable | None = None


_LABEL, _FUNCTION = Meaning("label"), Meaning("function")


@dataclass
class Scope:
    """The names of one block. `duplicates` lists names that it declares twice."""

    parent: Scope | None = None
    names: dict[str, Meaning] = field(default_factory=dict)
    duplicates: list[str] = field(default_factory=list)
    _types: dict[str, str] | None = None

    def declare(self, name: str, meaning: Meaning) -> None:
        """Add a name."""
        if name in self.names:
            self.duplicates.append(name)
        self.names[name] = meaning

    def declare_all(self, names: Sequence[str], meaning: Meaning) -> None:
        """Add distinct names with the same meaning."""
        self.duplicates += [name for name in names if name in self.names]
        self.names.update(dict.fromkeys(names, meaning))

    def find(self, name: str) -> Meaning | None:
        """The meaning of a name here; also of a component of a vector register (`v.x`) and of a special register."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        special = SPECIAL_REGISTERS.get(name)
        if special is not None:
            return Meaning("special", special.dtype.name)
        if "." in name:
            whole = self.find(name.rpartition(".")[0])
            if whole is not None and "." in whole.type:
                return Meaning("register", whole.type.split(".")[1])
            if whole is not None and whole.kind == "register" and SELECTOR.fullmatch(name.rpartition(".")[2]):
                return whole
        return None

    def types(self) -> Mapping[str, str]:
        """Register name -> declared type, for `binding.bind`."""
        if self._types is None:
            found = dict(self.parent.types()) if self.parent is not None else {}
            for name, meaning in self.names.items():
                if meaning.kind == "register":
                    found[name] = meaning.type
                else:
                    found.pop(name, None)  # hidden by a variable or label of this block
            self._types = found
        return self._types

    def known(self) -> Iterator[str]:
        """All names visible here."""
        scope: Scope | None = self
        while scope is not None:
            yield from scope.names
            scope = scope.parent


def module_scope(module: Module) -> Scope:
    """The names of a module: its variables and functions. A prototype or an extern may be repeated."""
    scope = Scope()
    bodies: set[str] = set()
    for item in module.items:
        if isinstance(item, Variable):
            named = scope.names.get(item.name)
            if item.linkage == "extern" and named is not None and named.kind == "variable":
                continue
            scope.declare(item.name, Meaning("variable", item.type, item.space, item))
        elif isinstance(item, Function):
            named = scope.names.get(item.name)
            if (item.name in bodies and item.body is not None) or (named is not None and named.kind == "variable"):
                scope.duplicates.append(item.name)
            if item.body is not None:
                bodies.add(item.name)
            scope.names.setdefault(item.name, _FUNCTION)
    return scope


def function_scope(function: Function, module: Scope) -> Scope:
    """The names of a function's head. Its body is the same scope: a local may not take a parameter's name."""
    scope = Scope(module)
    for variable in function.results + function.parameters:
        _declare_variable(scope, variable)
    return scope


def fill(scope: Scope, statements: tuple[Statement, ...]) -> list[RegisterDeclaration]:
    """Declare the names of one block's statements, without those of inner blocks.

    Returns the declarations of unreasonably many registers, which are not declared.
    """
    refused = []
    for statement in statements:
        if isinstance(statement, RegisterDeclaration):
            vector = f"{statement.vector}." if statement.vector else ""
            meaning = Meaning("register", vector + statement.type)
            if statement.count is None:
                for name in statement.names:
                    scope.declare(name, meaning)
            elif statement.count > MAX_REGISTERS:
                refused.append(statement)
            else:
                stem = statement.names[0]
                scope.declare_all([f"{stem}{index}" for index in range(statement.count)], meaning)
        elif isinstance(statement, Variable):
            _declare_variable(scope, statement)
        elif isinstance(statement, Label):
            scope.declare(statement.name, _LABEL)
    return refused


def block_scope(block: Block, parent: Scope) -> tuple[Scope, list[RegisterDeclaration]]:
    """The scope of a nested block, and the declarations that `fill` refused."""
    scope = Scope(parent)
    return scope, fill(scope, block.statements)


def _declare_variable(scope: Scope, variable: Variable) -> None:
    if variable.space == "reg":
        vector = next((f"{word[1:]}." for word in variable.attributes if word in VECTORS), "")
        scope.declare(variable.name, Meaning("register", vector + variable.type))
    else:
        scope.declare(variable.name, Meaning("variable", variable.type, variable.space, variable))
