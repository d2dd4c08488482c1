"""The cost of a kernel: registers, spills, shared memory, as `ptxas -v` reports them; how many CTAs fit on an SM."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

from ..isa import arch as arches
from ..isa import launch

_COMPILING = re.compile(r"Compiling entry function '([^']+)' for '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_BARRIERS = re.compile(r"used (\d+) barriers")
_SHARED = re.compile(r"(\d+) bytes smem")
_CONSTANT = re.compile(r"(\d+) bytes cmem\[(\d+)\]")
_NOTE = re.compile(r"\((C\d{4})\)\s*(.*)")
_FUNCTION = re.compile(r"in function '?([\w$.]+)'?")
_SERIALISED = re.compile(r"C751\d")


@dataclass(frozen=True)
class Resources:
    """The resources of one entry.

    Attributes:
        entry, arch: which kernel, for which target.
        registers: per thread.
        stack, spill_stores, spill_loads: bytes per thread of local memory.
        static_shared: bytes of `.shared` variables of known size.
        barriers: named barriers.
        constant: bytes per constant bank, as (bank, bytes).
        notes: ptxas's remarks with their numbers, "C7510: Potential Performance Loss: …".
        between_waits: if the SASS was read too, the instructions between the waits for MMAs; see
            `disassemble.between_waits`.
    """

    entry: str
    arch: str
    registers: int = 0
    stack: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    static_shared: int = 0
    barriers: int = 0
    constant: tuple[tuple[int, int], ...] = ()
    notes: tuple[str, ...] = ()
    between_waits: tuple[dict[str, int], ...] = ()

    @property
    def spills(self) -> int:
        """Bytes per thread that are spilled, stores and loads together."""
        return self.spill_stores + self.spill_loads

    @property
    def serialisation_notes(self) -> tuple[str, ...]:
        """The notes C7510 to C7519: ptxas has put waits between asynchronous MMAs."""
        return tuple(note for note in self.notes if _SERIALISED.match(note))

    def occupancy(self, threads: int, dynamic_smem: int = 0) -> int:
        """CTAs of `threads` threads and that many bytes of dynamic shared memory that fit on one SM; 0: none."""
        return occupancy(self.arch, threads, self.registers, self.static_shared + dynamic_smem)

    def as_dict(self) -> dict[str, object]:
        """Plain values, for JSON."""
        return {**asdict(self), "constant": {str(bank): size for bank, size in self.constant}}


def occupancy(arch: str, threads: int, registers: int, shared: int) -> int:
    """CTAs that are resident on one SM of `arch`. registers: per thread; shared: bytes per CTA."""
    limits = arches.get(arch)
    if threads > limits.threads_per_cta or shared > limits.shared_per_cta or registers > limits.registers_per_thread:
        return 0
    return launch.occupancy(arch, threads, registers, shared).resident


def parse(log: str) -> dict[str, Resources]:
    """The resources of every entry in a `ptxas -v` log, by name.

    A note belongs to the entry it names ("… in function 'x'"), otherwise to the preceding one ("Compiling entry
    function …"). Notes of ptxas 13.0 before it names any entry, such as C7508 (setmaxnreg ignored), are about one of
    them without saying which: every entry gets them.
    """
    found: dict[str, Resources] = {}
    notes: list[tuple[str, str]] = []
    current = ""
    in_entry = False
    for line in log.splitlines():
        if match := _COMPILING.search(line):
            current = match[1]
            found[current] = replace(found.get(current, Resources(current, match[2])), arch=match[2])
            in_entry = True
        elif match := _PROPERTIES.search(line):
            in_entry = match[1] == current
        elif (match := _STACK.search(line)) and in_entry and current:
            stack, stores, loads = map(int, match.groups())
            found[current] = replace(found[current], stack=stack, spill_stores=stores, spill_loads=loads)
        elif (match := _REGISTERS.search(line)) and current:
            found[current] = _usage(found[current], line, int(match[1]))
        elif match := _NOTE.search(line):
            notes.append((current, f"{match[1]}: {match[2]}"))
    for after, note in notes:
        for entry in _about(note, after, found):
            resources = found.get(entry, Resources(entry, ""))
            found[entry] = replace(resources, notes=(*resources.notes, note))
    return found


def _usage(resources: Resources, line: str, registers: int) -> Resources:
    barriers, shared = _BARRIERS.search(line), _SHARED.search(line)
    return replace(
        resources,
        registers=registers,
        barriers=int(barriers[1]) if barriers else 0,
        static_shared=int(shared[1]) if shared else 0,
        constant=tuple((int(bank), int(size)) for size, bank in _CONSTANT.findall(line)),
    )


def _about(note: str, after: str, entries: Iterable[str]) -> list[str]:
    """The entries that a note is about; `after`: the one it follows, or "" if it precedes all."""
    named = _FUNCTION.search(note)
    if named and (named[1] in entries or not after):
        return [named[1]]
    return [after] if after else list(entries)
