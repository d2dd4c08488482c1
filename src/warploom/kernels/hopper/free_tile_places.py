"""Which tiles a CTA of free tiles has, where they begin, and how their operands come into a stage of the ring.

alone                         tiles follow each other along the tokens, in bands of them where the configuration says so
neighbours                    along the tokens, and clusters hold what comes together
neighbours that share weights  along the tokens: a cluster's tiles have the same weights, each CTA loads a slice
neighbours that share tokens   along the weights: likewise
neighbours that share both     along both: pairs along the tokens share weights, and pairs follow each other along the
                               weights, where those at the same place share tokens

                 tokens ->                    where the last cluster has a CTA too many, this one multiplies
    weights   [ 0 | 1 ][ 2 | 2'][             the last tile again for its neighbours' sake, whose slice it loads,
       |      [ 0 | 1 ][ 2 | 2'][             and stores nothing: its own part begins behind the end
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
class Here:
    """A tile: where it begins on both axes, moved inside the tensor, and where its own part begins."""

    token: Register
    weight: Register
    own_token: Register
    own_weight: Register


@dataclass
class Places:
    """Of A (M, K) and W (N, K): see the module's docstring."""

    config: FreeTileConfig
    A: ArrayHandle
    W: ArrayHandle
    k: SplitKSchedule
    grid: ClusterGrid | None = None

    def across(self) -> Register:
        """How many tiles, or clusters that share weights, cover the tokens."""
        return _covering(self.A.shape[0], self.config.tokens, self.config.along_tokens)

    def down(self) -> Register:
        """The same of the weights."""
        return _covering(self.W.shape[0], self.config.weights, self.config.along_weights)

    def sharers(self, operand: str) -> Sharers | None:
        """The CTAs with which this one shares the "tokens" or the "weights"; None if none."""
        if self.grid is not None:
            return self.grid.of_row() if operand == "weights" else self.grid.of_column()
        return Sharers.all(self.config.neighbours) if self.config.shared == operand else None

    def tiles(self) -> Iterator[Register]:
        """This CTA's tiles; a run-time loop where it has several, a branch where it may have none. Of neighbours that
        share something all have the same number of tiles, and of them the same numbers."""
        config = self.config
        tiles = self.across() * self.down()
        if config.shared:
            first = ptx.special.ctaid.x() // config.neighbours
            if config.persistent:
                step = ptx.special.nctaid.x() // config.neighbours
                yield from ptx.range(first, tiles, step, unroll=False)
            else:
                yield first
        elif config.persistent:
            yield from ptx.range(self.k.tile, tiles, ptx.special.nctaid.x(), unroll=False)
        elif config.neighbours > 1:
            with ptx.if_(self.k.tile < tiles):
                yield self.k.tile
        else:
            yield self.k.tile

    def place(self, tile: Register) -> Here:
        """Of tile number `tile`; a last tile begins so that it ends with the tensor. Each role calculates it for
        itself, a consumer after its products: registers are scarce."""
        config, across = self.config, self.across()
        token, weight = grouped(config.band)(tile, across, self.down()) if config.band else (None, None)
        own_token = self._of_cluster(tile % across if token is None else token, "weights") * config.tokens
        own_weight = self._of_cluster(tile // across if weight is None else weight, "tokens") * config.weights
        return Here(
            moved(own_token, self.A.shape[0], config.tokens), moved(own_weight, self.W.shape[0], config.weights),
            own_token, own_weight,
        )  # fmt: skip

    def _of_cluster(self, index: Register, shared: str) -> Register:
        """A tile's number along an axis on which the tiles of a cluster that shares this follow each other."""
        sharers = self.sharers(shared)
        return index if sharers is None else index * sharers.ctas + sharers.index()


def _covering(extent: Register, tile: int, neighbours: int) -> Register:
    count = (extent + (tile - 1)) // tile
    return count if neighbours == 1 else (count + (neighbours - 1)) // neighbours


class Loads:
    """How a producer brings both operands into a stage. names: of the ring's tiles, the tokens' and the weights'."""

    def __init__(self, places: Places, ring: TmaPipeline, names: tuple[str, str]) -> None:
        self.places, self.ring, self.names, self.k = places, ring, names, places.k
        self.slices = {
            operand: Slices(sharers, array)
            for operand, array in (("tokens", places.A), ("weights", places.W))
            if (sharers := places.sharers(operand)) is not None
        }

    def bytes(self) -> Register | int:
        """Of a stage: rows inside the tensors, or whole slices."""
        config, A, W = self.places.config, self.places.A, self.places.W  # noqa: N806
        tokens = config.tokens if "tokens" in self.slices else inside(A.shape[0], config.tokens)
        weights = config.weights if "weights" in self.slices else inside(W.shape[0], config.weights)
        rows = weights + tokens if config.shared == "tokens" else tokens + weights
        return rows * (config.k_tiles * TILE_K_BYTES)

    def tokens(self, here: Here, number: Register, stage: Stage) -> None:
        """Rows of A of this CTA's n-th stage."""
        self._load("tokens", self.places.A, stage.tiles[self.names[0]], here.token, number, stage.full)

    def weights(self, here: Here, number: Register, stage: Stage, policy: Register | None) -> None:
        """Rows of W of this CTA's n-th stage."""
        self._load("weights", self.places.W, stage.tiles[self.names[1]], here.weight, number, stage.full, policy)

    def _load(
        self, operand: str, array: ArrayHandle, tile: TileSlice, row: Register, number: Register, full: BarrierAddress,
        policy: Register | None = None,
    ) -> None:  # fmt: skip
        place = ((self.k.first + number) * tile.layout.k, row)
        if operand in self.slices:
            self.slices[operand].load(tile, place, full, policy)
        else:
            ptx.tma.load(tile, array.tma_desc(), place, full, cache_hint=policy)

    def prefetch_weights(self, here: Here) -> None:
        """The first stages' weights to L2: what is written there before they are read replaces them there."""
        tile = self.ring.tiles[self.names[1]][0]
        count = least(self.k.total, self.places.config.prefetch)
        for number in ptx.range(count, unroll=False):
            place = ((self.k.first + number) * tile.layout.k, here.weight)
            if "weights" in self.slices:
                self.slices["weights"].prefetch(tile, place)
            else:
                ptx.tma.prefetch(tile, self.places.W.tma_desc(), place)


def prefetch_descriptors(places: Places) -> None:
    """Bring the tensor maps of both operands close."""
    for array, sharers in ((places.W, places.config.along_tokens), (places.A, places.config.along_weights)):
        boxes: list[tuple[int, int] | None] = [None] if sharers == 1 else [*slice_boxes(sharers, array)]
        for box in boxes:
            ptx.tma.prefetch_descriptor(array.tma_desc(box))
