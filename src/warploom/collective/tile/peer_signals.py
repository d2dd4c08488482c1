"""Signals between the GPUs of a group: counters that only grow, so that they need no reset between launches.

A GPU adds to a counter in another GPU's memory, and that GPU waits until the counter has its value for this launch:

    add(owner, index)          red.release.sys: a thread that waits for it sees all that this thread has observed
    wait(index, count)         ld.acquire.sys until `count` additions of each launch up to this one have arrived
    wait_for_launch(index)     until the additions of the previous launches have arrived
    wait_for_flag(index)       ld.acquire.sys until a copy engine has set it to 1 in this launch; `finish_together`,
                               which ends the launches of all GPUs together, resets it to 0

A wait ends at the latest when it times out (`bounded_wait`).

The launch number is kept in each GPU's own memory; the last CTA to finish increments it. A CUDA graph may therefore
replay a launch. All GPUs of a group make the same launches in the same order.
PTX ISA 8.5 (scopes), 8.9.4 (release and acquire).
"""

from __future__ import annotations

from ...isa.dtypes import u32
from ...lang import ptx, reg
from ...lang.peers import PeerArrays
from ...lang.predicate import Predicate
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from .bounded_wait import BoundedWait

STATE_WORDS = 2
"""Words of the state: the launch number, and the number of finished CTAs."""


class PeerSignals:
    """Signals between GPUs; see the module's docstring.

    Args:
        counters: u32, one dimension, zero before the first launch, one such array on each GPU.
        rank: index of this GPU.
        state: u32, `STATE_WORDS` words of this GPU, zero before the first launch; they belong to the counters.
        record: the record of waits that timed out.
    """

    def __init__(self, counters: PeerArrays, rank: Register, state: ArrayHandle, record: ArrayHandle) -> None:
        self.counters, self.rank, self.state, self.bounded = counters, rank, state, BoundedWait(record)

    def launch(self) -> Register:
        """The number of this launch, from 0."""
        return ptx.load(u32, ptx.addr(self.state.pointer()))

    def add(self, owner: Register | int, index: Register) -> None:
        """Add 1 to a counter of GPU `owner`, in one thread."""
        target = ptx.addr(self.counters.pointer(owner) + index * u32.bytes)
        ptx.inst("red.release.sys.global.add.u32", target, 1)

    def wait(self, index: Register, count: Register | int) -> None:
        """Wait, in one thread, until `count` additions of this launch to a counter of this GPU have arrived."""
        self._wait(index, (self.launch() + 1) * count)

    def wait_for_launch(self, index: Register) -> None:
        """Wait, in one thread, until the single addition of each previous launch has arrived."""
        self._wait(index, self.launch())

    def wait_until(self, index: Register, target: Register) -> None:
        """Wait, in one thread, until a counter of this GPU that does not count launches reaches `target`."""
        self._wait(index, target)

    def wait_for_flag(self, index: Register) -> None:
        """Wait, in one thread, until a counter of this GPU is 1."""
        self._wait(index, reg.scalar(u32, init=1))

    def _wait(self, index: Register, target: Register) -> None:
        self.bounded.until(self.counters.pointer(self.rank) + index * u32.bytes, index, target)

    def finish(self) -> None:
        """Finish the launch, in one thread of each CTA, after all of the CTA's work. The last CTA increments the launch
        number and adds to counter `rank` of every GPU: this GPU has read what was sent to it."""
        last, launch = self._is_last()
        with ptx.if_(last):
            self._count_up(launch)

    def finish_together(self, flags: Register | int, count: Register) -> None:
        """`finish`, on all GPUs together. The last CTA first resets `count` flags from counter `flags` on to 0, and at
        the end waits for all GPUs. So no GPU still reads what the next launch's copies write."""
        last, launch = self._is_last()
        with ptx.if_(last):
            own = self.counters.pointer(self.rank)
            for index in ptx.range(count, unroll=False):
                ptx.store(ptx.addr(own + (index + flags) * u32.bytes), reg.scalar(u32, init=0))
            self._count_up(launch)
            for owner in range(len(self.counters)):
                self._wait(reg.scalar(u32, init=owner), launch + 1)

    def _is_last(self) -> tuple[Predicate, Register]:
        """True for the last CTA of the grid that calls this, which then sees the other CTAs' writes; and the launch
        number."""
        ctas = ptx.special.nctaid.x()
        state, launch = self.state.pointer(), self.launch()
        done = ptx.atomic.inc(ptx.addr(state + u32.bytes), ctas - 1, order="acq_rel")
        return done == ctas - 1, launch

    def _count_up(self, launch: Register) -> None:
        """Increment the launch number, and tell all GPUs that this GPU has read what was sent to it."""
        ptx.store(ptx.addr(self.state.pointer()), launch + 1)
        for owner in range(len(self.counters)):
            target = ptx.addr(self.counters.pointer(owner) + self.rank * u32.bytes)
            ptx.inst("red.release.sys.global.add.u32", target, 1)
