"""A finding that an observer reports: something wrong, or slow."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import SourceLocation, WarploomError


@dataclass(frozen=True)
class Side:
    """One of the accesses that a finding is about.

    Attributes:
        who: role, warp and CTA, or "" if it is about the instruction, whichever thread runs it.
        what: a clause: "writes boxes[0], row 3, chunk 1"; "" if the finding's summary says it.
        text: the instruction as PTX; location: its position in the user's text.
    """

    who: str
    what: str
    text: str
    location: SourceLocation | None = None


@dataclass(frozen=True)
class Finding:
    """Something wrong, or slow, that was observed.

    Attributes:
        rule: id of the rule.
        severity: "error", "warning" or "performance".
        message: sentences for people, with all details.
        locations: the positions in the user's text, most important first.
        summary: one sentence, without the fix.
        sides: the accesses it is about, the later one first.
        address: buffer, stage, row and chunk of the first affected byte, as far as the author's layout is known.
        missing: the missing edge, in words.
        history: the history of the barriers involved, a line for each phase.
        fix: what to do; count: how often it occurred.
        notes: (label, text) for anything else.
    """

    rule: str
    message: str
    severity: str = "error"
    locations: tuple[SourceLocation | str, ...] = ()
    cta: tuple[int, int, int] | None = None
    warp: int | None = None
    summary: str = ""
    sides: tuple[Side, ...] = ()
    address: str = ""
    missing: str = ""
    history: tuple[str, ...] = ()
    fix: str = ""
    count: int = 1
    notes: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of_error(cls, error: WarploomError) -> Finding:
        """An error that ended a check, as a finding; its rule is the error's name."""
        location = getattr(error, "location", None)
        where = error.where
        if isinstance(where, SourceLocation):
            location, text = where, ""
        else:
            text = (where or "").removeprefix(str(location) if location else "").strip()
        sides = tuple(
            Side(f"{wait.who} in {wait.where()}", wait.what(), wait.text, wait.location)
            for wait in getattr(error, "waits", ())
        )
        text, _, who = text.partition("\n")
        page = f"warploom rules {error.code}" if error.code != type(error).code else None
        parts = (("expected", error.expected), ("got", error.got), ("otherwise", error.consequence), ("page", page))
        places = tuple(side.location for side in sides if side.location) or ((location,) if location else ())
        return cls(
            rule=type(error).__name__,
            message=str(error),
            locations=tuple(dict.fromkeys(places)),
            summary=error.what,
            sides=sides or (Side(who.strip(), "", text, location),) * bool(text or location),
            fix=error.hint or "",
            notes=tuple((label, str(part)) for label, part in parts if part is not None),
        )

    def __str__(self) -> str:
        return f"{self.severity}[{self.rule}]: {self.message}"
