"""The errors in a PTX tree, found before ptxas or the emulator sees it.

Checks the target and the PTX version, every instruction against the instruction table, every name against the
declarations, and the limits of a kernel's head. Each finding is a sentence with the user's location.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ..errors import PtxSyntaxError, SourceLocation, VerificationError
from ..isa.arch import Arch
from ..isa.instructions import table
from ..isa.instructions.schema import Match, OperandSpec
from . import textures
from .addresses import wrong_address
from .binding import Bound, bind
from .calls import Calls, wrong_targets
from .cta_groups import mixed_groups
from .directives import constant_memory, limits, prototypes, target_of, version_text
from .forms import constants_of, form_of
from .function_heads import wrong_aliases, wrong_directives
from .immediates import depends_on_constants, out_of_range
from .initial_values import Complaint
from .names import Names
from .nodes import (
    JUMP_TABLE,
    Address,
    Block,
    Directive,
    Function,
    Instruction,
    Module,
    RegisterDeclaration,
    Statement,
    TensorAddress,
    Variable,
)
from .printer import operand_text
from .prototypes import prototype
from .scopes import Scope, declare, declare_item, declare_labels, function_scope, second_places
from .variables import wrong_type, wrong_variable


def verify(module: Module, arch: str | None = None) -> list[VerificationError]:
    """All errors in a module, in the order of its text.

    Args:
        module: the tree.
        arch: the machine to run on, if that is not the module's own target: "sm_90a". Features of `sm_90a` run only on
            that chip, plain ones also on any later chip.
    """
    return _Verifier(module, arch).run()


def check(module: Module, arch: str | None = None) -> None:
    """Raise the first VerificationError of `verify`, if there is any."""
    found = verify(module, arch)
    if found:
        raise found[0]


class _Verifier:
    def __init__(self, module: Module, machine: str | None) -> None:
        self.module = module
        self.machine = machine
        self.found: list[VerificationError] = []
        self.rows: dict[str, tuple[tuple[Match, ...], tuple[Match, ...]]] = {}
        self.good: set[tuple[Any, ...]] = set()  # forms of instructions without errors
        self.by_constants: set[tuple[Any, ...]] = set()  # forms whose validity depends on their constants
        self.target: Arch | None = None
        self.independent = "texmode_independent" in module.target
        self.scope = Scope()
        self.functions = {each.name: each for each in sorted(module.functions, key=lambda each: each.body is not None)}
        self.near: SourceLocation | None = None  # of the last instruction; labels and declarations have none

    def run(self) -> list[VerificationError]:
        self.target, wrong = target_of(self.module, self.machine)
        self.names = Names(self.found, self.target, self.module.version)
        self.found += wrong
        self.found += [*constant_memory(self.module), *prototypes(self.module), *wrong_aliases(self.module)]
        bodies: set[str] = set()
        for item in self.module.items:
            if isinstance(item, (Variable, Function)):
                declare_item(self.scope, item, bodies)
            if isinstance(item, Variable):
                self._complain(wrong_variable(item, "module", self.scope, self.independent), item.location)
            elif isinstance(item, Function):
                self._function(item)
        for name in self.scope.duplicates:
            self._note(f"{name!r} is defined twice in the module")
        return self.found

    def _note(self, what: str, where: SourceLocation | None = None, **parts: str | None) -> None:
        self.found.append(VerificationError(what, where=where, **parts))

    def _complain(
        self, complaints: Iterable[Complaint], where: SourceLocation | None = None, code: str = "verification"
    ) -> None:
        for what, expected in complaints:
            self._note(what, where=where, expected=expected, code=code)

    # -- the instruction table -----------------------------------------------------------------------------------

    def _row_complaint(self, row: Match, whole: str) -> tuple[str, str | None] | None:
        """The objection of the target, the version or the row's own check to a row: a sentence and a hint, or None."""
        form = row.form
        requirements = [(form.arch, form.ptx, f"`{whole}`")]
        for chosen, arch, ptx in form.requirements(row.modifiers):
            requirements.append((arch, ptx, f"`{chosen}` of `{whole}`" if chosen else f"`{whole}`"))
        for needed, version, what in requirements:
            if self.target is not None and not self.target.supports(needed):
                return f"{what} needs {_any(needed)}, the target is {self.target}", self._target_hint(needed)
            if self.module.version < version:
                have = version_text(self.module.version)
                return f"{what} needs PTX {version_text(version)}, the text says .version {have}", None
        wrong = form.check(row.modifiers) if form.check is not None else None
        return (f"`{whole}`: {wrong}", None) if wrong else None

    def _target_hint(self, needed: str) -> str | None:
        assert self.target is not None
        for word in needed.split():
            if word[-1] in "af" and re.sub(r"\D", "", word) == str(self.target.number):
                return f"write {word} for {self.target}: the plain target lacks the instructions of this very chip"
        return None

    # -- functions -----------------------------------------------------------------------------------------------

    def _head(self, function: Function) -> None:
        self.found += [*limits(self.module, function, self.target), *wrong_directives(self.module, function)]
        for variable in (*function.results, *function.parameters):
            complaints = wrong_variable(variable, function.kind, self.scope, self.independent)
            self._complain(complaints, variable.location)

    def _function(self, function: Function) -> None:
        self._head(function)
        if function.body is None:
            return
        self.calls = Calls(self.functions, function)
        scope = function_scope(function, self.scope)
        self.near = None
        self._block(function.body, scope, function.name)
        self.found += mixed_groups(function)

    # -- statements ----------------------------------------------------------------------------------------------

    def _block(self, statements: tuple[Statement, ...], scope: Scope, function: str) -> None:
        self.near = next((item.location for item in statements if isinstance(item, Instruction)), self.near)
        declare_labels(scope, statements)
        for at, statement in enumerate(statements):
            if isinstance(statement, Instruction):
                self.near = statement.location
                form = form_of(statement, scope.types())
                key = form
                if form is not None and form in self.by_constants:
                    key = (form, constants_of(statement))
                if key is None or key not in self.good:
                    self._instruction(statement, scope, form, key)
            elif isinstance(statement, Block):
                self._block(statement.statements, Scope(scope), function)
            elif not declare(scope, statements, at):
                name, count = statement.names[0], statement.count  # type: ignore[union-attr]
                self._note(f"{name}<{count}> in {function} declares too many registers", where=self.near)
            elif isinstance(statement, Variable):
                self._complain(
                    wrong_variable(statement, "body", self.scope, self.independent), statement.location or self.near
                )
            elif isinstance(statement, RegisterDeclaration):
                vector = int((statement.vector or "v1")[1:])
                self._complain(wrong_type(f"the register {statement.names[0]}", statement.type, vector), self.near)
            elif isinstance(statement, Directive) and statement.name == JUMP_TABLE:
                for name in statement.text.replace(",", " ").split():
                    self.names.label(name, scope, self.near, ".branchtargets")
            elif isinstance(statement, Directive) and statement.name == "calltargets":
                self._complain(wrong_targets(statement, scope), self.near, "undeclared-name")
            elif isinstance(statement, Directive) and statement.name == "callprototype":
                self._prototype(statement)
        places = second_places(statements) if scope.duplicates else {}
        for name in dict.fromkeys(scope.duplicates):
            self._note(
                f"the {scope.names[name].kind} {name!r} is declared twice in one block of {function}",
                where=places.get(name) or self.near,
            )

    def _prototype(self, statement: Directive) -> None:
        before = len(self.found)
        try:
            self._head(prototype("_", statement.text))
        except PtxSyntaxError as error:
            self._note(f".callprototype: {error.what}", expected=_text(error.expected), got=_text(error.got))
        for complaint in self.found[before:]:
            complaint.where = self.near

    def _instruction(
        self, instruction: Instruction, scope: Scope, form: tuple[Any, ...] | None, key: tuple[Any, ...] | None
    ) -> None:
        """Check one instruction. `key`: its form, with its constants if they matter, which is recorded as valid if
        there are no errors."""
        before = len(self.found)
        if instruction.guard is not None:
            self.names.guard(instruction, scope)
        bound = self._bound(instruction, scope)
        if bound is None:
            return
        self._operands(instruction, bound, scope)
        if bound.match.form.base in ("call", "brx"):
            self._complain(self.calls.wrong(instruction, scope), instruction.location, "wrong-operands")
        if form is None or key is None or len(self.found) > before:
            return
        if depends_on_constants(bound.match) and key is form:
            self.by_constants.add(form)
            return
        if not any(spec.kind in ("label", "symbol") for spec in bound.match.form.operands):
            self.good.add(key)

    def _operands(self, instruction: Instruction, bound: Bound, scope: Scope) -> None:
        """Check the names in the operands, and the bases of addresses."""
        for what, expected, got in out_of_range(bound.match, bound.operands):
            self._note(f"{what} of `{instruction.opcode}` is out of range", where=instruction.location,
                       expected=expected, got=str(got), code="immediate-range")  # fmt: skip
        kinds = {spec.name: spec for spec in bound.match.form.operands}
        for name, operand in bound.operands.items():
            spec = kinds.get(name)
            if spec is not None and spec.kind == "label":
                self.names.label(getattr(operand, "name", ""), scope, instruction.location, f"`{instruction.opcode}`")
            elif spec is not None and spec.kind in ("any", "symbol"):
                self.names.operand(operand, scope, instruction, free=True)
            else:
                free = spec is not None and spec.variables != ""
                self.names.operand(operand, scope, instruction, free)
                if free and spec is not None:
                    self.names.value(operand, spec, bound.match, scope, instruction)
            if spec is not None and spec.space in textures.SPACES and isinstance(operand, (Address, TensorAddress)):
                complaints = textures.wrong_operand(operand, spec, bound.match, scope, self.independent)
                self._complain(complaints, instruction.location, "wrong-operands")
            elif isinstance(operand, Address) and spec is not None:
                self._address(operand, spec, bound.match, scope, instruction)
            elif isinstance(operand, TensorAddress) and spec is not None:
                self._address(operand.base, replace(spec, space="global"), bound.match, scope, instruction)

    def _bound(self, instruction: Instruction, scope: Scope) -> Bound | None:
        """The instruction bound to a row that the target and version have, if there is one; otherwise a note."""
        rows, good = self._rows(instruction.opcode)
        types = scope.types()
        try:
            if good:
                try:
                    return bind(instruction, types, lambda _: good)
                except VerificationError:
                    if len(good) == len(rows):
                        raise
            bound = bind(instruction, types)
        except VerificationError as error:
            # An undeclared name is a likelier cause than a row that does not fit.
            before = len(self.found)
            for operand in instruction.operands:
                self.names.operand(operand, scope, instruction, free=True)
            if len(self.found) > before:
                return None
            # If no row has the opcode here at all, its operands do not matter.
            complaint = self._row_complaint(rows[0], instruction.opcode) if rows and not good else None
            if complaint is None:
                self.found.append(error)
            else:
                what, hint = complaint
                self._note(what, where=instruction.location, got=instruction.opcode, hint=hint, code="target-lacks-it")
            return None
        complaint = self._row_complaint(bound.match, instruction.opcode)
        if complaint is not None:
            what, hint = complaint
            self._note(what, where=instruction.location, got=instruction.opcode, hint=hint, code="target-lacks-it")
        return bound

    def _rows(self, opcode: str) -> tuple[tuple[Match, ...], tuple[Match, ...]]:
        """The rows of an opcode, and those of them that the target and version have."""
        found = self.rows.get(opcode)
        if found is None:
            rows = tuple(table.match(opcode))
            found = self.rows[opcode] = rows, tuple(row for row in rows if self._row_complaint(row, opcode) is None)
        return found

    # -- names ---------------------------------------------------------------------------------------------------

    def _address(self, operand: Address, spec: OperandSpec, row: Match, scope: Scope, instruction: Instruction) -> None:
        for what, expected in wrong_address(operand, spec, row, scope, self.calls.caller):
            got = operand_text(operand)
            self._note(what, where=instruction.location, expected=expected, got=got, code="wrong-operands")


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _any(needed: str) -> str:
    return " or ".join(needed.split())
