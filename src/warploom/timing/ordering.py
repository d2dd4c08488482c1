"""The machine's issue order of a warp's instructions, taken from the actual build.

A warp issues in order: if an instruction needs the result of a pending load, all later instructions wait, loads
included. ptxas hoists loads as far as registers allow, so the number of loads in flight is read from its code. The
instructions of a run are sorted into machine order, and a run ends where the machine would wait for memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .instructions import LSU, Facts
from .recording import RUN, Access, Recording, Registers, Run, Step

MOST_ASKED = 16
"""Consecutive requests to the memory pipe before other warps are served."""
_Item = tuple[int, Access | None, Registers]
Key = tuple[int, int]
"""(part of the run with its own order, position in the machine code)."""


@dataclass(frozen=True, slots=True)
class CodePosition:
    """The position of an instruction in the machine code.

    Attributes:
        region: a machine loop; turns: how many PTX iterations one machine iteration covers.
        at: its position for each of these iterations; empty if it was merged into others.
    """

    region: int
    turns: int
    at: tuple[int, ...]


def arrange(recording: Recording, places: Mapping[int, CodePosition]) -> None:
    """Sort the runs of a recording into machine order, and split them where the machine waits for loads."""
    known: dict[tuple[_Item, ...], int] = {}
    runs: list[Run] = []
    parts: list[list[int]] = []
    for run in recording.runs:
        found = []
        for piece in _cut(_sorted(run, recording.pcs, places), recording.pcs):
            index = known.setdefault(piece, len(runs))
            if index == len(runs):
                runs.append(Run(*zip(*piece, strict=True)))
            found.append(index)
        parts.append(found)
    for steps in recording.steps.values():
        steps[:] = [one for step in steps for one in _several(step, parts, runs)]
    recording.runs = runs


def _several(step: Step, parts: Sequence[Sequence[int]], runs: Sequence[Run]) -> list[Step]:
    kind, _, payload = step
    return [(RUN, runs[one].pcs[-1], one) for one in parts[payload]] if kind == RUN else [step]


def _sorted(run: Run, pcs: Sequence[Facts], places: Mapping[int, CodePosition]) -> list[_Item]:
    """Return the instructions of a run in machine order.

    An instruction without a position in the machine code comes after its operands; if it has no machine instructions at
    all, because ptxas folds it into those that read its result, it comes with the first of these. Unrolled iterations
    have their own registers: a register that is written again later is renamed.
    """
    keys: list[Key] = []
    wrote: dict[int, Key] = {}
    name: dict[int, int] = {}
    last = {register: at for at, pc in enumerate(run.pcs) for register in pcs[pc].writes}
    items: list[_Item] = []
    part = turn = 0
    region: int | None = None
    before = -1
    for at, pc in enumerate(run.pcs):
        facts, place = pcs[pc], places.get(pc)
        if place is not None:
            if place.region != region:
                part, region, turn = part + 1, place.region, 0
            elif pc <= before:
                turn += 1
                part += turn % place.turns == 0
            before = pc
        own = (part, place.at[turn % place.turns]) if place is not None and place.at else (part, -1)
        key = max(own, *(wrote[one] for one in facts.reads if one in wrote), (0, -1))
        reads = frozenset(name.get(one, one) for one in facts.reads)
        for one in facts.writes:
            wrote[one] = key
            name[one] = one if last[one] == at else hash((one, at))
        keys.append(key)
        items.append((pc, run.accesses[at], (reads, frozenset(name[one] for one in facts.writes))))
    _delay(run, pcs, keys)
    return [items[at] for at in sorted(range(len(keys)), key=lambda at: (keys[at], at))]


def _delay(run: Run, pcs: Sequence[Facts], keys: list[Key]) -> None:
    """Move what has no machine instructions to the first instruction that reads its result."""
    reader: dict[int, Key] = {}
    for at in reversed(range(len(keys))):
        facts = pcs[run.pcs[at]]
        found = [reader.pop(one) for one in facts.writes if one in reader]
        if found and facts.machine == () and facts.pipe != LSU:
            keys[at] = max(keys[at], min(found))
        for one in facts.reads:
            reader[one] = min(reader.get(one, keys[at]), keys[at])


def _cut(sequence: Sequence[_Item], pcs: Sequence[Facts]) -> list[tuple[_Item, ...]]:
    """Split a sequence before each read of a register that a load in the piece fills, and after `MOST_ASKED`
    requests."""
    pieces: list[list[_Item]] = [[]]
    coming: set[int] = set()
    asked = 0
    for item in sequence:
        pc, access, (reads, writes) = item
        asked += pcs[pc].pipe == LSU
        if not coming.isdisjoint(reads) or asked > MOST_ASKED:
            asked = 0
            pieces.append([])
            coming.clear()
        pieces[-1].append(item)
        if pcs[pc].pipe == LSU and access is not None and access.is_far:
            coming |= writes
    return [tuple(piece) for piece in pieces]
