"""Options that have no effect with the others: they are refused, so that nobody believes in them."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import ArgumentError


def refuse_ignored(why: str, given: Mapping[str, tuple[object, object]]) -> None:
    """Raise ArgumentError if one of the options is not at its default. given: (value, default) by option; why: what
    they need, or what excludes them."""
    for name, (value, default) in given.items():
        if value != default:
            got = name if isinstance(value, bool) else f"{name} {value}"
            raise ArgumentError(f"{name} would be ignored: {why}", got=got, expected=f"no {name} here")
