"""What GPUs know of each other's earlier launches, beyond what releases and acquires tell.

    it has read a word that GPU B stored in B's launch n      all of B's launches before n are complete, and B knew the
                                                              same of other GPUs when it stored the word
    it has read what a warp stored after it, or a warp that   that read is complete; a store before it need not be
    it had met at a barrier, had read this word

A grid begins after the grid before it in its stream is complete. So a read there has its value, and a later store does
not change it, even if the word that tells so is not released (vLLM's all-reduce begins with such flags).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from .flags import knows

if TYPE_CHECKING:
    from ..shadow.global_shadow import UnpackedAccess
    from .clocks import WarpClock
    from .state import ClusterState

Launches: TypeAlias = "dict[int, int]"
"""GPU -> its latest launch that is known to be complete."""


class CompleteLaunches:
    """See the module's docstring.

    Attributes:
        needed: False if there is one GPU, or one launch.
        devices, calls: the GPU and the launch of each cluster, by its number (`Context`).
    """

    def __init__(self, needed: bool, devices: list[int], calls: list[int]) -> None:
        self.needed, self.devices, self.calls = needed, devices, calls
        self._known_after: dict[tuple[int, int], Launches] = {}
        """(GPU, launch) -> what any of its warps has learned so far."""
        self._learned: dict[int, Launches] = defaultdict(dict)
        """The same of a warp of the grid, in its launch."""
        self._when: dict[tuple[int, int, int], dict[int, tuple[int, int]]] = defaultdict(dict)
        """(GPU, launch, other GPU) -> the warps that have learned of its launches: their epochs, and which."""
        self._fronts: dict[int, np.ndarray] = {}
        """A warp of the grid -> what it knew of its cluster's warps when it last stored a word."""
        self._seen: dict[tuple[int, int], np.ndarray] = {}
        """(warp, cluster) -> the same of warps there that stored what this one has read."""
        self._seen_in: dict[tuple[int, int, int], np.ndarray] = {}
        """(GPU, launch, cluster) -> the same of all its warps."""

    def of(self, state: ClusterState, actor: int) -> tuple[int, int]:
        """The GPU of a warp of the grid, and its launch."""
        cluster = (actor - 1) // state.count
        return self.devices[cluster], self.calls[cluster]

    def stored(self, state: ClusterState, clock: WarpClock) -> None:
        """A warp stores a word."""
        self._fronts[state.actor(clock.me)] = clock.weak.copy()

    def learn(self, state: ClusterState, clock: WarpClock, writer: UnpackedAccess) -> None:
        """A warp reads what a warp of another GPU stored."""
        me = state.actor(clock.me)
        device, call = self.of(state, me)
        other, launch = self.of(state, writer.actor)
        front, cluster = self._fronts.get(writer.actor), (writer.actor - 1) // state.count
        if front is not None:
            self._seen[me, cluster] = np.maximum(front, self._seen.get((me, cluster), front))
            at = (device, call, cluster)
            self._seen_in[at] = np.maximum(front, self._seen_in.get(at, front))
        learned, known = self._learned[me], self._known(device, call)
        for gpu, which in (*self._known(other, launch).items(), (other, launch - 1)):
            if which > learned.get(gpu, -1):
                learned[gpu] = which
                known[gpu] = max(which, known.get(gpu, -1))
                self._when[device, call, gpu][me] = (clock.epoch, which)

    def over(self, state: ClusterState, clock: WarpClock, access: UnpackedAccess) -> bool:
        """True if the launch in which another GPU made an access is complete for all that a warp knows."""
        me = state.actor(clock.me)
        device, call = self.of(state, me)
        other, launch = self.of(state, access.actor)
        if max(self._before(device, call).get(other, -1), self._learned[me].get(other, -1)) >= launch:
            return True
        told = self._when.get((device, call, other), {})
        return any(which >= launch and knows(clock, state, one, epoch) for one, (epoch, which) in told.items())

    def has_read(self, state: ClusterState, clock: WarpClock, access: UnpackedAccess) -> bool:
        """True if a read by another GPU is complete for all that a warp knows, because its warp, or one that it had
        met at a barrier, has stored since then what this warp, or an earlier launch of its GPU, has read."""
        me = state.actor(clock.me)
        device, call = self.of(state, me)
        cluster, theirs = divmod(access.actor - 1, state.count)
        fronts = [self._seen.get((me, cluster)), *(self._seen_in.get((device, at, cluster)) for at in range(call))]
        return any(front is not None and front[theirs] >= access.epoch for front in fronts)

    def _before(self, device: int, call: int) -> Launches:
        """What a GPU knows at the beginning of a launch."""
        return self._known(device, call - 1) if call else {}

    def _known(self, device: int, call: int) -> Launches:
        found = self._known_after.get((device, call))
        if found is None:
            found = self._known_after[device, call] = dict(self._before(device, call))
        return found
