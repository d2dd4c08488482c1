"""A position in a list of tokens, shared by the parser's parts; errors include line and column."""

from __future__ import annotations

from typing import NoReturn

from ..errors import PtxSyntaxError, SourceLocation
from .constants import BINARY, read_number
from .lexer import END, NUMBER, PUNCTUATION, STRING, WORD, Tokens, location
from .nodes import Integer

MAX_DEPTH = 200
"""Nesting depth of blocks or parentheses beyond which a text is rejected."""


class Cursor:
    """Reads tokens one by one."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.kinds = tokens.kinds
        self.texts = tokens.texts
        self.at = 0
        self.depth = 0

    # -- errors --------------------------------------------------------------------------------------------------

    def place(self, index: int) -> SourceLocation:
        """Line and column of a token."""
        return location(self.tokens.source, self.tokens.name, self.tokens.starts[index])

    def fail(self, what: str, expected: str | None = None, index: int | None = None) -> NoReturn:
        """Raise at a token, by default the next one."""
        at = self.at if index is None else index
        got = "the end of the text" if self.kinds[at] == END else f"`{self.texts[at][:60]}`"
        raise PtxSyntaxError(what, where=self.place(at), expected=expected, got=got)

    def fail_after_previous(self, what: str, expected: str) -> NoReturn:
        """Raise just after the previous token if the next one begins a new line, because something is missing there."""
        tokens, previous = self.tokens, self.at - 1
        if previous >= 0 and self.kinds[self.at] != END and tokens.line(previous) != tokens.line(self.at):
            where = location(tokens.source, tokens.name, tokens.end(previous))
            raise PtxSyntaxError(what, where=where, expected=expected, got="the end of the line")
        self.fail(what, expected)

    def deeper(self) -> None:
        """Enter one level of nesting; the caller leaves it."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"braces or parentheses are nested more than {MAX_DEPTH} deep")

    # -- reading -------------------------------------------------------------------------------------------------

    def accept(self, text: str) -> bool:
        """Skip a punctuation, directive or word if it comes next."""
        if self.texts[self.at] == text and self.kinds[self.at] != STRING:
            self.at += 1
            return True
        return False

    def expect(self, text: str, context: str) -> None:
        """Skip a token that must come next; `context` describes its construct."""
        if not self.accept(text):
            self.fail_after_previous(f"`{text}` is missing {context}", f"`{text}`")

    def word(self, what: str) -> str:
        """A word without dots, or a quoted name."""
        text = self.texts[self.at]
        if self.kinds[self.at] == WORD and "." not in text:
            self.at += 1
            return text
        if self.kinds[self.at] == STRING and len(text) > 2:
            self.at += 1
            return text[1:-1]
        self.fail(f"{what} is missing", what)

    def string(self, what: str) -> str:
        """A string, quotes included."""
        if self.kinds[self.at] != STRING:
            self.fail(f"{what} is missing", f"{what} in quotes")
        self.at += 1
        return self.texts[self.at - 1]

    # -- integer constants ---------------------------------------------------------------------------------------

    def integer(self, what: str) -> int:
        """An integer constant expression."""
        return self.integer_constant(what).value

    def integer_constant(self, what: str) -> Integer:
        """An integer constant expression with its spelling."""
        first = self.at
        value = self._binary(0, what)
        return Integer(value, self.tokens.joined(first, self.at))

    def _binary(self, level: int, what: str) -> int:
        value = self._unary(what)
        while self.kinds[self.at] == PUNCTUATION and self.texts[self.at] in BINARY:
            binding, compute = BINARY[self.texts[self.at]]
            if binding <= level:
                break
            operator = self.at
            self.at += 1
            right = self._binary(binding, what)
            if right == 0 and self.texts[operator] in "/%":
                self.fail("a constant expression divides by zero", index=operator)
            value = compute(value, right)
        return value

    def _unary(self, what: str) -> int:
        text = self.texts[self.at]
        if self.kinds[self.at] == NUMBER:
            constant = read_number(text)
            if not isinstance(constant, Integer):
                self.fail(f"`{text}` is not an integer of at most 64 bits", what)
            self.at += 1
            return constant.value
        if text == "WARP_SZ":
            self.at += 1
            return 32
        if text in ("-", "+", "~", "!", "("):
            self.at += 1
            self.deeper()
            if text == "(":
                value = self._binary(0, what)
                self.expect(")", "after a constant expression")
            else:
                inner = self._unary(what)
                value = {"-": -inner, "+": inner, "~": ~inner, "!": int(not inner)}[text]
            self.depth -= 1
            return value
        self.fail(f"{what} is missing", what)
