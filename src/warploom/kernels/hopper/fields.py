"""Whether the fields of a configuration are what they say: a whole number, a yes or no, one of some words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import ArgumentError

MOST = 1 << 16
"""Of any number: larger ones are no configurations."""


def check_fields(
    config: Any, numbers: Mapping[str, int], flags: Sequence[str], words: Mapping[str, Sequence[str]]
) -> None:
    """Raise ArgumentError for the first field that is not of its kind.

    numbers: the least that each may be; words: what each may be.
    """
    kind = type(config).__name__
    for name, least in numbers.items():
        value = getattr(config, name)
        if type(value) is not int or not least <= value <= MOST:
            raise ArgumentError(f"this {kind} cannot be built: `{name}` is no number for it",
                                expected=f"a whole number from {least} on", got=repr(value))  # fmt: skip
    for name in flags:
        value = getattr(config, name)
        if type(value) is not bool:
            raise ArgumentError(f"this {kind} cannot be built: `{name}` is neither yes nor no",
                                expected="True or False", got=repr(value))  # fmt: skip
    for name, known in words.items():
        value = getattr(config, name)
        if not isinstance(value, str) or value not in known:
            raise ArgumentError(f"this {kind} cannot be built: there is no such {name}", expected=", ".join(known),
                                got=repr(value))  # fmt: skip
