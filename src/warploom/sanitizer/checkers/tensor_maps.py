"""Tensor maps that a kernel writes itself, and stores through maps that write past their rows.

A map in global memory is read by the tensormap proxy. Its writer publishes it with
fence.proxy.tensormap::generic.release (or tensormap.cp_fenceproxy), its user first fences with .acquire for that map,
and no thread rewrites it while a copy may still read it. PTX ISA 9.7.13.4, 9.7.13.16, 9.7.9.25.1. Maps passed by the
host need nothing.

A store through a map may write past the innermost extent (`boxes`): this checks whose memory that is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...emulator.engines.boxes import Box, whole_pieces
from ...emulator.machine.events import CompletedWait, Observer
from ...emulator.machine.places import Lanes
from ...emulator.machine.units import WARPGROUP_MMA
from ...isa.effects import Fences
from ...plural import counted
from ..happens_before.access import InFlight, flights_of
from ..happens_before.flags import knows
from ..report.findings import at
from ..report.words import actor
from ..rules import WARNING

if TYPE_CHECKING:
    import numpy as np

    from ...emulator.machine.async_operation import AsyncOperation
    from ...emulator.machine.frame import Frame
    from ...emulator.machine.memory import Region
    from ...emulator.machine.operation import Operation
    from ..context import Context
    from ..happens_before.clocks import WarpClock
    from ..happens_before.state import ClusterState

Event = tuple[int, int]
"""A warp of the grid and its epoch."""


@dataclass(eq=False)
class Use:
    """A copy that reads a map.

    Attributes:
        number: of the operation in its cluster; code: the instruction; box: what it copies.
        lanes: the issuers, all lanes of the warp that have made the same copy.
        committed: those that have committed a bulk group since; waited: those that then have waited for all groups.
        event: when the last of them did.
    """

    number: int
    code: Operation
    box: Box
    lanes: set[int]
    committed: set[int] = field(default_factory=set)
    waited: set[int] = field(default_factory=set)
    event: Event | None = None


@dataclass(eq=False)
class DeviceMap:
    """A map in global memory.

    Attributes:
        written: the last writer, and the instruction.
        published: later release fences; acquired: acquire fences that knew of one.
        uses: the last copy that reads it, for each warp of the grid.
    """

    written: Event | None = None
    writer: Operation | None = None
    published: list[Event] = field(default_factory=list)
    acquired: list[Event] = field(default_factory=list)
    uses: dict[int, Use] = field(default_factory=dict)


class TensorMaps(Observer):
    """See the module's docstring."""

    rules = ("tensor-map-fence", "tensor-map-in-use", "tensor-store-overhang")
    ignores = (WARPGROUP_MMA,)

    def __init__(self, context: Context) -> None:
        self.context = context
        self.findings = context.findings
        self._maps: dict[tuple[Region, int], DeviceMap] = {}

    # -- writers and fences ----------------------------------------------------------------------------------------

    def accessed(self, frame: Frame, how: str, place: Lanes, values: np.ndarray | None) -> None:
        if how == "changes" and place.space == "global":
            for lane, start in zip(place.lanes.tolist(), place.index.tolist(), strict=True):  # index: in bytes
                self._written(frame, lane, place.region, start)

    def _written(self, frame: Frame, lane: int, region: Region, start: int) -> None:
        state, clock = self._of_lane(frame, lane)
        device_map = self._maps.setdefault((region, start), DeviceMap())
        for user, use in device_map.uses.items():
            waited = use.event is not None and knows(clock, state, *use.event)
            if waited and use.waited == use.lanes:
                continue
            reach = clock.far.get((user - 1) // state.count)
            same = (user - 1) // state.count == state.number
            known = clock.known if same else reach.known if reach is not None else 0
            codes = (frame.operation, use.code)
            severity = WARNING if waited and not self.context.strict else None
            missing = "no thread has waited for that copy"
            if waited:
                missing = (
                    f"{counted(len(use.lanes), 'lane')} have made that copy, and {len(use.waited)} waited for theirs; "
                    "chips make equal copies of a warp once"
                )
            if not known >> 2 * use.number & 3 and not self.findings.seen("tensor-map-in-use", codes, severity):
                self.findings.add(
                    "tensor-map-in-use",
                    f"{actor(frame.cta, frame.first_warp + lane // 32)} writes a tensor map with "
                    f"{at(frame.operation)}, but the copy {at(use.code)} may still be reading it: {missing}",
                    codes,
                    frame.cta,
                    frame.first_warp + lane // 32,
                    severity,
                )
        self._maps[region, start] = DeviceMap((state.actor(clock.me), clock.epoch), frame.operation)

    def committed(self, frame: Frame, family: str, operations: Sequence[tuple[AsyncOperation, int]]) -> None:
        if family == "bulk" and self._maps:
            for use, lanes, _ in self._uses(frame, frame.active_lanes):
                use.committed |= lanes

    def waited(self, frame: Frame, wait: CompletedWait) -> None:
        """A thread that commits a group and waits for all groups may also rewrite the maps of its loads.

        A load completes on a barrier and is in no group. But PTX ISA 9.7.9.27.2.2 says about the wait that maps have
        been read, and CUTLASS's grouped kernels use nothing else before they rewrite one.
        """
        if wait.on == "bulk" and wait.newest == 0 and self._maps:
            for use, lanes, event in self._uses(frame, wait.lanes):
                if done := use.committed & lanes:
                    use.waited |= done
                    use.event = event

    def _uses(self, frame: Frame, lanes: np.ndarray) -> Iterator[tuple[Use, set[int], Event]]:
        """Copies that some of these lanes of a frame have issued, those lanes, and the current event of their warp."""
        state = self.context.state(frame.cta)
        for number, clock in enumerate(state.of_frame(frame)):
            actor_of = state.actor(clock.me)
            for device_map in self._maps.values():
                use = device_map.uses.get(actor_of)
                here = (
                    use.lanes & {int(lane) % 32 for lane in lanes if lane // 32 == number} if use is not None else set()
                )
                if use is not None and here:
                    yield use, here, (actor_of, clock.epoch)

    def fenced(self, frame: Frame, places: np.ndarray | None) -> None:
        for effect in frame.operation.effects:
            if isinstance(effect, Fences) and effect.kind == "proxy:tensormap":
                if effect.direction == "release":
                    self._publish(frame)
                elif places is not None:
                    self._acquire(frame, places)

    def _publish(self, frame: Frame) -> None:
        state = self.context.state(frame.cta)
        for clock, _ in state.active(frame):
            for device_map in self._maps.values():
                if device_map.written is not None and knows(clock, state, *device_map.written):
                    device_map.published.append((state.actor(clock.me), clock.epoch))

    def _acquire(self, frame: Frame, places: np.ndarray) -> None:
        for lane in frame.active_lanes.tolist():
            found = self.context.machine.memory.find(int(places[lane]))
            device_map = self._maps.get((found.region, int(places[lane]) - found.base)) if found is not None else None
            if device_map is None:
                continue
            state, clock = self._of_lane(frame, lane)
            if any(knows(clock, state, *event) for event in device_map.published):
                device_map.acquired.append((state.actor(clock.me), clock.epoch))

    def _of_lane(self, frame: Frame, lane: int) -> tuple[ClusterState, WarpClock]:
        state = self.context.state(frame.cta)
        return state, state.clocks[state.me(frame.cta, frame.first_warp + lane // 32)]

    # -- users -----------------------------------------------------------------------------------------------------

    def issued(self, operation: AsyncOperation) -> None:
        """A copy is issued: check that its map is ready for it, and that it writes only the tensor."""
        for flight in flights_of(operation):
            for target in operation.targets:
                if isinstance(target, Box) and target.overhang():
                    self._check_overhang(target, flight, flight.code)
            for place in (*operation.sources, *operation.targets):
                if isinstance(place, Box) and place.map_place:
                    self._check_map(place, flight)

    def _check_map(self, box: Box, flight: InFlight) -> None:
        device_map = self._maps.get(box.map_place)  # type: ignore[arg-type]
        if device_map is None or device_map.written is None or device_map.writer is None:
            return
        state, code = self.context.state(flight.cta), flight.code
        clock = state.clocks[flight.me]
        lane = flight.operation.issuer.lane
        use = Use(flight.number, code, box, {-1 if lane is None else lane % 32})
        last = device_map.uses.get(state.actor(clock.me))
        if last is not None and last.code is code and last.box == box and not last.waited:
            use.lanes |= last.lanes
        device_map.uses[state.actor(clock.me)] = use
        if any(knows(clock, state, *event) for event in device_map.acquired):
            return
        if not knows(clock, state, *device_map.written):
            why = "nothing orders the two"
        elif not any(knows(clock, state, *event) for event in device_map.published):
            why = "no fence.proxy.tensormap::generic.release follows the write"
        else:
            why = "there is no fence.proxy.tensormap::generic.acquire for this map between the release and the copy"
        codes = (code, device_map.writer)
        if not self.findings.seen("tensor-map-fence", codes):
            self.findings.add(
                "tensor-map-fence",
                f"the copy {at(code)} of {actor(flight.cta, flight.warp)} uses a tensor map that the kernel wrote with "
                f"{at(device_map.writer)}; {why}",
                codes,
                flight.cta,
                flight.warp,
            )

    def _check_overhang(self, box: Box, flight: InFlight, code: Operation) -> None:
        """A store writes past its rows: an error if that memory is used by others."""
        spec = box.spec.in_bytes
        found = self.context.machine.memory.find(box.bound.address)
        if found is None or found.pads_to_16b or self.findings.seen("tensor-store-overhang", (code,)):
            return
        extent, end = spec.dims[0], whole_pieces(spec)
        row = end * spec.dtype.bytes
        if any(length > 1 for length in spec.dims[1:]):
            foreign = spec.strides[0] > row
            why = f"its rows are {spec.strides[0]} bytes apart"
        else:
            rest = found.end + found.room - box.bound.address
            foreign = rest > row
            why = f"it is in a buffer that continues for {counted(rest, 'byte')} from its first"
        elements = f"element {extent}" if end == extent + 1 else f"elements {extent} to {end - 1}"
        whose = (
            f"{why}, so that memory belongs to other data"
            if foreign
            else "that is correct only if nothing else uses the memory there"
        )
        self.findings.add(
            "tensor-store-overhang",
            f"{actor(flight.cta, flight.warp)} stores to `{found.region.name}` with {at(code)}, whose innermost extent "
            f"is {counted(extent, 'element')} of {spec.dtype}, {extent * spec.dtype.bytes} bytes: not a multiple of "
            f"16, so {elements} of its rows are written too, with the contents of the box; {whose}",
            (code,),
            flight.cta,
            flight.warp,
            None if foreign else WARNING,
        )
