"""Loads a PTX text with the launch description next to it, for commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import ArgumentError
from ..runtime import launch_file
from ..runtime.program import Program, read_text


def described(path: Path, entry: str, launch: Path | None, purpose: str) -> tuple[Program, list[Any]]:
    """The program, and new arguments for it. launch: the description; by default the one next to the text.

    purpose: "a trace", say, which supports one GPU. Raises ArgumentError if there is no description.
    """
    text = read_text(path)
    entry = Program.from_text(text, entry=entry, name=path.name).entry if entry else ""
    own = launch_file.beside(path, entry) if entry else launch_file.beside(path)
    description = launch or (own if own.is_file() else launch_file.beside(path))
    if not description.is_file():
        raise ArgumentError(
            f"{path} has no launch description", expected=str(description), hint=f"warploom check {path} --init"
        )
    found = launch_file.read(description)
    program = found.program(text, path.name)
    if found.devices > 1:
        raise ArgumentError(
            f"{purpose} supports one GPU", expected="devices = 1", got=found.devices, where=str(description)
        )
    return program, found.arguments(program)
