"""Several GPUs, one tile: each has multiplied its part of K, and every one of them gets the whole sums.

As between CTAs (`split_k`), sums stay in registers as the MMA left them, and a thread finds what the same thread of
another GPU sent at its own place, 16 bytes at a time. They travel rounded to the type of the result, as NCCL sends
them, and are added in f32 in the order of the ranks: all GPUs get the same bits, in every run.

    one shot    every GPU sends its sums to all others, and adds up all of them.

                  GPU 0   [multiply][send to 1, 2, 3][signal] wait [add 0, 1, 2, 3][store]
                  GPU 1   [multiply][send to 2, 3, 0][signal] wait [add 0, 1, 2, 3][store]

    two shots   every tile has an owner, who alone adds it up and sends the result back: less to send where GPUs are
                more than two, and one more journey.

                  owner   [multiply] . . . . . . . . . wait [add 0, 1, 2, 3][send back][signal][store]
                  others  [multiply][send to owner][signal] . . . . . . . . . . . . . . . wait [store]

Signals     counter (tile part, GPU)   the sums of that GPU are there: 1 in every launch. They only grow.
Memory      of each GPU two places for each part of a tile and each GPU, for launches in turn: a GPU is in launch n + 1
            only after it had all signals of launch n, each given by a GPU that had ended launch n - 1. So nobody waits
            before he sends.
The number of the launch is kept by each CTA for itself; a launch may be replayed by a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...isa.dtypes import DType, b32, f32, u32, u64
from ...lang import ptx
from ...lang.arrays import RegisterArray
from ...lang.peers import PeerArrays
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from ..mma.fragment import pack, thread_of_warpgroup, unpack
from ..tile.bounded_wait import BoundedWait
from ..tile.roles import WARPGROUP

_WORD = 4
_VECTOR = 4
PLACES = 2
"""For launches in turn."""


def slot_words(accumulators: int) -> int:
    """32-bit words of one place, for that many accumulators of a thread."""
    return accumulators // 2 * WARPGROUP


class PeerReduce:
    """See the module's docstring. The same grid on all GPUs, all of it resident at one time.

    Args:
        slots: u32, one such array on each GPU: `slot_words` for each part of a tile.
        signals: u32, likewise: a counter for each part of a tile and each GPU, zero before the first launch.
        launches: u32 of this GPU, a number for each CTA, zero before the first launch.
        record: of waits that were given up.
        rank: of this GPU.
        accumulators: of a thread for one part of a tile, at most.
        dtype: in which sums travel; of 16 bits.
        all_consumers: the named barrier and the number of threads of all who call.
        two_shots: see there.
        scales: f32, one number each, of this GPU's product: it is multiplied by all of them before it travels.
    """

    def __init__(
        self, slots: PeerArrays, signals: PeerArrays, launches: ArrayHandle, record: ArrayHandle, rank: Register, *,
        accumulators: int, dtype: DType, all_consumers: tuple[int, int], two_shots: bool = False,
        scales: Sequence[ArrayHandle] = (),
    ) -> None:  # fmt: skip
        self.slots, self.signals, self.launches, self.rank = slots, signals, launches, rank
        self.bounded, self.dtype, self.two_shots = BoundedWait(record), dtype, two_shots
        self.slot_bytes = slot_words(accumulators) * _WORD
        self.all_consumers = all_consumers
        self.launch: Register = rank
        self.scales, self.scale = scales, rank

    def begin(self) -> None:
        """By all threads that will call `combine`, when the kernel in front has ended."""
        self.launch = ptx.load(u32, ptx.addr(self._launch()))
        for at, array in enumerate(self.scales):
            loaded = ptx.load(f32, ptx.addr(array.pointer()))
            self.scale = self.scale * loaded if at else loaded

    def combine(self, acc: RegisterArray, complete: range, part: Register, me: int) -> None:
        """Add up the accumulators `complete` over all GPUs; by all threads of consumer `me`.

        part: number of what they are a part of, among all of the grid; the same on all GPUs.
        """
        values = acc[complete.start : complete.stop]
        own = [value * self.scale for value in values] if self.scales else values
        mine = [pack(own[at : at + 2], self.dtype) for at in range(0, len(values), 2)]
        piece = Piece(self, part, me)
        if self.two_shots:
            total = self._by_owner(mine, piece)
        else:
            others = list(self._others())
            for other in others:
                piece.send(other, mine)
            piece.write(self.rank, mine)
            piece.wait_for(*others)
            total = piece.sums(len(mine))
        for register, value in zip(values, total, strict=True):
            register.set(value)

    def finish(self, me: int) -> None:
        """By all threads, behind their last `combine`: the CTA counts its launch."""
        number, threads = self.all_consumers
        ptx.bar.sync(number, threads)
        if me == 0:
            with ptx.if_(thread_of_warpgroup() == 0):
                ptx.store(ptx.addr(self._launch()), self.launch + 1)

    def _launch(self) -> Register:
        place: Register = self.launches.pointer() + ptx.special.ctaid.x().to(u64) * u32.bytes
        return place

    def _others(self) -> Iterator[Register]:
        """The other GPUs, the next one first."""
        ranks = len(self.slots)
        for distance in range(1, ranks):
            far = self.rank + distance
            yield ptx.select(far >= ranks, far - ranks, far)

    def _by_owner(self, mine: Sequence[Register], piece: Piece) -> list[Register]:
        """Two shots; the whole sums, rounded as they travel, so that the owner has what the others get."""
        owner = piece.part % len(self.slots)
        result = [word.copy() for word in mine]
        with ptx.if_(owner == self.rank):
            others = list(self._others())
            piece.write(self.rank, mine)
            piece.wait_for(*others)
            sums = piece.sums(len(mine))
            for at, word in enumerate(result):
                pack(sums[2 * at : 2 * at + 2], self.dtype, into=word)
            for other in others:
                piece.send(other, result)
        with ptx.else_():
            piece.send(owner, mine)
            piece.wait_for(owner)
            for word, came in zip(result, piece.read(owner, len(result)), strict=True):
                word.set(came)
        return [value for word in result for value in unpack(word, self.dtype)]


class Piece:
    """One part of a tile: its places and its counters on all GPUs.

    Args:
        part: its number.
        me: the consumer that has it.
    """

    def __init__(self, over: PeerReduce, part: Register, me: int) -> None:
        self.over, self.part, self.barrier, self.ranks = over, part, 1 + me, len(over.slots)
        self.thread = thread_of_warpgroup()
        place = (part * PLACES + (over.launch & 1)) * self.ranks
        self.offset = place.to(u64) * over.slot_bytes

    def send(self, owner: Register, words: Sequence[Register]) -> None:
        """Write this GPU's words to GPU `owner`, and signal them."""
        self.write(owner, words)
        ptx.bar.sync(self.barrier, WARPGROUP)
        with ptx.if_(self.thread == 0):
            place = self.over.signals.pointer(owner) + self._counter(self.over.rank).to(u64) * u32.bytes
            ptx.inst("red.release.sys.global.add.u32", ptx.addr(place), 1)

    def write(self, owner: Register, words: Sequence[Register]) -> None:
        """Put this GPU's words into their place on GPU `owner`."""
        target = self.over.slots.pointer(owner) + self._slot(self.over.rank)
        for at, count, offset in _vectors(len(words)):
            address = ptx.addr(target + self.thread * (count * _WORD), offset)
            some = list(words[at : at + count])
            ptx.store(address, RegisterArray(some) if count > 1 else some[0])

    def wait_for(self, *sources: Register) -> None:
        """Until these GPUs have sent theirs; then all threads of the consumer may read them."""
        with ptx.if_(self.thread == 0):
            for source in sources:
                counter = self._counter(source)
                place = self.over.signals.pointer(self.over.rank) + counter.to(u64) * u32.bytes
                self.over.bounded.until(place, counter, self.over.launch + 1)
        ptx.bar.sync(self.barrier, WARPGROUP)

    def read(self, source: Register | int, count: int) -> list[Register]:
        """The words that GPU `source` sent here."""
        found: list[Register] = []
        start = self.over.slots.pointer(self.over.rank) + self._slot(source)
        for _, width, offset in _vectors(count):
            loaded = ptx.load(b32, ptx.addr(start + self.thread * (width * _WORD), offset), vector=width)
            found += [loaded] if isinstance(loaded, Register) else list(loaded)
        return found

    def sums(self, count: int) -> list[Register]:
        """What all GPUs sent here, added up in their order."""
        total: list[Register] = []
        for source in range(self.ranks):
            words = self.read(source, count)
            values = [value for word in words for value in unpack(word, self.over.dtype)]
            total = [a + b for a, b in zip(total, values, strict=True)] if total else values
        return total

    def _slot(self, source: Register | int) -> Register:
        at = source * self.over.slot_bytes
        here: Register = self.offset + (at.to(u64) if isinstance(at, Register) else at)
        return here

    def _counter(self, source: Register) -> Register:
        counter: Register = self.part * self.ranks + source
        return counter


def _vectors(count: int) -> Iterator[tuple[int, int, int]]:
    """Words as vectors: which is the first, how many, and the bytes of all threads before them."""
    at = 0
    for width in (_VECTOR, 2, 1):
        while count - at >= width:
            yield at, width, at * WARPGROUP * _WORD
            at += width
