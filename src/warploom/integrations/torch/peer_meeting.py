"""PyTorch: how the ranks of a group meet in its store, whatever an earlier group has left there.

A store may outlive its process groups (torchrun's does), and a new group has the names of the old one. So each rank
says hello with a number that nobody had before, and answers with all the numbers that it has read. Who finds its own in
every answer knows that all ranks are here now; what they then have in common is in the names of all keys that follow.

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
"""Between two looks into the store."""
_NOBODY = "-"


def meet(store: Any, prefix: str, rank: int, ranks: int, patience_s: float) -> tuple[str, list[int]]:
    """A name that no earlier meeting had, the same on all ranks; and those that did not come, then without a name.

    Raises RuntimeError of torch.distributed where the store does not answer.
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
    """Turns of looking for something, until patience ends; a last one after that."""
    end, pause = time.monotonic() + patience_s, _SOONEST_S
    while time.monotonic() <= end:
        yield
        time.sleep(pause)
        pause = min(2 * pause, _LATEST_S)
    yield


def _read(store: Any, key: str) -> str:
    return store.get(key).decode() if store.check([key]) else _NOBODY
