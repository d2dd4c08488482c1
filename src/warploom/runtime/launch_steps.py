"""What the text of a kernel shows about the integers in its registers: constants, and known divisors.

It is for guesses that are checked elsewhere. Definitions are found by the order of the text and its backward branches
instead of a flow graph, and anything unknown counts as a multiple of 1. A loop variable is a multiple of its start and
its steps: 0, 64, 128, … of 64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd

from ..asm import nodes

_MOST_LOOKS = 4000
"""Definitions examined for one question; beyond this the answer is that nothing is known."""
_COPIES = ("mov", "cvt", "cvta")


class Steps:
    """Integers in the registers of one function.

    Attributes:
        instructions: of the function, in the order of the text, with blocks flattened.
    """

    def __init__(self, function: nodes.Function) -> None:
        self.instructions: list[nodes.Instruction] = []
        labels: dict[str, int] = {}
        for one in nodes.walk(function.body or ()):
            if isinstance(one, nodes.Label):
                labels[one.name] = len(self.instructions)
            elif isinstance(one, nodes.Instruction):
                self.instructions.append(one)
        self._defined: dict[str, list[int]] = {}
        self._loops: list[tuple[int, int]] = []
        for at, one in enumerate(self.instructions):
            for name in _targets(one):
                self._defined.setdefault(name, []).append(at)
            target = one.operands[0] if one.operands else None
            if one.opcode.startswith("bra") and isinstance(target, (nodes.Symbol, nodes.Register)):
                start = labels.get(target.name, at + 1)
                if start <= at:
                    self._loops.append((start, at))
        self._loops.sort(key=lambda loop: loop[1] - loop[0])
        self._looks = 0

    def multiple(self, operand: nodes.Operand, at: int) -> int:
        """The largest number known to divide an operand of the instruction at that index; 0 if the operand is 0."""
        self._looks = 0
        return self._multiple(operand, at, frozenset())

    def constant(self, operand: nodes.Operand, at: int) -> int | None:
        """The value of an operand if it is one number."""
        self._looks = 0
        return self._constant(operand, at)

    def set_bits(self, operand: nodes.Operand, at: int) -> int:
        """The number of set bits in a mask, if it is a constant that may be shifted; otherwise 0."""
        for _ in range(8):
            value = self.constant(operand, at)
            if value is not None:
                return (value & 0xFFFFFFFF).bit_count()
            found = self._only(operand, at)
            if found is None or self.instructions[found].opcode.split(".")[0] not in ("shl", *_COPIES):
                return 0
            operand, at = self.instructions[found].operands[1], found
        return 0

    def place(self, operand: nodes.Operand, at: int) -> tuple[str | int, int]:
        """The base of an address and its offset in bytes. The base is a variable by its name, or an instruction of
        this function by its index, -1 if even that is unknown."""
        offset = 0
        for _ in range(16):
            if isinstance(operand, nodes.Address):
                offset, operand = offset + operand.offset, operand.base
            if isinstance(operand, nodes.Symbol):
                return operand.name, offset + operand.offset
            if not isinstance(operand, nodes.Register):
                break
            if not operand.name.startswith("%") and operand.name not in self._defined:
                return operand.name, offset
            found = self._only(operand, at)
            if found is None:
                break
            word, sources = self.instructions[found].opcode.split(".")[0], self.instructions[found].operands[1:]
            amounts = [self._constant(one, found) for one in sources] if word == "add" else []
            if word in _COPIES:
                operand = sources[0]
            elif [amount is None for amount in amounts] in ([True, False], [False, True]):
                offset += sum(amount for amount in amounts if amount is not None)
                operand = sources[0 if amounts[0] is None else 1]
            else:
                return found, offset
            at = found
        if isinstance(operand, nodes.Register):  # of several definitions the latest represents all
            return max(self._definitions(operand.name, at), default=-1), offset
        return -1, offset

    def thread(self, operand: nodes.Operand, at: int) -> int | None:
        """How many bits an operand is shifted right from %tid.x: 0 for the thread, 5 for its warp; None if it is
        neither."""
        shifted = 0
        for _ in range(8):
            if isinstance(operand, (nodes.Register, nodes.Symbol)) and operand.name == "%tid.x":
                return shifted
            found = self._only(operand, at)
            if found is None:
                return None
            word, sources = self.instructions[found].opcode.split(".")[0], self.instructions[found].operands[1:]
            if word == "shr":
                amount = self._constant(sources[1], found)
                if amount is None or not 0 <= amount < 32:
                    return None
                shifted += amount
            elif word not in (*_COPIES, "shfl"):
                return None
            operand, at = sources[0], found
        return None

    def elected(self, guard: nodes.Guard | None, at: int) -> bool:
        """True if a guard's predicate comes from elect.sync."""
        definitions = self._definitions(guard.register, at) if guard is not None else []
        return any(self.instructions[found].opcode.startswith("elect") for found in definitions)

    def words(self, operand: nodes.Operand, at: int) -> Iterator[int]:
        """All constants from which a value is assembled."""
        self._looks = 0
        yield from self._words(operand, at, set())

    # -- inside ----------------------------------------------------------------------------------------------------

    def _words(self, operand: nodes.Operand, at: int, seen: set[int]) -> Iterator[int]:
        if isinstance(operand, nodes.Integer):
            yield operand.value
        elif isinstance(operand, nodes.Vector):  # its second half is the upper one
            for shift, element in enumerate(operand.elements):
                yield from (word << 32 * shift for word in self._words(element, at, seen))
        elif isinstance(operand, nodes.Register):
            for found in self._definitions(operand.name, at):
                if found not in seen and len(seen) < _MOST_LOOKS:
                    seen.add(found)
                    for source in self.instructions[found].operands[1:]:
                        yield from self._words(source, found, seen)

    def _definitions(self, name: str, at: int) -> list[int]:
        """Instructions that may have given a register the value it has before the instruction at that index."""
        places = self._defined.get(name, [])
        found = []
        first = at
        for place in reversed([one for one in places if one < at]):
            found.append(place)
            if self.instructions[place].guard is None:
                first = place
                break
        else:
            first = -1
        for start, end in self._loops:
            if start <= at <= end and first < start:
                found += [place for place in places if at <= place <= end and place not in found]
        return found

    def _only(self, operand: nodes.Operand, at: int) -> int | None:
        if not isinstance(operand, nodes.Register):
            return None
        found = self._definitions(operand.name, at)
        return found[0] if len(found) == 1 and len(self.instructions[found[0]].operands) > 1 else None

    def _constant(self, operand: nodes.Operand, at: int) -> int | None:
        for _ in range(8):
            if isinstance(operand, nodes.Integer):
                return operand.value
            found = self._only(operand, at)
            if found is None or self.instructions[found].opcode.split(".")[0] not in _COPIES:
                return None
            operand, at = self.instructions[found].operands[1], found
        return None

    def _multiple(self, operand: nodes.Operand, at: int, inside: frozenset[int]) -> int:
        if isinstance(operand, nodes.Integer):
            return abs(operand.value)
        if not isinstance(operand, nodes.Register):
            return 1
        found = self._definitions(operand.name, at)
        self._looks += 1
        if not found or self._looks > _MOST_LOOKS:
            return 1
        # A definition under examination says nothing new: the others give the start of the loop and its steps.
        return gcd(*(self._of_result(one, inside | {one}) for one in found if one not in inside))

    def _of_result(self, at: int, inside: frozenset[int]) -> int:
        one = self.instructions[at]
        word, sources = one.opcode.split(".")[0], one.operands[1:]

        def of(number: int) -> int:
            return self._multiple(sources[number], at, inside)

        if word in _COPIES and len(sources) == 1 and not isinstance(sources[0], nodes.Vector):
            return of(0)
        if word in ("add", "sub", "min", "max") and len(sources) == 2:
            return gcd(of(0), of(1))
        if word == "selp":
            return gcd(of(0), of(1))
        if word == "mul" and len(sources) == 2:
            return of(0) * of(1)
        if word == "mad" and len(sources) == 3:
            return gcd(of(0) * of(1), of(2))
        if word == "shl":
            amount = self._constant(sources[1], at)
            return of(0) << amount if amount is not None and 0 <= amount < 32 else of(0)
        if word == "and" and len(sources) == 2:
            masks = [mask for mask in (self._constant(source, at) for source in sources) if mask]
            return max((mask & -mask for mask in masks), default=1)
        if word == "or" and len(sources) == 2:
            both = [of(0), of(1)]
            return gcd(*((value & -value) for value in both))
        if word == "shfl":
            return of(0)
        return 1


def _targets(one: nodes.Instruction) -> Iterator[str]:
    """Names of the registers that an instruction writes, as far as its first operand shows them."""
    first = one.operands[0] if one.operands else None
    parts: Sequence[nodes.Operand | None] = (first,)
    if isinstance(first, nodes.Vector):
        parts = first.elements
    elif isinstance(first, nodes.Pair):
        parts = (first.first, first.second)
    if one.opcode.split(".")[0] in ("st", "bra", "red", "ret", "bar"):
        return
    yield from (part.name for part in parts if isinstance(part, nodes.Register))
