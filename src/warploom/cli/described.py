"""Loads a PTX text with the launch description next to it, for commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .. import asm
from ..errors import ArgumentError
from ..runtime import launch_file
from ..runtime.program import Program, read_text
from ..testing.texts import blamed, description_of


def described(path: Path, entry: str, launch: Path | None, purpose: str) -> tuple[Program, list[Any]]:
    """The program, and new arguments for it. launch: the description; by default the one next to the text.

    purpose: "a trace", say, which supports one GPU.

    Raises ArgumentError if there is no description, or one of another kernel.
    """
    text = read_text(path)
    entry = Program.from_text(text, entry=entry, name=path.name).entry if entry else ""
    own = launch_file.beside(path, entry) if entry else launch_file.beside(path)
    description = launch or (own if own.is_file() else launch_file.beside(path))
    if not description.is_file():
        described = [name for name in _kernels(text, path) if launch_file.beside(path, name).is_file()]
        if described and not entry and launch is None:
            raise ArgumentError(
                "each kernel of this text has its own launch description: name one", got=str(path),
                expected=" or ".join(f"{path}:{name}" for name in described),
            )  # fmt: skip
        raise ArgumentError(
            f"{path} has no launch description", expected=str(description),
            hint=f"warploom check {path}{':' * bool(entry)}{entry} --init",
        )  # fmt: skip
    found = description_of(description, entry)
    with blamed(description):
        program = found.program(text, path.name)
    if found.devices > 1:
        raise ArgumentError(
            f"{purpose} supports one GPU", expected="devices = 1", got=found.devices, where=str(description)
        )
    return program, found.arguments(program)


def _kernels(text: str, path: Path) -> list[str]:
    return [function.name for function in asm.parse(text, name=path.name).entries]
