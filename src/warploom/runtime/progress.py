"""Shows the progress of a long task on stderr: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any


class Progress:
    """`with Progress("tuning", total=12) as progress: … progress.step()`.

    Args:
        title: what is running.
        total: maximum number of steps.
        after_s: seconds before anything is shown.
        every_s: without a terminal: seconds between lines; 0: a line for each step; None: no lines.
    """

    def __init__(
        self,
        title: str = "",
        total: int = 1,
        *,
        after_s: float = 0.0,
        every_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._title, self._total, self._done = title, total, 0
        self._clock, self._every_s = clock, every_s
        self._started, self._next = clock(), after_s
        self._terminal = sys.stderr.isatty()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: int, total: int) -> None:
        """Show that `done` of `total` steps are done."""
        self._done, self._total = done, total
        self._show(f"{self._title}: {done} of at most {total}")

    def step(self, title: str = "") -> None:
        """Start the next step. title: what it does."""
        self._done += 1
        if title:
            self._title = title
        self._show(title)

    def say(self, line: str) -> None:
        """Print a line, above the bar if there is one."""
        if self._bar is not None:
            self._bar.console.print(line, markup=False)
        else:
            print(line, file=sys.stderr, flush=True)

    def _show(self, line: str) -> None:
        passed = self._clock() - self._started
        if passed < self._next:
            return
        if self._terminal:
            self._draw()
        elif self._every_s is not None and line:
            self._next = passed + self._every_s
            self.say(f"{line}, {passed:.0f} s" if self._every_s else line)

    def _draw(self) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(self._title, total=self._total)
            self._bar.start()
        self._bar.update(self._task, description=self._title, completed=self._done, total=self._total)
