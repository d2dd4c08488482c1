"""A check that a function does not use tcgen05 for one CTA and for a pair, which ptxas rejects; TMA copies may."""

from __future__ import annotations

from ..errors import VerificationError
from .nodes import Function, Instruction, instructions_of

_WORD = "cta_group::"


def mixed_groups(function: Function) -> list[VerificationError]:
    """The first instruction whose group differs from the first group; empty if there is none."""
    first: tuple[str, Instruction] | None = None
    for instruction in instructions_of(function):
        if not instruction.opcode.startswith("tcgen05."):
            continue
        group = next((word for word in instruction.modifiers if word.startswith(_WORD)), None)
        if group is None:
            continue
        if first is None:
            first = group, instruction
        elif first[0] != group:
            return [
                VerificationError(
                    f"{function.name} uses tcgen05 with .{first[0]} and with .{group}", where=instruction.location,
                    expected=f".{first[0]} everywhere, as `{first[1].opcode}` has it first",
                    got=f"`{instruction.opcode}`", consequence="ptxas refuses the kernel",
                )
            ]  # fmt: skip
    return []
