"""Operands of instructions: registers, constants, addresses, vectors, pairs. PTX ISA 6 and the syntax lines of 9.7."""

from __future__ import annotations

from .constants import BINARY, negate, read_number
from .cursor import Cursor
from .lexer import DIRECTIVE, NUMBER, PUNCTUATION, STRING, WORD, Tokens
from .nodes import (
    Address,
    Float,
    Group,
    Integer,
    Operand,
    Pair,
    Raw,
    Register,
    Sink,
    Symbol,
    TensorAddress,
    Vector,
)

_SINK = Sink()
BITS_OF_FLOATS = ("0f", "0F", "0d", "0D")
"""Beginnings of floating-point constants that are written as bits."""


class OperandParser(Cursor):
    """Parses operands. A bare name is a `Register`, whatever it denotes; a name plus a constant is a `Symbol`."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__(tokens)
        # One node per spelling: a text contains the same few hundred registers thousands of times.
        self._names: dict[str, Operand] = {"_": _SINK, "WARP_SZ": Integer(32, "WARP_SZ")}
        self._numbers: dict[str, Integer | Float] = {}
        self.in_call = False

    def operand_list(self, closing: str, context: str) -> tuple[Operand, ...]:
        """Operands up to a closing token, which is consumed."""
        operands: list[Operand] = []
        kinds, texts, names = self.kinds, self.texts, self._names
        if self.accept(closing):
            return ()
        while True:
            at = self.at
            following = texts[at + 1] if kinds[at] == WORD else ""
            # The common case, a name followed by a comma or the end, without a call.
            known = names.get(texts[at]) if following == "," or following == closing else None
            if known is not None:
                self.at = at + 1
                operands.append(known)
            else:
                operands.append(self.operand(context))
            following = texts[self.at]
            self.at += 1
            if following == closing:
                return tuple(operands)
            if following != ",":
                self.at -= 1
                self.fail_after_previous(f"{context} does not end here", f"`,` or `{closing}`")

    def operand(self, context: str) -> Operand:
        """One operand."""
        kind, text = self.kinds[self.at], self.texts[self.at]
        if kind == WORD or kind == STRING:
            return self._named(text if kind == WORD else text[1:-1], context)
        if kind == NUMBER:
            return self._number()
        if kind == PUNCTUATION:
            if text == "{":
                return self._vector(context)
            if text == "[":
                return self._address()
            if text == "(":
                # Only `call` has lists of arguments; elsewhere a parenthesis begins a constant expression.
                if self.in_call:
                    return self._nested(")", Group, "a list of arguments")
                return (
                    self._bits_in_parentheses() if self.texts[self.at + 1][:2] in BITS_OF_FLOATS else self._constant()
                )
            if text == "-":
                return self._negative(context)
            if text == "!" and (self.kinds[self.at + 1] in (WORD, STRING) and self.texts[self.at + 1] != "WARP_SZ"):
                self.at += 1
                return Register(self.word("the predicate after `!`"), negated=True)
            if text in "~+!":
                return self._constant()
        if kind == DIRECTIVE:
            return self._selectors(self.at)
        self.fail(f"{context} lacks an operand", "a register, a constant, `[`, `{` or `(`")

    # -- names ---------------------------------------------------------------------------------------------------

    def _name(self, text: str) -> Operand:
        known = self._names.get(text)
        if known is None:
            known = self._names[text] = Register(text)
        return known

    def _named(self, text: str, context: str) -> Operand:
        first = self.at
        if text == "WARP_SZ" and self.texts[first + 1] in BINARY:
            return self._constant()
        self.at += 1
        following = self.texts[self.at]
        if following in (",", ";", "}", ")"):
            return self._name(text)
        if following == "|":
            self.at += 1
            return Pair(self._name(text), self.operand(context))
        if following == "+":
            return Symbol(text, self._offset())
        if following == "[":
            return self._selectors(first)
        if self.kinds[self.at] == DIRECTIVE:
            return self._selectors(first)
        return self._name(text)

    def _offset(self) -> int:
        """The constant after a name: `+16`, `+-16`; ptxas rejects `-16`."""
        self.at += 1
        return self.integer_constant("a constant offset").value

    def _selectors(self, first: int) -> Operand:
        """Operand text that is kept unread: `a[5]` (old subscripts), `.h0` after a blank."""
        depth = 0
        while True:
            text = self.texts[self.at]
            if self.kinds[self.at] == "end" or text in (";", "{", "}") or (depth == 0 and text in (",", ")")):
                break
            depth += (text == "[") - (text == "]")
            if depth < 0:
                break
            self.at += 1
        if depth != 0:
            self.fail("`]` is missing after a subscript", "`]`")
        if self.at == first:
            self.fail("an operand is missing", "an operand")
        return Raw(self.tokens.joined(first, self.at))

    # -- constants -----------------------------------------------------------------------------------------------

    def _number(self) -> Operand:
        text = self.texts[self.at]
        if self.texts[self.at + 1] in BINARY or self.texts[self.at + 1] == "?":
            return self._constant()
        known = self._numbers.get(text)
        if known is None:
            constant = read_number(text)
            if constant is None:
                self.fail(
                    f"`{text}` is not a PTX constant of at most 64 bits",
                    "an integer (12, 0x1F, 0b101, 017), 0f and 8 hex digits, 0d and 16 hex digits, or a decimal",
                )
            known = self._numbers[text] = constant
        self.at += 1
        return known

    def _negative(self, context: str) -> Operand:
        first = self.at
        if self.kinds[first + 1] == NUMBER and self.texts[first + 2] not in BINARY:
            self.at += 1
            if self.texts[self.at][:2] in BITS_OF_FLOATS[:2]:
                self.fail("`-` stands before the bits of a float", "0f and the bits with the sign set")
            constant = self._number()
            assert isinstance(constant, (Integer, Float))
            return negate(constant)
        if self.kinds[first + 1] == WORD and self.texts[first + 1] != "WARP_SZ":
            self.at += 1  # a source of vmad, `-%r1.h0`
            inner = self.operand(context)
            if not isinstance(inner, Register):
                self.fail("only a register or a constant may follow `-`", index=first)
            return Register(inner.name, negated=True, minus=True)
        return self._constant()

    def _bits_in_parentheses(self) -> Operand:
        """`(0f3F800000)`, which is no expression."""
        self.at += 1
        constant = self._number()
        self.expect(")", "after a constant")
        return constant

    def _constant(self) -> Integer | Float:
        return self.constant_expression("a constant")

    # -- brackets ------------------------------------------------------------------------------------------------

    def _nested(self, closing: str, node: type[Vector] | type[Group], what: str) -> Operand:
        self.at += 1
        self.deeper()
        elements = self.operand_list(closing, what)
        self.depth -= 1
        if node is Vector and any(isinstance(each, Symbol) for each in elements):
            self.fail("a sum stands in braces", "registers, constants and names", index=self.at - 1)
        return node(elements)

    def _vector(self, context: str) -> Operand:
        vector = self._nested("}", Vector, "a vector")
        return Pair(vector, self.operand(context)) if self.accept("|") else vector

    def _address(self) -> Operand:
        self.at += 1
        base = self._base()
        offset = self._offset() if self.texts[self.at] == "+" else 0
        address = Address(base, offset)
        if self.accept("]"):
            return Address(base, offset, unified=True) if self.accept(".unified") else address
        if self.texts[self.at] != ",":
            self.fail_after_previous("an address does not end here", "`+`, `,` or `]`")
        self.at += 1
        coordinates, sampler = self.operand("a tensor address"), None
        if isinstance(coordinates, Register) and self.accept(","):
            sampler, coordinates = coordinates, self.operand("the coordinates after a sampler")
        self.expect("]", "after an address")
        elements = coordinates.elements if isinstance(coordinates, Vector) else (coordinates,)
        return TensorAddress(address, elements, sampler)

    def _base(self) -> Register | Integer:
        kind, text = self.kinds[self.at], self.texts[self.at]
        if kind == NUMBER or (kind == PUNCTUATION and text in ("-", "(", "~", "+", "!")) or text == "WARP_SZ":
            return self.integer_constant("an address")
        if kind == WORD and text != "_":
            self.at += 1
            return Register(text)
        return Register(self.word("the register, variable or constant of an address"))
