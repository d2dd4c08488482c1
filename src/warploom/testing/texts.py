"""PTX texts of a folder, with their launch descriptions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import asm
from ..emulator.machine.finding import Finding
from ..errors import ArgumentError, ArgumentTypeError, PtxSyntaxError, WarploomError
from ..runtime import launch_file
from ..runtime.asked import EXPLORE
from ..runtime.program import Program, program_of, read_text
from ..sanitizer.explore import EXPLORED
from ..sanitizer.rules import RULES
from .checked import Checked, check_emulated, check_static, guessed_launch
from .expected import expectation


def check_text(path: Path, entry: str = "", launch: Path | None = None, **options: Any) -> Checked:
    """Check a PTX text under its launch description; without one, by the static rules alone.

    Args:
        entry: the kernel, if the text has several and the description does not name one.
        launch: the description; by default FILE.launch.toml next to the text.

    Raises ArgumentError for a file that is not a PTX text, and for a description that does not match it.
    """
    text = read_text(path)
    checked = _check(path, text, entry, launch, options)
    checked.file = str(path)
    return checked


def _check(path: Path, text: str, entry: str, launch: Path | None, options: dict[str, Any]) -> Checked:
    if entry:
        entry = program_of(path, entry=entry).entry  # reports the existing kernels, if there is none of that name
    static = check_static(entry or path.name, text, path.name, [entry] if entry else None)
    if not static.ok:
        return static
    usual = launch_file.beside(path)
    own = launch_file.beside(path, entry) if entry else usual
    description = launch or (own if own.is_file() else usual)
    if launch is None and not description.is_file():
        return static
    described = description_of(description, entry)
    with blamed(description):
        program = described.program(text, path.name)
        program = replace(program, name=entry or path.name)
        if options.get("schedule") == EXPLORE and described.expect:
            checked = _explored(described, program, options)
        else:
            checked = _run(described, program, options)
    checked.guessed, checked.notes = str(description) if described.guessed else "", static.notes
    if described.guessed:
        known = [RULES[finding.rule] for finding in checked.findings if finding.rule in RULES]
        checked.findings.insert(sum(rule.first for rule in known), guessed_launch(described, checked))
    return checked


def description_of(description: Path, entry: str) -> launch_file.LaunchFile:
    """A launch description, for the kernel `entry` of its text unless that is "".

    Raises ArgumentError if it describes another one.
    """
    found = launch_file.read(description)
    if entry and found.entry not in (None, entry):
        raise ArgumentError(
            f"{description} describes another kernel", expected=entry, got=found.entry,
            hint="write one for this kernel with --init --launch OTHER.launch.toml, and name it with --launch",
        )  # fmt: skip
    return replace(found, entry=entry or found.entry)


@contextmanager
def blamed(description: Path) -> Iterator[None]:
    """Inside the `with`, an error about the shape of the launch says that it is from this description."""
    try:
        yield
    except (ArgumentError, ArgumentTypeError) as error:
        if error.code in ("launch-shape", "not-this-text") and error.where is None:
            error.where = str(description)
        raise


def _run(described: launch_file.LaunchFile, program: Program, options: dict[str, Any]) -> Checked:
    made = described.made(program)
    check = expectation(described, made.arrays, options)
    return check_emulated(program, program, made.arguments, check, **{**made.launch, **options})


def _explored(described: launch_file.LaunchFile, program: Program, options: dict[str, Any]) -> Checked:
    """The first schedule that shows an error, including wrong values; the simplest one if none does."""
    tried: list[tuple[str, int]] = []
    ran: list[Checked] = []
    for schedule, seed in EXPLORED:
        tried.append((schedule, seed))
        ran.append(_run(described, program, {**options, "schedule": schedule, "seed": seed}))
        if not ran[-1].ok:
            break
    checked = ran[0] if ran[-1].ok else ran[-1]
    checked.explored, checked.seconds = tuple(tried), sum(one.seconds for one in ran)
    return checked


def check_entries(path: Path, entry: str = "", launch: Path | None = None, **options: Any) -> list[Checked]:
    """Check a PTX text; if it has several kernels, each under its own launch description.

    A kernel without a description is checked by the static rules alone, and its result says so. Arguments and errors
    as in `check_text`.
    """
    names = _entries(path) if not entry and launch is None else []
    if len(names) < 2:
        return [check_text(path, entry, launch, **options)]
    shared = check_static(path.name, read_text(path), path.name, [])
    if not shared.ok:  # the text itself is wrong, and every kernel would report it
        shared.file = str(path)
        return [shared]
    one = launch_file.beside(path)
    described = launch_file.read(one).entry or names[0] if one.is_file() else None
    found = []
    for name in names:
        own = launch_file.beside(path, name)
        if own.is_file() or name == described:
            found.append(check_text(path, name, own if own.is_file() else one, **options))
        else:
            static = check_static(name, read_text(path), path.name, [name])
            static.file = str(path)
            found.append(static)
    return found


def _entries(path: Path) -> list[str]:
    """Names of the kernels of a text; none if it cannot be parsed."""
    try:
        return [function.name for function in asm.parse(read_text(path), name=path.name).entries]
    except PtxSyntaxError:
        return []


def texts_in(folder: Path) -> list[Path]:
    """The PTX texts below a folder, by name. Raises ArgumentError if there is none."""
    found = sorted(path for path in folder.rglob("*.ptx") if path.is_file())
    if not found:
        python = any(path.is_file() for path in folder.rglob("*.py"))
        raise ArgumentError(
            "there is no PTX text in this folder", expected="files whose names end in .ptx", got=folder, code="file",
            hint="name a Python file to check it, as in warploom check FILE.py" if python else None,
        )  # fmt: skip
    return found


def check_folder(folder: Path, **options: Any) -> Iterator[Checked]:
    """Check all texts below a folder. One that cannot be read or launched is a finding, and the others are checked."""
    for path in texts_in(folder):
        try:
            yield from check_entries(path, **options)
        except WarploomError as error:
            yield Checked(path.name, "static", [Finding.of_error(error)], file=str(path))
