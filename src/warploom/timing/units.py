"""The units of an SM and of the chip: each is busy until some time, and serves requests in order of arrival.

Times are SM clocks. L2, its network and DRAM have their own clocks, so their rates are bytes per nanosecond and are
divided by the SM's clock.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

from ..emulator.machine.units import TENSOR_MEMORY, UMMA, WARPGROUP_MMA
from .constants import Hardware
from .instructions import MUFU
from .rates import between, together
from .recording import Operation
from .runs import WAVEFRONT, Cost
from .shared_port import SharedPort
from .tensor import mma_clocks, operand_clocks, umma_clocks

MATRIX = (WARPGROUP_MMA.engine, UMMA.engine)
"""Engines of the tensor core."""
MEMORY_WINDOW, MOST_BUSY, MOST_BUSY_BY_BOXES = 16, 0.9, 0.7
"""The window of DRAM's mean load, in DRAM latencies; the load that counts as full, for loads and for boxes."""
GPC_SMS = 16
"""SMs of most GPCs."""
ACROSS = (2, 4, 12, 33, 66, 132)
"""Wave widths in CTAs whose rate was measured."""


@dataclass
class Chip:
    """The resources that all SMs share, as seen by one SM.

    Attributes:
        ghz: SM clock.
        active: SMs that work at the same time.
        dram_share: share of the bytes that an SM requests from L2 that come from DRAM.
        asked: bytes that an SM requests from L2 in the whole launch.
        waiting: share of its requests that wait for DRAM, also for lines that another SM requested; by default
            `dram_share`.
        far: data read again late have been evicted to DRAM.
        kept: share of the bytes its warps store that DRAM gets.
        reading: bytes per nanosecond that DRAM delivers to all SMs while it also takes writes; 0 for its full rate.
        moving: bytes per nanosecond read and written, less if DRAM turns between the two; 0 for its full rate.
        early: the grid starts while the previous one still runs.
        across: width of a wave of one CTA per SM, in CTAs, which share the operand of their row.
        cold: what a cluster's warps load for the first time comes from DRAM.
        apart, missed: copies whose SMs are out of step, by their numbers, and the share of them that DRAM delivers.
        sharing: SMs in step share their reads.
        alone: share of its requests for lines that no other SM requests.
        first: nanoseconds that the launch's first data from DRAM take longer.
        beyond: SMs that copy boxes from outside of an array at a time.
        adds: the constant by which additions of bulk copies take longer than stores.
        cluster: CTAs of a cluster, which are on SMs of one GPC.
        spilled: share of the spilled registers that leaves L1.
    """

    hardware: Hardware
    ghz: float
    active: int
    dram_share: float = 0.0
    asked: float = 0.0
    waiting: float | None = None
    far: bool = False
    kept: float = 0.0
    reading: float = 0.0
    moving: float = 0.0
    early: bool = False
    across: float = 12.0
    cold: bool = True
    apart: frozenset[int] = frozenset()
    missed: float = 0.0
    sharing: bool = True
    alone: float = 0.0
    first: float = 0.0
    beyond: float = 0.0
    cluster: int = 1
    adds: str = "bulk_add_ratio"
    spilled: float = 0.0

    def __post_init__(self) -> None:
        hardware, clock = self.hardware, self.ghz
        sharpness = hardware["queue_sharpness"]
        alone = self.alone / hardware["fill_alone_bytes_per_ns"]
        port = 1.0 / (alone + (1.0 - self.alone) / hardware["fill_bytes_per_ns"])
        network = self.network / self.active
        self.fill = min(port, hardware["received_bytes_per_ns"] / self.active) / clock
        """Bytes per clock that an SM receives."""
        dram = self.of_dram / self.dram_share if self.dram_share else math.inf
        self.fetch = together(sharpness, port, network, dram) / clock
        """Bytes per clock at which its requests are served."""
        self.lanes = min(self.fetch, hardware["l2_lanes_bytes_per_ns"] / self.active / clock)
        """The same for loads of lanes."""
        self.dram = (self.moving or hardware["dram_bytes_per_ns"]) / self.active / clock
        """Bytes per clock of its share of DRAM, for reads and writes."""
        self.out = min(hardware["store_bytes_per_clock"], hardware["store_bytes_per_ns"] / self.active / clock)
        """Bytes per clock that TMA may store."""
        self.written = min(hardware["store_bytes_per_clock"], hardware["written_bytes_per_ns"] / self.active / clock)
        """Bytes per clock that its warps may store."""
        self.lines = hardware["written_lines_per_ns"] / self.active / clock
        """Lines per clock that its warps may store to, even if only a word of each."""
        waiting = self.dram_share if self.waiting is None else self.waiting
        self.late = min(1.0, waiting)
        """Share of the copies that wait for DRAM."""
        self.latency = (hardware["tma_latency_ns"] + hardware["tma_dram_ns"] * self.late) * clock
        """Clocks from the time that a TMA copy's bytes take in the queue to their arrival."""
        self.least = (hardware["tma_least_ns"] + hardware["tma_dram_ns"] * self.late) * clock
        """Clocks from a TMA copy's issue to the arrival of its bytes, if they are few."""
        near = hardware.latency["ldg"].value
        self.copy_latency = near + (hardware["dram_latency"] - near) * min(1.0, waiting)
        """Clocks from the issue of a copy by lanes to its first bytes."""
        crowd = hardware["tma_outside_crowd_clocks"] * max(0.0, self.beyond - 1.0)
        self.outside_row = hardware["tma_outside_row_clocks"] + crowd
        """Clocks of TMA for a row outside of an array."""
        self.out_of_step = self
        """The same resources for copies that are out of step."""
        if self.apart:
            self.out_of_step = replace(
                self, apart=frozenset(), sharing=False, dram_share=self.missed, waiting=self.missed
            )

    def of(self, operation: int) -> Chip:
        """The resources as a copy sees them."""
        return self.out_of_step if operation in self.apart else self

    @property
    def of_dram(self) -> float:
        """Bytes per nanosecond of DRAM bandwidth for the SM that gets least.

        A grid that starts while previous grids still run gets the SMs that end first. If one grid has more than a third
        or a half of all SMs, these fill whole GPCs, and the SMs of a GPC share what it gets (launch.short_stream).
        """
        hardware = self.hardware
        filled = GPC_SMS // self.cluster * self.cluster / GPC_SMS
        even = (self.reading or hardware["dram_bytes_per_ns"]) / self.active
        if not self.early:
            return even
        if 2 * self.active > hardware.sms:
            return min(even, hardware["pressed_half_bytes_per_ns"] / filled)
        return min(even, hardware["pressed_third_bytes_per_ns"]) if 3 * self.active > hardware.sms else even

    @property
    def read_share(self) -> float:
        """Bytes that L2 reads for each byte that it delivers: SMs in step are served by one read of a line."""
        return min(1.0, self.hardware["l2_own_bytes_per_ns"] / self.network)

    @property
    def network(self) -> float:
        """Bytes per nanosecond that L2 and its network deliver to all SMs, as a mean over the launch.

        SMs that share their reads start in step, so one read of a line serves several of them. How many depends on the
        shape of the wave and on the elapsed time: they drift apart, until each reads for itself.
        """
        hardware, own = self.hardware, self.hardware["l2_own_bytes_per_ns"]
        if not self.sharing:
            return own
        short, in_step = (
            between(self.across, [(wide, hardware[f"l2_{length}across{wide}_bytes_per_ns"]) for wide in ACROSS])
            for length in ("short_", "")
        )
        lengths = (
            (hardware["short_bytes"], (short - own) / (in_step - own)),
            (hardware["in_step_bytes"], 1.0),
            (hardware["drifting_bytes"], hardware["drifting_share"]),
            (hardware["drifted_bytes"], hardware["drifted_share"]),
        )
        return own + (in_step - own) * between(self.asked, lengths)


def adds_up(operation: Operation) -> bool:
    """True for a copy whose bytes are combined with those of memory."""
    return operation.stores and ".reduce." in operation.text


class Sm:
    """One multiprocessor: four quarters with a scheduler and pipes each, a memory pipe, a tensor core, a TMA unit."""

    def __init__(self, hardware: Hardware, products: bool = False) -> None:
        self.hardware = hardware
        self.shared = SharedPort(products)
        self.warps = [0, 0, 0, 0]
        self.issue = [0.0, 0.0, 0.0, 0.0]
        self.pipes: list[dict[str, float]] = [{}, {}, {}, {}]
        self.ports = [0.0, 0.0, 0.0, 0.0]
        """Times at which each quarter's registers are free for the next ordinary instruction beside products."""
        self.lsu = self.tensor = self.tma = self.fill = self.store = 0.0
        self.remote = 0.0
        """Time at which the way to other SMs of the cluster is free."""
        self.barriers = 0.0
        """Time at which the unit that counts arrivals at barriers is free."""
        self.lanes = [0.0, 0.0, 0.0, 0.0]
        """Times at which each quarter's lanes of tensor memory are free."""
        self.products: dict[Hashable, deque[tuple[float, float, Operation, Any]]] = {}
        """Products that wait for the tensor core, by the warpgroup that issued them; the next one's turn is first."""
        self.served: Hashable = None
        self.each = 0.0
        """Clocks of the latest product."""
        self.free = 0.0
        """Time at which the tensor core is done with the product that it executes; `tensor`: with all products."""
        self.called = math.inf
        """Time for which the tensor core is called to begin a product."""
        self.loaded = 0.0
        """Time at which the bytes of the latest loads arrive."""
        self.crowd = 0.0
        """Extra clocks of the latest loads from DRAM compared with an idle DRAM."""
        self._busy = self._busy_at = 0.0
        self._opened: float | None = None
        """Time at which the first data from DRAM arrive."""
        self.tensor_busy = self.lsu_used = 0.0
        self.issued = [0.0, 0.0, 0.0, 0.0]
        self.used: list[dict[str, float]] = [{}, {}, {}, {}]

    # -- instructions ------------------------------------------------------------------------------------------------

    def _crowded(self, start: float, takes: float, of_box: float = 0.0) -> float:
        """Return DRAM's extra latency in clocks from its recent load. takes: clocks that it is busy now.

        of_box: the extra latency of a box at half load, in clocks; a box waits for the last of its rows.
        """
        window = MEMORY_WINDOW * self.hardware["dram_latency"]
        if start > self._busy_at:
            self._busy *= math.exp((self._busy_at - start) / window)
            self._busy_at = start
        known = 1.0 - math.exp(-(start + self.hardware["dram_latency"]) / window)
        busy = min(MOST_BUSY_BY_BOXES if of_box else MOST_BUSY, self._busy / known)
        self._busy += takes / window
        extra = of_box or self.hardware["dram_latency"] * self.hardware["dram_crowding"]
        return extra * busy / (1.0 - busy)

    def _of_dram(self, start: float, latency: float, chip: Chip) -> float:
        """Return the earliest time at which what is requested at `start` may arrive from DRAM.

        The first data of a launch take longer, and no others come before them.
        """
        if not chip.first:
            return start
        if self._opened is None:
            self._opened = start + latency + chip.first * chip.ghz
        return self._opened

    def _beside(self, quarter: int, start: float, end: float, ordinary: float) -> float:
        """Return when a run ends that would end at `end` if its instructions had the registers for themselves.

        Products read and write their accumulators there. Meanwhile the ordinary instructions of a quarter get a slot
        only every few clocks (a few at a time, so that slots of the last product that nobody took still count), and
        what depends on them waits, too. After the products, the rest of the run follows at its own pace.
        """
        begun = max(self.ports[quarter], start - self.each)
        takes = ordinary * self.hardware["beside_issue_clocks"]
        if not ordinary or begun >= self.tensor:
            return end
        self.ports[quarter] = min(self.tensor, begun + takes)
        left = 1.0 - min(1.0, (self.tensor - begun) / takes)
        return max(end, self.ports[quarter] + left * (end - start))

    def execute(self, quarter: int, start: float, cost: Cost, chip: Chip) -> float:
        """Issue a run at `start` or later, and return when its issue and its own chain end."""
        issued = self.issue[quarter] = max(self.issue[quarter], start) + cost.issue
        self.issued[quarter] += cost.issue
        self.lsu_used += cost.lsu
        end = max(issued, start + cost.chain)
        pipes, used = self.pipes[quarter], self.used[quarter]
        for pipe, clocks in cost.pipes:
            if pipe == MUFU and self.tensor > start:
                clocks += min(clocks, self.tensor - start) * (self.hardware["mufu_beside_ratio"] - 1.0)
            busy = pipes[pipe] = max(pipes.get(pipe, 0.0), start) + clocks
            used[pipe] = used.get(pipe, 0.0) + clocks
            if busy > end:
                end = busy
        if self.tensor > start:
            end = self._beside(quarter, start, end, cost.ordinary)
        if cost.lsu:
            beside = self.shared.share if self.tensor > start else 0.0
            self.lsu = max(self.lsu, start) + cost.lsu + cost.wavefronts * beside
            end = max(end, self.lsu)
            self.shared.add(start, end, cost.wavefronts)
        if cost.missed:
            self.fill = max(self.fill, start) + cost.missed / chip.lanes
            self.loaded = self.fill
            if cost.distant:
                self.loaded = max(self.loaded, self._of_dram(start, self.hardware["dram_latency"], chip))
        else:
            self.loaded = start
        moved = (cost.missed * chip.dram_share if chip.cold else 0.0) + cost.stored * chip.kept
        self.crowd = self._crowded(start, moved / chip.dram) if moved else 0.0
        if cost.remote:
            self.remote = max(self.remote, start) + cost.remote / self.hardware["remote_load_bytes_per_clock"]
            self.loaded = max(self.loaded, self.remote + self.hardware["remote_latency"])
        if cost.stored:
            takes = max(cost.stored / chip.written, cost.lines / chip.lines)
            self.store = max(self.store, start) + takes
            end = max(end, self.store - self.hardware["store_queue_bytes"] * takes / cost.stored)
        return end

    def arrive(self, time: float) -> float:
        """Return when a warp's arrival at its cluster's barrier is on its way: after those and the remote loads before
        it."""
        start = max(self.remote, time)
        self.remote = start + self.hardware["cluster_arrive_clocks"]
        return start

    def meet(self, time: float) -> float:
        """Return when a warp's arrival at a barrier of its CTA counts: the SM counts one after the other."""
        self.barriers = max(self.barriers, time) + self.hardware["bar_warp"]
        return self.barriers

    # -- operations ----------------------------------------------------------------------------------------------------

    def queue(self, stream: Hashable, operation: Operation, start: float, payload: Any) -> None:
        """Queue a product that a warpgroup (its stream) issues at `start`, for `serve`."""
        clocks = (umma_clocks if operation.engine == UMMA.engine else mma_clocks)(operation, self.hardware)
        ready = start + self.hardware["mma_start"]
        self.tensor = max(self.tensor, ready) + clocks
        self.products.setdefault(stream, deque()).append((ready, clocks, operation, payload))

    @property
    def next_product(self) -> float:
        """Time at which the tensor core may begin another product; infinity if none is queued."""
        ready = min((waiting[0][0] for waiting in self.products.values()), default=math.inf)
        return max(ready, self.free)

    def serve(self, time: float) -> tuple[float, float, float, Any]:
        """Begin the next product: (when it begins, has read its sources, is done, its payload).

        Warpgroups take turns, product by product.
        """
        stream = next(one for one, waiting in self.products.items() if waiting[0][0] <= time)
        waiting = self.products.pop(stream)
        _, clocks, operation, payload = waiting.popleft()
        if waiting:
            self.products[stream] = waiting  # behind the others
        if operation.moved and stream != self.served:
            clocks += self.hardware["moved_turn_clocks"]
        self.served = stream
        if operation.engine != UMMA.engine:
            clocks = self.shared.product(time, clocks, operand_clocks(operation, self.hardware))
        self.free, self.each = time + clocks, clocks
        self.tensor = max(self.tensor, self.free)
        self.tensor_busy += clocks
        return time, self.free, self.free + self.hardware["mma_drain"], payload

    def begin(self, operation: Operation, start: float, chip: Chip, home: Sm | None) -> tuple[float, float, float]:
        """Start an operation that is no product: (when it begins, has read its sources, is done)."""
        hardware, engine = self.hardware, operation.engine
        if engine == TENSOR_MEMORY.engine:
            quarter = operation.warp % 4
            begin = max(start, self.lanes[quarter])
            self.lanes[quarter] = begin + operation.bytes / hardware["tensor_memory_bytes_per_clock"]
            return begin, self.lanes[quarter], self.lanes[quarter] + hardware["tensor_memory_latency"]
        if engine == "remote":
            begin = max(start, self.remote)
            self.remote = begin + operation.bytes / hardware["remote_bytes_per_clock"]
            return begin, self.remote, self.remote + hardware["remote_arrive"]
        if operation.stores:
            begin = max(start, self.store)
            ratio = hardware[chip.adds] if adds_up(operation) else 1.0
            passes = operation.bytes / hardware["store_bytes_per_clock"]
            beside = self.shared.share if self.tensor > begin else 0.0
            self.store = begin + operation.bytes / chip.out * ratio + passes * beside
            self.shared.add(begin, self.store, passes)
            return begin, self.store + hardware["store_read_latency"], self.store + hardware["store_latency"]
        if engine == "cp_async":
            passes = operation.rows * hardware["global_load_clocks"]
            passes += (operation.bytes / 128 + operation.conflicts) * hardware["shared_store_clocks"]
            self.lsu = max(self.lsu, start) + passes
            begin = self.lsu
            self.fill = max(self.fill, begin) + operation.fetched / chip.fetch
            crowd = self._crowded(begin, operation.fetched * chip.dram_share / chip.dram)
            done = max(self.fill + hardware.latency["ldg"].value, begin + chip.copy_latency + crowd)
            if operation.distant:
                done = max(done, self._of_dram(begin, hardware["dram_latency"], chip))
            self.shared.add(done - passes, done, operation.bytes / WAVEFRONT + operation.conflicts)
            return begin, self.fill, done
        return self._load(operation, start, chip)

    def _load(self, operation: Operation, start: float, chip: Chip) -> tuple[float, float, float]:
        hardware = self.hardware
        begin = max(start, self.tma)
        inside = operation.rows - operation.outside
        if operation.fetched or operation.outside:
            rows = inside * hardware["tma_row_clocks"] + operation.outside * chip.outside_row
            self.tma = begin + rows
        waits = max(0.0, self.fill - begin)
        received = begin + waits + max(operation.bytes / chip.fill, operation.fetched / chip.fetch)
        self.fill = received
        crowd = 0.0
        if operation.fetched and chip.dram_share:  # queueing time counts towards the wait for DRAM
            of_box = hardware["box_crowding_ns"] * chip.ghz
            crowd = self._crowded(begin, operation.fetched * chip.dram_share / chip.dram, of_box) * chip.late
        arrived = max(received + chip.latency, self.tma + chip.latency, begin + chip.least)
        if operation.distant:
            arrived = max(arrived, self._of_dram(begin, chip.least, chip))
        return begin, received, arrived + max(0.0, crowd - waits)
