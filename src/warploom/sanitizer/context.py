"""What the checkers share: the clusters' states, the findings, and the names of locations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..emulator.engines.boxes import Box
from ..emulator.engines.bulk import Bytes
from ..emulator.machine import shared_address
from ..emulator.machine.copy_streams import CopyStreams, Stream
from ..emulator.machine.places import Lanes
from ..isa import effects
from .first_guesses import first_guesses
from .happens_before.flags import Flags
from .happens_before.known_clusters import ClusterKnowledge, KnownClusters, join_far
from .happens_before.launches import CompleteLaunches
from .happens_before.scopes import ThreadLocation
from .happens_before.state import ClusterState
from .lane_sums import lane_sums
from .loose_reads import RacingLoads
from .report.findings import Findings
from .shadow.global_shadow import GlobalShadow
from .unchecked_waits import unchecked_waits
from .waiting_loads import waits

if TYPE_CHECKING:
    from ..emulator.engines.bulk import Scattered
    from ..emulator.machine.image import Image
    from ..emulator.machine.machine import Cluster, Cta, Machine
    from ..emulator.machine.memory import Region
    from ..emulator.machine.operation import Operation
    from .happens_before.clocks import WarpClock


class Context:
    """See the module's docstring.

    Attributes:
        strict: True if relying on behaviour of today's GPUs that the ISA does not guarantee is an error.
        flags: what warps of different CTAs learn about each other through global memory.
        launches: what GPUs know of each other's earlier launches.
        unchecked: the waits (pc) whose result nothing uses.
        guesses: the plain loads (pc) whose value a compare-and-swap verifies.
        sums: stores of sums over the lanes of a warp, see `lane_sums`.
        loose: loads of global memory that race with a store.
        indices: %ctaid of the CTAs of each cluster, by the cluster's number; kept after the cluster has finished.
        devices, calls: the GPU of each cluster and the index of its launch there, likewise.
        streams: names of the copy streams next to the kernel, by the number of the cluster that represents them.
    """

    def __init__(self, machine: Machine, strict: bool = False) -> None:
        self.machine = machine
        self.strict = strict
        self.findings = Findings()
        self.flags = Flags()
        self.unchecked = machine.code.fact("unchecked waits", lambda: unchecked_waits(machine.code))
        self.guesses = machine.code.fact("first guesses", lambda: first_guesses(machine.code))
        self.sums = machine.code.fact("lane sums", lambda: lane_sums(machine.code))
        self.loose = RacingLoads()
        self.indices: list[tuple[tuple[int, int, int], ...]] = []
        self.devices: list[int] = []
        self.calls: list[int] = []
        self.launches = CompleteLaunches(machine.calls > 1 and len(machine.devices) > 1, self.devices, self.calls)
        self.streams: dict[int, str] = {}
        self._before: dict[tuple[int, int], KnownClusters] = {}
        self._granule = narrowest_access(machine, "shared")
        self._of_buffers = narrowest_access(machine, "global", writes_only=True)
        self._buffers: dict[Region, GlobalShadow] = {}
        self._states: dict[Cluster, ClusterState] = {}

    def state(self, cta: Cta) -> ClusterState:
        """The state of a CTA's cluster."""
        cluster = cta.cluster
        found = self._states.get(cluster)
        if found is None:
            found = self._states[cluster] = ClusterState(cluster, self._granule, len(self.indices))
            self.indices.append(tuple(one.index for one in cluster.ctas))
            self.devices.append(cluster.device.index)
            self.calls.append(cluster.call)
            if isinstance(cluster, Stream):
                self.streams[found.number] = cta.describe()
            if cluster.call:
                far = self._earlier_calls(cluster)
                for clock in found.clocks:
                    clock.far = far
        return found

    def _earlier_calls(self, cluster: Cluster) -> KnownClusters:
        """A launch begins after the previous one in its stream has finished, so it knows all that that launch knew."""
        key = (cluster.device.index, cluster.call)
        far = self._before.get(key)
        if far is None:
            far = {}
            for other, state in self._states.items():
                if other.device is cluster.device and other.call < cluster.call:
                    for clock in state.clocks:
                        far = join_far(far, clock.far)
            for other, state in self._states.items():
                if other.device is cluster.device and other.call < cluster.call:
                    far = {**far, state.number: ClusterKnowledge.everything(state.count)}
            self._before[key] = far
        return far

    def buffer(self, region: Region) -> GlobalShadow:
        """The shadow of a buffer in global memory."""
        found = self._buffers.get(region)
        if found is None:
            found = self._buffers[region] = GlobalShadow(region, self._of_buffers)
        return found

    def origins(self, target: Scattered) -> Lanes | None:
        """What cp.async reads, as an access by lanes."""
        if target.origins is None or not target.origins.any():
            return None
        whole = target.origins != 0
        addresses = target.origins[whole].astype(np.int64)
        found = self.machine.memory.find(int(addresses.min()))
        if found is None or int(addresses.max()) >= found.end:
            return None
        width = min(target.size, 8)
        index = (addresses - found.base) // width
        return Lanes(found.region, "global", index, width, target.size // width, target.lanes[whole])

    def region_of(self, state: ClusterState, place: object) -> Region | None:
        """The buffer in global memory that contains a copy's source or destination."""
        if isinstance(place, Bytes):
            return None if place.region in state.shadows else place.region
        if isinstance(place, Box):
            found = self.machine.memory.find(place.bound.address)
            return found.region if found is not None else None
        return None

    def where(self, cluster: int, rank: int) -> ThreadLocation:
        """The location of a CTA, by the number of its cluster and its rank there."""
        return ThreadLocation(cluster, rank, self.devices[cluster])

    def operation(self, pc: int) -> Operation:
        """An instruction by its index; the accesses of copy streams follow the kernel's instructions."""
        code = self.machine.code.operations
        if pc < len(code):
            return code[pc]
        assert isinstance(self.machine.streams, CopyStreams)
        return self.machine.streams.operations[pc - len(code)]

    def of_stream(self, *places: int) -> bool:
        """True if one of these instructions (pc) is a copy by a copy engine."""
        return max(places) >= len(self.machine.code.operations)

    def guessed(self, load: Operation, write: Operation) -> bool:
        """True if the only fault of a load and a write is that the load is a plain one: see `first_guesses`."""
        atomic = write.instruction.modifiers[0] in ("atom", "red") and write.order.strong
        return atomic and load.pc in self.guesses and not load.order.strong

    def told_without_release(
        self, state: ClusterState, clock: WarpClock, actor: int, epoch: int, load: Operation
    ) -> bool:
        """True if a strong load may miss a strong write that its warp has been told of, and does not look again.

        The two do not race, but may be seen in any order: message passing, PTX ISA 8.10.
        """
        if load.instruction.modifiers[0] != "ld" or self.flags.unreleased(clock, state, actor, epoch) is None:
            return False
        code = self.machine.code
        return not code.fact(("waits", load.pc), lambda: waits(code, load.pc))

    def forget(self, cluster: Cluster) -> None:
        """Drop the state of a finished cluster."""
        self._states.pop(cluster, None)

    def name(self, state: ClusterState, region: Region, offset: int) -> str:
        """An address in shared memory, by the author's name for it."""
        return f"`{shared_address.name(state.owners[region], offset)}`"

    def place(self, state: ClusterState, region: Region, offset: int, of: Cta) -> str:
        """Like `name`, with row and chunk; with the cluster rank if it differs from that of the CTA `of`."""
        owner = state.owners[region]
        text = self.machine.code.place_shared(offset)
        return text if owner is of else f"{text}, of cluster rank {owner.rank}"


def narrowest_access(machine: Machine, space: str, writes_only: bool = False) -> int:
    """Bytes of a granule of a state space: 4, or fewer if the kernel makes narrower accesses."""
    return machine.code.fact(("granule", space, writes_only), lambda: _narrowest(machine.code, space, writes_only))


def _narrowest(code: Image, space: str, writes_only: bool) -> int:
    smallest = 4
    for operation in code.operations:
        for access in effects.accesses(operation.effects, effects.ISSUE):
            concerns = access.space in ("", space) and not (writes_only and access.how == effects.READS)
            if concerns and access.footprint == "lanes":
                smallest = min(smallest, operation.row.access_bytes)
        for access in effects.accesses(operation.effects, effects.RUN):
            if access.space == space and access.footprint == "masked_bytes":
                smallest = 1
    return smallest
