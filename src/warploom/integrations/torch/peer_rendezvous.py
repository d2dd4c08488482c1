"""PyTorch: the rendezvous of a group's ranks in its store, whatever an earlier group has left there.

A store may outlive its process groups (torchrun's does), and a new group reuses the old one's names. So each rank
writes a hello with a fresh random number, and an answer with all numbers that it has read. If a rank finds its own
number in every answer, all ranks are present now; the common list of numbers becomes part of all later keys.

    rank 0   hello 7c   answer 7c -    . . . . . . . . . . .  answer 7c 41   done
    rank 1   . . . . .  (an old hello) hello 41  answer 7c 41 . . . . . . .  done
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Iterator
from typing import Any

_SOONEST_S, _LATEST_S = 0.002, 0.1
"""Shortest and longest pause between two polls of the store."""
_NOBODY = "-"


def rendezvous(store: Any, prefix: str, rank: int, ranks: int, patience_s: float) -> tuple[str, list[int]]:
    """Return a unique name, the same on all ranks, and the missing ranks; the name is empty if any are missing.

    Raises RuntimeError of torch.distributed if the store does not answer.
    """
    mine, said = secrets.token_hex(8), ""
    store.set(f"{prefix}/hello/{rank}", mine)
    for _ in pauses(patience_s):
        hellos = [_read(store, f"{prefix}/hello/{each}") for each in range(ranks)]
        answers = [_read(store, f"{prefix}/answer/{each}").split() for each in range(ranks)]
        if said != (said := " ".join(hellos)):
            store.set(f"{prefix}/answer/{rank}", said)
        missing = [each for each, answer in enumerate(answers) if answer[rank : rank + 1] != [mine] and each != rank]
        if not missing:  # they have answered, so their hellos are of now
            hellos = [_read(store, f"{prefix}/hello/{each}") for each in range(ranks)]
            store.set(f"{prefix}/answer/{rank}", " ".join(hellos))
            return hashlib.sha256(" ".join(hellos).encode()).hexdigest()[:16], []
    return "", missing


def pauses(patience_s: float) -> Iterator[None]:
    """Yield for each poll until patience ends, and once more after that."""
    end, pause = time.monotonic() + patience_s, _SOONEST_S
    while time.monotonic() <= end:
        yield
        time.sleep(pause)
        pause = min(2 * pause, _LATEST_S)
    yield


def _read(store: Any, key: str) -> str:
    return store.get(key).decode() if store.check([key]) else _NOBODY
