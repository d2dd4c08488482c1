"""The hint of a message about an unknown name: the known names that are close to it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def near(name: str, known: Iterable[str]) -> str | None:
    """ "did you mean …?" with the closest names; None if none is close."""
    found = difflib.get_close_matches(name, list(known), 2, 0.65)
    return f"did you mean {' or '.join(found)}?" if found else None
