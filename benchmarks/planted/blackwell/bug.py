"""Which bug the kernel that is being built gets, and a step of a ring."""

from __future__ import annotations

from typing import Any

from warploom import ptx


class Planted:
    """now: the bug of the next build, by its description; known: the bugs of the kernels built so far, in order."""

    now: str | None = None
    known: dict[str, None] = {}  # noqa: RUF012 - for the process


def bug(description: str) -> bool:
    """True if this bug is planted now."""
    Planted.known.setdefault(description)
    return Planted.now == description


def step(index: Any, phase: Any, stages: int) -> None:
    """Advance to the next stage of a ring."""
    index.set(index + 1)
    wraps = index == stages
    phase.set(ptx.select(wraps, phase ^ 1, phase))
    index.set(ptx.select(wraps, 0, index))
