"""The driver's launch with arguments that are known, as a compiled callable: ctypes needs 0.4 us longer for each call.

`enqueue.c` is compiled when a process first launches, with the user's C compiler, and kept with the cubins. Where that
is not possible, `launch.py` uses ctypes; `warploom info` says which one it is, and why.
"""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import Any, TypeAlias

from ..settings import config
from .cache import Entry, builds, key_of
from .once import once

SOURCE = Path(__file__).with_suffix(".c")
COMPILE_S = 60
Enqueue: TypeAlias = Callable[[int, int, int, int, Any], Callable[[], int]]
"""Makes a launch of: the addresses of cuLaunchKernelEx, of its configuration, of the kernel and of its parameters, and
an object that keeps their memory alive. Calling it returns the driver's status."""


class NotCompiledError(Exception):
    """There is no compiled launch. The text says why."""


@once
def compiled() -> Enqueue | NotCompiledError:
    """The compiled type, or why there is none; the same for the whole life of a process."""
    try:
        entry, _ = builds().get(key_of("enqueue", SOURCE.read_text(), platform.machine()), config.cache_dir, _build)
        return _loaded(entry.cubin)
    except NotCompiledError as reason:
        return reason
    except (OSError, ImportError) as error:
        return NotCompiledError(f"its library cannot be loaded: {error}")


def _build() -> Entry:
    """Compile the source. Raises NotCompiledError."""
    compiler, headers = shutil.which("cc") or shutil.which("gcc"), Path(sysconfig.get_paths()["include"])
    if compiler is None:
        raise NotCompiledError("there is no C compiler (cc)")
    if not (headers / "Python.h").is_file():
        raise NotCompiledError(f"Python's headers are not installed ({headers / 'Python.h'})")
    with tempfile.TemporaryDirectory(prefix="warploom-") as folder:
        made = Path(folder) / "enqueue.so"
        command = [compiler, "-O2", "-shared", "-fPIC", f"-I{headers}", "-o", str(made), str(SOURCE)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotCompiledError(f"{compiler} did not run: {error}") from error
        if done.returncode:
            raise NotCompiledError(f"{compiler} failed: {''.join(done.stderr.strip().splitlines()[-1:])}")
        return Entry(made.read_bytes(), done.stderr, compiler)


def _loaded(library: bytes) -> Enqueue:
    """The type in a library. Raises OSError, ImportError."""
    with tempfile.TemporaryDirectory(prefix="warploom-") as folder:
        path = Path(folder) / "enqueue.so"
        path.write_bytes(library)
        name = f"{__package__}._enqueue"
        spec = importlib.util.spec_from_loader(name, ExtensionFileLoader(name, str(path)))
        if spec is None or spec.loader is None:
            raise ImportError(name)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    found: Enqueue = module.Enqueue
    return found
