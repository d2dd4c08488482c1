"""Routing of token rows to experts on several GPUs: the number of rows per destination, and each row's slot.

Expert e belongs to GPU e // (experts / ranks). Every token has `topk` entries, each the number of an expert; any other
number means none. All GPUs tell each other how many rows they have for each expert. Each GPU then knows where its rows
begin in the memory of every other GPU, without requesting slots:

    rows on GPU r    [expert 0: from GPU 0 | from GPU 1 | ... , up to a whole tile][expert 1: ...

A GPU processes its entries in the order of `turn`: the first experts of all GPUs, its own first, then the second ones,
and so on. The first experts of all GPUs are then complete first, and no two GPUs begin by sending to the same GPU.

    clear, count    every CTA counts all entries, and those of the CTAs before it     shared memory
    tell            CTA 0 writes the counts to all GPUs                               counter `told + rank`
    place           every CTA puts its entries into their turn                        counter `placed`
    meet            wait until all have told, and all of this GPU's are placed

If a wait of a launch timed out, its numbers are invalid: check that a slot is in range before you use it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...isa.dtypes import s32, u32, u64
from ...lang import ptx, reg, smem
from ...lang.emit import Operand
from ...lang.peers import PeerArrays, wrapped
from ...lang.predicate import Predicate
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from .groups import WARP, running_sums
from .peer_signals import PeerSignals
from .sizes import MOST_EXPERTS


@dataclass
class Received:
    """The rows of this GPU's experts, as limits for `groups.Groups`: each expert's rows begin with a tile."""

    routing: Routing

    @property
    def count(self) -> Register:
        """The number of experts of this GPU."""
        return self.routing.local

    def of(self, group: Register) -> tuple[Register, Register]:
        """First row of an expert and the row after its last."""
        routing = self.routing
        expert = routing.rank * routing.local + group
        first = routing.first_row(expert)
        return first.view(s32), (first + routing.rows(expert)).view(s32)


class Routing:
    """Called by all threads of a CTA, in the order of the table in the module's docstring.

    In shared memory, per expert: `mine`, this GPU's rows, later those of GPUs before it; `tiles`, the tiles before it;
    `begin`, the start of its turn; `total`, the rows of all GPUs; `whose`, one bit per GPU that has some.

    Args:
        ids: (tokens, topk), the experts. tokens: the number of rows of it that are filled.
        counts: u32 (ranks, experts) on each GPU, written by all.
        order: u32, of this GPU, one word per entry.
        signals: of the launch; told: the first of `ranks` counters; placed: one counter.
        threads: threads of a CTA. tile_m: rows of a tile.
    """

    def __init__(
        self, ids: ArrayHandle, tokens: Register, counts: PeerArrays, order: ArrayHandle, signals: PeerSignals, *,
        told: int, placed: int, threads: int, tile_m: int,
    ) -> None:  # fmt: skip
        self.ids, self.counts, self.order, self.signals = ids, counts, order, signals
        self.told, self.placed, self.threads, self.tile_m = told, placed, threads, tile_m
        self.rank, self.ranks = signals.rank, len(counts)
        self.topk: int = ids.spec.shape[1]  # type: ignore[assignment]
        self.entries = tokens * self.topk
        self.experts = counts.shape[1]
        self.local = self.experts // self.ranks
        words = MOST_EXPERTS + 1
        self.mine, self.tiles, self.begin, self.total, self.whose = (
            smem.array(u32, words, name=f"routing.{name}") for name in ("mine", "tiles", "begin", "total", "whose")
        )

    # -- before the roles diverge ------------------------------------------------------------------------------------

    def clear_and_count(self) -> None:
        """Count the entries of each expert in `mine`. Until `place`, `tiles` counts the entries of the CTAs before this
        one."""
        thread = ptx.special.tid.x()
        for expert in ptx.range(thread, self.experts, self.threads, unroll=False):
            ptx.store(self.mine[expert], reg.scalar(u32, init=0))
            ptx.store(self.tiles[expert], reg.scalar(u32, init=0))
        ptx.bar.sync(0, self.threads)
        first, _ = self._chunk()
        for entry in ptx.range(thread, self.entries, self.threads, unroll=False):
            expert = self.expert(entry)
            with ptx.if_(expert < self.experts):
                ptx.inst("red.relaxed.cta.shared.add.u32", self.mine[expert], 1)
                ptx.inst("red.relaxed.cta.shared.add.u32", self.tiles[expert], 1, pred=entry < first)
        ptx.bar.sync(0, self.threads)

    def tell(self) -> None:
        """Write this GPU's counts to all GPUs, in CTA 0, as soon as they have read the counts of the previous
        launch."""
        thread = ptx.special.tid.x()
        with ptx.if_(ptx.special.ctaid.x() == 0):
            with ptx.if_(thread == 0):
                for owner in range(self.ranks):
                    self.signals.wait_for_launch(reg.scalar(u32, init=owner))
            ptx.bar.sync(0, self.threads)
            for expert in ptx.range(thread, self.experts, self.threads, unroll=False):
                value = ptx.load(u32, self.mine[expert])
                for owner in range(self.ranks):
                    ptx.store(self._count(owner, self.rank, expert), value)
            ptx.bar.sync(0, self.threads)
            with ptx.if_(thread == 0):
                for owner in range(self.ranks):
                    self.signals.add(owner, self.rank + self.told)

    def place(self) -> None:
        """Put this CTA's entries into `order`."""
        thread = ptx.special.tid.x()
        with ptx.if_(thread < WARP):
            running_sums(self.begin, self.experts, self._of_turn)
        ptx.bar.sync(0, self.threads)
        first, last = self._chunk()
        for entry in ptx.range(first + thread, last, self.threads, unroll=False):
            expert = self.expert(entry)
            with ptx.if_(expert < self.experts):
                before = reg.scalar(u32)
                ptx.inst("atom.relaxed.cta.shared.add.u32", before, self.tiles[expert], 1)
                turn = ptx.load(u32, self.begin[self.turn(expert)]) + before
                ptx.store(ptx.addr(self.order.pointer() + turn.to(u64) * u32.bytes), entry)
        ptx.bar.sync(0, self.threads)
        with ptx.if_(thread == 0):
            self.signals.add(self.rank, reg.scalar(u32, init=self.placed))

    def meet(self) -> None:
        """Wait for all GPUs' counts and all of this GPU's entries; after this, the first rows of all experts are
        known."""
        thread = ptx.special.tid.x()
        with ptx.if_(thread == 0):
            for source in range(self.ranks):
                self.signals.wait(reg.scalar(u32, init=self.told + source), 1)
            self.signals.wait(reg.scalar(u32, init=self.placed), ptx.special.nctaid.x())
        ptx.bar.sync(0, self.threads)
        for expert in ptx.range(thread, self.experts, self.threads, unroll=False):
            total, before, whose = (reg.scalar(u32, init=0) for _ in range(3))
            for source in range(self.ranks):
                value = ptx.load(u32, self._count(self.rank, source, expert))
                before += ptx.select(self.rank > source, value, 0)
                total += value
                whose |= ptx.select(value != 0, reg.scalar(u32, init=1 << source), 0)
            ptx.store(self.total[expert], total)
            ptx.store(self.mine[expert], before)
            ptx.store(self.whose[expert], whose)
        ptx.bar.sync(0, self.threads)
        with ptx.if_(thread < WARP):
            running_sums(self.tiles, self.experts, self._tiles_of)
        ptx.bar.sync(0, self.threads)

    # -- after that, any thread ---------------------------------------------------------------------------------------

    def expert(self, entry: Register) -> Register:
        """The expert of an entry; no expert if it is not less than `experts`."""
        return ptx.load(u32, ptx.addr(self.ids.pointer() + entry.to(u64) * u32.bytes))

    def turn(self, expert: Register) -> Register:
        """The position of an expert in the order of turns; see the module's docstring."""
        ahead = expert // self.local + self.ranks - self.rank
        return expert % self.local * self.ranks + wrapped(ahead, self.ranks)

    def sent(self) -> Register:
        """The number of rows that this GPU sends, including those to itself."""
        return ptx.load(u32, self.begin[self.experts])

    def target(self, turn: Register, expert: Register) -> Register:
        """The row that entry `turn` of `order` gets on its expert's GPU."""
        inside = turn - ptx.load(u32, self.begin[self.turn(expert)])
        return self.first_row(expert) + ptx.load(u32, self.mine[expert]) + inside

    def first_row(self, expert: Register) -> Register:
        """The first row of an expert on its GPU."""
        first = expert // self.local * self.local
        return (ptx.load(u32, self.tiles[expert]) - ptx.load(u32, self.tiles[first])) * self.tile_m

    def rows(self, expert: Register) -> Register:
        """The number of rows of an expert, from all GPUs."""
        return ptx.load(u32, self.total[expert])

    def rows_of_tiles(self, expert: Register) -> Register:
        """The number of tiles that cover an expert's rows."""
        return ptx.load(u32, self.tiles[expert + 1]) - ptx.load(u32, self.tiles[expert])

    def has_rows(self, source: Register, expert: Register) -> Predicate:
        """True if GPU `source` has rows for an expert."""
        return (ptx.load(u32, self.whose[expert]) >> source & 1) != 0

    # -- details -----------------------------------------------------------------------------------------------------

    def _chunk(self) -> tuple[Register, Register]:
        """The range of entries that this CTA places."""
        ctas = ptx.special.nctaid.x()
        each = (self.entries + ctas - 1) // ctas
        first = ptx.special.ctaid.x() * each
        last = first + each
        return first, ptx.select(last < self.entries, last, self.entries)

    def _count(self, owner: Register | int, source: Register | int, expert: Register) -> Operand:
        at = source * self.experts + expert
        return ptx.addr(self.counts.pointer(owner) + at.to(u64) * u32.bytes)

    def _of_turn(self, turn: Register) -> Register:
        """The number of entries of the expert with that turn; 0 after the last."""
        found = reg.scalar(u32, init=0)
        with ptx.if_(turn < self.experts):
            owner = wrapped(self.rank + turn % self.ranks, self.ranks)
            found.set(ptx.load(u32, self.mine[owner * self.local + turn // self.ranks]))
        return found

    def _tiles_of(self, expert: Register) -> Register:
        """The number of tiles that cover an expert's rows; 0 after the last."""
        found = reg.scalar(u32, init=0)
        with ptx.if_(expert < self.experts):
            found.set((ptx.load(u32, self.total[expert]) + (self.tile_m - 1)) // self.tile_m)
        return found
