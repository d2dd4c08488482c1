"""How many CTAs of a kernel an SM holds, and how many clusters of a grid each place gets in turn."""

from __future__ import annotations

from dataclasses import dataclass

from .constants import Hardware

REGISTER_UNIT = 256
"""Registers are given out to warps in units of this many (CUDA occupancy calculator, compute capability 9.0)."""
L2_BYTES = 30e6
"""What of L2 serves as a cache for all SMs: each of its two partitions keeps what its SMs read."""
SHARED_RESERVED = 1024
"""Bytes of shared memory of each CTA that the system keeps."""


@dataclass(frozen=True)
class Occupancy:
    """Attributes: residents: CTAs of an SM at a time; places: groups of SMs that a cluster occupies; turns: clusters
    that a place runs, all in all, at most."""

    residents: int
    places: int
    turns: int
    clusters: int


def occupancy(
    hardware: Hardware, *, threads: int, registers: int, shared: int, ctas: int, cluster: int, sms: int = 0
) -> Occupancy:
    """Of a launch. registers: of a thread, from ptxas; 0 where not known. shared: bytes of a CTA."""
    warps = -(-threads // 32)
    limits = [hardware.ctas_per_sm, hardware.warps_per_sm // warps]
    if registers:
        of_warp = -(-registers * 32 // REGISTER_UNIT) * REGISTER_UNIT
        limits.append(hardware.registers_per_sm // (of_warp * warps))
    limits.append(hardware.shared_per_sm // (shared + SHARED_RESERVED))
    residents = max(1, min(limits))
    places = max(1, (sms or hardware.sms) // cluster)
    clusters = -(-ctas // cluster)
    return Occupancy(residents, places, -(-clusters // places), clusters)
