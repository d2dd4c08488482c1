"""One process at a time: who builds, and who waits for the result.

The lock is the kernel's (`flock` of the folder itself): it leaves no file behind, and that of a process that died is
free at once. One that is held by a process that hangs is broken after a while: whoever waited builds by himself, which
costs a build and does no harm. Where there is no such lock (Windows, some network disks) nobody waits at all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

PATIENCE_S = 120.0
"""How long to wait for a process that builds before building by oneself: many times what ptxas needs for a kernel."""
_SHORTEST_S, _LONGEST_S = 0.002, 0.05


@contextmanager
def turn(folder: Path, patience_s: float | None = None) -> Iterator[bool]:
    """Hold the folder's lock inside the `with`; gives whether it is held. Waits for another process that holds it.

    Not held after `patience_s` seconds (PATIENCE_S by default), or where the folder or its disk has no locks: then
    the block runs all the same.
    """
    try:
        handle = os.open(folder, os.O_RDONLY) if fcntl is not None else -1
    except OSError:
        handle = -1
    if handle < 0 or fcntl is None:
        yield False
        return
    try:
        held = _taken(fcntl, handle, PATIENCE_S if patience_s is None else patience_s)
        try:
            yield held
        finally:
            if held:  # by name: a process forked meanwhile has the handle, too, and would hold on to the lock
                with suppress(OSError):
                    fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        os.close(handle)


def _taken(locks: ModuleType, handle: int, patience_s: float) -> bool:
    """Whether the lock was had in time."""
    end, pause = time.monotonic() + patience_s, _SHORTEST_S
    while True:
        try:
            locks.flock(handle, locks.LOCK_EX | locks.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
        except OSError:  # a disk without locks
            return False
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_S)
