"""Findings as they are collected: one for each rule and pair of places, with the number of times it was met."""

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
"""Findings kept; a kernel that breaks a rule at more places than that is not helped by more of them."""


class Findings:
    """Collects findings, each once for each rule and pair of instructions."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, object, object], Finding] = {}
        self._again: Counter[tuple[str, object, object]] = Counter()
        self.heard: Callable[[str, str, Cta | None, int | None], None] | None = None
        """Is told of each new finding at once: its rule, its message, and who ran the instruction."""

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
        """Note a finding. `codes` are the instructions it is about, the one to look at first in front.

        `sides`, `address`, `missing`, `history`: see `Finding`; without sides they are made of `codes`. `fix`: what
        to do, where the rule's own advice is for another case of it.
        """
        key = self.key(rule, codes)
        if key in self._found:
            self._again[key] += 1
        elif len(self._found) < LIMIT:
            self._found[key] = Finding(
                rule, message, severity or RULES[rule].severity, locations=tuple(dict.fromkeys(map(place, codes))),
                cta=cta.index if cta else None, warp=warp, sides=sides or sides_of(codes, cta, warp), address=address,
                missing=missing, history=history, fix=fix or RULES[rule].fix,
            )  # fmt: skip
            if self.heard is not None:
                self.heard(rule, message, cta, warp)

    def seen(self, rule: str, codes: tuple[Operation, ...]) -> bool:
        """Whether it is known already; counts it if so. Spares the making of its message."""
        key = self.key(rule, codes)
        known = key in self._found
        self._again[key] += known
        return known

    def raise_to_error(self, rule: str, codes: tuple[Operation, ...], more: str = "") -> None:
        """Make a finding an error that came in as a warning, and say more of it."""
        key = self.key(rule, codes)
        found = self._found.get(key)
        if found is not None and found.severity != "error":
            self._found[key] = replace(found, severity="error", message=f"{found.message}{more}")

    @staticmethod
    def key(rule: str, codes: tuple[Operation, ...]) -> tuple[str, object, object]:
        """Instructions of one line of the user's text are one place: an unrolled loop has many of them."""
        places: list[object] = [code.instruction.location or code.pc for code in codes] or [None]
        return (rule, places[0], places[-1])

    def as_list(self) -> list[Finding]:
        """What was found, errors first, then in the order met; see `causes` for what is left out."""
        order = {"error": 0, "warning": 1, "performance": 2}
        made = [_told(found, 1 + self._again[key]) for key, found in self._found.items()]
        return causes(sorted(made, key=lambda finding: order[finding.severity]))


def _told(found: Finding, count: int) -> Finding:
    times = f" ({count} times)" if count != 1 else ""
    message = f"{found.message}{times}\n  fix: {found.fix}"
    return replace(found, message=message, summary=found.message, count=count)


def sides_of(codes: tuple[Operation, ...], cta: Cta | None, warp: int | None) -> tuple[Side, ...]:
    """Sides of which only the instructions are known, and of the first one who ran it."""
    who = cta.describe_warp(warp) if cta and warp is not None else cta.describe() if cta else ""
    distinct = dict.fromkeys((code.text, code.instruction.location) for code in codes)
    return tuple(
        Side(who if number == 0 else "", "", text, location) for number, (text, location) in enumerate(distinct)
    )


def place(code: Operation) -> SourceLocation | str:
    """Where an instruction stands in the user's text."""
    return code.instruction.location or code.text


def at(code: Operation) -> str:
    """An instruction and its place, for a sentence."""
    location = code.instruction.location
    opcode = code.instruction.opcode
    return f"`{opcode}` at {location}" if location else f"`{code.text}`"
