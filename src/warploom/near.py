"""The hint of a message about an unknown name: the known names that are close to it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_CLOSE = 0.65
"""Similarity from which on a name is likelier a slip than another name."""


def closest(name: str, known: Iterable[str], most: int = 2) -> list[str]:
    """The known names that are close to a name, the closest first."""
    return difflib.get_close_matches(name, list(known), most, _CLOSE)


def near(name: str, known: Iterable[str], most: int = 2) -> str | None:
    """ "did you mean …?" with the closest names; None if none is close."""
    found = closest(name, known, most)
    return f"did you mean {' or '.join(found)}?" if found else None
