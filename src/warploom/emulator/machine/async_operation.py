"""An operation that completes later than its instruction, and its issuer."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .frame import Issuer
from .units import Unit

if TYPE_CHECKING:
    from .machine import Cta

Part = Callable[[int, int], None]
"""`part(index, parts)` performs one of `parts` equal pieces of a read or a write."""


@dataclass(eq=False, slots=True)
class AsyncOperation:
    """One operation in flight.

    Attributes:
        unit: the unit that performs it.
        issuer: the thread or warp that issued it.
        description: for reports: "TMA load of box (64, 64) at (0, 128) into `tile+8192`".
        read: reads its sources; None if there is nothing to read.
        write: changes its destination; None if there is none.
        signal: signals the waiting threads, after everything else.
        after: operations that must complete before this one starts.
        bytes: number of bytes it moves; flops: of an MMA.
        sources, targets: the places it reads and writes.
        barrier: CTA and offset of the mbarrier that receives its bytes or its arrival.
        rank: rank in the cluster of the CTA whose barrier it arrives on.
        pipeline: operations of one issuer with equal keys run in order.
        read_done: the sources may be overwritten; done: everything is visible.
        awaited: a thread may continue when it has been read or is complete. Its signal reports what it releases.
        number: number of operations issued before it.
        mark: for use by the observer that tracks the order of events.
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
    """The remaining pieces, last first, if an engine performs it in pieces."""

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
        """What distinguishes it from others, and its progress."""
        by = self.issuer
        return (
            self.kind, by.frame.cta.index, by.frame.first_warp, by.lane or 0, by.operation.pc, self.description,
            self.read_done, self.done,
        )  # fmt: skip
