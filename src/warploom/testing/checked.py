"""One kernel checked under one launch: the findings, in a form for printing, tests and files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .. import asm
from ..asm.demangle import readable
from ..emulator.diagnosis.report import Interleavings, Report
from ..emulator.machine.finding import Finding
from ..errors import DeadlockError, EmulationError, PtxSyntaxError, SourceLocation, VerificationError, WarploomError
from ..plural import counted
from ..runtime import Program, emulate, launch_file
from ..runtime.launch_file import LaunchFile
from ..sanitizer.report.rendering import Sources, as_text, render
from ..sanitizer.rules import RULES
from .wrong_result import wrong_result

ERROR = "error"
STATIC_ONLY = "static only: no launch given"
NOT_EMULATED = "not emulated"
ONLY_IF_WRONG = ("swizzle-base",)
"""Rules about code that is correct if the kernel accounts for it, which an expected result shows."""
GUESSES_SHOWN = 12
"""Maximum number of guesses that a finding lists."""


@dataclass
class Checked:
    """The result of checking one kernel under one launch.

    Attributes:
        kernel: its name; file: its location, "" if unknown.
        mode: "emulated", or "static" if no launch is known.
        findings: errors first; before them only the finding that the launch is guessed, which may be their cause.
        counters: of the emulation, up to an error that ended it; empty if there was none.
        schedule, seed: the pair that shows the findings; explored: the pairs that were tried.
        interleavings: with schedule "exhaustive", the result of the search.
        notes: useful facts that are not findings; printed: what the kernel printed, one entry for each call.
        guessed: the launch description whose values are still those of `check --init`; "" if there is none.
    """

    kernel: str
    mode: str
    findings: list[Finding] = field(default_factory=list)
    counters: dict[str, Any] = field(default_factory=dict)
    launch: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    file: str = ""
    schedule: str = "lazy"
    seed: int = 0
    explored: tuple[tuple[str, int], ...] = ()
    interleavings: Interleavings | None = None
    guessed: str = ""
    notes: tuple[str, ...] = ()
    printed: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if no finding has severity error."""
        return not self.errors

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == ERROR]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; `name` is the kernel's name as the reports have it, demangled."""
        values = {name: value for name, value in vars(self).items() if name not in ("kernel", "findings")}
        if self.interleavings is not None:
            known = {name: value for name, value in vars(self.interleavings).items() if name != "findings"}
            values["interleavings"] = {**known, "ok": self.interleavings.ok}
        return {
            "kernel": self.kernel, "name": readable(self.kernel), "ok": self.ok, **values,
            "findings": [finding_as_dict(finding) for finding in self.findings],
        }  # fmt: skip

    def summary(self) -> str:
        """One line: how it was checked, the findings, the schedule; one more line on how far this can be trusted."""
        count, kernel = len(self.errors), readable(self.kernel)
        verdict = counted(count, "error") if count else "nothing found"
        others = len(self.findings) - count
        if others:
            verdict = f"{counted(count, 'error')}, {counted(others, 'other finding')}"
        if self.mode == "static":
            mode = NOT_EMULATED if count else STATIC_ONLY
            return "\n".join([f"{kernel}: {mode}; {verdict}", *(f"  note  {note}" for note in self.notes)])
        if self.interleavings is not None and self.interleavings.ok and not self.interleavings.complete:
            verdict += " in an incomplete search"
        details = []
        if self.explored:
            details.append(counted(len(self.explored), "schedule"))
        if self.counters and self.counters["ctas"]:
            ctas = self.counters["ctas"]
            details.append(f"{counted(ctas, 'CTA')}, {self.counters['instructions']} warp instructions")
            details.append(f"{self.seconds:.2f} s")
        under = " under a guessed launch" if self.guessed else ""
        line = f"{kernel}: emulated{under}, {verdict}" + (f" ({', '.join(details)})" if details else "")
        lines = [line] if self.interleavings is None else [line, f"{kernel}: {self.interleavings}"]
        lines += [f"  note  {note}" for note in self.notes]
        lines += [f"  prints  {line}" for line in "".join(self.printed).splitlines()]
        return "\n".join(lines)

    def text(self, sources: Sources | None = None, least: Sequence[str] = ()) -> str:
        """All findings with their source lines, and the summary; only severities in `least`, if it names any."""
        shown = [finding for finding in self.findings if not least or finding.severity in least]
        return "\n\n".join([*(as_text(render(finding, sources)) for finding in shown), self.summary()])


def _said_once(findings: list[Finding]) -> list[Finding]:
    """Omit the error that ended the run, the last, if a finding about its instruction says the same and more."""
    *others, error = findings
    same = next(
        (one for one in others
         if one.rule in RULES and RULES[one.rule].stops and one.locations[:1] == error.locations[:1] != ()), None
    )  # fmt: skip
    if same is None or error.rule in RULES:
        return findings
    notes = (*same.notes, *(note for note in error.notes if note[0] == "otherwise"))
    return [replace(one, notes=notes) if one is same else one for one in others]


def guessed_launch(described: LaunchFile, checked: Checked) -> Finding:
    """A warning for a run under a launch that nobody has reviewed, so that it never counts as a clean pass."""
    listed = described.guesses[:GUESSES_SHOWN]
    more = len(described.guesses) - len(listed)
    shown = "; ".join(listed) + (f"; and {more} more" if more else "")
    counted = checked.counters
    wrote = sum(counted.get(name, 0) for name in ("global_store_bytes", "tma_store_bytes")) if counted else 1
    lines = described.path.read_text(encoding="utf-8-sig").splitlines()
    line = next((at for at, text in enumerate(lines, 1) if text[:7] == "guessed"), 1)
    nothing = "the kernel wrote nothing to global memory: such sizes leave it nothing to do"
    idle = () if wrote or checked.errors else (("so", nothing),)
    what = "errors may come from a guess" if checked.errors else "the absence of findings may come from a guess"
    return Finding(
        rule="guessed-launch", severity="warning", locations=(SourceLocation(described.path.name, line),),
        message=f"{described.path.name} is still as guessed by --init: {what}: {shown}",
        summary=f"the launch is a guess of --init: {what}", sides=(),
        fix=f"enter the values of the real launch, then delete the line `guessed = true` of {described.path.name}",
        notes=(("guesses", shown), *idle),
    )  # fmt: skip


def finding_as_dict(finding: Finding) -> dict[str, Any]:
    """A finding as plain values; locations become "file:line"."""
    plain = dataclasses.asdict(finding)
    plain["locations"] = [str(place) for place in finding.locations]
    for side, made in zip(plain["sides"], finding.sides, strict=True):
        side["location"] = str(made.location) if made.location else None
    plain["notes"] = [{"label": label, "text": text} for label, text in finding.notes]
    return plain


def check_static(kernel: str, text: str, name: str, entries: Sequence[str] | None = None) -> Checked:
    """Apply the rules that need no launch: the text parses, and its target supports each instruction.

    entries: kernels to check, in addition to what they all share; None for all.
    """
    notes: tuple[str, ...] = ()
    try:
        module = asm.parse(text, name=name)
        left_out = {id(one) for one in module.entries if entries is not None and one.name not in entries}
        kept = tuple(item for item in module.items if id(item) not in left_out)
        errors: Sequence[WarploomError] = asm.verify(replace(module, items=kept))
        notes = tuple(filter(None, [asm.newer(module)]))
    except (PtxSyntaxError, VerificationError) as error:
        errors = [error]
    return Checked(kernel, "static", [Finding.of_error(error) for error in errors], notes=notes)


def check_emulated(
    what: Any,
    program: Program,
    arguments: Sequence[Any],
    check: Callable[..., None] | None = None,
    **options: Any,
) -> Checked:
    """Emulate with all checks on. `options` go to `emulate`; `check` gets the outputs and asserts their values.

    Errors of the emulated program become findings; ArgumentError and similar errors, which mean that the call is
    invalid, are raised.
    """
    schedule, seed = options.get("schedule", "lazy"), options.get("seed", 0)
    try:
        report = emulate(what, *arguments, check=True, judge=check, **options)
    except EmulationError as error:
        if error.hint is None and not program.dynamic_smem and launch_file.has_extern_shared(program.text):
            error.hint = "the text has .extern .shared memory and the launch gives it 0 bytes: dynamic_smem"
        schedule, seed = error.replay or (schedule, seed)
        findings = [*error.findings, Finding.of_error(error)]
        first = next((one for one in error.findings if one.rule in RULES and RULES[one.rule].first), None)
        if first is not None and isinstance(error, DeadlockError):  # it is only a consequence
            waits = f"the kernel hangs: {findings[-1].sides[0].who} waits" if findings[-1].sides else error.what
            findings = [replace(one, notes=(*one.notes, ("so", waits))) if one is first else one
                        for one in error.findings]  # fmt: skip
        findings = _said_once(findings)
        order = {"error": 0, "warning": 1, "performance": 2}
        findings.sort(key=lambda finding: order[finding.severity])
        return _checked(program, findings, error.report or Report(program.entry), schedule, seed, error.explored)
    findings = list(report.findings)
    failed_search = report.interleavings is not None and not report.interleavings.ok
    if check is not None and not failed_search:  # a failed search has no outputs
        try:
            check(*report.outputs)
        except AssertionError as error:
            errors = sum(finding.severity == ERROR for finding in findings)
            findings.insert(errors, wrong_result(error))  # after the errors that may be its cause
        else:
            findings = [finding for finding in findings if finding.rule not in ONLY_IF_WRONG]
    return _checked(program, findings, report, report.schedule, report.seed, report.explored)


def _checked(
    program: Program, findings: list[Finding], report: Report, schedule: str, seed: int,
    explored: tuple[tuple[str, int], ...],
) -> Checked:  # fmt: skip
    return Checked(
        program.title, "emulated", findings, report.counters.as_dict(), dict(report.launch), report.seconds,
        schedule=schedule, seed=seed, explored=explored, interleavings=report.interleavings, printed=report.printed,
    )  # fmt: skip
