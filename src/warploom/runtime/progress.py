"""What an emulation that lasts shows of its progress, on stderr and only after a while.

A single run has a bar, on a terminal alone. A search of all interleavings, which may take minutes, says how many runs
are over: in one line on a terminal, in a line every ten seconds elsewhere.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any


class ProgressBar:
    """Called with (done, total) by the emulator; shows itself once `after_s` seconds have passed."""

    def __init__(self, title: str, after_s: float) -> None:
        self._title = title
        self._after_s = after_s
        self._started = time.monotonic()
        self._bar: Any = None
        self._task: Any = None
        self._wanted = sys.stderr.isatty()

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: int, total: int) -> None:
        if not self._wanted or time.monotonic() - self._started < self._after_s:
            return
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("emulating {task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task(self._title, total=total)
            self._bar.start()
        self._bar.update(self._task, completed=done, total=total)


class RunsSoFar:
    """Called with (runs, bound) between the runs of a search of all interleavings; says so on stderr."""

    AFTER_S = 2.0
    """On a terminal: how long nothing is shown."""
    EVERY_S = 10.0
    """Elsewhere: seconds from line to line."""
    REFRESH_S = 0.2

    def __init__(self, title: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._title = title
        self._clock = clock
        self._started = clock()
        self._in_place = sys.stderr.isatty()
        self._next = self.AFTER_S if self._in_place else self.EVERY_S
        self._width = 0

    def __enter__(self) -> RunsSoFar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._width:
            print("\r" + " " * self._width + "\r", end="", file=sys.stderr, flush=True)

    def __call__(self, runs: int, bound: int) -> None:
        passed = self._clock() - self._started
        if passed < self._next:
            return
        line = f"{self._title}: {runs} runs so far, at most {bound}; {passed:.0f} s"
        if self._in_place:
            self._next = passed + self.REFRESH_S
            self._width = max(self._width, len(line))
            print("\r" + line.ljust(self._width), end="", file=sys.stderr, flush=True)
        else:
            self._next = passed + self.EVERY_S
            print(line, file=sys.stderr, flush=True)
