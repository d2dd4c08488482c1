"""Functions as values: the address of each, and the ones that a call through a register may reach."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...asm.nodes import Function, Module, Register, Symbol, Variable, instructions_of
from ..machine.scopes import DeclaredVariable

FIRST, STEP = 0x7A00_0000_0000, 16
"""Address of the first function, and the distance between two. The numbers are ours; there is no memory behind them."""
_NAME = re.compile(r"[A-Za-z_$%][\w$]*")


def addresses_of(module: Module) -> dict[str, int]:
    """An address for each function with a body."""
    bodies = [item for item in module.items if isinstance(item, Function) and item.kind == "func" and item.body]
    return {function.name: FIRST + number * STEP for number, function in enumerate(bodies)}


def taken(module: Module) -> set[str]:
    """Names used as values: in an initialiser, or as an operand of anything but a call."""
    found: set[str] = set()
    for item in module.items:
        if isinstance(item, Variable):
            found.update(_NAME.findall(item.initializer))
        elif isinstance(item, Function):
            for instruction in instructions_of(item):
                if instruction.opcode.split(".")[0] != "call":
                    found.update(one.name for one in instruction.operands if isinstance(one, (Register, Symbol)))
    return found


def sizes(variables: Sequence[Variable]) -> list[int]:
    """Bytes of each parameter."""
    return [DeclaredVariable(variable, variable.space).size for variable in variables]


def allocates(function: Function) -> bool:
    """True if it allocates on the stack itself; its callees free their own allocations."""
    return any(instruction.opcode.startswith("alloca") for instruction in instructions_of(function))
