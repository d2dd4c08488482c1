"""PTX text to tree: modules, functions, statements and directives.

Parses hand-written PTX and the output of nvcc and Triton. Opcodes are not looked up here: an unknown one is parsed like
any other, and the verifier or the emulator rejects it. PTX ISA 4 and 11.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ..errors import SourceLocation
from ..isa.instructions.word_order import canonical
from .declarations import LINKAGE, SPACES, DeclarationParser
from .lexer import DIRECTIVE, END, NUMBER, PUNCTUATION, STRING, WORD, Tokens, tokenize
from .nodes import (
    TABLES,
    Block,
    Directive,
    Function,
    Guard,
    Instruction,
    Label,
    LocDirective,
    Module,
    Statement,
    Variable,
)

_LINES_OF_INTEGERS = {
    ".maxntid", ".reqntid", ".minnctapersm", ".maxnctapersm", ".maxnreg", ".reqnctapercluster", ".maxclusterrank",
    ".abi_preserve", ".abi_preserve_control",
}  # fmt: skip
_BARE = {".explicitcluster", ".blocksareclusters", ".noreturn"}
_IN_BODIES = {".pragma", ".alias", *(f".{name}" for name in TABLES)}
_NAME = r"[^\s,]+"
_UNTIL_SEMICOLON = {
    ".branchtargets": (rf"{_NAME}( ?, ?{_NAME})*", "labels"),
    ".calltargets": (rf"{_NAME}( ?, ?{_NAME})*", "functions"),
    ".callprototype": (
        r"_.*|\( ?\) ?_.*|\([^)]+\) ?_((?!\.noreturn).)*",
        "(results) _ (parameters)",
    ),
    ".alias": (r".+", "a name, a comma and a function"),
}  # fmt: skip
"""Directives up to a semicolon: the pattern of their text, and the same in words."""


def parse(text: str, name: str = "<ptx>") -> Module:
    """The tree of a PTX text.

    Args:
        text: PTX; comments are dropped.
        name: name of the text in locations and errors, such as its path.

    Raises:
        PtxSyntaxError: with line and column, and the expected syntax.
    """
    return Parser(tokenize(text, name)).module()


class Parser(DeclarationParser):
    """One pass over the tokens of a module."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__(tokens)
        self.files = self._files()
        self._location: SourceLocation | None = None  # of the last .loc
        self._calls: dict[tuple[int, ...], SourceLocation | None] = {}  # the call site of an inlined .loc

    def _files(self) -> dict[int, str]:
        """File number -> path. `.file` is often at the end of a text, so it is searched for beforehand."""
        found = {}
        for index, text in enumerate(self.texts):
            if text == ".file" and self.kinds[index + 1] == NUMBER and self.kinds[index + 2] == STRING:
                number = self.texts[index + 1]
                if number.isdigit() and len(number) < 10:
                    found[int(number)] = self.texts[index + 2][1:-1]
        return found

    # -- module level --------------------------------------------------------------------------------------------

    def module(self) -> Module:
        """The whole text."""
        if not self.accept(".version"):
            self.fail("the text does not begin with .version", ".version and a number such as 8.7")
        version = self._version()
        target: list[str] = []
        address_size: int | None = None
        items: list[Directive | Variable | Function] = []
        while self.kinds[self.at] != END:
            if self.accept(".target"):
                target.append(self.word("a target such as sm_90a"))
                while self.accept(","):
                    target.append(self.word("a target such as sm_90a"))
            elif not target:
                self.fail(".target is missing after .version", ".target and a target such as sm_90a")
            elif self.accept(".address_size"):
                address_size = self.integer("32 or 64")
            else:
                items.extend(self._item())
        if not target:
            self.fail(".target is missing after .version", ".target and a target such as sm_90a")
        return Module(version, tuple(target), address_size, tuple(items))

    def _version(self) -> tuple[int, int]:
        major, _, minor = self.texts[self.at].partition(".")
        if self.kinds[self.at] != NUMBER or not (major.isdigit() and minor.isdigit() and len(major + minor) < 8):
            self.fail("the PTX version is missing", "two numbers and a dot, such as 8.7")
        self.at += 1
        return int(major), int(minor)

    def _item(self) -> list[Directive | Variable | Function]:
        linkage = self._linkage()
        text = self.texts[self.at]
        if text in (".entry", ".func"):
            return [self._function(linkage)]
        if text in SPACES:
            return list(self.variable(linkage))
        if text == "@" and not linkage:
            return [self._dwarf_line()]
        directive = None if linkage else self._directive()
        if directive is None:
            self.fail(
                "this is not allowed outside a function",
                "`.entry`, `.func` or a variable" if linkage else "`.entry`, `.func`, a variable or a directive",
            )
        return [directive]

    def _linkage(self) -> str:
        """The linking directive here, without its dot, or "": ptxas 13.0 takes no second one."""
        text = self.texts[self.at]
        if text not in LINKAGE or self.kinds[self.at] != DIRECTIVE:
            return ""
        self.at += 1
        return text[1:]

    def _dwarf_line(self) -> Directive:
        """The old `@@DWARF …`, on its own line."""
        first = self.at
        line = self.tokens.line(first)
        while self.kinds[self.at] != END and self.tokens.line(self.at) == line:
            self.at += 1
        return Directive("@", self.tokens.joined(first + 1, self.at))

    def _function(self, linkage: str) -> Function:
        kind = self.texts[self.at][1:]
        self.at += 1
        results: tuple[Variable, ...] = ()
        if kind == "func":
            self._head_attribute()
            if self.texts[self.at] == "(":
                results = self.parameters()
        name = self.word(f"the name of the {'kernel' if kind == 'entry' else 'function'}")
        parameters = self.parameters() if self.texts[self.at] == "(" else ()
        directives: list[Directive] = []
        while self.kinds[self.at] == DIRECTIVE:
            directive = self._directive()
            if directive is None:
                self.fail(f"this is not allowed between the head and the body of {name}", "`{`, `;` or a directive")
            directives.append(directive)
        body: tuple[Statement, ...] | None = None
        if not self.accept(";"):
            self.expect("{", f"before the body of {name}")
            self._location = None
            body = self._statements(self.at - 1)
            self._location = None
        return Function(kind, name, parameters, results, linkage, tuple(directives), body)

    def _head_attribute(self) -> None:
        if self.accept(".attribute"):
            self._attribute_list(managed=False)

    # -- directives ----------------------------------------------------------------------------------------------

    def _directive(self) -> Directive | None:
        """A directive that keeps its text, or None if the next token begins no such directive."""
        if self.kinds[self.at] != DIRECTIVE:
            return None
        text = self.texts[self.at]
        first = self.at + 1
        if text in _BARE:
            self.at += 1
            return Directive(text[1:])
        if text in _LINES_OF_INTEGERS:
            self.at += 1
            numbers = [self.integer(f"the number after {text}")]
            while self.accept(","):
                numbers.append(self.integer(f"the next number after {text}"))
            return Directive(text[1:], ", ".join(map(str, numbers)))
        elif text == ".pragma":
            self.at += 1
            self.string("the text of a pragma")
            while self.accept(","):
                self.string("the next text of a pragma")
            self.expect(";", "after .pragma")
            return Directive("pragma", self.tokens.joined(first, self.at - 1))
        elif text in _UNTIL_SEMICOLON:
            self.at += 1
            while self.texts[self.at] != ";" or self.kinds[self.at] != PUNCTUATION:
                if self.kinds[self.at] == END or self.texts[self.at] in ("{", "}"):
                    self.fail(f"`;` is missing after {text}", "`;`")
                self.at += 1
            self.at += 1
            pattern, words = _UNTIL_SEMICOLON[text]
            said = self.tokens.joined(first, self.at - 1)
            if not re.fullmatch(pattern, said):
                self.fail(f"{text} has another syntax", words, index=first)
            return Directive(text[1:], said)
        elif text == ".file":
            self.at += 1
            self.integer("a file number")
            self.string("the path of a file")
            while self.accept(","):
                self.integer("a time stamp or size")
        elif text == ".section":
            return self._section()
        else:
            return None
        return Directive(text[1:], self.tokens.joined(first, self.at))

    def _section(self) -> Directive:
        """A section of debugging data, verbatim."""
        first = self.at + 1
        self.at += 1
        if self.kinds[self.at] not in (DIRECTIVE, WORD):
            self.fail("the name of a section is missing", "a name such as .debug_str")
        self.at += 1
        self.expect("{", "before the data of a section")
        opened = self.at - 1
        while self.texts[self.at] != "}":
            if self.kinds[self.at] == END or self.texts[self.at] == "{":
                self.fail("a section is not terminated", f"`}}` for the `{{` of line {self.tokens.line(opened)}")
            self.at += 1
        self.at += 1
        starts = self.tokens.starts
        return Directive("section", self.tokens.source[starts[first] : self.tokens.end(self.at - 1)])

    def _loc(self) -> LocDirective:
        self.at += 1
        file = self.integer("a file number")
        line = self.integer("a line number")
        column = self.integer("a column")
        first = self.at
        caller = None
        while self.texts[self.at] == "," and self.texts[self.at + 1] in ("function_name", "inlined_at"):
            self.at += 2
            if self.texts[self.at - 1] == "function_name":
                if self.kinds[self.at] not in (WORD, DIRECTIVE):
                    self.fail("the label after function_name is missing", "a label of .debug_str")
                self.at += 1
                if self.accept("+"):
                    self.integer("an offset into .debug_str")
            else:
                call = [self.integer(f"{what} after inlined_at") for what in ("a file number", "a line", "a column")]
                caller = self._calls.get(tuple(call)) or self._place(*call)
        place = self._place(file, line, column)
        if caller is not None and place is not None:
            place = replace(caller, inlined=(*caller.inlined, str(place)))
        self._location = self._calls[file, line, column] = place
        return LocDirective(file, line, column, self.tokens.joined(first, self.at))

    def _place(self, file: int, line: int, column: int) -> SourceLocation | None:
        return SourceLocation(self.files[file], line, column) if file in self.files else None

    # -- statements ----------------------------------------------------------------------------------------------

    def _statements(self, opened: int) -> tuple[Statement, ...]:
        """Statements up to the brace that closes the one at token `opened`."""
        found: list[Statement] = []
        kinds, texts = self.kinds, self.texts
        self.deeper()
        while True:
            kind, text = kinds[self.at], texts[self.at]
            if kind == WORD:
                if texts[self.at + 1] == ":":
                    found.append(Label(self.word("a label")))
                    self.at += 1
                else:
                    found.append(self._instruction(None))
            elif kind == DIRECTIVE:
                self._directive_statement(found)
            elif kind == PUNCTUATION:
                if text == "@":
                    found.append(self._guarded())
                elif text == "{":
                    self.at += 1
                    found.append(Block(self._statements(self.at - 1)))
                elif text == "}":
                    self.at += 1
                    self.depth -= 1
                    return tuple(found)
                else:
                    self.fail("a statement cannot begin with this", "an instruction, a label, `{`, `}` or a directive")
            elif kind == END:
                self.fail("the text ends inside a body", f"`}}` for the `{{` of line {self.tokens.line(opened)}")
            elif kind == STRING and texts[self.at + 1] == ":":
                found.append(Label(self.word("a label")))
                self.at += 1
            else:
                self.fail("a statement cannot begin with this", "an instruction, a label, `{`, `}` or a directive")

    def _directive_statement(self, found: list[Statement]) -> None:
        text = self.texts[self.at]
        if text == ".reg":
            found.extend(self.registers())
        elif text == ".loc":
            found.append(self._loc())
        elif text in SPACES or text in LINKAGE:
            found.extend(self.variable(self._linkage()))
        else:
            directive = self._directive() if text in _IN_BODIES else None
            if directive is None:
                self.fail(f"`{text}` is not allowed in a body", "an instruction, a label, a declaration or a directive")
            if directive.name in TABLES and not (found and isinstance(found[-1], Label)):
                self.fail_after_previous(f"{text} lacks a label before it", "a label")
            found.append(directive)

    def _guarded(self) -> Instruction:
        self.at += 1
        negated = self.accept("!")
        guard = Guard(self.word("the predicate after `@`"), negated)
        if self.kinds[self.at] != WORD:
            self.fail(f"the instruction after `@{guard.register}` is missing", "an opcode")
        return self._instruction(guard)

    def _instruction(self, guard: Guard | None) -> Instruction:
        first = self.at
        opcode = self.texts[first]
        if opcode[0] in "%$_":
            self.fail("a statement cannot begin with this", "an opcode")
        line = self.tokens.line(first)
        self.at += 1
        while self.kinds[self.at] == DIRECTIVE:  # `ld .global .f32`
            opcode += self.texts[self.at]
            self.at += 1
        self.in_call = opcode == "call" or opcode.startswith("call.")
        operands = self.operand_list(";", f"the instruction `{opcode}`")
        location = self._location or SourceLocation(self.tokens.name, line)
        return Instruction(canonical(opcode), operands, guard, location, line)
