"""A frame: consecutive warps of one CTA that execute the same instruction together.

Steps (`emulator.ops`) see the machine through it: register values as (lanes,) arrays, the mask of lanes that
execute, checked memory access, and errors that name instruction, CTA, thread and source line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from ...asm.nodes import Instruction
from ...errors import EmulationError, InvalidOperandError, MisalignedError, OutOfBoundsError
from ...isa.dtypes import DType
from .machine import Cta, Machine
from .memory import LOCAL_WINDOW, OFFSET_MASK, PARAM_WINDOW, RANK_SHIFT, SHARED_WINDOW, WINDOW_SIZE, Allocation, Region
from .operation import Operation
from .places import Lanes
from .registers import WARP, RegisterFile


class Frame:
    """See the module's docstring.

    Attributes:
        values: slot number -> (lanes,) array view of the register, or a NumPy scalar for a constant.
        mask: True, or a (lanes,) bool array: the lanes that execute (activity and guard).
        lanes, first_warp, warps, columns: which warps, and their columns in the register file.
        operation: what is being executed.
    """

    __slots__ = (
        "machine", "cta", "registers", "first_warp", "warps", "lanes", "columns", "values", "mask", "operation",
        "lane_index",
    )  # fmt: skip

    def __init__(self, machine: Machine, cta: Cta, registers: RegisterFile, first_warp: int, warps: int) -> None:
        self.machine = machine
        self.cta = cta
        self.registers = registers
        self.first_warp = first_warp
        self.warps = warps
        self.lanes = warps * WARP
        self.columns = slice(first_warp * WARP, (first_warp + warps) * WARP)
        self.values: Mapping[int, Any] = registers.window(first_warp, warps)
        self.mask: np.ndarray | bool = True
        self.operation: Operation = None  # type: ignore[assignment]
        self.lane_index = np.arange(self.lanes)

    # -- lanes ---------------------------------------------------------------------------------------------------

    @property
    def instruction(self) -> Instruction:
        return self.operation.instruction

    @property
    def active(self) -> np.ndarray:
        """The mask as a (lanes,) bool array."""
        return np.ones(self.lanes, np.bool_) if self.mask is True else self.mask  # type: ignore[return-value]

    @property
    def active_lanes(self) -> np.ndarray:
        """Indices of the lanes that execute."""
        return self.lane_index if self.mask is True else self.mask.nonzero()[0]  # type: ignore[union-attr]

    @property
    def lane_mask(self) -> int:
        """The lanes of a single warp that execute, as a 32-bit mask; all of several that execute as one."""
        return 0xFFFFFFFF if self.mask is True else int(np.packbits(self.mask, bitorder="little").view(np.uint32)[0])

    def thread(self, lane: int) -> int:
        """Linear thread index in the CTA of a lane of this frame."""
        return self.first_warp * WARP + int(lane)

    def write(self, slot: int, value: np.ndarray | np.generic) -> None:
        """Write a register where the mask is set."""
        np.copyto(self.values[slot], value, where=self.mask, casting="unsafe")  # type: ignore[arg-type]

    # -- errors --------------------------------------------------------------------------------------------------

    def where(self, lane: int | None = None) -> str:
        """The place of this instruction and the CTA and thread that runs it, as text."""
        location = self.instruction.location
        place = f"{location}  " if location else ""
        x, y, z = self.cta.index
        text = f"{place}{self.operation.text}\n      in CTA ({x}, {y}, {z})"
        if self.cta.cluster.size > 1:
            text += f" (rank {self.cta.rank} of its cluster)"
        if lane is None:
            last = self.first_warp + self.warps - 1
            warps = f"warp {self.first_warp}" if self.warps == 1 else f"warps {self.first_warp}-{last}"
            return f"{text}, {warps}"
        thread = self.thread(lane)
        tx, ty, tz = self.cta.thread_index(thread)
        return f"{text}, thread ({tx}, {ty}, {tz}), warp {thread // WARP} lane {thread % WARP}"

    def error(self, kind: type[EmulationError], what: str, lane: int | None = None, **parts: object) -> NoReturn:
        """Raise an error of this instruction; `parts` are expected, got, consequence, hint."""
        error = kind(what, where=self.where(lane), **parts)  # type: ignore[arg-type]
        error.location = self.instruction.location
        raise error

    # -- memory --------------------------------------------------------------------------------------------------

    def load(self, space: str, address: np.ndarray | int, dtype: DType | np.dtype, count: int = 1) -> np.ndarray:
        """Read `count` consecutive elements for each active lane: (count, lanes), 0 where the mask is not set.

        Raises OutOfBoundsError, MisalignedError.
        """
        element = dtype.numpy if isinstance(dtype, DType) else dtype
        lanes, where = self._lanes_and_addresses(address)
        result = np.zeros((count, self.lanes), element)
        if lanes.size:
            heard = self.machine.events.accessed
            for picked, region, index, name in self._resolve(space, lanes, where, element.itemsize, count, False):
                view = region.as_type(element)
                if count == 1 and picked is self.lane_index:
                    np.take(view, index, out=result[0], mode="clip")  # in bounds already; clip skips a second check
                elif count == 1:
                    result[0, picked] = view[index]
                else:
                    result[:, picked] = view[index + np.arange(count)[:, None]]
                for hear in heard:
                    hear(self, "reads", Lanes(region, name, index, element.itemsize, count, picked), None)
            self.machine.counters.count_access(self.operation.pc, space, "load", element.itemsize * count, lanes, where)
        return result

    def store(self, space: str, address: np.ndarray | int, dtype: DType | np.dtype, values: np.ndarray) -> None:
        """Write (count, lanes) or (lanes,) values for each active lane; the highest lane wins a collision.

        Raises OutOfBoundsError, MisalignedError.
        """
        element = dtype.numpy if isinstance(dtype, DType) else dtype
        if values.ndim == 1:
            values = values[None]
        elif values.ndim == 0:
            values = np.full((1, self.lanes), values)
        count = values.shape[0]
        lanes, where = self._lanes_and_addresses(address)
        if not lanes.size:
            return
        heard = self.machine.events.accessed
        for picked, region, index, name in self._resolve(space, lanes, where, element.itemsize, count, True):
            view = region.as_type(element)
            for hear in heard:
                hear(self, "writes", Lanes(region, name, index, element.itemsize, count, picked), values)
            for part in range(count):
                view[index + part] = values[part, picked]
        self.machine.counters.count_access(self.operation.pc, space, "store", element.itemsize * count, lanes, where)
        self.machine.progress_count += 1

    def places(
        self, space: str, address: np.ndarray | int, dtype: DType | np.dtype, count: int = 1, writes: bool = True
    ) -> list[tuple[np.ndarray, Region, np.ndarray]]:
        """Where the active lanes' elements are: (lanes, region, index of the first element) for each region touched.

        Bounds and alignment are checked.
        """
        element = dtype.numpy if isinstance(dtype, DType) else dtype
        lanes, where = self._lanes_and_addresses(address)
        if not lanes.size:
            return []
        found = self._resolve(space, lanes, where, element.itemsize, count, writes)
        return [(picked, region, index) for picked, region, index, _ in found]

    def _lanes_and_addresses(self, address: np.ndarray | int) -> tuple[np.ndarray, np.ndarray]:
        """Indices of the active lanes and their addresses as int64."""
        if not isinstance(address, np.ndarray) or address.ndim == 0:
            address = np.full(self.lanes, int(address), np.int64)
        elif address.dtype.itemsize != 8:
            address = address.astype(np.int64)
        if self.mask is True:
            return self.lane_index, address.view(np.int64)
        lanes = self.mask.nonzero()[0]  # type: ignore[union-attr]
        return lanes, address[lanes].view(np.int64)

    def _resolve(
        self, space: str, lanes: np.ndarray, address: np.ndarray, size: int, count: int, writes: bool
    ) -> list[tuple[np.ndarray, Region, np.ndarray, str]]:
        """Split lanes by the region they touch: (lanes, region, element index, space) for each."""
        total = size * count
        if total & (total - 1) == 0 and int(np.bitwise_or.reduce(address)) & (total - 1):
            self._misaligned(lanes, address, total, int(np.flatnonzero(address & (total - 1))[0]))
        shift = size.bit_length() - 1
        low, high = int(np.minimum.reduce(address)), int(np.maximum.reduce(address))
        if space == "generic":
            return self._resolve_generic(lanes, address, size, count, writes, low, high)
        if space in ("global", "const"):
            allocation = self.machine.memory.find(low)
            if allocation is not None and high + total <= allocation.end:
                self._check_writable(allocation, writes, int(lanes[0]))
                return [(lanes, allocation.region, (address - allocation.base) >> shift, "global")]
            return self._split_global(lanes, address, size, count, writes)
        if space in ("shared", "shared::cta", "shared::cluster"):
            return self._resolve_shared(space, lanes, address, total, shift, low, high)
        if space == "local":
            region = self.cta.local
            if low < 0 or high + total > self.cta.local_size:
                at = int(np.flatnonzero((address < 0) | (address + total > self.cta.local_size))[0])
                self._outside(lanes, address, at, total, f"local memory has {self.cta.local_size} bytes a thread")
            start = (lanes + self.first_warp * WARP) * self.cta.local_size
            return [(lanes, region, (start + address) >> shift, "local")]
        if space.startswith("param"):
            region = self.cta.parameters
            if low < 0 or high + total > region.size:
                self._outside(lanes, address, 0, total, f"the kernel's parameters have {region.size} bytes")
            return [(lanes, region, address >> shift, "param")]
        raise InvalidOperandError(f"there is no state space {space!r}", where=self.where())

    def _resolve_generic(
        self, lanes: np.ndarray, address: np.ndarray, size: int, count: int, writes: bool, low: int, high: int
    ) -> list[tuple[np.ndarray, Region, np.ndarray, str]]:
        """Generic addresses: by window, else global."""
        windows = ((SHARED_WINDOW, "shared::cluster"), (LOCAL_WINDOW, "local"), (PARAM_WINDOW, "param"))
        for base, space in windows:
            if base <= low and high < base + WINDOW_SIZE:
                return self._resolve(space, lanes, address - base, size, count, writes)
        inside = [(address >= base) & (address < base + WINDOW_SIZE) for base, _ in windows]
        if not any(np.count_nonzero(found) for found in inside):
            return self._resolve("global", lanes, address, size, count, writes)
        parts = []
        rest = np.ones(lanes.size, np.bool_)
        for (base, space), found in zip(windows, inside, strict=True):
            if np.count_nonzero(found):
                parts += self._resolve(space, lanes[found], address[found] - base, size, count, writes)
                rest &= ~found
        if np.count_nonzero(rest):
            parts += self._resolve("global", lanes[rest], address[rest], size, count, writes)
        return parts

    def _resolve_shared(
        self, space: str, lanes: np.ndarray, address: np.ndarray, total: int, shift: int, low: int, high: int
    ) -> list[tuple[np.ndarray, Region, np.ndarray, str]]:
        if low >> RANK_SHIFT == high >> RANK_SHIFT:
            rank = low >> RANK_SHIFT
            cta = self.cta
            if rank != cta.rank:
                cta = self._peer(space, rank, int(lanes[0]))
            offset = address & OFFSET_MASK
            if (high & OFFSET_MASK) + total > cta.shared.size or (low & OFFSET_MASK) < cta.shared_start:
                outside = (offset + total > cta.shared.size) | (offset < cta.shared_start)
                at = int(np.flatnonzero(outside)[0])
                have = f"the CTA's shared memory is bytes {cta.shared_start} to {cta.shared.size}"
                self._outside(lanes, offset, at, total, have)
            return [(lanes, cta.shared, offset >> shift, "shared")]
        parts = []
        for rank in np.unique(address >> RANK_SHIFT):
            same = address >> RANK_SHIFT == rank
            some = address[same]
            parts += self._resolve_shared(space, lanes[same], some, total, shift, int(some.min()), int(some.max()))
        return parts

    def peer(self, rank: int, lane: int | None = None) -> Cta:
        """A CTA of the cluster. Raises InvalidOperandError where it is not there or has exited."""
        cluster = self.cta.cluster
        if not 0 <= rank < cluster.size:
            self.error(
                InvalidOperandError,
                f"a shared::cluster address names CTA rank {rank}",
                lane,
                expected=f"0 to {cluster.size - 1}, the ranks of this cluster",
            )
        cta = cluster.ctas[rank]
        if cta.exited and cta is not self.cta:
            for hear in self.machine.events.refused:
                hear("cta-exited", cta, Issuer.of(self, lane))
            self.error(
                InvalidOperandError,
                f"the shared memory of CTA rank {rank} is accessed after that CTA has exited",
                lane,
                consequence="on hardware the address faults or belongs to another CTA",
                hint="let all CTAs of the cluster wait for each other (barrier.cluster) before any of them exits",
            )
        return cta

    def _peer(self, space: str, rank: int, lane: int) -> Cta:
        """The CTA of a shared::cluster address."""
        if space != "shared::cluster":
            self.error(
                OutOfBoundsError,
                f"a {space} address belongs to CTA rank {rank} of the cluster, and this is rank {self.cta.rank}",
                lane,
                hint="address another CTA's shared memory with the shared::cluster forms",
            )
        return self.peer(rank, lane)

    def _split_global(
        self, lanes: np.ndarray, address: np.ndarray, size: int, count: int, writes: bool
    ) -> list[tuple[np.ndarray, Region, np.ndarray, str]]:
        parts = []
        rest = np.ones(lanes.size, np.bool_)
        shift = size.bit_length() - 1
        while np.count_nonzero(rest):
            at = int(np.flatnonzero(rest)[0])
            allocation = self.machine.memory.find(int(address[at]))
            if allocation is None or int(address[at]) + size * count > allocation.end:
                self._outside_global(lanes, address, at, size * count)
            same = rest & (address >= allocation.base) & (address + size * count <= allocation.end)  # type: ignore[union-attr]
            self._check_writable(allocation, writes, int(lanes[at]))  # type: ignore[arg-type]
            index = (address[same] - allocation.base) >> shift  # type: ignore[union-attr]
            parts.append((lanes[same], allocation.region, index, "global"))  # type: ignore[union-attr]
            rest &= ~same
        return parts

    def _check_writable(self, allocation: Allocation, writes: bool, lane: int) -> None:
        if writes and not allocation.writable:
            self.error(InvalidOperandError, f"{allocation.region.name} is read-only and is written here", lane)

    def _misaligned(self, lanes: np.ndarray, address: np.ndarray, total: int, at: int) -> NoReturn:
        self.error(
            MisalignedError,
            f"an access of {total} bytes at address {int(address[at]) & 0xFFFFFFFFFFFFFFFF:#x} is misaligned",
            int(lanes[at]),
            expected=f"a multiple of {total}",
            got=f"{int(address[at]) % total} bytes past one",
        )

    def _outside(self, lanes: np.ndarray, address: np.ndarray, at: int, total: int, have: str) -> NoReturn:
        self.error(
            OutOfBoundsError,
            f"an access of {total} bytes at {int(address[at]):#x} is out of bounds: {have}",
            int(lanes[at]),
        )

    def _outside_global(self, lanes: np.ndarray, address: np.ndarray, at: int, total: int) -> NoReturn:
        where = int(address[at])
        near = self.machine.memory.nearest(where)
        if near is None:
            have = "it is below every buffer (a null or shared address used as a global one?)"
        else:
            have = (
                f"the nearest buffer is {near.region.name} with {near.region.size} bytes, "
                f"and this is byte {where - near.base} of it"
            )
        self.error(
            OutOfBoundsError,
            f"an access of {total} bytes at global address {where:#x} is in no buffer: {have}",
            int(lanes[at]),
        )


def frame_of(cta: Cta, first_warp: int, warps: int) -> Frame:
    """The frame of these warps; always the same object."""
    key = (first_warp, warps)
    found = cta.frames.get(key)
    if found is None:
        found = cta.frames[key] = Frame(cta.machine, cta, cta.registers, first_warp, warps)
    return found  # type: ignore[no-any-return]


@dataclass(eq=False, slots=True)
class Issuer:
    """The thread that issued an operation (`lane` None: the whole warp, or warps, of the frame)."""

    frame: Frame
    operation: Operation
    lane: int | None = None

    @classmethod
    def of(cls, frame: Frame, lane: int | None = None) -> Issuer:
        return cls(frame, frame.operation, None if lane is None else int(lane))

    @property
    def thread(self) -> int:
        """Linear thread number in its CTA."""
        return self.frame.thread(self.lane or 0)

    def where(self) -> str:
        """Instruction, CTA and thread, as text. The frame may have moved on, so its operation is put back for that."""
        now = self.frame.operation
        self.frame.operation = self.operation
        try:
            return self.frame.where(self.lane)
        finally:
            self.frame.operation = now

    def short(self) -> str:
        """One line: role, CTA, thread and source line."""
        location = self.operation.instruction.location
        place = f" at {location}" if location else ""
        return f"{self.who()} of {self.frame.cta.describe()}{place}"

    def who(self) -> str:
        """Role and thread: "consumer 0, thread 128"; the warp where the whole warp issued it."""
        who = f"thread {self.thread}" if self.lane is not None else f"warp {self.frame.first_warp}"
        role = self.frame.machine.code.role(self.frame.first_warp + (self.lane or 0) // 32)
        return f"{role}, {who}" if role else who

    def error(self, kind: type[EmulationError], what: str, **parts: object) -> NoReturn:
        """Raise an error of the issuing instruction, also long after it ran."""
        error = kind(what, where=self.where(), **parts)  # type: ignore[arg-type]
        error.location = self.operation.instruction.location
        raise error
