"""Mutants that are as good as their kernel, and the edge that makes them so."""

from __future__ import annotations

from fnmatch import fnmatch

from warploom.asm.mutate import Mutant

EQUIVALENT: tuple[tuple[str, str, str, str], ...] = ()
"""(kernel, kind, site, reason); kernel and site may be patterns."""


def reason(kernel: str, mutant: Mutant) -> str:
    """Why a mutant is equivalent; "" where it is not known to be."""
    for name, kind, site, why in EQUIVALENT:
        if fnmatch(kernel, name) and mutant.kind == kind and fnmatch(f"{mutant.site}.{mutant.variant}", site):
            return why
    return ""
