"""A kernel, ready to run: its operations, registers and variables.

Operations are decoded by `decode` and the handlers of `ops`; the scheduler runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from ...asm import textures
from ...asm.binding import Bound
from ...asm.forms import FormBinder
from ...asm.nodes import (
    Function,
    Instruction,
    Module,
    Operand,
    Register,
    Symbol,
    names_in,
)
from ...errors import UnsupportedInstructionError, VerificationError
from ...isa import arch as isa_arch
from ...isa import dtypes
from ...isa.effects import (
    Allocates,
    Changes,
    Commits,
    Destroys,
    Frees,
    Starts,
    Synchronises,
    Waits,
    is_seen_by_others,
    may_block,
)
from ...isa.instructions.schema import Match
from ..machine import initialiser
from ..machine.frame import Frame
from ..machine.image import Image, SharedVariable
from ..machine.operation import BRANCH, EXIT, INDEXED_BRANCH, MANY, MANY_SEEN, PLAIN, WARP, WARPGROUP, WHOLE, Operation
from ..machine.scopes import DeclaredRegister, DeclaredTypes, DeclaredVariable, JumpTarget, Scope, rows_named
from ..machine.special_values import RESERVED_END, RESERVED_PARTS
from .decode import Decode
from .external import external_call
from .flatten import FlatInstruction, Flattener
from .handlers import Handler, Step, asks_for_whole_warps, by_whole_warps

STACK_BYTES = 16 << 10
"""Stack bytes of a thread that uses alloca. A driver gives 1 KiB unless cudaLimitStackSize says more."""


class Code(Image):
    """A kernel, ready to run; see the module's docstring.

    Raises VerificationError for anything the instruction table rejects, UnsupportedInstructionError for a row without
    a handler (at the instruction, when it is decoded).
    """

    def __init__(self, module: Module, entry: Function, handlers: Mapping[str, Handler], dynamic_smem: int = 0) -> None:
        super().__init__(entry, isa_arch.get(module.arch))
        self.module = module
        self.handlers = handlers
        self.module_buffers: dict[str, DeclaredVariable] = {}
        flattener = Flattener(module, entry, self.layout)
        self.flattener = flattener
        self.parameters = flattener.parameters
        self.function_addresses = flattener.addresses
        self._lay_out_parameters()
        self._lay_out_variables(flattener, dynamic_smem)
        self._types: dict[int, Mapping[str, str]] = {}
        self._forms = FormBinder()
        self._executed: dict[Match, tuple[bool, int, bool, bool]] = {}
        for flat in flattener.flat:
            self.operations.append(self._operation(flat))
        end = Instruction("exit", location=self.operations[-1].instruction.location if self.operations else None)
        self.operations.append(Operation(len(self.operations), end, EXIT, flattener.root))
        for operation, flat in zip(self.operations, flattener.flat, strict=False):
            self._link(operation, flat)
        self._let_run_before_use()

    # -- layouts -------------------------------------------------------------------------------------------------

    def _lay_out_parameters(self) -> None:
        offset = 0
        for parameter in self.parameters:
            offset = -(-offset // parameter.alignment) * parameter.alignment
            parameter.offset = offset
            offset += parameter.size
        self.parameter_bytes = offset

    def _lay_out_variables(self, flattener: Flattener, dynamic_smem: int) -> None:
        names = self._names_used()
        used = initialiser.reached(names, flattener.variables)
        if names & RESERVED_PARTS:
            self.reserved_shared = RESERVED_END
        start = self.arch.shared_reserved if self.arch.number >= 90 or self.reserved_shared else 0
        self.shared_start = start
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
        self.shared_size = shared + dynamic_smem
        self.stack_start = -(-local // 16) * 16
        grows = any(flat.instruction.opcode.startswith("alloca") for flat in flattener.flat)
        self.local_bytes = self.stack_start + (STACK_BYTES if grows else 0)

    def _names_used(self) -> set[str]:
        found: set[str] = set()
        for flat in self.flattener.flat:
            for operand in flat.instruction.operands:
                if type(operand) is Register:  # the usual case
                    found.add(operand.name)
                else:
                    found.update(names_in(operand))
        return found

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
                raise VerificationError(
                    f"the guard {guard.register} is not a predicate", where=flat.instruction.location
                )
            operation.guard = self.layout.slot(found.row, dtypes.pred)
            operation.guard_negated = guard.negated
        if kind == PLAIN and base != "call":
            self._decode(operation)
        elif base == "call":
            operation.step = external_call(flat.instruction, flat.scope, self.layout)
        return operation

    def _decode(self, operation: Operation) -> None:
        instruction, scope = operation.instruction, operation.scope
        types = self._types.get(scope.number)
        if types is None:
            types = self._types[scope.number] = DeclaredTypes(scope)
        bound = self._forms.bind(instruction, types)
        handler = self.handlers.get(bound.match.form.key)
        if handler is None:
            raise UnsupportedInstructionError(
                f"the emulator does not support {instruction.opcode}",
                where=instruction.location,
                got=operation.text,
                hint="textures and surfaces are verified but not emulated: read and write global memory by ld and st"
                if any(spec.space in textures.SPACES for spec in bound.match.form.operands)
                else 'CONTRIBUTING.md, "how to add an instruction"',
            )
        operation.polls = handler.polls
        operation.bound = bound
        decode = Decode(self, operation, bound)
        operation.step = handler.decode(decode)
        known = self._executed.get(bound.match)
        if known is None:
            known = self._executed[bound.match] = (
                asks_for_whole_warps(bound.match.converged, bound.match.effects),
                executed_by(bound, handler),
                may_block(bound.match.effects),
                is_seen_by_others(bound.match.effects),
            )
        whole, operation.by, operation.blocks, operation.seen = known
        if whole:
            operation.step = by_whole_warps(operation.step)
        kind, _, operand = bound.match.converged.partition(":")
        if kind == "members":
            operation.members = decode.source(operand, dtypes.b32)
            operation.meets_anywhere = any(isinstance(one, Synchronises) and one.orders for one in bound.match.effects)

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

    def _let_run_before_use(self) -> None:
        asked: dict[tuple[int, int], list[Callable[[Frame], None]]] = {}
        for rows, hook in self.before_use:
            for row in rows:
                asked.setdefault(row, []).append(hook)
        for operation in self.operations if asked else ():
            if operation.step is None or operation.by == WARPGROUP:  # MMAs run in order and take accumulators over
                continue
            named = (rows_named(operation.scope, operand) for operand in operation.instruction.operands)
            hooks = dict.fromkeys(hook for rows in named for row in rows for hook in asked.get(row, ()))
            if hooks:
                operation.step = _after(tuple(hooks), operation.step)

    def _label(self, operand: Operand, scope: Scope, instruction: Instruction) -> JumpTarget:
        name = getattr(operand, "name", "")
        found = scope.find(name)
        if not isinstance(found, JumpTarget):
            raise VerificationError(f"the label {name!r} is not defined", where=instruction.location)
        return found


def _after(hooks: tuple[Callable[[Frame], None], ...], step: Step) -> Step:
    def hooked(frame: Frame) -> object:
        for hook in hooks:
            hook(frame)
        return step(frame)

    return hooked  # type: ignore[return-value]


class Codes:
    """The kernels of one module, ready to run and cached between runs.

    A run has its `Code` to itself: two simultaneous runs of one kernel get separate ones.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self._idle: dict[tuple[str, int], Code] = {}

    @contextmanager
    def taken(self, entry: Function, handlers: Mapping[str, Handler], dynamic_smem: int) -> Iterator[Code]:
        """A kernel for one run, with that much dynamic shared memory."""
        key = (entry.name, dynamic_smem)
        code = self._idle.pop(key, None) or Code(self.module, entry, handlers, dynamic_smem)
        try:
            yield code
        finally:
            code.restore()
            self._idle[key] = code


def executed_by(bound: Bound, handler: Handler) -> int:
    """See `Operation.by`."""
    form, effects = bound.match.form, bound.match.effects
    if form.converged == "warpgroup":
        return WARPGROUP
    if handler.polls or any(isinstance(one, (Waits, Allocates, Frees, Commits, Changes, Destroys)) for one in effects):
        return WARP
    if any(isinstance(one, Synchronises) and one.kind != "lanes" for one in effects):
        return WARP
    if any(isinstance(one, Starts) and one.parts == "warp" for one in effects) and form.converged:
        return WARP  # the operation belongs to the warp
    return WHOLE if form.converged else MANY_SEEN if is_seen_by_others(effects) else MANY
