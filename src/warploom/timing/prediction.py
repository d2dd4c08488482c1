"""How long a launch takes: its clusters replayed on one SM (or one cluster's SMs), the clock from power, the roofs.

The recorded clusters represent the whole grid. A place (the SMs of one cluster) runs its share of the clusters in turn,
as many at a time as registers and shared memory allow. If there are many, the replay runs the first and extrapolates.
"""

from __future__ import annotations

import math
from bisect import bisect_left

from ..isa.instructions.bulk_copy import MULTICAST
from .constants import Hardware
from .depths import apart
from .launch import Launch
from .lots import last_lot
from .occupancy import L2_BYTES, Occupancy, occupancy
from .overlap import ahead, loads_early
from .power import WATTS, Work, above_cap, found_clock, settle, watts
from .recording import Recording
from .replay import Replay
from .resident import rest_bytes
from .result import Prediction, largest, waits
from .runs import WAVEFRONT
from .spills import spills
from .tensor import Products
from .timeline import Timeline
from .trace import Trace
from .units import GPC_SMS, Chip, adds_up
from .waves import beyond, read_alone

LEAST_SHARE = 0.55
"""Least work of a mean cluster relative to the first: one tile of two, and a little."""
STEP_BUDGET = 300_000
"""Approximate number of steps of one replay; longer sequences of clusters are replayed in part."""
CLOCKS_GHZ = (1.2, 1.8)
"""Clocks at which every launch is replayed."""
MEETS = 2.0
"""Additions to each byte of the output from which on those of several CTAs meet."""
NEAR_CLOCK = 0.01
"""Two clocks that close are the same."""


class Predictor:
    """The prediction of one launch on one GPU from its recording."""

    def __init__(self, recording: Recording, hardware: Hardware, launch: Launch) -> None:
        self.recording, self.hardware, self.launch = recording, hardware, launch
        grid, block = recording.grid, recording.block
        self.ctas = grid[0] * grid[1] * grid[2]
        self.cluster = recording.cluster[0] * recording.cluster[1] * recording.cluster[2]
        self.room: Occupancy = occupancy(
            hardware, threads=block[0] * block[1] * block[2], registers=launch.registers,
            shared=recording.shared_bytes, ctas=self.ctas, cluster=self.cluster,
        )  # fmt: skip
        self.pace = recording.pace
        self.scale = self.ctas / max(1, recording.ctas) * self._share() * self.pace
        turns = max(1, self.room.turns)
        in_one_wave = turns <= self.room.residents
        self.sms = self.room.places * self.cluster
        """SMs that may have a CTA."""
        self.active = min(self.sms, -(-self.ctas // turns) if in_one_wave else self.ctas)
        """SMs that share L2 and DRAM; in a single wave, as many as would be needed if all were as full as the
        fullest."""
        self.early = loads_early(recording)
        self.ahead = ahead(recording, hardware, self.room)
        """Share of what it does before its wait that the previous launch, of as many CTAs, hides."""
        self.l2_bytes = recording.fetched * self.scale
        self.far = not launch.warm and launch.input_bytes + launch.output_bytes > L2_BYTES
        """True if data read again late have been evicted from L2 to DRAM."""
        rest = rest_bytes(recording, launch, self.scale)
        stays = self.far and rest <= L2_BYTES
        """True if what is not marked to be evicted first stays in L2 from launch to launch. Launches on arrays that
        would fit there, but are not `warm`, are taken to have other arrays each."""
        self.near = launch.warm or stays
        self.stored = 0.0 if stays else min(recording.dirty * self.scale, launch.writable_bytes or math.inf)
        """Bytes written to DRAM: L2 absorbs repeated writes."""
        self.known_bytes = max(0.0, rest - launch.output_bytes) if stays else 0.0
        """Bytes of inputs that are in L2 from the launch before."""
        self.read_alone, self.beyond = read_alone(recording, self.scale), beyond(recording)
        self.apart = apart(recording, min(self.ctas, self.sms * self.room.residents))
        self.dram_bytes = self._dram() + self.apart.missed * self.apart.bytes * self.scale
        self.spills = spills(recording, launch.stack_bytes, self.room.residents, self.sms)
        self.dram_bytes += self.spills.loaded * self.spills.beyond * self.scale
        self.stored += self.spills.stored * self.spills.beyond * self.scale
        added = sum(one.bytes for one in recording.operations if adds_up(one)) * self.scale
        self.meets = added > MEETS * launch.writable_bytes
        """True if several CTAs' bulk additions are to the same lines."""
        self.unequal = self._unequal()
        self.lot = last_lot(recording, self.room.places, self.room.residents)
        """The recorded clusters that the place gets which ends last, if they differ."""
        self._replays: dict[float, tuple[float, Replay]] = {}
        self._works: dict[float, float] = {}
        """Seconds of work by clock."""

    def _share(self) -> float:
        """Work of a mean cluster relative to the recorded ones: if tiles do not divide evenly, the first have one more.

        The share is the size of the output over the bytes written if all clusters wrote as much as the recorded ones.
        A share below `LEAST_SHARE` usually means that the kernel writes more than the output (partial sums); it then
        counts as 1. Only for a matrix product that can write nothing but the output is a smaller share believed: it
        has fewer tiles than clusters.
        """
        written = self.recording.written * self.ctas / max(1, self.recording.ctas)
        share = self.launch.output_bytes / written if written else 1.0
        alone = self.recording.flops and self.launch.output_bytes == self.launch.writable_bytes
        return share if (0.0 if alone else LEAST_SHARE) < share < 1.0 else 1.0

    def _unequal(self) -> tuple[int, int] | None:
        """If all clusters run at once and some have a tile more: (tiles of the first, SMs with that many); else None.

        The others are done then, so that the last tile has L2 and DRAM for itself.
        """
        tiles, share = self.recording.tiles, self._share()
        more = share * tiles - (tiles - 1)
        if self.room.turns > 1 or tiles < 2 or not 0.0 < more < 1.0:
            return None
        return tiles, max(self.cluster, round(more * self.ctas))

    def _dram(self) -> float:
        """Bytes read from DRAM.

        All data are read once. Data that do not fit in L2 are read again: concurrent CTAs share reads with the CTAs in
        their row and column. A grid with rows starts row by row; a one-dimensional grid is treated as a square.
        """
        if self.launch.warm:
            return 0.0
        touched = self.recording.distant * self.scale
        once = max(0.0, min(self.launch.input_bytes or touched, touched) - self.known_bytes)
        if self.far:
            once += self.recording.evicted * self.scale
        in_step = self.l2_bytes - self.apart.bytes * self.scale
        again = max(0.0, in_step * self._alone() - once)
        return once + again * max(0.0, 1.0 - L2_BYTES / max(once, 1.0))

    def _alone(self) -> float:
        """Share of the L2 requests of concurrent CTAs that no other CTA of the wave makes, too."""
        wide, together = self._wave()
        return float((1 / wide + wide / together) / 2)

    def _wave(self) -> tuple[float, int]:
        """Width and size of a wave in CTAs: a grid starts row by row; a one-dimensional grid is treated as a square."""
        together = min(self.ctas, self.sms * self.room.residents)
        columns, rows = self.recording.grid[0], self.recording.grid[1]
        return float(min(columns, together) if rows > 1 else together**0.5), together

    def chip(self, ghz: float, active: int = 0) -> Chip:
        """Return an SM's view of L2 and DRAM; active: SMs that work at a time, by default all that the grid fills.

        CTAs in step wait for DRAM together, also those that are not the first to request a line.
        """
        in_step = self.l2_bytes - self.apart.bytes * self.scale
        share = min(1.0, self._dram() / in_step) if in_step > 0.0 else 0.0
        waiting = min(1.0, share / self._alone())
        asked = self.l2_bytes / self.active
        wide, together = self._wave()
        return Chip(
            self.hardware,
            ghz,
            active or self.active,
            share,
            asked,
            waiting,
            self.far,
            self.stored / max(1.0, self.recording.stored * self.scale),
            self.dram_bytes / self.dram_seconds * 1e-9 if self.dram_bytes else 0.0,
            (self.dram_bytes + self.stored) / self.dram_seconds * 1e-9 if self.dram_bytes else 0.0,
            self.recording.pdl,
            self.sms * wide / together,
            not self.near,
            self.apart.operations,
            self.apart.missed,
            alone=self.read_alone,
            first=self.first_ns,
            beyond=self.beyond * (active or self.active),
            cluster=min(self.cluster, GPC_SMS),
            adds="bulk_add_shared_ratio" if self.meets else "bulk_add_ratio",
            spilled=self.spills.outside,
        )

    def replayed(self, ghz: float, trace: Trace | None = None) -> tuple[float, Replay]:
        """Return (clocks of the whole launch on the SMs of one place, the replay)."""
        found = self._replays.get(ghz)
        if found is not None and trace is None:
            return found
        steps = sum(len(steps) for steps in self.recording.steps.values()) / len(self.recording.clusters)
        residents, turns = self.room.residents, len(self.lot) or self.room.turns
        most = max(2 * residents + 1, int(STEP_BUDGET / max(steps, 1.0)))
        left = 0 if self.lot else self.room.clusters % self.room.places
        if residents == 1 and 1 < turns <= most and left:  # the last few have L2 and DRAM for themselves
            clocks, replay = self._replay(ghz, turns - 1, trace)
            last, _ = self._replay(ghz, 1, None, self.chip(ghz, left * self.cluster))
            clocks += last
        elif turns <= most:
            clocks, replay = self._replay(ghz, turns, trace)
            if self.unequal:
                tiles, still = self.unequal
                alone, _ = self._replay(ghz, turns, None, self.chip(ghz, still))
                clocks -= max(0.0, clocks - alone) / tiles
        else:
            first = max(residents, most // 2 // residents * residents)
            last = max(first + residents, most // residents * residents)
            earlier, _ = self._replay(ghz, first, None)
            later, replay = self._replay(ghz, last, trace)
            clocks = later + (turns - last) * (later - earlier) / (last - first)
        clocks += self._last_clocks(ghz) + self._piled_clocks(ghz, replay)
        self._replays[ghz] = clocks, replay
        return clocks, replay

    def _last_clocks(self, ghz: float) -> float:
        """Clocks that the CTA that arrives last at a counter takes longer than others: at the end of the grid, and
        where there are many turns, in its share of them."""
        last, room = self.recording.last, self.room
        if last is None:
            return 0.0
        alone, _ = self._replay(ghz, 1, None)
        more = Replay(last, self.hardware, self.chip(ghz)).run() - alone
        return max(0.0, more) * max(1.0, room.turns / room.residents / self.recording.arrivals)

    def _piled_clocks(self, ghz: float, replay: Replay) -> float:
        """Clocks that the last CTAs' additions of floats to one word take longer than these CTAs end apart."""
        residents = self.room.residents
        together = self.recording.piled * self.scale * min(1.0, residents / max(1, self.room.turns))
        ends = sorted(replay.ends)[-residents:]
        return max(0.0, together * self.hardware["update_float_ns"] * ghz - (ends[-1] - ends[0]))

    def _replay(
        self, ghz: float, instances: int, trace: Trace | None, chip: Chip | None = None
    ) -> tuple[float, Replay]:
        replay = Replay(
            self.recording, self.hardware, chip or self.chip(ghz), residents=self.room.residents, instances=instances,
            places=self.room.places, ahead=self.ahead, lot=self.lot, trace=trace,
        )  # fmt: skip
        return replay.run(), replay

    def seconds(self, ghz: float) -> float:
        """Time of one launch among many, or DRAM's time if that is longer.

        Between two clocks that were replayed, it is linear in 1 / clock.
        """
        for end in CLOCKS_GHZ:
            self.replay_at(end)
        known = sorted(self._works)
        above = min(max(1, bisect_left(known, ghz)), len(known) - 1)
        low, high = known[above - 1 : above + 1]
        slow, fast = self._works[low], self._works[high]
        slope = (slow - fast) / (1 / low - 1 / high)
        gap = self.hardware["launch_pdl_us" if self.recording.pdl else "launch_us"] * 1e-6
        dram = self.dram_seconds + self._idle(ghz)
        return max(fast + slope * (1 / ghz - 1 / high), dram, self.update_seconds) + gap

    def replay_at(self, ghz: float) -> None:
        """Replay the launch at this clock, too: where L2 binds at high clocks and a pipe of the SM at low ones, its
        time is not linear in 1 / clock."""
        if ghz not in self._works:
            self._works[ghz] = self._work(ghz)

    def knows(self, ghz: float) -> bool:
        """True if it was replayed at about this clock."""
        return any(abs(known / ghz - 1) < NEAR_CLOCK for known in self._works)

    @property
    def first_ns(self) -> float:
        """Nanoseconds that its first data from DRAM take longer. A grid whose CTAs start before the previous one has
        ended does not have this wait."""
        return 0.0 if self.near or self.recording.pdl or not self.dram_bytes else self.hardware["dram_first_ns"]

    def _idle(self, ghz: float) -> float:
        """Seconds until DRAM gets the first requests, if none were made while the previous grid ran."""
        if self.early or not self.dram_bytes:
            return 0.0
        return ((self.hardware["cta_start"] + self.hardware["dram_latency"]) / ghz + self.first_ns) * 1e-9

    @property
    def update_seconds(self) -> float:
        """Time of atomics on the same lines."""
        recording = self.recording
        return max(one.seconds(self.scale, self.hardware) for one in (recording.updates, recording.shared_updates))

    @property
    def dram_seconds(self) -> float:
        """Time that DRAM is busy, including the loss when it turns from reading to writing."""
        moved = (self.dram_bytes + self.stored) / self.hardware["dram_bytes_per_ns"]
        return (moved + min(self.dram_bytes, self.stored) * self.hardware["dram_turn_ns_per_byte"]) * 1e-9

    def _work(self, ghz: float) -> float:
        """Seconds that the SMs are busy, without the gap after the previous launch."""
        clocks, _ = self.replayed(ghz)
        return clocks * self.pace / ghz * 1e-9

    def timeline(self, trace: Trace, ghz: float) -> Timeline:
        """Return the timeline of a trace whose replay has ended."""
        recording = self.recording
        return Timeline(
            recording.kernel, ghz * 1e3, trace.finish(), recording.grid, recording.block, recording.cluster,
            {event.cta: event.cta % self.cluster for event in trace.events}, not trace.left_out,
            recording.shared_bytes, self.room.residents,
        )  # fmt: skip

    @property
    def activity(self) -> float:
        """Share of the time that the chip's tensor cores are busy, at the high clock."""
        _, replay = self.replayed(CLOCKS_GHZ[1])
        return replay.tensor_busy / max(1.0, replay.end) * self.active / self.hardware.sms

    def work(self) -> Work:
        """Return the launch's work, from which its power follows."""
        _, replay = self.replayed(CLOCKS_GHZ[1])
        per_cta = replay.instructions * self.pace / max(1, replay.started * self.cluster)
        products = Products.of(self.recording.operations)
        launched = self.pace / max(1, replay.started * self.cluster) * self.ctas
        added = sum(one.bytes for one in self.recording.operations if adds_up(one)) * self.scale
        return Work(
            warpgroup_flops=products.wide * self.scale, narrow_flops=products.narrow * self.scale,
            mma_flops=(replay.flops - replay.doubles) * launched, f64_flops=replay.doubles * launched,
            instructions=per_cta * self.ctas,
            transcendental=replay.transcendental * launched, shared=replay.wavefronts * launched * WAVEFRONT,
            read=self._read_bytes(),
            received=self.recording.received * self.scale, dram=self.dram_bytes, stored=self.stored,
            sent=max(0.0, self.recording.stored * self.scale - added - self.stored), added=added,
            f16=products.f16, sparse=products.sparse,
            zeros=self.launch.zeros,
        )  # fmt: skip

    def _read_bytes(self) -> float:
        """Bytes that L2 reads for SMs: SMs in step are served by one read of a line, unless it is a multicast."""
        several = sum(one.fetched for one in self.recording.operations if MULTICAST in one.text) * self.scale
        return several + (self.l2_bytes - several) * self.chip(CLOCKS_GHZ[1]).read_share

    def prediction(self, ghz: float, power: float, trace: Trace | None = None) -> Prediction:
        """Return the prediction at a clock. power: in watts, as the clock allows."""
        recording, launch, work = self.recording, self.launch, self.work()
        flops = work.warpgroup_flops + work.narrow_flops + work.mma_flops + work.f64_flops
        seconds = self.seconds(ghz)
        nearest = min(self._works, key=lambda known: abs(known - ghz))
        _, replay = self.replayed(nearest if trace is None else ghz, trace)
        waits_for_lines = max(1.0, self.update_seconds / max(self._work(ghz), 1e-9))
        clocks = max(1.0, replay.end) * waits_for_lines
        roofs = {
            "tensor": replay.tensor_busy / clocks,
            "issue": replay.issue_busy / clocks,
            "memory pipe": replay.lsu_busy / clocks,
            "L2": self.l2_bytes / (self.chip(ghz).network * 1e9) / seconds,
            "DRAM": self.dram_seconds / seconds,
        }
        if self.update_seconds:
            roofs["atomics"] = self.update_seconds / seconds
        roofs |= {pipe: busy / clocks for pipe, busy in replay.pipes_busy().items() if pipe != "control"}
        bound, share = largest(roofs)[0]
        found = Prediction(
            recording.kernel, seconds * 1e6, seconds * ghz * 1e9, ghz * 1e3, power, flops / seconds / 1e12,
            bound if share >= 0.6 else "latency", roofs, waits(replay), self.room.residents, self.room.turns,
            self.l2_bytes, work.dram + work.stored, work.instructions,
        )  # fmt: skip
        if recording.uncounted:
            found.counted = f"PTX: {recording.uncounted}"
        cap, fixed = launch.cap_watts or self.hardware["cap_watts"], launch.clock_mhz > 0
        found.note = "; ".join(filter(None, (*recording.left_out, recording.stands, above_cap(power, cap, ghz, fixed))))
        if power >= cap - WATTS and not fixed:
            found.bound = f"power, then {found.bound}"
        if trace is not None:
            found.timeline = self.timeline(trace, ghz)
        return found


def predict(recording: Recording, hardware: Hardware, launch: Launch, trace: Trace | None = None) -> Prediction:
    """Predict the time, clock, power and bound of a launch."""
    one = Predictor(recording, hardware, launch)
    if launch.clock_mhz:
        ghz = launch.clock_mhz / 1e3
        one.replay_at(ghz)
        power = watts(one.work(), hardware, ghz, one.seconds(ghz))
    else:
        work, cap = one.work(), launch.cap_watts
        found_clock([one], lambda: settle(work, hardware, one.seconds, one.activity, cap)[0])
        ghz, power = settle(work, hardware, one.seconds, one.activity, cap)
    return one.prediction(ghz, power, trace)


def replay_stopped(recording: Recording, hardware: Hardware, trace: Trace) -> Timeline:
    """Return the timeline of a hanging launch's recorded clusters, at the highest clock."""
    one, ghz = Predictor(recording, hardware, Launch()), CLOCKS_GHZ[1]
    count = len(recording.clusters)
    Replay(recording, hardware, one.chip(ghz), residents=count, instances=count, trace=trace).run()
    return one.timeline(trace, ghz)
