"""Who listens to each event of a machine (`events` says what they are told)."""

from __future__ import annotations

from collections.abc import Callable

Listeners = tuple[Callable[..., None], ...]


class Events:
    """The listeners of each event: `for hear in events.fenced: hear(frame, None)`. None at first."""

    executed: Listeners
    accessed: Listeners
    issued: Listeners
    read: Listeners
    written: Listeners
    done: Listeners
    committed: Listeners
    waited: Listeners
    fenced: Listeners
    arrived: Listeners
    met: Listeners
    permitted: Listeners
    made: Listeners
    unmade: Listeners
    took: Listeners
    gave: Listeners
    refused: Listeners
    exited: Listeners
    stopped: Listeners

    def __init__(self) -> None:
        for event in EVENTS:
            setattr(self, event, ())


EVENTS = tuple(Events.__annotations__)
