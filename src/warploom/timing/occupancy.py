"""Occupancy: how many CTAs an SM holds, and how many waves of clusters a grid takes."""

from __future__ import annotations

from dataclasses import dataclass

from ..isa.residency import clusters_at_once
from .constants import Hardware

REGISTER_UNIT = 256
"""Allocation unit of a warp's registers (CUDA occupancy calculator, compute capability 9.0)."""
L2_BYTES = 30e6
"""Effective L2 capacity for all SMs: each of its two partitions caches what its own SMs read."""
L1_BYTES = 256 << 10
"""Capacity of L1 and shared memory of an SM."""
SHARED_RESERVED = 1024
"""Bytes of shared memory per CTA that the system reserves."""


@dataclass(frozen=True)
class Occupancy:
    """The occupancy of a launch.

    Attributes:
        residents: resident CTAs per SM; places: groups of SMs that hold one cluster (`clusters_at_once`); turns: most
            clusters per group.
    """

    residents: int
    places: int
    turns: int
    clusters: int


def occupancy(
    hardware: Hardware, *, threads: int, registers: int, shared: int, ctas: int, cluster: int, sms: int = 0
) -> Occupancy:
    """Compute the occupancy of a launch. registers: per thread, from ptxas, 0 if unknown. shared: bytes per CTA."""
    warps = -(-threads // 32)
    limits = [hardware.ctas_per_sm, hardware.warps_per_sm // warps]
    if registers:
        of_warp = -(-registers * 32 // REGISTER_UNIT) * REGISTER_UNIT
        limits.append(hardware.registers_per_sm // (of_warp * warps))
    limits.append(hardware.shared_per_sm // (shared + SHARED_RESERVED))
    residents = max(1, min(limits))
    places = max(1, clusters_at_once(cluster, sms or hardware.sms))
    clusters = -(-ctas // cluster)
    return Occupancy(residents, places, -(-clusters // places), clusters)
