"""Initial values of variables: numbers, addresses and bytes of addresses. PTX ISA 5.4.4.

The verdicts are those of ptxas 13.0, which tests/asm/test_declarations.py compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..errors import PtxSyntaxError
from ..isa import dtypes
from ..isa.dtypes import Kind
from ..plural import counted
from .constants import negate, read_number
from .cursor import Cursor
from .declarations import VECTORS
from .lexer import END, NUMBER, WORD, tokenize
from .nodes import Float, Integer, Variable
from .scopes import Scope

Complaint = tuple[str, str | None]
"""What is wrong, and what was expected."""

_UNSET = ("f16", "f16x2")
_ADDRESS_TYPES = ("u8", "u32", "u64")
_MASKS = {0xFF << 8 * at: at for at in range(8)}


@dataclass(frozen=True)
class Place:
    """An address as an initial value: `name+8`, `generic(name)+8`; `0xFF00(name)` is its byte 1.

    Attributes:
        offset: bytes after the name, None if no sum is written.
        generic: whether `generic(…)` stands around the name.
        byte: which byte of the address is the value, None for all of it.
    """

    name: str
    offset: int | None = None
    generic: bool = False
    byte: int | None = None


def read_value(text: str) -> Integer | Float | Place | None:
    """One element of an initial value, or None if ptxas reads none there."""
    try:
        reader = _Reader(tokenize(text, ""))
        value = reader.value()
    except PtxSyntaxError:
        return None
    return value if reader.kinds[reader.at] == END else None


class _Reader(Cursor):
    def value(self) -> Integer | Float | Place:
        kinds, texts = self.kinds, self.texts
        if kinds[self.at] == NUMBER and texts[self.at + 1] == "(":
            mask = self.integer("a mask")
            if mask not in _MASKS:
                self.fail("the mask selects no byte", "0xFF, 0xFF00, …")
            self.at += 1
            place = replace(self._place(), byte=_MASKS[mask])
            self.expect(")", "after an address")
            return place
        if kinds[self.at] == WORD and texts[self.at] != "WARP_SZ":
            return self._place()
        sign = int(texts[self.at] == "-")
        constant = read_number(texts[self.at + sign]) if kinds[self.at + sign] == NUMBER else None
        if sign and isinstance(constant, Float) and constant.bits == 32:
            self.fail("`-` stands before the bits of a float", "0f and the bits with the sign set")
        if isinstance(constant, Float) and kinds[self.at + sign + 1] == END:
            self.at += sign + 1
            return negate(constant) if sign else constant
        return self.constant_expression("a constant")

    def _place(self) -> Place:
        name = self.word("a name")
        generic = name == "generic" and self.accept("(")
        if generic:
            name = self.word("a name")
            self.expect(")", "after a name")
        return Place(name, self.integer_constant("an offset").value if self.accept("+") else None, generic)


def lanes(variable: Variable) -> int:
    """Elements of a vector variable, 1 for a scalar."""
    return next((int(word[2:]) for word in variable.attributes if word in VECTORS), 1)


def wrong_value(variable: Variable, name: str, module: Scope) -> Iterator[Complaint]:
    """Complaints about the initial value of a variable; `name` in a sentence, `module`: the names declared before."""
    if variable.space not in ("global", "const") or variable.linkage == "extern":
        why = "extern" if variable.linkage == "extern" else variable.space
        yield f"{name} is .{why} and has an initial value", "a .global or .const variable of this module"
        return
    dims = (*variable.dims, lanes(variable)) if lanes(variable) > 1 else variable.dims
    text, open_braces = variable.initializer, 0
    counts = [0] * (len(dims) + 1)
    for part in re.findall(r"[{}]|[^{},]+", text):
        if part == "{":
            counts[open_braces] += 1
            open_braces += 1
            if open_braces > len(dims):
                yield f"the initial value of {name} has too many braces", counted(len(dims), "pair")
                return
            counts[open_braces] = 0
        elif part == "}":
            size, exact = dims[open_braces - 1], open_braces == len(dims) and lanes(variable) > 1
            count = counts[open_braces]
            if count > size >= 0 or (exact and count != size) or (size < 0 and not count):
                expected = f"{size}" if size >= 0 else "1 or more"
                yield f"the initial value of {name} has {counted(count, 'element')}", expected
                return
            open_braces -= 1
        elif part.strip():
            counts[open_braces] += 1
            if open_braces != len(dims):
                yield f"the initial value of {name} lacks braces", counted(len(dims), "pair")
                return
            wrong = _wrong_element(part.strip(), variable, module)
            if wrong is not None:
                yield f"`{part.strip()}` in the initial value of {name} does not fit .{variable.type}", wrong
                return


def _wrong_element(text: str, variable: Variable, module: Scope) -> str | None:
    """The expected element if one of an initial value does not fit, or None."""
    dtype, value = dtypes.ALL[variable.type], read_value(text)
    if variable.type in _UNSET:
        return "no initial value: ptxas has none of this type"
    if isinstance(value, Integer):
        return "a floating-point number" if dtype.is_float else None
    if isinstance(value, Float):
        return None if dtype.is_float or dtype.kind is Kind.BITS else "an integer"
    if value is None:
        return "a constant, name+4, generic(name)+4 or 0xFF00(name)"
    meaning = module.names.get(value.name)
    if meaning is None or (meaning.kind == "variable" and meaning.space not in ("global", "const")):
        return "a .global or .const variable, or a function"
    if meaning.kind == "function" and (value.generic or value.offset is not None):
        return "the name of a function alone"
    if variable.type not in _ADDRESS_TYPES or (variable.type == "u8" and value.byte is None):
        return "a variable of type .u64 for an address, or .u8 for a byte of one: 0xFF(name)"
    return None
