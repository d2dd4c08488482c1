"""What ptxas makes of tcgen05.wait::ld: why a missing one is a warning where the loaded values were stored in time.

The wait becomes no instruction of its own: the next one waits until the loaded registers have arrived, as each use of
them does anyway. If a warp stores all that it loaded before it signals, the instructions without the wait are the same,
and the stores wait.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from warploom.driver import compile as compiler
from warploom.driver import disassemble, toolchain

pytestmark = pytest.mark.usefixtures("needs_ptxas", "cache_dir")

FOLDER = Path(__file__).parents[1] / "foreign" / "blackwell" / "current"
UNWAITED = ("descriptors_e4m3", "nvfp4", "gluon_launch_control")
"""Texts whose only wait::ld may be left out; `benchmarks/planted/harmless.py` names them."""


def instructions(text: str) -> list[str]:
    """The machine code without the names of registers, addresses and padding."""
    sass = disassemble.sass(compiler.build(text).cubin)
    lines = re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(\S.*?)\s*;", sass, re.MULTILINE)
    shown = (re.sub(r"\b(U?[RP])\d+\b|0x[0-9a-f]+|\.reuse", lambda found: found[1] or "", line) for line in lines)
    return [line for line in shown if not line.startswith("NOP")]


@pytest.mark.slow
@pytest.mark.parametrize("name", UNWAITED)
def test_the_wait_for_values_that_are_stored_before_the_signal_changes_no_instruction(name: str):
    if toolchain.find("nvdisasm") is None:
        pytest.skip("no nvdisasm on this machine")
    text = (FOLDER / f"{name}.ptx").read_text()
    waiting, not_waiting = (instructions(one) for one in (text, text.replace("tcgen05.wait::ld.sync.aligned;", "")))
    assert waiting == not_waiting and any(one.startswith("LDTM") for one in waiting)
