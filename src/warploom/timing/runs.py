"""The cost of a run of instructions for a warp: issue slots, time in each pipe, and its longest dependency chain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from .constants import Constant, Hardware
from .instructions import ALU, CONTROL, CONVERT, EITHER, FMA, HALF, IMAD_WIDE, LSU, MUFU, NONE, SERIAL, TENSOR, Facts
from .machine_code import IMAD, SPILL_WORDS, WIDE_LOAD_WORDS
from .recording import REMOTE, Access, Run

WAVEFRONT = 128
"""Bytes of one pass through shared memory."""
REGISTERS = 3
"""Source registers of an f32 addition or multiplication from which on two may share a register bank; with fewer it
takes the one clock of rate.ffma.w16."""

LOOP_INSTRUCTIONS = 5
"""Machine instructions in a round of an update of shared memory by compare-and-swap: a load, a sum, the swap, a
comparison, a branch."""
ORDINARY = (FMA, ALU, EITHER, HALF, IMAD, IMAD_WIDE)
Slots: TypeAlias = "tuple[tuple[str, float], ...]"
"""The machine instructions of an instruction, by pipe."""


@dataclass(slots=True)
class Cost:
    """The cost of one run of one warp, in clocks.

    Attributes:
        issue: clocks of its scheduler; pipes: clocks by pipe of the quarter; lsu: clocks of the SM's memory pipe.
        chain: from its first issue to the last result that it waits for itself.
        missed, distant, stored: bytes that its loads request from L2, of these first-time reads from DRAM; bytes
        stored.
        lines: 128-byte lines that its stores write to; a line that several stores write to counts for each.
        remote: bytes that it reads or writes in other CTAs' shared memory.
        late: registers of loads that the run does not read: (register, clocks after the start, True if from outside the
            SM).
        needs: registers that it reads before it writes them.
        address: of these, those that the address of its only load is computed from, if that reads one sector.
        instructions, flops, wavefronts: instructions issued; FLOP of its matrix products; passes in shared memory.
        transcendental, ordinary: of the instructions, MUFU's and those of the pipes that take three registers a clock;
        doubles: of the FLOP, those in f64.
    """

    issue: float = 0.0
    pipes: tuple[tuple[str, float], ...] = ()
    lsu: float = 0.0
    chain: float = 0.0
    missed: float = 0.0
    distant: float = 0.0
    stored: float = 0.0
    late: tuple[tuple[int, float, bool], ...] = ()
    needs: frozenset[int] = frozenset()
    address: frozenset[int] = frozenset()
    instructions: float = 0.0
    flops: float = 0.0
    wavefronts: float = 0.0
    transcendental: float = 0.0
    doubles: float = 0.0
    lines: float = 0.0
    remote: float = 0.0
    ordinary: float = 0.0


def cost_of(
    run: Run, pcs: list[Facts], hardware: Hardware, cold: bool = True, far: bool = False, spilled: float = 0.0
) -> Cost:
    """Compute the cost of a run.

    In PTX order the longest chain is the data dependency chain, because ptxas reorders a run so that little else delays
    it. In machine order, no instruction starts before the one in front of it. No load passes a store to the same state
    space, since they may alias, and nothing passes an atomic.

    cold: first reads of a cluster go to DRAM; far: late repeated reads go there again; spilled: share of the spilled
    registers that leaves L1.
    """
    latency = _Latency(hardware, cold, far)
    chain, work = _Chain(hardware, bool(run.registers)), _Work(hardware, spilled)
    for at, (pc, access) in enumerate(zip(run.pcs, run.accesses, strict=True)):
        facts = pcs[pc]
        reads, writes = run.registers[at] if run.registers else (facts.reads, facts.writes)
        slots = facts.machine if facts.machine is not None else ((facts.pipe, facts.count),)
        start = chain.start(facts, slots, reads, access)
        work.issue(facts, slots)
        wavefronts = work.request(facts, slots, access) if facts.pipe == LSU else 0.0
        chain.end(facts, writes, access, start, start + latency.of(facts, access, wavefronts))
    cost = work.cost
    _balance(work.pipes)
    cost.pipes = tuple(work.pipes.items())
    cost.chain = max(chain.longest, chain.looped, chain.behind)
    cost.late = tuple((register, *one) for register, one in chain.loaded.items())
    cost.needs = frozenset(chain.needs)
    cost.address = _address(run, pcs) & cost.needs if cost.distant else frozenset()
    return cost


class _Chain:
    """When the instructions of a run start and end: data dependencies, the order of accesses, and the issue order.

    Attributes:
        needs, loaded: as `Cost.needs` and, by register, `Cost.late`.
        longest: the last end, or start of an access to memory; looped: the end of the last update that is a loop.
        behind: earliest start of what stands behind the branches so far.
    """

    def __init__(self, hardware: Hardware, in_order: bool) -> None:
        self.hardware, self.in_order = hardware, in_order
        self.ready: dict[int, float] = {}
        self.loaded: dict[int, tuple[float, bool]] = {}
        self.needs: set[int] = set()
        self.written: set[int] = set()
        self.ordered: dict[str, float] = {}
        """By state space, the start of the last store that loads do not pass."""
        self.serial = 0.0
        self.free: dict[str, float] = {}
        """Time at which each pipe is free, for a warp alone in its quarter."""
        self.now = 0.0
        """Earliest start of the next instruction of a warp that issues in order."""
        self.longest = self.looped = self.behind = 0.0

    def start(self, facts: Facts, slots: Slots, reads: frozenset[int], access: Access | None) -> float:
        """The start of the next instruction."""
        self.needs |= reads - self.written
        start = max((self.ready.get(register, 0.0) for register in reads), default=0.0)
        start = max(start, self.behind)
        for register in reads:
            self.loaded.pop(register, None)
        if access is not None:
            start = self._behind_stores(facts, access, start)
        if facts.latency in SERIAL:
            start = max(start, self.serial)
            self.serial = start + _value(self.hardware.latency, facts.latency)
        if self.in_order and slots:
            start = max(start, self.now, *(self.free.get(pipe, 0.0) for pipe, _ in slots))
            self.now = start + sum(many for _, many in slots)
            for pipe, many in slots:
                if pipe != EITHER:
                    self.free[pipe] = start + many * _value(self.hardware.rate, pipe)
        if facts.pipe == CONTROL and reads and facts.opcode.startswith("bra"):
            # nothing after it starts before the condition is known; of an unrolled loop, only one in several remains
            share = min(1.0, sum(many for pipe, many in slots if pipe == CONTROL))
            self.behind += share * (max(start, self.now) - self.behind + self.hardware["branch_clocks"])
        return start

    def _behind_stores(self, facts: Facts, access: Access, start: float) -> float:
        if not access.writes and "nc" not in facts.opcode.split("."):
            return max(start, self.ordered.get(access.space, 0.0))
        if access.writes:
            for space in ("shared", "global", "local") if access.updates else (access.space,):
                self.ordered[space] = max(self.ordered.get(space, 0.0), start)
        return start

    def end(self, facts: Facts, writes: frozenset[int], access: Access | None, start: float, end: float) -> None:
        """Record that an instruction ends, and with it what it writes. A run does not wait for its own loads."""
        self.written |= writes
        for register in writes:
            self.ready[register] = end
        if facts.pipe != LSU:
            self.longest = max(self.longest, end)
            return
        self.longest = max(self.longest, start)
        for register in writes:
            self.loaded[register] = end, access is not None and access.is_far
        if access is not None and access.rounds:
            self.now = self.looped = end


class _Work:
    """What a run asks of the SM, added up in `cost` and, by pipe, in `pipes`."""

    def __init__(self, hardware: Hardware, spilled: float) -> None:
        self.hardware, self.spilled, self.cost = hardware, spilled, Cost()
        self.pipes: dict[str, float] = {}

    def issue(self, facts: Facts, slots: Slots) -> None:
        """Add the issue slots, the pipes and the FLOP of an instruction."""
        cost, clocks = self.cost, self.hardware["issue_clocks"]
        unhindered = facts.latency == "ffma" and len(facts.reads) < REGISTERS
        for pipe, many in slots:
            cost.instructions += many
            cost.issue += many if unhindered and pipe == FMA else many * clocks
            cost.transcendental += many if pipe == MUFU else 0.0
            cost.ordinary += many if pipe in ORDINARY else 0.0
            if pipe in SPILL_WORDS:
                self._spill(pipe, many * SPILL_WORDS[pipe])
            self._occupy(facts, pipe, many)
        cost.flops += facts.flops
        cost.doubles += facts.flops if facts.double else 0.0

    def _spill(self, kind: str, registers: float) -> None:
        """Add registers that go to local memory or come from there."""
        cost, stores = self.cost, kind.startswith("STL")
        cost.lsu += registers * self.hardware["global_store_clocks" if stores else "global_load_clocks"]
        outside = WAVEFRONT * registers * self.spilled
        cost.stored += outside if stores else 0.0
        cost.missed += 0.0 if stores else outside

    def _occupy(self, facts: Facts, pipe: str, many: float) -> None:
        rate = self.hardware.rate
        used, name = pipe, pipe
        """The pipe, and the rate at which it takes these instructions."""
        if pipe == IMAD or pipe == FMA and facts.machine is None and facts.latency == "imad":
            used, name = FMA, "imad"
        elif pipe == IMAD_WIDE:
            used = FMA
        elif pipe == CONVERT:
            used = MUFU
        elif pipe == TENSOR and facts.double:
            clocks = facts.flops / self.hardware["mma_f64_flops_per_clock"]
            self.pipes[TENSOR] = clocks + self.pipes.get(TENSOR, 0.0)
            return
        elif pipe not in rate:
            return
        self.pipes[used] = self.pipes.get(used, 0.0) + many * rate[name].value

    def request(self, facts: Facts, slots: Slots, access: Access | None) -> float:
        """Add an instruction's requests to the memory pipe; return its passes through it."""
        hardware, cost = self.hardware, self.cost
        wavefronts = _wavefronts(facts, slots, access)
        cost.lsu += wavefronts * hardware[_pass(facts, access)]
        if access is None:
            return wavefronts
        if not access.writes:
            cost.lsu += access.missed * hardware["missed_sector_clocks"]
        if access.space in ("shared", REMOTE):
            cost.wavefronts += wavefronts
            cost.remote += wavefronts * WAVEFRONT if access.space == REMOTE else 0.0
        elif access.space == "local":
            cost.stored += 32.0 * access.missed if access.writes else 0.0
            cost.missed += 0.0 if access.writes else 32.0 * access.missed
        elif access.writes:
            cost.stored += 32.0 * access.sectors * (hardware["update_store_ratio"] if access.updates else 1.0)
            cost.lines += 0.0 if access.updates else access.wavefronts
        else:
            cost.missed += 32.0 * access.missed
            cost.distant += 32.0 * access.distant
        if access.rounds:
            cost.issue += (access.rounds - 1.0) * LOOP_INSTRUCTIONS * hardware["issue_clocks"]
            cost.instructions += (access.rounds - 1.0) * LOOP_INSTRUCTIONS
        return wavefronts


class _Latency:
    """The clocks from the start of an instruction to its result. cold, far: see `cost_of`."""

    def __init__(self, hardware: Hardware, cold: bool, far: bool) -> None:
        self.hardware, self.cold, self.far = hardware, cold, far
        self.load = hardware.latency["ldg"].value
        """Of a load that misses L1 and hits L2."""

    def of(self, facts: Facts, access: Access | None, wavefronts: float) -> float:
        """wavefronts: passes through the memory pipe, the result comes with the last."""
        hardware = self.hardware
        if facts.pipe == NONE:
            return 0.0
        takes = _value(hardware.latency, facts.latency)
        if facts.pipe != LSU:
            return takes
        if access is not None and access.rounds:
            return access.rounds * hardware.latency["shared_loop"].value
        if access is not None and access.space == REMOTE:
            takes = hardware["remote_latency"]
        elif access is not None and access.space != "shared":
            takes = self._through_l1(access)
        return takes + max(0.0, wavefronts - 1.0)

    def _through_l1(self, access: Access) -> float:
        near = self.hardware["l1_latency"]
        takes = near + (self.load - near) * access.chance if access.missed else near
        if access.updates:
            takes = self.hardware.latency["atom"].value
        gone = (access.distant if self.cold else 0.0) + (access.evicted if self.far else 0.0)
        if gone:
            takes += (self.hardware["dram_latency"] - self.load) * min(1.0, gone / access.missed) * access.chance
        return takes


def _address(run: Run, pcs: list[Facts]) -> frozenset[int]:
    """Registers that the address of a run's only load is computed from; none if it has others or reads more."""
    loads = [at for at, one in enumerate(run.accesses) if one is not None and one.is_far]
    access = run.accesses[loads[0]] if len(loads) == 1 else None
    if access is None or access.writes or access.missed > 1:
        return frozenset()
    found: frozenset[int] = frozenset()
    for at in range(loads[0], -1, -1):
        reads, writes = run.registers[at] if run.registers else (pcs[run.pcs[at]].reads, pcs[run.pcs[at]].writes)
        if at == loads[0] or not writes.isdisjoint(found):
            found = (found - writes) | reads
    return found


def _value(constants: Mapping[str, Constant], name: str) -> float:
    """A constant of a group; 0 for what costs nothing."""
    constant = constants.get(name)
    return 0.0 if constant is None else constant.value


def _wavefronts(facts: Facts, slots: Slots, access: Access | None) -> float:
    """Passes of an instruction through the memory pipe; 0 if it is merged into another load.

    The emulator moves a wmma fragment one element of each lane at a time, a GPU at least a register's.
    """
    wavefronts = max(1.0, access.wavefronts) if access is not None else 1.0
    if access is None or not access.rounds:
        many = sum(count for pipe, count in slots if pipe == LSU or pipe in WIDE_LOAD_WORDS)
        parts = access.parts if access is not None and facts.opcode.startswith("wmma.") else 1
        wavefronts *= min(1.0, many / parts)
    if access is not None and not access.writes:
        filled = sum(many * WIDE_LOAD_WORDS[pipe] for pipe, many in slots if pipe in WIDE_LOAD_WORDS)
        wavefronts = max(wavefronts, filled / (2 if access.paired else 1))
    return wavefronts


def _balance(pipes: dict[str, float]) -> None:
    """Move instructions that two pipes can execute to the less busy one, as ptxas does."""
    either = pipes.pop(EITHER, 0.0)
    if either:
        fma, alu = pipes.get(FMA, 0.0), pipes.get(ALU, 0.0)
        first = min(either, max(0.0, (alu + either - fma) / 2))
        pipes[FMA], pipes[ALU] = fma + first, alu + either - first


def _pass(facts: Facts, access: Access | None) -> str:
    """Return the name of the constant with the clocks of one pass through the memory pipe."""
    if access is None:
        return "shuffle_clocks"
    if access.space in ("shared", REMOTE):
        return "shared_store_clocks" if access.writes else "shared_load_clocks"
    return "global_store_clocks" if access.writes else "global_load_clocks"
