"""Run a command and say every 45 seconds that it still runs, so that a silent step is told from a hung one.

    python tools/alive.py mypy src

Only where there is no terminal (in CI); at a terminal the command is left alone. Exits with the command's status.
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
            print(f"\n... {name} is running, {time.monotonic() - started:.0f} s", flush=True)
        except KeyboardInterrupt:
            process.wait()
            return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
