"""`rules`: what the sanitizer checks, why, what to do, and two small kernels for each rule; and the error codes."""

from __future__ import annotations

import dataclasses
import difflib
from typing import Annotated

import typer
from rich.text import Text

from .. import errors
from ..error_codes import CODES, Code
from ..errors import ArgumentError
from ..near import near
from ..sanitizer.rules import RULES, Example, Rule
from .output import SEVERITY_STYLE, console, say, say_json, table

COVERAGE = "docs/sanitizer-coverage.md"
"""The page with the list of misuses to which a rule's numbers refer."""


def rules(
    rule: Annotated[
        str,
        typer.Argument(metavar="[CODE]", help="A rule's id or number (R1, M9), or an error code."),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the sanitizer's rules, or explain one.

    An explanation says why and what to do, and has a kernel that violates the rule and one that does not.

    Example: warploom rules generic-write-before-async-read
    """
    if rule in CODES or rule in _CODE_OF_CLASS:
        _explain_code(CODES[_CODE_OF_CLASS.get(rule, rule)], as_json)
        return
    chosen = find(rule) if rule else list(RULES.values())
    if as_json:
        say_json([as_dict(one) for one in chosen])
    elif rule:
        for number, one in enumerate(chosen):
            if number:
                say()
            _explain(one)
    else:
        table((f"{one.id} ({one.severity})", one.title) for one in chosen)
        say()
        table(((code.id, code.title) for code in CODES.values()), "errors and other findings")


def find(name: str) -> list[Rule]:
    """The rules with that id or number. Raises ArgumentError if there is none."""
    if name in RULES:
        return [RULES[name]]
    found = [rule for rule in RULES.values() if name.upper() in rule.numbers.split(", ")]
    if not found:
        meant = near(name, [*RULES, *CODES], 1)
        hint = " ".join(filter(None, (meant, "`warploom rules` lists them all")))
        raise ArgumentError(f"unknown rule {name!r}", hint=hint, code="unknown-name")
    return found


def as_dict(rule: Rule) -> dict[str, object]:
    """A rule as plain values; its examples with their whole texts."""
    plain = dataclasses.asdict(rule)
    for name in ("bad", "good"):
        example = getattr(rule, name)
        if example is not None:
            plain[name]["text"] = example.text()
    return plain


def _explain(rule: Rule) -> None:
    out = console()
    style = SEVERITY_STYLE[rule.severity]
    out.print(Text.assemble((f"{rule.severity}[{rule.id}]", style), (f": {rule.title}", "bold")))
    numbers = [("coverage list", f"{rule.numbers} ({COVERAGE})")] if rule.numbers else []
    table([("why", rule.why), ("PTX ISA", rule.section), ("fix", rule.fix), *numbers])
    if rule.bad is None or rule.good is None:
        say("\n  No small kernel shows it: it needs a tensor map and a launch.")
        return
    say("\n  `tile` (4 KiB) and `bar` (two mbarriers) are in shared memory; %first is true in thread 0.")
    _body("violates it", rule.bad, rule.good, "-", "red")
    _body("follows it", rule.good, rule.bad, "+", "green")


def _body(what: str, example: Example, other: Example, mark: str, style: str) -> None:
    """Print a kernel's body, with marks on the lines that the other kernel lacks."""
    threads = f"{example.threads} threads" + (f", clusters of {example.cluster}" if example.cluster > 1 else "")
    extra = f", {example.directives}" if example.directives else ""
    say(f"\n  a kernel that {what} ({threads}{extra})")
    mine, theirs = _lines(example), _lines(other)
    same = {
        at
        for block in difflib.SequenceMatcher(None, mine, theirs, autojunk=False).get_matching_blocks()
        for at in range(block.a, block.a + block.size)
    }
    for at, line in enumerate(mine):
        kept = at in same
        console().print(Text(f"    {' ' if kept else mark} {line}", style="" if kept else style))


def _lines(example: Example) -> list[str]:
    return [line.strip() for line in example.body.splitlines() if line.strip()]


_CODE_OF_CLASS = {
    name: kind.code
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.WarploomError) and kind.code in CODES
}
"""Reports name an error that ended an emulation by its class."""


def _explain_code(code: Code, as_json: bool) -> None:
    if as_json:
        say_json([{**dataclasses.asdict(code), "severity": "error"}])
        return
    say(f"error[{code.id}]: {code.title}")
    rows = (
        ("why", code.why), ("on the GPU", code.otherwise), ("PTX ISA", code.section), ("fix", code.fix),
        ("raised as", code.error),
    )  # fmt: skip
    table(row for row in rows if row[1])
    if code.example:
        say("\n  for example")
        for line in code.example.strip().splitlines():
            console().print(Text(f"    {line}"))
