"""The `warploom` command."""

from __future__ import annotations

import importlib.util
import sys

NEEDS = ("typer", "rich", "numpy", "ml_dtypes")


def main() -> None:
    """Entry point of `warploom` and `python -m warploom`. Names the packages that Python lacks, if any."""
    if missing := [name for name in NEEDS if importlib.util.find_spec(name) is None]:
        sys.exit(
            f"warploom: {sys.executable} lacks {', '.join(missing)}\n"
            "  hint  `make demo` sets up an environment in .venv; or run `python -m pip install -e .` in the repository"
        )
    try:
        from .app import run

        run()
    except KeyboardInterrupt:  # while the command is still being imported
        sys.exit(130)
