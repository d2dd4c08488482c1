"""One object per process, created on first use, also if two threads use it first at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class once(Generic[T]):  # noqa: N801  (used as a decorator)
    """Decorates a function without arguments: it runs once, later calls return its value. Exceptions are not cached."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: list[T] = []
        self._lock = threading.Lock()
        self.__doc__ = make.__doc__

    def __call__(self) -> T:
        if not self._made:
            with self._lock:
                if not self._made:
                    self._made.append(self._make())
        return self._made[0]
