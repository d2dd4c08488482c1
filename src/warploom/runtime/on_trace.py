"""A launch to be inspected: `warploom.trace(program, *args) -> Traced`.

The clusters are recorded and replayed as in `predict`. The sanitizer also watches, and each of its findings gets the
time at which it was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import EmulationError, WarploomError
from ..isa import arch as arches
from .asked import FIRST_UNRECORDED
from .on_clock import EVENTS, record
from .program import HasProgram, Program, program_of
from .validate import at_least

if TYPE_CHECKING:
    from ..emulator.machine.finding import Finding
    from ..timing import Traced
    from ..timing.recorder import Recorder
    from ..timing.recording import Recording
    from ..timing.timeline import Timeline
    from ..timing.tracing import CodeTexts, PinnedFinding


def trace(
    program: Program | HasProgram | str | Path,
    *args: Any,
    check: bool = True,
    sass: bool = True,
    folders: Sequence[str | Path] = (),
    entry: str | None = None,
    limit: int = EVENTS,
    **options: Any,
) -> Traced:
    """Trace one launch on the model of an H200.

    Args:
        args, options: as in `warploom.predict`; `clusters` is the number of the grid's first clusters to run.
        check: let the sanitizer watch the recorded clusters.
        sass: also disassemble the kernel, if ptxas and nvdisasm are installed.
        folders: where files named by the text's lines are searched, after the current one.
        limit: maximum number of events to keep.

    A kernel that hangs or fails is traced up to that point: `waiters` and `error` say how. Raises ArgumentError and
    ArgumentTypeError for an invalid call.
    """
    from ..sanitizer import Sanitizer
    from ..timing import H200, Trace, Traced, predict, replay_stopped
    from ..timing.stopped import add_open_waits, mark
    from ..timing.tracing import waiters_of

    at_least(0, limit, "limit")
    chosen = program_of(program, entry=entry)
    moments: dict[tuple[str, str], tuple[int, int, int]] = {}
    made: list[Recorder] = []

    def watching(machine: Any) -> Sanitizer:
        sanitizer = Sanitizer(machine)

        def heard(rule: str, message: str, cta: Any, warp: int | None) -> None:
            place = mark(made[0], cta, warp or 0) if cta is not None and made else None
            if place is not None:
                moments.setdefault((rule, message), place)

        sanitizer.context.findings.heard = heard
        return sanitizer

    findings: list[Finding] = []
    stopped: EmulationError | None = None
    try:
        recording, launch = record(
            chosen, *args, made=made, watch=[watching] if check else [], findings=findings, **options
        )  # fmt: skip
    except EmulationError as error:
        if not made:
            raise
        stopped, findings = error, list(error.findings)
        add_open_waits(made[0])
        recording = made[0].finish()
    events = Trace(recording, limit)
    prediction = None
    if stopped is None:
        prediction = predict(recording, H200, launch, events)
        timeline = prediction.timeline
        assert timeline is not None
        prediction.timeline = None
    else:
        timeline = replay_stopped(recording, H200, events)
    times = {key: events.times[place] for key, place in moments.items() if place in events.times}
    return Traced(
        timeline, prediction, [_pin(one, timeline, times, moments) for one in findings],
        waiters_of(timeline, getattr(stopped, "waits", ())), stopped.what if stopped is not None else "",
        _code(chosen, recording, timeline, sass, folders), _model(chosen), getattr(stopped, "hint", None) or "",
        chosen.guessed,
    )  # fmt: skip


def _model(program: Program) -> str:
    found = "times of the model of an H200"
    if arches.get(program.arch).number >= FIRST_UNRECORDED:
        found += f", for a kernel of {program.arch}: assembled and emulated, not run on hardware"
    return found


def _pin(
    finding: Finding,
    timeline: Timeline,
    times: dict[tuple[str, str], float],
    moments: dict[tuple[str, str], tuple[int, int, int]],
) -> PinnedFinding:
    from ..sanitizer.rules import RULES
    from ..timing.tracing import PinnedFinding, moment

    key = finding.rule, finding.summary
    place = next((one for one in finding.locations if not isinstance(one, str)), None)
    file, line = (str(place.file), place.line) if place is not None else ("", 0)
    if key in times:
        clocks, (cta, warp, _) = times[key], moments[key]
    elif key in moments and (last := timeline.rows().get(moments[key][:2])):
        clocks, (cta, warp, _) = last[-1].start, moments[key]  # while it polled a barrier, of which one attempt is kept
    else:
        clocks, cta, warp = moment(timeline, file, line)
    title = RULES[finding.rule].title if finding.rule in RULES else finding.summary
    return PinnedFinding(clocks, finding.severity, finding.rule, title, finding.message, cta, warp, file, line)


def _code(
    program: Program, recording: Recording, timeline: Timeline, sass: bool, folders: Sequence[str | Path]
) -> CodeTexts:
    from ..driver.sass_lines import sass_lines
    from ..sanitizer.report.rendering import Sources
    from ..timing.tracing import CodeTexts

    found = CodeTexts(program.text)
    sources = Sources([Path(folder) for folder in folders])
    for file in sorted({event.file for event in timeline.events if event.file}):
        path = sources.path(file)
        if path is not None and path.suffix != ".ptx":
            found.python[file] = path.read_text(encoding="utf-8", errors="replace")
    if sass:
        starts = {facts.ptx_line for facts in recording.pcs}
        try:
            found.sass = [(one.text, one.ptx_line) for one in sass_lines(program.text, program.entry, starts)]
        except WarploomError as error:
            found.no_sass = error.in_one_line
    return found
