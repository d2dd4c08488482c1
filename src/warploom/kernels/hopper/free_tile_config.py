"""The configuration of a free tile for few to medium rows: either operand on wgmma's M axis, any width on its N axis.

All sizes in this file follow from the configuration alone. `free_tile` builds the kernel, `FreeTileGrid` its grid.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

from ...collective.tile.cluster import SLICE_ROWS
from ...collective.tile.sizes import WARPGROUP_ROWS, exchange_bytes
from ...errors import ArgumentError
from ...isa.dtypes import DType, bf16, f16
from ...isa.instructions.wgmma import FLOAT_N
from ..fields import Numbers, ProductConfiguration, Requirement
from .description import ACTIVATIONS, TILE_K_BYTES, Fusion, Product, few_row_operands, shared_capacity
from .small_m_config import MOST_SPLIT, SPLITS, check_workspace

OUTPUTS: tuple[DType, ...] = (bf16, f16)
BLOCK = WARPGROUP_ROWS
MAX_STAGES = 24
MAX_ACCUMULATORS = {1: (160, 128), 2: (100, 96), 3: (72, 64)}
"""Accumulators per thread, at most, by consumers: not persistent, persistent. This is what ptxas 13.0 fits into the
registers of that many threads without a spill."""
MAX_ACCUMULATORS_SETMAXNREG = {2: 144, 3: 96}
"""Accumulators per thread, at most, if registers move from a producer warpgroup to the consumers (setmaxnreg)."""
MAX_ACCUMULATORS_LAST = {(1, 1): 120, (1, 2): 152}
MAX_ACCUMULATORS_SETMAXNREG_LAST = {(2, 1): 128, (2, 2): 112}
"""Both if splits of K meet in a workspace, by consumers and their blocks of 64 rows."""
ROLE_REGISTERS = {2: (24, 240), 3: (32, 160)}
"""Registers per thread of a producer and of a consumer in that case."""
LAUNCH_REGISTERS = {2: 168, 3: 128}
"""Registers of every thread at launch in that case."""
EPILOGUE_ACCUMULATORS = {1: 32, 2: 32, 3: 24}
MORE_ACCUMULATORS, OPERAND_ACCUMULATORS = 8, (8, 24)
"""Accumulators that the epilogue costs. `EPILOGUE_ACCUMULATORS`, by consumers: the first of a vector along the columns,
an activation and an operand. `MORE_ACCUMULATORS`: each further one. `OPERAND_ACCUMULATORS`: each operand, not swapped
and swapped.
Tried with ptxas 13.0 (`tests/kernels/test_free_tile.py`)."""
_Axis = TypeVar("_Axis")
MAX_PASS_COLUMNS = 64
"""Columns of the accumulators (swapped: tokens) that a persistent kernel stages at a time."""
BARRIER_BYTES = 512
WORKSPACE_COLUMNS = 512
"""Columns of the f32 workspace, for tiles of any width."""
SHARED = ("", "weights", "tokens", "both")
"""The operands that the CTAs of a cluster may share."""
ROW = 2
"""CTAs along the tokens if the cluster shares both operands."""
NAME = re.compile(
    r"(?P<side>[su])(?P<tile_m>\d{1,6})x(?P<tile_n>\d{1,6})(?:w(?P<consumers>\d{1,6}))?(?:k(?P<k_tiles>\d{1,6}))?_(?P<stages>\d{1,6})"
    r"(?:_S(?P<split_k>\d{1,6}))?(?P<persistent>_p)?(?:_n(?P<cluster>\d{1,6})(?P<multicast>[awb])?)?(?:_o(?P<ctas_per_sm>\d{1,6}))?"
    r"(?P<setmaxnreg>_r)?(?P<evict_first>_e)?(?P<elements>_1)?(?:_f(?P<prefetch>\d{1,6})|(?P<constant_weights>_cw))(?P<without>_np)?(?P<zero_fill>_z)?"
)


@dataclass(frozen=True)
class FreeTileConfig(ProductConfiguration):
    """How D = A Wᵀ is tiled.

    Attributes:
        swap_ab: the weights (rows of W) are on wgmma's M axis and the tokens (rows of A) on its N axis; otherwise the
            other way round.
        tile_m: rows of the operand on the M axis: 64, or a multiple of 64 per consumer; at most 256.
        tile_n: rows of the other operand: a multiple of 8, at most 256.
        consumers: warpgroups that split the rows of the M axis, 1 to 3.
        k_tiles: k-tiles of 128 bytes per stage: 1 or 2. Two halve the number of waits, which pays for small tiles.
        stages: stages of the ring.
        split_k: splits of K, one per CTA.
        split_by: "cluster": the splits of a tile are the CTAs of a cluster, which push their partial sums to each other
            (st.async). "last": the last of them to arrive adds up all sums, from a workspace in global memory; any
            number of splits, of tiles with several blocks of 64 rows per consumer, too. The CTAs of a cluster have the
            same split if they share an operand.
        persistent: as many CTAs as SMs loop over the tiles; otherwise one CTA per tile.
        cluster: CTAs per cluster (times the splits in it). Without `multicast` the cluster only keeps CTAs close
            together, so that they load the same weights at the same time.
        multicast: "weights": the CTAs of a cluster have adjacent tiles along the tokens, and each loads a slice of
            their weights for all. "tokens": along the weights, and they share tokens. "both": two tiles along the
            tokens and the rest along the weights; each shares its weights with the first and its tokens with the
            second. "": each CTA loads its own operands.
        ctas_per_sm: CTAs that must fit on an SM.
        evict_first: tell L2 that weights are read once.
        vector_store: rows of D are multiples of 16 bytes and stored in 16-byte units; otherwise element by element.
        prefetch: stages of weights prefetched into L2 before the previous kernel has completed.
        constant_weights: the caller's promise that no running kernel writes the weights; they are loaded, not just
            prefetched, before the previous kernel has completed.
        pdl: programmatic dependent launch. Without it nothing runs before the previous kernel has completed.
        zero_fill: zero the ring's rows past a tensor that is smaller than a tile. Otherwise they hold whatever shared
            memory held; these values reach only accumulators that are not stored. Clearing costs microseconds, but
            lets the emulator check that no other uninitialised memory is read.
        setmaxnreg: the producer has a warpgroup, which gives registers to two or three consumers; their tiles may then
            be twice as large.
        group: for a persistent kernel, the height of a band in tiles of tokens. The kernel finishes a band along the
            weights before the next, so that concurrent tiles share rows of both operands (`raster.grouped`). 0: one
            band of all the tokens.
    """

    family: ClassVar[str] = "free_tile"
    former: ClassVar[Mapping[str, str]] = {
        "swapped": "swap_ab", "split": "split_k", "neighbours": "cluster", "shared": "multicast", "band": "group",
        "whole": "vector_store", "cleared": "zero_fill", "moved": "setmaxnreg",
    }  # fmt: skip
    numbers: ClassVar[Mapping[str, Numbers]] = {
        "tile_m": range(BLOCK, 257, BLOCK), "tile_n": FLOAT_N, "consumers": (1, 2, 3), "k_tiles": (1, 2),
        "stages": range(2, MAX_STAGES + 1), "split_k": range(1, MOST_SPLIT + 1), "ctas_per_sm": (1, 2, 3, 4),
        "prefetch": 0, "group": 0,
    }  # fmt: skip
    words: ClassVar[Mapping[str, Sequence[str]]] = {"multicast": SHARED, "split_by": SPLITS[:2]}
    swap_ab: bool = False
    tile_m: int = 128
    tile_n: int = 96
    consumers: int = 2
    k_tiles: int = 1
    stages: int = 4
    split_k: int = 1
    split_by: str = "cluster"
    persistent: bool = False
    cluster: int = 1
    ctas_per_sm: int = 1
    evict_first: bool = False
    vector_store: bool = True
    prefetch: int = 3
    constant_weights: bool = False
    pdl: bool = True
    zero_fill: bool = False
    setmaxnreg: bool = False
    multicast: str = ""
    group: int = 0

    @property
    def blocks(self) -> int:
        """Blocks of 64 rows per consumer."""
        return self.tile_m // BLOCK // self.consumers

    @property
    def accumulators(self) -> int:
        """Accumulator registers per thread."""
        return self.blocks * self.tile_n // 2

    @property
    def threads(self) -> int:
        """Threads of a CTA: the consumer warpgroups and the producer's warp or warpgroup."""
        return 128 * self.consumers + (128 if self.setmaxnreg else 32)

    @property
    def launch_registers(self) -> int | None:
        """Registers per thread at launch, as the PTX states them; None if ptxas finds the number by itself."""
        return LAUNCH_REGISTERS[self.consumers] if self.setmaxnreg else None

    @property
    def role_registers(self) -> tuple[int | None, int | None]:
        """Registers per thread of a producer and of a consumer, if registers move."""
        return ROLE_REGISTERS[self.consumers] if self.setmaxnreg else (None, None)

    @property
    def reduced_index(self) -> bool:
        """True if the warpgroup's index has to come from redux.sync: with one tile per CTA, ptxas otherwise often moves
        the descriptors of each product from registers of each lane."""
        return (self.consumers > 1 or self.cluster > 1) and not self.persistent and not self.setmaxnreg

    @property
    def max_accumulators(self) -> int:
        """Accumulators per thread up to which ptxas is known not to spill."""
        if self.setmaxnreg:
            if self.shared_workspace:
                return MAX_ACCUMULATORS_SETMAXNREG_LAST.get((self.consumers, self.blocks), 0)
            return MAX_ACCUMULATORS_SETMAXNREG.get(self.consumers, 0)
        most = MAX_ACCUMULATORS.get(self.consumers, (0, 0))[self.persistent]
        return MAX_ACCUMULATORS_LAST.get((self.consumers, self.blocks), most) if self.shared_workspace else most

    @property
    def supports_group(self) -> bool:
        """True if there are registers for `band`: three consumers have none left at their largest tiles."""
        return self.consumers < 3

    @property
    def tokens(self) -> int:
        """Rows of A in a tile."""
        return self.tile_n if self.swap_ab else self.tile_m

    @property
    def weights(self) -> int:
        """Rows of W in a tile."""
        return self.tile_m if self.swap_ab else self.tile_n

    def on_axes(self, of_tokens: _Axis, of_weights: _Axis) -> tuple[_Axis, _Axis]:
        """What belongs to wgmma's M axis and to its N axis; its own inverse."""
        return (of_weights, of_tokens) if self.swap_ab else (of_tokens, of_weights)

    @property
    def along_tokens(self) -> int:
        """CTAs of a cluster that are adjacent along the tokens and share weights."""
        return {"weights": self.cluster, "both": ROW}.get(self.multicast, 1)

    @property
    def along_weights(self) -> int:
        """CTAs of a cluster that are adjacent along the weights and share tokens."""
        return {"tokens": self.cluster, "both": self.cluster // ROW}.get(self.multicast, 1)

    @property
    def shared(self) -> str:
        """The operands of D = A Bᵀ whose tiles the CTAs of a cluster share: "", "a", "b" or "ab"."""
        return {"weights": "b", "tokens": "a", "both": "ab"}.get(self.multicast, "")

    @property
    def sharing_ctas(self) -> int:
        """CTAs of a cluster that share operands; 1 if none do."""
        return self.cluster if self.multicast else 1

    @property
    def in_cluster(self) -> int:
        """Splits of K that are CTAs of one cluster."""
        return self.split_k if self.split_by == "cluster" else 1

    @property
    def shared_workspace(self) -> bool:
        """True if a call takes a workspace and counters."""
        return self.split_k > self.in_cluster

    def workspace(self, m: int, n: int, sms: int) -> tuple[tuple[int, int], int]:
        """The memory that "last" requires from the caller: the shape of an f32 workspace, whatever it contains, and the
        number of u32 counters, initially zero."""
        tiles = self.clusters(-(-m // self.tokens), -(-n // self.weights)) * self.cluster
        rows = -(-tiles * self.split_k * self.tile_m * self.tile_n // WORKSPACE_COLUMNS)
        return (rows, WORKSPACE_COLUMNS), tiles * self.consumers

    @property
    def ctas(self) -> int:
        """CTAs per cluster."""
        return self.in_cluster * self.cluster

    def clusters(self, across: int, down: int) -> int:
        """The number of clusters that cover `across` tiles along the tokens and `down` along the weights. A cluster
        extends along the axis whose tiles share an operand."""
        if self.multicast:
            return -(-across // self.along_tokens) * -(-down // self.along_weights)
        return -(-across * down // self.cluster)

    @property
    def stage_bytes(self) -> int:
        """Bytes of one stage: both operands' tiles."""
        return (self.tile_m + self.tile_n) * self.k_tiles * TILE_K_BYTES

    @property
    def exchange_bytes(self) -> int:
        """Bytes of shared memory into which the other splits of K push their partial sums."""
        return exchange_bytes(self.tile_n // 2, self.in_cluster, self.consumers)

    @property
    def pass_columns(self) -> int:
        """Columns of the accumulators staged at a time: all if they use the empty ring, few if persistent."""
        return min(self.tile_n, MAX_PASS_COLUMNS) if self.persistent else self.tile_n

    @property
    def staged_bytes(self) -> int:
        """Bytes of shared memory in which stores are staged (`collective.staged_store`)."""
        blocks = self.consumers * (1 if self.persistent else self.blocks)
        return blocks * staged_block_bytes(self.pass_columns, self.swap_ab)

    @property
    def output_tile(self) -> tuple[int, int]:
        """Rows and columns of D that a CTA computes at a time."""
        return self.tokens, self.weights

    def shared_bytes(self, *of: object) -> int:
        """Bytes of shared memory per CTA, barriers rounded up, independent of the product."""
        ring = self.stages * self.stage_bytes
        body = ring + self.staged_bytes if self.persistent else max(ring, self.staged_bytes)
        return body + self.exchange_bytes + BARRIER_BYTES

    def filled(self) -> FreeTileConfig:
        """This configuration with as many stages as fit."""
        one = replace(self, stages=2)
        free = shared_capacity(self.ctas_per_sm) - (one.shared_bytes() - 2 * self.stage_bytes if self.persistent else
                                         self.exchange_bytes + BARRIER_BYTES)  # fmt: skip
        return replace(self, stages=max(2, min(MAX_STAGES, free // self.stage_bytes)))

    def fits_registers(self, product: Product, fusion: Fusion) -> bool:
        """True if ptxas is known not to spill with this epilogue."""
        most = self.max_accumulators
        operations = (fusion.scales == "row") + (fusion.bias is not None) + (fusion.activation is not None)
        operations += fusion.gate + fusion.addend
        if operations:
            most -= EPILOGUE_ACCUMULATORS[self.consumers] + MORE_ACCUMULATORS * (operations - 1)
            most -= OPERAND_ACCUMULATORS[self.swap_ab] * (fusion.gate + fusion.addend)
            most -= MORE_ACCUMULATORS * self.shared_workspace
        return self.accumulators <= most

    def requirements(self, product: Product, fusion: Fusion) -> list[Requirement]:
        most, room, consumers = self.max_accumulators, shared_capacity(self.ctas_per_sm), self.consumers
        return [
            (not self.setmaxnreg or consumers in MAX_ACCUMULATORS_SETMAXNREG,
             "the number of consumers", "2 or 3 if registers move", consumers),
            (self.tile_m % (BLOCK * consumers) == 0, "the tile's rows",
             f"a multiple of {BLOCK * consumers} to 256", self.tile_m),
            (self.accumulators <= most, "the accumulators do not fit the registers", f"at most {most} per thread",
             self.accumulators),
            (self.ctas <= 8, "the cluster size", "at most 8 CTAs", self.ctas),
            (self.in_cluster == 1 or (self.blocks == 1 and self.split_k <= self.tile_n // 8), "the splits of K",
             f"in a cluster 64 rows per consumer, and at most {self.tile_n // 8} splits", (self.split_k, self.blocks)),
            (self.cluster == 1 or self.multicast or not self.shared_workspace, "the cluster size",
             '1 with split_by="last" that shares nothing', self.cluster),
            (self.split_k == 1 or not self.persistent, "the splits of K", "1 for a persistent kernel", self.split_k),
            (self.cluster == 1 or not self.persistent or self.multicast, "the cluster size",
             "1 for a persistent kernel that shares nothing", self.cluster),
            (not self.group or self.persistent, "the bands", "0 unless the kernel is persistent", self.group),
            (not self.group or self.supports_group, "the bands", "0 with three consumers", self.group),
            (not self.multicast or self.cluster > 1, "the cluster size", "at least 2 CTAs to share", self.cluster),
            (not self.multicast or self.in_cluster == 1, "the splits of K",
             "1 if an operand is shared, or split_by=\"last\"", self.split_k),
            (self.multicast != "both" or self.cluster in (4, 8), "the cluster size", "4 or 8 to share both operands",
             self.cluster),
            *((ctas == 1 or (rows if major == "K" else product.tile_k) >= SLICE_ROWS * ctas, "the shared rows",
               f"{SLICE_ROWS} rows per CTA", (rows, ctas))
              for rows, ctas, major in ((self.weights, self.along_tokens, product.b_major),
                                        (self.tokens, self.along_weights, product.a_major))),
            *few_row_operands(product),
            (product.out in OUTPUTS, "the output type", ", ".join(map(str, OUTPUTS)), product.out),
            (supports_fusion(fusion), "the fused epilogue",
             "scales of the tensor or of rows, a bias along the columns, an activation, a gate, an addend",
             repr(fusion)),
            (self.tile_n % BLOCK == 0 or self.on_axes(product.a_major, product.b_major)[1] == "K",
             "the columns of a tile whose operand on the N axis is MN-major", f"a multiple of {BLOCK}", self.tile_n),
            (self.shared_bytes() <= room, "the shared memory", f"at most {room} bytes", self.shared_bytes()),
        ]  # fmt: skip


def supports_fusion(fusion: Fusion) -> bool:
    """True if the epilogue of a free tile (`free_tile_epilogue`) supports all of this fusion."""
    plain = not (fusion.amax or fusion.scale_out)
    known = fusion.activation in (None, *ACTIVATIONS) and fusion.bias in (None, "column")
    return plain and known and fusion.scales in (None, "tensor", "row")


def staged_block_bytes(columns: int, swap_ab: bool) -> int:
    """Bytes of the buffer that stages 64 x `columns` accumulators of 16-bit results for their store."""
    return columns * staged_pitch(columns, swap_ab) if swap_ab else BLOCK * staged_pitch(columns, swap_ab)


def staged_pitch(columns: int, swap_ab: bool) -> int:
    """Bytes from row to row: an odd multiple of 16, so that eight rows of 16 bytes fall into different banks."""
    return 2 * BLOCK + 16 if swap_ab else 2 * columns + (16 if columns // 8 % 2 == 0 else 0)


def named(text: str) -> FreeTileConfig:
    """The configuration of a short name, as in evidence older than `name()`. Raises ArgumentError for any other
    text."""
    found = NAME.fullmatch(text)
    if found is None:
        raise ArgumentError("unknown free-tile configuration", expected="a name such as u128x96w2_9_f3",
                            got=text)  # fmt: skip
    numbers = {key: int(value) for key, value in found.groupdict().items() if value and value.isdigit()}
    named = ("persistent", "evict_first", "constant_weights", "zero_fill", "setmaxnreg")
    flags = {key: found[key] is not None for key in named}
    fields: dict[str, Any] = {"consumers": 1, **numbers, **flags}
    fields["multicast"] = {"a": "tokens", "w": "weights", "b": "both"}.get(found["multicast"], "")
    return FreeTileConfig(**fields, swap_ab=found["side"] == "s", vector_store=found["elements"] is None,
                          pdl=found["without"] is None)  # fmt: skip


@dataclass(frozen=True)
class FreeTileGrid:
    """The grid rule: one CTA per tile and split of K, rounded up to whole clusters; persistent: one per SM slot."""

    config: FreeTileConfig

    def __call__(self, dims: Mapping[str, int], machine: Any) -> tuple[int, int, int]:
        """CTAs along x, y, z. Raises ArgumentError for a workspace that is too small."""
        config = self.config
        check_workspace(config, dims, machine.sms)
        across, down = -(-dims["M"] // config.tokens), -(-dims["N"] // config.weights)
        tiles = across * down
        if config.multicast:
            tiles = config.clusters(across, down)
            if config.persistent:
                tiles = min(tiles, machine.clusters(config.cluster) * config.ctas_per_sm)
            return (tiles * config.cluster * config.split_k, 1, 1)
        if config.persistent:
            return (min(tiles, machine.sms * config.ctas_per_sm), 1, 1)
        return (-(-tiles // config.cluster) * config.cluster * config.split_k, 1, 1)
