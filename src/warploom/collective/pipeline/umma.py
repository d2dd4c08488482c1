"""A ring that TMA fills and tcgen05.mma empties, of one CTA or of a pair.

    full[s]    one arrival of the producer, with the bytes of the stage, of a pair those of both CTAs    TMA -> MMA
    empty[s]   one arrival of the MMA's commit                                                           MMA -> TMA

Of a pair each CTA loads its rows of A and its columns of B into its own stage; all bytes count on the full barrier of
the leader, the even CTA, whose MMA thread multiplies for both, and whose commits free the stage in both.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...lang import ptx
from ...lang.operand_tile import OperandTile
from ...lang.smem import BarrierAddress
from .tma import HasBarriers, Stage, State, TmaPipeline

BOTH = 0b11
"""The CTAs of a cluster that is one pair, as a mask."""


class UmmaPipeline(TmaPipeline):
    """See the module's docstring; `group` 2 for pairs. Tiles are `smem.umma_tile`s of this CTA's rows and columns."""

    def __init__(self, *, stages: int, group: int = 1, **tiles: OperandTile) -> None:
        super().__init__(stages=stages, consumers=1, **tiles)  # type: ignore[arg-type]
        self.group, self.ctas = group, group
        self.loads = 2 if group == 2 else 0
        """What `ptx.tma.load` needs as its group."""
        self.extra_bytes = 0
        """Of a stage, of what is copied into it besides its tiles."""

    @property
    def stage_bytes(self) -> int:
        """Bytes that one CTA's copies bring to a stage."""
        return super().stage_bytes + self.extra_bytes

    def initialise(self, *others: HasBarriers) -> None:
        """Thread 0 initialises the barriers of this ring and of `others`. The allocation of tensor memory that follows
        (`tmem.alloc`) brings the CTA together, or its cluster."""
        with ptx.if_(ptx.special.tid.x() == 0):
            for part in (self, *others):
                part.init_barriers()
            ptx.fence.mbarrier_init()

    @property
    def empty_arrivals(self) -> int:
        """The commit's."""
        return 1

    def producer_acquire(self, state: State, tiles: object = None) -> Stage:
        """Wait until the stage is empty; the leader expects the bytes of all CTAs that share it."""
        ptx.mbarrier.wait(self.empty[state.index], state.phase)
        stage = self.stage(state)
        if self.group == 1:
            ptx.mbarrier.arrive_expect_tx(stage.full, self.stage_bytes)
            return stage
        leads = (ptx.special.cluster_ctarank() & 1) == 0
        ptx.mbarrier.arrive_expect_tx(stage.full, self.stage_bytes * self.group, pred=leads)
        return Stage(stage.tiles, self._leaders(stage.full))

    @staticmethod
    def _leaders(barrier: BarrierAddress) -> BarrierAddress:
        return ptx.cluster.leader_of(barrier)  # type: ignore[return-value]

    @contextmanager
    def consume(self, state: State) -> Iterator[Stage]:
        """Wait for the stage, the products, and a commit that lets the producers refill it when they are done."""
        yield self.consumer_wait(state)
        self.consumer_commit(state)
        self.advance(state)

    def consumer_commit(self, state: State) -> None:
        """The stage is empty when all products that this thread has issued are done."""
        ptx.tcgen05.commit(self.empty[state.index], group=self.group, multicast=BOTH if self.group == 2 else None)
