"""The mbarrier instructions. The object itself is in `machine.mbarrier`. PTX ISA 9.7.13.15."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...asm.nodes import Sink
from ...errors import InvalidOperandError
from ...isa import dtypes
from ..engines.bulk import check_alive
from ..machine import mbarrier
from ..machine.address import AddressOperand
from ..machine.async_operation import AsyncOperation
from ..machine.events import CompletedWait
from ..machine.frame import Frame, Issuer
from ..machine.image import Image
from ..machine.machine import Cta
from ..machine.mbarrier import MBarrier
from ..machine.operation import PLAIN
from ..machine.register_list import lane_array, lane_value
from ..machine.registers import WARP
from ..machine.units import REMOTE
from ..machine.wait import Wait
from ..program.decode import Decode
from ..program.handlers import Handlers, Step

HANDLERS = Handlers()


@HANDLERS.add("mbarrier.init")
def init(d: Decode) -> Step:
    address, count = d.address("a"), d.source("count")

    def step(frame: Frame) -> None:
        done = set()
        for lane, place in _places(frame, address):
            value = lane_value(frame, count, lane)
            # Lanes of a warp that initialise one barrier at once make one barrier: ThunderKittens omits the election.
            if (lane // WARP, place, value) not in done:
                mbarrier.initialise(Issuer.of(frame, lane), *place, value)
                done.add((lane // WARP, place, value))
        frame.machine.progress()

    return step


@HANDLERS.add("mbarrier.inval")
def inval(d: Decode) -> Step:
    address = d.address("a")

    def step(frame: Frame) -> None:
        for lane, place in _places(frame, address):
            mbarrier.invalidate(Issuer.of(frame, lane), *place)

    return step


@HANDLERS.add("mbarrier.expect_tx", "mbarrier.complete_tx")
def transaction(d: Decode) -> Step:
    address, amount = d.address("a"), d.source("tx")
    expects = d.match.form.key == "mbarrier.expect_tx"

    def step(frame: Frame) -> None:
        for lane, place in _places(frame, address, remote=True):
            value = lane_value(frame, amount, lane)

            def act(barrier: MBarrier, by: Issuer, value: int = value) -> None:
                if expects:
                    barrier.expect_tx(value, by)
                else:
                    barrier.complete_tx(value, by)

            _deliver(frame, lane, place, act)

    return step


@HANDLERS.add(
    *(
        f"mbarrier.{what}{form}"
        for what in ("arrive", "arrive_drop")
        for form in ("", "_count", "_remote", "_expect_tx", "_expect_tx_remote", "_no_complete")
    )
)
def arrive(d: Decode) -> Step:
    key = d.match.form.key
    address = d.address("a")
    drops, completes = "arrive_drop" in key, not key.endswith("no_complete")
    count = d.source("count") if d.has("count") else -1
    amount = d.source("tx") if d.has("tx") else -1
    remote = key.endswith("_remote")
    result = d.operands["sink" if remote else "state"]
    if remote and not isinstance(result, Sink):
        d.error(InvalidOperandError, "an arrival on a shared::cluster barrier returns no state", expected="_")
    wanted = not isinstance(result, Sink)
    state = d.destination("state") if wanted else -1
    may_leave = remote or (address.space == "generic" and not wanted)

    def step(frame: Frame) -> None:
        lanes = frame.active_lanes
        addresses = address.compute(frame)
        frame.machine.counters.mbarrier_arrivals += int(lanes.size)
        if amount < 0 and not drops and completes and lanes.size > 1:
            each = _same_count(frame, count, lanes)
            if each and _arrive_together(frame, address, addresses, lanes, state, may_leave, each):
                return
        for lane in lanes:
            place = mbarrier.locate(frame, address.space, int(addresses[lane]), lane, may_leave)
            times = 1 if count < 0 else lane_value(frame, count, lane)
            expected = None if amount < 0 else lane_value(frame, amount, lane)

            def act(barrier: MBarrier, by: Issuer, times: int = times, expected: int | None = expected) -> int:
                if expected is not None:
                    barrier.expect_tx(expected, by)
                return (barrier.drop if drops else barrier.arrive)(times, by, completes)

            token = _deliver(frame, lane, place, act)
            if wanted:
                lane_array(frame, state)[lane] = token

    return step


def _same_count(frame: Frame, count: int, lanes: np.ndarray) -> int:
    """How often each lane arrives, once if there is no operand; 0 if they differ, or for an invalid count."""
    if count < 0:
        return 1
    values = frame.values[count]
    if not isinstance(values, np.ndarray):
        return max(0, int(values))
    first = int(values[lanes[0]])
    return first if first > 0 and (values[lanes] == first).all() else 0


def _arrive_together(
    frame: Frame, address: AddressOperand, addresses: np.ndarray, lanes: np.ndarray, state: int, may_leave: bool,
    each: int,
) -> bool:  # fmt: skip
    """All lanes arrive `each` times on one barrier of the CTA, and none before the last of them ends its phase."""
    first = int(addresses[lanes[0]])
    if not (addresses[lanes] == first).all():
        return False
    cta, offset = mbarrier.locate(frame, address.space, first, int(lanes[0]), may_leave)
    if cta is not frame.cta:
        return False
    by = Issuer.of(frame)
    barrier = mbarrier.find(by, cta, offset)
    if lanes.size * each > barrier.pending:
        return False
    token = barrier.arrive(int(lanes.size) * each, by)
    if state >= 0:
        lane_array(frame, state)[lanes] = token - each * np.arange(
            lanes.size
        )  # the pending count is the state's low part
    return True


# -- waiting -----------------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class PhaseWait:
    """What some lanes wait for: a barrier's phase, by parity or by state."""

    barrier: MBarrier
    parity: int | None
    token: int
    lanes: np.ndarray
    by: Issuer

    def passed(self) -> bool:
        if self.parity is not None:
            return self.barrier.passed_parity(self.parity)
        return self.barrier.passed_token(self.token, self.by)

    def describe(self) -> str:
        return self.barrier.describe_wait(None, self.parity)


def _watches(frame: Frame, address: AddressOperand, parity: int, state: int) -> list[PhaseWait]:
    """One watch for each distinct (barrier, phase) among the active lanes.

    Only bit 0 of a parity counts: an H200 treats -3, -1, 1 and 3 alike, and -2, 0 and 2.
    """
    lanes = frame.active_lanes
    addresses, values = address.compute(frame)[lanes], frame.values[parity if parity >= 0 else state]
    values = values[lanes] if isinstance(values, np.ndarray) else np.full(lanes.size, values)
    if parity < 0:
        values = mbarrier.phases_of(values)  # states of one phase differ in the number of missing arrivals
    if lanes.size == 1 or (parity >= 0 and _alike(addresses) and _alike(values)):
        return [_watch(frame, address, int(addresses[0]), int(values[0]), parity >= 0, lanes)]
    watches = []
    rest = np.ones(lanes.size, np.bool_)
    while np.count_nonzero(rest):
        at = int(np.flatnonzero(rest)[0])
        same = rest & (addresses == addresses[at]) & (values == values[at])
        watches.append(_watch(frame, address, int(addresses[at]), int(values[at]), parity >= 0, lanes[same]))
        rest &= ~same
    return watches


def _alike(values: np.ndarray) -> bool:
    raw = values.tobytes()
    return raw == raw[: values.itemsize] * values.size


def _watch(
    frame: Frame, address: AddressOperand, where: int, value: int, by_parity: bool, lanes: np.ndarray
) -> PhaseWait:
    lane = int(lanes[0])
    by = Issuer.of(frame, lane)
    cta, offset = mbarrier.locate(frame, address.space, where, lane)
    return PhaseWait(mbarrier.find(by, cta, offset), value & 1 if by_parity else None, value, lanes, by)


def _finish(frame: Frame, done: int, watches: list[PhaseWait]) -> None:
    """Write the predicate of each lane. Several watches belong to one warp, one may also belong to adjacent warps."""
    for watch in watches:
        passed = watch.passed()
        lanes = watch.lanes if len(watches) > 1 else frame.active_lanes
        lane_array(frame, done)[lanes] = passed
        if passed:
            for listener in frame.machine.events.waited:
                listener(frame, CompletedWait("phase", lanes, watch.barrier))


@HANDLERS.add("mbarrier.test_wait", "mbarrier.test_wait_parity", polls=True)
def test_wait(d: Decode) -> Step:
    address, done = d.address("a"), d.destination("done", dtypes.pred)
    parity = d.source("parity") if d.has("parity") else -1
    state = d.source("state") if d.has("state") else -1

    def step(frame: Frame) -> None:
        _finish(frame, done, _watches(frame, address, parity, state))

    return step


@HANDLERS.add("mbarrier.try_wait", "mbarrier.try_wait_parity")
def try_wait(d: Decode) -> Step:
    """Blocks until the phase is complete; returns False only if nothing else in the machine can run.

    Where the kernel does not go straight back to it, the first attempt does not block: if it asks ahead, it will wait
    in another place, and what it does after False has to run as well.
    """
    address, done = d.address("a"), d.destination("done", dtypes.pred)
    parity = d.source("parity") if d.has("parity") else -1
    state = d.source("state") if d.has("state") else -1

    def together(frame: Frame) -> Sequence[int]:
        addresses, values = address.compute(frame), frame.values[parity]
        if _alike(addresses) and (not isinstance(values, np.ndarray) or _alike(values)):
            return (frame.warps,)
        return (1,) * frame.warps

    if parity >= 0:
        d.operation.together = together

    def step(frame: Frame) -> Wait | None:
        frame.machine.counters.mbarrier_waits += frame.warps
        watches = _watches(frame, address, parity, state)

        def finish(frame: Frame) -> None:
            _finish(frame, done, watches)

        if not all(watch.passed() for watch in watches) and _asks_ahead(frame, watches):
            finish(frame)
            for watch in watches:
                if not watch.passed():
                    for listener in frame.machine.events.asked:
                        listener(frame, watch.barrier, watch.lanes)
            return None
        return Wait(
            "mbarrier",
            ready=watches[0].passed if len(watches) == 1 else lambda: all(watch.passed() for watch in watches),
            describe=lambda: "mbarrier " + " and ".join(watch.describe() for watch in watches if not watch.passed()),
            resume=finish,
            timeout=finish,
            about=lambda: [(watch.barrier, watch.parity) for watch in watches if not watch.passed()],
        )

    return step


def _asks_ahead(frame: Frame, watches: list[PhaseWait]) -> bool:
    """True for the first attempt at a phase by a try_wait that is not alone in its loop."""
    code, pc = frame.machine.code, frame.operation.pc
    if code.fact(("spins", pc), lambda: _spins(code, pc)):
        return False
    first = False
    for watch in watches:
        for warp in {int(lane) >> 5 for lane in watch.lanes}:
            key = (pc, frame.first_warp + warp)
            first |= watch.barrier.asked.get(key) != watch.barrier.phase
            watch.barrier.asked[key] = watch.barrier.phase
    return first


def _spins(code: Image, pc: int) -> bool:
    """Whether an instruction is reached again through nothing but instructions without an effect on others."""
    todo, seen = [pc], set[int]()
    while todo:
        operation = code.operations[todo.pop()]
        onward = list(operation.targets)
        if operation.kind == PLAIN or operation.guard >= 0:
            onward.append(operation.pc + 1)
        for here in onward:
            if here == pc:
                return True
            if here not in seen and here < len(code.operations) and not code.operations[here].effects:
                seen.add(here)
                todo.append(here)
    return False


@HANDLERS.add("mbarrier.pending_count")
def pending_count(d: Decode) -> Step:
    state, count = d.source("state"), d.destination("count")

    def step(frame: Frame) -> None:
        for lane in frame.active_lanes:
            token = lane_value(frame, state, lane)
            lane_array(frame, count)[lane] = mbarrier.pending_count(token, Issuer.of(frame, lane))

    return step


# -- places ------------------------------------------------------------------------------------------------------


def _places(frame: Frame, address: AddressOperand, remote: bool = False) -> list[tuple[int, tuple[Cta, int]]]:
    """The barrier's location for each active lane."""
    addresses = address.compute(frame)
    return [
        (int(lane), mbarrier.locate(frame, address.space, int(addresses[lane]), int(lane), remote))
        for lane in frame.active_lanes
    ]


def _deliver(frame: Frame, lane: int, place: tuple[Cta, int], act: Callable[[MBarrier, Issuer], int | None]) -> int:
    """Act on a barrier: at once on an own one, later on another CTA's. Returns the token, or 0."""
    cta, offset = place
    by = Issuer.of(frame, lane)
    if cta is frame.cta:
        return act(mbarrier.find(by, cta, offset), by) or 0

    def signal() -> None:
        check_alive(by, cta, "an arrival on an mbarrier")
        act(mbarrier.find(by, cta, offset), by)

    queue = mbarrier.arrivals_in_flight(frame.cta.cluster)
    operation = AsyncOperation(
        REMOTE, by, f"arrival on the mbarrier of CTA rank {cta.rank}", signal=signal, after=tuple(queue[-1:]),
        barrier=place, rank=cta.rank,
    )  # fmt: skip
    queue.append(operation)
    frame.machine.engine.submit(operation)
    return 0
