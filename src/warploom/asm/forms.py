"""The form of an instruction, which determines its checks: its opcode, and each operand's kind and register type.

Unrolled code repeats one form hundreds of times with other registers and other numbers. All instances fit the same row
of the instruction table or none, so each form is checked once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..isa.instructions.schema import Match
from .binding import Bound, bind
from .nodes import Address, Float, Instruction, Integer, Operand, Register, Sink, TensorAddress, Vector

Types = Mapping[str, str]
"""Register name -> declared type."""


def form_of(instruction: Instruction, types: Types) -> tuple[Any, ...] | None:
    """A hashable form, equal for instructions that are valid or invalid together.

    None if validity depends on more than types: on the name of a label, a variable or a special register.
    """
    guard = instruction.guard
    forms = _forms(instruction.operands, types)
    if guard is not None:
        forms.append(types.get(guard.register))
    return None if None in forms else (instruction.opcode, guard is not None, *forms)


def constants_of(instruction: Instruction) -> tuple[Any, ...]:
    """The constants among the operands, also in braces, which distinguish instructions of one form."""
    return tuple(
        [
            operand.value if type(operand) is Integer else operand
            for given in instruction.operands
            for operand in (given.elements if type(given) is Vector else (given,))
            if type(operand) is Integer or type(operand) is Float
        ]
    )


def _forms(operands: Iterable[Operand], types: Types) -> list[Any]:
    """The form of each operand, or None; for a register, the usual case, its type."""
    return [
        types.get(operand.name) if type(operand) is Register and not operand.negated else _form(operand, types)
        for operand in operands
    ]


def _form(operand: Operand, types: Types) -> Any:
    make = _FORMS.get(type(operand))
    return None if make is None else make(operand, types)


def _negated(operand: Register, types: Types) -> Any:
    declared = types.get(operand.name)
    return None if declared is None else ("-" if operand.minus else "!", declared)


def _address(operand: Address, types: Types) -> Any:
    """The form of an address. Its offset is not checked; a base that is not a register is looked up by name."""
    declared = types.get(operand.base.name) if type(operand.base) is Register else None
    return None if declared is None else ("[", declared, operand.unified)


def _vector(operand: Vector, types: Types) -> Any:
    forms = _forms(operand.elements, types)
    return None if None in forms else ("{", *forms)


def _tensor_address(operand: TensorAddress, types: Types) -> Any:
    forms = _forms((operand.base, *operand.coordinates, *filter(None, [operand.sampler])), types)
    return None if None in forms else ("[,", operand.sampler is None, *forms)


_FORMS: dict[type, Callable[[Any, Types], Any]] = {
    Register: _negated,
    Integer: lambda operand, types: "#",
    Float: lambda operand, types: ("#", operand.bits),
    Sink: lambda operand, types: "_",
    Address: _address,
    Vector: _vector,
    TensorAddress: _tensor_address,
}


class FormBinder:
    """Binds the instructions of one text as `binding.bind` does, but each form once."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], tuple[Match, list[tuple[str, bool]]]] = {}
        """By form: the row, and for each of its operands the name and whether it is alone in braces."""

    def bind(self, instruction: Instruction, types: Types) -> Bound:
        """The row that reads an instruction, and its operands by name. Raises VerificationError."""
        form, given = form_of(instruction, types), instruction.operands
        known = self._known.get(form) if form is not None else None
        if known is not None:
            match, names = known
            operands = zip(names, given, strict=True)
            return Bound(match, {name: one.elements[0] if inside else one for (name, inside), one in operands})  # type: ignore[union-attr]
        bound = bind(instruction, types)
        if form is not None:  # so there is no pair, and each operand has one name
            pairs = zip(bound.operands.items(), given, strict=True)
            self._known[form] = bound.match, [(name, taken is not one) for (name, taken), one in pairs]
        return bound
