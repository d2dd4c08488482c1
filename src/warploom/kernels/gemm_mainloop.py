"""The main loop of a warp-specialised GEMM.

The producer's loop needs only the functions that load an operand's tile (`operand_loads`):

    for k_tile in ptx.range(num_k_tiles):
        with ring.produce(state) as stage:
            load_a(stage.a, A, ...)
            load_b(stage.b, B, ...)

A consumer walks through the ring while its wgmmas are in flight (`ConsumerLoop`):

    k-tile   t      wait for bytes | issue wgmmas of t   | wait for those of t-1 | release stage of t-1
             t+1    wait for bytes | issue wgmmas of t+1 | wait for those of t   | release stage of t
             end    (the last wgmmas run)                | wait for all          | release the last stage
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

from ..collective.pipeline.tma import Stage, State, TmaPipeline
from ..collective.tile import cluster
from ..isa.dtypes import u32
from ..lang import ptx, reg
from ..lang.predicate import Predicate
from ..lang.tile import ArrayHandle
from ..lang.values import Register

Load: TypeAlias = Callable[..., None]


def k_tiles(A: ArrayHandle, tile_k: int, major: str = "K") -> Register:
    """The number of tiles of `tile_k` elements that cover K; TMA fills elements beyond K with zeros.

    A is (M, K), or (K, M) if `major` is "MN".
    """
    depth = A.shape[1 if major == "K" else 0]
    return (depth + (tile_k - 1)) // tile_k


def operand_loads(ctas: int, multicast: str, *, same_k: bool = True) -> tuple[Load, Load]:
    """The functions that load a CTA's tiles of A and of B; call them like `cluster.load_tile`.

    Args:
        ctas: CTAs per cluster.
        multicast: the operand that all CTAs of the cluster need, "a" or "b"; each loads a slice of its tile for all.
        same_k: False if the CTAs multiply different splits of K, so that each loads all slices for itself.
    """
    whole = cluster.load_tile
    if ctas == 1:
        return whole, whole
    sliced = cluster.Multicast(ctas) if same_k else partial(cluster.load_slices, ctas)
    return (sliced, whole) if multicast == "a" else (whole, sliced)


class ConsumerLoop:
    """A consumer's walk through the ring.

        for stage, accumulate in loop.stages(num_k_tiles):
            wgmma_stage(acc, stage.a, stage.b, accumulate=accumulate)
        ...                                     # code that may run under the last wgmmas
        loop.drain()

    Args:
        ring, state: the source of the k-tiles, and this consumer's position in it.
    """

    def __init__(self, ring: TmaPipeline, state: State) -> None:
        self.ring, self.state = ring, state

    def stages(self, num_k_tiles: Register) -> Iterator[tuple[Stage, Predicate]]:
        """Yield each stage once its bytes have arrived, and whether its products add to the accumulators (False first).

        The body issues one group of wgmmas. A stage is released when the group that reads it is complete: one k-tile
        later, since one group stays in flight. `num_k_tiles` is at least 1.
        """
        ring, state = self.ring, self.state
        self._previous = reg.scalar(u32, init=0)
        for k_tile in ptx.range(num_k_tiles):
            stage = ring.consumer_wait(state)
            later = k_tile != 0
            yield stage, later
            ptx.wgmma.wait_group(1)
            ring.consumer_release(self._previous, only=later)
            self._previous.set(state.index)
            ring.advance(state)

    def drain(self, only: Predicate | None = None) -> None:
        """Wait for the last wgmmas and release the stage that they read; after this, the accumulators are valid.
        only: whether there was a stage, if other CTAs would take the release of none for that of another."""
        ptx.wgmma.wait_group(0)
        self.ring.consumer_release(self._previous, only=only)
