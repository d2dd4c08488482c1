"""What tells several launches of one kernel apart: the shapes of their arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..runtime.arrays import is_array, view
from .output import say


def headings(launches: Sequence[tuple[str, Sequence[Any]]]) -> list[str]:
    """A heading for each (kernel, arguments): "" for the only launch of a kernel."""
    names = Counter(name for name, _ in launches)
    return [f"{name} of {shapes(arguments)}:" if names[name] > 1 else "" for name, arguments in launches]


def shapes(arguments: Sequence[Any]) -> str:
    """Arguments in words: "f32 (16, 1000), 3"."""
    return ", ".join(map(_shape, arguments))


def _shape(argument: Any) -> str:
    if not is_array(argument):
        return repr(argument)
    found = view(argument)
    return f"{found.dtype} {found.shape}"


def say_under(heading: str, text: str) -> None:
    """Print a text under its heading, if it has one."""
    if heading:
        say(heading)
    say(text)
