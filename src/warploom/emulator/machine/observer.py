"""What the machine tells a checker: one method for each event that orders memory or touches it.

`Machine.observer` is None where checking is off, so a run without it pays one comparison. The methods here do
nothing; the sanitizer overrides those it needs. Frames are live objects: what is needed later must be copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from ..diagnosis.report import Finding
    from ..engines.engine import AsyncOperation, Issuer
    from ..ops.wgmma import Multiply
    from .frame import Frame
    from .machine import Cta, Warp
    from .mbarrier import Event, MBarrier
    from .memory import Region


class Meeting(Protocol):
    """One use of a named barrier or of a cluster's barrier; it has room for a checker's clock."""

    clock: Any


class Observer:
    """See the module's docstring."""

    # -- memory --------------------------------------------------------------------------------------------------

    def generic_read(
        self, frame: Frame, space: str, region: Region, index: np.ndarray, size: int, count: int, lanes: np.ndarray
    ) -> None:
        """Lanes read `count` elements of `size` bytes from element `index` of a region, by the generic proxy."""

    def generic_write(
        self, frame: Frame, space: str, region: Region, index: np.ndarray, size: int, count: int, lanes: np.ndarray,
        values: np.ndarray,
    ) -> None:  # fmt: skip
        """Lanes are about to write `values`, (count, all lanes of the frame); else as `generic_read`."""

    def atomic(self, frame: Frame, region: Region, index: np.ndarray, size: int, count: int, lanes: np.ndarray) -> None:
        """Lanes read and change elements atomically (atom, red)."""

    # -- asynchronous operations -----------------------------------------------------------------------------------

    def operation_issued(self, operation: AsyncOperation) -> None:
        """An operation was put in flight by `operation.issuer`."""

    def operation_read(self, operation: AsyncOperation) -> None:
        """It has read all its sources."""

    def operation_written(self, operation: AsyncOperation) -> None:
        """It has written all its destinations; its signal follows."""

    def operation_done(self, operation: AsyncOperation) -> None:
        """It is complete."""

    def copies_committed(self, frame: Frame) -> None:
        """cp.async.commit_group, or the one in cp.async.wait_all."""

    def copies_waited(self, frame: Frame, newest: int) -> None:
        """cp.async.wait_group passed: at most the `newest` latest groups are pending."""

    def groups_committed(self, frame: Frame) -> None:
        """cp.async.bulk.commit_group."""

    def groups_waited(self, frame: Frame, groups: object, newest: int, reads_only: bool) -> None:
        """cp.async.bulk.wait_group passed."""

    # -- wgmma ---------------------------------------------------------------------------------------------------

    def wgmma_issued(self, frame: Frame, operation: AsyncOperation, multiply: Multiply, adds: bool) -> None:
        """A wgmma is about to be put in flight; `adds`: it reads its accumulator."""

    def wgmma_fenced(self, frame: Frame) -> None:
        """wgmma.fence."""

    def wgmma_committed(self, frame: Frame) -> None:
        """wgmma.commit_group."""

    def wgmma_waited(self, frame: Frame, newest: int) -> None:
        """wgmma.wait_group passed: at most the `newest` latest groups are pending."""

    # -- tensor maps -----------------------------------------------------------------------------------------------

    def map_written(self, frame: Frame, lane: int, region: Region, start: int) -> None:
        """A tensor map in global memory was written (tensormap.replace, tensormap.cp_fenceproxy)."""

    # -- synchronisation -------------------------------------------------------------------------------------------

    def fence(self, frame: Frame, key: str, modifiers: Mapping[str, str | None], places: object = None) -> None:
        """A fence or membar; `key` is its row in the instruction table."""

    def mbarrier_initialised(self, barrier: MBarrier, by: Issuer) -> None:
        """mbarrier.init."""

    def barrier_missing(self, cta: Cta, offset: int, by: Issuer) -> None:
        """An mbarrier instruction finds no barrier; an error follows."""

    def surplus_arrival(self, barrier: MBarrier, by: Issuer) -> None:
        """An arrival that no phase waits for any more; an error follows."""

    def mbarrier_event(self, barrier: MBarrier, event: Event) -> None:
        """An arrival, announced bytes or delivered bytes, before they take effect."""

    def mbarrier_phase(self, barrier: MBarrier) -> None:
        """A phase has completed; `barrier.phase` is the next one."""

    def mbarrier_waited(self, barrier: MBarrier, frame: Frame, lanes: np.ndarray) -> None:
        """Lanes saw a phase complete."""

    def barrier_arrived(self, barrier: Meeting, frame: Frame) -> None:
        """A warp arrived at a named barrier."""

    def barrier_passed(self, barrier: Meeting, frame: Frame) -> None:
        """A warp went on behind a named barrier."""

    def warp_met(self, frame: Frame) -> None:
        """Threads passed bar.warp.sync."""

    def cluster_arrived(self, phase: Meeting, frame: Frame, relaxed: bool) -> None:
        """barrier.cluster.arrive."""

    def cluster_waited(self, phase: Meeting, frame: Frame) -> None:
        """barrier.cluster.wait passed."""

    def registers_changed(self, frame: Frame, count: int, effective: bool) -> None:
        """setmaxnreg to `count`; not `effective` where the kernel's text has no register cap."""

    def grid_dependency(self, frame: Frame, action: str) -> None:
        """griddepcontrol."""

    def reached_exited(self, by: Issuer, cta: Cta) -> None:
        """Something reaches another CTA of the cluster after it has exited; an error follows."""

    def warp_exited(self, warp: Warp) -> None:
        """All threads of a warp have exited."""

    # -- the end ---------------------------------------------------------------------------------------------------

    def stands_still(self) -> None:
        """The machine stopped with an error."""

    def report(self) -> list[Finding]:
        """What was found, when the run is over."""
        return []
