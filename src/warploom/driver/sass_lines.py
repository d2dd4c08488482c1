"""The machine code of a text, with the PTX line of each instruction.

Each PTX instruction gets a `.loc` of its own line, and the disassembler of a build with line information reports it.
Such a build may use other registers than one without, and instructions that ptxas hoists or unrolls keep their line.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from ..errors import ToolchainError
from . import toolchain
from .compile import build
from .disassemble import section

_TIMEOUT_S = 120
_HERE = re.compile(r'//## File "[^"]*", line (\d+)')
_CODE = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;?\s*$")
_PLACE = re.compile(r"^\s*\.(loc|file)\s")


@dataclass(frozen=True)
class MachineLine:
    """One line of machine code: its text, its address (-1 for a label), and its PTX line, 0 if unknown."""

    text: str
    address: int
    ptx_line: int


def sass_lines(text: str, entry: str, starts: Collection[int]) -> list[MachineLine]:
    """The machine code of a kernel. starts: the lines of the text, from 1, on which an instruction begins.

    Raises ToolchainError if there is no nvdisasm, CompilationError if ptxas rejects the text.
    """
    tool = toolchain.find("nvdisasm")
    if tool is None:
        raise ToolchainError(
            "machine code needs nvdisasm, which was not found", hint="pip install nvidia-cuda-nvdisasm"
        )
    made = build(numbered(text, starts), name=entry, entry=entry, allow_spills=True, flags=("-lineinfo",))
    with toolchain.work_folder() as folder:
        path = folder / "kernel.cubin"
        path.write_bytes(made.cubin)
        done = tool.run("-c", "-g", path, timeout_s=_TIMEOUT_S)
    if done.returncode:
        raise ToolchainError(f"{tool} failed", got=(done.stderr or done.stdout).strip()[:2000])
    return _lines(section(done.stdout, entry))


def numbered(text: str, starts: Collection[int]) -> str:
    """The text with a `.loc` of its own line before each instruction, and no other."""
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        if number in starts:
            lines.append(f"    .loc 1 {number} 0")
        lines.append("" if _PLACE.match(line) else line)
    at = next(at for at, line in enumerate(lines) if line.lstrip().startswith(".address_size")) + 1
    return "\n".join([*lines[:at], '.file 1 "kernel.ptx"', *lines[at:]]) + "\n"


def _lines(text: str) -> list[MachineLine]:
    found, ptx_line = [], 0
    for line in text.splitlines():
        if here := _HERE.search(line):
            ptx_line = int(here[1])
        elif code := _CODE.match(line):
            found.append(MachineLine(code[2], int(code[1], 16), ptx_line))
        elif line.startswith(".L_") and line.rstrip().endswith(":"):
            found.append(MachineLine(line.strip(), -1, 0))
    return found
