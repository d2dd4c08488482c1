"""Arguments of what an author calls, compared with the annotations: a sentence at the author's line, not Python's."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar, get_type_hints

from ..annotated import allows, in_words, shown
from ..isa.dtypes import DType
from .trace import Trace

_P = ParamSpec("_P")
_R = TypeVar("_R")


def typed(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Refuse arguments that the annotations do not allow, with TraceError. Types of elements go through `dtypes.of`."""
    names = tuple(inspect.signature(function).parameters)

    @lru_cache(maxsize=1)
    def kinds() -> dict[str, Any]:
        return {name: kind for name, kind in get_type_hints(function).items() if kind not in (Any, DType)}

    @wraps(function)
    def call(*of: _P.args, **how: _P.kwargs) -> _R:
        allowed = kinds()
        for name, value in (*zip(names, of, strict=False), *how.items()):
            if name in allowed and not allows(allowed[name], value):
                raise Trace.current().error(
                    f"`{name}` of {function.__qualname__} is of another type", expected=in_words(allowed[name]),
                    got=shown(value),
                )  # fmt: skip
        return function(*of, **how)

    return call
