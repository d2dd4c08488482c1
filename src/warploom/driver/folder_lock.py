"""A lock on a folder of the cache, so that one process builds and the others wait for its result.

The lock is `flock` on the folder itself: unlike a lock file (the package filelock) it leaves nothing behind, and the
system releases it when its process dies. A process that hangs holds it for `PATIENCE_S` at most; the waiter then builds
it itself, which costs a build and does no harm. Without such locks (Windows, some network disks) nobody waits.
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
"""Longest wait for another process that builds: many times what ptxas needs for a kernel."""
_SHORTEST_S, _LONGEST_S = 0.002, 0.05


@contextmanager
def locked(folder: Path, patience_s: float | None = None) -> Iterator[bool]:
    """Hold the folder's lock inside the `with`, after waiting for its holder; yields True if it is held.

    It is not held after `patience_s` seconds (PATIENCE_S by default), or if the disk has no locks; the block runs in
    either case.
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
            if held:  # explicitly: a process forked in the meantime has the handle too, and would keep the lock
                with suppress(OSError):
                    fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        os.close(handle)


def _taken(locks: ModuleType, handle: int, patience_s: float) -> bool:
    """True if the lock was acquired in time."""
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
