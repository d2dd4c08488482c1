"""Resolves the addresses of a frame's lanes to memory, with checks of bounds and alignment.

An instruction usually repeats the same pattern of addresses at another location, so what follows from the distances
between its lanes is cached with it (`Pattern`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn, Protocol, TypeAlias

import numpy as np

from ...errors import EmulationError, InvalidOperandError, MisalignedError, OutOfBoundsError
from .machine import Cta, Machine
from .memory import LOCAL_WINDOW, OFFSET_MASK, PARAM_WINDOW, RANK_SHIFT, SHARED_WINDOW, WINDOW_SIZE, Allocation, Region
from .operation import Operation
from .registers import WARP

Found: TypeAlias = "list[tuple[np.ndarray, Region, np.ndarray, str]]"
"""For each accessed region: lanes, region, index of each lane's first element, state space."""
WINDOWS = ((SHARED_WINDOW, "shared::cluster"), (LOCAL_WINDOW, "local"), (PARAM_WINDOW, "param"))


class Accessor(Protocol):
    """What this module needs from a frame."""

    machine: Machine
    cta: Cta
    first_warp: int
    operation: Operation

    def where(self, lane: int | None = None) -> str: ...

    def peer(self, rank: int, lane: int | None = None) -> Cta: ...

    def error(self, kind: type[EmulationError], what: str, lane: int | None = None, **parts: object) -> NoReturn: ...


@dataclass(eq=False, slots=True)
class Pattern:
    """Addresses relative to the first of them.

    Attributes:
        relative: the relative addresses; raw: as bytes, for fast comparison.
        low, high: the minimum and the maximum; bits: the OR of all of them.
        in_elements: relative, in elements of 1 << shift bytes, by the shift.
        apart: whether the lanes' accesses have no byte in common, by their size.
    """

    raw: bytes
    relative: np.ndarray
    low: int
    high: int
    bits: int
    in_elements: dict[int, np.ndarray] = field(default_factory=dict)
    apart: dict[int, bool] = field(default_factory=dict)

    @classmethod
    def of(cls, relative: np.ndarray, raw: bytes) -> Pattern:
        low, high = int(np.minimum.reduce(relative)), int(np.maximum.reduce(relative))
        return cls(raw, relative, low, high, int(np.bitwise_or.reduce(relative)))

    def elements(self, first: int, shift: int) -> np.ndarray:
        """Indices of elements, if the first address is that many bytes after the start of a region."""
        steps = self.in_elements.get(shift)
        if steps is None:
            steps = self.in_elements[shift] = self.relative >> shift
        return steps + (first >> shift)

    def disjoint(self, size: int) -> bool:
        """True if no two lanes access the same byte, with accesses of this many bytes."""
        found = self.apart.get(size)
        if found is None:
            found = self.apart[size] = bool((np.diff(np.sort(self.relative)) >= size).all())
        return found


def pattern_of(frame: Accessor, space: str, address: np.ndarray) -> Pattern:
    """The pattern of the addresses that the frame's instruction uses now, cached with it."""
    relative = address - address[0]
    raw = relative.tobytes()
    found = frame.operation.patterns.get(space)
    if found is None or found.raw != raw:
        found = frame.operation.patterns[space] = Pattern.of(relative, raw)
    return found


def resolve(
    frame: Accessor, space: str, lanes: np.ndarray, address: np.ndarray, size: int, count: int, writes: bool
) -> Found:
    """The memory that lanes address: `count` elements of `size` bytes from each address on.

    Raises OutOfBoundsError, MisalignedError, InvalidOperandError.
    """
    total, first, pattern = size * count, int(address[0]), pattern_of(frame, space, address)
    if total & (total - 1) == 0 and (first | pattern.bits) & (total - 1):
        _misaligned(frame, lanes, address, total)
    low, high = first + pattern.low, first + pattern.high
    if space == "generic":
        for base, window in WINDOWS:
            if base <= low and high < base + WINDOW_SIZE:
                return resolve(frame, window, lanes, address - base, size, count, writes)
        return _several_windows(frame, lanes, address, size, count, writes)
    shift = size.bit_length() - 1
    if space in ("global", "const"):
        allocation = frame.machine.memory.find(low)
        if allocation is not None and high + total <= allocation.end:
            _check_writable(frame, allocation, writes, int(lanes[0]))
            return [(lanes, allocation.region, pattern.elements(first - allocation.base, shift), "global")]
        return _several_buffers(frame, lanes, address, size, count, writes)
    if space in ("shared", "shared::cta", "shared::cluster"):
        if low >> RANK_SHIFT != high >> RANK_SHIFT:
            return _several_ctas(frame, space, lanes, address, size, count, writes)
        cta = _cta_of(frame, space, low >> RANK_SHIFT, int(lanes[0]))
        if (high & OFFSET_MASK) + total > cta.shared.size or (low & OFFSET_MASK) < cta.shared_start:
            offset = address & OFFSET_MASK
            below = (offset < cta.shared_start) & (offset + total > cta.machine.code.reserved_shared)
            outside = (offset + total > cta.shared.size) | below
            if outside.any():
                have = f"the CTA's shared memory is bytes {cta.shared_start} to {cta.shared.size}"
                _outside(frame, lanes, offset, int(np.flatnonzero(outside)[0]), total, have)
        return [(lanes, cta.shared, pattern.elements(first & OFFSET_MASK, shift), "shared")]
    if space == "local":
        local = frame.cta.local_size
        if low < 0 or high + total > local:
            at = int(np.flatnonzero((address < 0) | (address + total > local))[0])
            _outside(frame, lanes, address, at, total, f"local memory has {local} bytes a thread")
        start = (lanes + frame.first_warp * WARP) * local
        return [(lanes, frame.cta.local, (start + address) >> shift, "local")]
    if space.startswith("param"):
        region = frame.cta.parameters
        if low < 0 or high + total > region.size:
            _outside(frame, lanes, address, 0, total, f"the kernel's parameters have {region.size} bytes")
        return [(lanes, region, pattern.elements(first, shift), "param")]
    raise InvalidOperandError(f"unknown state space {space!r}", where=frame.where())


def _cta_of(frame: Accessor, space: str, rank: int, lane: int) -> Cta:
    """The CTA of a shared address."""
    if rank == frame.cta.rank:
        return frame.cta
    if space != "shared::cluster":
        frame.error(
            OutOfBoundsError,
            f"a {space} address belongs to CTA rank {rank} of the cluster, but this is rank {frame.cta.rank}",
            lane,
            hint="address another CTA's shared memory with the shared::cluster forms",
        )
    return frame.peer(rank, lane)


# -- lanes that part ---------------------------------------------------------------------------------------------


def _several_windows(
    frame: Accessor, lanes: np.ndarray, address: np.ndarray, size: int, count: int, writes: bool
) -> Found:
    """Generic addresses: by window, else global."""
    inside = [(address >= base) & (address < base + WINDOW_SIZE) for base, _ in WINDOWS]
    if not any(np.count_nonzero(found) for found in inside):
        return resolve(frame, "global", lanes, address, size, count, writes)
    parts = []
    rest = np.ones(lanes.size, np.bool_)
    for (base, space), found in zip(WINDOWS, inside, strict=True):
        if np.count_nonzero(found):
            parts += resolve(frame, space, lanes[found], address[found] - base, size, count, writes)
            rest &= ~found
    if np.count_nonzero(rest):
        parts += resolve(frame, "global", lanes[rest], address[rest], size, count, writes)
    return parts


def _several_ctas(
    frame: Accessor, space: str, lanes: np.ndarray, address: np.ndarray, size: int, count: int, writes: bool
) -> Found:
    parts = []
    for rank in np.unique(address >> RANK_SHIFT):
        same = address >> RANK_SHIFT == rank
        parts += resolve(frame, space, lanes[same], address[same], size, count, writes)
    return parts


def _several_buffers(
    frame: Accessor, lanes: np.ndarray, address: np.ndarray, size: int, count: int, writes: bool
) -> Found:
    parts = []
    rest = np.ones(lanes.size, np.bool_)
    shift = size.bit_length() - 1
    while np.count_nonzero(rest):
        at = int(np.flatnonzero(rest)[0])
        allocation = frame.machine.memory.find(int(address[at]))
        if allocation is None or int(address[at]) + size * count > allocation.end:
            _outside_global(frame, lanes, address, at, size * count)
        same = rest & (address >= allocation.base) & (address + size * count <= allocation.end)
        _check_writable(frame, allocation, writes, int(lanes[at]))
        index = (address[same] - allocation.base) >> shift
        parts.append((lanes[same], allocation.region, index, "global"))
        rest &= ~same
    return parts


# -- errors ------------------------------------------------------------------------------------------------------


def _check_writable(frame: Accessor, allocation: Allocation, writes: bool, lane: int) -> None:
    if writes and not allocation.writable:
        frame.error(InvalidOperandError, f"{allocation.region.name} is read-only and is written here", lane)


def _misaligned(frame: Accessor, lanes: np.ndarray, address: np.ndarray, total: int) -> NoReturn:
    at = int(np.flatnonzero(address & (total - 1))[0])
    frame.error(
        MisalignedError,
        f"an access of {total} bytes at address {int(address[at]) & 0xFFFFFFFFFFFFFFFF:#x} is misaligned",
        int(lanes[at]),
        expected=f"a multiple of {total}",
        got=f"{int(address[at]) % total} bytes past one",
        hint=f"an access of {total} bytes needs an address that {total} divides, whatever its elements are: move "
        "the first element, align the base address, or access smaller pieces",
    )


def _outside(frame: Accessor, lanes: np.ndarray, address: np.ndarray, at: int, total: int, have: str) -> NoReturn:
    frame.error(
        OutOfBoundsError,
        f"an access of {total} bytes at {int(address[at]):#x} is out of bounds: {have}",
        int(lanes[at]),
    )


def _outside_global(frame: Accessor, lanes: np.ndarray, address: np.ndarray, at: int, total: int) -> NoReturn:
    where = int(address[at])
    if frame.machine.memory.multimem(where) is not None:
        frame.error(
            InvalidOperandError, f"an access of {total} bytes at the multimem address {where:#x}", int(lanes[at]),
            expected="multimem.ld_reduce, multimem.st or multimem.red, or the address of one buffer",
        )  # fmt: skip
    near = frame.machine.memory.nearest(where)
    if near is None:
        have = "it is below every buffer (a null or shared address used as a global one?)"
    else:
        have = (
            f"the nearest buffer is {near.region.name} with {near.region.size} bytes, "
            f"and the access begins at its byte {where - near.base}"
        )
    frame.error(
        OutOfBoundsError,
        f"an access of {total} bytes at global address {where:#x} is in no buffer: {have}",
        int(lanes[at]),
    )
