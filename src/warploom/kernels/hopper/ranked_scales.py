"""Row scales of several GPUs' rows, for the epilogue of a communicating product.

All rows of a tile belong to one GPU. Their scales are this GPU's own, arrived together with the rows, or are
replicated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...collective.epilogue.apply import Epilogue
from ...errors import ArgumentError
from ...isa.dtypes import DType, f32, u64
from ...lang import ptx
from ...lang.peers import PeerArrays
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from . import gemm
from .description import Config, Fusion, Product

__all__ = ["ROLE_REGS", "Scales", "check_fusion", "epilogue_of"]

ROLE_REGS = (72, 216)
"""Registers per thread of the producer's warpgroup, whose other warps copy or add rows, and of each of two consumers;
the total is that of `gemm.ROLE_REGS`."""


def check_fusion(product: Product, fusion: Fusion) -> None:
    """Raise ArgumentError for an epilogue that communicating products do not support."""
    fusion.check(product.out)
    if fusion.bias == "row" or fusion.gate or fusion.addend or fusion.amax:
        raise ArgumentError(
            "a product that communicates does not support this epilogue",
            expected="scales, alpha, a bias of the column, an activation, a factor of the output", got=fusion,
        )  # fmt: skip


@dataclass
class Scales:
    """The scales of a tile's rows as an array for `Epilogue`: this GPU's own, or those that came with peers' rows.

    Attributes:
        own: (R,) of this GPU; or (ranks, R) of all GPUs, if scales do not travel.
        came: (ranks, R) on each GPU, or None.
        owner: the rank whose rows the tile has; set before each tile.
    """

    own: ArrayHandle
    came: PeerArrays | None
    rank: Register
    owner: Register | None = None
    dtype: DType = f32

    @classmethod
    def of(cls, args: dict[str, Any], rank: Register) -> Scales:
        """Make the scales from the kernel's arguments."""
        return cls(args["scale_a"], args.get("came"), rank)

    def pointer(self) -> Register:
        """Return the address of the scales of the owner's rows."""
        assert self.owner is not None
        rows = self.own.shape[-1].to(u64) * f32.bytes
        if self.came is None:
            return self.own.pointer() + self.owner.to(u64) * rows
        theirs = self.came.pointer(self.rank) + self.owner.to(u64) * rows
        chosen: Register = ptx.select(self.owner == self.rank, self.own.pointer(), theirs)
        chosen.origin = self.own.pointer().origin | theirs.origin
        return chosen

    def send(self, owner: Register, first: Register, thread: Register, count: Register) -> None:
        """Send `count` of this GPU's scales, at most one per thread, from row `first`, to GPU `owner`."""
        if self.came is None:
            return
        start = first.to(u64) + thread
        with ptx.if_(thread < count):
            value = ptx.load(f32, ptx.addr(self.own.pointer() + start * f32.bytes))
            there = self.came.pointer(owner) + (self.rank.to(u64) * self.own.shape[-1] + start) * f32.bytes
            ptx.store(ptx.addr(there), value)


def epilogue_of(
    fusion: Fusion, config: Config, D: ArrayHandle, args: dict[str, Any], rank: Register
) -> tuple[Epilogue | None, Scales | None, tuple[int, int]]:
    """Return a product's epilogue, its row scales, and the registers of its roles."""
    registers = ROLE_REGS if config.consumers == 2 else gemm.role_registers(config, not fusion.empty)
    if fusion.empty:
        return None, None, registers
    scales = Scales.of(args, rank) if fusion.scales == "row" else None
    epilogue_args = args if scales is None else {**args, "scale_a": scales}
    spare = max(registers[1] - config.accumulators - gemm.ADDRESS_REGS, 0)
    return Epilogue(fusion, D, epilogue_args, spare=spare), scales, registers
