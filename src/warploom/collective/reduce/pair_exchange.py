"""Two CTAs of a cluster each multiply half of K for one tile and exchange halves of their partial sums.

    CTA 0, consumer 0   adds the sums of CTA 1's consumer 0 to its own, and stores them
    CTA 0, consumer 1   sends its sums to CTA 1
    CTA 1, consumer 0   sends its sums to CTA 0
    CTA 1, consumer 1   adds the sums of CTA 0's consumer 1 to its own, and stores them

Each CTA receives as much as it sends, and each consumer either sends or stores. Partial sums are sent through
distributed shared memory into the ring, which is empty by then, because no load follows the tail. Addition of two
numbers commutes, so the result is the same in every run.

    drained   2 arrivals: the consumers of the other CTA have read its ring         -> may be written to
    received  128 arrivals: the other CTA's sender has written its sums             -> may be read
"""

from __future__ import annotations

from ...lang import ptx, smem
from ...lang.arrays import RegisterArray
from ...lang.predicate import Predicate
from ...lang.values import Register
from ..pipeline.tma import TmaPipeline
from ..tile.roles import WARPGROUP

CTAS = 2
_VECTOR = 4
_VECTOR_BYTES = 16


class PairExchange:
    """The exchange; see the module's docstring.

    Args:
        ring: the ring whose memory receives the sums, in a cluster of two CTAs with two consumers each.
        accumulators: accumulators per thread.
    """

    def __init__(self, ring: TmaPipeline, accumulators: int) -> None:
        tiles = list(ring.tiles.values())
        begin = min(tile.buffer.offset for tile in tiles)
        room = max(tile.buffer.offset + tile.buffer.size for tile in tiles) - begin
        needed = accumulators * WARPGROUP * 4
        if (ring.ctas, ring.consumers) != (CTAS, CTAS) or needed > room or accumulators % _VECTOR:
            raise tiles[0].trace.error(
                "the sums of a tile cannot be exchanged in this ring",
                expected=f"2 CTAs, 2 consumers, and {needed} bytes of stages",
                got=f"{ring.ctas} CTAs, {ring.consumers} consumers, {room} bytes",
            )
        self.buffer = next(tile[0] for tile in tiles if tile.buffer.offset == begin)
        self.drained = smem.mbarrier(1, name="drained")
        self.received = smem.mbarrier(1, name="received")

    def init_barriers(self) -> None:
        """Initialise the barriers. Called by one thread, before `fence.mbarrier_init`."""
        ptx.mbarrier.init(self.drained[0], CTAS)
        ptx.mbarrier.init(self.received[0], WARPGROUP)

    def combine(self, acc: list[RegisterArray], me: int) -> Predicate:
        """Exchange sums; called by all consumers with their own. True in the consumer that then has the tile's sums."""
        rank, thread = ptx.special.cluster_ctarank(), ptx.special.tid.x() & (WARPGROUP - 1)
        other = rank ^ 1
        ptx.mbarrier.arrive_remote(self.drained[0], other, pred=thread == 0)
        keeps = rank == me
        with ptx.if_(keeps):
            self._add(acc, thread)
        with ptx.else_():
            self._send(acc, thread, other)
        return keeps

    def _send(self, acc: list[RegisterArray], thread: Register, other: Register) -> None:
        ptx.mbarrier.wait(self.drained[0], 0, scope="cluster")
        target = ptx.cluster.map_shared(self.buffer.register() + thread * _VECTOR_BYTES, other)
        for index, four in enumerate(_fours(acc)):
            ptx.inst(f"st.shared::cluster.v4.{four.dtype}", target + index * _VECTOR_BYTES * WARPGROUP, four)
        ptx.mbarrier.arrive_remote(self.received[0], other)

    def _add(self, acc: list[RegisterArray], thread: Register) -> None:
        ptx.mbarrier.wait(self.received[0], 0, scope="cluster")
        source = self.buffer.register() + thread * _VECTOR_BYTES
        for index, four in enumerate(_fours(acc)):
            more = ptx.load(four.dtype, ptx.addr(source, index * _VECTOR_BYTES * WARPGROUP), space="shared", vector=4)
            for mine, theirs in zip(four, more, strict=True):
                mine += theirs


def _fours(acc: list[RegisterArray]) -> list[RegisterArray]:
    return [block[i : i + _VECTOR] for block in acc for i in range(0, len(block), _VECTOR)]
