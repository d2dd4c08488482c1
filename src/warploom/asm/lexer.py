"""PTX text as tokens: one regular expression, no copying, positions kept for errors.

PTX ISA 4.1-4.5. An opcode with all its modifiers (`ld.global.nc.L1::no_allocate.v4.f32`) is one token, and so is a
special register (`%tid.x`); white space, comments and lines such as `# 3 "file.cu"` are dropped.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

from ..errors import PtxSyntaxError, SourceLocation

WORD, DIRECTIVE, NUMBER, STRING, PUNCTUATION, END = "word", "directive", "number", "string", "punctuation", "end"
COMMENT = "comment"

_TOKEN = re.compile(
    r"""
    \s* (?:
      (?P<comment> //[^\n]* | /\*.*?\*/
                | \#[ \t]*(?:line[ \t]+)?\d+[ \t]+"[^"\n]*"(?:[ \t]+\d+)*[ \t]*(?=\n|\Z) )
    | (?P<word> (?: [A-Za-z_][\w$]* | [$%][\w$]+ ) (?: \.[\w$]+ (?: ::[\w$]+ )* )* )
    | (?P<number> 0[fF][0-9a-fA-F]{8}(?![\w$]) | 0[dD][0-9a-fA-F]{16}(?![\w$])
                | (?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w$.]) | \d+[eE][+-]?\d+(?![\w$.])
                | (?: 0[xX][0-9a-fA-F]+ | 0[bB][01]+ | \d+ )U?(?![\w$]) | \d[\w$]* )
    | (?P<directive> \.[A-Za-z_][\w$]*(?: ::[\w$]+ )* )
    | (?P<punctuation> << | >> | [<>=!]= | && | \|\| | [{}()\[\],;:@!|+\-*/<>=~&^?%] )
    | (?P<string> "(?:[^"\\\n]|\\.)*" )
    )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_BLANKS = re.compile(r"\s*", re.ASCII)


@dataclass
class Tokens:
    """The tokens of a text as parallel lists, with one `end` token after the last.

    Attributes:
        kinds: "word", "directive", "number", "string", "punctuation" or "end".
        texts: the spelling; "" at the end.
        starts: offset of the first character.
        source: the text.
        name: what errors call the text.
    """

    kinds: list[str]
    texts: list[str]
    starts: list[int]
    source: str
    name: str
    line_starts: list[int]

    def line(self, index: int) -> int:
        """Line of a token, from 1."""
        return bisect_right(self.line_starts, self.starts[index])

    def end(self, index: int) -> int:
        """Offset after a token."""
        return self.starts[index] + len(self.texts[index])

    def joined(self, first: int, last: int) -> str:
        """Tokens first..last-1 as text, with one blank wherever white space or a comment separated two."""
        pieces: list[str] = []
        for index in range(first, last):
            if pieces and self.starts[index] != self.end(index - 1):
                pieces.append(" ")
            pieces.append(self.texts[index])
        return "".join(pieces)


def location(source: str, name: str, offset: int) -> SourceLocation:
    """Line and column of an offset."""
    before = source.rfind("\n", 0, offset)
    return SourceLocation(name, source.count("\n", 0, offset) + 1, offset - before)


def tokenize(source: str, name: str = "<ptx>") -> Tokens:
    """The tokens of a PTX text.

    Raises:
        PtxSyntaxError: a character that PTX lacks, or an unterminated comment or string.
    """
    kinds: list[str] = []
    texts: list[str] = []
    starts: list[int] = []
    position = 0
    for found in _TOKEN.finditer(source):
        kind: str = found.lastgroup  # type: ignore[assignment]
        begin, end = found.span()
        if begin != position:
            break
        text = found[kind]
        if kind != COMMENT:
            if text == "/" and source.startswith("/*", end - 1):
                break
            kinds.append(kind)
            texts.append(text)
            starts.append(end - len(text))
        position = end
    position = _BLANKS.match(source, position).end()  # type: ignore[union-attr]
    if position < len(source):
        raise _unreadable(source, name, position)
    kinds.append(END)
    texts.append("")
    starts.append(position)
    line_starts = [0, *(found.end() for found in re.finditer("\n", source))]
    return Tokens(kinds, texts, starts, source, name, line_starts)


def _unreadable(source: str, name: str, position: int) -> PtxSyntaxError:
    where = location(source, name, position)
    character = source[position]
    if source.startswith("/*", position):
        return PtxSyntaxError("a comment is not terminated", where=where, expected="*/ before the end of the text")
    if character == '"':
        return PtxSyntaxError("a string is not terminated", where=where, expected='a closing " on the same line')
    return PtxSyntaxError(f"the character {character!r} has no meaning in PTX here", where=where)
