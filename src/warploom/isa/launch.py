"""The launch limits of a target (CUDA C++ Programming Guide, technical specifications), in one list.

Warps are distributed round-robin over the four partitions of an SM, each of which has a quarter of the registers (CUDA
occupancy calculator: "warp allocation granularity"). So nine warps get what twelve would get.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ..plural import counted
from .arch import Arch
from .arch import get as arch_of

GRID_LIMITS = (2**31 - 1, 65535, 65535)
BLOCK_LIMITS = (1024, 1024, 64)
ONE = (1, 1, 1)
WARP = 32
PARTITIONS = 4
"""Partitions of an SM."""
REGISTER_UNIT = 256
"""Registers are allocated to a warp in multiples of this, so to a thread in multiples of 8."""
SHARED_UNIT = 128
"""Shared memory is allocated to a CTA in multiples of this many bytes."""

Sizes = tuple[int, int, int]


def broken_limit(
    target: Arch, block: Sizes, cluster: Sizes = ONE, grid: Sizes | None = None, dynamic_smem: int = 0
) -> tuple[str, str, object] | None:
    """The first limit that a launch breaks, as (request, limit, actual value); None if there is none."""
    threads, ctas = prod(block), prod(cluster)
    if threads > target.threads_per_cta or any(size > most for size, most in zip(block, BLOCK_LIMITS, strict=True)):
        most = f"at most {target.threads_per_cta}, and {BLOCK_LIMITS} per axis"
        return f"a block of {counted(threads, 'thread')} is too large", most, block
    if ctas > 1 and not target.cluster_limit:
        return f"{target.name} has no clusters", f"cluster {ONE}, or sm_90 and later", cluster
    if ctas > max(target.cluster_limit, 1):
        what = f"a cluster of {counted(ctas, 'CTA')} is too large for {target.name}"
        return what, f"at most {target.cluster_limit}", cluster
    if not 0 <= dynamic_smem <= target.shared_per_cta:
        what = f"{target.name} has no {dynamic_smem} bytes of dynamic shared memory for a CTA"
        return what, f"0 to {target.shared_per_cta}", dynamic_smem
    if grid is None:
        return None
    if any(size > most for size, most in zip(grid, GRID_LIMITS, strict=True)):
        return "the grid is too large", f"at most {GRID_LIMITS}", grid
    if any(size % part for size, part in zip(grid, cluster, strict=True)):
        return "the grid is not a whole number of clusters", f"a grid divisible by {cluster}", grid
    return None


def registers_for(target: Arch, threads: int, ctas: int = 1) -> int:
    """Registers that each thread may have if `ctas` CTAs of `threads` must fit on an SM: a multiple of 8, at most the
    target's limit per thread."""
    warps = -(-threads // WARP) * ctas
    each = target.registers_per_cta // PARTITIONS // -(-warps // PARTITIONS)
    return min(target.registers_per_thread, each // REGISTER_UNIT * REGISTER_UNIT // WARP)


def ctas_by_registers(target: Arch, threads: int, registers: int) -> int:
    """CTAs that fit the registers of one SM with `registers` per thread; 0 if not even one fits."""
    each = -(-registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
    if not each:
        return target.ctas_per_sm
    return target.registers_per_sm // PARTITIONS // each * PARTITIONS // -(-threads // WARP)


@dataclass(frozen=True)
class Occupancy:
    """CTAs that fit on one SM, by each limit; the smallest counts.

    Attributes:
        registers, shared, warps, ctas: number of CTAs for which each resource suffices.
    """

    registers: int
    shared: int
    warps: int
    ctas: int

    @property
    def resident(self) -> int:
        return min(self.registers, self.shared, self.warps, self.ctas)

    @property
    def limit(self) -> str:
        """The resource that runs out first."""
        named = {"registers": self.registers, "shared memory": self.shared, "warps": self.warps, "CTA slots": self.ctas}
        return min(named, key=lambda name: named[name])


def occupancy(arch: str, threads: int, registers: int, shared: int) -> Occupancy:
    """By the CUDA C++ Programming Guide, "Multiprocessor level". registers: per thread; shared: bytes per CTA, to which
    the system's share is added."""
    limits = arch_of(arch)
    per_cta = -(-(shared + limits.shared_reserved) // SHARED_UNIT) * SHARED_UNIT
    by_shared = limits.shared_per_sm // per_cta if per_cta else limits.ctas_per_sm
    by_warps = limits.warps_per_sm // -(-threads // WARP)
    return Occupancy(ctas_by_registers(limits, threads, registers), by_shared, by_warps, limits.ctas_per_sm)
