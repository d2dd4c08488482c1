"""Findings as SARIF 2.1.0 (OASIS, Static Analysis Results Interchange Format), which editors and code hosts read.

A finding is a result with its rule, a level, the message, the location of its first side, the other sides as related
locations, and a fingerprint that stays the same while the lines around it move.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..emulator.machine.finding import Finding, Side
from ..errors import SourceLocation
from ..sanitizer.report.rendering import Sources
from ..sanitizer.rules import RULES
from ..testing import Checked
from ..version import __version__

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS = {"error": "error", "warning": "warning", "performance": "note"}


def document(checked: Sequence[Checked], sources: Sources) -> dict[str, Any]:
    """A document with one run: all findings of all kernels."""
    pairs = [(one, finding) for one in checked for finding in one.findings]
    names = list(dict.fromkeys(finding.rule for _, finding in pairs))
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {"name": "warploom", "version": __version__, "rules": [_rule(name) for name in names]}
                },
                "columnKind": "unicodeCodePoints",
                "results": [_result(one, finding, names.index(finding.rule), sources) for one, finding in pairs],
            }
        ],
    }


def _rule(name: str) -> dict[str, Any]:
    rule = RULES.get(name)
    if rule is None:
        return {"id": name, "shortDescription": {"text": f"{name}: the check ended with it"}}
    return {
        "id": name,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "help": {"text": f"{rule.fix} (PTX ISA {rule.section}). `warploom rules {name}` shows two kernels."},
        "defaultConfiguration": {"level": LEVELS[rule.severity]},
    }


def _result(checked: Checked, finding: Finding, rule: int, sources: Sources) -> dict[str, Any]:
    sides = [side for side in finding.sides if side.location is not None]
    places = [side.location for side in sides] or [at for at in finding.locations if isinstance(at, SourceLocation)]
    first = places[0] if places else None
    message = finding.message
    if checked.mode == "emulated":
        message += f"\n  in {checked.kernel}, schedule {checked.schedule}, seed {checked.seed}"
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": rule,
        "level": LEVELS[finding.severity],
        "message": {"text": message},
        "locations": [_location(first, checked, sources)],
        "partialFingerprints": {"warploom/v1": _fingerprint(checked, finding, sources)},
        "properties": {"kernel": checked.kernel, "schedule": checked.schedule, "seed": checked.seed},
    }
    related = [_related(number, side, checked, sources) for number, side in enumerate(sides[1:], 1)]
    if related:
        result["relatedLocations"] = related
    return result


def _location(place: SourceLocation | None, checked: Checked, sources: Sources) -> dict[str, Any]:
    """A location; the first line of the checked file if a finding has none."""
    if place is None or place.line < 1:
        return {"physicalLocation": {"artifactLocation": {"uri": _uri(checked.file or checked.kernel)}}}
    region: dict[str, Any] = {"startLine": place.line}
    if place.column:
        region["startColumn"] = place.column
    line = sources.line(place)
    if line:
        region["snippet"] = {"text": line}
    file = sources.path(place.file) or Path(place.file)
    return {"physicalLocation": {"artifactLocation": {"uri": _uri(str(file))}, "region": region}}


def _related(number: int, side: Side, checked: Checked, sources: Sources) -> dict[str, Any]:
    words = ": ".join(part for part in (side.who, side.what, side.text) if part)
    return {"id": number, "message": {"text": words}, **_location(side.location, checked, sources)}


def _uri(path: str) -> str:
    """A path below the current folder as a relative reference, any other as a file URI; a bare name unchanged."""
    file = Path(path)
    if not file.exists():
        return file.as_posix().replace(" ", "%20")
    try:
        return file.resolve().relative_to(Path.cwd()).as_posix().replace(" ", "%20")
    except ValueError:
        return file.resolve().as_uri()


def _fingerprint(checked: Checked, finding: Finding, sources: Sources) -> str:
    """Equal for equal findings in equal lines, wherever the lines are."""
    places: Iterable[SourceLocation | None] = [side.location for side in finding.sides]
    lines = [sources.line(place).strip() for place in places if place is not None]
    return hashlib.sha256("\n".join([finding.rule, checked.kernel, *lines]).encode()).hexdigest()[:32]
