"""What a launch waits for that no prediction knows: sleeps, clocks, other CTAs' locks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..asm.nodes import Integer
from ..emulator.machine.operation import BRANCH
from .dataflow import derived
from .instructions import facts_of
from .recording import Recording

if TYPE_CHECKING:
    from ..emulator.machine.operation import Operation

CLOCKS = ("%clock", "%globaltimer")
SLEEPS = "nanosleep returns at once here"
WATCHES = "loops that wait for a clock run as often as in the emulator, where an instruction takes one clock"
LOCKS = "the recorded CTAs find locks free: what CTAs wait for each other in loops of atom.cas is left out"


def left_out(operations: Sequence[Operation], recording: Recording) -> list[str]:
    """Notes on what the recorded clusters would wait for on a GPU."""
    ran = {pc for run in recording.runs for pc in run.pcs}
    executed = [one for one in operations if one.pc in ran]
    notes = []
    if any(one.instruction.opcode.startswith("nanosleep") and not _is_zero(one) for one in executed):
        notes.append(SLEEPS)
    if _decide(operations, {one.pc for one in executed if any(clock in one.text for clock in CLOCKS)}):
        notes.append(WATCHES)
    swaps = {one.pc for one in executed if one.instruction.opcode.startswith("atom.") and ".cas" in one.text}
    if recording.ctas < math.prod(recording.grid) and _decide(operations, swaps):
        notes.append(LOCKS)
    return notes


def _is_zero(operation: Operation) -> bool:
    time = operation.instruction.operands[0]
    return isinstance(time, Integer) and time.value == 0


def _decide(operations: Sequence[Operation], sources: set[int]) -> bool:
    """True if the end of a loop around one of these instructions depends on its result."""
    if not sources:
        return False
    facts = [facts_of(one) for one in operations]
    found = derived(facts, sources)
    for one, mine in zip(operations, facts, strict=True):
        if one.kind != BRANCH or not mine.backward or not mine.reads & found:
            continue
        if any(one.targets[0] <= pc <= one.pc for pc in sources):
            return True
    return False
