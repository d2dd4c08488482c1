"""The names of a kernel: registers, variables and labels, by the block that declares them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ...asm.nodes import Function, Register, Variable, names_in
from ...isa import dtypes
from .registers import Row


@dataclass(frozen=True)
class DeclaredRegister:
    """A register of the flattened function: its declared type and its row."""

    type: str
    row: Row


@dataclass(eq=False)
class DeclaredVariable:
    """A variable of the flattened function or the module; the layout gives it an offset later."""

    node: Variable
    space: str
    offset: int = -1

    @property
    def size(self) -> int:
        element = dtypes.ALL[self.node.type].bytes if self.node.type in dtypes.ALL else 8
        for attribute in self.node.attributes:
            if attribute.lstrip(".") in ("v2", "v4"):
                element *= int(attribute[-1])
        for length in self.node.dims:
            element *= max(length, 0)
        return element

    @property
    def alignment(self) -> int:
        natural = dtypes.ALL[self.node.type].bytes if self.node.type in dtypes.ALL else 8
        return max(self.node.align or natural, natural)


@dataclass(frozen=True)
class JumpTarget:
    """A label of the flattened function, as the index of the operation that follows it."""

    name: str
    scope: int


Name: TypeAlias = "DeclaredRegister | DeclaredVariable | JumpTarget | Function"


@dataclass
class Scope:
    """The names declared in one block."""

    names: dict[str, Name] = field(default_factory=dict)
    parent: Scope | None = None
    number: int = 0
    branch_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def find(self, name: str) -> Name | None:
        scope: Scope | None = self
        while scope is not None:
            found = scope.names.get(name)
            if found is not None:
                return found
            scope = scope.parent
        return None

    def find_targets(self, name: str) -> tuple[str, ...] | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.branch_targets:
                return scope.branch_targets[name]
            scope = scope.parent
        return None


class DeclaredTypes(Mapping[str, str]):
    """Register name -> declared type for everything visible in a scope. Names are looked up, not copied: large kernels
    have tens of thousands of registers and hundreds of blocks of inline assembly."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def __getitem__(self, name: str) -> str:
        found = self.get(name)
        if found is None:
            raise KeyError(name)
        return found

    def get(self, name: str, default: Any = None) -> Any:
        scope: Scope | None = self.scope
        while scope is not None:
            found = scope.names.get(name)
            if isinstance(found, DeclaredRegister):
                return found.type
            scope = scope.parent
        return default

    def __contains__(self, name: object) -> bool:
        return self.get(str(name)) is not None

    def __iter__(self) -> Iterator[str]:
        seen: set[str] = set()
        scope: Scope | None = self.scope
        while scope is not None:
            mine = {name for name, found in scope.names.items() if isinstance(found, DeclaredRegister)} - seen
            yield from mine
            seen |= mine
            scope = scope.parent

    def __len__(self) -> int:
        return sum(1 for _ in self)


def registers_named(scope: Scope, operand: object) -> list[tuple[Row, str]]:
    """The declared registers that an operand names, with their names."""
    if type(operand) is Register:  # the usual case
        register = scope.find(operand.name)
        return [(register.row, operand.name)] if isinstance(register, DeclaredRegister) else []
    found = ((scope.find(name), name) for name in names_in(operand))
    return [(one.row, name) for one, name in found if isinstance(one, DeclaredRegister)]


def rows_named(scope: Scope, operand: object) -> frozenset[Row]:
    """Like `registers_named`, without the names."""
    return frozenset(row for row, _ in registers_named(scope, operand))
