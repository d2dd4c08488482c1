"""The tiles of a CTA, their coordinates, and the loads of their operands into a stage of the ring.

not clustered              consecutive tiles follow the tokens, in bands if the configuration has them
clustered, not shared      along the tokens; the cluster only keeps CTAs close together
sharing weights            along the tokens: the tiles of a cluster have the same weights, each CTA loads a slice
sharing tokens             along the weights: likewise
sharing both               along both: pairs along the tokens share weights; pairs are stacked along the weights, and
                           CTAs at the same position of their pairs share tokens

                 tokens ->                    if the last cluster has a CTA too many, this CTA multiplies the last
    weights   [ 0 | 1 ][ 2 | 2'][             tile again, because its peers need the slice that it loads. It stores
       |      [ 0 | 1 ][ 2 | 2'][             nothing: its own region begins past the end of the tensor
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...collective.pipeline.tma import Stage, TmaPipeline
from ...collective.tile.cluster import ClusterGrid, Sharers, Slices, slice_boxes
from ...collective.tile.inside import inside, least, moved
from ...collective.tile.raster import grouped
from ...collective.tile.stream_k import SplitKSchedule
from ...lang import ptx
from ...lang.smem import BarrierAddress, TileSlice
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from .description import TILE_K_BYTES
from .free_tile_config import FreeTileConfig


@dataclass
class TileCoordinates:
    """A tile: its coordinates on both axes, moved inside the tensor, and the coordinates from which it stores."""

    token: Register
    weight: Register
    own_token: Register
    own_weight: Register


@dataclass
class TileSchedule:
    """The tiles of a CTA and their coordinates in A (M, K) and W (N, K); see the module's docstring."""

    config: FreeTileConfig
    A: ArrayHandle
    W: ArrayHandle
    k: SplitKSchedule
    grid: ClusterGrid | None = None

    def tiles_along_tokens(self) -> Register:
        """The number of tiles, or of clusters that share weights, along the tokens."""
        return _tile_count(self.A.shape[0], self.config.tokens, self.config.along_tokens)

    def tiles_along_weights(self) -> Register:
        """The number of tiles, or of clusters that share tokens, along the weights."""
        return _tile_count(self.W.shape[0], self.config.weights, self.config.along_weights)

    def sharers(self, operand: str) -> Sharers | None:
        """The CTAs that share the "tokens" or the "weights" with this one; None if none do."""
        if self.grid is not None:
            return self.grid.of_row() if operand == "weights" else self.grid.of_column()
        return Sharers.all(self.config.cluster) if self.config.multicast == operand else None

    def tiles(self) -> Iterator[Register]:
        """This CTA's tiles: a run-time loop if it can have several, a branch if it may have none. CTAs that share an
        operand have the same number of tiles and the same tile indices."""
        config = self.config
        tiles = self.tiles_along_tokens() * self.tiles_along_weights()
        if config.multicast:
            first = ptx.special.ctaid.x() // config.cluster
            if config.persistent:
                step = ptx.special.nctaid.x() // config.cluster
                yield from ptx.range(first, tiles, step, unroll=False)
            else:
                yield first
        elif config.persistent:
            yield from ptx.range(self.k.tile, tiles, ptx.special.nctaid.x(), unroll=False)
        elif config.cluster > 1:
            with ptx.if_(self.k.tile < tiles):
                yield self.k.tile
        else:
            yield self.k.tile

    def coordinates(self, tile: Register) -> TileCoordinates:
        """The coordinates of tile `tile`; the last tile is moved to end with the tensor. Each role computes them by
        itself, a consumer after its main loop, because registers are scarce."""
        config, across = self.config, self.tiles_along_tokens()
        token, weight = (
            grouped(config.group)(tile, across, self.tiles_along_weights()) if config.group else (None, None)
        )
        own_token = self._of_cluster(tile % across if token is None else token, "weights") * config.tokens
        own_weight = self._of_cluster(tile // across if weight is None else weight, "tokens") * config.weights
        return TileCoordinates(
            moved(own_token, self.A.shape[0], config.tokens), moved(own_weight, self.W.shape[0], config.weights),
            own_token, own_weight,
        )  # fmt: skip

    def _of_cluster(self, index: Register, shared: str) -> Register:
        """A tile's index along the axis on which the CTAs that share the operand `shared` are adjacent."""
        sharers = self.sharers(shared)
        return index if sharers is None else index * sharers.ctas + sharers.index()


def _tile_count(extent: Register, tile: int, cluster: int) -> Register:
    count = (extent + (tile - 1)) // tile
    return count if cluster == 1 else (count + (cluster - 1)) // cluster


class OperandLoads:
    """A producer's loads of both operands into a stage. names: the ring's tiles of the tokens and of the weights."""

    def __init__(self, schedule: TileSchedule, ring: TmaPipeline, names: tuple[str, str]) -> None:
        self.schedule, self.ring, self.names, self.k = schedule, ring, names, schedule.k
        self.slices = {
            operand: Slices(sharers, array)
            for operand, array in (("tokens", schedule.A), ("weights", schedule.W))
            if (sharers := schedule.sharers(operand)) is not None
        }

    def stage_bytes(self) -> Register | int:
        """The bytes of a stage: rows inside the tensors, or whole slices."""
        config, A, W = self.schedule.config, self.schedule.A, self.schedule.W  # noqa: N806
        tokens = config.tokens if "tokens" in self.slices else inside(A.shape[0], config.tokens)
        weights = config.weights if "weights" in self.slices else inside(W.shape[0], config.weights)
        rows = weights + tokens if config.multicast == "tokens" else tokens + weights
        return rows * (config.k_tiles * TILE_K_BYTES)

    def tokens(self, coordinates: TileCoordinates, number: Register, stage: Stage) -> None:
        """Load the rows of A of this CTA's n-th stage."""
        self._load("tokens", self.schedule.A, stage.tiles[self.names[0]], coordinates.token, number, stage.full)

    def weights(self, coordinates: TileCoordinates, number: Register, stage: Stage, policy: Register | None) -> None:
        """Load the rows of W of this CTA's n-th stage."""
        self._load(
            "weights", self.schedule.W, stage.tiles[self.names[1]], coordinates.weight, number, stage.full, policy
        )

    def _load(
        self, operand: str, array: ArrayHandle, tile: TileSlice, row: Register, number: Register, full: BarrierAddress,
        policy: Register | None = None,
    ) -> None:  # fmt: skip
        place = ((self.k.first + number) * tile.layout.k, row)
        if operand in self.slices:
            self.slices[operand].load(tile, place, full, policy)
        else:
            ptx.tma.load(tile, array.tma_desc(), place, full, cache_hint=policy)

    def prefetch_weights(self, coordinates: TileCoordinates) -> None:
        """Prefetch the first stages' weights into L2. If they are written later, the write updates them there."""
        tile = self.ring.tiles[self.names[1]][0]
        count = least(self.k.total, self.schedule.config.prefetch)
        for number in ptx.range(count, unroll=False):
            place = ((self.k.first + number) * tile.layout.k, coordinates.weight)
            if "weights" in self.slices:
                self.slices["weights"].prefetch(tile, place)
            else:
                ptx.tma.prefetch(tile, self.schedule.W.tma_desc(), place)


def prefetch_descriptors(schedule: TileSchedule) -> None:
    """Prefetch the tensor maps of both operands."""
    for array, sharers in ((schedule.W, schedule.config.along_tokens), (schedule.A, schedule.config.along_weights)):
        boxes: list[tuple[int, int] | None] = [None] if sharers == 1 else [*slice_boxes(sharers, array)]
        for box in boxes:
            ptx.tma.prefetch_descriptor(array.tma_desc(box))
