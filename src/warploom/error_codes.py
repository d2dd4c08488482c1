"""What each error code means, what causes the error, and what to do: the pages of `warploom rules CODE`.

A code is the default of an error class (`WarploomError.code`) or is passed where the error is raised. Codes of findings
are the sanitizer's rule ids, which have their own pages (`sanitizer.rules`). Codes are stable; wordings may change.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .pages import Pages


@dataclass(frozen=True)
class Code:
    """One code.

    Attributes:
        id: the code.
        error: name of the error class that carries it; "finding" for a finding that no sanitizer rule makes.
        title: one line.
        why: the cause.
        fix: what to do.
        otherwise: what would happen on the GPU; section: of the PTX ISA.
        example: a few lines that cause it, in the language of its stage.
    """

    id: str
    error: str
    title: str
    why: str
    fix: str
    otherwise: str = ""
    section: str = ""
    example: str = ""


CODES = Pages((Path(__file__).with_suffix(".toml"),), lambda id, facts: Code(id, **facts))
"""All codes by id."""
