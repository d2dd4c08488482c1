"""The problems of a text in its current state: syntax, the verifier, static findings, and ptxas."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ..asm import newer, verify
from ..asm.nodes import Module
from ..driver import messages
from ..emulator.machine.operation import Operation
from ..emulator.ops import HANDLERS
from ..emulator.program.code import Code
from ..errors import SourceLocation, WarploomError
from ..sanitizer.rules import RULES
from ..sanitizer.unchecked_waits import unchecked_waits
from ..sanitizer.undefined_reads import undefined_reads
from .reading import Problem, Reading

_DECLARES = re.compile(r"\s*(\.|[\w$%]+:)")
_QUOTED = re.compile(r"[`']([^`']+)[`']")


def problems_of(reading: Reading) -> list[Problem]:
    """All problems that are known without ptxas: syntax, the verifier's errors, static findings."""
    found = list(reading.problems)
    if reading.module is None:
        return found
    errors = _verified(reading)
    found += errors
    note = newer(reading.module)
    if note:
        found.append(Problem(*_span(reading, 1, note), note, "newer-version", "note"))
    if not errors and not reading.problems:
        found += _static(reading, reading.module)
    return found


def ptxas_problems(reading: Reading) -> list[Problem]:
    """The messages of ptxas about the text, if there is a ptxas. Raises ToolchainError if it does not run."""
    found = []
    for message in messages.of(reading.text):
        severity = {"error": "error", "fatal": "error", "warning": "warning"}.get(message.level, "note")
        start, end = _span(reading, message.line or _entry_line(reading), message.text)
        found.append(Problem(start, end, message.text, message.code, severity, "ptxas"))
    return found


def merged(reading: Reading, own: list[Problem], of_ptxas: list[Problem]) -> list[Problem]:
    """Both lists, without ptxas's messages on lines that have an error of ours, which is more specific."""
    said = {_line(reading, problem.start) for problem in own if problem.severity == "error"}
    return own + [problem for problem in of_ptxas if _line(reading, problem.start) not in said]


def _verified(reading: Reading) -> list[Problem]:
    assert reading.module is not None
    found = []
    for error in verify(reading.module):
        line = error.where.line - reading.shift if isinstance(error.where, SourceLocation) else 0
        if line < 1 and reading.shift:
            continue  # belongs to the substitute head
        if error.code == "undeclared-name" and reading.blanked:
            # The line that declares it may be the one that could not be read.
            name = next(iter(_QUOTED.findall(error.what)[::-1]), "")
            stem = re.sub(r"\d+$", "", name)
            if any(stem in line and _DECLARES.match(line) for line in _lines(reading, reading.blanked)):
                continue
        start, end = _span(reading, max(line, 1), error.what, str(error.got or ""))
        found.append(Problem(start, end, _sentences(error), error.code))
    return found


def _lines(reading: Reading, numbers: Iterable[int]) -> Iterator[str]:
    lines = reading.text.splitlines()
    return (lines[number - 1] for number in numbers if number <= len(lines))


def _sentences(error: WarploomError) -> str:
    parts = [error.what]
    parts += [f"expected {error.expected}"] if error.expected is not None else []
    parts += [f"hint: {error.hint}"] if error.hint is not None else []
    return "\n".join(parts)


def _static(reading: Reading, module: Module) -> Iterator[Problem]:
    """Problems derived from the text of each kernel, before it runs."""
    for entry in module.entries:
        try:
            code = Code(module, entry, HANDLERS)
            reads = undefined_reads(code)
            waits = [code.operations[pc] for pc in sorted(unchecked_waits(code))]
        except WarploomError as error:
            line = error.where.line if isinstance(error.where, SourceLocation) else 1
            what = f"the emulator cannot run {entry.name}: {error.what}"
            yield Problem(*_span(reading, line, error.what), what, error.code, "note")
            continue
        for operation, name in reads:
            rule = RULES["uninitialised-register"]
            what = f"{name} is read, but no instruction before this one writes it, on any path through the kernel"
            yield Problem(*_span(reading, _line_of(operation), f"`{name}`"), what, rule.id, rule.severity)
        for operation in waits:
            what = "nothing depends on the result of this wait: if it is false, the thread has not waited"
            yield Problem(*_span(reading, _line_of(operation), ""), what, "unchecked-wait", "warning")


def _line_of(operation: Operation) -> int:
    return operation.instruction.ptx_line or 1


def _entry_line(reading: Reading) -> int:
    found = re.search(r"(?m)^.*\.entry\b", reading.text)
    return reading.text.count("\n", 0, found.end()) + 1 if found else 1


def _line(reading: Reading, offset: int) -> int:
    return reading.text.count("\n", 0, offset)


def _span(reading: Reading, line: int, *sentences: str) -> tuple[int, int]:
    """The position of a problem on a line: the first word of it that a sentence quotes, else the whole statement."""
    tokens = reading.tokens
    on_line = [index for index in range(len(tokens.starts) - 1) if tokens.line(index) == line]
    quoted = [word for sentence in sentences for word in _QUOTED.findall(sentence)]
    # The last quoted name is the most specific: "operand `%r9` of `add.s32`" also quotes the opcode.
    words = [index for index in on_line if tokens.texts[index] in quoted]
    if words:
        operands = [index for index in words if index != on_line[0]] or words
        return tokens.starts[operands[0]], tokens.end(operands[0])
    if on_line:
        return tokens.starts[on_line[0]], tokens.end(on_line[-1])
    lines = reading.text.splitlines(keepends=True)
    start = sum(map(len, lines[: line - 1]))
    return min(start, len(reading.text)), min(start + 1, len(reading.text))
