"""Loops and branches, recovered from the labels and jumps of a flat list of instructions.

Nothing is moved: a construct is a range of the list, and its jumps are those that `ptx.if_`, `ptx.loop` and
`ptx.do_while` emit. A jump that fits no construct stays a jump to a label, so any control flow can be written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ...asm.nodes import Directive, Guard, Instruction, Label, Register

MOST_NESTED = 14
"""Nesting depth of blocks beyond which jumps stay jumps: Python allows 20."""
Item: TypeAlias = Instruction | Label | Directive


@dataclass
class Block:
    """A range of a kernel.

    Attributes:
        kind: "if", "else", "loop", "do" (tested at its end), or "body" for the whole.
        guard: guard of an if or a do; None for the others.
        parts: instructions, labels, jumps and blocks in order.
    """

    kind: str
    guard: Guard | None = None
    parts: list[Item | Block | Jump] = field(default_factory=list)


@dataclass(frozen=True)
class Jump:
    """A jump: "break", "continue", or "goto" with its label."""

    kind: str
    guard: Guard | None
    label: str = ""


@dataclass(frozen=True)
class _Loop:
    head: str
    after: str  # the label after the loop, "" if there is none
    again: str  # the label that ptx.continue_ jumps to


def structured(items: Sequence[Item]) -> tuple[Block, set[str]]:
    """The blocks of a list of items, and the labels that jumps still refer to."""
    return _Structure(_one_label_each(items)).run()


def _one_label_each(items: Sequence[Item]) -> list[Item]:
    """The items with one label per position: of several in a row, the first stands for all."""
    same: dict[str, str] = {}
    kept: list[Item] = []
    for item in items:
        if isinstance(item, Label) and kept and isinstance(before := kept[-1], Label):
            same[item.name] = before.name
        else:
            kept.append(item)
    return [_renamed(item, same) for item in kept]


def _renamed(item: Item, same: dict[str, str]) -> Item:
    if isinstance(item, Directive) and item.name == "branchtargets":
        names = [same.get(name, name) for name in item.text.replace(",", " ").split()]
        return Directive(item.name, ", ".join(names))
    if isinstance(item, Instruction) and (label := target(item)) in same:
        operands = (Register(same[label]), *item.operands[1:])
        return Instruction(item.opcode, operands, item.guard, item.location, item.ptx_line)
    return item


def target(item: Item) -> str:
    """The label that a direct branch goes to; "" for anything else."""
    if isinstance(item, Instruction) and item.opcode in ("bra", "bra.uni"):
        operand = item.operands[0]
        assert isinstance(operand, Register)
        return operand.name
    return ""


class _Structure:
    def __init__(self, items: list[Item]) -> None:
        self.items = items
        self.place = {item.name: at for at, item in enumerate(items) if isinstance(item, Label)}
        self.jumps: dict[str, list[int]] = {}
        for at, item in enumerate(items):
            if label := target(item):
                self.jumps.setdefault(label, []).append(at)
        self.named: set[str] = set()

    def run(self) -> tuple[Block, set[str]]:
        for item in self.items:
            if isinstance(item, Directive) and item.name == "branchtargets":
                self.named.update(item.text.replace(",", " ").split())
        body = Block("body")
        self._fill(body, 0, len(self.items), None, 0)
        return body, self.named

    def _label_at(self, at: int) -> str:
        item = self.items[at] if 0 <= at < len(self.items) else None
        return item.name if isinstance(item, Label) else ""

    def _fill(self, block: Block, at: int, end: int, loop: _Loop | None, depth: int) -> None:
        """Put the items at..end-1 into a block."""
        while at < end:
            item = self.items[at]
            if isinstance(item, Label):
                block.parts.append(item)
                last = max((jump for jump in self.jumps.get(item.name, ()) if at < jump < end), default=-1)
                at = self._loop(block, item.name, at, last, depth) if last > 0 and depth < MOST_NESTED else at + 1
            elif label := target(item):
                assert isinstance(item, Instruction)
                at = self._branch(block, item, label, at, end, loop, depth)
            else:
                block.parts.append(item)
                at += 1

    def _loop(self, block: Block, head: str, at: int, last: int, depth: int) -> int:
        """The loop from a label to the last jump back to it. Returns the index after it."""
        back = self.items[last]
        assert isinstance(back, Instruction)
        made = Block("loop" if back.guard is None else "do", back.guard)
        again = head if back.guard is None else self._label_at(last - 1)
        self._fill(made, at + 1, last, _Loop(head, self._label_at(last + 1), again), depth + 1)
        block.parts.append(made)
        return last + 1

    def _branch(
        self, block: Block, item: Instruction, label: str, at: int, end: int, loop: _Loop | None, depth: int
    ) -> int:
        to = self.place[label]
        if loop is not None and label == loop.after:
            block.parts.append(Jump("break", item.guard))
        elif loop is not None and label == loop.again:
            block.parts.append(Jump("continue", item.guard))
        elif item.guard is not None and at < to <= end and depth < MOST_NESTED:
            return self._if(block, item.guard, at, to, end, loop, depth)
        else:
            self.named.add(label)
            block.parts.append(Jump("goto", item.guard, label))
        return at + 1

    def _if(self, block: Block, skips: Guard, at: int, to: int, end: int, loop: _Loop | None, depth: int) -> int:
        """The block that a guarded branch jumps over, and the else arm if the first arm ends with a jump over it."""
        condition = Guard(skips.register, not skips.negated)
        made = Block("if", condition)
        over = self.items[to - 1]
        beyond = target(over) if to - 1 > at and isinstance(over, Instruction) and over.guard is None else ""
        stop = self.place[beyond] if beyond else -1
        if not to < stop <= end or (loop is not None and beyond in (loop.after, loop.again)):
            self._fill(made, at + 1, to, loop, depth + 1)
            block.parts.append(made)
            return to
        self._fill(made, at + 1, to - 1, loop, depth + 1)
        other = Block("else")
        self._fill(other, to, stop, loop, depth + 1)
        block.parts += [made, other]
        return stop
