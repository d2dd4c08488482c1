"""Warp roles: the roles of warpgroups, one branch of a single if/else each, with their registers.

ptxas honours `setmaxnreg` only if the kernel has a register limit at entry and each role is one branch. Open roles in
this order: `producer` or `producer_warp` first, then `consumers` or `each_consumer`. Without register counts, nothing
is reallocated and every role has the kernel's registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from operator import eq

from ...isa.dtypes import u32
from ...lang import ptx, reg
from ...lang.protocol import Role
from ...lang.trace import Trace
from ...lang.values import Register

WARPGROUP = 128
"""Threads of a warpgroup: four warps, which issue an MMA together."""
WARP = 32
_WARPGROUP_SHIFT = WARPGROUP.bit_length() - 1


def warpgroup_index(*, reduced: bool = False) -> Register:
    """Index of this thread's warpgroup in the CTA, the same in all lanes of a warp: by shfl.sync, or `reduced` by
    redux.sync. ptxas holds the result of redux.sync in a uniform register. It does not always prove that of shfl.sync
    uniform, and then keeps the loops of the roles in registers of each lane (docs/measured-facts.md)."""
    index, own = reg.scalar(u32), ptx.special.tid.x() >> _WARPGROUP_SHIFT
    if reduced:
        ptx.inst.redux.sync.max.u32(index, own, -1)
    else:
        ptx.inst.shfl.sync.idx.b32(index, own, 0, 31, -1)
    return index


@contextmanager
def producer(warpgroup: Register, registers: int | None = None) -> Iterator[None]:
    """Warpgroup 0 releases registers; one of its threads runs the block."""
    _note(Role("producer", "warpgroup 0, thread 0", registers, (0, 3)))
    with ptx.if_(warpgroup == 0):
        if registers is not None:
            ptx.setmaxnreg.dec(registers)
        with ptx.if_(ptx.special.tid.x() == 0):
            yield


@contextmanager
def producer_warpgroup(warpgroup: Register, registers: int | None = None) -> Iterator[None]:
    """Warpgroup 0 releases registers; all of its threads run the block, which subdivides it."""
    _note(Role("producer", "warpgroup 0", registers, (0, 3)))
    with ptx.if_(warpgroup == 0):
        if registers is not None:
            ptx.setmaxnreg.dec(registers)
        yield


def each_producer(warpgroup: Register, count: int, registers: int | None = None) -> Iterator[int]:
    """Like `producer`, with the first threads of `count` warps, each of which runs its own block."""
    if count == 1:
        with producer(warpgroup, registers):
            yield 0
        return
    _note(Role("producer", f"warpgroup 0, thread 0 of warps 0 to {count - 1}", registers, (0, 3)))
    with ptx.if_(warpgroup == 0):
        if registers is not None:
            ptx.setmaxnreg.dec(registers)
        for me in range(count):
            with ptx.if_(ptx.special.tid.x() == me * WARP):
                yield me


@contextmanager
def consumers(
    warpgroup: Register, registers: int | None = None, *, first: int = 1, count: int | None = None
) -> Iterator[Register]:
    """All other warpgroups take registers and run the block; yields the consumer's index, from 0.

    `first`: warpgroup of the first consumer; `count`: number of consumers, if other warpgroups follow.
    """
    last = 31 if count is None else 4 * (first + count) - 1
    who = "every other warpgroup" if count is None else f"warpgroups {first} to {first + count - 1}"
    _note(Role("consumer", who, registers, (4 * first, last), 4))
    with ptx.else_():
        if registers is not None:
            ptx.setmaxnreg.inc(registers)
        yield warpgroup - first if first else warpgroup


@contextmanager
def producer_warp(warpgroup: Register, consumers: int, registers: int | None = None) -> Iterator[None]:
    """All threads of one warp after the consumer warpgroups; `each_consumer(..., first=0)` follows.

    registers: if given, a whole warpgroup takes the warp's place and releases registers.
    """
    first, last = 4 * consumers, 4 * consumers + (0 if registers is None else 3)
    who = f"warp {first}" if registers is None else f"warpgroup {consumers}"
    _note(Role("producer", who, registers, (first, last)))
    with ptx.if_(warpgroup == consumers):
        if registers is not None:
            ptx.setmaxnreg.dec(registers)
        yield


def each_consumer(
    warpgroup: Register, count: int, registers: int | None = None, *, first: int = 1, exclusive: bool = False
) -> Iterator[int]:
    """Like `consumers`, but the block is written once per consumer: `for me in each_consumer(...)`, with `me` an int.

    Values that depend on `me` are then constants: descriptors stay in uniform registers, and the loop has no
    multiplication. `first`: warpgroup of the first consumer. `exclusive`: the consumers are arms of one if/else, not
    one `if` after the other, behind which ptxas may take a later consumer's values for different in each lane.
    """
    who = f"warpgroups {first} to {first + count - 1}" if count > 1 else f"warpgroup {first}"
    _note(Role("consumer", who, registers, (4 * first, 4 * (first + count) - 1), 4))
    with ptx.else_():
        if registers is not None:
            ptx.setmaxnreg.inc(registers)
        if count == 1:
            yield 0
            return
        for me in range(count):
            own = partial(eq, warpgroup, first + me)
            if not exclusive or me == 0:
                arm = ptx.if_(own())
            else:
                arm = ptx.elif_(own) if me < count - 1 else ptx.else_()
            with arm:
                yield me


def _note(role: Role) -> None:
    """Record the role for `kernel.protocol()`."""
    Trace.current().protocol.roles.append(role)
