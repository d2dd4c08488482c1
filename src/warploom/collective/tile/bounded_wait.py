"""Waits for other GPUs with a timeout: if a GPU dies or never arrives, the others must not spin forever.

A thread polls a counter. After many polls without success, it reads the clock. After the timeout, it records what it
waited for and continues, and so do all other waiting threads. The results of the launch are then invalid; the
host finds the record and reports it. The polling itself costs no more than without a timeout.

    word 0          1 once a wait has timed out
    word 1          the timeout, in milliseconds
    words 2 and 3   address of the record that the host reads, laid out like this one; 0: it reads this one
    4 + 4 w ...     for warp w of the grid: the counter's index, the value seen, the value waited for, 1

The record is memory of this GPU; the copy that the host reads while the kernel runs is only written. Reading it here
would go over PCIe: a hundred waiting CTAs would queue for it, become late themselves, and stall the other GPUs. One
thread per warp has an entry in the record: the only one that waits, or the first lane of those that still wait.
"""

from __future__ import annotations

from collections.abc import Callable

from ...isa.dtypes import u32, u64
from ...lang import ptx, reg
from ...lang.arrays import RegisterArray
from ...lang.predicate import Predicate
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from .roles import WARP
from .timeout_record import HOST, NANOSECONDS, RECORD, RECORD_WORDS, TIMEOUT

BACKWARDS = 1 << 31
"""Differences of at least this are negative: counters wrap around at 2^32."""
POLLS = 256
"""Polls between two reads of the clock."""


class BoundedWait:
    """Waits with a timeout. `record`: u32, `timeout_record.words(...)` words, all zero but the timeout."""

    def __init__(self, record: ArrayHandle) -> None:
        self.record = record

    def until(self, counter: Register, index: Register, target: Register) -> None:
        """Wait, in one thread of a warp, until the growing u32 at address `counter` reaches `target`.

        `index`: the counter's index in the record.
        """
        seen = reg.scalar(u32)

        def look() -> None:
            ptx.inst("ld.acquire.sys.global.u32", seen, ptx.addr(counter))

        self._poll(look, lambda: seen - target >= BACKWARDS, lambda record: self._note(record, index, seen, target))

    def until_nonzero(
        self, look: Callable[[], None], least: Register, index: Callable[[], Register], target: Register
    ) -> None:
        """Wait, in any threads, until `look` sets `least` to another number than 0.

        `index`, `target`: the record's description of the wait, written by one of the lanes that still wait; the index
        is computed when the wait times out.
        """

        def note(record: Register) -> None:
            active = reg.scalar(u32)
            ptx.inst("activemask.b32", active)
            with ptx.if_((active & ptx.special.lanemask_lt()) == 0):
                self._note(record, index(), least, target)

        self._poll(look, lambda: least == 0, note)

    def _poll(
        self, look: Callable[[], None], pending: Callable[[], Predicate], note: Callable[[Register], None]
    ) -> None:
        started = reg.scalar(u64, init=0)
        with ptx.loop():
            left = reg.scalar(u32, init=POLLS)
            with ptx.do_while(lambda: pending() & (left != 0)):
                look()
                left -= 1
            ptx.break_(~pending())
            now, impatient = ptx.special.globaltimer(), reg.scalar(u32)
            started.set(ptx.select(started == 0, now, started))
            timeout, record = reg.scalar(u32), self.record.pointer()
            ptx.inst("ld.relaxed.gpu.global.u32", impatient, ptx.addr(record))
            ptx.inst("ld.relaxed.gpu.global.u32", timeout, ptx.addr(record, TIMEOUT * u32.bytes))
            with ptx.if_((impatient != 0) | (now - started > timeout.to(u64) * NANOSECONDS)):
                note(record)
                ptx.break_()

    def _note(self, record: Register, index: Register, seen: Register, target: Register) -> None:
        ctaid, threads = ptx.special.ctaid.x(), ptx.special.ntid.x()
        warp = ctaid * (threads // WARP) + ptx.special.tid.x() // WARP
        host = ptx.load(u64, ptx.addr(record, HOST * u32.bytes))
        read_there = ptx.select(host == 0, record, host)
        place = read_there + (warp.to(u64) * RECORD_WORDS + RECORD) * u32.bytes
        one = reg.scalar(u32, init=1)
        ptx.store(ptx.addr(place), RegisterArray([index, seen, target, one]))
        ptx.inst("st.release.sys.global.u32", ptx.addr(read_there), one)
        ptx.inst("st.relaxed.gpu.global.u32", ptx.addr(record), one)
