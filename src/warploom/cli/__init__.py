"""The `warploom` command."""

from __future__ import annotations


def main() -> None:
    """Entry point of `warploom` and `python -m warploom`."""
    from .app import run

    run()
