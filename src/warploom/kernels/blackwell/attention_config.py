"""Tiling of the Blackwell attention kernel, and the problems that it supports; `Attention` is Hopper's."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import ArgumentError
from ...isa import arch
from ..fields import check_fields
from ..hopper.attention_config import Attention

ROWS = 128
"""Queries per softmax warpgroup: the lanes of tensor memory."""
STRANDS = 2
"""Tiles of queries that a CTA alternates between."""
HEAD_DIMS = (64, 128)
COLUMNS = 512
REGISTERS = {"softmax": 184, "correction": 88, "others": 56}
"""Registers per thread; two, one and one warpgroups of them are the 65,536 of an SM."""
LAUNCH_REGISTERS = 128
SHARED_BYTES = arch.get("sm_100a").shared_per_cta
RESERVE_BYTES = 3072
"""Bytes of shared memory reserved for barriers, factors and the alignment of tiles."""


@dataclass(frozen=True)
class Config:
    """Keys per tile, and stages of the ring that keys and values share; 0: as many as fit."""

    tile_n: int = 128
    stages: int = 0

    @property
    def tile_m(self) -> int:
        """Queries per CTA."""
        return ROWS * STRANDS

    def shared_stages(self, of: Attention) -> int:
        """Stages of the ring."""
        room = SHARED_BYTES - RESERVE_BYTES - 2 * self.tile_m * of.head_dim * of.dtype.bytes  # queries and O
        return self.stages or min(6, room // (self.tile_n * of.head_dim * of.dtype.bytes))

    def overlaid(self, of: Attention) -> bool:
        """True if P has the columns of S, because tensor memory has no others left."""
        return STRANDS * (self.tile_n + self.tile_n // 2 + of.head_dim) > COLUMNS

    def check(self, of: Attention) -> None:
        """Raise ArgumentError for problems that this kernel does not support."""
        check_fields(self, {"tile_n": (64, 128), "stages": 0})
        for wrong, expected, got in (
            (of.head_dim not in HEAD_DIMS or of.value_dim != of.head_dim, "head_dim and value_dim 64, or 128",
             (of.head_dim, of.value_dim)),
            (of.dtype.bits != 16, "bf16 or f16", of.dtype),
            (_beside(of), "full or causal attention", ", ".join(_beside(of))),
        ):  # fmt: skip
            if wrong:
                raise ArgumentError("the Blackwell attention kernel does not support this", expected=expected, got=got)
        if self.shared_stages(of) < 2:
            raise ArgumentError("the Blackwell attention kernel does not support this",
                                expected="at least 2 stages, one for keys and one for values; 0: as many as fit",
                                got=self.stages)  # fmt: skip


def _beside(of: Attention) -> list[str]:
    """The requested features besides full and causal attention."""
    asked = {
        "a window": of.window_left, "softcap": of.softcap, "sinks": of.sinks, "lengths of sequences": of.varlen,
        "score_mod": of.score_mod is not None, "mask_mod": of.mask_mod is not None, "a block mask": of.block_mask,
    }  # fmt: skip
    return [name for name, there in asked.items() if there]
