"""Keeping the gathered rows of an all-gather: a TMA store of each tile of A from the ring's stage that holds it.

The rows are in shared memory to be multiplied, so one thread stores them from there: no row is loaded again, and no
warp waits for another GPU. Every row is in as many CTAs as D has tiles along N; they store its k-tiles in turn.

    loader     [stage 0][stage 1][stage 2]  wait for stage 0 ...
    consumer    wait    [multiply 0][multiply 1] ...
    keeper      wait    [store 0, read][store 1, read] ...           a stage is refilled when both let go of it
"""

from __future__ import annotations

from ...collective.pipeline.tma import TmaPipeline
from ...collective.tile.ranked import RankedTiles
from ...lang import ptx
from ...lang.tile import ArrayHandle
from ...lang.values import Register

__all__ = ["keep_rows"]


def keep_rows(kept: ArrayHandle, ring: TmaPipeline, schedule: RankedTiles, num_k_tiles: Register, tile_k: int) -> None:
    """Store this CTA's k-tiles of the rows of its tiles to (ranks, R, K), in one thread: a reader of the ring."""
    state, target = ring.consumer_state(), kept.tma_desc()
    for here in schedule.tiles():
        for k_tile in ptx.range(num_k_tiles):
            stage = ring.consumer_wait(state)
            with ptx.if_((here.number + k_tile) % schedule.across == 0):
                for box in stage.a.layout.boxes:
                    place = target.moved((k_tile * tile_k, here.row, here.owner), box.coordinates)
                    ptx.tma.store(target, stage.a + box.offset, place)
                ptx.cp.async_.bulk.commit_group()
                ptx.cp.async_.bulk.wait_group_read(0)
            ring.reader_release(state)
            ring.advance(state)
