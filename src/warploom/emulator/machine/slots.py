"""State that instruction families keep for a CTA, a cluster or an SM, typed and without a list of families.

BARRIERS = Slot(NamedBarriers)
BARRIERS.of(cta)            # created on first use
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, Protocol, TypeVar


class Resource(Protocol):
    """The contents of a slot."""

    def digest(self) -> Hashable:
        """All state that decides what can happen next: equal digests mean equal futures."""


class HasSlots(Protocol):
    """A CTA, a cluster or an SM."""

    slots: dict[Slot[Any], Any]


R = TypeVar("R", bound=Resource)


class Slot(Generic[R]):
    """One kind of resource; `make(owner)` creates it on first use."""

    def __init__(self, name: str, make: Callable[[Any], R]) -> None:
        self.name = name
        self.make = make

    def of(self, owner: HasSlots) -> R:
        found = owner.slots.get(self)
        if found is None:
            found = owner.slots[self] = self.make(owner)
        return found


def digest(owner: HasSlots) -> tuple[tuple[str, Hashable], ...]:
    """The digests of all resources of an owner, in an order independent of their creation."""
    return tuple(sorted((slot.name, resource.digest()) for slot, resource in owner.slots.items()))
