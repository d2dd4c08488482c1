"""The special registers by name: type, meaning, first target and PTX version. PTX ISA 10."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from .dtypes import DType, b32, pred, u32, u64


@dataclass(frozen=True)
class SpecialRegister:
    """A read-only register that the hardware sets.

    Attributes:
        name: with its percent sign and component: `%tid.x`.
        dtype: type of its value.
        meaning: one clause.
        arch, ptx: first target and PTX version that have it.
        section: PTX ISA section.
    """

    name: str
    dtype: DType
    meaning: str
    arch: str = "sm_50"
    ptx: tuple[int, int] = (1, 0)
    section: str = ""


def _axes(
    name: str, meaning: str, section: str, arch: str = "sm_50", ptx: tuple[int, int] = (1, 0)
) -> list[SpecialRegister]:
    meanings = {axis: f"{meaning} in {axis}" for axis in "xyz"} | {"w": "always 0"}
    return [SpecialRegister(f"%{name}.{axis}", u32, what, arch, ptx, section) for axis, what in meanings.items()]


_CLUSTER: tuple[str, tuple[int, int]] = ("sm_90", (7, 8))

_ALL = (
    *_axes("tid", "thread index in its CTA", "10.1"),
    *_axes("ntid", "threads of a CTA", "10.2"),
    SpecialRegister("%laneid", u32, "lane of the thread in its warp", ptx=(1, 3), section="10.3"),
    SpecialRegister("%warpid", u32, "warp slot; may change while a thread runs", ptx=(1, 3), section="10.4"),
    SpecialRegister("%nwarpid", u32, "number of warp slots of an SM", ptx=(2, 0), section="10.5"),
    *_axes("ctaid", "CTA index in the grid", "10.6"),
    *_axes("nctaid", "CTAs of the grid", "10.7"),
    SpecialRegister("%smid", u32, "SM the thread runs on; may change while it runs", ptx=(1, 3), section="10.8"),
    SpecialRegister("%nsmid", u32, "number of SM identifiers; they may have gaps", ptx=(2, 0), section="10.9"),
    SpecialRegister("%gridid", u64, "number of the launch in its context", ptx=(3, 0), section="10.10"),
    SpecialRegister("%is_explicit_cluster", pred, "whether the launch has clusters", *_CLUSTER, section="10.11"),
    *_axes("clusterid", "cluster index in the grid", "10.12", *_CLUSTER),
    *_axes("nclusterid", "clusters of the grid", "10.13", *_CLUSTER),
    *_axes("cluster_ctaid", "CTA index in its cluster", "10.14", *_CLUSTER),
    *_axes("cluster_nctaid", "CTAs of a cluster", "10.15", *_CLUSTER),
    SpecialRegister("%cluster_ctarank", u32, "linear rank of the CTA in its cluster", *_CLUSTER, section="10.16"),
    SpecialRegister("%cluster_nctarank", u32, "number of CTAs of the cluster", *_CLUSTER, section="10.17"),
    SpecialRegister("%lanemask_eq", u32, "bit of the own lane", ptx=(2, 0), section="10.18"),
    SpecialRegister("%lanemask_le", u32, "bits of the own lane and those below", ptx=(2, 0), section="10.19"),
    SpecialRegister("%lanemask_lt", u32, "bits of the lanes below", ptx=(2, 0), section="10.20"),
    SpecialRegister("%lanemask_ge", u32, "bits of the own lane and those above", ptx=(2, 0), section="10.21"),
    SpecialRegister("%lanemask_gt", u32, "bits of the lanes above", ptx=(2, 0), section="10.22"),
    SpecialRegister("%clock", u32, "cycle counter of the SM, low half", section="10.23"),
    SpecialRegister("%clock_hi", u32, "cycle counter of the SM, high half", ptx=(5, 0), section="10.23"),
    SpecialRegister("%clock64", u64, "cycle counter of the SM", ptx=(2, 0), section="10.24"),
    *(
        SpecialRegister(f"%pm{n}", u32, f"performance counter {n}", ptx=(1, 3) if n < 4 else (3, 0), section="10.25")
        for n in range(8)
    ),
    *(SpecialRegister(f"%pm{n}_64", u64, f"performance counter {n}", "sm_50", (4, 0), "10.26") for n in range(8)),
    *(SpecialRegister(f"%envreg{n}", b32, f"word {n} of the driver", ptx=(2, 1), section="10.27") for n in range(32)),
    SpecialRegister("%globaltimer", u64, "nanoseconds of a timer common to the GPU", ptx=(3, 1), section="10.28"),
    SpecialRegister("%globaltimer_lo", u32, "low half of %globaltimer", ptx=(3, 1), section="10.28"),
    SpecialRegister("%globaltimer_hi", u32, "high half of %globaltimer", ptx=(3, 1), section="10.28"),
    *(
        SpecialRegister(f"%reserved_smem_offset_{part}", b32, meaning, "sm_80", (7, 6), "10.29")
        for part, meaning in (
            ("begin", "first byte of the reserved shared memory"), ("end", "byte after the reserved shared memory"),
            ("cap", "size limit of the reserved shared memory"), ("0", "offset in reserved shared memory"),
            ("1", "offset in reserved shared memory"),
        )
    ),
    SpecialRegister("%total_smem_size", u32, "shared memory of the CTA in bytes", ptx=(4, 1), section="10.30"),
    SpecialRegister("%aggr_smem_size", u32, "%total_smem_size and the reserved part", "sm_90", (8, 1), "10.31"),
    SpecialRegister("%dynamic_smem_size", u32, "dynamic part of %total_smem_size", ptx=(4, 1), section="10.32"),
    SpecialRegister("%current_graph_exec", u64, "the device graph, or 0", ptx=(8, 0), section="10.33"),
)  # fmt: skip

SPECIAL_REGISTERS: Mapping[str, SpecialRegister] = MappingProxyType({register.name: register for register in _ALL})
"""All special registers by name, percent sign included."""
SPECIAL_NAMES = frozenset(name.partition(".")[0] for name in SPECIAL_REGISTERS)
"""Their names without components: `%tid` for `%tid.x`."""


def is_special(name: str) -> bool:
    """True for a special register, and for the vector that some are elements of: `%laneid`, `%tid.x`, `%tid`."""
    return name in SPECIAL_REGISTERS or f"{name}.x" in SPECIAL_REGISTERS
