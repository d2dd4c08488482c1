"""A ring of stages filled by TMA, with two barriers per stage.

    full[s]    one arrival of each producer, with the bytes of its tiles     TMA -> consumers
    empty[s]   one arrival of each consumer warpgroup                        consumers -> producers

A wait for phase 1 of a fresh barrier passes at once, so producers start at phase 1 (every stage is empty) and consumers
at phase 0. Both walk the ring by a state, an index and a phase in registers, so loops run at run time.

If the CTAs of a cluster fill each other's stages by multicast, every CTA expects the bytes of the whole stage, and the
consumers of all CTAs tell each of them that a stage may be overwritten.

A ring knows its tiles by the names that the kernel gives them. What is loaded into them, from where, and in how many
copies is the producer's business.
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
    """Where one role stands in the ring."""

    index: Register
    phase: Register


def advance(state: State, stages: int, *, branch: bool = True) -> None:
    """Step to the next of `stages`; the phase turns over after the last. `branch`: see `TmaPipeline.advance`."""
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
    """Of its warpgroup."""
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
    """Anything with mbarriers that one thread initialises before the CTA meets."""

    def init_barriers(self) -> None:
        """By one thread, before `fence.mbarrier_init`."""


class TmaPipeline:
    """A ring of stages; see the module's docstring.

    Args:
        stages: of every tile.
        consumers: warpgroups of a CTA that read each stage.
        ctas: CTAs of the cluster that fill each other's stages; 1 without multicast.
        grid: those CTAs in rows and columns, where each fills stages of its row and of its column alone.
        producers: threads that fill a stage, each with some of its tiles.
        every_thread: all 128 threads of a consumer arrive on both barriers, where one thread of each would do. Correct
            and slow (rung 14 of the ladder takes it back).
        name: prefix of the barriers' names in reports, for kernels with several rings.
        more_bytes: of copies that belong to a stage and go to other memory than a tile.
        tiles: `smem.wgmma_tile`s with that many stages, by name.

    Allocates its barriers. `initialise` makes them usable; all threads of the CTA call it before the first use.
    Raises TraceError if a tile has another number of stages.
    """

    def __init__(
        self, *, stages: int, consumers: int, ctas: int = 1, grid: cluster.ClusterGrid | None = None,
        producers: int = 1, every_thread: bool = False, name: str = "", more_bytes: int = 0, **tiles: OperandTile,
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
        self.ctas = ctas if grid is None else grid.mates
        self._mate = None if grid is None else grid.mate(_thread())
        self.producers = producers
        self.every_thread = every_thread
        self.tiles = tiles
        self.more_bytes = more_bytes
        prefix = f"{name}." if name else ""
        self.full = smem.mbarrier(stages, name=f"{prefix}full")
        self.empty = smem.mbarrier(stages, name=f"{prefix}empty")

    @property
    def stage_bytes(self) -> int:
        """Bytes TMA reports for one stage: what `full` expects."""
        return sum(tile.bytes for tile in self.tiles.values()) + self.more_bytes

    @property
    def full_arrivals(self) -> int:
        """One of each producer, with its bytes; and one of each consumer thread if `every_thread`."""
        return self.producers + self.consumers * WARPGROUP * self.every_thread

    @property
    def empty_arrivals(self) -> int:
        """One of each consumer (or each of its threads) of each CTA that reads what this CTA loads."""
        return self.consumers * self.ctas * (WARPGROUP if self.every_thread else 1)

    def init_barriers(self) -> None:
        """By one thread, before `fence.mbarrier_init`."""
        for stage in range(self.stages):
            ptx.mbarrier.init(self.full[stage], self.full_arrivals)
            ptx.mbarrier.init(self.empty[stage], self.empty_arrivals)

    def initialise(self, *others: HasBarriers) -> None:
        """Thread 0 initialises the barriers of this ring and of `others`; then the CTA meets, or its cluster."""
        with ptx.if_(ptx.special.tid.x() == 0):
            for part in (self, *others):
                part.init_barriers()
            ptx.fence.mbarrier_init()
        if max(getattr(part, "ctas", 1) for part in (self, *others)) > 1:
            cluster.meet()
        else:
            ptx.bar.sync(0)

    # -- where a role stands ---------------------------------------------------------------------------------------

    def producer_state(self) -> State:
        """The start of a producer: every stage is empty."""
        return State(reg.scalar(u32, init=0), reg.scalar(u32, init=1))

    def consumer_state(self) -> State:
        """The start of a consumer: no stage is full."""
        return State(reg.scalar(u32, init=0), reg.scalar(u32, init=0))

    def stage(self, state: State) -> Stage:
        """The stage a state stands at; waits for nothing."""
        return Stage({name: tile[state.index] for name, tile in self.tiles.items()}, self.full[state.index])

    def advance(self, state: State, *, branch: bool = True) -> None:
        """Step to the next stage; the phase turns over at the end of the ring.

        `branch`: jump over the turn (the form every measured kernel has); otherwise both are selected (selp), which
        leaves no branch for ptxas to move arithmetic across.
        """
        advance(state, self.stages, branch=branch)

    def skip(self, state: State, count: Register) -> None:
        """Step over `count` stages that another consumer reads."""
        moved = state.index + count
        state.phase ^= (moved // self.stages) & 1
        state.index.set(moved % self.stages)

    # -- the producer ----------------------------------------------------------------------------------------------

    def producer_acquire(self, state: State, tiles: Sequence[str] | None = None) -> Stage:
        """Wait until the stage is empty, and expect its bytes; the copies into it complete on its `full` barrier.

        tiles: those that this producer loads, if there are several producers; all of them by default.
        """
        ptx.mbarrier.wait(self.empty[state.index], state.phase)
        stage = self.stage(state)
        loaded = self.stage_bytes if tiles is None else sum(self.tiles[name].bytes for name in tiles)
        ptx.mbarrier.arrive_expect_tx(stage.full, loaded)
        return stage

    @contextmanager
    def produce(self, state: State, tiles: Sequence[str] | None = None) -> Iterator[Stage]:
        """`producer_acquire`, the copies, `advance`."""
        yield self.producer_acquire(state, tiles)
        self.advance(state)

    # -- threads that write a stage themselves -----------------------------------------------------------------------

    def writer_acquire(self, state: State) -> Stage:
        """Wait until the stage is empty; each of the ring's `producers` writes its part, then `writer_commit`."""
        ptx.mbarrier.wait(self.empty[state.index], state.phase)
        return self.stage(state)

    def writer_commit(self, state: State, leader: Predicate) -> None:
        """One arrival of a producer, by the thread for which `leader` holds, after all of its threads' writes."""
        ptx.mbarrier.arrive(self.full[state.index], pred=leader)

    # -- a consumer ------------------------------------------------------------------------------------------------

    def wait(self, state: State) -> None:
        """Wait until all bytes of the stage have arrived, without using it yet."""
        self._wait(self.full[state.index], state)

    def consumer_wait(self, state: State) -> Stage:
        """`wait`, and the stage."""
        stage = self.stage(state)
        self._wait(stage.full, state)
        return stage

    def _wait(self, full: BarrierAddress, state: State) -> None:
        if self.every_thread:
            ptx.mbarrier.arrive(full)
        ptx.mbarrier.wait(full, state.phase)

    def leader(self) -> Predicate:
        """Whether this thread releases stages: for `consumer_release`, so that a loop does not compute it again."""
        thread = _thread()
        return thread < self.ctas if self.ctas > 1 else thread == 0

    def consumer_release(
        self, index: State | Register, only: Predicate | None = None, leader: Predicate | None = None
    ) -> None:
        """Let the producers refill the stage: one arrival of the warpgroup, after its MMAs have read it.

        With several CTAs, one arrival on the barrier of each: the n-th thread tells CTA n, or the n-th mate in the grid
        (relaxed, because the wait for the MMAs orders their reads).

        Args:
            index: of the stage.
            only: release where this holds, the same for all threads.
            leader: from `leader()`; computed here by default.
        """
        barrier = self.empty[index.index if isinstance(index, State) else index]
        thread = _thread()
        chosen: Predicate
        if self.ctas > 1:
            chosen = thread < self.ctas if leader is None else leader
            target = thread % self.ctas if self._mate is None else self._mate
            ptx.mbarrier.arrive_remote(barrier, target, pred=chosen if only is None else chosen & only, relaxed=True)
        elif self.every_thread:
            ptx.mbarrier.arrive(barrier, pred=only)
        else:
            chosen = thread == 0 if leader is None else leader
            ptx.mbarrier.arrive(barrier, pred=chosen if only is None else chosen & only)

    @contextmanager
    def consume(self, state: State) -> Iterator[Stage]:
        """`consumer_wait`, the products (completed inside the block), `consumer_release`, `advance`."""
        yield self.consumer_wait(state)
        self.consumer_release(state)
        self.advance(state)
