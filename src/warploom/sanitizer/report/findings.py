"""Collects findings: one for each rule and pair of places, with the number of times it occurred."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ...emulator.machine.finding import Finding, Side
from ..rules import RULES
from .causes import causes

if TYPE_CHECKING:
    from ...emulator.machine.machine import Cta
    from ...emulator.machine.operation import Operation
    from ...errors import SourceLocation

LIMIT = 200
"""Findings kept of each rule: more do not help, and those of one rule must not hide another's."""


class Findings:
    """Collects findings, one for each rule and pair of instructions."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, object, object], Finding] = {}
        self._of_rule: Counter[str] = Counter()
        self._again: Counter[tuple[str, object, object]] = Counter()
        self.heard: Callable[[str, str, Cta | None, int | None], None] | None = None
        """Called at once for each new finding with its rule, its message, and who ran the instruction."""

    def add(
        self,
        rule: str,
        message: str,
        codes: tuple[Operation, ...],
        cta: Cta | None = None,
        warp: int | None = None,
        severity: str | None = None,
        sides: tuple[Side, ...] = (),
        address: str = "",
        missing: str = "",
        history: tuple[str, ...] = (),
        fix: str = "",
    ) -> None:
        """Record a finding. `codes` are the instructions it is about, the most relevant first.

        `sides`, `address`, `missing`, `history`: see `Finding`; without sides they are derived from `codes`. `fix`:
        advice, if the rule's own advice covers another case.
        """
        key = self.key(rule, codes)
        if self._as_bad(key, severity or RULES[rule].severity):
            self._again[key] += 1
        elif key in self._found or self._of_rule[rule] < LIMIT:
            self._of_rule[rule] += key not in self._found
            self._found[key] = Finding(
                rule, message, severity or RULES[rule].severity, locations=tuple(dict.fromkeys(map(place, codes))),
                cta=cta.index if cta else None, warp=warp, sides=sides or sides_of(codes, cta, warp), address=address,
                missing=missing, history=history, fix=fix or RULES[rule].fix,
            )  # fmt: skip
            if self.heard is not None:
                self.heard(rule, message, cta, warp)

    def seen(self, rule: str, codes: tuple[Operation, ...], severity: str | None = None) -> bool:
        """True if the finding is known already, and counts it. This avoids building its message.

        `severity`: if it is not the rule's own. The finding may be known as a warning and be an error this time.
        """
        key = self.key(rule, codes)
        known = self._as_bad(key, severity or RULES[rule].severity)
        self._again[key] += known
        return known

    def _as_bad(self, key: tuple[str, object, object], severity: str) -> bool:
        found = self._found.get(key)
        return found is not None and (found.severity == "error" or severity != "error")

    def raise_to_error(self, rule: str, codes: tuple[Operation, ...], more: str = "") -> None:
        """Turn a warning into an error, and extend its message."""
        key = self.key(rule, codes)
        found = self._found.get(key)
        if found is not None and found.severity != "error":
            self._found[key] = replace(found, severity="error", message=f"{found.message}{more}")

    @staticmethod
    def key(rule: str, codes: tuple[Operation, ...]) -> tuple[str, object, object]:
        """The key of a finding. Instructions on one line of the user's text are one place: an unrolled loop has many
        of them."""
        places: list[object] = [code.instruction.location or code.pc for code in codes] or [None]
        return (rule, places[0], places[-1])

    def as_list(self) -> list[Finding]:
        """The findings, errors first, then in order of occurrence; `causes` says which are omitted."""
        order = {"error": 0, "warning": 1, "performance": 2}
        made = [_told(found, 1 + self._again[key]) for key, found in self._found.items()]
        return causes(sorted(made, key=lambda finding: order[finding.severity]))


def _told(found: Finding, count: int) -> Finding:
    times = f" ({count} times)" if count != 1 else ""
    message = f"{found.message}{times}\n  fix: {found.fix}"
    return replace(found, message=message, summary=found.message, count=count)


def sides_of(codes: tuple[Operation, ...], cta: Cta | None, warp: int | None) -> tuple[Side, ...]:
    """Sides with their instructions only; for the first one also who ran it."""
    who = cta.describe_warp(warp) if cta and warp is not None else cta.describe() if cta else ""
    distinct = dict.fromkeys((code.text, code.instruction.location) for code in codes)
    return tuple(
        Side(who if number == 0 else "", "", text, location) for number, (text, location) in enumerate(distinct)
    )


def place(code: Operation) -> SourceLocation | str:
    """The position of an instruction in the user's text."""
    return code.instruction.location or code.text


def at(code: Operation) -> str:
    """An instruction and its place, for use in a sentence."""
    location = code.instruction.location
    opcode = code.instruction.opcode
    return f"`{opcode}` at {location}" if location else f"`{code.text}`"
