"""The number of machine instructions of each PTX instruction, taken from the actual build.

ptxas fuses, hoists, unrolls and adds instructions. So each machine instruction is mapped to the PTX line that it was
made from, and counted in its loop. If a loop was unrolled four times, a PTX instruction gets a fourth of the machine
instructions that carry its line. Instructions in a loop that carry no line of it (recomputed addresses, moves) are
counted for its branch.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..emulator.machine.units import LOADS, WARPGROUP_MMA
from .instructions import ALU, CONTROL, CONVERT, EITHER, FMA, FP64, HALF, IMAD_WIDE, LSU, MUFU, NONE, TENSOR, Facts
from .machine_loops import GUARD, LANES, OUTSIDE, innermost
from .ordering import CodePosition

_Item = TypeVar("_Item")
_ByLoop = dict[int, dict[int, list[_Item]]]
Slots = tuple[tuple[str, float], ...]
"""(pipe, machine instructions) of one execution of a PTX instruction."""
IMAD = "imad"
WIDE_LOAD_WORDS: Mapping[str, int] = {"LDS.64": 2, "LDS.128": 4}
"""Shared-memory loads that are counted apart, with the registers that they fill: ptxas also merges loads of one
register into them."""
SPILL_WORDS: Mapping[str, int] = {
    f"{word}{width}": many for word in ("LDL", "STL") for width, many in (("", 1), (".64", 2), (".128", 4))
}
"""Accesses to local memory, with their registers: where PTX has none, ptxas has spilled registers."""
_PIPES = {
    FMA: "FFMA FADD FMUL FFMA2 FADD2 FMUL2 FSWZADD",
    IMAD: "IMAD IMUL IDP VIADD",
    EITHER: "MOV",
    ALU: "LOP3 ISETP FSETP SEL FSEL FMNMX IMNMX VIMNMX SHF LEA PRMT PLOP3 F2FP I2FP VOTE IABS FCHK BMSK SGXT SHL SHR"
         " LOP HSETP2 HMNMX2 VHMNMX VIADDMNMX VIMNMX3 VABSDIFF VABSDIFF4 P2R R2P IADD3 IADD",
    HALF: "HFMA2 HADD2 HMUL2",
    MUFU: "MUFU POPC FLO BREV REDUX",
    CONVERT: "F2I I2F F2F FRND",
    FP64: "DFMA DADD DMUL DSETP",
    TENSOR: "HMMA IMMA DMMA QMMA BMMA",
    LSU: "LDG STG LDS STS LD ST LDSM STSM ATOM ATOMG ATOMS RED REDG SHFL LDGSTS MOVM REDAS REDS",
    NONE: "NOP CALL",
}  # fmt: skip
PIPE = {word: pipe for pipe, words in _PIPES.items() for word in words.split()}
PRODUCTS, MOVE, COPY = ("HGMMA", "IGMMA", "QGMMA", "BGMMA"), "R2UR", "UTMALDG"
"""Products of a warpgroup, a move into a uniform register, a TMA load."""
SINGLE = (LSU, TENSOR, MUFU, CONVERT)
"""Pipes whose instructions ptxas duplicates when it unrolls, but never splits or fuses."""


@dataclass(frozen=True)
class _Machine:
    """A machine instruction: opcode, pipe, PTX line (0: unknown), innermost loop."""

    opcode: str
    pipe: str
    line: int
    loop: int


@dataclass(frozen=True)
class Reading:
    """A build's machine code, matched with its PTX.

    Attributes:
        pcs: the PTX instructions; loops: the PTX loops; home: the loop of each instruction.
        regions: for each loop, its machine loop and the unroll factor.
        moving: machine loops whose products have their descriptors moved into uniform registers.
        repeating: machine loops whose TMA copies each have a loop over the lanes around them.
        copies, where: pipes and positions of the machine instructions of a PTX instruction, by machine loop.
    """

    pcs: Sequence[Facts]
    loops: list[tuple[int, int]]
    home: dict[int, int]
    regions: dict[int, tuple[int, float]]
    copies: _ByLoop[str]
    where: _ByLoop[int]
    moving: frozenset[int] = frozenset()
    repeating: frozenset[int] = frozenset()

    @classmethod
    def of(cls, code: Sequence[tuple[str, int]], pcs: Sequence[Facts], ends: Mapping[int, int]) -> Reading:
        """Match machine code with PTX.

        code: machine instructions and labels, each with its PTX line. ends: backward branches with their targets.
        """
        loops = _loops(ends)
        home = {pc: _innermost(loops, pc) for pc in range(len(pcs))}
        of_line: dict[int, int] = {}
        for pc, facts in enumerate(pcs):
            of_line.setdefault(facts.ptx_line, pc)
        copies: _ByLoop[str] = defaultdict(lambda: defaultdict(list))
        where: _ByLoop[int] = defaultdict(lambda: defaultdict(list))
        machine = _read(code)
        for at, one in enumerate(machine):
            pc = of_line.get(one.line, OUTSIDE)
            copies[pc][one.loop].append(one.pipe)
            where[pc][one.loop].append(at)
        regions = {loop: _region(loop, home, copies, pcs) for loop in {*range(len(loops)), OUTSIDE}}
        return cls(pcs, loops, home, regions, copies, where, _full(machine, PRODUCTS, MOVE, 2),
                   _full(machine, (COPY,), LANES, 1))  # fmt: skip

    def moved(self) -> frozenset[int]:
        """The products (program counters) whose descriptors are moved into uniform registers first."""
        return self._inside(self.moving, WARPGROUP_MMA.engine)

    def repeated(self) -> frozenset[int]:
        """The TMA copies (program counters) each of which stands in a loop over the lanes."""
        return self._inside(self.repeating, LOADS.engine)

    def _inside(self, loops: frozenset[int], engine: str) -> frozenset[int]:
        return frozenset(pc for pc, one in enumerate(self.pcs)
                         if one.starts == engine and self.regions[self.home[pc]][0] in loops)  # fmt: skip

    def slots(self) -> dict[int, Slots]:
        """The slots of each instruction, by program counter."""
        home, regions, copies = self.home, self.regions, self.copies
        found: dict[int, Slots] = {}
        for pc in range(len(self.pcs)):
            region, turns = regions[home[pc]]
            kinds = Counter(copies[pc][region])
            if "local" in self.pcs[pc].opcode.split("."):  # its own access
                kinds = Counter(LSU if kind in SPILL_WORDS else kind for kind in kinds.elements())
            found[pc] = tuple((pipe, n / turns) for pipe, n in kinds.items() if pipe != NONE)
        for loop, (region, turns) in regions.items():
            if loop == OUTSIDE or region == OUTSIDE:
                continue
            inside = {pc for pc in home if home[pc] == loop}
            strange = [pipe for pc, by_loop in copies.items() if pc not in inside and _foreign(pc, home, loop, regions)
                       for pipe in by_loop[region]]  # fmt: skip
            branch = self.loops[loop][1]
            extra = ((pipe, n / turns) for pipe, n in Counter(strange).items() if pipe != NONE)
            found[branch] = (*found[branch], *extra)
        return found

    def places(self) -> dict[int, CodePosition]:
        """The position of each instruction in the machine code, by program counter.

        If there are several machine instructions, the first counts; for a load, the one that loads.
        """
        found = {}
        for pc, facts in enumerate(self.pcs):
            if facts.machine:  # a subroutine, which stands elsewhere
                continue
            region, share = self.regions[self.home[pc]]
            both = list(zip(self.copies[pc][region], self.where[pc][region], strict=True))
            loading = [at for pipe, at in both if _pipe_of(pipe) == LSU]
            many = loading if facts.pipe == LSU and loading else [at for _, at in both]
            turns = max(1, round(share))
            at = tuple(many[turn * len(many) // turns] for turn in range(turns)) if many else ()
            found[pc] = CodePosition(region, turns, at)
        return found


def _foreign(pc: int, home: Mapping[int, int], loop: int, regions: Mapping[int, tuple[int, float]]) -> bool:
    """True if an instruction's machine instructions in this loop's region would otherwise not be counted.

    `slots` counts an instruction in its own loop's region; machine instructions of no PTX line have none.
    """
    return pc == OUTSIDE or regions[home[pc]][0] != regions[loop][0]


def _read(code: Sequence[tuple[str, int]]) -> list[_Machine]:
    texts: list[tuple[str, int]] = []
    labels: dict[str, int] = {}
    for text, line in code:
        if text.endswith(":"):
            labels[text[:-1]] = len(texts)
        else:
            texts.append((text, line))
    loops = innermost([text for text, _ in texts], labels)
    last = next((at for at in range(len(texts) - 1, -1, -1) if "EXIT" in texts[at][0]), len(texts))
    made = []
    for at, (text, line) in enumerate(texts[: last + 1]):
        first = GUARD.sub("", text).split()[0].rstrip(";").split(".")
        word = first[0]
        pipe = PIPE.get(word, CONTROL if not word.startswith("U") else "")
        if word == "IMAD" and {"WIDE", "HI"} & set(first):
            pipe = IMAD_WIDE
        wide = f"{word}.{first[-1]}"
        apart = next((kind for kind in (wide, word) if kind in WIDE_LOAD_WORDS or kind in SPILL_WORDS), pipe)
        made.append(_Machine(".".join(first), apart, line, loops[at]))
    return made


def _full(machine: Sequence[_Machine], words: Sequence[str], other: str, times: int) -> frozenset[int]:
    """Return the loops that have an instruction, and for each of them another one so many times."""
    loops: dict[int, list[str]] = defaultdict(list)
    for one in machine:
        loops[one.loop].append(one.opcode)
    counts = {
        loop: (sum(each.startswith(tuple(words)) for each in opcodes), sum(each.startswith(other) for each in opcodes))
        for loop, opcodes in loops.items()
    }
    return frozenset(loop for loop, (those, others) in counts.items() if 0 < those * times <= others)


def _loops(ends: Mapping[int, int]) -> list[tuple[int, int]]:
    """Return the (first, last) program counters of each PTX loop, sorted by the first."""
    spans: dict[int, int] = {}
    for last, first in ends.items():
        spans[first] = max(spans.get(first, 0), last)
    return sorted(spans.items())


def _innermost(loops: Sequence[tuple[int, int]], pc: int) -> int:
    around = [(last - first, number) for number, (first, last) in enumerate(loops) if first <= pc <= last]
    return min(around)[1] if around else OUTSIDE


def _region(
    loop: int, home: Mapping[int, int], copies: Mapping[int, Mapping[int, list[str]]], pcs: Sequence[Facts]
) -> tuple[int, float]:
    """Return (the machine loop of a PTX loop, the unroll factor)."""
    if loop == OUTSIDE:
        return OUTSIDE, 1.0
    mine = [pc for pc in home if home[pc] == loop]
    sure = [pc for pc in mine if pcs[pc].pipe in SINGLE and copies[pc]] or [pc for pc in mine if copies[pc]]
    votes: Counter[int] = Counter()
    for pc in sure:
        for region, pipes in copies[pc].items():
            votes[region] += len(pipes)
    if not votes:
        return OUTSIDE, 1.0
    inner = [region for region in votes if region != OUTSIDE]
    region = max(inner or votes, key=lambda one: votes[one])
    numbers = [
        sum(_pipe_of(pipe) == pcs[pc].pipe for pipe in copies[pc][region]) or len(copies[pc][region])
        for pc in sure
        if copies[pc].get(region)
    ]
    return region, float(max(1.0, statistics.median_low(numbers)))


def _pipe_of(kind: str) -> str:
    """Return the pipe of a kind of machine instruction."""
    return LSU if kind in WIDE_LOAD_WORDS or kind in SPILL_WORDS else kind
