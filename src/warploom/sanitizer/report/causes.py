"""Findings that say the same thing are one, and what only follows from another finding is left out.

A wait that is missing shows at every pair of instructions that it was to order: dozens in an unrolled loop. They are
one finding, with the places of all. What a rule's `entails` names is left out where it is about the same instruction.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ...emulator.machine.finding import Finding
from ..rules import RULES

PLACES = 40
"""Places that a finding names for all pairs of instructions that it stands for."""
_VARYING = re.compile(r"%?[\w$.:-]*\d[\w$.:-]*|`[^`]*`")
"""What differs between findings of one cause: registers, lines, offsets, instructions."""


def causes(findings: Sequence[Finding]) -> list[Finding]:
    """The findings that are left, in their order."""
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
    """Pairs of instructions between which the same is missing, on the same array: the first stands for all."""
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
    """Findings of one line whose missing edge is the same, on several arrays: a wait that is wrong is wrong for all."""
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
    more = f"{len(others)} other pair{'s' if len(others) != 1 else ''} of instructions: lines {listed}"
    return replace(
        first, locations=locations[:PLACES], count=sum(finding.count for finding in group),
        notes=(*first.notes, ("also", more)), message=f"{first.message}\n  also: {more}",
    )  # fmt: skip
