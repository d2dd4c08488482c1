"""What all parts of the sanitizer share: the clusters' states, the findings, and words for messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..emulator.diagnosis.report import Side
from ..emulator.machine import shared_address as shared
from ..emulator.machine.hooks import Hooks
from ..isa import effects
from .happens_before.state import ClusterState
from .report.findings import Findings, at
from .shadow.shadow import ASYNC, COPY, Access

if TYPE_CHECKING:
    from ..emulator.machine.machine import Cluster, Cta, Machine
    from ..emulator.machine.memory import Region


@dataclass(frozen=True, eq=False)
class Storing:
    """The store that is being looked at, before it takes effect; as `Hooks.generic_write`."""

    region: Region
    index: np.ndarray
    size: int
    lanes: np.ndarray
    values: np.ndarray

    def changes_nothing(self, granules: np.ndarray, granule: int) -> bool:
        """Whether what it writes to these granules is what they hold, and lanes that meet there write the same."""
        new = np.ascontiguousarray(self.values[:, self.lanes]).view(f"u{self.size}")
        index = self.index + np.arange(len(new))[:, None]
        first, last = index * self.size // granule, (index * self.size + self.size - 1) // granule
        chosen = np.isin(first, granules) | np.isin(last, granules)
        at, new = index[chosen], new[chosen]
        order = np.argsort(at, kind="stable")
        differ = (at[order][1:] == at[order][:-1]) & (new[order][1:] != new[order][:-1])
        if differ.any():
            return False
        met = np.unique(at).size < at.size  # several lanes write one place: what it held before is not in question
        return bool(met or (self.region.as_type(np.dtype(f"u{self.size}"))[at] == new).all())


class Core(Hooks):
    """The base of the sanitizer's parts."""

    storing: Storing | None = None

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.findings = Findings()
        self.granule = narrowest_access(machine, "shared")
        self._states: dict[Cluster, ClusterState] = {}
        self.indices: list[tuple[tuple[int, int, int], ...]] = []
        """%ctaid of the CTAs of each cluster, by the cluster's number; kept when the cluster is over."""

    def state(self, cta: Cta) -> ClusterState:
        """What is known of a CTA's cluster."""
        cluster = cta.cluster
        found = self._states.get(cluster)
        if found is None:
            found = self._states[cluster] = ClusterState(cluster, self.granule, len(self.indices))
            self.indices.append(tuple(cta.index for cta in cluster.ctas))
        return found

    def forget(self, cluster: Cluster) -> None:
        """A cluster is over."""
        self._states.pop(cluster, None)

    # -- words -----------------------------------------------------------------------------------------------------

    def name(self, state: ClusterState, region: Region, offset: int) -> str:
        """An address in shared memory, as the author calls it."""
        return f"`{shared.name(state.owners[region], offset)}`"

    def place(self, state: ClusterState, region: Region, offset: int, of: Cta) -> str:
        """As `name`, with row and chunk; the cluster rank only where it is not that of the CTA `of`."""
        owner = state.owners[region]
        text = self.machine.code.place_shared(offset)
        return text if owner is of else f"{text}, of cluster rank {owner.rank}"


def who(access: Access) -> str:
    """Who made an access: "warp 2 of CTA (0, 0, 0)"."""
    return actor(access.cta, access.warp)


def actor(cta: Cta, warp: int) -> str:
    return cta.describe_warp(warp)


def deed(access: Access) -> str:
    """An access as a clause: who did what, where."""
    if access.operation is not None:
        kind = {"wgmma": "the wgmma", "cp.async": "the cp.async", "store": "the bulk store", "load": "the bulk copy"}
        what = kind.get(access.operation.kind, "the asynchronous copy")
        verb = "writes" if access.writes else "reads"
        return f"{what} {at(access.code)} issued by {who(access)} {verb}"
    return f"{who(access)} {'writes' if access.writes else 'reads'} with {at(access.code)}"


def side(access: Access, address: str, before: bool = False) -> Side:
    """An access as one side of a finding; `before`: it is the earlier one of two."""
    verb = ("wrote" if access.writes else "read") if before else ("writes" if access.writes else "reads")
    maker = who(access)
    if access.operation is not None:
        thread = f", thread {access.warp * 32 + access.lane % 32}" if access.lane is not None else ""
        maker = f"issued by {maker}{thread}"
    what = f"{verb} the same bytes before" if before else f"{verb} {address}"
    return Side(maker, what, access.code.text, access.code.instruction.location)


def is_asynchronous(access: Access) -> bool:
    return access.proxy in (ASYNC, COPY)


def narrowest_access(machine: Machine, space: str, writes_only: bool = False) -> int:
    """Bytes of a granule of a state space: 4, or less where the kernel accesses less of it at a time."""
    smallest = 4
    for operation in machine.code.operations:
        for access in effects.accesses(operation.effects, effects.ISSUE):
            concerns = access.space in ("", space) and not (writes_only and access.how == effects.READS)
            if concerns and access.footprint == "lanes":
                smallest = min(smallest, operation.bound.match.access_bytes)  # type: ignore[union-attr]
    return smallest
