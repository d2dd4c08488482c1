"""Dynamic tile scheduling: a CTA that finishes early takes the next tile.

    producer    take a number | wait for an empty slot, write it, arrive | load the tile ...   | take a number ...
    consumers                 wait for the slot, read it, arrive         | multiply the tile ... | wait for the next

Numbers come from a counter in global memory, which every CTA increments until no tiles are left. The counter wraps to 0
with the last of these increments, ready for the next launch. A number past the last tile goes through the mailbox like
any other and ends the consumers' loops.

    full[slot]    1 arrival of the producer                    the number has been written
    empty[slot]   all threads of all consumers                 the number has been read
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ...isa.dtypes import u32
from ...lang import ptx, reg, smem
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from .roles import WARPGROUP


class QueueState:
    """A role's position in the mailbox."""

    def __init__(self, slots: int, phase: int) -> None:
        self._slots = slots
        self.slot, self.phase = reg.scalar(u32, init=0), reg.scalar(u32, init=phase)

    def advance(self) -> None:
        """Step to the next slot; the phase flips at the end."""
        self.slot += 1
        wraps = self.slot == self._slots
        self.phase ^= ptx.select(wraps, reg.scalar(u32, init=1), 0)
        self.slot.set(ptx.select(wraps, 0, self.slot))


class TileQueue:
    """A queue of tiles for all CTAs of a grid; see the module's docstring.

    Args:
        counter: u32, one element, 0 before the first launch. Launches that may overlap must not share it.
        tiles: the number of tiles; tiles plus CTAs must be below 2^32.
        consumers: warpgroups that read each number.
        order: maps a tile number, in launch order, to the coordinates of the tile (`queue.coordinates(number)`).
        others: other threads that read each number.
        slots: numbers that may be in flight, so that a tile can begin before the previous one has ended.

    Allocates its barriers, which `TmaPipeline.initialise(queue)` or a call of `init_barriers` initialises.
    """

    def __init__(
        self, counter: ArrayHandle, tiles: Register, consumers: int, order: Callable[[Register], Any] | None = None,
        slots: int = 2, others: int = 0,
    ) -> None:  # fmt: skip
        self.counter, self.tiles, self.consumers, self.order, self.slots = counter, tiles, consumers, order, slots
        self.others = others
        self.mailbox = smem.array(u32, slots, name="queue.mailbox")
        self.full = smem.mbarrier(slots, name="queue.full")
        self.empty = smem.mbarrier(slots, name="queue.empty")

    def init_barriers(self) -> None:
        """Initialise the barriers. Called by one thread, before `fence.mbarrier_init`."""
        for slot in range(self.slots):
            ptx.mbarrier.init(self.full[slot], 1)
            ptx.mbarrier.init(self.empty[slot], self.consumers * WARPGROUP + self.others)

    def coordinates(self, number: Register) -> Any:
        """The coordinates of a tile by `order`; its number by default."""
        return number if self.order is None else self.order(number)

    # -- the producer, one thread ----------------------------------------------------------------------------------

    def producer_state(self) -> QueueState:
        """The initial state of the producer: every slot is empty."""
        return QueueState(self.slots, phase=1)

    def fetch(self, state: QueueState) -> Register:
        """Take the next number and post it to the consumers; it is at least `tiles` if no tile is left."""
        ctas = ptx.special.nctaid.x()
        number = ptx.atomic.inc(ptx.addr(self.counter.pointer()), self.tiles + (ctas - 1))
        ptx.mbarrier.wait(self.empty[state.slot], state.phase)
        ptx.store(self.mailbox[state.slot], number)
        ptx.mbarrier.arrive(self.full[state.slot])
        state.advance()
        return number

    def produce(self) -> Iterator[Register]:
        """The numbers of this CTA's tiles, each posted before the body runs; a run-time loop."""
        state = self.producer_state()
        yield from self._while_valid(lambda: self.fetch(state))

    # -- a consumer, all threads -----------------------------------------------------------------------------------

    def consumer_state(self) -> QueueState:
        """The initial state of a consumer: no number has been posted."""
        return QueueState(self.slots, phase=0)

    def next(self, state: QueueState) -> Register:
        """Wait for the next number; it is at least `tiles` if no tile is left."""
        ptx.mbarrier.wait(self.full[state.slot], state.phase)
        number = ptx.load(u32, self.mailbox[state.slot])
        ptx.mbarrier.arrive(self.empty[state.slot])
        state.advance()
        return number

    def consume(self) -> Iterator[Register]:
        """The numbers of this CTA's tiles; a run-time loop."""
        state = self.consumer_state()
        yield from self._while_valid(lambda: self.next(state))

    def _while_valid(self, get: Callable[[], Register]) -> Iterator[Register]:
        number = get().copy()
        with ptx.while_(lambda: number < self.tiles):
            yield number
            number.set(get())
