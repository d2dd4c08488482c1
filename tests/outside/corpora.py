"""A folder of PTX texts: verdicts of the verifier and of ptxas.

A text for a target that this ptxas no longer supports is built for the oldest one that it does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from warploom import asm
from warploom.driver import messages
from warploom.errors import WarploomError

OLDEST = 75
"""The oldest target of ptxas 13."""


@dataclass(frozen=True)
class Verdict:
    """What both say of a text: "" where it is taken, else the first complaint."""

    text: str
    ours: str
    ptxas: str

    @property
    def agree(self) -> bool:
        return bool(self.ours) == bool(self.ptxas)


def verdicts(folder: Path) -> Iterator[Verdict]:
    """The verdicts on all texts below a folder, in the order of their names."""
    for path in sorted(folder.rglob("*.ptx")):
        text = path.read_text()
        yield Verdict(str(path.relative_to(folder)), _ours(text), _ptxas(text))


def _ours(text: str) -> str:
    try:
        errors = asm.verify(asm.parse(text))
    except WarploomError as error:
        return error.what
    return errors[0].what if errors else ""


def _ptxas(text: str) -> str:
    found = re.search(r"\.target\s+sm_(\d+)\b", text)
    arch = f"sm_{OLDEST}" if found and int(found[1]) < OLDEST else None
    try:
        said = [each for each in messages.of(text, arch) if each.level in ("error", "fatal")]
    except WarploomError as error:
        return error.what
    return said[0].text if said else ""
