"""A kernel made ready to run: its operations, and where its registers and variables lie.

Operations are decoded by `decode` and the handlers of `ops`; the scheduler runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...asm.binding import Bound, bind
from ...asm.nodes import Address, Function, Instruction, Module, Operand, Register, Symbol, TensorAddress, Vector
from ...asm.printer import instruction_text
from ...errors import EmulationError, UnsupportedInstructionError, VerificationError
from ...isa import arch as isa_arch
from ...isa import dtypes
from ...isa.dtypes import DType
from ...isa.effects import Changes, Commits, Effect, Gives, Meets, Order, Takes, Waits, may_block, own_order
from ..machine.frame import Frame
from ..machine.registers import RegisterLayout, Row
from ..machine.special_values import special_row_bits
from ..machine.symbols import SharedPart, WarpRole, role_of
from .decode import AddressOperand, Decode
from .flatten import DeclaredRegister, DeclaredVariable, FlatInstruction, Flattener, JumpTarget, Scope, declared_types
from .handlers import Handler, Step

PLAIN, BRANCH, EXIT, INDEXED_BRANCH = range(4)
MANY, WHOLE, WARP, WARPGROUP = range(4)


@dataclass(eq=False)
class Operation:
    """One instruction made ready.

    Attributes:
        kind: PLAIN, BRANCH (`targets[0]`), INDEXED_BRANCH (`step` puts the index in a slot), EXIT.
        by: who a PLAIN one is executed by at once: MANY warps; WHOLE warps only, else each warp alone; each WARP alone,
            since it may block or has its place in the warp's order; a WARPGROUP.
        blocks: whether its threads may have to wait.
        members: slot of the membermask, or -1; meets_anywhere: its members may stand at different instructions.
        step: what it does to a frame; decoded at first use.
        guard, guard_negated: slot of the predicate, or -1.
        index_slot: slot of the index of an INDEXED_BRANCH.
        refresh: clocks the core must read before this instruction runs.
        bound: the row of the instruction table it was read by, with the row's names for its operands.
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
    by: int = 0
    blocks: bool = False
    members: int = -1
    meets_anywhere: bool = False
    targets: tuple[int, ...] = ()
    index_slot: int = -1
    refresh: tuple[str, ...] = ()
    polled_address: AddressOperand | None = None
    bound: Bound | None = None

    @property
    def text(self) -> str:
        return instruction_text(self.instruction)

    @property
    def effects(self) -> tuple[Effect, ...]:
        """What it does beyond its registers, as its row says."""
        return self.bound.match.effects if self.bound is not None else ()

    @cached_property
    def order(self) -> Order:
        """Its memory semantics and scope."""
        return own_order(self.effects)

    @property
    def converged(self) -> bool:
        """Whether threads of a warp execute it together."""
        return self.bound is not None and bool(self.bound.match.form.converged)

    @property
    def polls(self) -> bool:
        return self.handler is not None and self.handler.polls


@dataclass
class SharedVariable:
    """A named stretch of a CTA's shared memory."""

    name: str
    offset: int
    size: int
    part: SharedPart | None = None


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
        self.roles: tuple[WarpRole, ...] = ()
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
        self._shared_names: list[SharedVariable] = []
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

    def divide_shared(self, parts: Sequence[SharedPart]) -> None:
        """Give parts of shared variables the names their author uses, for messages."""
        starts = {variable.name: variable.offset for variable in self.shared_variables}
        for part in parts:
            if part.variable in starts and part.size:
                start, size = starts[part.variable] + part.offset, part.size // part.count
                for index in range(part.count):
                    name = f"{part.name}[{index}]" if part.count > 1 else part.name
                    self._shared_names.append(SharedVariable(name, start + index * size, size, part))

    def name_shared(self, offset: int) -> str:
        """A shared address offset as `variable+offset`, or by the author's name, for messages."""
        variable = self._shared_at(offset)
        if variable is None:
            return f"shared memory byte {offset}"
        inside = offset - variable.offset
        return f"{variable.name}+{inside}" if inside else variable.name

    def place_shared(self, offset: int) -> str:
        """As `name_shared`, with the row and the 16-byte chunk where the author's layout is known."""
        variable = self._shared_at(offset)
        place = variable.part.place(offset - variable.offset) if variable is not None and variable.part else ""
        return f"{variable.name}, {place}" if variable is not None and place else self.name_shared(offset)

    def _shared_at(self, offset: int) -> SharedVariable | None:
        for variable in (*self._shared_names, *self.shared_variables):
            if variable.offset <= offset < variable.offset + max(variable.size, 1):
                return variable
        return None

    def role(self, warp: int) -> str:
        """What the author calls this warp of a CTA; "" where that is not known."""
        return role_of(self.roles, warp)

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
        operation.bound = bound
        decode = Decode(self, operation, bound)
        operation.step = handler.decode(decode)
        operation.by = executed_by(bound, handler)
        operation.blocks = may_block(bound.match.effects)
        kind, _, operand = bound.match.form.converged.partition(":")
        if kind == "members":
            operation.members = decode.source(operand, dtypes.b32)
            operation.meets_anywhere = any(isinstance(one, Meets) and one.orders for one in bound.match.effects)

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
                raise VerificationError(
                    "brx.idx needs an index register and a .branchtargets list", where=instruction.location
                )
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


def executed_by(bound: Bound, handler: Handler) -> int:
    """See `Operation.by`."""
    form, effects = bound.match.form, bound.match.effects
    if form.converged == "warpgroup":
        return WARPGROUP
    if handler.polls or any(isinstance(one, (Waits, Takes, Gives, Commits, Changes)) for one in effects):
        return WARP
    if any(isinstance(one, Meets) and one.kind != "lanes" for one in effects):
        return WARP
    return WHOLE if form.converged else MANY


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
