"""What registers depend on, after a straight piece of a trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..asm import nodes
from .values import Register

_IGNORED = (nodes.Comment, nodes.LocDirective, nodes.RegisterDeclaration)


class Dependence:
    """Which of some given registers others are computed from, by statements without jumps.

    Args:
        statements: in their order. With a jump among them, every register that they write depends on everything.
        given: flags of the registers that matter; a register that is computed from several has the flags of all.
    """

    def __init__(self, statements: Sequence[nodes.Statement], given: Mapping[Register, int]) -> None:
        self.flags = {register.name: flag for register, flag in given.items()}
        everything = 0
        for flag in given.values():
            everything |= flag
        plain = [each for each in statements if not isinstance(each, _IGNORED)]
        straight = all(isinstance(each, nodes.Instruction) and each.opcode != "bra" for each in plain)
        for statement in plain:
            if not isinstance(statement, nodes.Instruction) or not statement.operands:
                continue
            guard = [] if statement.guard is None else [statement.guard.register]
            written, *read = statement.operands
            targets = list(_names([written]))
            found = self._of([*_names(read), *guard, *(targets if guard else [])]) if straight else everything
            for name in targets:
                self.flags[name] = found

    def of(self, value: Any) -> int:
        """The flags of a register; 0 for anything else, which is constant."""
        return self._of([value.name]) if isinstance(value, Register) else 0

    def _of(self, names: Iterable[str]) -> int:
        found = 0
        for name in names:
            found |= self.flags.get(name, 0)
        return found


def _names(operands: Iterable[nodes.Operand]) -> Iterator[str]:
    """The registers in operands."""
    for each in operands:
        if isinstance(each, nodes.Register):
            yield each.name
        elif isinstance(each, nodes.Address):
            yield from _names([each.base])
        elif isinstance(each, (nodes.Vector, nodes.Group)):
            yield from _names(each.elements)
        elif isinstance(each, nodes.Pair):
            yield from _names([each.first, each.second])
