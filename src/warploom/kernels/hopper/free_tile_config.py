"""How a product of few to medium rows is tiled freely: either operand on wgmma's M axis, any width on its N axis.

The sizes of this file follow from the configuration alone; `free_tile` builds the kernel, `FreeTileGrid` launches it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...collective.tile.cluster import SLICE_ROWS
from ...collective.tile.sizes import exchange_width, owned
from ...errors import ArgumentError
from ...isa.dtypes import DType, bf16, e4m3, e5m2, f16
from ...isa.instructions.wgmma import FLOAT_N
from .description import ACTIVATIONS, SHARED_BYTES, TILE_K_BYTES, Fusion, Product
from .fields import Configuration, check_fields

OPERANDS: tuple[DType, ...] = (bf16, f16, e4m3, e5m2)
OUTPUTS: tuple[DType, ...] = (bf16, f16)
BLOCK = 64
"""Rows of a wgmma."""
SHARED_OF_SM = 228 << 10
RESERVED = 1 << 10
"""Shared memory of a multiprocessor of sm_90, and what each CTA on it takes for itself."""
MOST_STAGES = 24
MOST_ACCUMULATORS = {1: (160, 128), 2: (100, 96), 3: (72, 64), 4: (48, 48)}
"""Of a thread, by consumers, without and with several tiles: what ptxas 13.0 fits into the registers that that many
threads leave each other without a spill."""
MOST_MOVED = {2: 144, 3: 96}
"""The same where registers move to the consumers from a producer's warpgroup (setmaxnreg)."""
MOVED_REGISTERS = {2: (24, 240), 3: (32, 160)}
"""Registers of a producer's and of a consumer's thread then."""
LAUNCH_REGISTERS = {2: 168, 3: 128}
"""Of every thread at launch."""
ROOM_OF_END = {1: 32, 2: 32, 3: 24, 4: 12}
ROOM_OF_MORE, ROOM_OF_OPERAND = 8, (8, 24)
"""Accumulators fewer, by consumers, for something at the end: a vector along the columns, an activation, an operand;
for each further one; and for each operand, not swapped and swapped. Tried with ptxas 13.0
(`tests/kernels/test_free_tile.py`)."""
_PLAIN = Fusion()
MOST_PASS = 64
"""Columns of the accumulators (swapped: tokens) that a persistent kernel stages at a time."""
BARRIER_BYTES = 512
SHARED = ("", "weights", "tokens", "both")
"""What neighbours may share."""
ROW = 2
"""CTAs along the tokens where neighbours share both."""
_NUMBERS = {
    "tile_m": 64, "tile_n": 8, "consumers": 1, "k_tiles": 1, "stages": 2, "split": 1, "neighbours": 1, "prefetch": 0,
    "ctas_per_sm": 1, "band": 0,
}  # fmt: skip
NAME = re.compile(
    r"(?P<side>[su])(?P<tile_m>\d{1,6})x(?P<tile_n>\d{1,6})(?:w(?P<consumers>\d{1,6}))?(?:k(?P<k_tiles>\d{1,6}))?_(?P<stages>\d{1,6})"
    r"(?:_S(?P<split>\d{1,6}))?(?P<persistent>_p)?(?:_n(?P<neighbours>\d{1,6})(?P<shared>[awb])?)?(?:_o(?P<ctas_per_sm>\d{1,6}))?"
    r"(?P<moved>_r)?(?P<evict_first>_e)?(?P<elements>_1)?(?:_f(?P<prefetch>\d{1,6})|(?P<constant_weights>_cw))(?P<without>_np)?(?P<cleared>_z)?"
)


@dataclass(frozen=True)
class FreeTileConfig(Configuration):
    """How D = A Wᵀ is tiled.

    Attributes:
        swapped: the weights (rows of W) are on wgmma's M axis and the tokens (rows of A) on its N axis; else the other
            way round.
        tile_m: rows of the operand on the M axis in a tile: 64, or a multiple of it for each consumer; to 256.
        tile_n: rows of the other operand: a multiple of 8 to 256.
        consumers: warpgroups that share the rows of the M axis, 1 to 4.
        k_tiles: pieces of 128 bytes of k in a stage: 1 or 2. Two halve the waiting, which pays for small tiles.
        stages: of the ring.
        split: parts of K, one for each CTA of a cluster, which push their sums to each other (st.async).
        persistent: as many CTAs as the machine has multiprocessors go through the tiles; else a CTA for each tile.
        neighbours: CTAs of a cluster. Unless something is `shared`, that only places them close together: they load the
            same weights at one time.
        shared: "weights": the CTAs of a cluster have tiles that follow each other along the tokens, and each loads a
            slice of their weights for all of them (multicast); "tokens": along the weights, and they share tokens;
            "both": two tiles along the tokens, the others along the weights, and each shares its weights with the first
            and its tokens with the second; "": each loads its own.
        ctas_per_sm: CTAs that are to fit a multiprocessor.
        evict_first: L2 is told that weights are read once.
        whole: rows of D are multiples of 16 bytes, and are stored in such pieces; else element by element.
        prefetch: stages of weights brought into L2 before the kernel in front has ended.
        constant_weights: the caller's promise that no kernel still running writes the weights; they are loaded before
            the kernel in front has ended, instead of prefetched.
        pdl: programmatic dependent launch. Without it nothing goes ahead of the kernel in front.
        cleared: rows of the ring past a tensor that is smaller than a tile are zeros. Without that they are whatever
            shared memory had; they only reach accumulators that nobody stores. It costs microseconds, and lets the
            emulator see that nothing else is read that nobody wrote.
        moved: the producer has a warpgroup, which gives its registers to two or three consumers (setmaxnreg): their
            parts of a tile may then be twice as large.
        band: of a persistent kernel, which goes through bands of that many tiles of tokens, each along the weights, so
            that tiles computed at one time share rows of both (`raster.grouped`); 0: along all the tokens.
    """

    family: ClassVar[str] = "free_tile"
    swapped: bool = False
    tile_m: int = 128
    tile_n: int = 96
    consumers: int = 2
    k_tiles: int = 1
    stages: int = 4
    split: int = 1
    persistent: bool = False
    neighbours: int = 1
    ctas_per_sm: int = 1
    evict_first: bool = False
    whole: bool = True
    prefetch: int = 3
    constant_weights: bool = False
    pdl: bool = True
    cleared: bool = False
    moved: bool = False
    shared: str = ""
    band: int = 0

    @property
    def blocks(self) -> int:
        """Blocks of 64 rows of one consumer."""
        return self.tile_m // BLOCK // self.consumers

    @property
    def accumulators(self) -> int:
        """Registers of a thread for its part of a tile."""
        return self.blocks * self.tile_n // 2

    @property
    def threads(self) -> int:
        """The consumers' warpgroups and the producer's warp or warpgroup."""
        return 128 * self.consumers + (128 if self.moved else 32)

    @property
    def launch_registers(self) -> int | None:
        """What the text says about the registers at launch; None if ptxas finds the number by itself."""
        return LAUNCH_REGISTERS[self.consumers] if self.moved else None

    @property
    def role_registers(self) -> tuple[int | None, int | None]:
        """Of a producer's and of a consumer's thread, where registers move."""
        return MOVED_REGISTERS[self.consumers] if self.moved else (None, None)

    @property
    def most_accumulators(self) -> int:
        """Registers of a thread for accumulators that ptxas is known to spill nothing of."""
        if self.moved:
            return MOST_MOVED.get(self.consumers, 0)
        return MOST_ACCUMULATORS.get(self.consumers, (0, 0))[self.persistent]

    @property
    def takes_bands(self) -> bool:
        """Whether there are registers for `band`: three consumers have none left at their largest tiles."""
        return self.consumers < 3

    @property
    def tokens(self) -> int:
        """Rows of A in a tile."""
        return self.tile_n if self.swapped else self.tile_m

    @property
    def weights(self) -> int:
        """Rows of W in a tile."""
        return self.tile_m if self.swapped else self.tile_n

    @property
    def along_tokens(self) -> int:
        """CTAs of a cluster that follow each other along the tokens and share weights."""
        return {"weights": self.neighbours, "both": ROW}.get(self.shared, 1)

    @property
    def along_weights(self) -> int:
        """CTAs of a cluster that follow each other along the weights and share tokens."""
        return {"tokens": self.neighbours, "both": self.neighbours // ROW}.get(self.shared, 1)

    @property
    def ctas(self) -> int:
        """CTAs of a cluster."""
        return self.split * self.neighbours

    def groups(self, across: int, down: int) -> int:
        """How many clusters have tiles, of that many along the tokens and along the weights: what neighbours share
        decides along which of the two they stand."""
        if self.shared:
            return -(-across // self.along_tokens) * -(-down // self.along_weights)
        return -(-across * down // self.neighbours)

    @property
    def stage_bytes(self) -> int:
        """Of both operands' tiles of one stage."""
        return (self.tile_m + self.tile_n) * self.k_tiles * TILE_K_BYTES

    @property
    def exchange_bytes(self) -> int:
        """Shared memory into which the other parts of K push their sums."""
        if self.split == 1:
            return 0
        width = exchange_width(self.tile_n // 2, self.split)
        pieces = self.tile_n // 2 // width
        most = max(len(owned(pieces, self.split, rank)) for rank in range(self.split))
        return (self.split - 1) * most * width * 4 * 128 * self.consumers

    @property
    def pass_columns(self) -> int:
        """Columns of the accumulators that are staged at a time: all of them over the empty ring, else few."""
        return min(self.tile_n, MOST_PASS) if self.persistent else self.tile_n

    @property
    def staged_bytes(self) -> int:
        """Shared memory of the stages of stores (`collective.staged_store`)."""
        blocks = self.consumers * (1 if self.persistent else self.blocks)
        return blocks * staged_block(self.pass_columns, self.swapped)

    @property
    def output_tile(self) -> tuple[int, int]:
        """Rows and columns of D that a CTA computes at one time."""
        return self.tokens, self.weights

    def shared_bytes(self, *of: object) -> int:
        """Of a CTA, barriers rounded up, whatever the product."""
        ring = self.stages * self.stage_bytes
        body = ring + self.staged_bytes if self.persistent else max(ring, self.staged_bytes)
        return body + self.exchange_bytes + BARRIER_BYTES

    def filled(self) -> FreeTileConfig:
        """The same with as many stages as fit."""
        one = replace(self, stages=2)
        free = room(self.ctas_per_sm) - (one.shared_bytes() - 2 * self.stage_bytes if self.persistent else
                                         self.exchange_bytes + BARRIER_BYTES)  # fmt: skip
        return replace(self, stages=max(2, min(MOST_STAGES, free // self.stage_bytes)))

    def check(self, product: Product, fusion: Fusion = _PLAIN) -> None:
        """Raise ArgumentError where no kernel can be built from this."""
        flags = ("swapped", "persistent", "evict_first", "whole", "constant_weights", "pdl", "cleared", "moved")
        check_fields(self, _NUMBERS, flags, {"shared": SHARED})
        problem = self._problem(product, fusion)
        if problem is not None:
            what, expected, got = problem
            raise ArgumentError(f"the free-tile configuration {self.name()} cannot be built: {what}",
                                expected=expected, got=got, code="configuration")  # fmt: skip

    def fits_registers(self, product: Product, fusion: Fusion = _PLAIN) -> bool:
        """Whether ptxas is known to spill nothing of this with such an end."""
        most = self.most_accumulators
        heavy = (fusion.scales == "row") + (fusion.bias is not None) + (fusion.activation is not None)
        heavy += fusion.gate + fusion.addend
        if heavy:
            most -= ROOM_OF_END[self.consumers] + ROOM_OF_MORE * (heavy - 1)
            most -= ROOM_OF_OPERAND[self.swapped] * (fusion.gate + fusion.addend)
        return self.accumulators <= most

    def _problem(self, product: Product, fusion: Fusion = _PLAIN) -> tuple[str, str, object] | None:
        most = self.most_accumulators
        checks: list[tuple[bool, str, str, object]] = [
            (self.consumers in (MOST_MOVED if self.moved else MOST_ACCUMULATORS), "its consumers",
             "2 or 3 where registers move" if self.moved else "1 to 4", self.consumers),
            (self.tile_m % (BLOCK * self.consumers) == 0 and self.tile_m <= 256, "its rows",
             f"a multiple of {BLOCK * self.consumers} to 256", self.tile_m),
            (self.tile_n in FLOAT_N, "its columns", "a multiple of 8 to 256", self.tile_n),
            (self.accumulators <= most, "its accumulators do not fit the registers", f"at most {most} for each thread",
             self.accumulators),
            (self.k_tiles in (1, 2), "its pieces of k in a stage", "1 or 2", self.k_tiles),
            (self.stages <= MOST_STAGES, "its ring", f"at most {MOST_STAGES} stages", self.stages),
            (self.ctas_per_sm <= 4, "its CTAs on a multiprocessor", "1 to 4", self.ctas_per_sm),
            (self.ctas <= 8, "its cluster", "at most 8 CTAs", self.ctas),
            (self.split == 1 or (self.blocks == 1 and self.split <= self.tile_n // 8), "its parts of K",
             f"64 rows for each consumer, and at most {self.tile_n // 8} parts", (self.split, self.blocks)),
            (self.split == 1 or not self.persistent, "its parts of K", "1 where it is persistent", self.split),
            (self.neighbours == 1 or not self.persistent or self.shared != "", "its neighbours",
             "1 where it is persistent and nothing is shared", self.neighbours),
            (not self.band or self.persistent, "its bands", "0 where it is not persistent", self.band),
            (not self.band or self.takes_bands, "its bands", "0 with three consumers or more", self.band),
            (not self.shared or self.neighbours > 1, "what is shared", "2 neighbours or more", self.neighbours),
            (not self.shared or self.split == 1, "what is shared", "all of K", self.split),
            (self.shared != "both" or self.neighbours in (4, 8), "its neighbours", "4 or 8 that share both",
             self.neighbours),
            *((sharers == 1 or rows >= SLICE_ROWS * sharers, "what is shared", f"{SLICE_ROWS} rows for each neighbour",
               (rows, sharers))
              for rows, sharers in ((self.weights, self.along_tokens), (self.tokens, self.along_weights))),
            (product.a in OPERANDS and product.b in OPERANDS, "its operands", ", ".join(map(str, OPERANDS)),
             (str(product.a), str(product.b))),
            (product.a == product.b or product.a.bits == product.b.bits == 8, "its operands",
             "one type, or two of eight bits", (str(product.a), str(product.b))),
            (product.out in OUTPUTS, "its output", ", ".join(map(str, OUTPUTS)), str(product.out)),
            (end_fits(fusion), "what is fused into its end",
             "scales of the tensor or of rows, a bias along the columns, an activation, a gate, an addend",
             repr(fusion)),
            ((product.a_major, product.b_major) == ("K", "K"), "its layouts", "both operands contiguous in k",
             (product.a_major, product.b_major)),
            (self.shared_bytes() <= room(self.ctas_per_sm), "its shared memory",
             f"at most {room(self.ctas_per_sm)} bytes", self.shared_bytes()),
        ]  # fmt: skip
        return next(((what, expected, got) for right, what, expected, got in checks if not right), None)


def end_fits(fusion: Fusion) -> bool:
    """Whether the end of a free tile (`free_tile_end`) does all that is asked."""
    plain = not (fusion.amax or fusion.scale_out)
    known = fusion.activation in (None, *ACTIVATIONS) and fusion.bias in (None, "column")
    return plain and known and fusion.scales in (None, "tensor", "row")


def room(ctas_per_sm: int) -> int:
    """Bytes of shared memory of each of that many CTAs on a multiprocessor."""
    return min(SHARED_BYTES, SHARED_OF_SM // ctas_per_sm - RESERVED)


def staged_block(columns: int, swapped: bool) -> int:
    """Bytes in which the store of 64 x `columns` accumulators of 16-bit results is staged."""
    return columns * staged_pitch(columns, swapped) if swapped else BLOCK * staged_pitch(columns, swapped)


def staged_pitch(columns: int, swapped: bool) -> int:
    """Bytes from row to row: an odd multiple of 16, so that eight rows of 16 bytes fall into different banks."""
    return 2 * BLOCK + 16 if swapped else 2 * columns + (16 if columns // 8 % 2 == 0 else 0)


def named(text: str) -> FreeTileConfig:
    """The configuration of a short name, as evidence before `name()` has it. Raises ArgumentError for other texts."""
    found = NAME.fullmatch(text)
    if found is None:
        raise ArgumentError("unknown free-tile configuration", expected="a name such as u128x96w2_9_f3",
                            got=text)  # fmt: skip
    numbers = {key: int(value) for key, value in found.groupdict().items() if key in _NUMBERS and value is not None}
    named = ("persistent", "evict_first", "constant_weights", "cleared", "moved")
    flags = {key: found[key] is not None for key in named}
    fields: dict[str, Any] = {"consumers": 1, **numbers, **flags}
    fields["shared"] = {"a": "tokens", "w": "weights", "b": "both"}.get(found["shared"], "")
    return FreeTileConfig(**fields, swapped=found["side"] == "s", whole=found["elements"] is None,
                          pdl=found["without"] is None)  # fmt: skip


@dataclass(frozen=True)
class FreeTileGrid:
    """The grid rule: a CTA for each tile and part of K, filled up to whole clusters; persistent: one for each SM."""

    config: FreeTileConfig

    def __call__(self, dims: Mapping[str, int], machine: Any) -> tuple[int, int, int]:
        """CTAs along x, y, z."""
        config = self.config
        across, down = -(-dims["M"] // config.tokens), -(-dims["N"] // config.weights)
        tiles = across * down
        if config.shared:
            tiles = config.groups(across, down)
            if config.persistent:
                tiles = min(tiles, machine.clusters(config.neighbours) * config.ctas_per_sm)
            return (tiles * config.neighbours, 1, 1)
        if config.persistent:
            return (min(tiles, machine.sms * config.ctas_per_sm), 1, 1)
        return (-(-tiles // config.neighbours) * config.ctas, 1, 1)
