"""Formats a finding for people: the source lines, who did what there, what is missing, what to do.

    error[copy-not-waited]: The destination of a copy is accessed before the copy is complete
      --> gemm.py:31
       |
    31 |     acc.multiply(tile.a[stage], tile.b[stage])
       |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
       |     issued by consumer 0, warp 4 of CTA (0, 0, 0): reads ring.a[0], row 0, chunk 0
       |     ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r5];
       = missing  …
       = fix      …

A line is a list of (text, style) pieces; `as_text` joins them. Styles are the severities, "place", "frame" and "bold".
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from ...asm.demangle import readable
from ...emulator.machine.finding import Finding, Side
from ...errors import SourceLocation
from ..rules import RULES

Piece: TypeAlias = "tuple[str, str]"
Line: TypeAlias = "list[Piece]"
_PACKAGE_PARENT = Path(__file__).resolve().parents[3]
_MARK = 80
"""Longest underline."""
WIDTH = 200
"""Characters of the longest line of a report."""


@dataclass
class Sources:
    """Finds the source text of locations.

    Attributes:
        folders: searched for a location's file, after the current folder and before the package's own.
        texts: by file name as in locations, for texts that are not in a file of that name.
    """

    folders: Sequence[Path] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    _lines: dict[str, list[str]] = field(default_factory=dict)

    def line(self, location: SourceLocation) -> str:
        """A line without its line end; "" if it is not found."""
        if location.file not in self._lines:
            self._lines[location.file] = self._read(location.file)
        lines = self._lines[location.file]
        return lines[location.line - 1].rstrip() if 0 < location.line <= len(lines) else ""

    def path(self, file: str) -> Path | None:
        """The file that a location names, if it exists."""
        for folder in (Path(), *self.folders, _PACKAGE_PARENT):
            try:
                if (folder / file).is_file():
                    return folder / file
            except OSError:  # a kernel of a text is named by its mangled name, which may be too long for a file name
                return None
        return None

    def _read(self, file: str) -> list[str]:
        if file in self.texts:
            return self.texts[file].splitlines()
        path = self.path(file)
        try:
            return path.read_text(encoding="utf-8", errors="replace").splitlines() if path is not None else []
        except OSError:
            return []


def render(finding: Finding, sources: Sources | None = None) -> list[Line]:
    """The lines of one finding."""
    sources = sources or Sources()
    title = RULES[finding.rule].title if finding.rule in RULES else finding.summary or finding.message.splitlines()[0]
    lines: list[Line] = [[(f"{finding.severity}[{finding.rule}]", finding.severity), (f": {title}", "bold")]]
    sides = finding.sides or tuple(
        Side("", "", "", place) if isinstance(place, SourceLocation) else Side("", "", place)
        for place in finding.locations
    )
    width = max((len(str(side.location.line)) for side in sides if side.location), default=1)
    before: SourceLocation | None = None
    for number, side in enumerate(sides):
        lines += _side(side, number, before, width, finding.severity, sources)
        before = side.location
    notes = [(name, _near(text, before)) for name, text in _notes(finding)]
    label = max((len(name) for name, _ in notes), default=0)
    for name, text in notes:
        first, *rest = text.splitlines() or [""]
        lines.append([(f" {'':{width}} = ", "frame"), (f"{name:{label}}  ", "bold"), (first, "")])
        lines += [[(f" {'':{width}}   {'':{label}}  ", ""), (line.strip(), "")] for line in rest]
    return [fitting for line in lines for fitting in _fitted(line)]


def _fitted(line: Line) -> Iterator[Line]:
    """A line with demangled C++ names, split at the width limit: words wrap, code is cut."""
    *before, (text, style) = line
    if style != "source":
        before, text = [(readable(part), how) for part, how in before], readable(text)
    start = sum(len(part) for part, _ in before)
    if start + len(text) <= WIDTH:
        yield [*before, (text, "" if style == "source" else style)]
    elif style == "":
        first, *rest = textwrap.wrap(text, WIDTH - start, break_long_words=True) or [""]
        yield [*before, (first, style)]
        for more in rest:
            yield [(" " * start + more, style)]
    else:
        yield [*before, (text[: WIDTH - start - 1] + "…", "" if style == "source" else style)]


def as_text(lines: Iterable[Line]) -> str:
    """Lines as plain text."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


def _side(
    side: Side, number: int, before: SourceLocation | None, width: int, severity: str, sources: Sources
) -> list[Line]:
    """The source line, underlined, and the words; two sides on one line share the source."""
    lines: list[Line] = []
    style = severity if number == 0 else "place"
    bar: Piece = (f" {'':{width}} | ", "frame")
    indent, length = 0, 0
    if side.location is not None:
        source = sources.line(side.location)
        column = side.location.column - 1 if side.location.column else len(source) - len(source.lstrip())
        indent, length = column, max(1, min(len(source) - column, _MARK)) if source else 0
        if side.location != before:
            arrow = "-->" if number == 0 else ":::"
            lines.append([(f" {'':{width}}{arrow} ", "frame"), (str(side.location), "place")])
            if source:
                lines.append([(bar[0].rstrip(), "frame")])
                lines.append([(f" {side.location.line:{width}} | ", "frame"), (source, "source")])
    if length and side.location != before:
        lines.append([bar, (" " * indent + ("^" if number == 0 else "-") * length, style)])
    words = ": ".join(part for part in (side.who, side.what) if part).splitlines()
    if words:
        lines.append([bar, (" " * indent + _near(words[0], side.location), style)])
        lines += [[bar, (" " * (indent + 4) + _near(line, side.location), "")] for line in words[1:]]
    if side.text and (side.location is None or side.text not in sources.line(side.location)):
        lines.append([bar, (" " * indent + shortened(side.text), "frame")])
    return lines


def _near(text: str, location: SourceLocation | None) -> str:
    """Words in which places in the current file are given as line numbers only."""
    return text.replace(f" at {location.file}:", " in line ") if location is not None else text


def _notes(finding: Finding) -> list[tuple[str, str]]:
    """Label and text of everything that is not in the source."""
    notes = []
    if not finding.missing and finding.rule in RULES:
        notes.append(("what", finding.summary or finding.message.splitlines()[0]))
    if finding.missing:
        notes.append(("missing", finding.missing))
    if finding.history:
        notes.append(("history", "\n".join(finding.history)))
    notes += finding.notes
    if finding.fix:
        notes.append(("fix", finding.fix))
    if finding.count > 1:
        notes.append(("seen", f"{finding.count} times; this is the first"))
    return notes


def shortened(text: str) -> str:
    """An instruction whose long register lists are cut: {%f1, …, %f128}."""

    def cut(found: re.Match[str]) -> str:
        parts = [part.strip() for part in found[1].split(",")]
        return found[0] if len(parts) <= 4 else f"{{{parts[0]}, …, {parts[-1]}}}"

    return re.sub(r"\{([^{}]*)\}", cut, text)
