"""Compiles PTX text to a cubin: with ptxas or, if there is none, with the compiler inside the driver.

An error of ptxas names a PTX line; the `.loc` before that line names the Python line, and the CompilationError reports
both. A build with spills or with a note that MMAs are serialised is refused unless the kernel allows it.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field

from ..errors import (
    ArgumentError,
    CompilationError,
    CompilerFallbackWarning,
    NoGpuError,
    SourceLocation,
    ToolchainError,
)
from ..isa import arch as arches
from ..settings import config
from . import cache, resources, toolchain
from .resources import Resources

_TARGET = re.compile(r"^\s*\.target\s+(sm_\w+)", re.MULTILINE)
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"((?:[^"\\]|\\.)*)"')
_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)")
_MESSAGE = re.compile(r"^ptxas\s+(?P<file>.*?)(?:, line (?P<line>\d+))?;?\s+(?P<level>error|fatal)\s*:\s*(?P<text>.*)$")
_SHOWN = 8
_TIMEOUT_S = 600


@dataclass(frozen=True)
class Build:
    """A cubin and the facts about it.

    Attributes:
        cubin: the ELF file's bytes.
        arch: target it was built for.
        resources: per entry of the text.
        log: the compiler's output.
        compiler: "ptxas 13.0.88", or "driver 13.0".
        key: content address, the same for the same text, compiler, target and flags.
        source: "memory", "disk", or "" if this call built it.
    """

    cubin: bytes = field(repr=False)
    arch: str
    resources: dict[str, Resources]
    log: str
    compiler: str
    key: str
    source: str = ""

    @property
    def from_cache(self) -> bool:
        return bool(self.source)


def target_of(text: str) -> str:
    """The target that a text names. Raises CompilationError for a text without one."""
    found = _TARGET.search(text)
    if not found:
        raise CompilationError(
            "the PTX text names no target", expected="a line `.target sm_90a`", got=text[:80].strip() or "an empty text"
        )
    return found[1]


def build(
    text: str,
    *,
    arch: str | None = None,
    name: str = "the kernel",
    entry: str | None = None,
    allow_spills: bool = False,
    flags: tuple[str, ...] = (),
) -> Build:
    """Build a text, or take the build from the cache.

    Args:
        arch: target to build for; None: the one the text names.
        entry: the entry that must be free of spills and notes; None: all of them.
        allow_spills: accept a build with spills or serialisation notes.
        flags: more arguments for ptxas.

    Raises CompilationError for a text that ptxas rejects or a build that is refused, ToolchainError if no
    compiler works, NoGpuError if there is neither a ptxas nor a driver.
    """
    chosen = arch or target_of(text)
    arches.get(chosen)
    tool = toolchain.ptxas()
    options = (*(("-lineinfo",) if config.line_info else ()), *flags)
    compiler = f"ptxas {tool.version}" if tool else f"driver {_driver_version()}"
    key = cache.key_of(text, compiler, chosen, *options)

    def make() -> cache.Entry:
        if tool is not None:
            cubin, log = _by_ptxas(tool, text, chosen, options, name)
        else:
            cubin, log = _by_driver(text, chosen, name)
        return cache.Entry(cubin, log, compiler)

    stored, source = cache.builds().get(key, config.cache_dir, make)
    result = Build(stored.cubin, chosen, resources.parse(stored.log), stored.log, stored.compiler, key, source)
    _keep(result, text, name)
    if not allow_spills:
        refuse_if_slow(result, name, entry)
    return result


def refuse_if_slow(result: Build, name: str, entry: str | None = None) -> None:
    """Raise CompilationError for a build with spills or notes of serialised MMAs."""
    for used in result.resources.values():
        if entry is not None and used.entry != entry:
            continue
        if used.spills:
            raise CompilationError(
                f"{name} spills registers: {used.spill_stores} bytes of stores, {used.spill_loads} of loads per thread",
                expected="no spills",
                got=f"{used.registers} registers per thread, {used.stack} bytes of stack",
                consequence="the kernel uses local memory and is many times slower",
                hint="use a smaller tile or more threads, raise .maxnreg, or pass allow_spills=True",
                code="spills",
            )
        if used.serialisation_notes:
            raise CompilationError(
                f"ptxas serialises the asynchronous MMAs of {name}",
                expected="no note C7510 to C7519",
                got="; ".join(used.serialisation_notes),
                consequence="each MMA waits for the previous one and the tensor cores idle",
                hint="do not access accumulators between commit and wait, or pass allow_spills=True",
                code="serialised-mma",
            )


# -- ptxas -------------------------------------------------------------------------------------------------------


def _by_ptxas(tool: toolchain.Tool, text: str, arch: str, options: tuple[str, ...], name: str) -> tuple[bytes, str]:
    with toolchain.work_folder() as folder:
        source, target = folder / "kernel.ptx", folder / "kernel.cubin"
        source.write_text(text, encoding="utf-8")
        result = tool.run(
            "-v", f"-arch={arch}", *options, "-o", target.name, source.name, cwd=folder, timeout_s=_TIMEOUT_S
        )
        log = (result.stdout + result.stderr).strip()
        if result.returncode == 0 and target.is_file():
            return target.read_bytes(), log
    raise _refused(log, text, name, str(tool), result.returncode)


def _refused(log: str, text: str, name: str, compiler: str, status: int) -> CompilationError:
    """The error of a failed build: the compiler's first message, its PTX line and the Python line before it."""
    messages = [found for found in map(_MESSAGE.match, log.splitlines()) if found]
    placed = [found for found in messages if found["line"]]
    if not messages:
        shown = log[-2000:] or f"no message, exit status {status}"
        return CompilationError(f"{compiler} failed on {name} with exit status {status}", got=shown)
    first = (placed or messages)[0]
    lines = text.splitlines()
    got, where = None, None
    if first["line"]:
        number = int(first["line"])
        source = lines[number - 1].strip() if 0 < number <= len(lines) else "(past the end of the text)"
        got = f"PTX line {number}: {source}"
        where = python_line(text, number) or SourceLocation(name if name.endswith(".ptx") else "the PTX text", number)
    others = [f"line {found['line']}: {found['text']}" for found in placed[1:_SHOWN]]
    more = ("; also " + "; ".join(others)) if others else ""
    return CompilationError(f"{compiler} rejects {name}: {first['text']}{more}", where=where, got=got)


def python_line(text: str, line: int) -> SourceLocation | None:
    """The source location of PTX line `line` (from 1): the last `.loc` before it (PTX ISA 11.5.2)."""
    files: dict[int, str] = {}
    place: tuple[int, int, int] | None = None
    for number, content in enumerate(text.splitlines(), 1):
        if found := _FILE.match(content):
            files[int(found[1])] = found[2]
        elif number <= line:
            if found := _LOC.match(content):
                place = (int(found[1]), int(found[2]), int(found[3]))
            elif ".entry" in content or ".func" in content:
                place = None
    if place is None or place[0] not in files:
        return None
    return SourceLocation(files[place[0]], place[1], place[2])


# -- the driver's own compiler -----------------------------------------------------------------------------------


def _driver_version() -> str:
    from . import library

    try:
        return library.load().version
    except NoGpuError as error:
        raise ToolchainError(
            "there is no ptxas and no CUDA driver, so no cubin can be built here",
            got=error.what,
            hint="pip install 'nvidia-cuda-nvcc>=13.0,<13.1', or set config.ptxas to a ptxas",
        ) from None


def _by_driver(text: str, arch: str, name: str) -> tuple[bytes, str]:
    from . import library

    warnings.warn(
        "no ptxas was found; the driver's own compiler builds the kernels, so speed and registers may differ from the "
        "documentation (pip install 'nvidia-cuda-nvcc>=13.0,<13.1')",
        CompilerFallbackWarning,
        stacklevel=4,
    )
    driver = library.load()
    cubin, info, error = driver.link(text, arch)
    if cubin is None:
        raise _refused(error or info, text, name, f"the driver {driver.version}", 1)
    return cubin, info


# -- keeping texts -----------------------------------------------------------------------------------------------


def _keep(result: Build, text: str, name: str) -> None:
    """Write the stages in `config.keep` to `config.dump_dir`, once per build."""
    folder = config.dump_dir
    if folder is None or not config.keep or result.source == "memory":
        return
    stem = f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)}.{result.key[:12]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if "ptx" in config.keep:
            (folder / f"{stem}.ptx").write_text(text, encoding="utf-8")
        if "cubin" in config.keep:
            (folder / f"{stem}.cubin").write_bytes(result.cubin)
        if "sass" in config.keep:
            from . import disassemble

            (folder / f"{stem}.sass").write_text(disassemble.sass(result.cubin))
    except OSError as error:
        raise ArgumentError(f"config.dump_dir cannot be written: {error.strerror or error}", got=str(folder)) from None
