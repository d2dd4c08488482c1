"""D = the sum over GPUs of A B for few rows, on every GPU: a product and an all-reduce in one launch.

Every GPU has a part of K: A (M, K / ranks), W (N, K / ranks). The product is a free tile's, with the roles, barriers
and buffers of `free_tile`; before the store, the accumulators are exchanged with the other GPUs
(`collective.reduce.peers`).

    producer     [weights to L2] wait [stage 0][stage 1] ...
    consumer     wait . . . . . . . . [multiply 0][multiply 1] ... [sums][send] poll [add up][store]
    other GPUs   . . . . . . . . . . . . . . . . . . . . . . . . . [send] ......

With few rows nothing hides the exchange, as all CTAs end at the same time. So words are their own flags, without a
fence or a signal, and slots are double-buffered between launches, without a handshake for permission to write.
Limits     as for a free tile; and the whole grid must be resident, or a wait would not end
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ...collective.epilogue.arguments import epilogue_arguments
from ...collective.reduce.peers import BUFFERS, FORMS, SHOTS, PeerReduce, slot_words
from ...collective.tile.sizes import exchange_width, owned
from ...collective.tile.timeout_record import words
from ...errors import ArgumentError
from ...isa.dtypes import u32
from ...lang import Kernel, Tile
from ...lang.tile import Scalar
from ..fields import builder
from .description import Fusion, Product
from .free_tile import ALL_CONSUMERS, Cta, operands, run_roles, traced
from .free_tile_choice import ranked, terms, unfilled_bytes, waves_of
from .free_tile_config import BLOCK, FreeTileConfig, FreeTileGrid

__all__ = ["Memory", "build", "candidates", "choose", "exchange_us", "form_of", "memory"]

LINK_BYTES_PER_US, TRIP_US = 276e3, 1.6
"""Bytes per microsecond that a GPU sends to all others together, and microseconds of a trip. With one constant per
product, both forms' times in benchmarks/results/nvidia-h100/tensor-parallel-4-words.json follow within 0.7 microseconds
(root mean square)."""


@dataclass(frozen=True)
class Memory:
    """The memory of a call on each GPU, in u32 words: `slots`, which peers access, and the private `launches` and
    `record` of waits. All must be zero before the first launch."""

    slots: int
    launches: int
    record: int


def memory(m: int, n: int, ranks: int, config: FreeTileConfig, form: str = "one_shot") -> Memory:
    """Return the memory for D (M, N) = (m, n)."""
    tiles = -(-m // config.tokens) * -(-n // config.weights)
    pieces = tiles * (config.tile_m // BLOCK) * config.split_k
    ctas = -(-tiles // config.cluster) * config.ctas
    return Memory(
        pieces * BUFFERS * ranks * slot_words(_accumulators(config), ranks, form), ctas,
        words(ctas * -(-config.threads // 32)),
    )  # fmt: skip


def form_of(m: int, n: int, ranks: int, config: FreeTileConfig) -> str:
    """Choose how partial sums travel: the form with the shortest `exchange_us`."""
    return min(FORMS, key=lambda form: exchange_us(m, n, ranks, config, form))


def exchange_us(m: int, n: int, ranks: int, config: FreeTileConfig, form: str) -> float:
    """Return about how long the partial sums travel: their bytes, and the trips."""
    copies = ranks - 1 if form == "one_shot" else SHOTS[form] * (ranks - 1) / ranks
    return SHOTS[form] * TRIP_US + copies * travelling(m, n, config) / LINK_BYTES_PER_US


def travelling(m: int, n: int, config: FreeTileConfig) -> int:
    """Return the bytes of the partial sums of all tiles, with the rows and columns past a small tensor, which travel,
    too."""
    return -(-m // config.tokens) * -(-n // config.weights) * config.tokens * config.weights * 2


@lru_cache(maxsize=256)
def candidates(
    m: int, n: int, k: int, sms: int, product: Product = Product(), scales: str | None = None,  # noqa: B008
) -> tuple[FreeTileConfig, ...]:  # fmt: skip
    """Return the free tiles whose whole grid is resident, ranked by the model. Tiles larger than the tensors zero-fill
    what no box fills, because it is multiplied and the sums travel to the other GPUs."""
    fusion = Fusion(scales=scales)
    return tuple(
        replace(config, zero_fill=unfilled_bytes(config, m, n) > 0) for config, _ in ranked(m, n, k, product, sms=sms)
        if config.cluster == 1 and (config.persistent or waves_of(config, m, n, sms) == 1)
        and not config.shared_workspace and config.fits_registers(product, fusion)
    )  # fmt: skip


def choose(
    m: int, n: int, k: int, sms: int, product: Product = Product(), scales: str | None = None,  # noqa: B008 - frozen
    ranks: int = 1,
) -> FreeTileConfig:  # fmt: skip
    """Return the best of the `candidates`: by the model of the product alone, or with the time in which tiles travel to
    so many GPUs in their fastest form. Raises ArgumentError if there is none."""
    found = candidates(m, n, k, sms, product, scales)
    if found and ranks > 1:

        def time(config: FreeTileConfig) -> float:
            travels = exchange_us(m, n, ranks, config, form_of(m, n, ranks, config))
            return terms(config, m, n, k, product, sms=sms).total + travels

        return min(found, key=time)
    if not found:
        raise ArgumentError(
            "no tile of this product lets all its CTAs run at one time", expected=f"fewer rows or columns, {sms} SMs",
            got=(m, n, k), hint="matmul_reduce_scatter and an all-gather take products of any size",
        )  # fmt: skip
    return found[0]


@builder(keep=64)
def build(
    ranks: int,
    product: Product = Product(),  # noqa: B008 - frozen
    config: FreeTileConfig = FreeTileConfig(),  # noqa: B008
    *,
    form: str = "one_shot",
    scales: str | None = None,
) -> Kernel:
    """The kernel for a group of `ranks` GPUs; called as
    kernel(a, w, slots, launches, record, rank, out=d), with a (M, K), w (N, K), d (M, N), slots of each GPU, and sizes
    by `memory`. `scales`: "tensor" or "row": then scale_a and scale_b come after `record`, f32 and
    this GPU's own, one number each or (M,) and (N,). The partial sum is scaled before it is rounded and sent. form: how
    sums travel, one of `collective.reduce.peers.FORMS`, the same for which `memory` was computed.
    Raises ArgumentError if the configuration does not fit.
    """
    fusion = Fusion(scales=scales)
    config.check(product, fusion)
    if ranks < 2:
        raise ArgumentError("sums over GPUs need some", expected="2 ranks or more", got=ranks)
    if config.multicast or config.shared_workspace:
        raise ArgumentError(f"{config.name()} cannot add sums over GPUs", got=(config.multicast, config.split_by),
                            expected="no operand shared by neighbours, and splits of K in a cluster")  # fmt: skip
    names: dict[str, Tile | Scalar] = {
        **operands(product, config),
        "slots": Tile("Words", u32, peers=ranks),
        "launches": Tile("CTAs", u32, inout=True),
        "record": Tile("Record", u32, inout=True),
        **epilogue_arguments(fusion, product.out),
        "rank": Scalar(u32),
    }

    def gemm_all_reduce(**args: Any) -> None:
        cta = Cta.make(args, product, config, fusion)
        peer_reduce = PeerReduce(
            args["slots"], args["launches"], args["record"], args["rank"],
            accumulators=_accumulators(config), dtype=product.out,
            all_consumers=(ALL_CONSUMERS, 128 * config.consumers), form=form,
        )  # fmt: skip
        run_roles(cta, peer_reduce)

    return traced(gemm_all_reduce, names, product, config, ResidentGrid(config))


def _accumulators(config: FreeTileConfig) -> int:
    """Return the most accumulators per thread for its part of a block of 64 rows."""
    of_block = config.tile_n // 2
    if config.split_k == 1:
        return of_block
    width = exchange_width(of_block, config.split_k)
    return max(len(owned(of_block // width, config.split_k, part)) for part in range(config.split_k)) * width


@dataclass(frozen=True)
class ResidentGrid:
    """A free tile's grid, refused if a GPU cannot hold all of it at once."""

    config: FreeTileConfig

    def __call__(self, dims: Mapping[str, int], machine: Any) -> tuple[int, int, int]:
        """Return the CTAs along x, y, z. Also raises ArgumentError if the memory is too small."""
        config, m, n = self.config, dims["M"], dims["N"]
        grid = FreeTileGrid(config)(dims, machine)
        if grid[0] > machine.sms * config.ctas_per_sm:
            raise ArgumentError(
                f"{config.name()} has more CTAs than a GPU holds at one time, and those that run wait for the others",
                expected=f"at most {machine.sms * config.ctas_per_sm}", got=grid[0],
                hint="choose(...) finds a configuration that fits",
            )  # fmt: skip
        needed = memory(m, n, 2, config)
        if dims["CTAs"] < grid[0] or dims["Record"] < needed.record:
            raise ArgumentError(
                f"the memory of {config.name()} is too small for {m} x {n}", expected=f"sizes by memory(...): {needed}",
                got={name: dims[name] for name in ("Words", "CTAs", "Record")},
            )  # fmt: skip
        return grid
