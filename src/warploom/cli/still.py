"""Tells a user who waits that a long emulation has not ended yet."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

EVERY_S = 20.0


@contextmanager
def still(doing: str, every_s: float = EVERY_S) -> Iterator[None]:
    """While the block runs, print on stderr every so many seconds for how long it has."""
    started, ended = time.monotonic(), threading.Event()

    def tell() -> None:
        while not ended.wait(every_s):
            passed = time.monotonic() - started
            print(f"warploom: still {doing}, {passed:.0f} s so far", file=sys.stderr, flush=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()
