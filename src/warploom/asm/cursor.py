"""A position in a list of tokens, shared by the parser's parts; errors include line and column."""

from __future__ import annotations

from typing import NoReturn

from ..errors import PtxSyntaxError, SourceLocation
from .constants import BINARY, CASTS, FLOATING, Unsigned, combined, double_bits, number, read_number, wrapped
from .lexer import END, NUMBER, PUNCTUATION, STRING, WORD, Tokens, location
from .nodes import Float, Integer

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
        """A word without dots that is neither WARP_SZ nor `_`, or a quoted name."""
        text = self.texts[self.at]
        if self.kinds[self.at] == WORD and "." not in text and text not in ("WARP_SZ", "_"):
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

    # -- constants -----------------------------------------------------------------------------------------------

    def integer(self, what: str) -> int:
        """An integer that is written out, or WARP_SZ: ptxas 13.0 takes no expression in declarations and directives."""
        if self.kinds[self.at] != NUMBER and self.texts[self.at] != "WARP_SZ":
            self.fail(f"{what} is missing", what)
        value = self._unary(what)
        if isinstance(value, float):
            self.fail(f"{what} is not an integer", "an integer", index=self.at - 1)
        return value

    def integer_constant(self, what: str) -> Integer:
        """An integer constant expression with its spelling."""
        constant = self.constant_expression(what)
        if isinstance(constant, Float):
            self.fail(f"{what} is not an integer", "an integer", index=self.at - 1)
        return constant

    def constant_expression(self, what: str) -> Integer | Float:
        """A constant expression of integers or of decimals."""
        first = self.at
        value = self._conditional(what)
        text = self.tokens.joined(first, self.at)
        if isinstance(value, float):
            return Float(double_bits(value), 64, text)
        return Integer(int(value) if self.at - first == 1 else wrapped(value, False), text)

    def _conditional(self, what: str) -> int | float:
        value = self._binary(0, what)
        if not self.accept("?"):
            return value
        if isinstance(value, float):
            self.fail("a condition is a decimal", "an integer")
        self.deeper()
        first = self._conditional(what)
        self.expect(":", "in a conditional constant expression")
        second = self._conditional(what)
        self.depth -= 1
        if isinstance(first, float) or isinstance(second, float):
            self.fail("a decimal is chosen by a condition", "integers")
        return first if value else second

    def _binary(self, level: int, what: str) -> int | float:
        value = self._unary(what)
        while self.kinds[self.at] == PUNCTUATION and self.texts[self.at] in BINARY:
            operator = self.texts[self.at]
            binding = BINARY[operator][0]
            if binding <= level:
                break
            at = self.at
            self.at += 1
            right = self._binary(binding, what)
            if right == 0 and operator in "/%":
                self.fail("a constant expression divides by zero", index=at)
            if isinstance(value, int) and isinstance(right, int):
                value = combined(operator, value, right)
            elif isinstance(value, float) and isinstance(right, float) and operator in FLOATING:
                value = FLOATING[operator](value, right)
            else:
                self.fail(f"`{operator}` does not take these constants", "two integers or two decimals", index=at)
        return value

    def _unary(self, what: str) -> int | float:
        text = self.texts[self.at]
        if self.kinds[self.at] == NUMBER:
            constant = read_number(text)
            self.at += 1
            if isinstance(constant, Integer):
                return wrapped(constant.value, text.endswith("U") or constant.value >> 63 > 0)
            if constant is None or text[:2] in ("0f", "0F"):
                self.fail(f"`{text}` is not an integer of at most 64 bits", what, index=self.at - 1)
            return number(constant)
        if text == "WARP_SZ":
            self.at += 1
            return 32
        if text in ("-", "+", "~", "!", "("):
            self.at += 1
            self.deeper()
            value = self._parenthesised(what) if text == "(" else self._signed(text, what)
            self.depth -= 1
            return value
        self.fail(f"{what} is missing", what)

    def _parenthesised(self, what: str) -> int | float:
        cast = CASTS.get(self.texts[self.at])
        if cast is not None:
            self.at += 1
        value = self._conditional(what) if cast is None else 0
        self.expect(")", "after a constant expression" if cast is None else "after a cast")
        if cast is None:
            return value
        value = self._unary(what)
        if isinstance(value, float):
            self.fail("a decimal is cast to an integer", "an integer", index=self.at - 1)
        return wrapped(value, cast)

    def _signed(self, sign: str, what: str) -> int | float:
        inner = self._unary(what)
        if isinstance(inner, float):
            if sign in "~!":
                self.fail(f"`{sign}` stands before a decimal", "an integer", index=self.at - 1)
            return -inner if sign == "-" else inner
        if sign == "!":
            return int(not inner)
        value = {"-": -inner, "+": inner, "~": ~inner}[sign]
        return wrapped(value, sign == "~" or isinstance(inner, Unsigned))
