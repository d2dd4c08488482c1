"""Values of the special registers (PTX ISA 10): per thread, per CTA, or read from a clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ...isa.special_registers import SPECIAL_REGISTERS
from .registers import WARP

Cta: TypeAlias = Any  # machine.Cta, which imports this module
Value: TypeAlias = Callable[[Cta, np.ndarray], object]


def _axis(name: str, read: Callable[[Cta], tuple[int, int, int]]) -> dict[str, Value]:
    """`%name.x`, `.y`, `.z` from a tuple of the CTA; `.w` is 0."""
    return {
        f"%{name}.{axis}": (lambda cta, threads, at=at: (*read(cta), 0)[at])  # type: ignore[misc]
        for at, axis in enumerate("xyzw")
    }


def _tid(axis: int) -> Value:
    def read(cta: Cta, threads: np.ndarray) -> np.ndarray:
        x, y, _ = cta.block
        return (threads % x, threads // x % y, threads // (x * y))[axis]

    return read


def _lanemask(keep: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Value:
    bits = np.arange(WARP, dtype=np.uint64)

    def read(cta: Cta, threads: np.ndarray) -> np.ndarray:
        lane = (threads % WARP)[:, None]
        return (keep(bits[None, :], lane) << bits).sum(axis=1, dtype=np.uint64)

    return read


def _zero(cta: Cta, threads: np.ndarray) -> object:
    return 0


RESERVED_END = 0x120
"""End of the system's part of a CTA's reserved shared memory, from an H200 (tests/golden/conformance.npz); a kernel's
own part begins later, at %reserved_smem_offset_cap. Cooperative groups keep exchange data of tiles wider than a warp
there, from %reserved_smem_offset_1 on."""
RESERVED_PARTS = frozenset({"%reserved_smem_offset_0", "%reserved_smem_offset_1"})
"""A kernel that reads these uses the memory they point to."""


def _workspace(cta: Cta) -> int:
    """The address of the counters of cooperative groups' `grid.sync()`: two words, of which a GPU's driver sets the
    first to the size."""
    device = cta.device
    if device.workspace is None:
        words = np.array([8, 0], np.uint32)
        device.workspace = cta.machine.memory.allocate(words, "the grid's workspace")
    return device.workspace.base


_ZERO = (
    *(f"%reserved_smem_offset_{n}" for n in range(2)), *(f"%pm{n}" for n in range(8)),
    *(f"%pm{n}_64" for n in range(8)), *(f"%envreg{n}" for n in range(32) if n not in (1, 2)), "%current_graph_exec",
)  # fmt: skip
"""Special registers that an emulated GPU does not have."""

SPECIAL: dict[str, Value] = {
    **{f"%tid.{axis}": _tid(at) for at, axis in enumerate("xyz")},
    "%tid.w": _zero,
    **_axis("ntid", lambda cta: cta.block),
    **_axis("ctaid", lambda cta: cta.index),
    **_axis("nctaid", lambda cta: cta.machine.grid),
    **_axis("clusterid", lambda cta: cta.cluster.index),
    **_axis("nclusterid", lambda cta: cta.machine.clusters_in_grid),
    **_axis("cluster_ctaid", lambda cta: cta.index_in_cluster),
    **_axis("cluster_nctaid", lambda cta: cta.machine.cluster_shape),
    "%laneid": lambda cta, threads: threads % WARP,
    "%warpid": lambda cta, threads: threads // WARP,
    "%nwarpid": lambda cta, threads: cta.machine.model.warps_per_sm,
    "%smid": lambda cta, threads: cta.sm.index,
    "%nsmid": lambda cta, threads: cta.machine.model.sms,
    "%gridid": lambda cta, threads: 1,
    "%cluster_ctarank": lambda cta, threads: cta.rank,
    "%cluster_nctarank": lambda cta, threads: cta.cluster.size,
    "%is_explicit_cluster": lambda cta, threads: cta.machine.explicit_cluster,
    "%lanemask_eq": _lanemask(lambda bit, lane: (bit == lane).astype(np.uint64)),
    "%lanemask_lt": _lanemask(lambda bit, lane: (bit < lane).astype(np.uint64)),
    "%lanemask_le": _lanemask(lambda bit, lane: (bit <= lane).astype(np.uint64)),
    "%lanemask_gt": _lanemask(lambda bit, lane: (bit > lane).astype(np.uint64)),
    "%lanemask_ge": _lanemask(lambda bit, lane: (bit >= lane).astype(np.uint64)),
    "%dynamic_smem_size": lambda cta, threads: cta.machine.dynamic_smem,
    "%total_smem_size": lambda cta, threads: -(-(cta.shared.size - cta.shared_start) // 128) * 128,
    "%aggr_smem_size": lambda cta, threads: cta.shared.size,
    "%clock": lambda cta, threads: cta.machine.steps & 0xFFFFFFFF,
    "%clock_hi": lambda cta, threads: cta.machine.steps >> 32,
    "%clock64": lambda cta, threads: cta.machine.steps,
    "%globaltimer": lambda cta, threads: cta.machine.steps,
    "%globaltimer_lo": lambda cta, threads: cta.machine.steps & 0xFFFFFFFF,
    "%globaltimer_hi": lambda cta, threads: cta.machine.steps >> 32,
    "%reserved_smem_offset_begin": lambda cta, threads: 0,
    "%reserved_smem_offset_end": lambda cta, threads: min(cta.shared_start, RESERVED_END),
    "%reserved_smem_offset_cap": lambda cta, threads: cta.shared_start,
    "%envreg1": lambda cta, threads: _workspace(cta) >> 32,
    "%envreg2": lambda cta, threads: _workspace(cta) & 0xFFFFFFFF,
    **dict.fromkeys(_ZERO, _zero),
}
"""Special register -> its value for these threads of a CTA, an array or one number for all. A clock counts warp
instructions of the whole machine: it increases, and a kernel may rely on nothing else."""

DYNAMIC = frozenset({"%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi"})
"""Registers that change while a thread runs."""


def special_row_bits(name: str) -> int:
    """Width of a special register."""
    return SPECIAL_REGISTERS[name].dtype.register_bits
