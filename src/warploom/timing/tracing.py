"""The contents of a trace page: a launch's timeline, findings, who waits for whom, and its code in three forms."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..asm.demangle import readable
from ..plural import counted
from .timeline import ARRIVE, COPY, WAIT, Event, Timeline

if TYPE_CHECKING:
    from .result import Prediction

FOR_EVER = "for ever"


@dataclass(frozen=True)
class PinnedFinding:
    """A finding of the sanitizer, pinned to the timeline.

    Attributes:
        clocks: its time; cta, warp: where, -1 if that is not one warp.
        severity, rule, title: as in the finding; text: the whole message.
        file, line: the first source position that it names.
    """

    clocks: float
    severity: str
    rule: str
    title: str
    text: str
    cta: int = -1
    warp: int = -1
    file: str = ""
    line: int = 0

    @property
    def place(self) -> str:
        """Its source position, in words; "" if there is none."""
        return f", {self.file}:{self.line}" if self.file else ""


@dataclass(frozen=True)
class Waiter:
    """Warps of a CTA whose wait never ends.

    Attributes:
        event: the wait of the first of these warps in the timeline.
        who: role or warps; cta; what: what they wait for; file, line.
        needs: the waiters that would have to arrive; known: True if they have arrived there before. Otherwise no warp
            ever arrived there, and `needs` are all that wait for something else.
        missing: what the barrier lacks, in words; came: what has arrived.
    """

    event: int
    who: str
    cta: int
    what: str
    file: str
    line: int
    needs: tuple[int, ...] = ()
    known: bool = True
    missing: str = ""
    came: tuple[str, ...] = ()


@dataclass
class CodeTexts:
    """The code of a kernel, as lines.

    Attributes:
        ptx: the PTX; python: the source files that were found, by file as the timeline's events name it.
        sass: (machine code, its PTX line or 0) for each line; empty without a disassembler. `no_sass`: why.
    """

    ptx: str = ""
    python: dict[str, str] = field(default_factory=dict)
    sass: list[tuple[str, int]] = field(default_factory=list)
    no_sass: str = ""


@dataclass
class Traced:
    """One launch, ready to be shown.

    Attributes:
        timeline: the replayed events.
        prediction: prediction of the whole launch; None if the kernel hangs or fails.
        pins: the sanitizer's findings; waiters: endless waits; error: the error that ended the run, or "".
        code: the kernel's code. model: the GPU whose times are shown, in words. hint: what to do about the error.
        guessed: the launch description that has guesses, or "".
        arguments: what tells it apart from other launches of the kernel on one page, in words.
    """

    timeline: Timeline
    prediction: Prediction | None = None
    pins: list[PinnedFinding] = field(default_factory=list)
    waiters: list[Waiter] = field(default_factory=list)
    error: str = ""
    code: CodeTexts = field(default_factory=CodeTexts)
    model: str = ""
    hint: str = ""
    guessed: str = ""
    arguments: str = ""

    @property
    def kernel(self) -> str:
        return self.timeline.kernel

    def as_dict(self) -> dict[str, Any]:
        """Return plain values: the timeline with its columns, prediction, findings and waiters, but not the code."""
        return {
            "kernel": self.kernel, "model": self.model, "error": self.error, "hint": self.hint,
            "guessed": self.guessed,
            "prediction": self.prediction.as_dict() if self.prediction is not None else None,
            "findings": [asdict(pin) for pin in self.pins], "waiters": [asdict(one) for one in self.waiters],
            "timeline": self.timeline.as_dict(),
        }  # fmt: skip

    def to_json(self, path: str | Path | None = None) -> str:
        """Return `as_dict` as JSON text, and write it to `path` if given."""
        text = json.dumps(self.as_dict())
        if path is not None:
            Path(path).write_text(text)
        return text

    def to_perfetto(self, path: str | Path | None = None) -> str:
        """Return the trace for ui.perfetto.dev (Chrome's JSON), and write it to `path` if given."""
        from .perfetto import document

        text = json.dumps(document(self), separators=(",", ":"))
        if path is not None:
            Path(path).write_text(text)
        return text

    def to_html(self, path: str | Path | None = None, *, above: Sequence[Traced] = ()) -> str:
        """Return one self-contained HTML page, and write it to `path` if given.

        above: other launches, shown above this one on the same time axis.
        """
        from .page.document import document

        text = document([*above, self])
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def __str__(self) -> str:
        lines = [str(self.prediction)] if self.prediction is not None else [readable(f"{self.kernel}: {self.error}")]
        if self.hint:
            lines.append(readable(f"  hint    {self.hint}"))
        if self.guessed:
            lines.append(f"  note    {self.guessed} has guesses: sizes and values decide the time")
        events, ctas = len(self.timeline.events), len(self.timeline.sm)
        lines.append(f"  traced  {events} events of {counted(ctas, 'CTA')}")
        if self.code.no_sass:
            lines.append(f"  SASS    none: {self.code.no_sass}")
        lines += [f"  found   {pin.severity}[{pin.rule}] {pin.title}{pin.place}" for pin in self.pins]
        return "\n".join(lines)


def waiters_of(timeline: Timeline, blocked: Sequence[Any]) -> list[Waiter]:
    """Return the cycle of endless waits. blocked: `DeadlockError.waits`, for their wording."""
    first: dict[tuple[Any, ...], Event] = {}
    warps: dict[tuple[Any, ...], list[int]] = {}
    for event in timeline.of_kind(WAIT):
        if event.what.endswith(FOR_EVER):
            key = event.cta, event.role or _warpgroup(event), event.barrier, event.stage, event.pc
            first.setdefault(key, event)
            warps.setdefault(key, []).append(event.warp)
    arrivals: dict[tuple[int, str], set[tuple[int, int]]] = {}
    for event in timeline.of_kind(ARRIVE, COPY):
        if event.barrier:
            arrivals.setdefault((event.cta, event.barrier), set()).add((event.cta, event.warp))
    keys = list(first)
    found = []
    for key, event in first.items():
        came = arrivals.get((event.cta, event.barrier), set()) if event.phase >= 0 else set()
        # Whoever waits for the same phase of the same barrier does not hold this one up.
        others = [at for at, other in enumerate(keys) if (other[0], *other[2:4]) != (key[0], *key[2:4])]
        needs = [at for at in others if came & {(keys[at][0], warp) for warp in warps[keys[at]]}]
        if not came:
            needs = [at for at, other in enumerate(keys) if (other[2], other[3]) != (key[2], key[3])]
        words = next((one for one in blocked if _is_about(one, event)), None)
        low, high = min(warps[key]), max(warps[key])
        what = event.barrier + (f"[{event.stage}]" if event.stage >= 0 else "")
        found.append(
            Waiter(
                event.number, event.role or (f"warp {low}" if low == high else f"warps {low} to {high}"), event.cta,
                f"{what}, phase {event.phase}" if event.phase >= 0 else what, event.file, event.line, tuple(needs),
                bool(came), getattr(words, "missing", ""), tuple(getattr(words, "came", ())),
            )
        )  # fmt: skip
    return found


def _warpgroup(event: Event) -> str:
    return f"warpgroup {event.warp // 4}"


def _is_about(blocked: Any, event: Event) -> bool:
    place = blocked.location
    return place is not None and (place.line, str(place.file)) == (event.line, event.file)


def moment(timeline: Timeline, file: str, line: int) -> tuple[float, int, int]:
    """Return (clocks, CTA, warp) of the first event at a line, or the end of the timeline if there is none."""
    for event in timeline.events:
        if event.line == line and event.file == file:
            return event.start, event.cta, event.warp
    return timeline.end, -1, -1
