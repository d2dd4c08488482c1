"""`check`: run a kernel in the emulator with the sanitizer on, and say what is wrong with it.

A kernel needs a launch to be run: a text has a launch description beside it, a Python file has an
`example()` that yields (kernel, arguments, check), or its kernels have examples of their own.
Without one, only the rules that need no launch are checked, and the report says so.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from .. import asm
from ..emulator.report import Finding
from ..errors import ArgumentError, ArgumentTypeError, EmulationError, PtxSyntaxError, VerificationError, WarploomError
from ..runtime import Program, emulate, launch_file, program_of
from . import find
from .output import FINDINGS, console, error_as_dict, plain, say, say_json

ERROR = "error"


@dataclass
class Checked:
    """What was found out about one kernel under one launch.

    Attributes:
        mode: "emulated", or "static" where no launch is known.
        findings: as plain values: rule, severity, message, locations.
        counters: of the emulation; empty where it did not end.
    """

    kernel: str
    mode: str
    findings: list[dict[str, Any]] = field(default_factory=list)
    counters: dict[str, Any] = field(default_factory=dict)
    launch: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return not any(finding["severity"] == ERROR for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        return {"kernel": self.kernel, "ok": self.ok, **{k: v for k, v in vars(self).items() if k != "kernel"}}


def check(
    target: Annotated[
        str, typer.Argument(metavar="FILE.py|FILE.ptx", help="FILE.py:KERNEL or FILE.ptx:KERNEL means one of several.")
    ],
    launch: Annotated[
        Path | None, typer.Option(help="Launch description of a text; FILE.launch.toml beside it by default.")
    ] = None,
    init: Annotated[bool, typer.Option("--init", help="Write a launch description to be filled in, and stop.")] = False,
    schedule: Annotated[
        str,
        typer.Option(help="When asynchronous work completes: eager, lazy, random, starve, pct, or explore: several."),
    ] = "lazy",
    seed: Annotated[int, typer.Option(help="Seed of the schedule.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Emulate a kernel with all checks on. Exit code 0: nothing found; 1: findings; 2: called wrongly.

    Example: warploom check dump/gemm.ptx --init, then warploom check dump/gemm.ptx --schedule random --seed 7
    """
    path = Path(find.split(target)[0])
    if path.suffix not in (".py", ".ptx"):
        raise ArgumentError("this is no file that can be checked", expected="FILE.py or FILE.ptx", got=target)
    if init:
        _write_template(target, path, launch)
        return
    options = {"schedule": schedule, "seed": seed}
    if path.suffix == ".ptx":
        checked = [check_text(path, find.split(target)[1], launch, options)]
    elif launch is not None:
        raise ArgumentError("--launch goes with a PTX text", hint="a Python file has an example()")
    else:
        checked = list(check_python(target, options))
    ok = all(one.ok for one in checked)
    if as_json:
        say_json(
            {
                "file": str(path),
                "ok": ok,
                "schedule": schedule,
                "seed": seed,
                "kernels": [one.as_dict() for one in checked],
            }
        )
    else:
        for one in checked:
            _say(one, path)
    if not ok:
        raise typer.Exit(FINDINGS)


def check_text(path: Path, entry: str, launch: Path | None, options: dict[str, Any]) -> Checked:
    """Check a PTX text under its launch description."""
    try:
        text = program_of(path, entry=entry or None).text if entry else path.read_text()
    except OSError as error:
        raise ArgumentError(f"the PTX file cannot be read: {error.strerror or error}", got=str(path)) from None
    except UnicodeDecodeError:
        raise ArgumentError("the file is no PTX text: it is not UTF-8", got=str(path)) from None
    static = _static(entry or path.name, text, path.name)
    if not static.ok:
        return static
    description = launch or launch_file.beside(path)
    if launch is None and not description.is_file():
        return static
    described = launch_file.read(description)
    if entry and described.entry not in (None, entry):
        raise ArgumentError(
            f"{description} describes another kernel", expected=entry, got=described.entry,
            hint="write one for this kernel with --init --launch OTHER.launch.toml, and check it with --launch",
        )  # fmt: skip
    program = replace(described, entry=entry or described.entry).program(text, entry or path.name)
    return _emulated(program, program, described.arguments(program), options)


def check_python(target: str, options: dict[str, Any]) -> Iterator[Checked]:
    """Check the kernels of a Python file, each with every set of arguments that an example yields."""
    place, name = find.split(target)
    module = find.load(place)
    kernels = {name: find.kernel(target)} if name else find.kernels_of(module)
    with find.running(place, "has an example that fails"):
        runs = list(examples(module, kernels, everything=not name))
    if not kernels and not runs:
        raise ArgumentError(f"{place} has no kernel", expected="a module-level name that a @kernel is bound to")
    run = {id(example.kernel) for example in runs}
    runs += [Example(known_as, kernel) for known_as, kernel in kernels.items() if id(kernel) not in run]
    for example in runs:
        with find.running(place, f"has a kernel `{example.name}` or an example of it that fails"):
            one = _checked(example, options)
        yield one


@dataclass(frozen=True)
class Example:
    """A kernel and what it is run with: arguments None where that is not known; `check` takes the outputs."""

    name: str
    kernel: Any
    arguments: Sequence[Any] | None = None
    check: Callable[..., None] | None = None


def examples(module: ModuleType, kernels: Mapping[str, Any], everything: bool) -> Iterator[Example]:
    """The examples of a file: its `example()` yields (kernel, arguments, check); a kernel's own yields arguments."""
    of_module = getattr(module, "example", None)
    for item in _listed(of_module()) if callable(of_module) else ():
        if not isinstance(item, (tuple, list)) or not 2 <= len(item) <= 3 or not find.is_kernel(item[0]):
            raise ArgumentError(
                "example() yields something else than it should", expected="(kernel, arguments, check)", got=repr(item)
            )
        kernel, arguments, *check = item
        if everything or any(kernel is one for one in kernels.values()):
            yield Example(getattr(kernel, "name", str(kernel)), kernel, arguments, check[0] if check else None)
    for known_as, kernel in kernels.items():
        example = getattr(kernel, "example", None)
        if example is not None:
            made = example()
            for one in made if inspect.isgenerator(made) else [made]:
                yield Example(known_as, kernel, one if isinstance(one, (tuple, list)) else (one,))


def _listed(made: Any) -> list[Any]:
    """What an example() gave: several runs, or one."""
    if made is None:
        raise ArgumentError("example() gives nothing", expected="yield (kernel, arguments, check)", got="None")
    return [made] if isinstance(made, tuple) else list(made)


def _checked(example: Example, options: dict[str, Any]) -> Checked:
    try:
        program = example.kernel.program()
    except (ArgumentError, ArgumentTypeError):
        raise
    except WarploomError as error:
        return Checked(example.name, "static", [_finding(error)])
    static = _static(example.name, program.text, example.name)
    if not static.ok or example.arguments is None:
        return static
    return _emulated(example.kernel, program, example.arguments, options, example.check)


def _static(kernel: str, text: str, name: str) -> Checked:
    try:
        errors: Sequence[WarploomError] = asm.verify(asm.parse(text, name=name))
    except (PtxSyntaxError, VerificationError) as error:
        errors = [error]
    return Checked(kernel, "static", [_finding(error) for error in errors])


def _emulated(
    what: Any,
    program: Program,
    arguments: Sequence[Any],
    options: dict[str, Any],
    check: Callable[..., None] | None = None,
) -> Checked:
    try:
        report = emulate(what, *arguments, check=True, **options)
    except EmulationError as error:
        if error.hint is None and not program.dynamic_smem and launch_file.has_extern_shared(program.text):
            error.hint = "the text has .extern .shared memory and the launch gives it 0 bytes: dynamic_smem"
        return Checked(program.title, "emulated", [*map(_plain, error.findings), _finding(error)])
    findings = [_plain(finding) for finding in report.findings]
    if check is not None:
        try:
            check(*report.outputs)
        except AssertionError as error:
            message = "the result is not what the example expects: " + (str(error).strip() or "an assertion failed")
            # Behind this call: the example's own line, whatever it called to assert.
            places = [f"{Path(at.filename).name}:{at.lineno}" for at in traceback.extract_tb(error.__traceback__)[1:2]]
            findings.append({"rule": "wrong-result", "severity": ERROR, "message": message, "locations": places})
    return Checked(program.title, "emulated", findings, report.counters.as_dict(), dict(report.launch), report.seconds)


def _plain(finding: Finding) -> dict[str, Any]:
    """What the sanitizer found, as plain values."""
    return {**vars(finding), "locations": [str(place) for place in finding.locations]}


def _finding(error: WarploomError) -> dict[str, Any]:
    """An error that ended the check, as a finding."""
    places = [str(error.where)] if error.where else []
    return {
        "rule": type(error).__name__,
        "severity": ERROR,
        "message": str(error),
        "locations": places,
        "error": error_as_dict(error),
    }


def _say(checked: Checked, path: Path) -> None:
    for finding in checked.findings:
        say(f"{finding['severity']}[{finding['rule']}] in {checked.kernel}: {finding['message']}")
        if "error" not in finding:
            for place in finding["locations"]:
                say(f"  at  {place}")
    count = sum(finding["severity"] == ERROR for finding in checked.findings)
    verdict = f"{count} error{'s' if count != 1 else ''}" if count else "nothing found"
    if checked.mode == "emulated":
        say(f"{checked.kernel}: emulated, {verdict}" + (f" ({_summary(checked)})" if checked.counters else ""))
    else:
        say(f"{checked.kernel}: only the rules that need no launch were checked, {verdict}")
        how = (
            f"warploom check {path}{'' if checked.kernel == path.name else ':' + checked.kernel} --init"
            if path.suffix == ".ptx"
            else "write an example() that yields (kernel, arguments, check)"
        )
        if not count:
            say(f"  to have it emulated: {how}")


def _summary(checked: Checked) -> str:
    counters = checked.counters
    ctas = f"{counters['ctas']} CTA{'s' if counters['ctas'] != 1 else ''}"
    return f"{ctas}, {counters['instructions']} warp instructions, {checked.seconds:.2f} s"


def _write_template(target: str, path: Path, launch: Path | None) -> None:
    if path.suffix != ".ptx":
        raise ArgumentError("--init writes the launch description of a PTX text", hint="a Python file has an example()")
    goal = launch or launch_file.beside(path)
    if goal.exists():
        raise ArgumentError("the launch description is there already and is left as it is", got=str(goal))
    goal.write_text(launch_file.template(find.program(target)))
    console().print(f"wrote {plain(goal)}: put in the sizes, then run warploom check {target}", markup=False)
