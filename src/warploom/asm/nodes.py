"""PTX as a tree: the parser and the tracer build it, the printer prints it, the emulator runs it.

Nodes are frozen dataclasses, compared by value. Source locations do not take part in the comparison, so "parse, print,
parse" can be checked for identity. PTX ISA 4 (syntax) and 11 (directives).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from ..errors import SourceLocation

CALL_TABLES = ("callprototype", "calltargets")
JUMP_TABLE = "branchtargets"
TABLES = (*CALL_TABLES, JUMP_TABLE)
"""The directives that make the label before them the name of a table."""

# -- operands ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Register:
    """A register or special register by name, percent sign included: `%r1`, `%tid.x`, or a bare `r1`.

    `negated` is the `!` before a predicate operand or, with `minus`, the `-` before an operand of vmad. The
    declarations of the function, not the parser, decide whether a bare name is a register, a variable or a label.
    """

    name: str
    negated: bool = False
    minus: bool = False


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer constant. `text` keeps its spelling (0x10, 16U) for printing; different spellings compare equal."""

    value: int
    text: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Float:
    """A floating-point constant: the value's bits at `bits` width (0fXXXXXXXX has 32; 0dX…X and decimals have 64)."""

    raw: int
    bits: int
    text: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable, function or label, plus a constant: `smem`, `smem+16`."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Address:
    """A memory operand in brackets: `[%rd1+16]`, `[smem]`, `[0]`; `unified`: with the suffix `.unified`."""

    base: Register | Symbol | Integer
    offset: int = 0
    unified: bool = False


@dataclass(frozen=True, slots=True)
class TensorAddress:
    """A memory operand with coordinates: `[map, {c0, c1}]`, `[%rd1, {%r1, %r2}]`, `[texture, sampler, {%f1}]`."""

    base: Address
    coordinates: tuple[Operand, ...]
    sampler: Register | None = None


@dataclass(frozen=True, slots=True)
class Vector:
    """Operands in braces: `{%f1, %f2}`."""

    elements: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two destinations joined by a bar: `%p1|%p2`, `%r1|%p2`."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Group:
    """Operands in parentheses: the arguments and results of `call`."""

    elements: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Sink:
    """The `_` that discards a result."""


@dataclass(frozen=True, slots=True)
class Raw:
    """Operand text that the parser keeps unread, such as an operand of an unknown opcode."""

    text: str


Operand: TypeAlias = Register | Integer | Float | Symbol | Address | TensorAddress | Vector | Pair | Group | Sink | Raw

# -- statements --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Guard:
    """The predicate before an instruction: `@%p1`, `@!%p1`."""

    register: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        opcode: the whole dotted opcode with its modifiers, `mad.lo.s32`.
        operands: in the order of the text.
        guard: the predicate that enables it, if any.
        location: its source: a Python line for our own PTX, a `.loc` or PTX line for foreign PTX.
        ptx_line: line of the PTX that it was parsed from, 0 if it was not parsed.
    """

    opcode: str
    operands: tuple[Operand, ...] = ()
    guard: Guard | None = None
    location: SourceLocation | None = field(default=None, compare=False)
    ptx_line: int = field(default=0, compare=False)

    @property
    def modifiers(self) -> tuple[str, ...]:
        """The opcode split at its dots, base name first: ("mad", "lo", "s32")."""
        return tuple(self.opcode.split("."))


@dataclass(frozen=True, slots=True)
class Label:
    """A jump target, `name:`."""

    name: str


@dataclass(frozen=True, slots=True)
class RegisterDeclaration:
    """`.reg .f32 %f<16>;` (count 16) or `.reg .pred %p1, %p2;` (count None, two names)."""

    type: str
    names: tuple[str, ...]
    count: int | None = None
    vector: str | None = None

    def every_name(self) -> list[str]:
        """The names of all registers that it declares."""
        if self.count is None:
            return list(self.names)
        return [f"{self.names[0]}{number}" for number in range(self.count)]


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable, or a parameter of a function.

    Attributes:
        space: "param", "shared", "global", "local", "const".
        type: PTX type without the dot; "b8" for byte arrays.
        dims: array dimensions, () for a scalar; -1 for an empty bracket pair.
        align: bytes, or None if the PTX specifies none.
        linkage: "", "extern", "visible", "weak", "common".
        initializer: verbatim text.
        attributes: other directives between the space and the name (".ptr", ".global", ".v4"), in order.
        location: its line in the PTX, if it was parsed.
    """

    space: str
    type: str
    name: str
    dims: tuple[int, ...] = ()
    align: int | None = None
    linkage: str = ""
    initializer: str = ""
    attributes: tuple[str, ...] = ()
    location: SourceLocation | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class LocDirective:
    """`.loc file line column`; whatever follows is kept as text."""

    file: int
    line: int
    column: int
    rest: str = ""


@dataclass(frozen=True, slots=True)
class Directive:
    """Any other directive, by name and text: `.pragma "nounroll"`, `.branchtargets …`, `.section {…}`, `.file …`."""

    name: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment of our own on its own line; the parser drops comments, so comparisons ignore it."""

    text: str


@dataclass(frozen=True, slots=True)
class Block:
    """Statements in braces inside a body; declarations in it are local to it."""

    statements: tuple[Statement, ...]


Statement: TypeAlias = Instruction | Label | RegisterDeclaration | Variable | LocDirective | Directive | Comment | Block

# -- modules -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel (`.entry`) or function (`.func`).

    Attributes:
        kind: "entry" or "func".
        name: without quotes.
        parameters, results: in order; results only for `.func`.
        linkage: "", "visible", "extern", "weak".
        directives: performance directives between head and body: `.maxntid 128, 1, 1`, `.reqnctapercluster 2`.
        body: None for a prototype.
    """

    kind: str
    name: str
    parameters: tuple[Variable, ...] = ()
    results: tuple[Variable, ...] = ()
    linkage: str = ""
    directives: tuple[Directive, ...] = ()
    body: tuple[Statement, ...] | None = None

    def directive(self, name: str) -> tuple[int, ...] | None:
        """The integers of a performance directive (`maxntid`), or None if it is absent."""
        for item in self.directives:
            if item.name == name:
                return tuple(int(part, 0) for part in item.text.replace(",", " ").split())
        return None


@dataclass(frozen=True, slots=True)
class Module:
    """A PTX module: version, target, and all items in order.

    Attributes:
        version: (8, 7) for `.version 8.7`.
        target: ("sm_90a",) or ("sm_80", "debug").
        address_size: 64, or None if the text does not specify it.
        items: directives, variables and functions in the order of the text.
        files: file number -> path, from the `.file` directives in `items`.
    """

    version: tuple[int, int]
    target: tuple[str, ...]
    address_size: int | None = 64
    items: tuple[Directive | Variable | Function | Comment, ...] = ()

    @property
    def functions(self) -> tuple[Function, ...]:
        return tuple(item for item in self.items if isinstance(item, Function))

    @property
    def entries(self) -> tuple[Function, ...]:
        """The kernels of the module."""
        return tuple(item for item in self.functions if item.kind == "entry" and item.body is not None)

    @property
    def arch(self) -> str:
        return self.target[0]

    @property
    def files(self) -> dict[int, str]:
        found = {}
        for item in self.items:
            if isinstance(item, Directive) and item.name == "file":
                number, _, rest = item.text.partition(" ")
                found[int(number, 0)] = rest.strip().split('"')[1]
        return found

    def to_text(self, *, line_info: bool = False) -> str:
        """The PTX of this module. `line_info`: see `printer.to_text`."""
        from .printer import to_text

        return to_text(self, line_info=line_info)


def walk(statements: tuple[Statement, ...]) -> list[Statement]:
    """All statements in order, including those in nested blocks (the block itself comes first)."""
    found: list[Statement] = []
    for statement in statements:
        found.append(statement)
        if isinstance(statement, Block):
            found += walk(statement.statements)
    return found


def instructions_of(function: Function) -> list[Instruction]:
    """The instructions of a function in order, including those in nested blocks."""
    return [statement for statement in walk(function.body or ()) if isinstance(statement, Instruction)]


def names_in(operand: object) -> Iterator[str]:
    """The names of the registers, variables and functions in an operand."""
    if isinstance(operand, (Register, Symbol)):
        yield operand.name
    parts: tuple[object, ...] = ()
    if isinstance(operand, (Vector, Group)):
        parts = operand.elements
    elif isinstance(operand, (Address, TensorAddress)):
        parts = (operand.base, *getattr(operand, "coordinates", ()), getattr(operand, "sampler", None))
    for part in parts:
        yield from names_in(part)
