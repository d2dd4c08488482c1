"""Name resolution: one table of names per block, looked up outwards. PTX ISA 4.4 and 5.4.

Registers, variables and labels of one block share a namespace; an inner block may redeclare their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import SourceLocation
from ..isa.instructions.video import SELECTOR
from ..isa.special_registers import SPECIAL_REGISTERS, is_special
from .declarations import VECTORS
from .nodes import TABLES, Directive, Function, Instruction, Label, RegisterDeclaration, Statement, Variable

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


HIDING = ("register", "variable", "label")
"""Names of these kinds hide special registers: a register `%tid` hides `%tid.x`."""
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
        self._hold((name,), meaning)

    def declare_all(self, names: Sequence[str], meaning: Meaning) -> None:
        """Add distinct names with the same meaning."""
        self.duplicates += [name for name in names if name in self.names]
        self._hold(names, meaning)

    def _hold(self, names: Sequence[str], meaning: Meaning) -> None:
        self.names.update(dict.fromkeys(names, meaning))
        if self._types is not None:
            _add_type(self._types, names, meaning)

    def find(self, name: str) -> Meaning | None:
        """The meaning of a name here; also of a component of a vector register (`v.x`) and of a special register."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        if "." in name:
            whole, part = self.find(name.rpartition(".")[0]), name.rpartition(".")[2]
            if whole is not None and "." in whole.type:
                return Meaning("register", whole.type.split(".")[1])
            if whole is not None and whole.kind == "register" and SELECTOR.fullmatch(part):
                return whole
            if whole is not None and whole.kind in HIDING:
                return None
        special = SPECIAL_REGISTERS.get(name)
        return None if special is None else Meaning("special", special.dtype.name)

    def types(self) -> Mapping[str, str]:
        """Register name -> declared type, for `binding.bind`."""
        if self._types is None:
            found = dict(self.parent.types()) if self.parent is not None else {}
            for name, meaning in self.names.items():
                _add_type(found, (name,), meaning)
            self._types = found
        return self._types

    def known(self) -> Iterator[str]:
        """All names visible here."""
        scope: Scope | None = self
        while scope is not None:
            yield from scope.names
            scope = scope.parent


def _add_type(types: dict[str, str], names: Sequence[str], meaning: Meaning) -> None:
    """Keep the type of registers declared in a block; a variable or label there hides one of the same name."""
    if meaning.kind == "register":
        types.update(dict.fromkeys(names, meaning.type))
    else:
        for name in names:
            types.pop(name, None)


def declare_item(scope: Scope, item: Variable | Function, bodies: set[str]) -> None:
    """Add a variable or function of a module. A prototype or an extern may be repeated.

    bodies: the functions so far that have bodies; this one is added.
    """
    named = scope.names.get(item.name)
    if isinstance(item, Variable):
        if item.linkage == "extern" and named is not None and named.kind == "variable":
            return
        scope.declare(item.name, Meaning("variable", item.type, item.space, item))
        return
    if (item.name in bodies and item.body is not None) or (named is not None and named.kind == "variable"):
        scope.duplicates.append(item.name)
    if item.body is not None:
        bodies.add(item.name)
    scope.names.setdefault(item.name, _FUNCTION)


def function_scope(function: Function, module: Scope) -> Scope:
    """The names of a function's head. Its body is the same scope: a local may not take a parameter's name."""
    scope = Scope(module)
    for variable in function.results + function.parameters:
        _declare_variable(scope, variable)
    return scope


def declare_labels(scope: Scope, statements: tuple[Statement, ...]) -> None:
    """Add the labels of a block, which may be used before they appear, but not those of tables, nor those with the name
    of a special register, which it names until then."""
    for at, statement in enumerate(statements):
        if isinstance(statement, Label) and not _is_table(statements[at + 1 : at + 2]):
            if not is_special(statement.name):
                scope.declare(statement.name, _LABEL)


def declare(scope: Scope, statements: tuple[Statement, ...], at: int) -> bool:
    """Add the names that a statement declares; False if there are too many of them.

    Registers, variables and the labels of tables are known from their declaration on: ptxas 13.0 reads a text once.
    """
    statement = statements[at]
    if isinstance(statement, RegisterDeclaration):
        vector = f"{statement.vector}." if statement.vector else ""
        meaning = Meaning("register", vector + statement.type)
        if statement.count is None:
            for name in statement.names:
                scope.declare(name, meaning)
        elif statement.count > MAX_REGISTERS:
            return False
        else:
            scope.declare_all(statement.every_name(), meaning)
    elif isinstance(statement, Variable):
        _declare_variable(scope, statement)
    elif isinstance(statement, Label) and (_is_table(statements[at + 1 : at + 2]) or is_special(statement.name)):
        scope.declare(statement.name, _LABEL)
    return True


def second_places(statements: tuple[Statement, ...]) -> dict[str, SourceLocation | None]:
    """Label -> the place of its second appearance in a block: that of the instruction after it."""
    seen: set[str] = set()
    waiting: list[str] = []
    places: dict[str, SourceLocation | None] = {}
    for item in statements:
        if isinstance(item, Label):
            if item.name in seen and item.name not in places:
                places[item.name] = None
                waiting.append(item.name)
            seen.add(item.name)
        elif isinstance(item, Instruction) and waiting:
            places.update(dict.fromkeys(waiting, item.location))
            waiting.clear()
    return places


def _is_table(following: tuple[Statement, ...]) -> bool:
    return bool(following) and isinstance(following[0], Directive) and following[0].name in TABLES


def _declare_variable(scope: Scope, variable: Variable) -> None:
    if variable.space == "reg":
        vector = next((f"{word[1:]}." for word in variable.attributes if word in VECTORS), "")
        scope.declare(variable.name, Meaning("register", vector + variable.type))
    else:
        scope.declare(variable.name, Meaning("variable", variable.type, variable.space, variable))
