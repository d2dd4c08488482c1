"""The cost of a run of instructions for a warp: issue slots, time in each pipe, and its longest dependency chain."""

from __future__ import annotations

from dataclasses import dataclass

from .constants import Hardware
from .instructions import ALU, CONTROL, CONVERT, EITHER, FMA, HALF, IMAD_WIDE, LSU, MUFU, NONE, SERIAL, TENSOR, Facts
from .machine_code import IMAD, WIDE_LOAD_WORDS
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
        instructions, flops, wavefronts: instructions issued; FLOP of its matrix products; passes in shared memory.
        transcendental, ordinary: of the instructions, MUFU's and those of the pipes that take three registers a clock;
        doubles: of the FLOP, those in f64.
    """

    issue: float
    pipes: tuple[tuple[str, float], ...]
    lsu: float
    chain: float
    missed: float
    distant: float
    stored: float
    late: tuple[tuple[int, float, bool], ...]
    needs: frozenset[int]
    instructions: float
    flops: float
    wavefronts: float
    transcendental: float = 0.0
    doubles: float = 0.0
    lines: float = 0.0
    remote: float = 0.0
    ordinary: float = 0.0


def cost_of(run: Run, pcs: list[Facts], hardware: Hardware, cold: bool = True, far: bool = False) -> Cost:
    """Compute the cost of a run.

    In PTX order the longest chain is the data dependency chain, because ptxas reorders a run so that little else delays
    it. In machine order, no instruction starts before the one in front of it. No load passes a store to the same state
    space, since they may alias, and nothing passes an atomic.

    cold: first reads of a cluster go to DRAM; far: late repeated reads go there again.
    """
    latency = {name: constant.value for name, constant in hardware.latency.items()}
    rate = {name: constant.value for name, constant in hardware.rate.items()}
    ready: dict[int, float] = {}
    loaded: dict[int, tuple[float, bool]] = {}
    needs: set[int] = set()
    written: set[int] = set()
    ordered: dict[str, float] = {}
    serial = 0.0
    dram = hardware["dram_latency"] - latency["ldg"]
    pipes: dict[str, float] = {}
    free: dict[str, float] = {}
    """Time at which each pipe is free, for a warp alone in its quarter."""
    now = 0.0
    """Earliest start of the next instruction of a warp that issues in order."""
    issue = slow = lsu = chain = missed = distant = stored = count = flops = doubles = shared = lines = remote = 0.0
    ordinary = looped = behind = 0.0
    for at, (pc, access) in enumerate(zip(run.pcs, run.accesses, strict=True)):
        facts = pcs[pc]
        reads, writes = run.registers[at] if run.registers else (facts.reads, facts.writes)
        needs |= reads - written
        start = max((ready.get(register, 0.0) for register in reads), default=0.0)
        start = max(start, behind)
        for register in reads:
            loaded.pop(register, None)
        if access is not None:
            if not access.writes and "nc" not in facts.opcode.split("."):
                start = max(start, ordered.get(access.space, 0.0))
            elif access.writes:
                for space in ("shared", "global", "local") if access.updates else (access.space,):
                    ordered[space] = max(ordered.get(space, 0.0), start)
        takes = latency.get(facts.latency, 0.0)
        if facts.latency in SERIAL:
            start = max(start, serial)
            serial = start + takes
        if facts.pipe == NONE:
            takes = 0.0
        slots = facts.machine if facts.machine is not None else ((facts.pipe, facts.count),)
        if run.registers and slots:
            start = max(start, now, *(free.get(pipe, 0.0) for pipe, _ in slots))
            now = start + sum(many for _, many in slots)
            for pipe, many in slots:
                if pipe != EITHER:
                    free[pipe] = start + many * rate.get(pipe, 0.0)
        if facts.pipe == CONTROL and reads and facts.opcode.startswith("bra"):
            # nothing after it starts before the condition is known; of an unrolled loop, only one in several remains
            share = min(1.0, sum(many for pipe, many in slots if pipe == CONTROL))
            behind += share * (max(start, now) - behind + hardware["branch_clocks"])
        unhindered = facts.latency == "ffma" and len(facts.reads) < REGISTERS
        for pipe, many in slots:
            count += many
            issue += many if unhindered and pipe == FMA else many * hardware["issue_clocks"]
            slow += many if pipe == MUFU else 0.0
            ordinary += many if pipe in ORDINARY else 0.0
            if pipe == IMAD or pipe == FMA and facts.machine is None and facts.latency == "imad":
                pipes[FMA] = pipes.get(FMA, 0.0) + many * rate["imad"]
            elif pipe == IMAD_WIDE:
                pipes[FMA] = pipes.get(FMA, 0.0) + many * rate[IMAD_WIDE]
            elif pipe == CONVERT:
                pipes[MUFU] = pipes.get(MUFU, 0.0) + many * rate[CONVERT]
            elif pipe == TENSOR and facts.double:
                pipes[TENSOR] = facts.flops / hardware["mma_f64_flops_per_clock"] + pipes.get(TENSOR, 0.0)
            elif pipe in rate:
                pipes[pipe] = pipes.get(pipe, 0.0) + many * rate[pipe]
        flops += facts.flops
        doubles += facts.flops if facts.double else 0.0
        if facts.pipe == LSU:
            wavefronts = max(1.0, access.wavefronts) if access is not None else 1.0
            loads = sum(many for pipe, many in slots if pipe == LSU or pipe in WIDE_LOAD_WORDS)
            if access is None or not access.rounds:
                wavefronts *= min(1.0, loads)  # 0: merged into another load
            if access is not None and not access.writes:
                filled = sum(many * WIDE_LOAD_WORDS[pipe] for pipe, many in slots if pipe in WIDE_LOAD_WORDS)
                wavefronts = max(wavefronts, filled / (2 if access.paired else 1))
            lsu += wavefronts * hardware[_pass(facts, access)]
            if access is not None and not access.writes:
                lsu += access.missed * hardware["missed_sector_clocks"]
            if access is not None and access.space in ("shared", REMOTE):
                shared += wavefronts
            if access is not None and access.space == REMOTE:
                remote += wavefronts * WAVEFRONT
                takes = hardware["remote_latency"]
            elif access is not None and access.space != "shared":
                if access.writes:
                    stored += 32.0 * access.sectors * (hardware["update_store_ratio"] if access.updates else 1.0)
                    lines += 0.0 if access.updates else access.wavefronts
                else:
                    missed += 32.0 * access.missed
                    distant += 32.0 * access.distant
                near = hardware["l1_latency"]
                takes = near + (latency["ldg"] - near) * access.chance if access.missed else near
                if access.updates:
                    takes = latency["atom"]
                gone = (access.distant if cold else 0.0) + (access.evicted if far else 0.0)
                if gone:
                    takes += dram * min(1.0, gone / access.missed) * access.chance
            takes += max(0.0, wavefronts - 1.0)
            if access is not None and access.rounds:
                takes = access.rounds * latency["shared_loop"]
                now = looped = start + takes
                issue += (access.rounds - 1.0) * LOOP_INSTRUCTIONS * hardware["issue_clocks"]
                count += (access.rounds - 1.0) * LOOP_INSTRUCTIONS
        end = start + takes
        for register in writes:
            ready[register] = end
            if facts.pipe == LSU:
                loaded[register] = end, access is not None and access.is_far
        written |= writes
        if facts.pipe != LSU:
            chain = max(chain, end)
        else:
            chain = max(chain, start)
    chain = max(chain, looped, behind)
    _balance(pipes)
    late = tuple((register, *one) for register, one in loaded.items())
    return Cost(
        issue, tuple(pipes.items()), lsu, chain, missed, distant, stored, late, frozenset(needs),
        count, flops, shared, slow, doubles, lines, remote, ordinary,
    )  # fmt: skip


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
