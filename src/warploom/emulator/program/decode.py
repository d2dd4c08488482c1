"""A decoder's view of one instruction in `emulator.ops`: operands as slots, address computations, modifiers."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from ...asm.binding import Bound
from ...asm.nodes import Address, Float, Function, Integer, Operand, Register, Sink, Symbol, TensorAddress, Vector
from ...errors import EmulationError, UnsupportedInstructionError, VerificationError, WarploomError
from ...isa import dtypes
from ...isa.dtypes import DType, Kind
from ..machine.address import AddressOperand
from ..machine.frame import Frame
from ..machine.image import Image
from ..machine.memory import LOCAL_WINDOW, PARAM_WINDOW, RANK_SHIFT
from ..machine.operation import Operation
from ..machine.register_list import RegisterList
from ..machine.registers import Row
from ..machine.scopes import DeclaredRegister, DeclaredVariable
from ..machine.special_values import DYNAMIC, SPECIAL, special_row_bits

_ALWAYS = np.ones((), np.bool_)


class Decode:
    """A decoder's view of one instruction.

    Attributes:
        match: the table row for it, and the value of each modifier slot.
        operands: PTX operands by the row's names.
    """

    def __init__(self, code: Image, operation: Operation, bound: Bound) -> None:
        self.code = code
        self.operation = operation
        self.instruction = operation.instruction
        self.match = bound.match
        self.modifiers = bound.match.modifiers
        self.operands = bound.operands
        self._specs = bound.match.form.operands_by_name

    # -- modifiers and operands ----------------------------------------------------------------------------------

    def modifier(self, slot: str, default: str = "") -> str:
        """The value of a modifier slot, or `default` if it was omitted."""
        return self.modifiers.get(slot) or default

    def has(self, name: str) -> bool:
        """True if an optional operand (or an optional modifier) is present."""
        return name in self.operands or bool(self.modifiers.get(name))

    def type(self, name: str) -> DType:
        """The operand's type according to the table row."""
        word = self.match.type_of(self._specs[name])
        if word not in dtypes.ALL:
            self.error(UnsupportedInstructionError, f"the type of operand {name} is unknown to the emulator", got=word)
        return dtypes.ALL[word]

    def register_bits(self, name: str) -> int:
        """Declared width of an operand's register (for a constant, that of its type)."""
        operand = self.operands[name]
        if isinstance(operand, (Register, Symbol)):
            found = self.operation.scope.find(operand.name)
            if isinstance(found, DeclaredRegister):
                return found.row.bits
            if operand.name in SPECIAL:
                return special_row_bits(operand.name)
        return self.type(name).register_bits

    def constant(self, name: str) -> int:
        """The value of a constant integer operand."""
        operand = self.operands[name]
        if not isinstance(operand, Integer):
            self.error(VerificationError, f"operand {name} must be a constant")
        return operand.value

    def negated(self, name: str) -> bool:
        """True if an operand has a `!` or a minus."""
        operand = self.operands.get(name)
        return isinstance(operand, Register) and operand.negated

    def error(self, kind: builtins.type[WarploomError], what: str, **parts: Any) -> NoReturn:
        """Raise an error of this instruction at decode time."""
        raise kind(what, where=f"{self.instruction.location}  {self.operation.text}", **parts)

    # -- slots ---------------------------------------------------------------------------------------------------

    def source(self, name: str, dtype: DType | None = None) -> int:
        """Slot of a source operand, viewed as `dtype` (default: the row's type).

        A leading `!` is an error: use `predicate`.
        """
        operand = self.operands[name]
        if isinstance(operand, Register) and operand.negated:
            self.error(EmulationError, f"operand {name} is a negated predicate and is read as a plain value")
        return self.slot_of(operand, dtype or self.type(name))

    def predicate(self, name: str) -> Callable[[Frame], np.ndarray]:
        """A reader of a predicate operand that honours its `!`; an absent one reads as True."""
        if name not in self.operands:
            return lambda frame: _ALWAYS
        slot = self.slot_of(self.operands[name], dtypes.pred)
        if self.negated(name):
            return lambda frame: ~frame.values[slot]
        return lambda frame: frame.values[slot]

    def destination(self, name: str, dtype: DType | None = None) -> int:
        """Slot of a destination operand; a sink or an absent operand gets a slot that is never read."""
        kind = dtype or self.type(name)
        operand = self.operands.get(name)
        if operand is None or isinstance(operand, Sink):
            return self.code.scratch(kind.register_bits, kind.numpy)
        return self.slot_of(operand, kind)

    def registers(self, name: str, dtype: DType | None = None) -> RegisterList:
        """The registers of an operand in braces, or of a bare one as a list of one."""
        kind = dtype or self.type(name)
        operand = self.operands[name]
        elements = operand.elements if isinstance(operand, Vector) else (operand,)
        slots = []
        rows: list[Row] | None = []
        for element in elements:
            if isinstance(element, Sink):
                slots.append(self.code.scratch(kind.register_bits, kind.numpy))
                rows = None
                continue
            slots.append(self.slot_of(element, kind))
            found = self._declared(element)
            if rows is not None and found is not None and (not rows or rows[0].bits == found.row.bits):
                rows.append(found.row)
            else:
                rows = None
        if not rows or len({row.index for row in rows}) < len(rows):
            return RegisterList(tuple(slots), kind.numpy)
        indices = np.array([row.index for row in rows])
        packed: slice | np.ndarray = indices
        if np.array_equal(indices, np.arange(indices[0], indices[0] + len(indices))):
            packed = slice(int(indices[0]), int(indices[-1]) + 1)
        return RegisterList(tuple(slots), kind.numpy, rows[0].bits, packed)

    def address(self, name: str, space: str | None = None) -> AddressOperand:
        """The computation of an address operand; `space` overrides the row and its modifiers."""
        operand = self.operands[name]
        spec = self._specs[name]
        if isinstance(operand, TensorAddress):
            operand = operand.base
        if not isinstance(operand, Address):
            self.error(VerificationError, f"operand {name} must be an address")
        chosen = space or spec.space or self.modifier("space") or "generic"
        offset, base = operand.offset, operand.base
        if isinstance(base, Integer):
            return AddressOperand(chosen, -1, base.value + offset)
        found = self._name(base)
        if isinstance(base, Symbol):
            offset += base.offset
        if isinstance(found, DeclaredVariable):
            if found.space == "local" and chosen.startswith("param"):
                chosen = "local"  # a .param variable inside a body belongs to the thread
            return self._variable_address(found, chosen, offset)
        if isinstance(found, DeclaredRegister):
            seen = dtypes.u32 if found.row.bits == 32 else dtypes.u64
            return AddressOperand(chosen, self.code.layout.slot(found.row, seen), offset)
        self.error(VerificationError, f"{getattr(base, 'name', base)} in operand {name} is not declared")

    def coordinates(self, name: str) -> RegisterList:
        """The coordinates of a tensor address as s32 registers."""
        operand = self.operands[name]
        if not isinstance(operand, TensorAddress):
            self.error(VerificationError, f"operand {name} has no coordinates")
        slots = tuple(self.slot_of(element, dtypes.s32) for element in operand.coordinates)
        return RegisterList(slots, dtypes.s32.numpy)

    # -- resolving -----------------------------------------------------------------------------------------------

    def _name(self, operand: Operand) -> object:
        return self.operation.scope.find(operand.name if type(operand) is Register else getattr(operand, "name", ""))

    def _declared(self, operand: Operand) -> DeclaredRegister | None:
        found = self._name(operand)
        return found if isinstance(found, DeclaredRegister) else None

    def slot_of(self, operand: Operand, dtype: DType) -> int:
        """Slot of any operand that has a value: register, special register, constant, variable address."""
        layout = self.code.layout
        if isinstance(operand, Integer):
            return layout.constant(integer_constant(operand.value, dtype))
        if isinstance(operand, Float):
            return layout.constant(float_constant(operand, dtype))
        found = self._name(operand)
        if isinstance(found, DeclaredRegister):
            if dtype.kind is not Kind.PREDICATE and found.row.bits < dtype.bits:
                self.error(
                    VerificationError,
                    f"register {operand.name} is too narrow",  # type: ignore[union-attr]
                    expected=f"{dtype.bits} bits",
                    got=f".{found.type}",
                )
            return layout.slot(found.row, dtype)
        name = getattr(operand, "name", "")
        if isinstance(found, DeclaredVariable):
            offset = operand.offset if isinstance(operand, Symbol) else 0
            return self._variable_value(found, offset, dtype)
        if isinstance(found, Function) and name in self.code.function_addresses:
            return layout.constant(dtype.numpy.type(self.code.function_addresses[name]))
        if name in SPECIAL:
            if name in DYNAMIC:
                self._refresh(name)
            return layout.slot(self.code.special(name), dtype)
        self.error(VerificationError, f"{name or operand} is not declared")

    def _refresh(self, name: str) -> None:
        """Note that the core must read a clock before this instruction runs."""
        self.operation.refresh = (*self.operation.refresh, name)

    def _variable_value(self, variable: DeclaredVariable, offset: int, dtype: DType) -> int:
        """The address of a variable as a value, in its own state space."""
        space = variable.space.split("::")[0]
        at = variable.offset + offset
        if space == "shared":
            return self.code.cta_constant(
                ("shared", at),
                dtype.register_bits,
                dtype.numpy,
                lambda cta: (cta.rank << RANK_SHIFT) + at,  # type: ignore[attr-defined]
            )
        if space in ("local", "param"):
            return self.code.layout.constant(dtype.numpy.type(at))
        name = variable.node.name
        return self.code.cta_constant(
            ("buffer", name, offset),
            dtype.register_bits,
            dtype.numpy,
            lambda cta: cta.machine.module_buffers[name].base + offset,  # type: ignore[attr-defined]
        )

    def _variable_address(self, variable: DeclaredVariable, chosen: str, offset: int) -> AddressOperand:
        space = variable.space.split("::")[0]
        if space in ("local", "param"):
            window = {"local": LOCAL_WINDOW, "param": PARAM_WINDOW}[space] if chosen == "generic" else 0
            return AddressOperand(chosen, -1, window + variable.offset + offset)
        slot = self._variable_value(variable, offset, dtypes.u64)
        if chosen == "generic":
            chosen = {"shared": "shared", "global": "global", "const": "const"}[space]
        return AddressOperand(chosen, slot, 0)


# -- literals ------------------------------------------------------------------------------------------------------


def integer_constant(value: int, dtype: DType) -> Any:
    """An integer literal as a constant of a type; wraps at the type's width, as in ptxas."""
    if dtype.kind is Kind.PREDICATE:
        return np.bool_(value != 0)
    if dtype.bits == 128:
        return np.array((value & (2**64 - 1), value >> 64 & (2**64 - 1)), dtype.numpy)[()]
    if dtype.is_float and dtype.numpy.kind == "f" and dtype.bits >= 32:
        return dtype.numpy.type(value)
    unsigned = np.dtype(f"u{dtype.bytes}")
    return np.array(value & ((1 << dtype.bits) - 1), unsigned).view(dtype.numpy)[()]


def float_constant(operand: Float, dtype: DType) -> Any:
    """A floating-point literal as a constant of a type."""
    if operand.bits == 32:
        value: Any = np.array(operand.raw, np.uint32).view(np.float32)[()]
    else:
        value = np.array(operand.raw, np.uint64).view(np.float64)[()]
    if dtype.kind is Kind.BITS:
        if operand.bits == dtype.bits:
            return np.array(operand.raw, dtype.numpy)[()]
        return (
            np.array(value, np.float32).view(np.uint32)[()] if dtype.bits == 32 else np.array(value).view(np.uint64)[()]
        )
    return dtype.numpy.type(value)
