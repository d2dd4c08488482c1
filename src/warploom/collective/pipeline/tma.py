"""A ring of stages filled by TMA and emptied by wgmma, with its two barriers per stage.

    full[s]    1 arrival (the producer's, with the bytes of the stage)     TMA -> consumers
               or one of each producer, with the bytes of its tiles
    empty[s]   one arrival for each consumer warpgroup                     consumers -> producer

A fresh barrier lets a wait for phase 1 pass at once, so producers start at phase 1 (all stages are empty) and
consumers at phase 0. Both walk the ring by a state of index and phase held in registers, so loops run at run time.

In a cluster whose CTAs multicast to each other a stage is filled by all of them: every CTA expects the whole bytes,
and is told by the consumers of all CTAs that a stage may be overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ...isa.dtypes import u32
from ...lang import ptx, reg, smem
from ...lang.predicate import Predicate
from ...lang.smem import BarrierAddress, TileSlice, WgmmaTile
from ...lang.values import Register
from ..tile import cluster as clusters
from ..tile.roles import WARPGROUP


@dataclass
class State:
    """Where one role stands in the ring."""

    index: Register
    phase: Register


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


class TmaPipeline:
    """See the module's docstring.

    Args:
        stages: how many stages the tiles have.
        consumers: how many warpgroups of a CTA read each stage.
        ctas: how many CTAs of the cluster fill each other's stages; 1 without multicast.
        shared: name of the tile that they all need, of which each loads a slice.
        producers: threads that fill a stage, each with some of its tiles.
        every_thread: all 128 threads of a consumer arrive on both barriers, where one of them would do. Correct and
            slow: what a first version in CUDA C++ does (rung 14 of the ladder takes it back).
        tiles: `smem.wgmma_tile`s with that many stages, by name.

    Allocates and initialises its barriers; all threads of the CTA must call it, and meet before the first use:
    `initialise` does both.
    """

    def __init__(
        self, *, stages: int, consumers: int, ctas: int = 1, shared: str = "b", producers: int = 1,
        every_thread: bool = False, **tiles: WgmmaTile,
    ) -> None:  # fmt: skip
        for name, tile in tiles.items():
            if tile.stages != stages:
                raise tile.trace.error(
                    f"tile {name} does not have the pipeline's stages", expected=f"{stages} stages", got=tile.stages
                )
        self.stages = stages
        self.consumers = consumers
        self.ctas = ctas
        self.shared = shared
        self.producers = producers
        self.every_thread = every_thread
        self.tiles = tiles
        self.full = smem.mbarrier(stages, name="full")
        self.empty = smem.mbarrier(stages, name="empty")

    @property
    def stage_bytes(self) -> int:
        """Bytes TMA reports for one stage: what `full` expects."""
        return sum(tile.bytes for tile in self.tiles.values())

    @property
    def full_arrivals(self) -> int:
        """The producers' arrivals, which bring the bytes; and that of every consumer thread where they all arrive."""
        return self.producers + self.consumers * WARPGROUP * self.every_thread

    @property
    def empty_arrivals(self) -> int:
        """One for each consumer (or each of its threads) of each CTA that reads what this one loads."""
        return self.consumers * self.ctas * (WARPGROUP if self.every_thread else 1)

    def initialise(self, more: Callable[[], None] | None = None) -> None:
        """Thread 0 initialises the barriers; then the CTA meets, or the cluster where its CTAs fill each other.

        `more` initialises others, by the same thread.
        """
        with ptx.if_(ptx.special.tid.x() == 0):
            for stage in range(self.stages):
                ptx.mbarrier.init(self.full[stage], self.full_arrivals)
                ptx.mbarrier.init(self.empty[stage], self.empty_arrivals)
            if more is not None:
                more()
            ptx.fence.mbarrier_init()
        if self.ctas > 1:
            clusters.meet()
        else:
            ptx.bar.sync(0)

    def producer_state(self) -> State:
        """The start of a producer: all stages are empty."""
        return State(reg.scalar(u32, init=0), reg.scalar(u32, init=1))

    def consumer_state(self) -> State:
        """The start of a consumer: no stage is full."""
        return State(reg.scalar(u32, init=0), reg.scalar(u32, init=0))

    def stage(self, state: State) -> Stage:
        """The stage a state stands at."""
        return Stage({name: tile[state.index] for name, tile in self.tiles.items()}, self.full[state.index])

    def producer_acquire(self, state: State, tiles: Sequence[str] | None = None) -> Stage:
        """Wait until the stage is empty, and expect its bytes; the copies into it are to use its `full` barrier.

        tiles: those that this producer brings, where there are several; all of them otherwise.
        """
        ptx.mbarrier.wait(self.empty[state.index], state.phase)
        stage = self.stage(state)
        brought = self.stage_bytes if tiles is None else sum(self.tiles[name].bytes for name in tiles)
        ptx.mbarrier.arrive_expect_tx(stage.full, brought)
        return stage

    def producer_tail(self, state: State) -> None:
        """Wait until every stage is empty again: in a cluster, a CTA must not end while others still arrive here."""
        for _ in range(self.stages):
            ptx.mbarrier.wait(self.empty[state.index], state.phase)
            self.advance(state)

    def consumer_wait(self, state: State) -> Stage:
        """Wait until all bytes of the stage have arrived."""
        stage = self.stage(state)
        if self.every_thread:
            ptx.mbarrier.arrive(stage.full)
        ptx.mbarrier.wait(stage.full, state.phase)
        return stage

    def consumer_release(self, index: State | Register, only: Predicate | None = None) -> None:
        """Let the producers refill the stage: one arrival for the warpgroup, after its wgmmas have read it.

        With several CTAs, one arrival on the barrier of each: the n-th thread tells CTA n (relaxed; the wait for the
        wgmmas orders their reads). `only`: release where this holds, for all threads alike.
        """
        barrier = self.empty[index.index if isinstance(index, State) else index]
        thread = ptx.special.tid.x() & (WARPGROUP - 1)
        if self.ctas > 1:
            chosen = thread < self.ctas
            ptx.mbarrier.arrive_remote(
                barrier, thread % self.ctas, pred=chosen if only is None else chosen & only, relaxed=True
            )
        elif self.every_thread:
            ptx.mbarrier.arrive(barrier, pred=only)
        else:
            chosen = thread == 0
            ptx.mbarrier.arrive(barrier, pred=chosen if only is None else chosen & only)

    def advance(self, state: State) -> None:
        """Step to the next stage; the phase turns over at the ring's end."""
        ptx.inst.add.u32(state.index, state.index, 1)
        with ptx.if_(state.index == self.stages):
            ptx.inst.mov.u32(state.index, 0)
            ptx.inst.xor.b32(state.phase, state.phase, 1)

    def skip(self, state: State, count: Register) -> None:
        """Step over `count` stages that are somebody else's."""
        moved = state.index + count
        state.phase ^= (moved // self.stages) & 1
        state.index.set(moved % self.stages)

    @contextmanager
    def produce(self, state: State, tiles: Sequence[str] | None = None) -> Iterator[Stage]:
        """`producer_acquire`, the copies, `advance`."""
        yield self.producer_acquire(state, tiles)
        self.advance(state)

    @contextmanager
    def consume(self, state: State) -> Iterator[Stage]:
        """`consumer_wait`, the products (completed inside the block), `consumer_release`, `advance`."""
        yield self.consumer_wait(state)
        self.consumer_release(state)
        self.advance(state)
