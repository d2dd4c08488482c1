"""The machine's state: grid, clusters, CTAs, warps, fragments. `scheduler` runs it.

A *fragment* is the threads of one warp that share a program counter. A warp has one fragment until a branch
diverges; fragments that reach the same instruction reconverge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from .concurrent_units import Engine, Streams
from .counters import Counters
from .image import Image
from .links import Links
from .listeners import Events
from .memory import Allocation, GlobalMemory, Region
from .model import Model
from .registers import WARP, Mask, RegisterFile
from .slots import Slot
from .special_values import SPECIAL
from .symbols import warps_named
from .wait import Wait

FULL = 0xFFFFFFFF
POISON = b"\xff"
"""NaN in every format."""


@lru_cache(maxsize=4096)
def lanes_of(mask: int) -> np.ndarray:
    """A 32-bit lane mask as a (32,) bool array (read-only)."""
    bits = np.unpackbits(np.array([mask], np.uint32).view(np.uint8), bitorder="little").astype(np.bool_)
    bits.flags.writeable = False
    return bits


def mask_of(lanes: np.ndarray) -> int:
    """A (32,) bool array as a 32-bit lane mask."""
    return _packed(lanes.tobytes())


@lru_cache(maxsize=4096)
def _packed(lanes: bytes) -> int:
    return int(np.packbits(np.frombuffer(lanes, np.bool_), bitorder="little").view(np.uint32)[0])


@dataclass(eq=False, slots=True)
class Fragment:
    """Threads of one warp at one program counter.

    Attributes:
        lanes: 32-bit mask.
        wait, wait_mask: why it is stalled at `pc`, and the lanes that executed the instruction there.
        seen_progress: the machine's signal count (progress count, if spinning) when `wait.ready` was last false.
        masks: the membermasks, (32,), of threads parked at a bar.warp.sync.
    """

    pc: int
    lanes: int
    wait: Wait | None = None
    wait_mask: Mask = True
    seen_progress: int = -1
    masks: np.ndarray | None = None


Polled: TypeAlias = "tuple[Callable[[], bytes], bytes] | None"
"""A function of the bytes that a poll reads, and what they were; None if it does more than read."""


@dataclass(eq=False)
class Warp:
    """A warp: its fragments, ordered by program counter, and the lanes that have not exited."""

    cta: Cta
    index: int
    alive: int
    fragments: list[Fragment] = field(default_factory=list)
    left_at: int = -1
    """The instruction (pc) with which the last of its lanes exited."""
    polled: dict[tuple[int, bytes], Polled] = field(default_factory=dict)
    polled_at: int = -1
    """Program counters and addresses polled since the progress count was `polled_at`: a loop may poll several."""

    @property
    def exited(self) -> bool:
        return not self.alive

    @property
    def warpgroup(self) -> int:
        return self.index // 4


class Sm:
    """A streaming multiprocessor; `slots` hold the state that its CTAs share."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.slots: dict[Slot[Any], Any] = {}


class Device:
    """One GPU of a launch: its parameters, its multiprocessors, and the progress of its grid.

    Attributes:
        index: its rank among the devices; parameters: the kernel's parameter bytes there.
        started, running, retired: clusters of all its calls so far; a call starts after the previous one has finished.
        workspace: memory for grid-wide synchronisation, created on request; heap: memory from `malloc`, likewise.
    """

    def __init__(self, index: int, parameters: Region) -> None:
        self.index = index
        self.parameters = parameters
        self.sms: dict[int, Sm] = {}
        self.started = self.retired = 0
        self.workspace: Allocation | None = None
        self.heap: object = None

    @property
    def running(self) -> int:
        return self.started - self.retired

    def sm(self, index: int) -> Sm:
        return self.sms.setdefault(index, Sm(index))


class Cta:
    """A thread block: shared memory, registers, warps, and slots for the state of instruction families.

    Attributes:
        index: %ctaid; rank: rank in the cluster; sm: the SM it is placed on; device: the GPU.
        shared: its shared memory as a Region; offsets below `shared_start` are reserved by the system.
        slots: the state that instruction families keep for it, see `slots`.
    """

    def __init__(self, machine: Machine, cluster: Cluster, index: tuple[int, int, int], rank: int, sm: Sm) -> None:
        code = machine.code
        self.machine = machine
        self.cluster = cluster
        self.index = index
        self.rank = rank
        self.sm = sm
        self.block = machine.block
        self.threads = machine.threads
        shape = machine.cluster_shape
        self.index_in_cluster = tuple(at % size for at, size in zip(index, shape, strict=True))
        self.shared_start = code.shared_start
        size, filled = code.shared_size, machine.unwritten
        filled *= -(-size // len(filled))
        self.shared = Region(np.frombuffer(bytearray(filled), np.uint8)[:size], "shared memory")
        self.local_size = code.local_bytes
        warps = -(-self.threads // WARP)
        self.local = Region(np.full(warps * WARP * code.local_bytes, 0xFF, np.uint8), "local memory")
        self.device = cluster.device
        self.parameters = cluster.device.parameters
        self.slots: dict[Slot[Any], Any] = {}
        self.registers = machine.take_registers(warps * WARP)
        self.frames: dict[tuple[int, int], Any] = {}
        """Created and cached by `frame.frame_of`."""
        self.warps = []
        for number in range(warps):
            alive = FULL if (number + 1) * WARP <= self.threads else (1 << (self.threads - number * WARP)) - 1
            self.warps.append(Warp(self, number, alive, [Fragment(0, alive)]))
        self.living = warps
        """Warps that have not exited."""
        self._fill_launch_constants()

    def _fill_launch_constants(self) -> None:
        code = self.machine.code
        threads = np.arange(self.registers.lanes, dtype=np.int64)
        for name, row in code.thread_rows.items():
            self.registers.banks[row.bits][row.index] = np.asarray(SPECIAL[name](self, threads))
        values = self.registers.window(0, len(self.warps))
        for constant in code.cta_constants.values():
            values[constant.slot][...] = constant.value(self)  # type: ignore[index]

    def refresh(self, names: tuple[str, ...]) -> None:
        """Read the clocks that an instruction is about to use."""
        for name in names:
            row = self.machine.code.thread_rows[name]
            self.registers.banks[row.bits][row.index] = SPECIAL[name](self, np.empty(0))

    def thread_index(self, thread: int) -> tuple[int, int, int]:
        """%tid of a linear thread number."""
        x, y, _ = self.block
        return thread % x, thread // x % y, thread // (x * y)

    @property
    def exited(self) -> bool:
        return not self.living

    def describe_warp(self, warp: int) -> str:
        """A warp in words: "consumer 1, warp 8 of CTA (0, 0, 0)"."""
        role = self.machine.code.role(warp)
        return (f"{role}, " if role else "") + f"warp {warp} of {self.describe()}"

    def describe_warps(self, warps: list[int]) -> str:
        """Warps in words, by role: "producer (warp 0), consumer 0 (warps 4-7)"."""
        roles: dict[str, list[int]] = {}
        for warp in warps:
            roles.setdefault(self.machine.code.role(warp), []).append(warp)
        words = [f"{role} ({warps_named(mine)})" if role else warps_named(mine) for role, mine in roles.items()]
        return ", ".join(words) or "none"

    def describe(self) -> str:
        x, y, z = self.index
        rank = f" (cluster rank {self.rank})" if self.cluster.size > 1 else ""
        gpu = f" of GPU {self.device.index}" if len(self.machine.devices) > 1 else ""
        return f"CTA ({x}, {y}, {z}){rank}{gpu}"


class Cluster:
    """CTAs that are resident together. Without clusters, each CTA is a cluster of its own.

    Attributes:
        index: in the grid; device: the GPU it runs on; call: index of the launch in its stream, from 0.
    """

    cta_type = Cta

    def __init__(self, machine: Machine, device: Device) -> None:
        x, y, z = machine.clusters_in_grid
        self.call, number = divmod(device.started, x * y * z)
        number = machine.order(number)
        self.machine = machine
        self.device = device
        self.index = index = (number % x, number // x % y, number // (x * y))
        shape = machine.cluster_shape
        self.size = shape[0] * shape[1] * shape[2]
        self.slots: dict[Slot[Any], Any] = {}
        self.ctas: list[Cta] = []
        for rank in range(self.size):
            inside = (rank % shape[0], rank // shape[0] % shape[1], rank // (shape[0] * shape[1]))
            cta_index = tuple(at * size + part for at, size, part in zip(index, shape, inside, strict=True))
            sm = device.sm((number * self.size + rank) % machine.sms)
            self.ctas.append(self.cta_type(machine, self, cta_index, rank, sm))  # type: ignore[arg-type]

    @property
    def exited(self) -> bool:
        return all(cta.exited for cta in self.ctas)


class Machine:
    """One launch, or several in succession, on one emulated GPU or on several that share an address space.

    Attributes:
        memory: global memory; devices: the GPUs, each with its own parameters; calls: launches of each, in its stream.
        engine: the asynchronous operations in flight; links: data in flight between GPUs;
            streams: copies next to the kernel.
        unwritten: initial contents of shared and tensor memory, repeated.
        events: the listeners.
        cancelled: clusters whose work another cluster has taken over; most_clusters: stop after that many; order: the
            number of the cluster that starts as the nth.
        progress_count: number of events that another thread may have waited for; signals: the same without plain
            stores, which only spinning threads wait for.
    """

    def __init__(
        self,
        code: Image,
        memory: GlobalMemory,
        parameters: Sequence[Region],
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        cluster: tuple[int, int, int],
        dynamic_smem: int,
        model: Model,
        engine: Callable[[Machine], Engine],
        module_buffers: dict[str, Allocation],
        detailed: bool,
    ) -> None:
        self.code = code
        self.memory = memory
        self.devices = [Device(index, mine) for index, mine in enumerate(parameters)]
        self.calls = 1
        self.grid = grid
        self.block = block
        self.cluster_shape = cluster
        self.explicit_cluster = cluster != (1, 1, 1)
        self.clusters_in_grid = tuple(size // part for size, part in zip(grid, cluster, strict=True))
        self.threads = block[0] * block[1] * block[2]
        self.dynamic_smem = dynamic_smem
        self.model = model
        self.module_buffers = module_buffers
        self.counters = Counters(detailed=detailed)
        self.events = Events()
        self.numerics, self.unwritten = "exact", POISON
        self.links: Links | None = None
        self.streams: Streams | None = None
        self.dependent: bool | None = None
        self.written_in_front = frozenset[str]()
        self.tensor_maps: list[object] = []
        self.guessed, self.printed = "", list[str]()
        self.steps = 0
        self.progress_count = self.signals = 0
        self.resident: list[Cluster] = []
        self._spare_registers: dict[int, list[RegisterFile]] = {}
        self.cancelled = 0
        self.most_clusters: int | None = None
        self.order: Callable[[int], int] = int
        self.engine = engine(self)

    @property
    def clusters_in_all(self) -> int:
        """Number of clusters of the grid, on all devices and in all calls."""
        x, y, z = self.clusters_in_grid
        return x * y * z * len(self.devices) * self.calls

    @property
    def sms(self) -> int:
        """Multiprocessors of a device that are used: whole clusters, so that the CTAs of one are on different ones."""
        size = self.cluster_shape[0] * self.cluster_shape[1] * self.cluster_shape[2]
        return max(self.model.sms // size, 1) * size

    def cancel_cluster(self, device: Device) -> tuple[int, int, int] | None:
        """Remove the next cluster from the grid of the launch on a device. Returns the index of its first CTA.

        None if none is left. See cluster launch control, PTX ISA 9.7.13.17.
        """
        x, y, z = self.clusters_in_grid
        number = device.started % (x * y * z)
        if number == 0 or self.started >= self.to_run:
            return None
        device.started += 1
        device.retired += 1
        self.cancelled += 1
        index = (number % x, number // x % y, number // (x * y))
        first = tuple(at * size for at, size in zip(index, self.cluster_shape, strict=True))
        return first  # type: ignore[return-value]

    @property
    def to_run(self) -> int:
        """Number of clusters that are to be run or cancelled in total."""
        every = self.clusters_in_all
        return every if self.most_clusters is None else min(every, self.most_clusters)

    @property
    def started(self) -> int:
        """Number of clusters that have started, or were cancelled, on all devices."""
        return sum(device.started for device in self.devices)

    def start_cluster(self) -> bool:
        """Make one more cluster resident, on the device that has started the fewest. False if none can start."""
        x, y, z = self.clusters_in_grid
        in_grid, places = x * y * z, self.places
        ready = [
            device
            for device in self.devices
            if device.started < in_grid * self.calls
            and device.running < places
            and (device.started % in_grid or self._is_over(device))  # a launch begins after the previous one has ended
        ]
        if not ready:
            return False
        device = min(ready, key=lambda one: one.started)
        self.resident.append(Cluster(self, device))
        device.started += 1
        return True

    def _is_over(self, device: Device) -> bool:
        """True if all launches that began on a device have finished."""
        return not device.running and (self.streams is None or self.streams.over(device))

    def progress(self) -> None:
        """Record an event for which another thread may be waiting."""
        self.progress_count += 1
        self.signals += 1

    def take_registers(self, lanes: int) -> RegisterFile:
        spare = self._spare_registers.get(lanes)
        if spare:
            file = spare.pop()
            file.reset()
            return file
        return RegisterFile(self.code.layout, lanes)

    def retire(self, cluster: Cluster) -> None:
        """A cluster has exited: its slot and its registers are free."""
        self.resident.remove(cluster)
        cluster.device.retired += 1
        for cta in cluster.ctas:
            self._spare_registers.setdefault(cta.registers.lanes, []).append(cta.registers)
            self.counters.ctas += 1
        self.progress()

    @property
    def places(self) -> int:
        """Number of clusters that can be resident on a device: SMs times what fits on one."""
        warps = -(-self.threads // WARP)
        by_warps = self.model.warps_per_sm // warps
        shared = self.code.shared_size or 1
        by_shared = self.model.shared_per_sm // max(shared, 1)
        occupancy = max(1, min(self.model.max_ctas_per_sm, by_warps, by_shared))
        size = self.cluster_shape[0] * self.cluster_shape[1] * self.cluster_shape[2]
        return max(1, self.model.sms * occupancy // size)
