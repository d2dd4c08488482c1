"""Signals between the GPUs of a group: counters that only grow, so that nobody has to reset them between launches.

A GPU adds to a counter in another one's memory, and that one waits until the counter is what it must be in this launch:

    add(owner, index)          red.release.sys: a thread that waits for it sees all that this thread knows of
    wait(index, count)         ld.acquire.sys until `count` have been added in this launch, and in each before it
    wait_for_launch(index)     until what belongs to the launches before this one has been added

A wait ends when the group's patience does (`bounded_wait`).

The number of the launch is kept in memory of each GPU's own; the CTA that is done last counts it up. So a launch may
be replayed by a CUDA graph. All GPUs of a group make the same launches in the same order.
PTX ISA 8.5 (scopes), 8.9.4 (release and acquire).
"""

from __future__ import annotations

from ...isa.dtypes import u32
from ...lang import ptx
from ...lang.peers import PeerArrays
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from .bounded_wait import BoundedWait

STATE_WORDS = 2
"""Of the workspace: the number of the launch, and how many CTAs are done."""


class Rounds:
    """See the module's docstring.

    Args:
        counters: u32, one dimension, zero before the first launch, one such array on each GPU.
        rank: of this GPU.
        state: u32, `STATE_WORDS` words of this GPU, zero before the first launch; they belong to the counters.
        record: of waits that were given up.
    """

    def __init__(self, counters: PeerArrays, rank: Register, state: ArrayHandle, record: ArrayHandle) -> None:
        self.counters, self.rank, self.state, self.bounded = counters, rank, state, BoundedWait(record)

    def launch(self) -> Register:
        """The number of this launch, from 0."""
        return ptx.load(u32, ptx.addr(self.state.pointer()))

    def add(self, owner: Register | int, index: Register) -> None:
        """By one thread: add 1 to a counter of GPU `owner`."""
        target = ptx.addr(self.counters.pointer(owner) + index * u32.bytes)
        ptx.inst("red.release.sys.global.add.u32", target, 1)

    def wait(self, index: Register, count: Register | int) -> None:
        """By one thread: until `count` additions of this launch to a counter of this GPU are there."""
        self._wait(index, (self.launch() + 1) * count)

    def wait_for_launch(self, index: Register) -> None:
        """By one thread: until the one addition of each launch before this one is there."""
        self._wait(index, self.launch())

    def wait_until(self, index: Register, target: Register) -> None:
        """By one thread: until a counter of this GPU that does not count launches has come to `target`."""
        self._wait(index, target)

    def _wait(self, index: Register, target: Register) -> None:
        self.bounded.until(self.counters.pointer(self.rank) + index * u32.bytes, index, target)

    def finish(self) -> None:
        """By one thread of each CTA, behind all that the CTA does: the last one counts the launch up and adds to
        counter `rank` of every GPU: this one has read what was sent to it."""
        ctas = ptx.special.nctaid.x()
        state, launch = self.state.pointer(), self.launch()
        done = ptx.atomic.inc(ptx.addr(state + u32.bytes), ctas - 1, order="acq_rel")
        with ptx.if_(done == ctas - 1):
            ptx.store(ptx.addr(state), launch + 1)
            for owner in range(len(self.counters)):
                target = ptx.addr(self.counters.pointer(owner) + self.rank * u32.bytes)
                ptx.inst("red.release.sys.global.add.u32", target, 1)
