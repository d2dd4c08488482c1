"""Draw the pictures of docs/ladder anew.

python benchmarks/pictures.py [--check] [NAME ...]     --check: exit 1 if a file differs, write nothing

Without names all of them. The same content gives the same bytes under the same matplotlib; `--check` is for that one.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))  # the package of this checkout, whatever is installed

from warploom.lab.pictures import pictures  # noqa: E402

FOLDER = ROOT / "docs" / "ladder"
RESULTS = ROOT / "benchmarks" / "results"


def main() -> int:
    """Write the pictures, or say which differ."""
    words = sys.argv[1:]
    names = [word for word in words if not word.startswith("--")]
    differ = 0
    for name, draw in pictures(RESULTS).items():
        if names and name not in names:
            continue
        path, text = FOLDER / f"{name}.svg", draw()
        if "--check" in words:
            if not path.exists() or path.read_text() != text:
                print(f"{path.relative_to(ROOT)} differs")
                differ = 1
        else:
            path.write_text(text)
    return differ


if __name__ == "__main__":
    sys.exit(main())
