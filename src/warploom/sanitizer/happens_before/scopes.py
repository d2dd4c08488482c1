"""Scopes of strong accesses, fences and barriers, from the narrowest to the widest (PTX ISA 8.5)."""

from __future__ import annotations

from typing import NamedTuple

LEVELS = {"": 0, "cta": 1, "cluster": 2, "gpu": 3, "sys": 4}
"""The reach of an order; 0 is a weak access."""


class ThreadLocation(NamedTuple):
    """The location of a thread: its cluster's number, its CTA's rank there, its GPU."""

    cluster: int
    rank: int
    device: int = 0


def needed(a: ThreadLocation, b: ThreadLocation) -> int:
    """The level that a scope must have to include both threads: that of their lowest common level."""
    if a.device != b.device:
        return LEVELS["sys"]
    if a.cluster != b.cluster:
        return LEVELS["gpu"]
    return LEVELS["cluster"] if a.rank != b.rank else LEVELS["cta"]
