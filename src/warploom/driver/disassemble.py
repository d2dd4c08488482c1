"""Disassembles a cubin to SASS with nvdisasm or cuobjdump."""

from __future__ import annotations

import re

from ..errors import ToolchainError
from . import toolchain

_TIMEOUT_S = 120


def sass(cubin: bytes, entry: str | None = None) -> str:
    """The SASS text of a cubin, of one entry or of all.

    Raises ToolchainError if neither tool exists or the tool fails, with its message.
    """
    tool = toolchain.find("nvdisasm") or toolchain.find("cuobjdump")
    if tool is None:
        raise ToolchainError(
            "SASS needs nvdisasm or cuobjdump, but neither was found",
            hint="pip install nvidia-cuda-nvdisasm, or put a CUDA toolkit's bin folder on PATH",
        )
    with toolchain.work_folder() as folder:
        path = folder / "kernel.cubin"
        path.write_bytes(cubin)
        if tool.name == "nvdisasm":
            result = tool.run("-c", path, timeout_s=_TIMEOUT_S)
        else:
            result = tool.run("-sass", *(("-fun", entry) if entry else ()), path, timeout_s=_TIMEOUT_S)
    if result.returncode:
        raise ToolchainError(f"{tool} failed", got=(result.stderr or result.stdout).strip()[:2000])
    if tool.name == "nvdisasm" and entry is not None:
        return section(result.stdout, entry)
    return result.stdout


def section(text: str, entry: str) -> str:
    """The part of nvdisasm's output that is the code section of one entry."""
    taken: list[str] = []
    inside = False
    heading = re.compile(rf"\.text\.{re.escape(entry)}(?![\w$.])")
    for line in text.splitlines():
        if re.match(r"\s*(\.section\s|//---)", line):  # .sectioninfo belongs to its section
            inside = bool(heading.search(line))
        if inside:
            taken.append(line)
    if not taken:
        raise ToolchainError(f"the cubin has no code for an entry `{entry}`")
    return "\n".join(taken) + "\n"


_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", re.MULTILINE)
_WAIT = "WARPGROUP.DEPBAR"


def between_waits(text: str) -> tuple[dict[str, int], ...]:
    """The instructions between the waits for MMAs in a SASS text, in its order.

    Counts by the first word of the opcode ("MUFU", "HGMMA"): before the first WARPGROUP.DEPBAR, between each and the
    next, after the last.
    """
    found: list[dict[str, int]] = [{}]
    for opcode in _INSTRUCTION.findall(text):
        if opcode.startswith(_WAIT):
            found.append({})
            continue
        word = opcode.partition(".")[0]
        found[-1][word] = found[-1].get(word, 0) + 1
    return tuple(found)
