"""A progress bar for an emulation that lasts: on stderr, only on a terminal, only after a while."""

from __future__ import annotations

import sys
import time
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
