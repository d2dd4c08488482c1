"""Names of an earlier version: for one release they raise an error that has the new name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import ParamSpec, TypeVar

from .errors import ArgumentError

_P = ParamSpec("_P")
_R = TypeVar("_R")


def refuse(owner: str, names: Iterable[str], renamed: Mapping[str, str]) -> None:
    """Raise ArgumentError if one of the names is an old one. renamed: the new name of each old one."""
    for name in names:
        if name in renamed:
            raise ArgumentError(f"`{name}` of {owner} has a new name", expected=renamed[name], got=name, code="renamed")


def formerly(**renamed: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Refuse keyword arguments by their old names: `@formerly(over="may_alias")`."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @wraps(function)
        def call(*args: _P.args, **named: _P.kwargs) -> _R:
            refuse(function.__qualname__.removesuffix(".__init__"), named, renamed)
            return function(*args, **named)

        return call

    return decorate
