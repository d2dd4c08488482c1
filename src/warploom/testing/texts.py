"""PTX texts as they lie in a folder, with launch descriptions beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..emulator.machine.finding import Finding
from ..errors import ArgumentError, WarploomError
from ..runtime import launch_file
from ..runtime.program import program_of, read_text
from .checked import Checked, check_emulated, check_static


def check_text(path: Path, entry: str = "", launch: Path | None = None, **options: Any) -> Checked:
    """Check a PTX text under its launch description; without one, by the static rules alone.

    Args:
        entry: which kernel, where the text has several and the description does not say.
        launch: the description; by default FILE.launch.toml beside the text.

    Raises ArgumentError for a file that is no text, and a description that does not fit it.
    """
    text = read_text(path)
    checked = _check(path, text, entry, launch, options)
    checked.file = str(path)
    return checked


def _check(path: Path, text: str, entry: str, launch: Path | None, options: dict[str, Any]) -> Checked:
    if entry:
        program_of(path, entry=entry)  # says which kernels there are, where it has another name
    static = check_static(entry or path.name, text, path.name)
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
    program = replace(described, entry=entry or described.entry).program(text, path.name)
    program = replace(program, name=entry or path.name)
    checked = check_emulated(program, program, described.arguments(program), **options)
    checked.guessed = str(description) if described.guessed else ""
    return checked


def texts_in(folder: Path) -> list[Path]:
    """The PTX texts below a folder, by name. Raises ArgumentError where there is none."""
    found = sorted(path for path in folder.rglob("*.ptx") if path.is_file())
    if not found:
        python = any(path.is_file() for path in folder.rglob("*.py"))
        raise ArgumentError(
            "there is no PTX text in this folder", expected="files whose names end in .ptx", got=folder, code="file",
            hint="Python files are checked where they are named, as in warploom check FILE.py" if python else None,
        )  # fmt: skip
    return found


def check_folder(folder: Path, **options: Any) -> Iterator[Checked]:
    """Check all texts below a folder. One that cannot be read or launched is a finding, and the others are checked."""
    for path in texts_in(folder):
        try:
            yield check_text(path, **options)
        except WarploomError as error:
            yield Checked(path.name, "static", [Finding.of_error(error)], file=str(path))
