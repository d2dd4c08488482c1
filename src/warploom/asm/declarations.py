"""Declarations: registers, variables, parameters. PTX ISA 5.1, 5.4 and 11.6."""

from __future__ import annotations

from ..errors import SourceLocation
from .lexer import DIRECTIVE, END
from .nodes import RegisterDeclaration, Variable
from .operands import OperandParser

_OF_POINTERS = {".ptr", ".global", ".shared", ".const", ".local", ".param"}
"""What may follow the type of a kernel's parameter."""
LINKAGE = {".extern", ".visible", ".weak", ".common"}
SPACES = {".param", ".shared", ".global", ".local", ".const"}
VECTORS = {".v2", ".v4", ".v8"}
SCALARS = {
    "b8", "b16", "b32", "b64", "b128", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64",
    "f16", "bf16", "f32", "tf32", "f64", "f16x2", "bf16x2", "e4m3", "e5m2", "e4m3x2", "e5m2x2", "pred",
    "texref", "samplerref", "surfref",
}  # fmt: skip
MAX_NAMES = 1 << 16
"""Maximum number of variables of one `name<N>`; registers are not expanded and have no limit."""


class DeclarationParser(OperandParser):
    """Parses declarations."""

    def scalar_type(self, context: str) -> str:
        """A scalar type, without its dot."""
        text = self.texts[self.at]
        if self.kinds[self.at] != DIRECTIVE or text[1:] not in SCALARS:
            self.fail(f"the type of {context} is missing", "a type such as .b32, .f32, .u64 or .pred")
        self.at += 1
        return text[1:]

    def count(self, context: str) -> int | None:
        """The `<N>` after a name, or None."""
        if not self.accept("<"):
            return None
        count = self.integer("a number of names")
        self.expect(">", f"after the number of {context}")
        return count

    def registers(self) -> list[RegisterDeclaration]:
        """The declarations after `.reg`, semicolon included. A list with counts becomes one declaration each."""
        self.at += 1
        if self.accept(".align"):  # without effect
            if self.integer("an alignment in bytes").bit_count() != 1:
                self.fail("an alignment is no power of two", "a power of two", index=self.at - 1)
        vector = self.texts[self.at][1:] if self.texts[self.at] in VECTORS else None
        self.at += vector is not None
        type_name = self.scalar_type("a register")
        found: list[RegisterDeclaration] = []
        plain: list[str] = []
        while True:
            if self.texts[self.at] == "_":
                self.fail("`_` discards a result and cannot be declared", "a register name")
            name = self.word("a register name")
            count = self.count(name)
            if count is None:
                plain.append(name)
            else:
                if plain:
                    found.append(RegisterDeclaration(type_name, tuple(plain), None, vector))
                    plain = []
                found.append(RegisterDeclaration(type_name, (name,), count, vector))
            if self.accept(";"):
                break
            if not self.accept(","):
                self.fail_after_previous("a register declaration does not end here", "`,` or `;`")
        if plain:
            found.append(RegisterDeclaration(type_name, tuple(plain), None, vector))
        return found

    def parameters(self) -> tuple[Variable, ...]:
        """Parameters or results in parentheses."""
        self.expect("(", "before the parameters")
        found: list[Variable] = []
        if self.accept(")"):
            return ()
        while True:
            found.extend(self.variable("", single=True))
            if self.accept(")"):
                return tuple(found)
            if not self.accept(","):
                self.fail_after_previous("a list of parameters does not end here", "`,` or `)`")

    def variable(self, linkage: str, single: bool = False) -> list[Variable]:
        """A variable, beginning at its space. `single`: a parameter, which ends before `,` or `)`; otherwise at `;`."""
        space = self.texts[self.at]
        if self.kinds[self.at] != DIRECTIVE or space not in SPACES | {".reg"}:
            self.fail("a declaration is missing", "a state space such as .param, .shared or .global")
        self.at += 1
        align, attributes = self._attributes(None)
        type_name = self.scalar_type("a variable")
        before = tuple(attributes)
        _, after = self._attributes(align, behind_type=True)
        found: list[Variable] = []
        while True:
            location = SourceLocation(self.tokens.name, self.tokens.line(self.at))
            name = self.word("the name of a variable")
            count = self.count(name)
            dims = self._dims()
            initializer = self._initializer() if not single and self.accept("=") else ""
            names = [name] if count is None else self._expanded(name, count)
            for one in names:
                found.append(
                    Variable(
                        space[1:], type_name, one, dims, align, linkage, initializer, before + tuple(after), location
                    )
                )
            if single or self.accept(";"):
                return found
            if not self.accept(","):
                self.fail_after_previous("the declaration of a variable does not end here", "`,` or `;`")

    def _expanded(self, name: str, count: int) -> list[str]:
        if count > MAX_NAMES:
            self.fail(f"{name}<{count}> declares more than {MAX_NAMES} variables")
        return [f"{name}{index}" for index in range(count)]

    def _attributes(self, align: int | None, behind_type: bool = False) -> tuple[int | None, list[str]]:
        """Alignment and other directives between the space and the name."""
        found: list[str] = []
        while self.kinds[self.at] == DIRECTIVE:
            text = self.texts[self.at]
            first = self.at
            if text == ".align":
                self.at += 1
                value = self.integer("an alignment in bytes")
                if behind_type:
                    found.append(f".align {value}")
                else:
                    align = value
            elif text in VECTORS or (behind_type and text in _OF_POINTERS):
                self.at += 1
                found.append(text)
            elif text == ".attribute":
                self.at += 1
                self._attribute_list(managed=True)
                found.append(self.tokens.joined(first, self.at))
            else:
                break
        return align, found

    def _attribute_list(self, managed: bool) -> None:
        """The attributes in parentheses. `managed`: of a variable, which may be .managed."""
        self.expect("(", "after .attribute")
        while True:
            if self.accept(".unified"):
                self.expect("(", "after .unified")
                self.integer("the first half of the unified identifier")
                self.expect(",", "between the halves of the unified identifier")
                self.integer("the second half of the unified identifier")
                self.expect(")", "after the unified identifier")
            elif not managed or not self.accept(".managed"):
                names = ".managed or .unified(…)" if managed else ".unified(…)"
                self.fail("the attribute is unknown here", names)
            if not self.accept(","):
                break
        self.expect(")", "after .attribute")

    def _dims(self) -> tuple[int, ...]:
        dims: list[int] = []
        while self.accept("["):
            if self.accept("]"):
                dims.append(-1)
                continue
            dims.append(self.integer("the number of elements"))
            self.expect("]", "after the number of elements")
        return tuple(dims)

    def _initializer(self) -> str:
        """The text up to the comma or semicolon that ends it."""
        first, depth, previous = self.at, 0, ","
        while True:
            text = self.texts[self.at]
            if self.kinds[self.at] == END or (text == ";" and depth):
                self.fail("an initializer is not terminated", "`}`" if depth else "`;`")
            if depth and ((text == "," and previous in ("{", ",")) or (text == "}" and previous == ",")):
                self.fail("an initializer has an empty element", "a constant or `{`")
            if (text == "{" and previous not in ("{", ",")) or (previous == "}" and text not in ("}", ",", ";")):
                self.fail("the elements of an initializer are not separated", "`,`")
            if depth == 0 and text in (",", ";"):
                break
            depth += (text in ("{", "(")) - (text in ("}", ")"))
            if depth < 0:
                self.fail("an initializer has a closing brace too many", "`,` or `;`")
            previous = text
            self.at += 1
        if first == self.at:
            self.fail("an initializer is missing after `=`", "a constant or `{`")
        return self.tokens.joined(first, self.at)
