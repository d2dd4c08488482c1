"""Measure how much `make demo`, `make test` and `make test-all` download on this machine, as pip resolves it today.

    python benchmarks/download_size.py          writes benchmarks/results/download_size.json

Downloads the wheels of each set into a temporary folder and adds up their sizes. Needs a network.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "download_size.json"


def wheels(requirements: list[str]) -> dict[str, int]:
    """File names and sizes in bytes of what pip would download."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-qq", "download", "-d", folder]
        subprocess.run([*command, *requirements], check=True)
        return {path.name: path.stat().st_size for path in sorted(Path(folder).iterdir())}


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    base = project["dependencies"]
    extras = project["optional-dependencies"]
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    sets = {
        "make demo": [*base, *build],
        "make demo, with a GPU": [*base, *build, *extras["gpu"]],
        "make test": [*base, *build, *extras["dev"]],
        "make test-all": [*base, *build, *extras["dev"], "torch==2.13.0", "jax", "jaxlib"],
    }
    rows = []
    for name, requirements in sets.items():
        files = wheels(requirements)
        rows.append({"command": name, "megabytes": round(sum(files.values()) / 1e6, 1), "files": files})
        print(f"{name}: {rows[-1]['megabytes']} MB")
    head = {
        "suite": "download-size", "machine": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"), "command": "python benchmarks/download_size.py",
    }  # fmt: skip
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
