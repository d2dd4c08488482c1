"""Merges findings with the same cause, and omits findings that only follow from others.

A missing wait shows at every pair of instructions that it should order: dozens in an unrolled loop. They become one
finding that lists all places. Findings of the rules in `entails` are omitted if they are about the same instruction.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ...emulator.machine.finding import Finding
from ...plural import counted
from ..rules import RULES

PLACES = 40
"""Places that a finding names for all pairs of instructions that it represents."""
_VARYING = re.compile(r"%?[\w$.:-]*\d[\w$.:-]*|`[^`]*`")
"""What differs between findings with one cause: registers, lines, offsets, instructions."""


def causes(findings: Sequence[Finding]) -> list[Finding]:
    """The remaining findings, in their order."""
    kept = _without_consequences(findings)
    ordered = sorted(kept, key=lambda finding: finding.rule not in RULES or not RULES[finding.rule].first)
    return _of_one_edge(_together(ordered))


def _without_consequences(findings: Sequence[Finding]) -> list[Finding]:
    entailed: dict[str, set[object]] = {}
    anywhere: set[str] = set()
    for finding in findings:
        known = RULES.get(finding.rule) if finding.severity == "error" else None
        if known is not None and known.first:
            anywhere.update(known.entails)
        for rule in known.entails if known is not None else ():
            entailed.setdefault(rule, set()).update(finding.locations)
    return [
        finding
        for finding in findings
        if finding.rule not in anywhere and not entailed.get(finding.rule, set()) & {*finding.locations}
    ]


def _together(findings: Sequence[Finding]) -> list[Finding]:
    """Merge pairs of instructions on one array that lack the same edge: the first represents all."""
    groups: dict[object, list[Finding]] = {}
    for number, finding in enumerate(findings):
        if len(finding.sides) != 2:
            groups[number] = [finding]
            continue
        array = re.split(r"[+\[, ]", finding.address.strip("`"))[0]
        said = _VARYING.sub("#", finding.missing or finding.summary)
        opcodes = () if finding.missing else tuple(side.text.split(" ")[0] for side in finding.sides[1:])
        groups.setdefault((finding.rule, finding.severity, array, said, opcodes), []).append(finding)
    return [_one(group) for group in groups.values()]


def _of_one_edge(findings: Sequence[Finding]) -> list[Finding]:
    """Merge findings of one line that lack the same edge on several arrays: a wrong wait is wrong for all of them."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for number, finding in enumerate(findings):
        later = {side.location for side in finding.sides if side.location is not None} if finding.missing else set()
        for key, group in groups.items():
            if later and (finding.rule, finding.severity, finding.missing) == key[:3] and any(
                later & {*one.locations} for one in group
            ):  # fmt: skip
                group.append(finding)
                break
        else:
            groups[finding.rule, finding.severity, finding.missing, number] = [finding]
    return [_one(group) for group in groups.values()]


def _one(group: list[Finding]) -> Finding:
    first, *others = group
    if not others:
        return first
    locations = tuple(dict.fromkeys(place for finding in group for place in finding.locations))
    lines = [" and ".join(str(getattr(place, "line", place)) for place in finding.locations) for finding in others]
    listed = "; ".join(dict.fromkeys(lines[:6])) + ("; …" if len(lines) > 6 else "")
    more = f"{counted(len(others), 'other pair')} of instructions: lines {listed}"
    return replace(
        first, locations=locations[:PLACES], count=sum(finding.count for finding in group),
        notes=(*first.notes, ("also", more)), message=f"{first.message}\n  also: {more}",
    )  # fmt: skip
