"""The clock at chosen instructions of a kernel, read while it runs on a GPU: a timeline from a real run.

`marked` adds stores of %clock (PTX ISA, special registers) around instructions, by the first thread of each warpgroup
of one CTA. They go to a module variable, so the kernel's parameters stay as they are. A mark is about eight
instructions, of which one thread stores: compare the launch with and without marks before you trust the distances.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from warploom.collective.tile.roles import WARPGROUP
from warploom.errors import ArgumentError
from warploom.runtime.benchmark.clock import place_of, variable
from warploom.runtime.caller import Caller
from warploom.runtime.program import Program

VARIABLE = "warploom_marks"
MARK_BYTES = 8
_STATEMENT = re.compile(r"^[ \t]*(?:@!?%\w+[ \t]+)?(?P<opcode>[a-z][\w.:]*)[^;{}]*;[ \t]*$")
_PREFIX = "%wlm"


@dataclass(frozen=True)
class Mark:
    """A moment of a warpgroup.

    Attributes:
        warpgroup: its index in the CTA.
        line: of the program's text, from 1; instruction: that line.
        before, after: SM clocks since the first mark of the CTA.
    """

    warpgroup: int
    line: int
    instruction: str
    before: int
    after: int


def marked(text: str, entry: str, opcodes: Sequence[str], *, block: int, cta: int = 0, room: int = 4096) -> str:
    """The text with the clock stored before and after each instruction whose opcode begins with one of `opcodes`.

    block: threads of a CTA, along x; cta: index of the marked CTA along x; room: pairs of clocks for each warpgroup.
    Raises ArgumentError if the text has no such entry or instruction.
    """
    head, opening, ending = place_of(text, entry)
    first_line = text.count("\n", 0, opening + 1) + 1
    lines, found = text[opening + 1 : ending].split("\n"), 0
    groups = -(-block // WARPGROUP)
    last = 2 * room * groups * MARK_BYTES
    for at, line in enumerate(lines):
        match = _STATEMENT.match(line)
        if match is None or not match["opcode"].startswith(tuple(opcodes)):
            continue
        found += 1
        number = first_line + at
        lines[at] = f"{_mark(2 * number, groups, last)}\n{line}\n{_mark(2 * number + 1, groups, last)}"
    if not found:
        raise ArgumentError(f"the entry `{entry}` has no instruction that begins with one of {', '.join(opcodes)}")
    size = last // MARK_BYTES + groups
    declared = f".visible .global .align 16 .b64 {VARIABLE}[{size}];\n"
    return text[:head] + declared + text[head : opening + 1] + _begin(cta) + "\n".join(lines) + text[ending:]


def _begin(cta: int) -> str:
    return f"""
    .reg .pred {_PREFIX}p<3>;
    .reg .b32 {_PREFIX}r<4>;
    .reg .b64 {_PREFIX}d<2>;
    mov.u32 {_PREFIX}r0, %tid.x;
    and.b32 {_PREFIX}r1, {_PREFIX}r0, {WARPGROUP - 1};
    setp.eq.u32 {_PREFIX}p0, {_PREFIX}r1, 0;
    mov.u32 {_PREFIX}r1, %ctaid.x;
    setp.eq.u32 {_PREFIX}p1, {_PREFIX}r1, {cta};
    and.pred {_PREFIX}p0, {_PREFIX}p0, {_PREFIX}p1;
    div.u32 {_PREFIX}r0, {_PREFIX}r0, {WARPGROUP};
    mul.lo.u32 {_PREFIX}r0, {_PREFIX}r0, {MARK_BYTES};"""


def _mark(code: int, groups: int, last: int) -> str:
    """Stores (clock, code) in the warpgroup's next place; those after the last place share one."""
    return f"""    mov.u64 {_PREFIX}d0, {VARIABLE};
    cvt.u64.u32 {_PREFIX}d1, {_PREFIX}r0;
    add.u64 {_PREFIX}d0, {_PREFIX}d0, {_PREFIX}d1;
    mov.u32 {_PREFIX}r2, %clock;
    mov.u32 {_PREFIX}r3, {code};
    @{_PREFIX}p0 st.global.v2.u32 [{_PREFIX}d0], {{{_PREFIX}r2, {_PREFIX}r3}};
    add.u32 {_PREFIX}r0, {_PREFIX}r0, {groups * MARK_BYTES};
    min.u32 {_PREFIX}r0, {_PREFIX}r0, {last};"""


class Marks:
    """A program with marks, ready to be launched: `call`, then `read`.

    program: with a block along x; the other options are those of `marked`. Raises ArgumentError for other blocks.
    """

    def __init__(self, program: Program, opcodes: Sequence[str], *, cta: int = 0, room: int = 4096) -> None:
        block = (*program.block, 1, 1, 1)
        if block[1] * block[2] != 1:
            raise ArgumentError(f"`{program.title}` has a block of {program.block}: marks need a block along x")
        self._source, self._groups, self._room = program.text, -(-block[0] // WARPGROUP), room
        text = marked(program.text, program.entry, opcodes, block=block[0], cta=cta, room=room)
        self.program = replace(program, text=text, allow_spills=True)
        self.call = Caller(self.program)

    def clear(self) -> None:
        """Forget all marks; the GPU must be idle, and the program loaded by a first call."""
        driver, address = variable(self.program, VARIABLE)
        size = (2 * self._room + 1) * self._groups * MARK_BYTES
        driver.call("cuMemsetD8", address, 0, size, doing="clearing the marks")

    def read(self) -> list[Mark]:
        """The marks since `clear`, by warpgroup and time; the GPU must be idle.

        Raises ArgumentError if there were more than `room`.
        """
        import numpy as np

        values = np.zeros((2 * self._room + 1, self._groups, 2), np.uint32)
        driver, address = variable(self.program, VARIABLE)
        driver.call("cuMemcpyDtoH", values.ctypes.data, address, values.nbytes, doing="reading the marks")
        return marks_of(values, self._source)


def marks_of(values: Any, text: str) -> list[Mark]:
    """Marks of (places, warpgroups, (clock, code)) u32, as `marked` stores them; `text` is without marks.

    Raises ArgumentError if the last place was written: then marks were lost.
    """
    import numpy as np

    if values[-1].any():
        raise ArgumentError(f"a warpgroup made more than {len(values) // 2} marks; give more `room`")
    lines, found = text.split("\n"), []
    used = values[0, values[0, :, 1] > 0, 0]
    if not used.size:
        return []
    origin = used[np.argmin((used - used[0]).view(np.int32))]  # %clock wraps
    for warpgroup in range(values.shape[1]):
        clocks, codes = (values[:, warpgroup, of] for of in (0, 1))
        count = int(np.count_nonzero(codes)) // 2 * 2
        since = (clocks[:count] - origin).astype(np.uint32)
        for at in range(0, count, 2):
            line = int(codes[at]) // 2
            assert codes[at + 1] == codes[at] + 1, "a mark before an instruction without the one after it"
            found.append(Mark(warpgroup, line, lines[line - 1].strip(), int(since[at]), int(since[at + 1])))
    return found
