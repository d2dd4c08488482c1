"""Run a command and report every 45 seconds that it is still running, so that a slow step does not look hung.

    python tools/alive.py mypy src

It reports only if there is no terminal, in CI for example. Exits with the command's status.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

EVERY_S = 45


def main(command: list[str]) -> int:
    started = time.monotonic()
    process = subprocess.Popen(command)
    name = command[2] if command[1:2] == ["-m"] else Path(command[0]).name
    while True:
        try:
            return process.wait(timeout=None if sys.stdout.isatty() else EVERY_S)
        except subprocess.TimeoutExpired:
            print(f"\n... {name} is still running after {time.monotonic() - started:.0f} s", flush=True)
        except KeyboardInterrupt:
            process.wait()
            return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
