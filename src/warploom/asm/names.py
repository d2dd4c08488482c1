"""Names in the operands of instructions: is each declared, and may what it stands for be used there?"""

from __future__ import annotations

from ..errors import SourceLocation, VerificationError
from ..isa.arch import Arch
from ..isa.instructions.schema import Match, OperandSpec
from ..isa.special_registers import SPECIAL_REGISTERS
from ..near import near
from . import widths
from .directives import version_text
from .nodes import Address, Group, Instruction, Operand, Pair, Register, Symbol, TensorAddress, Vector
from .printer import operand_text
from .scopes import HIDING, Scope


class Names:
    """Checks names against the scope of their instruction; appends what is wrong to `found`.

    target, version: of the module; special registers need some.
    """

    def __init__(self, found: list[VerificationError], target: Arch | None, version: tuple[int, int]) -> None:
        self.found = found
        self.target = target
        self.version = version

    def guard(self, instruction: Instruction, scope: Scope) -> None:
        assert instruction.guard is not None
        name = instruction.guard.register
        meaning = scope.find(name)
        if meaning is None:
            self._undeclared(name, scope, instruction.location, "the predicate", "pred")
        elif meaning.kind not in ("register", "special") or meaning.type != "pred":
            kind = f".{meaning.type} register" if meaning.kind == "register" else meaning.kind
            self._note(
                f"the guard `{name}` of `{instruction.opcode}` is not a predicate",
                where=instruction.location,
                expected="a .pred register",
                got=f"a {kind}",
            )

    def label(self, name: str, scope: Scope, where: SourceLocation | None, what: str) -> None:
        meaning = scope.find(name)
        if meaning is None:
            labels = [known for known in scope.known() if _is_label(scope, known)]
            self._note(
                f"the label {name!r} of {what} is not defined in this block or one around it",
                where=where,
                code="undeclared-name",
                hint=near(name, labels, 1),
            )
        elif meaning.kind != "label":
            kind = "special register" if meaning.kind == "special" else meaning.kind
            self._note(f"{what} goes to {name!r}, which is a {kind}", where=where, expected="a label")

    def operand(self, operand: Operand, scope: Scope, instruction: Instruction, free: bool) -> None:
        """Check that all names of an operand are declared. `free`: they may be variables as well as registers."""
        if type(operand) is Register:
            meaning = scope.find(operand.name)
            if meaning is not None and meaning.kind == "register":
                return
        where = instruction.location
        if isinstance(operand, (Register, Symbol)):
            if operand.name.startswith("%") and operand.name in SPECIAL_REGISTERS and scope.find(operand.name):
                self._special(operand.name, scope, where)
                return
            meaning = scope.find(operand.name)
            if meaning is None:
                self._undeclared(operand.name, scope, where, f"an operand of `{instruction.opcode}`")
            elif meaning.kind != "register" and not free:
                self._note(
                    f"`{operand_text(operand)}` is a {meaning.kind}, `{instruction.opcode}` takes registers only",
                    where=where,
                    expected="a register",
                    hint="take its address with mov first" if meaning.kind == "variable" else None,
                )
        elif isinstance(operand, Address):
            self.operand(operand.base, scope, instruction, free=True)
        elif isinstance(operand, TensorAddress):
            self.operand(operand.base, scope, instruction, free=True)
            for coordinate in operand.coordinates:
                self.operand(coordinate, scope, instruction, free=False)
            if operand.sampler is not None:
                self.operand(operand.sampler, scope, instruction, free=True)
        elif isinstance(operand, (Vector, Group)):
            for element in operand.elements:
                self.operand(element, scope, instruction, free)
        elif isinstance(operand, Pair):
            self.operand(operand.first, scope, instruction, free)
            self.operand(operand.second, scope, instruction, free)

    def _special(self, name: str, scope: Scope, where: SourceLocation | None) -> None:
        meaning = scope.find(name)
        if meaning is None or meaning.kind != "special":
            return
        special = SPECIAL_REGISTERS[name]
        if self.target is not None and not self.target.supports(special.arch):
            self._note(f"{name} needs {special.arch}, the target is {self.target}", where=where, code="target-lacks-it")
        elif self.version < special.ptx:
            have = version_text(self.version)
            what = f"{name} needs PTX {version_text(special.ptx)}, the text says .version {have}"
            self._note(what, where=where, code="target-lacks-it")

    def _undeclared(self, name: str, scope: Scope, where: SourceLocation | None, what: str, type_: str = "") -> None:
        whole = name.rpartition(".")[0]
        hiding = scope.find(whole) if name in SPECIAL_REGISTERS else None
        if hiding is not None and hiding.kind in HIDING:
            self._note(
                f"{what} is {name}, and the {hiding.kind} {whole!r} hides the special registers of that name",
                where=where,
                code="undeclared-name",
                hint=f"rename the {hiding.kind} {whole!r}",
            )
            return
        types = scope.types()
        candidates = [known for known in scope.known() if not type_ or types.get(known) == type_]
        self._note(
            f"{what}, {name!r}, is not declared above",
            where=where,
            code="undeclared-name",
            hint=near(name, candidates, 1),
        )

    def value(self, operand: Operand, spec: OperandSpec, row: Match, scope: Scope, instruction: Instruction) -> None:
        """Check an operand that may be the address of a variable, or a vector, whose elements may not."""
        for one in operand.elements if isinstance(operand, Vector) else (operand,):
            meaning = scope.find(one.name) if isinstance(one, (Register, Symbol)) else None
            if meaning is None or meaning.kind in ("register", "special"):
                continue
            expected = widths.name_misfit(row, spec, meaning.kind, meaning.space)
            if expected is not None:
                what = f"`{operand_text(one)}` is a {meaning.kind} that `{instruction.opcode}` cannot take"
                self._note(what, where=instruction.location, expected=expected, got=operand_text(one),
                           code="wrong-operands")  # fmt: skip

    def _note(self, what: str, where: SourceLocation | None = None, **parts: str | None) -> None:
        self.found.append(VerificationError(what, where=where, **parts))


def _is_label(scope: Scope, name: str) -> bool:
    meaning = scope.find(name)
    return meaning is not None and meaning.kind == "label"
