"""A function's tree as one list of operations: blocks flattened, scopes resolved, calls inlined.

Names in PTX are scoped by braces: registers, variables and labels of an inner block hide those outside. Every
declaration gets its own identity here, so later stages see no names. A call is replaced by its callee's body with
fresh registers; its `ret` jumps to the instruction after the call. A call through a register becomes comparisons with
the address of each function that it may reach, and their bodies. Recursion is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...asm.nodes import (
    Address,
    Block,
    Directive,
    Function,
    Group,
    Guard,
    Instruction,
    Integer,
    Label,
    Module,
    Operand,
    Register,
    RegisterDeclaration,
    Statement,
    Symbol,
    Variable,
    instructions_of,
)
from ...errors import EmulationError, UnsupportedInstructionError, VerificationError
from ...isa import dtypes
from ...isa.special_registers import SPECIAL_REGISTERS, is_special
from ..machine.registers import RegisterLayout
from ..machine.scopes import DeclaredRegister, DeclaredVariable, JumpTarget, Scope
from .external import KNOWN

MAX_CALL_DEPTH = 16
MOST = 1 << 18
"""Number of instructions at which inlining stops."""


@dataclass
class FlatInstruction:
    """An instruction with the scope its names live in. `returns_to` is set for a `ret` of a callee."""

    instruction: Instruction
    scope: Scope
    returns_to: JumpTarget | None = None


class Flattener:
    """Builds the flat list of one kernel. See the module's docstring."""

    def __init__(self, module: Module, entry: Function, layout: RegisterLayout) -> None:
        self.module = module
        self.layout = layout
        self.flat: list[FlatInstruction] = []
        self.positions: dict[JumpTarget, int] = {}
        self.variables: list[DeclaredVariable] = []
        self.addresses = addresses_of(module)
        self._taken: set[str] | None = None
        self._calls: list[str] = []
        self._scopes = 0
        self._call_labels = 0
        root = self._scope(None)
        for item in module.items:
            if isinstance(item, Variable):
                self._declare(root, item)
            elif isinstance(item, Function) and not isinstance(root.names.get(item.name), Function):
                root.names[item.name] = item
            elif isinstance(item, Function) and item.body is not None:
                root.names[item.name] = item
        self.root = root
        body = self._scope(root)
        self.parameters: list[DeclaredVariable] = [self._declare(body, parameter) for parameter in entry.parameters]
        self._statements(entry.body or (), body, None, 0)

    def _scope(self, parent: Scope | None) -> Scope:
        self._scopes += 1
        return Scope(parent=parent, number=self._scopes)

    def _declare(self, scope: Scope, node: Variable) -> DeclaredVariable:
        variable = DeclaredVariable(node, node.space)
        scope.names[node.name] = variable
        self.variables.append(variable)
        return variable

    def _declare_registers(self, scope: Scope, node: RegisterDeclaration) -> None:
        bits = dtypes.ALL[node.type].register_bits
        for name in node.every_name():
            scope.names[name] = DeclaredRegister(node.type, self.layout.new_row(bits))

    def _statements(
        self, statements: tuple[Statement, ...], scope: Scope, returns_to: JumpTarget | None, depth: int
    ) -> None:
        number = scope.number
        for statement in statements:  # a jump may go forward
            if isinstance(statement, Label) and not is_special(statement.name):
                scope.names[statement.name] = JumpTarget(statement.name, number)
        pending_label = ""
        for statement in statements:
            if isinstance(statement, (RegisterDeclaration, Variable)):
                names = statement.every_name() if isinstance(statement, RegisterDeclaration) else (statement.name,)
                if self.flat and any(name in SPECIAL_REGISTERS or scope.find(name) for name in names):
                    scope = self._scope(scope)  # before it, the names mean others
                if isinstance(statement, Variable):
                    self._declare(scope, statement)
                else:
                    self._declare_registers(scope, statement)
            elif isinstance(statement, Label):
                if is_special(statement.name):  # it is the register up to here
                    scope = self._scope(scope)
                    scope.names[statement.name] = JumpTarget(statement.name, number)
                self.positions[JumpTarget(statement.name, number)] = len(self.flat)
                pending_label = statement.name
            elif isinstance(statement, Block):
                self._statements(statement.statements, self._scope(scope), returns_to, depth)
            elif isinstance(statement, Instruction):
                if statement.opcode.split(".")[0] == "call":
                    self._call(statement, scope, depth)
                else:
                    self.flat.append(FlatInstruction(statement, scope, returns_to))
            elif isinstance(statement, Directive) and statement.name == "branchtargets" and pending_label:
                words = statement.text.replace(",", " ").replace(";", " ").split()
                scope.branch_targets[pending_label] = tuple(words)

    # -- calls ---------------------------------------------------------------------------------------------------

    def _call(self, call: Instruction, scope: Scope, depth: int) -> None:
        """Inline the callee's body."""
        groups = [operand.elements for operand in call.operands if isinstance(operand, Group)]
        names = [operand for operand in call.operands if isinstance(operand, (Symbol, Register))]
        callee = scope.find(names[0].name) if names else None
        has_results = bool(call.operands) and isinstance(call.operands[0], Group)
        results = groups[0] if has_results else ()
        arguments = groups[-1] if len(groups) > (1 if has_results else 0) else ()
        if not isinstance(callee, Function):
            self._indirect(call, names[0], arguments, results, scope, depth)
            return
        if callee.body is None:
            self._external(call, callee, arguments, results, scope)
            return
        self._in_line(call, callee, arguments, results, scope, depth)

    def _in_line(
        self, call: Instruction, callee: Function, arguments: Sequence[Operand], results: Sequence[Operand],
        scope: Scope, depth: int,
    ) -> None:  # fmt: skip
        if depth >= MAX_CALL_DEPTH or len(self.flat) > MOST:
            raise EmulationError(
                f"{callee.name} calls itself, or calls nest deeper than {MAX_CALL_DEPTH}",
                where=call.location,
                hint="the emulator inlines calls: write the recursion as a loop",
            )
        for what, formals, actuals in (
            ("arguments", callee.parameters, arguments),
            ("results", callee.results, results),
        ):
            if len(formals) != len(actuals):
                raise EmulationError(
                    f"{callee.name} has {len(formals)} {what} and is called with {len(actuals)}", where=call.location
                )
        self._call_labels += 1
        after_call = JumpTarget(f"$after call {self._call_labels}", 0)
        inner = self._scope(self.root)
        skip, skipped = call.guard, JumpTarget(f"$behind call {self._call_labels}", 0)
        bare = replace(call, guard=None)
        if skip is not None:
            self._jump(skipped, scope, Guard(skip.register, not skip.negated), call)
        for formal, actual in zip(callee.parameters, arguments, strict=False):
            for own, passed in self._bind(inner, formal, actual, scope, call):
                self._move(own, passed, call)
        given_back = [
            registers
            for formal, actual in zip(callee.results, results, strict=False)
            for registers in self._bind(inner, formal, actual, scope, call)
        ]
        keeps = allocates(callee)
        if keeps:  # its stack allocations end with it
            saved = self._scope(inner)
            saved.names["%stack"] = DeclaredRegister("u64", self.layout.new_row(64))
            self._inserted("stacksave.u64", (Register("%stack"),), bare, saved)
        self._calls.append(callee.name)
        self._statements(callee.body or (), inner, after_call, depth + 1)
        self._calls.pop()
        self.positions[after_call] = len(self.flat)
        if keeps:
            self._inserted("stackrestore.u64", (Register("%stack"),), bare, saved)
        for own, wanted in given_back:
            self._move(wanted, own, call)
        self.positions[skipped] = len(self.flat)

    def _indirect(
        self, call: Instruction, pointer: Operand, arguments: Sequence[Operand], results: Sequence[Operand],
        scope: Scope, depth: int,
    ) -> None:  # fmt: skip
        """A call through a register: to each function whose address is taken and whose parameters match."""
        if self._taken is None:
            self._taken = taken(self.module)
        found = scope.find(getattr(pointer, "name", ""))
        if not isinstance(found, DeclaredRegister):
            raise VerificationError(f"{getattr(pointer, 'name', pointer)} is not a function", where=call.location)
        self._call_labels += 1
        number = self._call_labels
        done, inner = JumpTarget(f"$after call {number}", 0), self._scope(scope)
        inner.names |= {
            "%other": DeclaredRegister("pred", self.layout.new_row(dtypes.pred.register_bits)),
            "%pointer": found,
        }
        if call.guard is not None:
            self._jump(done, scope, Guard(call.guard.register, not call.guard.negated), call)
        bare = replace(call, guard=None)
        for at, name in enumerate(sorted(self._taken & set(self.addresses))):
            callee = self.root.names[name]
            if not isinstance(callee, Function) or name in self._calls:
                continue
            if not self._fits(callee.parameters, arguments, scope) or not self._fits(callee.results, results, scope):
                continue
            behind = JumpTarget(f"$behind call {number} {at}", 0)
            address = Integer(self.addresses[name])
            self._inserted("setp.ne.u64", (Register("%other"), Register("%pointer"), address), bare, inner)
            self._jump(behind, inner, Guard("%other", False), call)
            self._in_line(bare, callee, arguments, results, scope, depth)
            self._jump(done, inner, None, call)
            self.positions[behind] = len(self.flat)
        self.flat.append(FlatInstruction(bare, scope))
        self.positions[done] = len(self.flat)

    @staticmethod
    def _fits(formals: Sequence[Variable], actuals: Sequence[Operand], scope: Scope) -> bool:
        """True if a function's parameters match what a call passes."""
        found = [scope.find(getattr(actual, "name", "")) for actual in actuals]
        passed = [one.size if isinstance(one, DeclaredVariable) else dtypes.ALL[one.type].bytes
                  for one in found if isinstance(one, (DeclaredVariable, DeclaredRegister))]  # fmt: skip
        return sizes(formals) == passed

    def _external(
        self,
        call: Instruction,
        callee: Function,
        arguments: Sequence[Operand],
        results: Sequence[Operand],
        scope: Scope,
    ) -> None:
        """A function without a body: a known one takes registers, so .param variables are copied around it."""
        formals, actuals = (*callee.parameters, *callee.results), (*arguments, *results)
        if callee.name not in KNOWN or len(actuals) != len(formals):
            self.flat.append(FlatInstruction(call, scope))
            return
        inner = self._scope(scope)
        own = [Register(f"%{number}") for number in range(len(formals))]
        for mine, formal in zip(own, formals, strict=True):
            row = self.layout.new_row(dtypes.ALL[formal.type].register_bits)
            inner.names[mine.name] = DeclaredRegister(formal.type, row)

        def copy(at: int, back: bool) -> None:
            mine, outside, kind = own[at], actuals[at], formals[at].type
            if isinstance(scope.find(getattr(outside, "name", "")), DeclaredVariable):
                opcode, outside = f"{'st' if back else 'ld'}.param.{kind}", Address(outside)  # type: ignore[arg-type]
            else:
                opcode = f"mov.{kind}"
            self._inserted(opcode, (outside, mine) if back else (mine, outside), call, inner)

        for at in range(len(arguments)):
            copy(at, back=False)
        self._inserted("call", (Symbol(callee.name), *own), call, inner)
        for at in range(len(arguments), len(formals)):
            copy(at, back=True)

    def _inserted(self, opcode: str, operands: tuple[Operand, ...], call: Instruction, scope: Scope) -> None:
        made = Instruction(opcode, operands, call.guard, call.location, call.ptx_line)
        self.flat.append(FlatInstruction(made, scope))

    def _bind(
        self,
        inner: Scope,
        formal: Variable,
        actual: Operand,
        outer: Scope,
        call: Instruction,
    ) -> list[tuple[DeclaredRegister, DeclaredRegister]]:
        """Let a formal parameter name what the caller passes: the same variable, or a separate register.

        Returns that register and the caller's: a function may write its arguments, and its results before it has read
        all arguments.
        """
        name = actual.name if isinstance(actual, (Register, Symbol)) else None
        found = outer.find(name) if name else None
        if isinstance(found, DeclaredVariable):
            inner.names[formal.name] = found
            return []
        if isinstance(found, DeclaredRegister):
            own = DeclaredRegister(formal.type, self.layout.new_row(dtypes.ALL[formal.type].register_bits))
            inner.names[formal.name] = own
            return [(own, found)]
        raise UnsupportedInstructionError(
            "a call passes something that is neither a register nor a .param variable", where=call.location
        )

    def _move(self, target: DeclaredRegister, source: DeclaredRegister, call: Instruction) -> None:
        scope = self._scope(self.root)
        scope.names.update({"%to": target, "%from": source})
        bits = dtypes.ALL[target.type].register_bits
        kind = "pred" if target.type == "pred" else f"b{bits}"
        move = Instruction(f"mov.{kind}", (Register("%to"), Register("%from")), None, call.location, call.ptx_line)
        self.flat.append(FlatInstruction(move, scope))

    def _jump(self, target: JumpTarget, scope: Scope, guard: Guard | None, source: Instruction) -> None:
        scope.names[target.name] = target
        jump = Instruction("bra", (Symbol(target.name),), guard, source.location)
        self.flat.append(FlatInstruction(jump, scope))


# -- functions as values -------------------------------------------------------------------------------------------


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
