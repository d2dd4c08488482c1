"""Run scripts, each in a process of its own forked from one that has already imported slow modules.

    python fork_server.py numpy torch      for each script a line of JSON in, and a line with its exit status out

A script is `{"script": …, "environment": {…}, "said": file}`; its output goes to the file. It runs as `__main__` in a
fork of this process. The modules imported here must neither start threads nor read the environment.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from typing import Any

LIMIT_S = 120


def serve(modules: list[str]) -> dict[str, Any] | None:
    """Import the modules and start the scripts; gives back, in a forked process only, the script that it is for."""
    for module in modules:
        importlib.import_module(module)
    for line in sys.stdin:
        process = os.fork()
        if not process:
            return json.loads(line)
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    return None


def become(job: dict[str, Any]) -> None:
    """Take the environment of the script, write where it wants, and end after a while."""
    signal.alarm(LIMIT_S)
    os.environ.clear()
    os.environ.update(job["environment"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    said = os.open(job["said"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)


if __name__ == "__main__":
    job = serve(sys.argv[1:])
    if job is not None:
        become(job)
        exec(compile(job["script"], "<string>", "exec"), vars(sys.modules["__main__"]))
