"""Shared-memory addresses as (CTA, offset), for instructions that name an object there: a barrier, a tile.

An address is (rank << 24) | offset, or a generic address in the shared window. PTX ISA 5.1.6 (state spaces),
8.6 (an address of another CTA is legal only if the instruction takes `shared::cluster`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import InvalidOperandError, MisalignedError, OutOfBoundsError
from .memory import OFFSET_MASK, RANK_SHIFT, SHARED_WINDOW, WINDOW_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from .frame import Frame
    from .machine import Cta


def place(frame: Frame, space: str, address: int, lane: int, what: str, remote: bool = False) -> tuple[Cta, int]:
    """The CTA and the offset in its shared memory that an address names.

    Args:
        space: the address operand's space; a generic address must be in the shared window.
        what: the operand, for messages: "the barrier", "the destination".
        remote: True if another CTA of the cluster may be named.

    Raises InvalidOperandError for an address of the wrong space or CTA.
    """
    if space == "generic":
        if not SHARED_WINDOW <= address < SHARED_WINDOW + WINDOW_SIZE:
            frame.error(
                InvalidOperandError, f"{what} is at generic address {address:#x}, which is not in shared memory", lane
            )
        address -= SHARED_WINDOW
    elif address >> 32:
        frame.error(
            InvalidOperandError,
            f"{what} is at {address:#x}, which is not a shared-memory address",
            lane,
            hint="shared addresses have 32 bits; convert a generic one with cvta.to.shared",
        )
    rank, offset = address >> RANK_SHIFT, address & OFFSET_MASK
    if rank == frame.cta.rank:
        return frame.cta, offset
    if not remote:
        frame.error(
            InvalidOperandError,
            f"{what} is in CTA rank {rank} of the cluster, but this is rank {frame.cta.rank}",
            lane,
            code="cluster-rank",
            expected=frame.cta.rank,
            got=rank,
            hint="this instruction accepts only shared memory of the executing CTA",
        )
    return frame.peer(rank, lane), offset


def check_range(frame: Frame, cta: Cta, offset: int, size: int, alignment: int, lane: int, what: str,
                hint: Callable[[], str | None] | None = None) -> None:  # fmt: skip
    """Raise MisalignedError or OutOfBoundsError unless [offset, offset+size) is aligned and inside shared memory.

    hint: advice for a size that is too large.
    """
    if offset % alignment:
        frame.error(
            MisalignedError,
            f"{what} is at {name(cta, offset)}, offset {offset:#x}",
            lane,
            expected=f"a multiple of {alignment} bytes",
            got=f"{offset % alignment} bytes past one",
        )
    if offset < cta.shared_start or offset + size > cta.shared.size:
        frame.error(
            OutOfBoundsError,
            f"{what} covers {size} bytes from {name(cta, offset)} (offset {offset})",
            lane,
            expected=f"inside the CTA's shared memory, bytes {cta.shared_start} to {cta.shared.size}",
            hint=hint() if hint is not None else None,
        )


def name(cta: Cta, offset: int) -> str:
    """`variable+offset`, with the CTA's rank if there is a cluster."""
    text = cta.machine.code.name_shared(offset)
    return f"{text} of cluster rank {cta.rank}" if cta.cluster.size > 1 else text
