"""A text in which each instruction has its own line, so that machine code names the instruction it was made from."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .. import asm
from ..asm.nodes import Function, Instruction, Module, instructions_of

if TYPE_CHECKING:
    from ..timing.instructions import Facts


def with_own_lines(text: str, pcs: Sequence[Facts]) -> tuple[str, list[Facts]]:
    """The text, printed anew if several instructions share a line, and the facts with their lines in it.

    Inline assembly is one line of what a compiler writes, however many instructions it has.
    """
    module = asm.parse(text)
    before = _instructions(module)
    if len({one.ptx_line for one in before}) == len(before):
        return text, list(pcs)
    printed = module.to_text()
    shared: dict[int, list[int]] = defaultdict(list)
    for one, again in zip(before, _instructions(asm.parse(printed)), strict=True):
        shared[one.ptx_line].append(again.ptx_line)
    passed: Counter[int] = Counter()
    found = []
    for facts in pcs:
        here = shared.get(facts.ptx_line)
        if here is None:  # the end of the kernel
            found.append(facts)
            continue
        at = passed[facts.ptx_line] % len(here)  # an inlined function comes again
        passed[facts.ptx_line] += 1
        found.append(replace(facts, ptx_line=here[at]))
    return printed, found


def _instructions(module: Module) -> list[Instruction]:
    return [one for item in module.items if isinstance(item, Function) for one in instructions_of(item)]
