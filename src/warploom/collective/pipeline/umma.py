"""A ring that TMA fills and tcgen05.mma empties, for one CTA or a CTA pair.

    full[s]    one arrival of the producer, with the bytes of the stage (of both CTAs of a pair)         TMA -> MMA
    empty[s]   one arrival of the MMA's commit                                                           MMA -> TMA

In a pair, each CTA loads its rows of A and its columns of B into its own stage. All bytes count on the full barrier of
the leader, the even CTA. Its MMA thread multiplies for both, and its commits free the stage in both.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...lang import ptx
from ...lang.operand_tile import OperandTile
from ...lang.smem import BarrierAddress
from ...lang.values import Register
from .tma import HasBarriers, Stage, State, TmaPipeline

BOTH = 0b11
"""The CTAs of a cluster that is one pair, as a mask."""


class UmmaPipeline(TmaPipeline):
    """A ring for tcgen05.mma; `group` is 2 for CTA pairs. Tiles are `smem.umma_tile`s of this CTA's rows and
    columns."""

    def __init__(self, *, stages: int, group: int = 1, **tiles: OperandTile) -> None:
        super().__init__(stages=stages, consumers=1, **tiles)  # type: ignore[arg-type]
        self.group, self.ctas = group, group
        self.loads = 2 if group == 2 else 0
        """The `group` argument of `ptx.tma.load`."""
        self.extra_bytes = 0
        """Bytes copied into a stage in addition to its tiles."""

    @property
    def stage_bytes(self) -> int:
        """Bytes that one CTA's copies write to a stage."""
        return super().stage_bytes + self.extra_bytes

    def initialise(self, *others: HasBarriers) -> None:
        """Initialise the barriers of this ring and of `others` in thread 0. The allocation of tensor memory that
        follows (`tmem.alloc`) synchronises the CTA, or its cluster."""
        with ptx.if_(ptx.special.tid.x() == 0):
            for part in (self, *others):
                part.init_barriers()
            ptx.fence.mbarrier_init()

    @property
    def empty_arrivals(self) -> int:
        """One arrival: the commit's."""
        return 1

    def producer_acquire(
        self, state: State, tiles: object = None, stage_bytes: Register | None = None
    ) -> Stage:  # fmt: skip
        """Wait until the stage is empty. The leader expects the bytes of all CTAs that share the stage."""
        loaded = self.stage_bytes if stage_bytes is None else stage_bytes
        ptx.mbarrier.wait(self.empty[state.index], state.phase)
        stage = self.stage(state)
        if self.group == 1:
            ptx.mbarrier.arrive_expect_tx(stage.full, loaded)
            return stage
        leads = (ptx.special.cluster_ctarank() & 1) == 0
        ptx.mbarrier.arrive_expect_tx(stage.full, loaded * self.group, pred=leads)
        return Stage(stage.tiles, self._leaders(stage.full))

    @staticmethod
    def _leaders(barrier: BarrierAddress) -> BarrierAddress:
        return ptx.cluster.leader_of(barrier)  # type: ignore[return-value]

    @contextmanager
    def consume(self, state: State) -> Iterator[Stage]:
        """Wait for the stage, run the block, and commit, so that producers refill the stage when the MMAs are
        complete."""
        yield self.consumer_wait(state)
        self.consumer_commit(state)
        self.advance(state)

    def consumer_commit(self, state: State) -> None:
        """Release the stage when all MMAs that this thread has issued are complete."""
        ptx.tcgen05.commit(self.empty[state.index], group=self.group, multicast=BOTH if self.group == 2 else None)
