"""Reads a PTX text that is being typed, as far as possible.

The parser stops at the first error. Here the line that stopped it is blanked out, its error is kept, and the rest is
parsed again, so that one unfinished statement does not hide problems elsewhere. Positions remain those of the text:
blanks replace characters one by one.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from ..asm.lexer import END, Tokens, tokenize
from ..asm.nodes import LocDirective, Module
from ..asm.parser import Parser
from ..errors import PtxSyntaxError, SourceLocation
from ..isa.instructions import table

ATTEMPTS = 40
"""Maximum number of lines that are blanked out before the rest of a text is skipped."""
SECONDS = 1.0
"""Seconds after which no further attempt is made."""
HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"
"""Replaces a head that is missing or cannot be read."""
BOUNDARIES = (";", "{", "}")


@dataclass(frozen=True)
class Problem:
    """One problem.

    Attributes:
        start, end: offsets into the text.
        what: the sentences.
        code: of the error or rule.
        severity: "error", "warning" or "note".
        source: its origin, "warploom" or "ptxas".
    """

    start: int
    end: int
    what: str
    code: str = ""
    severity: str = "error"
    source: str = "warploom"


@dataclass(frozen=True)
class Reading:
    """The readable part of a text.

    Attributes:
        text: as typed.
        tokens: of the whole text, without characters that have no meaning in PTX.
        module: the parsed part; None if nothing could be parsed.
        problems: of the syntax.
        shift: lines before `module`'s text that are not in `text`: those of `HEAD`.
        blanked: lines of `text`, from 1, that `module` lacks.
    """

    text: str
    tokens: Tokens
    module: Module | None
    problems: tuple[Problem, ...]
    shift: int
    blanked: frozenset[int]


class _PtxLines(Parser):
    """A parser whose locations are lines of the PTX text, whatever `.loc` says."""

    def _loc(self) -> LocDirective:
        found = super()._loc()
        self._location = None
        return found


def tokens_of(text: str) -> tuple[Tokens, list[Problem]]:
    """Tokens of any text: characters that begin none are skipped and reported."""
    problems: list[Problem] = []
    source = text
    for _ in range(ATTEMPTS):
        try:
            return tokenize(source), problems
        except PtxSyntaxError as error:
            at = offset_of(source, error.where)
            end = at + 1
            if source.startswith("/*", at):
                end = len(source)
            elif source[at] == '"':
                end = source.find("\n", at) if "\n" in source[at:] else len(source)
            problems.append(Problem(at, end, _sentences(error), error.code))
            source = _blank(source, at, end)
            if text[at] == "." and re.match(r"\s*?$", text[at + 1 :].partition("\n")[0]):
                source = source[:at] + ";" + source[at + 1 :]  # `wgmma.` at the end of a line: typing has stopped there
    return tokenize(re.sub(r"[^\s\w.;:{}()\[\],@%$]", " ", source, flags=re.ASCII)), problems


def read(text: str) -> Reading:
    """Read a text as far as possible."""
    tokens, problems = tokens_of(text)
    source, prefix, closing = tokens.source, "", ""
    blanked: set[int] = set()
    silent_until = -1  # the end of the statement that was last reported
    module: Module | None = None
    started = time.monotonic()
    for attempt in range(ATTEMPTS):
        if attempt and time.monotonic() - started > SECONDS:
            break
        try:
            module = _PtxLines(tokenize(prefix + source + closing)).module()
            break
        except PtxSyntaxError as error:
            at = offset_of(prefix + source + closing, error.where) - len(prefix)
            if at >= len(source.rstrip()) and closing.count("}") < 8:
                problems.append(_problem(text, tokens, max(len(text.rstrip()) - 1, 0), error))
                closing += "\n}"
                continue
            if at > silent_until:
                problems.append(_problem(text, tokens, _unfinished(source, at), error))
                silent_until = _end_of_statement(tokens, at)
            if not prefix and (".version" in error.what or ".target" in error.what):
                prefix = HEAD
                source = re.sub(r"(?m)^\s*\.(version|target|address_size)\b[^\n]*", _spaces, source, count=3)
                continue
            start = _line_to_blank(source, at)
            end = source.find("\n", start)
            end = len(source) if end < 0 else end
            blanked.add(source.count("\n", 0, start) + 1)
            source = _blank(source, start, end)
    return Reading(text, tokens, module, tuple(problems), prefix.count("\n"), frozenset(blanked))


def offset_of(text: str, where: SourceLocation | str | None) -> int:
    """The offset of a line and column."""
    if not isinstance(where, SourceLocation):
        return 0
    at = 0
    for _ in range(where.line - 1):
        at = text.find("\n", at) + 1
        if at == 0:
            return len(text)
    return min(at + max(where.column - 1, 0), len(text))


def _spaces(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])


def _blank(source: str, start: int, end: int) -> str:
    return source[:start] + re.sub(r"[^\n]", " ", source[start:end]) + source[end:]


def _line_to_blank(source: str, at: int) -> int:
    """The start of the statement around an offset: after the previous boundary, without blanks and comments."""
    tokens = tokenize(source)
    index = next((n for n, start in enumerate(tokens.starts) if start >= at or tokens.end(n) > at), len(tokens.starts))
    if tokens.kinds[min(index, len(tokens.kinds) - 1)] == END and index:
        index -= 1
    first = index
    while first and tokens.texts[first - 1] not in BOUNDARIES:
        first -= 1
    return tokens.starts[first]


def _unfinished(source: str, at: int) -> int:
    """Where to report an offset: at the end of the previous line, if the line starts a new statement."""
    begins = source.rfind("\n", 0, at) + 1
    first = re.match(r"\s*([a-z]\w*)\b", source[begins:])
    if (
        not first
        or begins + first.start(1) >= at
        or not table.rows_of(first[1])
        or _line_to_blank(source, at) >= begins
    ):
        return at
    return len(source[:begins].rstrip())


def _end_of_statement(tokens: Tokens, at: int) -> int:
    """The offset of the semicolon that ends the statement around an offset."""
    for start, text in zip(tokens.starts, tokens.texts, strict=True):
        if start >= at and text in BOUNDARIES:
            return start
    return at


def _problem(text: str, tokens: Tokens, at: int, error: PtxSyntaxError) -> Problem:
    """The problem at its token; at the last character of a line if something is missing after it."""
    at = min(max(at, 0), max(len(text) - 1, 0))
    for index, start in enumerate(tokens.starts):
        if start <= at < tokens.end(index):
            return Problem(start, tokens.end(index), _sentences(error), error.code)
    start = at
    while start and text[start - 1 : start] not in ("\n", "") and text[start : start + 1] in ("\n", ""):
        start -= 1
    return Problem(start, max(start + 1, at), _sentences(error), error.code)


def _sentences(error: PtxSyntaxError) -> str:
    lines = [error.what]
    if error.expected is not None:
        lines.append(f"expected {error.expected}")
    if error.got is not None:
        lines.append(f"got {error.got}")
    return "\n".join(lines)
