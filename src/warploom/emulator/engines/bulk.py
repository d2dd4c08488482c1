"""Common parts of the bulk copies: operand checks, the signal at a barrier, the multicast mask.

PTX ISA 9.7.9.25.4 and 9.7.9.27.1.2 (completion mechanisms, multicast).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...errors import InvalidOperandError, MisalignedError, OutOfBoundsError
from ..machine import mbarrier
from ..machine.async_operation import AsyncOperation, Part
from ..machine.frame import Frame, Issuer
from ..machine.machine import Cta
from ..machine.memory import Region
from ..machine.units import Unit

MULTIPLE = 16
"""Alignment and granularity of a plain bulk copy in bytes."""


@dataclass(frozen=True)
class Bytes:
    """A range of a memory region."""

    region: Region
    start: int
    size: int

    def part(self, part: int, parts: int) -> np.ndarray:
        """The view of one of `parts` pieces, cut at multiples of 16 bytes."""
        low, high = cut(self.size, part, parts)
        return self.region.data[self.start + low : self.start + high]


@dataclass(frozen=True, eq=False)
class Scattered:
    """Elements of `size` bytes that lanes of a frame address individually: (lanes, index of each).

    `origins`: for the sanitizer, the global address that each comes from, 0 if it does not come as a whole.
    """

    region: Region
    lanes: np.ndarray
    index: np.ndarray
    size: int
    origins: np.ndarray | None = None


def cut(size: int, part: int, parts: int) -> tuple[int, int]:
    """Start and end of piece `part` of `parts`, in multiples of 16."""
    units = size // MULTIPLE
    return units * part // parts * MULTIPLE, units * (part + 1) // parts * MULTIPLE


def check_size(frame: Frame, size: int, lane: int) -> None:
    """Raise InvalidOperandError unless a bulk copy can move that many bytes."""
    if size % MULTIPLE:
        frame.error(
            InvalidOperandError, f"a bulk copy of {size} bytes", lane, expected=f"a multiple of {MULTIPLE}", got=size
        )


def global_bytes(frame: Frame, address: int, size: int, lane: int, writes: bool) -> Bytes:
    """A range of global memory, checked."""
    if address % MULTIPLE:
        frame.error(
            MisalignedError,
            f"a bulk copy at global address {address:#x}",
            lane,
            expected=f"a multiple of {MULTIPLE}",
            got=f"{address % MULTIPLE} bytes past one",
        )
    allocation = frame.machine.memory.find(address)
    if allocation is None or address + size > allocation.end:
        near = frame.machine.memory.nearest(address)
        frame.error(
            OutOfBoundsError,
            f"a bulk copy of {size} bytes at global address {address:#x} is not inside one buffer",
            lane,
            got="no buffer is near"
            if near is None
            else f"byte {address - near.base} of {near.region.name}, which has {near.region.size}",
        )
    if writes and not allocation.writable:
        frame.error(InvalidOperandError, f"{allocation.region.name} is read-only and is written here", lane)
    return Bytes(allocation.region, address - allocation.base, size)


def shared_bytes(cta: Cta, offset: int, size: int) -> Bytes:
    return Bytes(cta.shared, offset, size)


def own_barrier(frame: Frame, destination: Cta, barrier: tuple[Cta, int], lane: int, of_pair: bool = False) -> None:
    """Raise InvalidOperandError unless the barrier is in the destination's CTA and has been initialised.

    `of_pair`: the other CTA of the destination's pair (ranks 2i and 2i + 1) is also allowed.
    """
    cta, offset = barrier
    same = cta is destination or (of_pair and cta.rank ^ 1 == destination.rank)
    if not same:
        frame.error(
            InvalidOperandError,
            f"the mbarrier is in CTA rank {cta.rank}, but the destination is in rank {destination.rank}",
            lane,
            expected="both in the same pair of CTAs" if of_pair else "both in the same CTA",
            hint=None if of_pair else "with .cta_group::2 the barrier may be in the other CTA of the pair",
        )
    mbarrier.find(Issuer.of(frame, lane), cta, offset)


def submit(
    unit: Unit, by: Issuer, description: str, read: Part | None, write: Part, size: int, barrier: tuple[Cta, int],
    target: object, sources: tuple[object, ...] = (),
) -> None:  # fmt: skip
    """Issue a copy whose bytes are delivered at a barrier when it is complete."""
    cta, offset = barrier

    def signal() -> None:
        check_alive(by, cta, description)
        mbarrier.find(by, cta, offset).complete_tx(size, by, description)

    by.frame.machine.engine.submit(
        AsyncOperation(
            unit, by, description, read, write, signal, bytes=size, barrier=barrier, sources=sources, targets=(target,)
        )
    )


def check_alive(by: Issuer, cta: Cta, description: str) -> None:
    """Raise InvalidOperandError if a copy accesses another CTA that has exited."""
    if cta.exited and cta is not by.frame.cta:
        for listener in cta.machine.events.refused:
            listener("cta-exited", cta, by)
        by.error(
            InvalidOperandError,
            f"{description} accesses CTA rank {cta.rank} after that CTA has exited",
            code="cta-has-exited",
            got=f"rank {cta.rank}",
            consequence="on hardware it faults (cluster target block not present) or hits another CTA",
            hint="let every CTA wait for all copies and arrivals that it receives, or end with a cluster barrier",
        )


def members(frame: Frame, mask: int, lane: int) -> list[Cta]:
    """The CTAs of a multicast mask. Raises InvalidOperandError for an empty mask or a rank that does not exist."""
    cluster = frame.cta.cluster
    if not mask or mask >> cluster.size:
        frame.error(
            InvalidOperandError,
            f"the multicast mask is {mask:#b}",
            lane,
            expected=f"ranks 0 to {cluster.size - 1} of this cluster, at least one",
        )
    return [frame.peer(rank, lane) for rank in range(cluster.size) if mask >> rank & 1]
