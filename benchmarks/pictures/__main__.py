"""Draw the pictures of docs/ladder again.

    python -m benchmarks.pictures [--check] [NAME ...]      --check: write nothing, exit 1 if a file differs

Draws all of them unless names are given. The same matplotlib gives the same bytes for the same content.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.pictures import pictures

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "ladder"
RESULTS = ROOT / "benchmarks" / "results"


def main(words: list[str]) -> int:
    """Write the pictures, or list those that differ. Returns the exit code."""
    names = [word for word in words if not word.startswith("--")]
    differ = 0
    for name, draw in pictures(RESULTS).items():
        if names and name not in names:
            continue
        path, text = FOLDER / f"{name}.svg", draw()
        if "--check" not in words:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{path.relative_to(ROOT)} differs")
            differ = 1
    return differ


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
