"""`rules`: what the sanitizer checks, and for each rule why, what to do, and two small kernels."""

from __future__ import annotations

import dataclasses
import difflib
from typing import Annotated

import typer
from rich.text import Text

from .. import errors
from ..errors import ArgumentError
from ..sanitizer.rules import RULES, Example, Rule
from .output import SEVERITY_STYLE, console, say, say_json, table

COVERAGE = "docs/sanitizer-coverage.md"
"""The page with the list of misuses that a rule's numbers are of."""
ADVICE = {
    "StepLimitError": (
        "A loop never ends, or the kernel is only long. The error names the loop, and the warps that run in it; warps "
        "that only wait are not counted, they end in a DeadlockError.",
        "see what ends the loop: a counter that grows, a word another thread writes; else check with --max-steps N, "
        "or config.emulator.max_steps",
    ),
    "DeadlockError": (
        "All threads that are left wait, and nothing that is under way will wake one of them.",
        "compare what each of them waits for with what has come so far: an arrival, bytes or a parity is missing",
    ),
    "CostLimitError": (
        "One cluster was run as a sample, and the whole grid would take longer than config.emulator.limit_s.",
        "use smaller arrays or a smaller grid, or raise config.emulator.limit_s",
    ),
    "OutOfBoundsError": (
        "The address lies in no buffer of the launch: an index is too large, or a size of the launch is not the "
        "kernel's.",
        "guard the access with the size, and see that shapes and scalars of the launch belong together",
    ),
    "UnsupportedInstructionError": (
        "The emulator does not guess what an instruction does; warploom info --unsupported lists those it lacks.",
        "let another instruction do it, or check the rest of the kernel without it",
    ),
}
"""Why an error that ends an emulation comes about, and what to do; of others, their own text says it."""


def rules(
    rule: Annotated[
        str, typer.Argument(metavar="[ID]", help="A rule's id, or its number in the coverage list (R1, M9).")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the sanitizer's rules, or explain one: why, what to do, a kernel that breaks it and one that does not.

    Example: warploom rules generic-write-before-async-read
    """
    if rule in _machine_errors():
        _explain_error(rule, as_json)
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


def find(name: str) -> list[Rule]:
    """The rules of that id or number. Raises ArgumentError where there is none."""
    if name in RULES:
        return [RULES[name]]
    found = [rule for rule in RULES.values() if name.upper() in rule.numbers.split(", ")]
    if not found:
        near = difflib.get_close_matches(name, RULES, 1)
        hint = f"do you mean {near[0]}? " if near else ""
        raise ArgumentError(f"there is no rule {name!r}", hint=hint + "`warploom rules` lists them all")
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
        say("\n  No small kernel shows it: it takes a tensor map and a launch.")
        return
    say("\n  `tile` (4 KiB) and `bar` (two mbarriers) lie in shared memory; %first is true in thread 0.")
    _body("breaks it", rule.bad, rule.good, "-", "red")
    _body("keeps it", rule.good, rule.bad, "+", "green")


def _body(what: str, example: Example, other: Example, mark: str, style: str) -> None:
    """A kernel's body; the lines that the other one has not are marked."""
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


def _machine_errors() -> tuple[str, ...]:
    """Names of errors that end an emulation, which a report shows in a rule's place."""
    return tuple(
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.WarploomError) and kind is not errors.WarploomError
    )


def _explain_error(name: str, as_json: bool) -> None:
    what = " ".join((getattr(errors, name).__doc__ or "").split())
    advice = dict(zip(("why", "fix"), ADVICE.get(name, ()), strict=False))
    if as_json:
        say_json([{"id": name, "severity": "error", "title": what, **advice}])
        return
    say(f"error[{name}]: {what}")
    table(advice.items())
    say("  It is no rule of the sanitizer: the check ends with it, and its text has the place and the values.")
