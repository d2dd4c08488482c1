"""A frame: consecutive warps of one CTA that execute the same instruction together.

Steps (`emulator.ops`) see the machine through it: register values as (lanes,) arrays, the mask of lanes that
execute, checked memory access, and errors that name instruction, CTA, thread and source line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from ...asm.nodes import Instruction
from ...errors import EmulationError, InvalidOperandError
from ...isa.dtypes import DType
from ...isa.effects import Order
from .links import Links
from .machine import Cta, Machine
from .memory import Region
from .operation import Operation
from .places import Lanes
from .registers import WARP, Mask, RegisterFile
from .resolve import pattern_of, resolve
from .symbols import warps_named


class Frame:
    """See the module's docstring.

    Attributes:
        values: slot number -> (lanes,) array view of the register, or a NumPy scalar for a constant.
        mask: the lanes that execute (activity and guard).
        lanes, first_warp, warps, columns: which warps, and their columns in the register file.
        operation: the operation being executed.
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
        self.mask: Mask = True
        self.operation: Operation = None  # type: ignore[assignment]
        self.lane_index = np.arange(self.lanes)

    # -- lanes ---------------------------------------------------------------------------------------------------

    @property
    def instruction(self) -> Instruction:
        return self.operation.instruction

    @property
    def active(self) -> np.ndarray:
        """The mask as a (lanes,) bool array."""
        return np.ones(self.lanes, np.bool_) if self.mask is True else self.mask

    @property
    def active_lanes(self) -> np.ndarray:
        """Indices of the lanes that execute."""
        return self.lane_index if self.mask is True else self.mask.nonzero()[0]

    @property
    def lane_mask(self) -> int:
        """The active lanes of a single warp, as a 32-bit mask; for several warps that execute as one, all of them."""
        return 0xFFFFFFFF if self.mask is True else int(np.packbits(self.mask, bitorder="little").view(np.uint32)[0])

    def thread(self, lane: int) -> int:
        """Linear thread index in the CTA of a lane of this frame."""
        return self.first_warp * WARP + int(lane)

    def write(self, slot: int, value: np.ndarray | np.generic) -> None:
        """Write a register where the mask is set."""
        np.copyto(self.values[slot], value, where=self.mask, casting="unsafe")

    # -- errors --------------------------------------------------------------------------------------------------

    def where(self, lane: int | None = None) -> str:
        """The position of this instruction and the CTA and thread that runs it, as text."""
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

    def error(self, kind: type[EmulationError], what: str, lane: int | None = None, **parts: Any) -> NoReturn:
        """Raise an error of this instruction; `parts` are expected, got, consequence, hint."""
        error = kind(what, where=self.where(lane), **parts)
        error.location = self.instruction.location
        raise error

    # -- memory --------------------------------------------------------------------------------------------------

    def load(self, space: str, address: np.ndarray | int, dtype: DType | np.dtype, count: int = 1) -> np.ndarray:
        """Read `count` consecutive elements for each active lane: (count, lanes), 0 where the mask is not set.

        Raises OutOfBoundsError, MisalignedError.
        """
        element = dtype.numpy if isinstance(dtype, DType) else dtype
        lanes, where = self._lanes_and_addresses(address)
        if not lanes.size:
            return np.zeros((count, self.lanes), element)
        found = resolve(self, space, lanes, where, element.itemsize, count, False)
        every = len(found) == 1 and found[0][0] is self.lane_index
        result: np.ndarray | None = None if every else np.zeros((count, self.lanes), element)
        listeners, links = self.machine.events.accessed, self.machine.links
        reader = self.cta.device.index, self.operation.order
        for picked, region, index, name in found:
            taken = _seen(links if name == "global" else None, reader, region, index, element, count)
            if result is None:
                result = taken.reshape(count, self.lanes)
            else:
                result[:, picked] = taken
            if listeners:
                place = Lanes(region, name, index, element.itemsize, count, picked)
                for listener in listeners:
                    listener(self, "reads", place, None)
        if links is not None:
            links.after(self.cta.device.index, self.operation.order)
        self.count(space, "load", element.itemsize * count, lanes, where)
        return result  # type: ignore[return-value]

    def watch(
        self, space: str, address: np.ndarray | int, dtype: DType | np.dtype, count: int = 1
    ) -> Callable[[], bytes]:
        """A function that gives the bytes a `load` of the same arguments would read, at any later time, unnoticed."""
        element = dtype.numpy if isinstance(dtype, DType) else dtype
        lanes, where = self._lanes_and_addresses(address)
        found = resolve(self, space, lanes, where, element.itemsize, count, False) if lanes.size else []
        links, reader = self.machine.links, (self.cta.device.index, self.operation.order)

        def look() -> bytes:
            return b"".join(
                _seen(links if name == "global" else None, reader, region, index, element, count).tobytes()
                for _, region, index, name in found
            )

        return look

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
        listeners, links = self.machine.events.accessed, self.machine.links
        if links is not None:
            links.before(self.cta.device.index, self.operation.order)
        found = resolve(self, space, lanes, where, element.itemsize, count, True)
        pattern = self.operation.patterns[space] if len(found) == 1 and listeners else None
        disjoint = pattern is not None and pattern.disjoint(element.itemsize * count)
        for picked, region, index, name in found:
            view = region.as_type(element)
            if listeners:
                place = Lanes(region, name, index, element.itemsize, count, picked, disjoint)
                for listener in listeners:
                    listener(self, "writes", place, values)
            if links is not None and name == "global":
                links.stores(
                    self.cta.device.index, self.operation.order, region, index,
                    values[:, picked].astype(element, copy=False),
                )  # fmt: skip
            for part in range(count):
                view[index + part] = values[part, picked]
        self.count(space, "store", element.itemsize * count, lanes, where)
        self.machine.progress_count += 1

    def places(
        self, space: str, address: np.ndarray | int, dtype: DType | np.dtype, count: int = 1, writes: bool = True
    ) -> list[tuple[np.ndarray, Region, np.ndarray]]:
        """The active lanes' elements: (lanes, region, index of the first element) for each region accessed.

        Bounds and alignment are checked.
        """
        element = dtype.numpy if isinstance(dtype, DType) else dtype
        lanes, where = self._lanes_and_addresses(address)
        if not lanes.size:
            return []
        found = resolve(self, space, lanes, where, element.itemsize, count, writes)
        return [(picked, region, index) for picked, region, index, _ in found]

    def count(self, space: str, kind: str, size: int, lanes: np.ndarray, address: np.ndarray) -> None:
        """Count a load or store of `size` bytes by these lanes."""
        counters = self.machine.counters
        raw = pattern_of(self, space, address).raw if counters.detailed else b""
        counters.count_access(self.operation.pc, space, kind, size, lanes, address, raw)

    def _lanes_and_addresses(self, address: np.ndarray | int) -> tuple[np.ndarray, np.ndarray]:
        """Indices of the active lanes and their addresses as int64."""
        if not isinstance(address, np.ndarray) or address.ndim == 0:
            address = np.full(self.lanes, int(address), np.int64)
        elif address.dtype.itemsize != 8:
            address = address.astype(np.int64)
        if self.mask is True:
            return self.lane_index, address.view(np.int64)
        lanes = self.mask.nonzero()[0]
        return lanes, address[lanes].view(np.int64)

    def peer(self, rank: int, lane: int | None = None) -> Cta:
        """A CTA of the cluster. Raises InvalidOperandError if it does not exist or has exited."""
        cluster = self.cta.cluster
        if not 0 <= rank < cluster.size:
            self.error(
                InvalidOperandError,
                f"a shared::cluster address names CTA rank {rank}",
                lane,
                expected=f"0 to {cluster.size - 1}, the ranks of this cluster",
                code="cluster-rank",
                got=rank,
            )
        cta = cluster.ctas[rank]
        if cta.exited and cta is not self.cta:
            for listener in self.machine.events.refused:
                listener("cta-exited", cta, Issuer.of(self, lane))
            self.error(
                InvalidOperandError,
                f"the shared memory of CTA rank {rank} is accessed after that CTA has exited",
                lane,
                code="cta-has-exited",
                got=f"rank {rank}",
                consequence="on hardware the address faults or belongs to another CTA",
                hint="let all CTAs of the cluster wait for each other (barrier.cluster) before any of them exits",
            )
        return cta


def frame_of(cta: Cta, first_warp: int, warps: int) -> Frame:
    """The frame of these warps; always the same object."""
    key = (first_warp, warps)
    found = cta.frames.get(key)
    if found is None:
        found = cta.frames[key] = Frame(cta.machine, cta, cta.registers, first_warp, warps)
    return found


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

    @property
    def lane_of_warp(self) -> int | None:
        """The lane within its own warp: a frame may hold several warps, and later fewer. None for whole warps."""
        return None if self.lane is None else self.lane % WARP

    def warps(self) -> tuple[tuple[int, int], ...]:
        """Its warps, each with how many of its threads execute the instruction now."""
        first, mask = self.frame.first_warp, self.frame.mask
        if self.lane is not None:
            return ((first + self.lane // WARP, 1),)
        if mask is True:
            return tuple([(first + number, WARP) for number in range(self.frame.warps)])
        counts = np.count_nonzero(mask.reshape(-1, WARP), axis=1).tolist()
        return tuple([(first + number, count) for number, count in enumerate(counts) if count])

    def where(self) -> str:
        """Instruction, CTA and thread, as text. The frame may have moved on, so its operation is restored for this."""
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
        """Role and thread: "consumer 0, thread 128"; the warps if whole warps issued it."""
        first = self.frame.first_warp
        who = f"thread {self.thread}" if self.lane is not None else warps_named(range(first, first + self.frame.warps))
        role = self.frame.machine.code.role(self.frame.first_warp + (self.lane or 0) // 32)
        return f"{role}, {who}" if role else who

    def error(self, kind: type[EmulationError], what: str, **parts: Any) -> NoReturn:
        """Raise an error of the issuing instruction, even long after it ran."""
        error = kind(what, where=self.where(), **parts)
        error.location = self.operation.instruction.location
        raise error


def _seen(
    links: Links | None, reader: tuple[int, Order], region: Region, index: np.ndarray, element: np.dtype, count: int
) -> np.ndarray:
    """What a GPU reads with an instruction of that order: `count` elements from each index on, over its links."""
    places = index if count == 1 else index + np.arange(count)[:, None]
    taken = region.as_type(element).take(places, None, None, "clip")  # bounds were checked already
    return taken if links is None else links.loads(*reader, region, index, taken)
