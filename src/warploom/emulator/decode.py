"""From a kernel's tree to operations the core can run.

`Code` is one kernel made ready: its operations, the register layout and the layout of its variables. `Decode` is
what a decoder in `emulator.ops` sees of one instruction: operands as slots, address computations, modifiers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from ..asm.binding import Bound, bind
from ..asm.nodes import (
    Address,
    Float,
    Function,
    Instruction,
    Integer,
    Module,
    Operand,
    Register,
    Sink,
    Symbol,
    TensorAddress,
    Vector,
)
from ..asm.printer import instruction_text
from ..errors import EmulationError, UnsupportedInstructionError, VerificationError
from ..isa import arch as isa_arch
from ..isa import dtypes
from ..isa.dtypes import DType, Kind
from .flatten import DeclaredRegister, DeclaredVariable, FlatInstruction, Flattener, JumpTarget, Scope, declared_types
from .frame import Frame
from .handlers import Handler, Step
from .memory import LOCAL_WINDOW, PARAM_WINDOW, RANK_SHIFT
from .registers import RegisterLayout, RegisterList, Row
from .special import DYNAMIC, SPECIAL, special_row_bits

PLAIN, BRANCH, EXIT, INDEXED_BRANCH = range(4)


@dataclass(eq=False)
class Operation:
    """One instruction made ready.

    Attributes:
        kind: PLAIN, BRANCH (`targets[0]`), INDEXED_BRANCH (`step` puts the index in a slot), EXIT.
        step: what it does to a frame; decoded at first use.
        guard, guard_negated: slot of the predicate, or -1.
        index_slot: slot of the index of an INDEXED_BRANCH.
        refresh: clocks the core must read before this instruction runs.
        polled_address: what an instruction that may be spun on reads; another address is another poll.
    """

    pc: int
    instruction: Instruction
    kind: int
    scope: Scope
    guard: int = -1
    guard_negated: bool = False
    step: Step | None = None
    handler: Handler | None = None
    targets: tuple[int, ...] = ()
    index_slot: int = -1
    refresh: tuple[str, ...] = ()
    polled_address: AddressOperand | None = None

    @property
    def text(self) -> str:
        return instruction_text(self.instruction)

    @property
    def simple(self) -> bool:
        """Whether several warps may run it at once without more ado."""
        return self.kind == PLAIN and not (self.handler and self.handler.per_warp)


@dataclass
class SharedVariable:
    """A named stretch of a CTA's shared memory."""

    name: str
    offset: int
    size: int


@dataclass
class CtaConstant:
    """A register row that the core fills at CTA start: a shared variable's address, %ctaid.x."""

    slot: int
    value: Callable[[object], object]


class Code:
    """A kernel made ready to run; see the module's docstring.

    Raises VerificationError for what the instruction table refuses, UnsupportedInstructionError for a row without
    a handler (at the instruction, when it is decoded).
    """

    def __init__(self, module: Module, entry: Function, handlers: Mapping[str, Handler], dynamic_smem: int = 0) -> None:
        self.module = module
        self.entry = entry
        self.handlers = handlers
        self.layout = RegisterLayout()
        self.arch = isa_arch.get(module.arch)
        self.cta_constants: dict[object, CtaConstant] = {}
        self.thread_rows: dict[str, Row] = {}
        self.module_buffers: dict[str, DeclaredVariable] = {}
        flattener = Flattener(module, entry, self.layout)
        self.flattener = flattener
        self.parameters = flattener.parameters
        self._lay_out_parameters()
        self._lay_out_variables(flattener, dynamic_smem)
        self._types: dict[int, Mapping[str, str]] = {}
        self._scratch: dict[tuple[int, np.dtype], int] = {}
        self._hidden: dict[str, Row] = {}
        self.operations: list[Operation] = []
        for flat in flattener.flat:
            self.operations.append(self._operation(flat))
        end = Instruction("exit", location=self.operations[-1].instruction.location if self.operations else None)
        self.operations.append(Operation(len(self.operations), end, EXIT, flattener.root))
        for operation, flat in zip(self.operations, flattener.flat, strict=False):
            self._link(operation, flat)

    # -- layouts -------------------------------------------------------------------------------------------------

    def _lay_out_parameters(self) -> None:
        offset = 0
        for parameter in self.parameters:
            offset = -(-offset // parameter.alignment) * parameter.alignment
            parameter.offset = offset
            offset += parameter.size
        self.parameter_bytes = offset

    def _lay_out_variables(self, flattener: Flattener, dynamic_smem: int) -> None:
        used = self._names_used()
        start = 1024 if self.arch.number >= 90 else 0
        self.shared_start = start
        self.shared_variables: list[SharedVariable] = []
        shared, local = start, 0
        dynamic = []
        for variable in flattener.variables:
            space, node = variable.space.split("::")[0], variable.node
            if space == "shared" and node.name in used:
                if node.linkage == "extern" or (node.dims and node.dims[-1] < 0):
                    dynamic.append(variable)
                    continue
                shared = -(-shared // variable.alignment) * variable.alignment
                variable.offset = shared
                self.shared_variables.append(SharedVariable(node.name, shared, variable.size))
                shared += variable.size
            elif space == "local" or (space == "param" and variable not in self.parameters):
                local = -(-local // variable.alignment) * variable.alignment
                variable.offset = local
                variable.space = "local"
                local += variable.size
            elif space in ("global", "const") and node.name in used:
                self.module_buffers[node.name] = variable
        for variable in dynamic:
            at = -(-shared // variable.alignment) * variable.alignment
            variable.offset = at
            self.shared_variables.append(SharedVariable(variable.node.name, at, dynamic_smem))
        if dynamic:
            shared = max(variable.offset for variable in dynamic)
        self.static_shared = shared - start
        self.shared_size = shared + dynamic_smem
        self.local_bytes = -(-local // 16) * 16

    def _names_used(self) -> set[str]:
        names: set[str] = set()

        def note(operand: Operand) -> None:
            if isinstance(operand, (Symbol, Register)):
                names.add(operand.name)
            elif isinstance(operand, (Address, TensorAddress)):
                note(operand.base)
            elif isinstance(operand, Vector):
                for element in operand.elements:
                    note(element)

        for flat in self.flattener.flat:
            for operand in flat.instruction.operands:
                note(operand)
        return names

    def name_shared(self, offset: int) -> str:
        """A shared address offset as `variable+offset`, for messages."""
        for variable in self.shared_variables:
            if variable.offset <= offset < variable.offset + max(variable.size, 1):
                inside = offset - variable.offset
                return f"{variable.name}+{inside}" if inside else variable.name
        return f"shared memory byte {offset}"

    # -- operations ----------------------------------------------------------------------------------------------

    def _operation(self, flat: FlatInstruction) -> Operation:
        base = flat.instruction.opcode.split(".")[0]
        kind = {"bra": BRANCH, "brx": INDEXED_BRANCH, "ret": EXIT, "exit": EXIT}.get(base, PLAIN)
        if base == "ret" and flat.returns_to is not None:
            kind = BRANCH
        operation = Operation(len(self.operations), flat.instruction, kind, flat.scope)
        guard = flat.instruction.guard
        if guard is not None:
            found = flat.scope.find(guard.register)
            if not isinstance(found, DeclaredRegister) or found.type != "pred":
                raise VerificationError(f"the guard {guard.register} is no predicate", where=flat.instruction.location)
            operation.guard = self.layout.slot(found.row, dtypes.pred)
            operation.guard_negated = guard.negated
        if kind == PLAIN and base != "call":
            self._decode(operation)
        elif base == "call":
            operation.step = external_call(flat.instruction)
        return operation

    def _decode(self, operation: Operation) -> None:
        instruction, scope = operation.instruction, operation.scope
        types = self._types.get(scope.number)
        if types is None:
            types = self._types[scope.number] = declared_types(scope)
        bound = bind(instruction, types)
        handler = self.handlers.get(bound.match.form.key)
        if handler is None:
            raise UnsupportedInstructionError(
                f"the emulator does not know {instruction.opcode}",
                where=instruction.location,
                got=operation.text,
                hint='CONTRIBUTING.md, "how to add an instruction"',
            )
        operation.handler = handler
        operation.step = handler.decode(Decode(self, operation, bound))

    def _link(self, operation: Operation, flat: FlatInstruction) -> None:
        """Resolve jump targets, once all positions are known."""
        positions = self.flattener.positions
        instruction = operation.instruction
        if operation.kind == BRANCH:
            if flat.returns_to is not None and instruction.opcode.split(".")[0] == "ret":
                operation.targets = (positions[flat.returns_to],)
                return
            operation.targets = (positions[self._label(instruction.operands[-1], flat.scope, instruction)],)
        elif operation.kind == INDEXED_BRANCH:
            index, table = instruction.operands[0], instruction.operands[-1]
            names = flat.scope.find_targets(getattr(table, "name", "")) or ()
            operation.targets = tuple(positions[self._label(Symbol(name), flat.scope, instruction)] for name in names)
            found = flat.scope.find(getattr(index, "name", ""))
            if not names or not isinstance(found, DeclaredRegister):
                raise VerificationError("brx.idx needs an index register and a .branchtargets list", where=instruction.location)
            operation.index_slot = self.layout.slot(found.row, dtypes.u32)

    def _label(self, operand: Operand, scope: Scope, instruction: Instruction) -> JumpTarget:
        name = getattr(operand, "name", "")
        found = scope.find(name)
        if not isinstance(found, JumpTarget):
            raise VerificationError(f"the label {name!r} is not defined", where=instruction.location)
        return found

    # -- slots ---------------------------------------------------------------------------------------------------

    def cta_constant(self, key: object, bits: int, dtype: np.dtype, value: Callable[[object], object]) -> int:
        """A slot whose value is the same for all threads of a CTA and set when the CTA starts."""
        if (key, dtype) not in self.cta_constants:
            slot = self.layout.slot(self.layout.new_row(bits), dtype)
            self.cta_constants[key, dtype] = CtaConstant(slot, value)
        return self.cta_constants[key, dtype].slot

    def special(self, name: str) -> Row:
        """The row of a special register; the core fills it."""
        if name not in self.thread_rows:
            self.thread_rows[name] = self.layout.new_row(special_row_bits(name))
        return self.thread_rows[name]

    def hidden(self, name: str, dtype: DType) -> int:
        """The slot of a register that no text names: the carry flag."""
        if name not in self._hidden:
            self._hidden[name] = self.layout.new_row(dtype.register_bits)
        return self.layout.slot(self._hidden[name], dtype)

    def scratch(self, bits: int, dtype: np.dtype) -> int:
        """A slot nobody reads, for results thrown away."""
        key = (bits, dtype)
        if key not in self._scratch:
            self._scratch[key] = self.layout.slot(self.layout.new_row(bits), dtype)
        return self._scratch[key]


@dataclass(frozen=True)
class AddressOperand:
    """An address as the instruction computes it.

    Attributes:
        space: "global", "shared", "shared::cta", "shared::cluster", "local", "param", "const" or "generic".
        slot: slot of the base register, or -1.
        offset: constant part.
    """

    space: str
    slot: int
    offset: int

    def compute(self, frame: Frame) -> np.ndarray:
        """The (lanes,) addresses, uint64."""
        if self.slot < 0:
            return np.full(frame.lanes, self.offset, np.uint64)
        base = frame.values[self.slot]
        if not isinstance(base, np.ndarray):
            base = np.full(frame.lanes, base)
        if base.dtype.itemsize == 8:
            return base + np.uint64(self.offset & 0xFFFFFFFFFFFFFFFF) if self.offset else base
        narrow = base + np.uint32(self.offset & 0xFFFFFFFF) if self.offset else base  # wraps at 32 bits
        return narrow.astype(np.uint64)


class Decode:
    """What a decoder sees of one instruction.

    Attributes:
        match: the table row that reads it, and what each modifier slot took.
        operands: PTX operands by the row's names.
    """

    def __init__(self, code: Code, operation: Operation, bound: Bound) -> None:
        self.code = code
        self.operation = operation
        self.instruction = operation.instruction
        self.match = bound.match
        self.modifiers = bound.match.modifiers
        self.operands = bound.operands
        self._specs = {}
        for spec in bound.match.form.operands:
            self._specs[spec.name] = spec
            if spec.second is not None:
                self._specs[spec.second.name] = spec.second

    # -- modifiers and operands ----------------------------------------------------------------------------------

    def modifier(self, slot: str, default: str = "") -> str:
        """What a modifier slot took, or `default` where it was left out."""
        return self.modifiers.get(slot) or default

    def has(self, name: str) -> bool:
        """Whether an optional operand (or an optional modifier) is there."""
        return name in self.operands or bool(self.modifiers.get(name))

    def type(self, name: str) -> DType:
        """The operand's type by the table row."""
        word = self.match.type_of(self._specs[name])
        if word not in dtypes.ALL:
            self.error(UnsupportedInstructionError, f"the type of operand {name} is unknown to the emulator", got=word)
        return dtypes.ALL[word]

    def register_bits(self, name: str) -> int:
        """Declared width of an operand's register (that of its type for a constant)."""
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
        """Whether a predicate operand has a `!`."""
        operand = self.operands.get(name)
        return isinstance(operand, Register) and operand.negated

    def error(self, kind: type, what: str, **parts: object) -> NoReturn:
        """Raise an error of this instruction at decode time."""
        raise kind(what, where=f"{self.instruction.location}  {self.operation.text}", **parts)

    # -- slots ---------------------------------------------------------------------------------------------------

    def source(self, name: str, dtype: DType | None = None) -> int:
        """Slot of an operand that is read, seen as `dtype` (default: the row's type). A `!` is an error: use `predicate`."""
        operand = self.operands[name]
        if isinstance(operand, Register) and operand.negated:
            self.error(EmulationError, f"operand {name} is a negated predicate and is read as a plain value")
        return self.slot_of(operand, dtype or self.type(name))

    def predicate(self, name: str) -> Callable[[Frame], np.ndarray]:
        """A reader of a predicate operand that honours its `!`; an absent one reads as True."""
        if name not in self.operands:
            return lambda frame: np.True_
        slot = self.slot_of(self.operands[name], dtypes.pred)
        if self.negated(name):
            return lambda frame: ~frame.values[slot]
        return lambda frame: frame.values[slot]

    def destination(self, name: str, dtype: DType | None = None) -> int:
        """Slot of an operand that is written; a sink or an absent operand gets a slot nobody reads."""
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
        """The computation of an address operand; `space` overrides what the row and its modifiers say."""
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
                chosen = "local"  # a .param variable inside a body is the thread's own
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
        return self.operation.scope.find(getattr(operand, "name", ""))

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
        if name in SPECIAL:
            if name in DYNAMIC:
                self._refresh(name)
            return layout.slot(self.code.special(name), dtype)
        self.error(VerificationError, f"{name or operand} is not declared")

    def _refresh(self, name: str) -> None:
        """Remember that the core must read a clock before this instruction runs."""
        self.operation.refresh = (*self.operation.refresh, name)

    def _variable_value(self, variable: DeclaredVariable, offset: int, dtype: DType) -> int:
        """The address of a variable as a value, in its own state space."""
        space = variable.space.split("::")[0]
        at = variable.offset + offset
        if space == "shared":
            return self.code.cta_constant(
                ("shared", at), dtype.register_bits, dtype.numpy, lambda cta: (cta.rank << RANK_SHIFT) + at  # type: ignore[attr-defined]
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


def integer_constant(value: int, dtype: DType) -> np.generic:
    """An integer literal as a constant of a type; wraps at the type's width, as ptxas does."""
    if dtype.kind is Kind.PREDICATE:
        return np.bool_(value != 0)
    if dtype.bits == 128:
        return np.array((value & (2**64 - 1), value >> 64 & (2**64 - 1)), dtype.numpy)[()]
    if dtype.is_float and dtype.numpy.kind == "f" and dtype.bits >= 32:
        return dtype.numpy.type(value)
    unsigned = np.dtype(f"u{dtype.bytes}")
    return np.array(value & ((1 << dtype.bits) - 1), unsigned).view(dtype.numpy)[()]


def float_constant(operand: Float, dtype: DType) -> np.generic:
    """A floating-point literal as a constant of a type."""
    if operand.bits == 32:
        value: np.generic = np.array(operand.raw, np.uint32).view(np.float32)[()]
    else:
        value = np.array(operand.raw, np.uint64).view(np.float64)[()]
    if dtype.kind is Kind.BITS:
        if operand.bits == dtype.bits:
            return np.array(operand.raw, dtype.numpy)[()]
        return np.array(value, np.float32).view(np.uint32)[()] if dtype.bits == 32 else np.array(value).view(np.uint64)[()]
    return dtype.numpy.type(value)


def external_call(instruction: Instruction) -> Step:
    """A call of a function without a body: an error when it is reached, not before."""
    name = next((operand.name for operand in instruction.operands if isinstance(operand, (Symbol, Register))), "?")

    def step(frame: Frame) -> None:
        if name == "__assertfail":
            frame.error(EmulationError, "an assertion of the kernel failed", int(frame.active_lanes[0]))
        frame.error(
            UnsupportedInstructionError,
            f"{name} has no body here, so the emulator cannot call it",
            int(frame.active_lanes[0]),
        )

    return step
