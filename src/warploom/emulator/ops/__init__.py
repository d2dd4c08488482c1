"""The semantics of each instruction: one module for each family of the instruction table.

A module defines `HANDLERS`, its decoders by row key; this module combines them.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable

from ..program.handlers import Handler


def _assemble() -> dict[str, Handler]:
    """The handlers of all modules in this package; a key handled twice is an error."""
    together: dict[str, Handler] = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        for key, handler in getattr(module, "HANDLERS", getattr(module, "handlers", {})).items():
            if key in together:
                raise ValueError(f"two handlers for {key}")
            together[key] = handler
    return together


HANDLERS: dict[str, Handler] = _assemble()
"""Row key -> handler."""

RUN_BY_THE_CORE = frozenset({"bra", "brx.idx", "call", "ret", "exit"})
"""Rows that change the next instruction: `decode` and `scheduler` run them, no handler does."""


def unsupported(keys: Iterable[str]) -> tuple[str, ...]:
    """Those of these row keys that the emulator cannot run."""
    return tuple(key for key in keys if key not in HANDLERS and key not in RUN_BY_THE_CORE)
