"""Waits for other GPUs that end: a GPU that dies or never comes must not leave the others spinning for ever.

A thread polls a counter. When it has polled long in vain, it looks at the clock; past the group's patience it writes
down what it waited for and goes on, and so do all others that wait then. What the launch computes is worthless from
there on; the host finds the record and says so. Polling itself costs no more than without an end.

    word 0          1 once a wait was given up
    word 1          the patience, in milliseconds
    4 + 4 w and on  of warp w of the grid: the counter's index, what was seen, what was waited for, 1

The record is memory that the host can read while the kernel runs. Whoever waits is one thread of its warp.
"""

from __future__ import annotations

from ...isa.dtypes import u32, u64
from ...lang import ptx, reg
from ...lang.arrays import RegisterArray
from ...lang.predicate import Predicate
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from .roles import WARP
from .watch import NANOSECONDS, PATIENCE, RECORD, RECORD_WORDS

BACKWARDS = 1 << 31
"""Differences from here on are negative: counters wrap around at 2^32."""
POLLS = 256
"""Between two looks at the clock."""


class BoundedWait:
    """See the module's docstring. `record`: u32, `watch.words(...)` of them, zeros but for the patience."""

    def __init__(self, record: ArrayHandle) -> None:
        self.record = record

    def until(self, counter: Register, index: Register, target: Register) -> None:
        """By one thread of a warp: until the u32 at address `counter`, which grows, has come to `target`.

        `index`: how the record names the counter.
        """
        seen, start = reg.scalar(u32), ptx.special.globaltimer()

        def pending() -> Predicate:
            short: Predicate = seen - target >= BACKWARDS
            return short

        with ptx.loop():
            left = reg.scalar(u32, init=POLLS)
            with ptx.do_while(lambda: pending() & (left != 0)):
                ptx.inst("ld.acquire.sys.global.u32", seen, ptx.addr(counter))
                left -= 1
            ptx.break_(~pending())
            waited, impatient = ptx.special.globaltimer() - start, reg.scalar(u32)
            patience, record = reg.scalar(u32), self.record.pointer()
            ptx.inst("ld.relaxed.sys.global.u32", impatient, ptx.addr(record))
            ptx.inst("ld.relaxed.sys.global.u32", patience, ptx.addr(record, PATIENCE * u32.bytes))
            with ptx.if_((impatient != 0) | (waited > patience.to(u64) * NANOSECONDS)):
                self._note(record, index, seen, target)
                ptx.break_()

    def _note(self, record: Register, index: Register, seen: Register, target: Register) -> None:
        ctaid, threads = ptx.special.ctaid.x(), ptx.special.ntid.x()
        warp = ctaid * (threads // WARP) + ptx.special.tid.x() // WARP
        place = record + (warp.to(u64) * RECORD_WORDS + RECORD) * u32.bytes
        one = reg.scalar(u32, init=1)
        ptx.store(ptx.addr(place), RegisterArray([index, seen, target, one]))
        ptx.inst("st.release.sys.global.u32", ptx.addr(record), one)
