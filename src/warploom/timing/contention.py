"""Atomics on the same lines of global memory: which are on lines that all CTAs update, and how long they take.

The lines of an array are hit evenly, unless an atomic's address is computed without anything that differs between CTAs:
such atomics of all CTAs are on the lines on which those of the recorded ones are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..asm.nodes import Address
from .dataflow import derived
from .instructions import facts_of, registers_in
from .rates import between

if TYPE_CHECKING:
    from ..emulator.machine.operation import Operation
    from .constants import Hardware

DIFFERS = ("%ctaid", "%clusterid", "%cluster_cta", "%smid", "%warpid", "%clock", "%globaltimer", "%gridid")
"""Special registers that CTAs read differently."""
SAME = ("ld.param", "ld.const")
"""Loads that give all CTAs the same."""
ATOMICS = ("atom.", "red.")
FEW = (1, 8, 32, 128)
"""Numbers of lines for which atomics were measured."""
LINE = 128


@dataclass
class Updates:
    """Atomics on global memory.

    Attributes:
        count: lines that warps update, each time; bytes: size of the lines over which they are spread.
        words: by line, the word that was updated last.
        touches: updated words; changes: those of a line whose update before was of another word.
    """

    count: float = 0.0
    bytes: float = 0.0
    words: dict[int, int] = field(default_factory=dict)
    touches: int = 0
    changes: int = 0

    def touch(self, line: int, word: int) -> None:
        """Count the update of a word."""
        self.changes += self.words.setdefault(line, word) != word
        self.words[line] = word
        self.touches += 1

    @property
    def mixed(self) -> float:
        """Share of the updates that are of another word of the line than the update before."""
        return self.changes / max(1, self.touches - len(self.words))

    def seconds(self, scale: float, hardware: Hardware) -> float:
        """Time of `scale` times as many: warps are served one after the other, and lines are hit evenly."""
        lines = max(1.0, self.bytes / LINE)
        each = hardware["update_line_ns"]
        if self.mixed:
            several = between(lines, [(few, hardware[f"update_few{few}_ns"]) for few in FEW])
            each += self.mixed * (several - each)
        return self.count * scale / lines * each * 1e-9


def in_one_place(operations: Sequence[Operation]) -> frozenset[int]:
    """Program counters of the atomics whose address is the same in all CTAs."""
    differing = derived([facts_of(one) for one in operations], {one.pc for one in operations if _differs(one)})
    return frozenset(
        one.pc for one in operations
        if one.instruction.opcode.startswith(ATOMICS) and not _address(one) & differing
    )  # fmt: skip


def _differs(operation: Operation) -> bool:
    """True if what an instruction writes may differ between CTAs though its operands do not."""
    opcode = operation.instruction.opcode
    loads = opcode.startswith("ld") and not opcode.startswith(SAME)
    return loads or opcode.startswith(ATOMICS) or any(name in operation.text for name in DIFFERS)


def _address(operation: Operation) -> frozenset[int]:
    """The registers of an instruction's addresses."""
    operands = () if operation.bound is None else operation.bound.operands.values()
    return registers_in(operation, [one for one in operands if isinstance(one, Address)])
