"""Tensor maps that a kernel writes itself, and what it may not touch before the grid in front of it is done.

A map in global memory is read by the tensormap proxy. Whoever writes one publishes it with
fence.proxy.tensormap::generic.release (or tensormap.cp_fenceproxy), whoever uses it says .acquire for that map first,
and nobody rewrites it while a copy may still read it. PTX ISA 9.7.13.4, 9.7.13.16, 9.7.9.25.1. Maps that the host
passes need nothing.

A store through a map may write behind the innermost extent (`boxes`): whose memory that is, is asked here.

With dependent launch (9.7.13.13) a grid starts before the one in front of it is done; griddepcontrol.wait waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...emulator.engines.boxes import Box, whole_pieces
from ..core import actor
from ..happens_before.clocks import WarpClock
from ..happens_before.flags import knows
from ..happens_before.state import ClusterState, Flight, lane_masks
from ..report.findings import at
from ..rules import WARNING
from .async_copies import Operations

if TYPE_CHECKING:
    import numpy as np

    from ...emulator.machine.async_operation import AsyncOperation
    from ...emulator.machine.frame import Frame
    from ...emulator.machine.machine import Cta, Machine
    from ...emulator.machine.memory import Region
    from ...emulator.program.code import Operation

Event = tuple[int, int]
"""A warp of the grid and its epoch."""


@dataclass(eq=False)
class DeviceMap:
    """A map in global memory.

    Attributes:
        written: who wrote it last, at which instruction.
        published: release fences behind that; acquired: acquire fences that knew of one.
        uses: copies that read it: (warp of the grid, number of the operation, instruction).
    """

    written: Event | None = None
    writer: Operation | None = None
    published: list[Event] = field(default_factory=list)
    acquired: list[Event] = field(default_factory=list)
    uses: dict[int, tuple[int, Operation]] = field(default_factory=dict)


class Maps(Operations):
    """The part of the sanitizer that follows tensor maps and the order of grids."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._maps: dict[tuple[Region, int], DeviceMap] = {}
        self.awaits_grid = machine.dependent or any(
            operation.instruction.opcode == "griddepcontrol.wait" for operation in machine.code.operations
        )

    # -- maps ------------------------------------------------------------------------------------------------------

    def map_written(self, frame: Frame, lane: int, region: Region, start: int) -> None:
        state, clock = self._of_lane(frame, lane)
        device_map = self._maps.setdefault((region, start), DeviceMap())
        for user, (number, use) in device_map.uses.items():
            reach = clock.far.get((user - 1) // state.count)
            same = (user - 1) // state.count == state.number
            known = clock.known if same else reach.known if reach is not None else 0
            codes = (frame.operation, use)
            if not known >> 2 * number & 3 and not self.findings.seen("tensor-map-in-use", codes):
                self.findings.add(
                    "tensor-map-in-use",
                    f"{actor(frame.cta, frame.first_warp + lane // 32)} writes a tensor map with "
                    f"{at(frame.operation)}, and "
                    f"the copy {at(use)} may still be reading it: nobody has waited for that copy",
                    codes,
                    frame.cta,
                    frame.first_warp + lane // 32,
                )
        device_map.uses.clear()
        device_map.written = (state.number * state.count + clock.me + 1, clock.epoch)
        device_map.writer = frame.operation
        device_map.published.clear()
        device_map.acquired.clear()

    def fence(self, frame: Frame, key: str, modifiers: Mapping[str, str | None], places: object = None) -> None:
        super().fence(frame, key, modifiers, places)
        if key in ("fence.proxy_tensormap_release", "tensormap.cp_fenceproxy"):
            self._publish(frame)
        elif key == "fence.proxy_tensormap_acquire":
            self._acquire_maps(frame, places)  # type: ignore[arg-type]

    def _publish(self, frame: Frame) -> None:
        state = self.state(frame.cta)
        for clock, mask in zip(state.of_frame(frame), lane_masks(frame, frame.active_lanes), strict=True):
            if mask:
                for device_map in self._maps.values():
                    if device_map.written is not None and knows(clock, state, *device_map.written):
                        device_map.published.append((state.number * state.count + clock.me + 1, clock.epoch))

    def _acquire_maps(self, frame: Frame, places: np.ndarray) -> None:
        for lane in frame.active_lanes.tolist():
            found = self.machine.memory.find(int(places[lane]))
            if found is None:
                continue
            device_map = self._maps.get((found.region, int(places[lane]) - found.base))
            if device_map is None:
                continue
            state, clock = self._of_lane(frame, lane)
            if any(knows(clock, state, *event) for event in device_map.published):
                device_map.acquired.append((state.number * state.count + clock.me + 1, clock.epoch))

    def note_map_use(self, state: ClusterState, operation: AsyncOperation, flight: Flight, clock: WarpClock) -> None:
        """A copy is issued: whether its map is ready for it, and whether it writes only the tensor."""
        for target in operation.targets:
            if isinstance(target, Box) and target.overhang():
                self._check_overhang(target, flight, operation.issuer.operation)
        for place in (*operation.sources, *operation.targets):
            device_map = self._maps.get(place.map_place) if isinstance(place, Box) and place.map_place else None
            if device_map is None or device_map.written is None or device_map.writer is None:
                continue
            code = operation.issuer.operation
            device_map.uses[state.number * state.count + clock.me + 1] = (flight.number, code)
            if any(knows(clock, state, *event) for event in device_map.acquired):
                continue
            if not knows(clock, state, *device_map.written):
                why = "nothing orders the two"
            elif not any(knows(clock, state, *event) for event in device_map.published):
                why = "no fence.proxy.tensormap::generic.release stands behind the write"
            else:
                why = "no fence.proxy.tensormap::generic.acquire for this map stands between the release and the copy"
            codes = (code, device_map.writer)
            if not self.findings.seen("tensor-map-fence", codes):
                self.findings.add(
                    "tensor-map-fence",
                    f"the copy {at(code)} of {actor(flight.cta, flight.warp)} uses a tensor map that the kernel wrote "
                    f"with "
                    f"{at(device_map.writer)}; {why}",
                    codes,
                    flight.cta,
                    flight.warp,
                )

    def _check_overhang(self, box: Box, flight: Flight, code: Operation) -> None:
        """A store writes behind its rows: an error where that is somebody else's memory."""
        spec = box.spec
        found = self.machine.memory.find(box.bound.address)
        if found is None or found.overhang or self.findings.seen("tensor-store-overhang", (code,)):
            return
        extent, end = spec.dims[0], whole_pieces(spec)
        row = end * spec.dtype.bytes
        if any(length > 1 for length in spec.dims[1:]):
            foreign = spec.strides[0] > row
            why = f"its rows are {spec.strides[0]} bytes apart"
        else:
            rest = found.end + found.room - box.bound.address
            foreign = rest > row
            why = f"it lies in a buffer that goes on for {rest} bytes from its first"
        elements = f"element {extent}" if end == extent + 1 else f"elements {extent} to {end - 1}"
        whose = (
            f"{why}, so that memory is somebody else's"
            if foreign
            else "that is right only if nobody else uses the memory there"
        )
        self.findings.add(
            "tensor-store-overhang",
            f"{actor(flight.cta, flight.warp)} stores to `{found.region.name}` with {at(code)}, whose innermost extent "
            f"is {extent} elements of {spec.dtype}, {extent * spec.dtype.bytes} bytes: no multiple of 16, so "
            f"{elements} of its rows are written too, with what the box holds there; {whose}",
            (code,),
            flight.cta,
            flight.warp,
            None if foreign else WARNING,
        )

    def _of_lane(self, frame: Frame, lane: int) -> tuple[ClusterState, WarpClock]:
        state = self.state(frame.cta)
        return state, state.clocks[state.me(frame.cta, frame.first_warp + lane // 32)]

    # -- the grid in front -----------------------------------------------------------------------------------------

    def grid_dependency(self, frame: Frame, action: str) -> None:
        if action != "wait":
            return
        state = self.state(frame.cta)
        for clock in state.of_frame(frame):
            clock.begin_epoch()
            state.waited_for_grid[clock.me] = clock.epoch

    def check_grid_order(
        self, state: ClusterState, clock: WarpClock, cta: Cta, code: Operation, region: Region
    ) -> None:
        if clock.after_grid:
            return
        waited = state.waited_for_grid
        if any(me == clock.me or clock.weak[me] >= epoch for me, epoch in waited.items()):
            clock.after_grid = True
            return
        if self.findings.seen("before-grid-wait", (code,)):
            return
        warp = clock.me % state.per_cta
        self.findings.add(
            "before-grid-wait",
            f"{actor(cta, warp)} touches `{region.name}` with {at(code)} before griddepcontrol.wait: the grid in "
            f"front may "
            "still be writing or reading it",
            (code,),
            cta,
            warp,
        )
