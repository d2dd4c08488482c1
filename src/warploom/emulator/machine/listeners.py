"""The listeners of each event of a machine (`events` describes the events)."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .units import Unit

Listeners = tuple[Callable[..., None], ...]


class Events:
    """The listeners of each event: `for listener in events.fenced: listener(frame, None)`. Initially empty.

    places: for each listener of `executed`, the instructions (pc) that it listens to; None: all.
    """

    executed: Listeners
    shuffled: Listeners
    accessed: Listeners
    copied: Listeners
    issued: Listeners
    read: Listeners
    written: Listeners
    done: Listeners
    committed: Listeners
    waited: Listeners
    asked: Listeners
    fenced: Listeners
    arrived: Listeners
    met: Listeners
    kept: Listeners
    permitted: Listeners
    made: Listeners
    made_again: Listeners
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
        self._of_unit: dict[tuple[str, Unit], Listeners] = {}

    def of_unit(self, event: str, unit: Unit) -> Listeners:
        """The listeners of an event of an operation that this unit performs: those that do not ignore the unit."""
        found = self._of_unit.get((event, unit))
        if found is None:
            listeners: Listeners = getattr(self, event)
            found = tuple(one for one in listeners if unit not in getattr(one, "__self__").ignores)  # noqa: B009
            self._of_unit[event, unit] = found
        return found

    def executed_at(self, count: int) -> list[Listeners]:
        """The listeners of `executed` for each instruction index below `count`."""
        wanted = list(zip(self.executed, self.places, strict=True))
        return [tuple(listener for listener, places in wanted if places is None or pc in places) for pc in range(count)]


EVENTS = tuple(Events.__annotations__)
