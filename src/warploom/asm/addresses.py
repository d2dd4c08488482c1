"""Checks of the base of an address: a register, a variable of the instruction's state space, a number in .local.

PTX ISA 6.4. The verdicts are those of ptxas 13.0.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..isa.instructions.schema import Match, OperandSpec
from .initial_values import Complaint
from .nodes import Address, Function, Register, Symbol
from .scopes import Scope

_UNIFIED = ("ld", "ldu", "atom")
"""Instructions whose addresses may have the suffix `.unified` (PTX ISA 9.7.9.8; ptxas 13.0)."""


def wrong_address(
    operand: Address, spec: OperandSpec, row: Match, scope: Scope, function: Function
) -> Iterator[Complaint]:
    """Complaints about an address in an instruction of a function."""
    space = spec.space or row.modifiers.get("space") or ""
    if not isinstance(operand.base, (Register, Symbol)):
        if space != "local":
            yield "a constant address is for .local memory only", None
        return
    name = operand.base.name
    meaning = scope.find(name)
    if meaning is None:
        return
    if meaning.kind not in ("register", "variable"):
        kind = "special register" if meaning.kind == "special" else meaning.kind
        yield f"`{name}` is a {kind}, not an address", "a register"
    narrow = meaning.kind == "register" and meaning.type[1:] == "32"
    if narrow and spec.kind == "address" and not row.takes_32_bits(space):
        yield (
            f"`{name}` is a 32-bit register and the address is {space or 'generic'}",
            "a 64-bit register, or .shared after the instruction's name",
        )
    spaces = row.reaches(space)
    if meaning.kind == "variable" and spaces and meaning.space not in spaces:
        words = " or .".join(spaces)
        yield (
            f"`{row.form.base}` reaches .{words} memory, `{name}` is a .{meaning.space} variable",
            f"a .{words} variable or a register",
        )
    if operand.unified and (row.form.base not in _UNIFIED or space not in ("", "generic", "global")):
        yield f"`{row.form.base}` takes no `.unified` address here", "ld, ldu or atom of global memory by a register"
    elif operand.unified and meaning.kind != "register":
        yield f"`{name}` is a {meaning.kind} and the address is .unified", "a register"
    if row.form.base == "st" and any(meaning.variable is each for each in function.parameters):
        yield f"`st` writes to `{name}`, a parameter of {function.name}", "memory, or a result or argument in .param"
