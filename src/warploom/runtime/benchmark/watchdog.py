"""Ends a process whose GPU no longer responds: a thread that expects a beat at regular intervals.

A kernel that hangs cannot be stopped from inside its process. So a launcher calls `beat("who")` before each launch or
wait. If no beat comes for `limit_s`, the thread reports who it was, saves the results, and ends the process at once
with exit code 3.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from types import TracebackType

LIMIT_S = 20.0
HANG = 3
"""Exit code of a process that was ended."""


class Watchdog:
    """`with Watchdog(on_hang) as watchdog: … watchdog.beat("cublas 4096x4096x4096")`."""

    def __init__(
        self,
        on_hang: Callable[[str], None],
        limit_s: float = LIMIT_S,
        end: Callable[[int], object] = os._exit,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """on_hang: called with the hung task's name, before the end. end, now: for tests."""
        self._on_hang, self._limit, self._end, self._now = on_hang, limit_s, end, now
        self._who, self._until = "the start", now() + limit_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def beat(self, who: str, seconds: float | None = None) -> None:
        """Report progress. seconds: time until the next beat if it takes longer than usual (compiling)."""
        self._who, self._until = who, self._now() + (seconds or self._limit)

    def late(self) -> bool:
        """True if the next beat is overdue."""
        return self._now() > self._until

    def _watch(self) -> None:
        while not self._stop.wait(0.25):
            if self.late():
                try:
                    self._on_hang(self._who)
                finally:
                    self._end(HANG)
                return

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
