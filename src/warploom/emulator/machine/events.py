"""The events that a machine reports to its observers: those that access memory or order accesses to it.

An observer overrides the events it needs. The machine keeps the listeners of each event; without listeners an event
costs one truth test. Frames are live objects, so data needed later must be copied. The table row of the instruction
that an event is about is `frame.operation.bound` (for an operation or arrival: `issuer.operation.bound`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .listeners import EVENTS, Events
from .places import Lanes

if TYPE_CHECKING:
    from ...errors import EmulationError
    from .async_operation import AsyncOperation
    from .finding import Finding
    from .frame import Frame, Issuer
    from .machine import Cta, Warp
    from .mbarrier import Event, MBarrier
    from .units import Unit


class BarrierUse(Protocol):
    """One use of a named barrier or of a cluster's barrier; `mark` is for the observer that orders events."""

    mark: Any

    @property
    def kind(self) -> str:
        """ "cta" or "cluster"."""


@dataclass(eq=False, slots=True)
class CompletedWait:
    """A wait that has passed, and what it proves.

    Attributes:
        on: a family of groups ("cp_async", "bulk", …), "phase" (of an mbarrier), "cta" or "cluster" (a barrier),
            "grid".
        lanes: indices of the lanes that know it.
        what: the MBarrier or the BarrierUse.
        operations: for groups, the operations proven complete (`reads_only`: read), each with its lanes of the
            warp as a mask.
        newest: how many groups may still be pending.
    """

    on: str
    lanes: np.ndarray
    what: object = None
    operations: Sequence[tuple[AsyncOperation, int]] = ()
    newest: int = 0
    reads_only: bool = False


class Observer:
    """Base class whose methods do nothing; see the module's docstring.

    Attributes:
        places: the instructions (pc) for which `executed` is called; None: all.
        ignores: the units for whose operations `issued`, `read`, `written` and `done` are not called.
    """

    places: Container[int] | None = None
    ignores: Container[Unit] = ()

    def listeners(self) -> Iterable[Observer]:
        """The observers that receive the events, in order: an observer of several parts lists them."""
        return (self,)

    def report(self) -> list[Finding]:
        """The findings, when the run has finished."""
        return []

    # -- instructions --------------------------------------------------------------------------------------------

    def executed(self, frame: Frame) -> None:
        """The warps of a frame reach an instruction, whether its guard holds or not.

        `frame.mask` holds these threads, regardless of the guard. Called once each time that they reach it: not again
        when a wait ends, but for a warpgroup instruction each time that some of its warps arrive.
        """

    def shuffled(self, frame: Frame, absent: np.ndarray) -> None:
        """shfl.sync gives the lanes in `absent`, (lanes of the frame,), what a lane has that does not execute it."""

    # -- memory --------------------------------------------------------------------------------------------------

    def accessed(self, frame: Frame, how: str, place: Lanes, values: np.ndarray | None) -> None:
        """Lanes access memory.

        how: "reads", "writes" (`values`, (count, lanes of the frame), are about to be stored), "updates" (atomically),
            "changes" (a tensor map: one element of 128 bytes for each lane).
        """

    def copied(self, frame: Frame, how: str, place: Lanes, values: np.ndarray | None) -> None:
        """A copy engine (`copy_streams`) accesses memory, like `accessed`; the frame represents its stream."""

    # -- asynchronous operations ---------------------------------------------------------------------------------

    def issued(self, operation: AsyncOperation) -> None:
        """An operation is in flight."""

    def read(self, operation: AsyncOperation) -> None:
        """An operation has read all its sources."""

    def written(self, operation: AsyncOperation) -> None:
        """An operation has written all its destinations; its signal follows."""

    def done(self, operation: AsyncOperation) -> None:
        """An operation is complete."""

    def committed(self, frame: Frame, family: str, operations: Sequence[tuple[AsyncOperation, int]]) -> None:
        """Lanes of a warp committed a group ("cp_async", "bulk", …) of operations, each with its lanes as a mask."""

    # -- order ---------------------------------------------------------------------------------------------------

    def waited(self, frame: Frame, wait: CompletedWait) -> None:
        """A wait has passed."""

    def asked(self, frame: Frame, barrier: MBarrier, lanes: np.ndarray) -> None:
        """A try_wait that is not alone in its loop found the phase incomplete, and goes on."""

    def fenced(self, frame: Frame, places: np.ndarray | None) -> None:
        """A fence or membar; `places`: the address of each lane, if it fences one object."""

    def arrived(self, on: MBarrier | BarrierUse, event: Event) -> None:
        """An arrival, expected bytes or delivered bytes, before they take effect."""

    def met(self, what: MBarrier | None, frame: Frame | None) -> None:
        """A phase of an mbarrier is complete (`what.phase` is the next one), or threads passed bar.warp.sync."""

    def kept(self, frame: Frame, bits: np.ndarray) -> None:
        """A shuffle, vote, match, reduction or election, unless its mask is a constant and all lanes execute it.

        bits: for each lane of the frame, the lanes of its warp that executed it together with it.
        """

    def permitted(self, frame: Frame, what: str) -> None:
        """griddepcontrol.launch_dependents."""

    # -- objects and pools -----------------------------------------------------------------------------------------

    def made(self, kind: str, what: MBarrier, by: Issuer) -> None:
        """mbarrier.init ("mbarrier")."""

    def made_again(self, what: MBarrier, by: Issuer) -> None:
        """mbarrier.init of a valid barrier that nobody has used, with the same count. Without a listener an error."""

    def unmade(self, kind: str, what: MBarrier, by: Issuer) -> None:
        """mbarrier.inval."""

    def took(self, frame: Frame, pool: str, amount: int, effective: bool) -> None:
        """setmaxnreg.inc ("registers") to `amount`; not `effective` if the kernel's text has no register cap."""

    def gave(self, frame: Frame, pool: str, amount: int, effective: bool) -> None:
        """setmaxnreg.dec."""

    # -- ends --------------------------------------------------------------------------------------------------------

    def refused(self, reason: str, what: MBarrier | Cta | tuple[Cta, int] | BarrierUse, by: Issuer) -> None:
        """An error follows: "mbarrier-missing" (CTA, offset), "surplus-arrival" or "mbarrier-initialised-twice"
        (MBarrier), "cta-exited" (Cta). After "cluster-barrier-order" (BarrierUse) the run goes on."""

    def exited(self, warp: Warp) -> None:
        """All threads of a warp have exited."""

    def stopped(self, error: EmulationError) -> None:
        """The machine stopped with an error."""


def listen(observers: Iterable[Observer]) -> Events:
    """The listeners for these observers, in order: the methods that they override."""
    listeners = [listener for observer in observers for listener in observer.listeners()]
    events = Events()
    for event in EVENTS:
        unheard = getattr(Observer, event)
        methods = tuple(getattr(one, event) for one in listeners if getattr(type(one), event) is not unheard)
        setattr(events, event, methods)
    events.places = tuple(one.places for one in listeners if type(one).executed is not Observer.executed)
    return events
