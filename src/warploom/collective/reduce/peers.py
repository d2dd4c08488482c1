"""All-reduce of one tile over several GPUs, whose words are their own flags.

Every GPU has multiplied its part of K; all get the complete sums. As between CTAs (`split_k`), accumulators keep the
MMA's register layout: a thread reads what the same thread of another GPU sent, 16 bytes at a time. Partial sums travel
rounded to a 16-bit type, as with NCCL, and are added in f32 in rank order: all GPUs get the same bits, in every run.

A slot holds zeros until its words arrive, and a word that travels is never zero: it is inverted, and no pair of
rounded values has all bits set (cvt makes 0x7FFF of a NaN). So a thread polls the words themselves, and needs no fence,
barrier or signal, and no other bytes travel. It then writes zeros for the launch after the next.

    one shot    every GPU sends its partial sums to all, and adds up all of them.

                  GPU 0   [multiply][send to 1, 2, 3] poll [add 0, 1, 2, 3][store]

    two shots   every GPU adds up a share of each thread's words and sends the sums to all: fewer bytes with more than
                two GPUs, but a second trip.

                  GPU 0   [multiply][share 1 to 1, 2 to 2, 3 to 3] poll [add share 0][send to 1, 2, 3] poll [store]

A GPU sends to itself, too, so that sums are added in rank order without choosing registers by rank.

Memory      on each GPU two slots for each part of a tile, trip and GPU, for alternate launches, zero before the first
            launch. A GPU is in launch n + 1 only after it received all words of launch n, each sent by a GPU that had
            ended launch n - 1, and zeroed what it received there. So no GPU waits before it sends; the kernels in
            between order a zero and the word that replaces it in launch n + 2.
Each CTA keeps the launch number itself; a launch may be replayed by a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...isa.dtypes import DType, u32, u64
from ...lang import ptx, reg
from ...lang.arrays import RegisterArray
from ...lang.peers import PeerArrays, wrapped
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from ..mma.fragment import pack, thread_of_warpgroup, unpack
from ..tile.bounded_wait import BoundedWait
from ..tile.roles import WARPGROUP

_WORD, _VECTOR = 4, 4
BUFFERS = 2
"""Slots, used by alternate launches."""
SHOTS = {"one_shot": 1, "two_shot": 2}
FORMS = tuple(SHOTS)
_POLLED = 64
"""Most words that a thread polls at a time."""


def slot_words(accumulators: int, ranks: int, form: str) -> int:
    """Return the 32-bit words of one slot for this number of accumulators per thread."""
    words = accumulators // 2
    return WARPGROUP * (words if form == "one_shot" else SHOTS[form] * share_of(words, ranks))


def share_of(words: int, ranks: int) -> int:
    """Return the words of a thread that a GPU adds up; the last shares are filled up."""
    return -(-words // ranks)


class PeerReduce:
    """See the module's docstring. All GPUs run the same grid, and all of it must be resident.

    Args:
        slots: u32, an array on each GPU: two slots of `slot_words` for each part of a tile and each GPU that sends.
        launches: u32 of this GPU, a number for each CTA, zero before the first launch.
        record: the record of waits that timed out.
        rank: this GPU's rank.
        accumulators: most accumulators of a thread for one part of a tile.
        dtype: the 16-bit type in which sums travel.
        all_consumers: the named barrier and the number of threads of all callers.
        form: one of `FORMS`.
    """

    def __init__(
        self, slots: PeerArrays, launches: ArrayHandle, record: ArrayHandle, rank: Register, *,
        accumulators: int, dtype: DType, all_consumers: tuple[int, int], form: str,
    ) -> None:  # fmt: skip
        self.slots, self.launches, self.rank, self.dtype, self.form = slots, launches, rank, dtype, form
        self.bounded, self.ranks = BoundedWait(record), len(slots)
        self.slot_bytes = slot_words(accumulators, self.ranks, form) * _WORD
        self.all_consumers = all_consumers
        self.launch: Register = rank
        self._sent: list[tuple[RegisterArray, Register]] = []

    def begin(self) -> None:
        """By all threads that will send, after the previous kernel has ended."""
        self.launch = ptx.load(u32, ptx.addr(self._launch()))

    def finish(self, me: int) -> None:
        """By all threads, after all else: the CTA counts its launch."""
        number, threads = self.all_consumers
        ptx.bar.sync(number, threads)
        if me == 0:
            with ptx.if_(thread_of_warpgroup() == 0):
                ptx.store(ptx.addr(self._launch()), self.launch + 1)

    def _launch(self) -> Register:
        place: Register = self.launches.pointer() + ptx.special.ctaid.x().to(u64) * u32.bytes
        return place

    # -- parts of a tile, by all threads of a consumer -------------------------------------------------------------

    def send(self, values: RegisterArray, part: Register) -> None:
        """Send partial sums, which `received` replaces. part: index of the tile part in the whole grid, the same on all
        GPUs."""
        words = [pack(values[at : at + 2], self.dtype) for at in range(0, len(values), 2)]
        self._sent.append((values, part))
        if self.form == "one_shot":
            self._write(part, [words] * self.ranks)
            return
        share = share_of(len(words), self.ranks)
        filled = [*words, *[words[-1]] * (share * self.ranks - len(words))]
        self._write(part, [filled[at : at + share] for at in range(0, len(filled), share)])

    def received(self) -> Iterator[None]:
        """Set the values of all parts sent so far to the complete sums, one part after the other. With two shots they
        are rounded as they travel, so that all GPUs have the same."""
        sent, self._sent = self._sent, []
        if self.form == "two_shot":
            for values, part in sent:
                self._add_share(values, part)
        for values, part in sent:
            count = len(values) // 2
            if self.form == "one_shot":
                total = _added(self._read(part, count), self.dtype)
            else:
                came = self._read(part, share_of(count, self.ranks), self.slot_bytes // 2)
                words = [word for share in came for word in share]
                total = [value for word in words[:count] for value in unpack(word, self.dtype)]
            for register, value in zip(values, total, strict=True):
                register.set(value)
            yield

    def _add_share(self, values: RegisterArray, part: Register) -> None:
        """Add up this GPU's share of a part, and send the sums to all."""
        sums = _added(self._read(part, share_of(len(values) // 2, self.ranks)), self.dtype)
        done = [pack(sums[at : at + 2], self.dtype) for at in range(0, len(sums), 2)]
        self._write(part, [done] * self.ranks, self.slot_bytes // 2)

    # -- slots -----------------------------------------------------------------------------------------------------

    def _slot(self, part: Register, source: Register | int, start: int) -> Register:
        """The byte of this thread's first word of a slot, `start` bytes into it."""
        slot = (part * BUFFERS + (self.launch & 1)) * self.ranks + source
        here: Register = slot.to(u64) * self.slot_bytes + start
        return here

    def _write(self, part: Register, words: Sequence[Sequence[Register]], start: int = 0) -> None:
        """Store words to all GPUs, given by rank; to the next GPU first, so that no two begin with the same one."""
        offset = self._slot(part, self.rank, start)
        inverted = [[~word for word in some] for some in (words[:1] if words[0] is words[-1] else words)]
        for distance in range(1, self.ranks + 1):
            owner = wrapped(self.rank + distance, self.ranks)
            target, chosen = self.slots.pointer(owner) + offset, inverted[0]
            for rank, some in enumerate(inverted[1:], 1):
                chosen = [ptx.select(owner == rank, new, old) for new, old in zip(some, chosen, strict=True)]
            for at, width, behind in _vectors(len(chosen)):
                _put(target, width, behind, chosen[at : at + width])

    def _read(self, part: Register, count: int, start: int = 0) -> list[list[Register]]:
        """Return the words that all GPUs sent here, by rank; each thread polls until its own have arrived, and zeroes
        their slots."""
        at_once, found = max(1, _POLLED // count), []
        for first in range(0, self.ranks, at_once):
            found += self._polled(part, range(first, min(first + at_once, self.ranks)), count, start)
        return found

    def _polled(self, part: Register, sources: range, count: int, start: int) -> list[list[Register]]:
        here = self.slots.pointer(self.rank)
        slots = [here + self._slot(part, source, start) for source in sources]
        came = [[reg.scalar(u32) for _ in range(count)] for _ in sources]
        least, least_of = reg.scalar(u32), [reg.scalar(u32) for _ in sources]

        def look() -> None:
            for slot, words in zip(slots, came, strict=True):
                for at, width, behind in _vectors(count):
                    into = RegisterArray(words[at : at + width]) if width > 1 else words[at]
                    kind = f"v{width}.u32" if width > 1 else "u32"
                    ptx.inst(f"ld.relaxed.sys.global.{kind}", into, _address(slot, width, behind))
            for words, of_source in zip(came, least_of, strict=True):
                _set_to_least(of_source, words)
            _set_to_least(least, least_of)

        def late() -> Register:
            index = part * self.ranks + sources[-1]
            for source, of_source in zip(sources[:-1], least_of, strict=False):
                index = ptx.select(of_source == 0, part * self.ranks + source, index)
            return index

        self.bounded.until_nonzero(look, least, late, self.launch + 1)
        zeros = [reg.scalar(u32, init=0) for _ in range(min(count, _VECTOR))]
        for slot in slots:
            for _, width, behind in _vectors(count):
                _put(slot, width, behind, zeros[:width])
        return [[~word for word in words] for words in came]


def _set_to_least(least: Register, words: Sequence[Register]) -> None:
    least.set(words[0])
    for word in words[1:]:
        ptx.inst("min.u32", least, least, word)


def _put(slot: Register, width: int, behind: int, words: Sequence[Register]) -> None:
    """Store a vector of words of this thread."""
    kind = f"v{width}.b32" if width > 1 else "b32"
    some = RegisterArray(list(words)) if width > 1 else words[0]
    ptx.inst(f"st.relaxed.sys.global.{kind}", _address(slot, width, behind), some)


def _address(slot: Register, width: int, behind: int) -> object:
    return ptx.addr(slot + thread_of_warpgroup() * (width * _WORD), behind)


def _added(came: Sequence[Sequence[Register]], dtype: DType) -> list[Register]:
    """The sums in f32, in this order, of words that hold two values each."""
    total: list[Register] = []
    for words in came:
        values = [value for word in words for value in unpack(word, dtype)]
        total = [a + b for a, b in zip(total, values, strict=True)] if total else values
    return total


def _vectors(count: int) -> Iterator[tuple[int, int, int]]:
    """Words as vectors: which is the first, how many, and the bytes of all threads before them."""
    at = 0
    for width in (_VECTOR, 2, 1):
        while count - at >= width:
            yield at, width, at * WARPGROUP * _WORD
            at += width
