"""Declarations and uses of names in a text, derived from its tokens, so that it works for half-typed text.

Scopes follow PTX ISA 5.4: one table for each pair of braces; a kernel's parameters belong to its body.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..asm.declarations import LINKAGE, SPACES, VECTORS
from ..asm.lexer import DIRECTIVE, END, PUNCTUATION, STRING, WORD, Tokens
from ..isa.instructions import table
from ..isa.special_registers import SPECIAL_REGISTERS

_NUMBERED = re.compile(r"(.*?)(\d+)$", re.DOTALL)


@dataclass(eq=False)
class Definition:
    """A name that a text declares.

    Attributes:
        name: as written; `%r` for `%r<16>`.
        kind: "register", "variable", "parameter", "label", "entry" or "func".
        text: the declaration, for people.
        type: of a register or variable, without its dot.
        token: of the name.
        count: for `%r<16>`, 16; otherwise None.
        end: offset after the declaration, or after the body of a function.
        uses: tokens that refer to it, except the declaration itself.
    """

    name: str
    kind: str
    text: str
    type: str
    token: int
    count: int | None = None
    end: int = 0
    uses: list[int] = field(default_factory=list)


@dataclass(eq=False)
class Scope:
    """The names between two braces. start, end: offsets; function: the one it belongs to."""

    parent: Scope | None
    start: int
    end: int
    function: Definition | None = None
    names: dict[str, Definition] = field(default_factory=dict)

    def find(self, name: str) -> Definition | None:
        """The definition of a name in this scope."""
        scope: Scope | None = self
        numbered = _NUMBERED.match(name)
        while scope is not None:
            found = scope.names.get(name)
            if found is not None and found.count is None:
                return found
            if numbered:
                for cut in range(len(numbered[1]), len(name)):  # `%r1<20>` declares %r10
                    stem = scope.names.get(name[:cut])
                    if stem is not None and stem.count is not None and int(name[cut:]) < stem.count:
                        return stem
            scope = scope.parent
        if "." in name and name not in SPECIAL_REGISTERS:
            return self.find(name.rpartition(".")[0])  # a component of a vector register
        return None

    def visible(self) -> Iterator[Definition]:
        """Every definition that is visible here, innermost first."""
        scope: Scope | None = self
        while scope is not None:
            yield from scope.names.values()
            scope = scope.parent


@dataclass
class Names:
    """The names of a text. meaning: token -> its definition, if it is declared."""

    tokens: Tokens
    scopes: list[Scope]
    definitions: list[Definition]
    meaning: dict[int, Definition]
    starts: dict[int, int]  # token of an opcode -> first token after its statement

    def token_at(self, offset: int) -> int | None:
        """The token that contains an offset, or ends just before it."""
        behind = None
        for index, start in enumerate(self.tokens.starts):
            if start > offset:
                break
            end = self.tokens.end(index)
            if offset < end:
                return index
            if offset == end and self.tokens.kinds[index] != END:
                behind = index
        return behind

    def at(self, offset: int) -> Definition | None:
        """The definition of the name at an offset."""
        token = self.token_at(offset)
        return None if token is None else self.meaning.get(token)

    def scope_at(self, offset: int) -> Scope:
        """The innermost scope around an offset."""
        inner = self.scopes[0]
        for scope in self.scopes:
            if scope.start <= offset <= scope.end and scope.start >= inner.start:
                inner = scope
        return inner


def names_of(tokens: Tokens) -> Names:
    """The names of a text."""
    return _Walk(tokens).run()


class _Walk:
    """One pass over the tokens; names are looked up after all are declared, since labels may follow their uses."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.kinds = [*tokens.kinds, END, END]  # so that two tokens can be looked ahead
        self.texts = [*tokens.texts, "", ""]
        self.at = 0
        self.scope = Scope(None, 0, len(tokens.source))
        self.found = Names(tokens, [self.scope], [], {}, {})
        self.named: list[tuple[int, Scope]] = []
        self.head: Scope | None = None  # of a function whose body has not started
        self.body: list[bool] = []  # for each open brace: whether it is a function's body

    def run(self) -> Names:
        while self.kinds[self.at] != END:
            before = self.at
            self._statement()
            self.at += self.at == before
        for token, scope in self.named:
            found = scope.find(_bare(self.texts[token], self.kinds[token]))
            if found is not None:
                self.found.meaning[token] = found
                if token != found.token:
                    found.uses.append(token)
        return self.found

    def _statement(self) -> None:
        kind, text = self.kinds[self.at], self.texts[self.at]
        if kind == PUNCTUATION:
            self._punctuation(text)
        elif kind == DIRECTIVE:
            self._directive(text)
        elif kind in (WORD, STRING) and self.texts[self.at + 1] == ":":
            self._declare(self.at, "label", f"{text}:", "")
            self.at += 2
        elif kind == WORD:
            self._instruction()
        else:
            self.at += 1

    def _punctuation(self, text: str) -> None:
        start = self.tokens.starts[self.at]
        self.at += 1
        if text == "{":
            body = self.head is not None
            scope = self.head or Scope(self.scope, start, len(self.tokens.source), self.scope.function)
            if not body:
                self.found.scopes.append(scope)
            self.body.append(body)
            self.scope, self.head = scope, None
        elif text == "}":
            if self.scope.parent is not None:
                self.scope.end = start + 1
                if self.body.pop() and self.scope.function is not None:
                    self.scope.function.end = start + 1
                self.scope = self.scope.parent
        elif text == ";" and self.head is not None:
            self.head.end = start
            self.head = None
        elif text == "@":
            self.at += self.texts[self.at] == "!"
            if self.kinds[self.at] == WORD:
                self._name(self.at)
                self.at += 1

    def _directive(self, text: str) -> None:
        if text == ".reg":
            self._registers()
        elif text in SPACES:
            self._variable(self.scope, "variable", (";",))
        elif text in (".entry", ".func"):
            self._function(text[1:])
        elif text in (".branchtargets", ".calltargets"):
            self.at += 1
            while not self._ends((";",)):
                if self.kinds[self.at] == WORD:
                    self._name(self.at)
                self.at += 1
        elif text in LINKAGE:
            self.at += 1
        else:  # another directive, with its words on the same line
            first = self.at
            self.at += 1
            while self.kinds[self.at] not in (DIRECTIVE, END) and self._same_line(first):
                if self.texts[self.at] in (";", "{", "}", "@"):
                    break
                self.at += 1

    # -- declarations --------------------------------------------------------------------------------------------

    def _registers(self) -> None:
        first = self.at
        self.at += 1
        type_name = ""
        while self.kinds[self.at] == DIRECTIVE:
            type_name = f"{type_name}.{self.texts[self.at][1:]}".strip(".")
            self.at += 1
        while not self._ends((";",)):
            if self.kinds[self.at] == WORD:
                count = None
                if self.texts[self.at + 1] == "<" and self.texts[self.at + 2].isdigit():
                    count = int(self.texts[self.at + 2])
                shown = self.texts[self.at] + (f"<{count}>" if count is not None else "")
                self._declare(self.at, "register", f".reg .{type_name} {shown}", type_name, count)
            self.at += 1
        self._end_declarations(first)

    def _variable(self, scope: Scope, kind: str, ends: tuple[str, ...]) -> None:
        """A variable or parameter, from its space to what ends it."""
        first = self.at
        type_name, name = "", -1
        depth = 0
        while self.kinds[self.at] != END and (depth or not self._ends(ends)):
            text = self.texts[self.at]
            depth += (text in ("{", "(", "[")) - (text in ("}", ")", "]"))
            if depth < 0 or (depth and self._new_statement()):
                break
            if self.kinds[self.at] == DIRECTIVE and name < 0 and text not in SPACES | VECTORS | {".align", ".ptr"}:
                type_name = text[1:]
            elif self.kinds[self.at] in (WORD, STRING):
                if name < 0:
                    name = self.at
                elif depth:
                    self._name(self.at)  # the address of another variable, in an initialiser
            self.at += 1
        if name >= 0:
            text = " ".join(self.tokens.joined(first, self.at).split())
            self._declare(name, kind, text[:200], type_name, scope=scope)
            self._end_declarations(first)

    def _function(self, kind: str) -> None:
        self.at += 1
        head = Scope(self.scope, self.tokens.starts[self.at - 1], len(self.tokens.source))
        named = False
        while self.kinds[self.at] != END and self.texts[self.at] not in ("{", ";"):
            text = self.texts[self.at]
            if text == "(":
                self.at += 1
                while self.kinds[self.at] == DIRECTIVE:
                    self._variable(head, "parameter", (",", ")"))
                    if self.texts[self.at] != ",":
                        break
                    self.at += 1
                if self.texts[self.at] == ")":
                    self.at += 1
                elif self.texts[self.at] not in ("{", ";"):
                    break
            elif self.kinds[self.at] in (WORD, STRING) and not named:
                named = True
                head.function = self._declare(self.at, kind, f".{kind} {text}", "")
                self.at += 1
            elif text in (".entry", ".func", ".visible", ".reg"):
                break
            else:
                self.at += 1
        self.head = head
        self.found.scopes.append(head)

    def _declare(
        self, token: int, kind: str, text: str, type_name: str, count: int | None = None, scope: Scope | None = None
    ) -> Definition:
        name = _bare(self.texts[token], self.kinds[token])
        made = Definition(name, kind, text, type_name, token, count, self.tokens.end(token))
        (scope or self.scope).names.setdefault(name, made)
        self.found.definitions.append(made)
        self.found.meaning[token] = made
        return made

    def _end_declarations(self, first: int) -> None:
        """Declarations that began at a token end here."""
        for made in reversed(self.found.definitions):
            if made.token < first:
                break
            made.end = self.tokens.end(max(self.at - 1, first))

    # -- uses ----------------------------------------------------------------------------------------------------

    def _instruction(self) -> None:
        opcode = self.at
        self.at += 1
        while self.kinds[self.at] == DIRECTIVE and self._same_line(opcode):  # `ld .global .f32`
            self.at += 1
        while not self._ends((";",)):
            if self.texts[self.at] == "}" and not self._open_brace(opcode):
                break
            if self._new_statement():
                break
            if self.kinds[self.at] == WORD:
                self._name(self.at)
            self.at += 1
        self.found.starts[opcode] = self.at

    def _name(self, token: int) -> None:
        self.named.append((token, self.scope))

    def _ends(self, ends: tuple[str, ...]) -> bool:
        return self.kinds[self.at] == END or self.texts[self.at] in ends or self._new_statement()

    def _new_statement(self) -> bool:
        """True if a line starts here that cannot continue an unfinished statement."""
        at = self.at
        if not at or self._same_line(at - 1):
            return False
        kind, text = self.kinds[at], self.texts[at]
        if kind == WORD:
            return self.texts[at + 1] == ":" or ("." in text and bool(table.rows_of(text.split(".")[0])))
        return text in ("@", ".reg", ".entry", ".func", ".visible") or (kind == DIRECTIVE and text == ".loc")

    def _open_brace(self, first: int) -> bool:
        """True if a brace of the operands is open."""
        texts = self.texts[first : self.at]
        return texts.count("{") > texts.count("}")

    def _same_line(self, token: int) -> bool:
        return self.tokens.line(token) == self.tokens.line(self.at)


def _bare(text: str, kind: str) -> str:
    return text[1:-1] if kind == STRING else text
