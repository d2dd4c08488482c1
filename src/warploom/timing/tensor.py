"""Clocks of the tensor core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .constants import Hardware
from .recording import Operation

NARROW = ("e4m3", "e5m2", "s8", "u8")

LANES, ROW_BITS = 128, 256
"""Rows per CTA and bits of k of a tcgen05 product."""
_BITS = {"tf32": 32, "f16": 16, "mxf4": 4, "mxf4nvf4": 4}
"""Bits of an element by kind; 8 for all other kinds."""


def is_sparse(operation: Operation) -> bool:
    """True for a product with a sparse A, of which half is stored."""
    return ".sp." in operation.text


def done_flops(operation: Operation) -> float:
    """Return the FLOP that are executed: half of a sparse product's nominal FLOP, which include the zeros."""
    return operation.flops / 2 if is_sparse(operation) else operation.flops


@dataclass(frozen=True)
class Products:
    """The products of warpgroups: FLOP that are executed, of wider types and of 8-bit ones, and of all of them the
    shares with f16 operands and with a sparse A."""

    wide: float
    narrow: float
    f16: float
    sparse: float

    @classmethod
    def of(cls, operations: Sequence[Operation]) -> Products:
        done = [(done_flops(one), one) for one in operations]
        narrow = sum(flops for flops, one in done if one.dtype in NARROW)
        every = sum(flops for flops, _ in done)

        def share(those: list[float]) -> float:
            return sum(those) / max(1.0, every)

        return cls(
            every - narrow, narrow, share([flops for flops, one in done if one.dtype == "f16"]),
            share([flops for flops, one in done if is_sparse(one)]),
        )  # fmt: skip


def mma_clocks(operation: Operation, hardware: Hardware) -> float:
    """Return the clocks of one m64nNk(32 bytes): those of its columns or of its shared memory reads, if more.

    A in shared memory adds its 64 rows to the N of B: (64 + N) x 32 bytes at the rate of shared memory. With a sparse A
    the k of B is twice as long, but its columns take no more clocks: rate.wgmma_sp agrees to 1 %.
    """
    columns = operation.n * hardware["mma_clocks_per_column"]
    return max(columns, operand_clocks(operation, hardware), hardware["mma_least_clocks"])


def operand_clocks(operation: Operation, hardware: Hardware) -> float:
    """Return the clocks for which one m64nNk(32 bytes) reads shared memory."""
    rows = operation.n * (2 if is_sparse(operation) else 1) + (64 if operation.source == "shared" else 0)
    return rows * 32 / hardware["mma_shared_bytes_per_clock"]


def umma_clocks(operation: Operation, hardware: Hardware) -> float:
    """Return the clocks of one tcgen05 operation: from a product's columns per CTA, or a copy's bytes."""
    if not operation.flops:
        return operation.bytes / hardware["tensor_memory_bytes_per_clock"]
    kind = operation.text.partition("kind::")[2].partition(".")[0]
    ctas = 2 if "cta_group::2" in operation.text else 1
    depth = ROW_BITS // _BITS.get(kind, 8)
    return operation.flops / (2 * LANES * depth * ctas) * hardware["umma_clocks_per_column"]
