"""The two main loops of a warp-specialised product: the producer's and a consumer's. Nothing but the protocol."""

from __future__ import annotations

from collections.abc import Callable

from ..collective.mma.wgmma import wgmma_stage
from ..collective.pipeline.tma import State, TmaPipeline
from ..collective.tile import cluster as clusters
from ..collective.tile.scheduler import Place
from ..isa.dtypes import u32
from ..lang import ptx, reg
from ..lang.arrays import RegisterArray
from ..lang.tile import ArrayHandle
from ..lang.values import Register


def k_tiles(A: ArrayHandle, tile_k: int, major: str = "K") -> Register:
    """How many tiles of tile_k cover K; what lies behind it is zeros. A is (M, K), or (K, M) if it is MN-major."""
    depth = A.shape[1 if major == "K" else 0]
    return (depth + (tile_k - 1)) // tile_k


def load_tiles(
    ring: TmaPipeline, state: State, A: ArrayHandle, B: ArrayHandle, here: Place, count: Register,
    first: Register | int = 0, *, together: bool = True, only: str | None = None,
) -> None:  # fmt: skip
    """The producer, for one tile of C: one stage for each k-tile, as soon as all consumers have let go of it.

    The ring's tiles are named `a` and `b`. In a ring of several CTAs each loads one of them for itself, and a slice of
    the other, `ring.shared`, for all of them.

    Args:
        count: k-tiles, from k-tile `first` on. Those behind the end of K are zeros.
        together: False where the CTAs of a cluster work on different parts of K: each loads all for itself.
        only: the operand that this producer brings, "a" or "b", where the ring has two producers.
    """
    mine = None if only is None else (only,)
    tile_k = ring.tiles["a"].layout.k
    rank = ptx.special.cluster_ctarank() if ring.ctas > 1 and together else None
    start = first * tile_k if isinstance(first, Register) or first else 0
    for k_tile in ptx.range(count):
        with ring.produce(state, mine) as stage:
            k = k_tile * tile_k + start if isinstance(start, Register) or start else k_tile * tile_k
            for name, array, row in (("a", A, here.row), ("b", B, here.column)):
                if only not in (None, name):
                    continue
                tile, sliced = stage.tiles[name], ring.ctas > 1 and name == ring.shared
                if not sliced:
                    ptx.tma.load(tile, array.tma_desc(), tile.coordinates(row, k), stage.full)
                elif rank is not None:
                    clusters.load_slice(tile, array, k, row, rank, ring.ctas, stage.full)
                else:
                    clusters.load_slices(tile, array, k, row, ring.ctas, stage.full)


def multiply_tiles(
    ring: TmaPipeline, state: State, acc: list[RegisterArray], first_row: int, count: Register, *,
    in_flight: int = 1, overwrite: bool = False, issued: Callable[[], None] | None = None,
) -> None:  # fmt: skip
    """A consumer, for one tile of C: acc += its rows of A times B, stage by stage; complete when it returns.

    Args:
        acc: one array for each 64 of its rows.
        first_row: where they begin in the tile.
        count: k-tiles, at least one.
        in_flight: 0 waits for the wgmmas of a stage before it goes on; 1 issues those of the next stage first, and
            lets go of a stage one k-tile later.
        overwrite: the first k-tile overwrites the accumulators (scale-d 0), so that nobody has to set them to zero.
        issued: called when the last wgmmas are issued, before they are waited for.
    """
    rows = len(acc) * 64
    previous = reg.scalar(u32, init=0)
    for k_tile in ptx.range(count):
        stage = ring.consumer_wait(state)
        later = k_tile != 0
        wgmma_stage(acc, stage.a.rows(first_row, rows), stage.b, keep=later if overwrite else True)
        ptx.wgmma.wait_group(in_flight)
        if in_flight:
            ring.consumer_release(previous, only=later)
        else:
            ring.consumer_release(state)
        previous.set(state.index)
        ring.advance(state)
    if issued is not None:
        issued()
    if in_flight:
        ptx.wgmma.wait_group(0)
        ring.consumer_release(previous)
