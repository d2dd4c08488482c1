"""The hooks of observers that do not hear the events of `events` themselves yet, and what calls them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .async_operation import AsyncOperation, Issuer
from .events import Lanes, Meeting, Observer, Waited
from .mbarrier import Event, MBarrier

if TYPE_CHECKING:
    from ..ops.wgmma import Multiply
    from .frame import Frame
    from .machine import Cta, Warp
    from .memory import Region


class Hooks(Observer):
    """An observer by hooks. A subclass may override hooks and events; a `HookCaller` turns one into the other."""

    def listeners(self) -> Iterable[Observer]:
        return (self, HookCaller(self))

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

    def stands_still(self) -> None:
        """The machine stopped with an error."""


class HookCaller(Observer):
    """Hears all events and calls the hooks of an observer."""

    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks

    def accessed(self, frame: Frame, how: str, place: Lanes, values: np.ndarray | None) -> None:
        region, index, size, count, lanes = place.region, place.index, place.size, place.count, place.lanes
        if how == "reads":
            self.hooks.generic_read(frame, place.space, region, index, size, count, lanes)
        elif how == "writes":
            assert values is not None
            self.hooks.generic_write(frame, place.space, region, index, size, count, lanes, values)
        elif how == "updates":
            self.hooks.atomic(frame, region, index, size, count, lanes)
        else:
            for lane, start in zip(lanes.tolist(), index.tolist(), strict=True):
                self.hooks.map_written(frame, lane, region, start)

    def issued(self, operation: AsyncOperation) -> None:
        if operation.kind == "wgmma":
            multiply, adds = operation.detail
            self.hooks.wgmma_issued(operation.issuer.frame, operation, multiply, adds)
        self.hooks.operation_issued(operation)

    def read(self, operation: AsyncOperation) -> None:
        self.hooks.operation_read(operation)

    def written(self, operation: AsyncOperation) -> None:
        self.hooks.operation_written(operation)

    def done(self, operation: AsyncOperation) -> None:
        self.hooks.operation_done(operation)

    def committed(self, frame: Frame, family: str, operations: Sequence[tuple[AsyncOperation, int]]) -> None:
        hooks = self.hooks
        {
            "cp_async": hooks.copies_committed, "bulk": hooks.groups_committed, "wgmma": hooks.wgmma_committed,
        }[family](frame)  # fmt: skip

    def waited(self, frame: Frame, wait: Waited) -> None:
        hooks, what = self.hooks, wait.what
        if wait.on == "phase":
            hooks.mbarrier_waited(what, frame, wait.lanes)  # type: ignore[arg-type]
        elif wait.on == "cta":
            hooks.barrier_passed(what, frame)  # type: ignore[arg-type]
        elif wait.on == "cluster":
            hooks.cluster_waited(what, frame)  # type: ignore[arg-type]
        elif wait.on == "grid":
            hooks.grid_dependency(frame, "wait")
        elif wait.on == "cp_async":
            hooks.copies_waited(frame, wait.newest)
        elif wait.on == "bulk":
            hooks.groups_waited(frame, None, wait.newest, wait.reads_only)
        else:
            hooks.wgmma_waited(frame, wait.newest)

    def fenced(self, frame: Frame, places: np.ndarray | None) -> None:
        assert frame.operation.bound is not None
        match = frame.operation.bound.match
        if match.form.key == "wgmma.fence":
            self.hooks.wgmma_fenced(frame)
        else:
            self.hooks.fence(frame, match.form.key, match.modifiers, places)

    def arrived(self, on: MBarrier | Meeting, event: Event) -> None:
        frame = event.by.frame
        if isinstance(on, MBarrier):
            self.hooks.mbarrier_event(on, event)
        elif on.kind == "cta":
            self.hooks.barrier_arrived(on, frame)
        else:
            assert event.by.operation.bound is not None
            relaxed = event.by.operation.bound.match.modifiers.get("sem") == "relaxed"
            self.hooks.cluster_arrived(on, frame, relaxed)

    def met(self, what: MBarrier | None, frame: Frame | None) -> None:
        if what is not None:
            self.hooks.mbarrier_phase(what)
        elif frame is not None:
            self.hooks.warp_met(frame)

    def permitted(self, frame: Frame, what: str) -> None:
        self.hooks.grid_dependency(frame, "launch_dependents")

    def made(self, kind: str, what: MBarrier, by: Issuer) -> None:
        self.hooks.mbarrier_initialised(what, by)

    def took(self, frame: Frame, pool: str, amount: int, effective: bool) -> None:
        self.hooks.registers_changed(frame, amount, effective)

    def gave(self, frame: Frame, pool: str, amount: int, effective: bool) -> None:
        self.hooks.registers_changed(frame, amount, effective)

    def refused(self, reason: str, what: Any, by: Issuer) -> None:
        if reason == "mbarrier-missing":
            cta, offset = what
            self.hooks.barrier_missing(cta, offset, by)
        elif reason == "surplus-arrival":
            self.hooks.surplus_arrival(what, by)
        else:
            self.hooks.reached_exited(by, what)

    def exited(self, warp: Warp) -> None:
        self.hooks.warp_exited(warp)

    def stopped(self) -> None:
        self.hooks.stands_still()
