"""Who listens to each event of a machine (`events` says what they are told)."""

from __future__ import annotations

from collections.abc import Callable, Container

Listeners = tuple[Callable[..., None], ...]


class Events:
    """The listeners of each event: `for hear in events.fenced: hear(frame, None)`. None at first.

    places: of each listener of `executed`, the places (pc) of the instructions that it wants to hear of; None: of all.
    """

    executed: Listeners
    accessed: Listeners
    copied: Listeners
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
        self.places: tuple[Container[int] | None, ...] = ()
        for event in EVENTS:
            setattr(self, event, ())

    def executed_at(self, count: int) -> list[Listeners]:
        """Who hears that an instruction is executed, for each of so many places."""
        wanted = list(zip(self.executed, self.places, strict=True))
        return [tuple(hear for hear, places in wanted if places is None or pc in places) for pc in range(count)]


EVENTS = tuple(Events.__annotations__)
