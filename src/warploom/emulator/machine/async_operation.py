"""An operation that completes later than its instruction, and who issued it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .frame import Issuer
from .units import Unit

if TYPE_CHECKING:
    from .machine import Cta

Part = Callable[[int, int], None]
"""`part(index, parts)` does one of `parts` equal pieces of a read or a write."""


@dataclass(eq=False, slots=True)
class AsyncOperation:
    """One operation in flight.

    Attributes:
        unit: what carries it out.
        issuer: who issued it.
        description: what it is, for reports: "TMA load of box (64, 64) at (0, 128) into `tile+8192`".
        read: takes its sources; None where there is nothing to read.
        write: changes its destination; None where there is none.
        signal: tells the threads that wait, after all else.
        after: operations that must be done before this one starts.
        bytes: how many it moves; flops: of a product.
        sources, targets: the places it reads and writes.
        barrier: CTA and offset of the mbarrier that gets its bytes or its arrival.
        rank: of the CTA in the cluster whose barrier it arrives on.
        pipeline: operations of one issuer with equal keys run in order.
        read_done: the sources may be overwritten; done: all is visible.
        awaited: a thread may go on when it is read or done. What its signal sets free is told by the signal.
        number: how many were issued before it.
        mark: room for the observer that keeps the order of events.
    """

    unit: Unit
    issuer: Issuer
    description: str
    read: Part | None = None
    write: Part | None = None
    signal: Callable[[], None] | None = None
    after: tuple[AsyncOperation, ...] = ()
    bytes: int = 0
    flops: int = 0
    sources: tuple[object, ...] = ()
    targets: tuple[object, ...] = ()
    barrier: tuple[Cta, int] | None = None
    rank: int = -1
    read_done: bool = False
    done: bool = False
    awaited: bool = False
    number: int = -1
    pipeline: tuple[Hashable, ...] = ()
    mark: Any = None
    steps: list[Callable[[], None]] = field(default_factory=list)
    """What is left to do, last first, where an engine does it in pieces."""

    @property
    def kind(self) -> str:
        return self.unit.name

    @property
    def may_start(self) -> bool:
        for other in self.after:  # noqa: SIM110 - asked very often, and mostly there is none
            if not other.done:
                return False
        return True

    def digest(self) -> tuple[Hashable, ...]:
        """What tells it from others, and how far it is."""
        by = self.issuer
        return (
            self.kind, by.frame.cta.index, by.frame.first_warp, by.lane or 0, by.operation.pc, self.description,
            self.read_done, self.done,
        )  # fmt: skip
