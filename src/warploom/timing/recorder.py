"""The observer that makes a `Recording`: it receives the machine's events and keeps each warp's steps in program order.

Any schedule of the machine gives the same recording, if a warp's path does not depend on the order of arrivals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..emulator.engines.boxes import Box
from ..emulator.engines.bulk import Scattered
from ..emulator.machine.counters import bank_conflicts
from ..emulator.machine.events import CompletedWait, Observer
from ..emulator.machine.operation import BRANCH
from ..emulator.machine.places import Lanes, Rows
from ..emulator.machine.units import REMOTE, TENSOR_MEMORY, UMMA
from ..isa.effects import Fences
from . import recording as kinds
from .accesses import Accesses
from .fusion import fused
from .instructions import Facts, facts_of
from .queues import NONE, Queues, Word
from .recording import Access, BarrierUse, Operation, Phase, Recording, Run
from .subroutines import subroutines

if TYPE_CHECKING:
    from ..emulator.machine.async_operation import AsyncOperation
    from ..emulator.machine.frame import Frame, Issuer
    from ..emulator.machine.machine import Cta, Machine
    from ..emulator.machine.mbarrier import Event, MBarrier

UNROLLED, MOST_UNROLLED = 4, 40
"""Factor by which ptxas unrolls loops, and the most instructions in the body of such a loop, which has no barrier. A
run ends there, so that its loads are in flight together, and all iterations of a loop become the same run."""
INSIDE = (REMOTE.engine, TENSOR_MEMORY.engine, UMMA.engine)
"""Engines whose traffic does not go through L2."""
ROW_BYTES = 128


class Recorder(Observer):
    """Observes one machine; `recording` is complete after `finish`. spread, planted: what it finds in `queues`."""

    def __init__(self, machine: Machine, spread: bool = False, planted: Mapping[Word, int] = NONE) -> None:
        self.machine = machine
        self._fused = fused(machine.code.operations)
        self._subroutines = subroutines(machine.code.operations, self._fused)
        self.recording = Recording(
            machine.code.entry.name, machine.grid, machine.block, machine.cluster_shape, machine.code.shared_size,
            bool(machine.dependent),
        )  # fmt: skip
        self.pcs: list[Facts | None] = [None] * len(machine.code.operations)
        self._open: dict[tuple[int, int], list[Any]] = {}
        self._of_frame: dict[Frame, list[list[Any]]] = {}
        self._runs: dict[tuple[Any, ...], int] = {}
        self._operations: dict[AsyncOperation, int] = {}
        self._phases: dict[tuple[int, int], int] = {}
        self._meetings: dict[Any, int] = {}
        self.open_phases: list[tuple[MBarrier, int]] = []
        """Barriers, each with the index of one of its phases."""
        self._kept: list[Any] = []
        """Objects identified by `id`, kept alive so that no id is reused."""
        self._box: Box | None = None
        self._memory = Accesses(machine, self.recording)
        self.queues = Queues(machine, self.recording, spread, planted)
        self._turns: dict[int, int] = {}

    # -- warps ---------------------------------------------------------------------------------------------------------

    def number(self, cta: Cta) -> int:
        """Return the linear index of a CTA in the grid."""
        (x, y, z), (nx, ny, _) = cta.index, self.machine.grid
        return int(x + nx * (y + ny * z))

    def _warp(self, cta: Cta, warp: int) -> list[Any]:
        key = self.number(cta), warp
        found = self._open.get(key)
        if found is None:
            found = self._open[key] = []
            self.recording.steps[key] = []
            self.recording.roles.setdefault(warp, self.machine.code.role(warp))
            rank = id(cta.cluster)
            self._kept.append(cta.cluster)
            members = self.recording.clusters.setdefault(rank, [])
            if key[0] not in members:
                members.append(key[0])
        return found

    def executed(self, frame: Frame) -> None:
        pc = frame.operation.pc
        facts = self.pcs[pc]
        if facts is None:
            facts = self.pcs[pc] = self._fused[pc]
        if facts.collective:  # reported once per arriving warp; its own event marks when it happens
            return
        lists = self._of_frame.get(frame)
        if lists is None:
            lists = [self._warp(frame.cta, frame.first_warp + at) for at in range(frame.warps)]
            self._of_frame[frame] = lists
        for each in lists:
            each.append(pc)
        if pc in self._subroutines:
            called = self._subroutines[pc]
            for at in called.callers(frame):
                lists[at].append(called.facts.pc)
        if facts.backward and lists[0].count(pc) >= self._turns_of(frame.operation):
            for at in range(frame.warps):
                self.close(frame.cta, frame.first_warp + at)

    def _turns_of(self, branch: Any) -> int:
        """Return the unroll factor of the loop that a backward branch closes."""
        found = self._turns.get(branch.pc)
        if found is None:
            body = [facts_of(one) for one in self.machine.code.operations[branch.targets[0] : branch.pc + 1]]
            small = sum(one.count for one in body) <= MOST_UNROLLED and not any(one.meets for one in body)
            found = self._turns[branch.pc] = UNROLLED if small else 1
        return found

    def close(self, cta: Cta, warp: int) -> list[kinds.Step]:
        """End the open run of a warp and return its steps."""
        open_run = self._warp(cta, warp)
        steps = self.recording.steps[self.number(cta), warp]
        if open_run:
            key = tuple(open_run)
            index = self._runs.get(key)
            if index is None:
                index = self._runs[key] = len(self.recording.runs)
                self.recording.runs.append(self._run(key))
            steps.append((kinds.RUN, self.recording.runs[index].pcs[-1], index))
            open_run.clear()
        return steps

    def _run(self, key: tuple[Any, ...]) -> Run:
        """Make a run from program counters; an item below 0 is the access (-1 - index) of the item before it."""
        pcs: list[int] = []
        accesses: list[Access | None] = []
        for item in key:
            if item >= 0:
                pcs.append(item)
                accesses.append(None)
            else:
                access, before = self._memory.known[-1 - item], accesses[-1]
                accesses[-1] = access if before is None else before.joined(access)
        return Run(tuple(pcs), tuple(accesses))

    def _step(self, frame: Frame, lane: int | None, kind: int, payload: Any, pc: int | None = None) -> None:
        """Append a step to a frame's warps, or to the warp of one lane."""
        at = frame.operation.pc if pc is None else pc
        warps = range(frame.warps) if lane is None else (lane // 32,)
        for warp in warps:
            self.close(frame.cta, frame.first_warp + warp).append((kind, at, payload))

    # -- memory --------------------------------------------------------------------------------------------------------

    def accessed(self, frame: Frame, how: str, place: Lanes, values: np.ndarray | None) -> None:
        if not place.lanes.size or place.space == "param":
            return
        index = self._memory.made(frame, how, place)
        if how == "updates" and not place.space.startswith("shared"):
            told = not frame.operation.instruction.opcode.startswith("red")
            self._memory.after_all |= self.queues.updates(self.number(frame.cta), place, told)
        for warp in np.unique(place.lanes >> 5).tolist():
            self._warp(frame.cta, frame.first_warp + warp).append(-1 - index)

    # -- operations -----------------------------------------------------------------------------------------------

    def issued(self, operation: AsyncOperation) -> None:
        by, recording = operation.issuer, self.recording
        frame, bound = by.frame, by.operation.bound
        facts = self.pcs[by.operation.pc] or facts_of(by.operation)
        self.pcs[by.operation.pc] = facts
        made = Operation(
            facts.starts or operation.unit.engine, by.operation.pc, self.number(frame.cta),
            frame.first_warp + (by.lane or 0) // 32, text=facts.opcode,
        )  # fmt: skip
        made.bytes, made.flops = operation.bytes, operation.flops
        made.after = tuple(self._operations[one] for one in operation.after if one in self._operations)
        made.stores = any(isinstance(place, Box) for place in operation.targets) or "global" in _target(facts.opcode)
        if operation.flops:
            self._matrix(made, operation, bound)
        else:
            self._copy(made, operation)
        index = len(recording.operations)
        recording.operations.append(made)
        self._operations[operation] = index
        lane = by.lane
        if lane is None:
            made.issuers = frame.warps
        self._step(frame, lane, kinds.ISSUE, index, by.operation.pc)

    def _matrix(self, made: Operation, operation: AsyncOperation, bound: Any) -> None:
        modifiers = bound.match.modifiers if bound is not None else {}
        words = [str(word) for word in modifiers.values() if word]
        shape = next((word for word in words if word[0] == "m" and "n" in word and "k" in word), "")
        if shape:
            made.n, made.k = (int(word) for word in shape.partition("n")[2].split("k"))
        made.source = "registers" if any(isinstance(place, Rows) for place in operation.sources[:1]) else "shared"
        made.dtype = str(modifiers.get("atype") or ("f16" if ".f16.f16" in made.text else "bf16"))
        self.recording.flops += operation.flops

    def _copy(self, made: Operation, operation: AsyncOperation) -> None:
        recording = self.recording
        box = next((place for place in (*operation.sources, *operation.targets) if isinstance(place, Box)), None)
        if box is not None:
            spec = box.spec
            made.rows = -(-operation.bytes // max(1, min(ROW_BYTES, spec.in_bytes.inner_bytes)))
            valid = box.valid()
            inside = 0 if valid is None else int(np.prod([part.stop - part.start for part in valid]))
            whole = int(np.prod(box.shape))
            made.outside = made.rows * (whole - inside) // max(whole, 1)
            made.fetched = 0 if box is self._box else operation.bytes * inside // max(whole, 1)
            key = (box.bound.address, box.coordinates, spec.counts)
            made.place = kinds.BoxPlace(box.bound.address, box.coordinates, spec.counts, spec.dims)
            if made.fetched and not made.stores and key not in self._memory.touched:
                self._memory.touched.add(key)
                made.distant = made.fetched
            self._box = box
        elif made.engine == "cp_async":
            made.fetched = made.distant = operation.bytes
            for target in operation.targets:
                if isinstance(target, Scattered) and target.origins is not None:
                    read = target.origins != 0
                    lanes, address = target.lanes[read], target.origins[read].astype(np.int64)
                    rows, fetched, distant = self._memory.copied(lanes, address, target.size)
                    made.rows, made.fetched, made.distant = rows, fetched, distant
                    place = target.index.astype(np.int64) * target.size
                    made.conflicts = bank_conflicts(target.lanes, place, target.size)
        elif operation.bytes and made.engine not in INSIDE:
            made.fetched = made.distant = operation.bytes
        if made.stores:
            recording.stored += made.fetched
            recording.written += made.fetched
            recording.dirty += made.fetched
        elif made.engine not in INSIDE:
            recording.fetched += made.fetched
            recording.received += made.bytes
            recording.distant += made.distant

    def committed(self, frame: Frame, family: str, operations: Sequence[tuple[AsyncOperation, int]]) -> None:
        indices = [self._operations[one] for one, _ in operations if one in self._operations]
        for index in indices:  # each warp of a warpgroup reports it
            self.recording.operations[index].group = min(indices)

    # -- order ----------------------------------------------------------------------------------------------------

    def phase(self, barrier: MBarrier, number: int, least: int = 0) -> int:
        """Return the index of a barrier's phase; `least`: the contributions it starts with."""
        key = id(barrier), number
        found = self._phases.get(key)
        if found is None:
            found = self._phases[key] = len(self.recording.phases)
            name, stage = _ring(barrier.name)
            self.recording.phases.append(Phase(name, number, self.number(barrier.cta), stage, least))
            self.open_phases.append((barrier, found))
        return found

    def _meeting(self, what: Any) -> int:
        found = self._meetings.get(id(what))
        if found is None:
            found = self._meetings[id(what)] = len(self.recording.meetings)
            self._kept.append(what)
            name = "cluster" if what.kind == "cluster" else f"bar {what.number}"
            self.recording.meetings.append(BarrierUse(what.kind, name))
        return found

    def arrived(self, on: Any, event: Event) -> None:
        if hasattr(on, "kind"):
            meeting = self._meeting(on)
            by = event.by
            if by.lane is None or by.lane % 32 == 0:
                self.recording.meetings[meeting].warps += by.frame.warps
                self._step(by.frame, None, kinds.MEET, meeting, by.operation.pc)
            return
        if event.what == "expect":
            return
        phase = self.phase(on, on.phase)
        record = self.recording.phases[phase]
        if event.operation is not None:
            record.contributions += 1
            self.recording.operations[self._operations[event.operation]].phases.append(phase)
            return
        by = event.by
        warps = by.frame.warps if by.lane is None else 1
        record.contributions += warps
        self._step(by.frame, by.lane, kinds.ARRIVE, phase, by.operation.pc)

    def waited(self, frame: Frame, wait: CompletedWait) -> None:
        lane = None if frame.warps > 1 else 0
        if wait.on == "phase":
            barrier: Any = wait.what
            if barrier.phase > 0:
                self._step(frame, lane, kinds.WAIT, self.phase(barrier, barrier.phase - 1))
        elif wait.on in ("cta", "cluster"):
            self._step(frame, lane, kinds.PASS, self._meeting(wait.what))
        elif wait.on == "grid":
            self._step(frame, lane, kinds.GRID, None)
        else:
            indices = tuple(self._operations[one] for one, _ in wait.operations if one in self._operations)
            self._step(frame, lane, kinds.GROUP, (indices, wait.reads_only))

    def fenced(self, frame: Frame, places: np.ndarray | None) -> None:
        fences = (each for each in frame.operation.effects if isinstance(each, Fences))
        if not all(fence.kind.startswith("registers:") for fence in fences):
            self._step(frame, None, kinds.FENCE, frame.operation.instruction.opcode)

    def made(self, kind: str, what: Any, by: Issuer) -> None:
        if kind == "columns":
            self._hold(what.count, by)

    def unmade(self, kind: str, what: Any, by: Issuer) -> None:
        if kind == "columns":
            self._hold(-what.count, by)

    def _hold(self, columns: int, by: Issuer) -> None:
        """Record that columns are allocated or freed, before the run that contains the instruction."""
        warp = by.frame.first_warp + (by.lane or 0) // 32
        self._warp(by.frame.cta, warp)
        self.recording.steps[self.number(by.frame.cta), warp].append((kinds.HOLD, by.operation.pc, columns))

    def permitted(self, frame: Frame, what: str) -> None:
        self._step(frame, None, kinds.RELEASE, None)

    def finish(self) -> Recording:
        """Close the last runs and return the recording."""
        for cta, warp in self._open:
            open_run = self._open[cta, warp]
            if open_run:
                run = self._run(tuple(open_run))
                self.recording.steps[cta, warp].append((kinds.RUN, run.pcs[-1], len(self.recording.runs)))
                self.recording.runs.append(run)
                open_run.clear()
        self._memory.share_drawn(self.recording.runs)
        self._memory.share_common(self.recording.runs)
        operations = self.machine.code.operations
        self.recording.loops = {
            one.pc: one.targets[0]
            for one in operations
            if one.kind == BRANCH and one.targets and one.targets[0] <= one.pc
        }
        self.recording.pcs = [facts or facts_of(one) for facts, one in zip(self.pcs, operations, strict=True)]
        self.recording.pcs += [one.facts for one in self._subroutines.values()]
        return self.recording


def recording_of(
    made: list[Recorder], spread: bool = False, planted: Mapping[Word, int] = NONE
) -> Callable[[Machine], Recorder]:
    """Return an observer factory for `emulator.api.run`; the recorder is appended to `made`."""

    def make(machine: Machine) -> Recorder:
        made.append(Recorder(machine, spread, planted))
        return made[-1]

    return make


def _ring(name: str) -> tuple[str, int]:
    """Split a barrier name like "ring.full[2]" into name and stage, -1 without an index."""
    stem, bracket, rest = name.partition("[")
    number = rest.partition("]")[0]
    return (stem, int(number)) if bracket and number.isdigit() else (name, -1)


def _target(opcode: str) -> str:
    """Return the state space that a bulk copy writes: the first in its opcode."""
    return next((word for word in opcode.split(".") if word.startswith(("global", "shared"))), "")
