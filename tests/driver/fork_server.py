"""Run scripts, each in a process of its own forked from one that has already imported slow modules.

    python fork_server.py numpy torch      for each script a line of JSON in, and a line with its exit status out

A script is `{"script": …, "environment": {…}, "said": file}`; its output goes to the file. It runs as `__main__` in a
fork of this process. The modules imported here must neither start threads nor read the environment.

A script's process ends without taking the interpreter apart: to free all that torch has imported, of which the fork
would first copy each page, takes longer than most scripts. Its threads are waited for and exit functions are not run.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
import threading
import traceback
from typing import Any, NoReturn

LIMIT_S = 120


def serve(modules: list[str]) -> dict[str, Any] | None:
    """Import the modules and start the scripts; gives back, in a forked process only, the script that it is for."""
    for module in modules:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # a fork that looked through these objects would copy them
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


def run(script: str) -> NoReturn:
    """Run it as `__main__`, and end the process: with status 1 if it raised anything."""
    status = 0
    try:
        exec(compile(script, "<string>", "exec"), vars(sys.modules["__main__"]))
    except BaseException:
        traceback.print_exc()
        status = 1
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    job = serve(sys.argv[1:])
    if job is not None:
        become(job)
        run(job["script"])
