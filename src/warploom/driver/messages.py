"""The messages of ptxas about a text, line by line, without keeping its build."""

from __future__ import annotations

import re
from dataclasses import dataclass

from . import toolchain
from .compile import target_of

_MESSAGE = re.compile(
    r"^ptxas\s+(?:(?P<file>\S.*?),?\s+line\s+(?P<line>\d+);?\s+)?(?P<level>error|fatal|warning|info)\s*:\s*(?P<text>.*)$"
)
_LINE = re.compile(r" on line (\d+)")
_CODE = re.compile(r"\((C\d{4})\)\s*")
_TIMEOUT_S = 60


@dataclass(frozen=True)
class Message:
    """One message. level: "error", "fatal", "warning" or "info"; line: 0 if none is named; code: "C7510" or ""."""

    line: int
    level: str
    text: str
    code: str = ""


def of(text: str, arch: str | None = None) -> list[Message]:
    """The messages of ptxas about a text for a target, by default the one it names; [] if there is no ptxas.

    Functions that are defined elsewhere are not errors. Raises ToolchainError if ptxas cannot run or does not finish.
    """
    tool = toolchain.ptxas()
    if tool is None:
        return []
    with toolchain.work_folder() as folder:
        (folder / "kernel.ptx").write_text(text, encoding="utf-8")
        chosen = arch or target_of(text)
        done = tool.run("-c", f"-arch={chosen}", "-o", "kernel.cubin", "kernel.ptx", cwd=folder,
                        timeout_s=_TIMEOUT_S)  # fmt: skip
    found = []
    for said_line in (done.stdout + done.stderr).splitlines():
        if read := _MESSAGE.match(said_line):
            said = read["text"]
            code = _CODE.search(said)
            if said.startswith("Ptx assembly aborted"):
                continue
            shown = _CODE.sub("", said).strip()
            line = read["line"] or (elsewhere[1] if (elsewhere := _LINE.search(said)) else 0)
            found.append(Message(int(line), read["level"], shown, code[1] if code else ""))
    return found
