"""`info`: what this machine has, and what the emulator lacks."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from typing import Annotated, Any

import typer

from ..errors import NoGpuError, ToolchainError
from ..settings import config
from ..version import __version__
from .output import say, say_json, table

PACKAGES = (
    "numpy", "ml_dtypes", "nvidia-cuda-nvcc", "nvidia-cuda-nvdisasm", "cuda-bindings", "nvidia-ml-py", "torch", "jax",
    "jaxlib", "triton", "cupy-cuda13x", "matplotlib",
)  # fmt: skip


def info(
    unsupported: Annotated[
        bool, typer.Option("--unsupported", help="List the rows of the instruction table that the emulator cannot run.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the machines, tools and packages that were found.

    Example: warploom info --unsupported
    """
    if unsupported:
        _say_unsupported(as_json)
        return
    known = gather()
    if as_json:
        say_json(known)
        return
    say(f"warploom {__version__}")
    for title in ("machines", "toolchain", "versions", "instructions", "settings"):
        say()
        table([(name, value) for name, value in known[title].items()], title=title)


def gather() -> dict[str, Any]:
    """All facts, as plain values."""
    missing, total = unsupported_rows()
    return {
        "warploom": __version__,
        "machines": {"CPU": f"{platform.machine()}, {os.cpu_count()} cores (emulator)", "GPU": gpu()},
        "toolchain": {**{name: tool(name) for name in ("ptxas", "nvdisasm", "cuobjdump")}, "launches": launches()},
        "versions": {"python": platform.python_version(), **versions()},
        "instructions": {"rows": total, "emulated": total - len(missing)},
        "settings": {"cache": str(config.cache_dir or "off"), "schedule": config.emulator.schedule},
    }


def gpu() -> str:
    """The usable GPU, or why there is none."""
    from ..driver import library

    try:
        loaded = library.load()
        described = [loaded.device(index) for index in range(loaded.device_count)]
    except NoGpuError as error:
        return error.what.partition(";")[0]
    return "; ".join(f"{device.name}, {device.arch}" for device in described) + f", CUDA {loaded.version}"


NOT_FOUND = {
    "ptxas": "not found: no cubins, no resources; pip install 'nvidia-cuda-nvcc>=13.0,<13.1' (Linux, Windows)",
    "nvdisasm": "not found: `trace` and `time --predict` use the PTX alone; pip install nvidia-cuda-nvdisasm",
    "cuobjdump": "not found: only `inspect sass` uses it, and only without nvdisasm",
}
"""What a missing tool means, and how to get it if that is worth it."""


def tool(name: str) -> str:
    """A tool's version and where it was found."""
    from ..driver import toolchain

    try:
        found = toolchain.ptxas() if name == "ptxas" else toolchain.find(name)
    except ToolchainError as error:
        return error.what
    if found is not None:
        return f"{found.version} ({found.origin})"
    return NOT_FOUND[name]


def launches() -> str:
    """How a repeated call reaches the driver."""
    from ..driver.enqueue import NotCompiledError, compiled

    found = compiled()
    if isinstance(found, NotCompiledError):
        return f"by ctypes, 0.4 us slower than compiled code: {found}"
    return "compiled (driver/enqueue.c)"


def versions() -> dict[str, str]:
    """Installed versions of packages that warploom uses or works with."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def unsupported_rows() -> tuple[list[str], int]:
    """Keys of the rows that no handler runs, and the total number of rows."""
    from ..emulator.ops import unsupported
    from ..isa.instructions import table as instructions

    keys = instructions.keys()
    return list(unsupported(keys)), len(keys)


def _say_unsupported(as_json: bool) -> None:
    missing, total = unsupported_rows()
    if as_json:
        say_json({"rows": total, "unsupported": missing})
        return
    for key in missing:
        say(key)
    say(f"{len(missing)} of {total} rows of the instruction table are not emulated")
