"""Mangled C++ names with their template arguments: a small part of the Itanium ABI, 5.1.

If a name contains anything that is not understood (expressions, function types, names local to functions), `parsed`
returns None for the whole name. https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

_BUILTIN = {
    "v": "void", "b": "bool", "c": "char", "a": "s8", "h": "u8", "s": "s16", "t": "u16", "i": "s32", "j": "u32",
    "l": "s64", "m": "u64", "x": "s64", "y": "u64", "f": "f32", "d": "f64",
}  # fmt: skip
_DIGITS = re.compile(r"\d+")
_SEQUENCE = re.compile(r"S([0-9A-Z]*)_")
_VALUE = re.compile(r"(n?)(\d+)E")
_QUALIFIERS = "PROKV"


@dataclass(frozen=True)
class Name:
    """A class or template, such as "CollectiveMma" of `cutlass::gemm::collective`, and its arguments."""

    scope: tuple[str, ...]
    args: tuple[Part, ...] = ()

    @property
    def last(self) -> str:
        return self.scope[-1] if self.scope else ""

    def walk(self) -> Iterator[Name]:
        """This name and all names in its arguments, outer ones first."""
        yield self
        for argument in flat(self.args):
            if isinstance(argument, Name):
                yield from argument.walk()


Part: TypeAlias = "Name | int | str | tuple[Part, ...]"
"""A template argument: a type (builtin types by name), a number, or a pack."""


def flat(parts: tuple[Part, ...]) -> Iterator[Part]:
    """Arguments with packs flattened."""
    for part in parts:
        if isinstance(part, tuple):
            yield from flat(part)
        else:
            yield part


def parsed(mangled: str) -> Name | None:
    """The name of a function without its parameters; None if it is not understood."""
    if not mangled.startswith("_Z"):
        return None
    reader = _Reader(mangled)
    try:
        found = reader.type()
    except (ValueError, IndexError, RecursionError):
        return None
    return found if isinstance(found, Name) else None


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 2
        self.known: list[Part] = []

    def _take(self, what: str) -> bool:
        if self.text.startswith(what, self.at):
            self.at += len(what)
            return True
        return False

    def _note(self, part: Part) -> Part:
        self.known.append(part)
        return part

    def type(self) -> Part:
        here = self.text[self.at]
        if here == "N":
            return self._nested()
        if here == "S" or here.isdigit():
            return self._unscoped()
        if here in _QUALIFIERS:
            self.at += 1
            return self._note(self.type())
        if here in _BUILTIN:
            self.at += 1
            return _BUILTIN[here]
        raise ValueError(here)

    def _substituted(self) -> Part:
        found = _SEQUENCE.match(self.text, self.at)
        if found is None:
            raise ValueError("std")
        self.at = found.end()
        return self.known[int(found[1], 36) + 1 if found[1] else 0]

    def _source(self) -> str:
        found = _DIGITS.match(self.text, self.at)
        if found is None:
            raise ValueError("a name")
        end = found.end() + int(found[0])
        name, self.at = self.text[found.end() : end], end
        return name

    def _unscoped(self) -> Part:
        is_known = self.text[self.at] == "S"
        part = self._substituted() if is_known else self._note(Name((self._source(),)))
        return self._with_arguments(part) if self.text[self.at : self.at + 1] == "I" else part

    def _nested(self) -> Part:
        self.at += 1
        while self.text[self.at] in "rVK":
            self.at += 1
        part: Part = Name(())
        while not self._take("E"):
            here = self.text[self.at]
            if here == "S":
                part = self._substituted()
            elif here == "I":
                part = self._with_arguments(part)
            elif isinstance(part, Name):
                part = self._note(Name((*part.scope, self._source())))
            else:
                raise ValueError(here)
        return part

    def _with_arguments(self, part: Part) -> Part:
        if not isinstance(part, Name):
            raise ValueError("arguments of no template")
        return self._note(Name(part.scope, self._arguments()))

    def _arguments(self) -> tuple[Part, ...]:
        self.at += 1  # I or J
        found: list[Part] = []
        while not self._take("E"):
            here = self.text[self.at]
            if here == "J":
                found.append(self._arguments())
            elif here == "L":
                self.at += 1
                self.type()
                value = _VALUE.match(self.text, self.at)
                if value is None:
                    raise ValueError("a value")
                self.at = value.end()
                found.append(-int(value[2]) if value[1] else int(value[2]))
            else:
                found.append(self.type())
        return tuple(found)
