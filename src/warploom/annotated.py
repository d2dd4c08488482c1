"""Checks of values against annotations, and annotations in words, for messages."""

from __future__ import annotations

from operator import index
from types import UnionType
from typing import Any, Union, get_args, get_origin

from .errors import ArgumentTypeError

_WORDS: dict[Any, str] = {
    int: "a whole number", float: "a number", bool: "True or False", str: "a word", type(None): "None",
}  # fmt: skip
_LONGEST = 80


def allows(annotation: Any, value: object) -> bool:
    """True if the value has an annotated type. Generics count as their classes; a bool is no int, an int is a float."""
    for one in _members(annotation):
        if one is Any or (type(value) is one if one in (int, bool) else isinstance(value, one)):
            return True
        if one is float and type(value) is int:
            return True
    return False


def in_words(annotation: Any) -> str:
    """The annotation in words: "a whole number or None"."""
    named = (_WORDS.get(one) or f"a {one.__module__}.{one.__qualname__}" for one in _members(annotation))
    return " or ".join(named)


def shown(value: object) -> str:
    """The value as a message shows it: its repr, or its class if the repr is long."""
    words = repr(value)
    return words if len(words) <= _LONGEST else f"{type(value).__module__}.{type(value).__qualname__}"


def integers(values: Any, what: str) -> tuple[int, ...]:
    """Integers as ints. Raises ArgumentTypeError, naming `what`, for anything else."""
    try:
        return tuple(map(index, values))
    except TypeError:
        raise ArgumentTypeError(f"{what} is not a tuple of integers", expected="(x, y, …)", got=shown(values)) from None


def _members(annotation: Any) -> tuple[Any, ...]:
    """All members of a union, with generics as their classes."""
    if isinstance(annotation, UnionType) or get_origin(annotation) is Union:
        return tuple(part for member in get_args(annotation) for part in _members(member))
    return (get_origin(annotation) or annotation,)
