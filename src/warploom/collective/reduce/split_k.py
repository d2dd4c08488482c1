"""Split-K reduction: several CTAs each multiply a split of K for one tile, and add their partial sums in split order.

Partial sums stay in registers in the MMA's layout. Thread t of a consumer has the same elements in every CTA, so the
exchange is indexed by thread, 16 bytes each, and nothing is reordered. The order of addition does not depend on which
CTA finishes first, so every run and every kind of exchange gives the same bits.

    DsmemReduce      in a cluster: each CTA adds up some pieces of the tile. The others' partial sums arrive by st.async
                     in memory allocated for them, and a barrier counts their bytes.

                       part 0   [multiply][send pieces 2, 3][wait for bytes][add pieces 0, 1][store them]
                       part 1   [multiply][send pieces 0, 1][wait for bytes][add pieces 2, 3][store them]

    SemaphoreReduce  in a grid: each CTA writes its partial sums to a workspace and increments a counter. The last CTA
                     reads all of them back. The counter wraps to zero (atom.inc), ready for the next launch.

                       part 0   [multiply][write][count: not the last, done]
                       part 1         [multiply][write][count: the last][read and add all][store them]

    StreamKFixup     the same for a stream-K schedule, in which a CTA has stages of several tiles, most of them whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from ...isa.dtypes import f32, u32, u64
from ...lang import ptx, reg, smem
from ...lang.arrays import RegisterArray
from ...lang.predicate import Predicate
from ...lang.tile import ArrayHandle
from ...lang.trace import Trace
from ...lang.values import Register
from ..tile.roles import WARPGROUP
from ..tile.sizes import exchange_width, owned
from ..tile.stream_k import Segment, SplitKSchedule

_F32 = 4
_VECTOR = 4
MANY_ACCUMULATORS = 48
"""Accumulators of a thread from which the sums of one split are enough loads at a time; those of all splits would take
registers that a large tile does not have."""


class NoReduce:
    """No split of K: nothing to exchange."""

    def init_barriers(self) -> None:
        """Do nothing."""

    def ready(self) -> None:
        """Do nothing: no other CTA is needed."""

    def combine(self, acc: RegisterArray, me: int, segment: Segment | None = None) -> Iterator[range]:
        """Yield all accumulators, which are complete."""
        yield range(len(acc))

    def combine_parts(
        self, parts: Sequence[RegisterArray], first: int, segment: Segment | None = None
    ) -> Iterator[tuple[int, range]]:
        """Like `combine` for a warpgroup's parts of a tile, numbered from `first`: yield each with its index."""
        for index, acc in enumerate(parts):
            for complete in self.combine(acc, first + index, segment):
                yield index, complete


class DsmemReduce(NoReduce):
    """The reduction in a cluster; see the module's docstring.

    Args:
        accumulators: accumulators per thread.
        consumers: warpgroups of a CTA, each with its own tile.
        splits: CTAs of the cluster.
    """

    def __init__(self, accumulators: int, consumers: int, splits: int) -> None:
        self.splits = splits
        self.width = exchange_width(accumulators, splits)
        self.pieces = accumulators // self.width
        if self.pieces < splits or accumulators % self.width:
            raise Trace.current().error(
                f"{splits} CTAs cannot share the sums of a tile", expected=f"at most {accumulators}", got=splits
            )
        self.most = max(len(self.owned(rank)) for rank in range(splits))
        self.sums = smem.array(f32, (consumers, splits - 1, self.most, WARPGROUP * self.width), name="sums")
        self.received = smem.mbarrier(consumers, name="received")

    def owned(self, rank: int) -> range:
        """The pieces that a CTA adds up."""
        return owned(self.pieces, self.splits, rank)

    def init_barriers(self) -> None:
        """Initialise the barriers. Called by one thread, before `fence.mbarrier_init` and the cluster barrier."""
        for barrier in self.received:
            ptx.mbarrier.init(barrier, 1)

    def ready(self) -> None:
        """Wait at the cluster barrier: all CTAs of the cluster have started and initialised their barriers."""
        ptx.cluster.wait()

    def combine(self, acc: RegisterArray, me: int, segment: Segment | None = None) -> Iterator[range]:
        """Exchange; called by all threads of consumer `me`. The body stores the accumulators of a range, which are
        complete.

        It is traced once per split, each in its own branch.
        """
        rank = ptx.special.cluster_ctarank()
        thread = ptx.special.tid.x() & (WARPGROUP - 1)
        for part in range(self.splits):
            with ptx.if_(rank == part):
                self._send(acc, me, part, thread)
                self._add(acc, me, part, thread)
                mine = self.owned(part)
                yield range(mine.start * self.width, mine.stop * self.width)

    def _send(self, acc: RegisterArray, me: int, part: int, thread: Register) -> None:
        """Send each other CTA its pieces: one st.async per thread and piece."""
        kind = {1: "", 2: ".v2", 4: ".v4"}[self.width]
        opcode = f"st.async.weak.shared::cluster.mbarrier::complete_tx::bytes{kind}.f32"
        for other in range(self.splits):
            if other == part:
                continue
            slot = part if part < other else part - 1
            here = self.sums[me, slot].register() + thread * (self.width * _F32)
            target = ptx.cluster.map_shared(here, other)
            barrier = ptx.cluster.map_shared(self.received[me], other)
            for index, piece in enumerate(self.owned(other)):
                values = acc[piece * self.width : (piece + 1) * self.width]
                destination = target + index * WARPGROUP * self.width * _F32
                ptx.inst(opcode, destination, values if self.width > 1 else values[0], barrier)

    def _add(self, acc: RegisterArray, me: int, part: int, thread: Register) -> None:
        """Wait for all bytes, then add the partial sums in the order of the splits."""
        mine = self.owned(part)
        size = (self.splits - 1) * len(mine) * WARPGROUP * self.width * _F32
        ptx.mbarrier.arrive_expect_tx(self.received[me], size, pred=thread == 0)
        ptx.mbarrier.wait(self.received[me], 0, scope="cluster")
        for index, piece in enumerate(mine):
            received = [
                _list(ptx.load(f32, self.sums[me, slot, index] + thread * (self.width * _F32), vector=self.width))
                for slot in range(self.splits - 1)
            ]
            own = acc[piece * self.width : (piece + 1) * self.width]
            in_order = [*received[:part], list(own), *received[part:]]
            for position, register in enumerate(own):
                total = in_order[0][position]
                for theirs in in_order[1:]:
                    total = total + theirs[position]
                register.set(total)


class _Counted(NoReduce):
    """The base of both reductions through a workspace: blocks of 16 bytes per thread, and a count of arrivals.

    A warpgroup with several parts of a tile (`of_warpgroup`) has that many blocks, numbered in order, and one count.
    """

    def __init__(
        self, workspace: ArrayHandle, counters: ArrayHandle, consumers: int, of_warpgroup: int = 1
    ) -> None:  # fmt: skip
        self.workspace, self.counters, self.consumers = workspace, counters, consumers
        self.warpgroups = consumers // of_warpgroup
        self.arrived = smem.array(u32, self.warpgroups, name="arrived")

    def _block(self, acc: RegisterArray, number: Register, me: int, thread: Register) -> Register:
        """The address of this thread's sums of block `number`."""
        size = len(acc) * WARPGROUP * _F32
        inside = (thread * (_VECTOR * _F32)).to(u64)
        return self.workspace.pointer() + (number * self.consumers + me).to(u64) * size + inside

    def _write(self, acc: RegisterArray, block: Register) -> None:
        for index in range(0, len(acc), _VECTOR):
            ptx.store(ptx.addr(block, index * WARPGROUP * _F32), acc[index : index + _VECTOR])

    def _read(self, acc: RegisterArray, block: Register, *, add: bool) -> None:
        for index in range(0, len(acc), _VECTOR):
            loaded = ptx.load(f32, ptx.addr(block, index * WARPGROUP * _F32), vector=_VECTOR)
            for position, value in enumerate(loaded):
                register = acc[index + position]
                register.set(register + value if add else value)

    def _is_last(self, counter: Register, me: int, thread: Register, parts: Register | int) -> Predicate:
        """True if all other splits have arrived; the same in all threads of warpgroup `me`."""
        barrier = 1 + me
        ptx.bar.sync(barrier, WARPGROUP)
        with ptx.if_(thread == 0):
            counter_address = ptx.addr(self.counters.pointer() + (counter * self.warpgroups + me).to(u64) * u32.bytes)
            count = ptx.atomic.inc(counter_address, parts - 1, order="acq_rel")
            ptx.store(self.arrived[me], count)
        ptx.bar.sync(barrier, WARPGROUP)
        before = ptx.load(u32, self.arrived[me])
        is_last: Predicate = before == parts - 1
        return is_last


class SemaphoreReduce(_Counted):
    """The reduction through a workspace; see the module's docstring.

    Args:
        workspace: f32, accumulators * 128 * consumers per split of each tile.
        counters: u32, one per tile and warpgroup, zero before the first launch and after every launch.
        work: this CTA's split.
        consumers: parts of a tile; of_warpgroup: how many of them each warpgroup has.

    Does not wait for an earlier kernel that uses the workspace: call it after `griddepcontrol.wait`.
    """

    def __init__(
        self, workspace: ArrayHandle, counters: ArrayHandle, work: SplitKSchedule, consumers: int, of_warpgroup: int = 1
    ) -> None:  # fmt: skip
        super().__init__(workspace, counters, consumers, of_warpgroup)
        self.work, self.of_warpgroup = work, of_warpgroup

    def combine(self, acc: RegisterArray, me: int, segment: Segment | None = None) -> Iterator[range]:
        """Write the partial sums and count; the last split adds up. Like `DsmemReduce.combine`, but yields all
        accumulators or none."""
        for _, complete in self.combine_parts([acc], me, segment):
            yield complete

    def combine_parts(
        self, parts: Sequence[RegisterArray], first: int, segment: Segment | None = None
    ) -> Iterator[tuple[int, range]]:
        """Like `combine`. All parts are written before the count, which waits for the writes."""
        assert segment is not None
        thread, splits = ptx.special.tid.x() & (WARPGROUP - 1), self.work.splits
        tile = ptx.special.ctaid.y() * self.work.tiles + segment.tile
        stride = self.consumers * len(parts[0]) * WARPGROUP * _F32
        bases = [self._block(acc, tile * splits, first + index, thread) for index, acc in enumerate(parts)]
        for acc, base in zip(parts, bases, strict=True):
            self._write(acc, base + self.work.split.to(u64) * stride)
        with ptx.if_(self._is_last(tile, first // self.of_warpgroup, thread, splits)):
            for index, (acc, base) in enumerate(zip(parts, bases, strict=True)):
                if len(acc) >= MANY_ACCUMULATORS:
                    self._read(acc, base, add=False)
                    for split in ptx.range(1, splits, unroll=False):
                        self._read(acc, base + split.to(u64) * stride, add=True)
                else:
                    self._read_together(acc, base, stride)
                yield index, range(len(acc))

    def _read_together(self, acc: RegisterArray, base: Register, stride: int) -> None:
        """Add up all splits, a few accumulators at a time, so that enough loads are in flight."""
        for index in range(0, len(acc), _VECTOR):
            offset = index * WARPGROUP * _F32
            total = ptx.load(f32, ptx.addr(base, offset), vector=_VECTOR)
            for part in range(1, self.work.splits):
                more = ptx.load(f32, ptx.addr(base, offset + part * stride), vector=_VECTOR)
                for one, other in zip(total, more, strict=True):
                    one += other
            for position in range(_VECTOR):
                acc[index + position].set(total[position])


class SharedTiles(Protocol):
    """A schedule in which a CTA shares at most two tiles with other CTAs.

    Attributes:
        cta: index of this CTA; ctas: CTAs that share tiles; tiles: shared tiles, along grid x.
    """

    cta: Register
    ctas: Register
    tiles: Register

    def owners(self, tile: Register) -> tuple[Register, Register]:
        """The first and the last CTA with k-tiles of a tile."""


class StreamKFixup(_Counted):
    """For `StreamKSchedule` and `Rest`: whole tiles need no other CTA; the last CTA of each other tile adds it up.

    Args:
        workspace: f32, 2 * accumulators * 128 * consumers per CTA, which shares at most two tiles with others.
        counters: u32, one per tile and consumer, zero before the first launch and after every launch.
        work: this CTA's stages.
        consumers: warpgroups of a CTA.
    """

    def __init__(self, workspace: ArrayHandle, counters: ArrayHandle, work: SharedTiles, consumers: int) -> None:
        super().__init__(workspace, counters, consumers)
        self.work = work

    def combine(self, acc: RegisterArray, me: int, segment: Segment | None = None) -> Iterator[range]:
        """Like `SemaphoreReduce.combine`."""
        assert segment is not None and segment.whole is not None
        complete = reg.predicate(segment.whole)
        with ptx.if_(~segment.whole):
            complete.set(self._share(acc, me, segment))
        with ptx.if_(complete):
            yield range(len(acc))

    def _share(self, acc: RegisterArray, me: int, segment: Segment) -> Predicate:
        """Write the partial sums and count; the last split adds up. True in the CTA that then has the sums."""
        work, thread = self.work, ptx.special.tid.x() & (WARPGROUP - 1)
        first, last = work.owners(segment.tile)
        across = ptx.special.ctaid.y()
        self._write(acc, self._block(acc, self._number(work.cta, first, across), me, thread))
        is_last = self._is_last(across * work.tiles + segment.tile, me, thread, last - first + 1)

        with ptx.if_(is_last):
            self.add_up(first, last, lambda cta, add: self._read(
                acc, self._block(acc, self._number(cta, first, across), me, thread), add=add
            ))  # fmt: skip
        return is_last

    def add_up(self, first: Register, last: Register, read: Callable[[Register, bool], None]) -> None:
        """Add up the partial sums of CTAs `first` to `last`. read(cta, add) reads those of a CTA, or adds them."""
        read(first, False)
        for cta in ptx.range(first + 1, last + 1):
            read(cta, True)

    def _number(self, cta: Register, first: Register, across: Register) -> Register:
        """Block of a CTA for the tile that `first` begins: a CTA begins at most one tile that it does not finish."""
        return (across * self.work.ctas + cta) * 2 + ptx.select(cta == first, reg.scalar(u32, init=1), 0)


def _list(loaded: Register | RegisterArray) -> list[Register]:
    return [loaded] if isinstance(loaded, Register) else list(loaded)
