"""All-reduce of one tile over several GPUs: each has multiplied its part of K, and all get the complete sums.

As between CTAs (`split_k`), accumulators keep the MMA's register layout, and a thread reads what the same thread of
another GPU sent from its own slot, 16 bytes at a time. Partial sums travel rounded to the result type, as with NCCL,
and are added in f32 in rank order: all GPUs get the same bits, in every run.

    one shot    every GPU sends its partial sums to all others, and adds up all of them.

                  GPU 0   [multiply][send to 1, 2, 3][signal] wait [add 0, 1, 2, 3][store]
                  GPU 1   [multiply][send to 2, 3, 0][signal] wait [add 0, 1, 2, 3][store]

    flagged     one shot for few bytes: each word travels together with the launch number in one 64-bit store, and every
                thread polls its own words. This needs no fence, barrier or signal.

                  GPU 0   [multiply][send to 1, 2, 3] wait [add 0, 1, 2, 3][store]

    two shots   every tile has an owner, which adds it up and sends the result back: fewer bytes with more than two
                GPUs, but a second trip.

                  owner   [multiply] . . . . . . . . . wait [add 0, 1, 2, 3][send back][signal][store]
                  others  [multiply][send to owner][signal] . . . . . . . . . . . . . . . wait [store]

    shares      two shots in which every GPU adds up a share of each thread's words: as few bytes, and all GPUs add at
                the same time. `flagged_shares` does so by words with flags, without a fence, barrier or signal.

                  GPU 0   [multiply][share 1 to 1, 2 to 2, 3 to 3] wait [add share 0][send to 1, 2, 3] wait [store]

Signals     counter (tile part, GPU)   the sums of that GPU have arrived: 1 in every launch, 2 with shares. They only
            grow. A thread that signals several GPUs does so after one fence.
Memory      on each GPU two slots for each part of a tile and each GPU, for alternate launches: a GPU is in launch n + 1
            only after it received all signals of launch n, each sent by a GPU that had ended launch n - 1. So no GPU
            waits before it sends.
Each CTA keeps the launch number itself; a launch may be replayed by a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...isa.dtypes import DType, b32, u32, u64
from ...lang import ptx, reg
from ...lang.arrays import RegisterArray
from ...lang.peers import PeerArrays, wrapped
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from ..mma.fragment import pack, thread_of_warpgroup, unpack
from ..tile.bounded_wait import BoundedWait
from ..tile.roles import WARPGROUP

_WORD, _PAIR = 4, 8
_VECTOR = 4
PLACES = 2
"""Slots, used by alternate launches."""
FORMS = ("one_shot", "two_shots", "flagged", "shares", "flagged_shares")
ONE_TRIP, WITH_FLAGS = ("one_shot", "flagged"), ("flagged", "flagged_shares")
"""Those that send everything to all, and those whose words carry flags: twice the bytes, but no fence or signal."""
IN_SHARES = ("shares", "flagged_shares")
"""Those in which every GPU adds up a share of each thread's words."""
TRIPS = 2
"""Of two shots and of shares: to the GPU that adds them up, and back."""
_POLLED = 32
"""Most 64-bit words that a thread polls at a time: two registers each."""


def slot_words(accumulators: int, ranks: int, form: str = "one_shot") -> int:
    """Return the 32-bit words of one slot for this number of accumulators per thread."""
    words = accumulators // 2
    if form in IN_SHARES:
        words = TRIPS * share_of(words, ranks)
    return words * WARPGROUP * (2 if form in WITH_FLAGS else 1)


def share_of(words: int, ranks: int) -> int:
    """Return the words of a thread that a GPU adds up; the last shares are filled up."""
    return -(-words // ranks)


class PeerReduce:
    """See the module's docstring. All GPUs run the same grid, and all of it must be resident.

    Args:
        slots: u32, an array on each GPU: `slot_words` for each part of a tile.
        signals: u32, likewise: a counter for each part of a tile and each GPU, zero before the first launch.
        launches: u32 of this GPU, a number for each CTA, zero before the first launch.
        record: the record of waits that were given up.
        rank: this GPU's rank.
        accumulators: most accumulators of a thread for one part of a tile.
        dtype: the 16-bit type in which sums travel.
        all_consumers: the named barrier and the number of threads of all callers.
        form: one of `FORMS`; see there.
    """

    def __init__(
        self, slots: PeerArrays, signals: PeerArrays, launches: ArrayHandle, record: ArrayHandle, rank: Register, *,
        accumulators: int, dtype: DType, all_consumers: tuple[int, int], form: str = "one_shot",
    ) -> None:  # fmt: skip
        self.slots, self.signals, self.launches, self.rank = slots, signals, launches, rank
        self.bounded, self.dtype, self.form = BoundedWait(record), dtype, form
        self.slot_bytes = slot_words(accumulators, len(slots), form) * _WORD
        self.all_consumers = all_consumers
        self.launch: Register = rank

    def begin(self) -> None:
        """By all threads that will call `combine`, after the previous kernel has ended."""
        self.launch = ptx.load(u32, ptx.addr(self._launch()))

    def combine(self, acc: RegisterArray, complete: range, part: Register, me: int) -> None:
        """Add up the accumulators `complete` over all GPUs; by all threads of consumer `me`.

        part: index of the tile part in the whole grid; the same on all GPUs.
        """
        values = acc[complete.start : complete.stop]
        mine = [pack(values[at : at + 2], self.dtype) for at in range(0, len(values), 2)]
        piece = Piece(self, part, me)
        ranks = len(self.slots)
        others = [wrapped(self.rank + distance, ranks) for distance in range(1, ranks)]  # the next one first
        if self.form == "two_shots":
            total = self._by_owner(mine, piece, others)
        elif self.form == "flagged":
            total = self._flagged(mine, piece, others)
        elif self.form in IN_SHARES:
            total = self._by_shares(mine, piece, others)
        else:
            piece.send(others, mine)
            piece.write(self.rank, mine)
            piece.wait_for(*others)
            total = piece.sums(len(mine))
        for register, value in zip(values, total, strict=True):
            register.set(value)

    def finish(self, me: int) -> None:
        """By all threads, after their last `combine`: the CTA counts its launch."""
        number, threads = self.all_consumers
        ptx.bar.sync(number, threads)
        if me == 0:
            with ptx.if_(thread_of_warpgroup() == 0):
                ptx.store(ptx.addr(self._launch()), self.launch + 1)

    def _launch(self) -> Register:
        place: Register = self.launches.pointer() + ptx.special.ctaid.x().to(u64) * u32.bytes
        return place

    def _flagged(self, mine: Sequence[Register], piece: Piece, others: Sequence[Register]) -> list[Register]:
        """Return the complete sums; this GPU's own words stay in registers."""
        for other in others:
            piece.write_flagged(other, mine)
        came = piece.read_flagged(others, len(mine))
        by_rank: list[Sequence[Register]] = []
        for source in range(len(self.slots)):
            words = list(mine)
            for other, there in zip(others, came, strict=True):
                words = [ptx.select(other == source, new, old) for new, old in zip(there, words, strict=True)]
            by_rank.append(words)
        return _added(by_rank, self.dtype)

    def _by_shares(self, mine: Sequence[Register], piece: Piece, others: Sequence[Register]) -> list[Register]:
        """Return the complete sums, rounded as they travel. A GPU sends to itself, too, so that no register is chosen
        by rank."""
        ranks = len(self.slots)
        share = share_of(len(mine), ranks)
        filled = [*mine, *[mine[-1]] * (share * ranks - len(mine))]
        came = self._trip(piece, others, [filled[at : at + share] for at in range(0, len(filled), share)], 0)
        sums = _added(came, self.dtype)
        done = [pack(sums[at : at + 2], self.dtype) for at in range(0, len(sums), 2)]
        words = [word for share in self._trip(piece, others, [done] * ranks, 1) for word in share]
        return [value for word in words[: len(mine)] for value in unpack(word, self.dtype)]

    def _trip(
        self, piece: Piece, others: Sequence[Register], shares: Sequence[Sequence[Register]], trip: int
    ) -> list[list[Register]]:
        """Send each GPU its share, and return what all GPUs sent here."""
        ranks, count = range(len(shares)), len(shares[0])
        start = trip * self.slot_bytes // TRIPS
        if self.form in WITH_FLAGS:
            for owner in ranks:
                piece.write_flagged(owner, shares[owner], start)
            return piece.read_flagged(ranks, count, start)
        for owner in ranks:
            piece.write(owner, shares[owner], start)
        piece.signal(others)
        piece.wait_for(*others, target=self.launch * TRIPS + 1 + trip)
        return [piece.read(source, count, start) for source in ranks]

    def _by_owner(self, mine: Sequence[Register], piece: Piece, others: Sequence[Register]) -> list[Register]:
        """Return the complete sums by two shots, rounded as they travel, so that the owner has the same values."""
        owner = piece.part % len(self.slots)
        result = [word.copy() for word in mine]
        with ptx.if_(owner == self.rank):
            piece.write(self.rank, mine)
            piece.wait_for(*others)
            sums = piece.sums(len(mine))
            for at, word in enumerate(result):
                pack(sums[2 * at : 2 * at + 2], self.dtype, into=word)
            piece.send(others, result)
        with ptx.else_():
            piece.send([owner], mine)
            piece.wait_for(owner)
            for word, came in zip(result, piece.read(owner, len(result)), strict=True):
                word.set(came)
        return [value for word in result for value in unpack(word, self.dtype)]


class Piece:
    """One part of a tile: its slots and its counters on all GPUs.

    Args:
        part: its index.
        me: the consumer that holds it.
    """

    def __init__(self, over: PeerReduce, part: Register, me: int) -> None:
        self.over, self.part, self.barrier, self.ranks = over, part, 1 + me, len(over.slots)
        self.thread = thread_of_warpgroup()
        place = (part * PLACES + (over.launch & 1)) * self.ranks
        self.offset = place.to(u64) * over.slot_bytes

    def send(self, owners: Sequence[Register], words: Sequence[Register]) -> None:
        """Write this GPU's words to other GPUs, and signal them."""
        for owner in owners:
            self.write(owner, words)
        self.signal(owners)

    def signal(self, owners: Sequence[Register]) -> None:
        """Tell other GPUs that all threads have written: one fence for all."""
        ptx.bar.sync(self.barrier, WARPGROUP)
        with ptx.if_(self.thread == 0):
            ptx.inst("fence.acq_rel.sys")
            for owner in owners:
                place = self.over.signals.pointer(owner) + self._counter(self.over.rank).to(u64) * u32.bytes
                ptx.inst("red.relaxed.sys.global.add.u32", ptx.addr(place), 1)

    def write(self, owner: Register | int, words: Sequence[Register], start: int = 0) -> None:
        """Store this GPU's words in their slot on GPU `owner`; `start`: bytes of the slot before them."""
        target = self.over.slots.pointer(owner) + self._slot(self.over.rank)
        for at, count, offset in _vectors(len(words)):
            address = ptx.addr(target + self.thread * (count * _WORD), start + offset)
            some = list(words[at : at + count])
            ptx.store(address, RegisterArray(some) if count > 1 else some[0])

    def write_flagged(self, owner: Register | int, words: Sequence[Register], start: int = 0) -> None:
        """Store this GPU's words in their slot on GPU `owner`, each together with the launch number, from 1; `start`:
        bytes of the slot before them."""
        target, flag = self.over.slots.pointer(owner) + self._slot(self.over.rank), self.over.launch + 1
        for at, count, offset in _pairs(len(words)):
            pairs = [join(word, flag) for word in words[at : at + count]]
            address = ptx.addr(target + self.thread * (count * _PAIR), start + offset)
            kind = "v2.b64" if count > 1 else "b64"
            ptx.inst(f"st.relaxed.sys.global.{kind}", address, RegisterArray(pairs) if count > 1 else pairs[0])

    def read_flagged(self, sources: Sequence[Register | int], count: int, start: int = 0) -> list[list[Register]]:
        """Return the words that these GPUs sent in this launch; every thread polls until its own have arrived."""
        at_once, found = max(1, _POLLED // count), []
        for first in range(0, len(sources), at_once):
            found += self._polled(sources[first : first + at_once], count, start)
        return found

    def _polled(self, sources: Sequence[Register | int], count: int, start: int) -> list[list[Register]]:
        flag = self.over.launch + 1
        here = self.over.slots.pointer(self.over.rank)
        places = [here + self._slot(source) for source in sources]
        pairs = [[reg.scalar(u64) for _ in range(count)] for _ in sources]
        found = [[reg.scalar(b32) for _ in range(count)] for _ in sources]
        missing, missing_of = reg.scalar(u32), [reg.scalar(u32) for _ in sources]

        def look() -> None:
            for place, some in zip(places, pairs, strict=True):
                for at, width, offset in _pairs(count):
                    address = ptx.addr(place + self.thread * (width * _PAIR), start + offset)
                    into = RegisterArray(some[at : at + width]) if width > 1 else some[at]
                    ptx.inst(f"ld.relaxed.sys.global.{'v2.b64' if width > 1 else 'b64'}", into, address)
            missing.set(0)
            for some, words, of_source in zip(pairs, found, missing_of, strict=True):
                of_source.set(0)
                for pair, word in zip(some, words, strict=True):
                    of_source.set(of_source | (split(pair, into=word) ^ flag))
                missing.set(missing | of_source)

        def late() -> Register:
            index = self._counter(sources[-1])
            for source, of_source in zip(sources[:-1], missing_of, strict=False):
                index = ptx.select(of_source != 0, self._counter(source), index)
            return index

        self.over.bounded.until_done(look, missing, late, flag)
        return found

    def wait_for(self, *sources: Register, target: Register | None = None) -> None:
        """Wait until these GPUs have sent their words; then all threads of the consumer may read them. target: the
        counters' value, one for each launch by default."""
        target = self.over.launch + 1 if target is None else target
        with ptx.if_(self.thread == 0):
            for source in sources:
                counter = self._counter(source)
                place = self.over.signals.pointer(self.over.rank) + counter.to(u64) * u32.bytes
                self.over.bounded.until(place, counter, target)
        ptx.bar.sync(self.barrier, WARPGROUP)

    def read(self, source: Register | int, count: int, start: int = 0) -> list[Register]:
        """Return the words that GPU `source` sent here."""
        found: list[Register] = []
        place = self.over.slots.pointer(self.over.rank) + self._slot(source)
        for _, width, offset in _vectors(count):
            address = ptx.addr(place + self.thread * (width * _WORD), start + offset)
            loaded = ptx.load(b32, address, vector=width)
            found += [loaded] if isinstance(loaded, Register) else list(loaded)
        return found

    def sums(self, count: int) -> list[Register]:
        """Return the sum, in rank order, of what all GPUs sent here."""
        return _added([self.read(source, count) for source in range(self.ranks)], self.over.dtype)

    def _slot(self, source: Register | int) -> Register:
        at = source * self.over.slot_bytes
        here: Register = self.offset + (at.to(u64) if isinstance(at, Register) else at)
        return here

    def _counter(self, source: Register | int) -> Register:
        counter: Register = self.part * self.ranks + source
        return counter


def _added(came: Sequence[Sequence[Register]], dtype: DType) -> list[Register]:
    """The sums in f32, in this order, of words that hold two values each."""
    total: list[Register] = []
    for words in came:
        values = [value for word in words for value in unpack(word, dtype)]
        total = [a + b for a, b in zip(total, values, strict=True)] if total else values
    return total


def join(word: Register, flag: Register) -> Register:
    """A word and its flag as one of 64 bits."""
    pair = reg.scalar(u64)
    ptx.inst("mov.b64", pair, RegisterArray([word, flag]))
    return pair


def split(pair: Register, *, into: Register) -> Register:
    """The flag of a pair; its word goes into a register."""
    flag = reg.scalar(u32)
    ptx.inst("mov.b64", RegisterArray([into, flag]), pair)
    return flag


def _pairs(count: int) -> Iterator[tuple[int, int, int]]:
    """Words with flags, two in a vector: which is the first, how many, and the bytes of all threads before them."""
    for at in range(0, count, 2):
        yield at, min(2, count - at), at * WARPGROUP * _PAIR


def _vectors(count: int) -> Iterator[tuple[int, int, int]]:
    """Words as vectors: which is the first, how many, and the bytes of all threads before them."""
    at = 0
    for width in (_VECTOR, 2, 1):
        while count - at >= width:
            yield at, width, at * WARPGROUP * _WORD
            at += width
