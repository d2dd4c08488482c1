"""A ring of stages filled by TMA, with two barriers per stage.

    full[s]    one arrival of each producer, with the bytes of its tiles     TMA -> consumers
    empty[s]   one arrival of each consumer warpgroup                        consumers -> producers

A wait for phase 1 of a fresh barrier passes at once, so producers start at phase 1 (every stage is empty) and consumers
at phase 0. Both advance through the ring with a state, an index and a phase in registers, so the loops are run-time
loops.

If the CTAs of a cluster fill each other's stages by multicast, every CTA expects the bytes of the whole stage, and the
consumers of all CTAs signal each of them that a stage may be overwritten.

A ring knows its tiles by the names that the kernel gives them. The producer decides what to load into them, from where,
and in how many copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from ...isa.dtypes import u32
from ...lang import ptx, reg, smem
from ...lang.predicate import Predicate
from ...lang.smem import BarrierAddress, OperandTile, TileSlice
from ...lang.values import Register
from ..tile import cluster
from ..tile.roles import WARPGROUP


@dataclass
class State:
    """A role's position in the ring."""

    index: Register
    phase: Register


def advance(state: State, stages: int, *, branch: bool = True) -> None:
    """Step to the next of `stages` stages; the phase flips after the last. `branch`: see `TmaPipeline.advance`."""
    ptx.inst.add.u32(state.index, state.index, 1)
    wraps = state.index == stages
    if branch:
        with ptx.if_(wraps):
            ptx.inst.mov.u32(state.index, 0)
            ptx.inst.xor.b32(state.phase, state.phase, 1)
        return
    state.phase ^= ptx.select(wraps, reg.scalar(u32, init=1), 0)
    state.index.set(ptx.select(wraps, 0, state.index))


def _thread() -> Register:
    """The thread's index within its warpgroup."""
    return ptx.special.tid.x() & (WARPGROUP - 1)


@dataclass
class Stage:
    """One stage of the ring: its tiles by name, as attributes, and the barrier that counts its bytes."""

    tiles: Mapping[str, TileSlice]
    full: BarrierAddress

    def __getattr__(self, name: str) -> TileSlice:
        try:
            return self.tiles[name]
        except KeyError:
            raise AttributeError(f"the stage has no tile {name!r}, only {', '.join(self.tiles)}") from None


class HasBarriers(Protocol):
    """An object with mbarriers that one thread initialises before the CTA synchronises."""

    def init_barriers(self) -> None:
        """Initialise the barriers. Called by one thread, before `fence.mbarrier_init`."""


class TmaPipeline:
    """A ring of stages; see the module's docstring.

    Args:
        stages: stages of the ring and of every tile.
        consumers: warpgroups of a CTA that read each stage.
        ctas: CTAs of the cluster that fill each other's stages; 1 without multicast.
        grid: these CTAs in rows and columns, if each fills only the stages of its row and its column.
        producers: threads that fill a stage, each with some of its tiles.
        every_thread: all 128 threads of a consumer arrive on both barriers, where one thread would do. Correct but slow
            (rung 14 of the ladder removes it).
        name: prefix of the barriers' names in reports, for kernels with several rings.
        more_bytes: bytes of copies that belong to a stage but go to memory outside its tiles.
        readers: threads besides the consumers that read each stage, and let go of it with `reader_release`.
        tiles: `smem.wgmma_tile`s with that many stages, by name.

    Allocates its barriers. `initialise` initialises them; all threads of the CTA call it before the first use.
    Raises TraceError if a tile has another number of stages.
    """

    def __init__(
        self, *, stages: int, consumers: int, ctas: int = 1, grid: cluster.ClusterGrid | None = None,
        producers: int = 1, every_thread: bool = False, name: str = "", more_bytes: int = 0, readers: int = 0,
        **tiles: OperandTile,
    ) -> None:  # fmt: skip
        for tile_name, tile in tiles.items():
            if tile.stages != stages:
                raise tile.trace.error(
                    f"tile {tile_name} does not have the pipeline's stages",
                    expected=f"{stages} stages",
                    got=tile.stages,
                )
        self.stages = stages
        self.consumers = consumers
        self.ctas = ctas if grid is None else grid.multicast_peers
        self._peer = None if grid is None else grid.multicast_peer(_thread())
        self.producers = producers
        self.every_thread = every_thread
        self.tiles = tiles
        self.more_bytes, self.readers = more_bytes, readers
        prefix = f"{name}." if name else ""
        self.full = smem.mbarrier(stages, name=f"{prefix}full")
        self.empty = smem.mbarrier(stages, name=f"{prefix}empty")

    @property
    def stage_bytes(self) -> int:
        """Bytes that TMA reports for one stage, which `full` expects."""
        return sum(tile.bytes for tile in self.tiles.values()) + self.more_bytes

    @property
    def full_arrivals(self) -> int:
        """One arrival per producer, with its bytes, plus one per consumer thread if `every_thread`."""
        return self.producers + self.consumers * WARPGROUP * self.every_thread

    @property
    def empty_arrivals(self) -> int:
        """One arrival per consumer (or consumer thread) of each CTA that reads what this CTA loads, and per reader."""
        return self.consumers * self.ctas * (WARPGROUP if self.every_thread else 1) + self.readers

    def init_barriers(self) -> None:
        """Initialise the barriers. Called by one thread, before `fence.mbarrier_init`."""
        for stage in range(self.stages):
            ptx.mbarrier.init(self.full[stage], self.full_arrivals)
            ptx.mbarrier.init(self.empty[stage], self.empty_arrivals)

    def initialise(self, *others: HasBarriers) -> None:
        """Initialise the barriers of this ring and of `others` in thread 0, then synchronise the CTA, or its
        cluster."""
        with ptx.if_(ptx.special.tid.x() == 0):
            for part in (self, *others):
                part.init_barriers()
            ptx.fence.mbarrier_init()
        if max(getattr(part, "ctas", 1) for part in (self, *others)) > 1:
            cluster.sync_after_init()
        else:
            ptx.bar.sync(0)

    # -- positions in the ring -------------------------------------------------------------------------------------

    def producer_state(self) -> State:
        """The initial state of a producer: every stage is empty."""
        return State(reg.scalar(u32, init=0), reg.scalar(u32, init=1))

    def consumer_state(self) -> State:
        """The initial state of a consumer: no stage is full."""
        return State(reg.scalar(u32, init=0), reg.scalar(u32, init=0))

    def stage(self, state: State) -> Stage:
        """The stage at a state, without waiting."""
        return Stage({name: tile[state.index] for name, tile in self.tiles.items()}, self.full[state.index])

    def advance(self, state: State, *, branch: bool = True) -> None:
        """Step to the next stage; the phase flips at the end of the ring.

        `branch`: jump over the flip, as in every measured kernel. Otherwise index and phase are selected (selp), which
        leaves no branch for ptxas to move arithmetic across.
        """
        advance(state, self.stages, branch=branch)

    def skip(self, state: State, count: Register) -> None:
        """Advance by `count` stages, which another consumer reads."""
        moved = state.index + count
        state.phase ^= (moved // self.stages) & 1
        state.index.set(moved % self.stages)

    # -- the producer ----------------------------------------------------------------------------------------------

    def producer_acquire(
        self, state: State, tiles: Sequence[str] | None = None, stage_bytes: Register | None = None
    ) -> Stage:  # fmt: skip
        """Wait until the stage is empty, then expect its bytes; copies into it complete on its `full` barrier.

        tiles: the tiles that this producer loads, if there are several producers; by default all.
        stage_bytes: what they bring, if boxes are clipped; by default whole tiles.
        """
        ptx.mbarrier.wait(self.empty[state.index], state.phase)
        stage = self.stage(state)
        loaded: int | Register = self.stage_bytes if tiles is None else sum(self.tiles[name].bytes for name in tiles)
        if stage_bytes is not None:
            loaded = stage_bytes
        ptx.mbarrier.arrive_expect_tx(stage.full, loaded)
        return stage

    @contextmanager
    def produce(
        self, state: State, tiles: Sequence[str] | None = None, stage_bytes: Register | None = None
    ) -> Iterator[Stage]:  # fmt: skip
        """Acquire the stage, run the block, which issues the copies, and advance."""
        yield self.producer_acquire(state, tiles, stage_bytes)
        self.advance(state)

    def producer_tail(self, state: State) -> None:
        """Wait, after the last stage, until every CTA has released all stages that this producer filled. With
        multicast, a CTA may exit only then: before, its copies may be in flight, and others arrive on its barriers."""
        for _ in ptx.range(self.stages, unroll=False):
            ptx.mbarrier.wait(self.empty[state.index], state.phase)
            self.advance(state)

    # -- threads that write a stage themselves -----------------------------------------------------------------------

    def writer_acquire(self, state: State) -> Stage:
        """Wait until the stage is empty; each of the ring's `producers` writes its part, then calls `writer_commit`."""
        ptx.mbarrier.wait(self.empty[state.index], state.phase)
        return self.stage(state)

    def writer_commit(self, state: State, leader: Predicate) -> None:
        """Arrive once for a producer, in the thread where `leader` holds, after all of its threads' writes."""
        ptx.mbarrier.arrive(self.full[state.index], pred=leader)

    # -- a consumer ------------------------------------------------------------------------------------------------

    def wait(self, state: State) -> None:
        """Wait until all bytes of the stage have arrived."""
        self._wait(self.full[state.index], state)

    def consumer_wait(self, state: State) -> Stage:
        """Wait until all bytes of the stage have arrived, and return the stage."""
        stage = self.stage(state)
        self._wait(stage.full, state)
        return stage

    def _wait(self, full: BarrierAddress, state: State) -> None:
        if self.every_thread:
            ptx.mbarrier.arrive(full)
        ptx.mbarrier.wait(full, state.phase)

    def leader(self) -> Predicate:
        """True in the threads that release stages. Pass it to `consumer_release`, so that a loop does not recompute
        it."""
        thread = _thread()
        return thread < self.ctas if self.ctas > 1 else thread == 0

    def consumer_release(
        self, index: State | Register, only: Predicate | None = None, leader: Predicate | None = None
    ) -> None:
        """Let the producers refill the stage: one arrival of the warpgroup, after its MMAs have read the stage.

        With several CTAs, the n-th thread arrives on the barrier of CTA n, or of its n-th multicast peer. The arrival
        is relaxed, because the wait for the MMAs orders their reads.

        Args:
            index: index of the stage.
            only: release only if this holds; uniform in the warpgroup.
            leader: the result of `leader()`; computed here by default.
        """
        barrier = self.empty[index.index if isinstance(index, State) else index]
        thread = _thread()
        chosen: Predicate
        if self.ctas > 1:
            chosen = thread < self.ctas if leader is None else leader
            target = thread % self.ctas if self._peer is None else self._peer
            ptx.mbarrier.arrive_remote(barrier, target, pred=chosen if only is None else chosen & only, relaxed=True)
        elif self.every_thread:
            ptx.mbarrier.arrive(barrier, pred=only)
        else:
            chosen = thread == 0 if leader is None else leader
            ptx.mbarrier.arrive(barrier, pred=chosen if only is None else chosen & only)

    def reader_release(self, state: State) -> None:
        """Let the producers refill the stage, for one of its `readers`, in one thread."""
        ptx.mbarrier.arrive(self.empty[state.index])

    @contextmanager
    def consume(self, state: State) -> Iterator[Stage]:
        """Wait for the stage, run the block, which must complete its MMAs, then release the stage and advance."""
        yield self.consumer_wait(state)
        self.consumer_release(state)
        self.advance(state)
