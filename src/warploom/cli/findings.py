"""Prints findings, in colour on a terminal, with their source lines."""

from __future__ import annotations

from rich.text import Text

from ..emulator.machine.finding import Finding
from ..sanitizer.report.rendering import Sources, render
from ..testing import Checked
from .output import SEVERITY_STYLE, console, say

STYLES = {**SEVERITY_STYLE, "bold": "bold", "place": "blue", "frame": "dim", "": ""}


def say_finding(finding: Finding, sources: Sources) -> None:
    """Print one finding and an empty line."""
    out = console()
    for line in render(finding, sources):
        out.print(Text.assemble(*((text, STYLES[style]) for text, style in line)))
    say()


def say_checked(checked: Checked, sources: Sources, target: str) -> None:
    """Print all findings of a kernel, the verdict, and how to reproduce it or to see more."""
    for finding in checked.findings:
        say_finding(finding, sources)
    say(checked.summary())
    unusual = (checked.schedule, checked.seed) != ("lazy", 0)
    if not checked.ok and checked.mode == "emulated" and checked.interleavings is None and unusual:
        tried = f" (the first of {len(checked.explored)} tried that fails)" if len(checked.explored) > 1 else ""
        say(f"  to reproduce it{tried}: warploom check {target} --schedule {checked.schedule} --seed {checked.seed}")
    rules = dict.fromkeys(finding.rule for finding in checked.findings if finding.severity == "error")
    if rules and checked.mode == "emulated":
        say(f"  explained by: {', '.join(f'warploom rules {rule}' for rule in rules)}")
