"""The SM clock as a kernel measures it: its SMs' cycles over their nanoseconds.

NVML's clock is not the clock at which a tensor-heavy kernel runs, so a share of the peak uses the clock read inside
the kernel. `instrumented` adds a read of %clock64 and %globaltimer by thread 0 of every CTA to each end of a text (PTX
ISA, special registers), and stores them as the SM's last mark in a module variable: it holds no register before and
adds neither a branch nor a parameter. The clock is the difference of two marks of an SM, so launches may overlap.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...errors import ArgumentError

if TYPE_CHECKING:
    import numpy as np

    from ..program import Program

MARKS = "warploom_clock_marks"
SLOTS = 1024
"""Number of SMs that can have a mark: a power of two."""
_END = re.compile(r"^(?P<space>[ \t]*)(?:@(?P<guard>!?%?\w+)[ \t]+)?(?P<what>ret|exit)[ \t]*;", re.MULTILINE)
_PREFIX = "%wlc"


def instrumented(text: str, entry: str) -> str:
    """The text with clock reads added at its ends. Raises ArgumentError if it has no such entry."""
    head, opening, ending = place_of(text, entry)
    body, count = text[opening + 1 : ending], 0

    def at_end(match: re.Match[str]) -> str:
        nonlocal count
        count += 1
        return f"{_finish(match['guard'])}\n{match[0]}"

    body = _END.sub(at_end, body)
    if not count:
        raise ArgumentError(f"the entry `{entry}` has no ret")
    variable = f".visible .global .align 16 .b64 {MARKS}[{2 * SLOTS}];\n"
    return text[:head] + variable + text[head : opening + 1] + _begin() + body + text[ending:]


def place_of(text: str, entry: str) -> tuple[int, int, int]:
    """Where an entry's line (.visible) starts, and its body's braces open and close.

    Raises ArgumentError if the text has no such entry.
    """
    found = re.search(rf"\.entry\s+{re.escape(entry)}\b", text)
    if found is None:
        raise ArgumentError(f"the text has no entry `{entry}`")
    opening = text.index("{", found.end())  # parameters have no braces
    return text.rfind("\n", 0, found.start()) + 1, opening, _closing(text, opening)


def _closing(text: str, opening: int) -> int:
    depth = 0
    for at in range(opening, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if not depth:
            return at
    raise ArgumentError("the text ends inside a kernel")


def _begin() -> str:
    return f"""
    .reg .pred {_PREFIX}p<2>;
    .reg .b32 {_PREFIX}r<2>;
    .reg .b64 {_PREFIX}d<3>;"""


def _finish(guard: str | None) -> str:
    """Thread 0 marks its SM. A relaxed store of both words: CTAs of an SM may end at once."""
    guarded = ""
    if guard:
        name, inverted = guard.lstrip("!"), guard.startswith("!")
        change = f"\n    not.pred {_PREFIX}p1, {name};" if inverted else ""
        guarded = f"{change}\n    and.pred {_PREFIX}p0, {_PREFIX}p0, {_PREFIX + 'p1' if inverted else name};"
    return f"""
    mov.u32 {_PREFIX}r0, %tid.x;
    mov.u32 {_PREFIX}r1, %tid.y;
    or.b32 {_PREFIX}r0, {_PREFIX}r0, {_PREFIX}r1;
    setp.eq.u32 {_PREFIX}p0, {_PREFIX}r0, 0;{guarded}
    mov.u32 {_PREFIX}r1, %smid;
    and.b32 {_PREFIX}r1, {_PREFIX}r1, {SLOTS - 1};
    mov.u64 {_PREFIX}d2, {MARKS};
    mad.wide.u32 {_PREFIX}d2, {_PREFIX}r1, 16, {_PREFIX}d2;
    mov.u64 {_PREFIX}d0, %clock64;
    mov.u64 {_PREFIX}d1, %globaltimer;
    @{_PREFIX}p0 st.relaxed.gpu.global.v2.u64 [{_PREFIX}d2], {{{_PREFIX}d0, {_PREFIX}d1}};"""


@dataclass(frozen=True)
class ClockReading:
    """What passed between two marks.

    Attributes:
        cycles, nanoseconds: sums over the SMs that have both.
    """

    cycles: int
    nanoseconds: int

    @property
    def megahertz(self) -> float:
        return self.cycles / self.nanoseconds * 1e3


def between(first: np.ndarray, last: np.ndarray) -> ClockReading:
    """The reading of two copies of the marks, (SMs, 2) u64 each: cycles and nanoseconds.

    Raises ArgumentError if no SM has made a mark in between.
    """
    passed = (last - first)[(first[:, 1] > 0) & (last[:, 1] > first[:, 1])]
    if not len(passed):
        raise ArgumentError("no SM has marked its clock twice", expected="two launches or more")
    return ClockReading(int(passed[:, 0].sum()), int(passed[:, 1].sum()))


class Probe:
    """A program with clock reads, ready to be launched."""

    def __init__(self, program: Program) -> None:
        from ..caller import Caller

        # one register too many would make it another kernel, so spills are refused
        text = instrumented(program.text, program.entry)
        self.program = replace(program, text=text, allow_spills=False)
        self.call = Caller(self.program)

    def marks(self) -> np.ndarray:
        """Each SM's last cycle and nanosecond, (SMs, 2) u64; the GPU must be idle, and a launch before it."""
        import numpy as np

        values = np.zeros((SLOTS, 2), np.uint64)
        driver, address = variable(self.program, MARKS)
        driver.call("cuMemcpyDtoH", values.ctypes.data, address, values.nbytes, doing="reading the clock's marks")
        return values


def variable(program: Program, name: str) -> tuple[Any, int]:
    """The driver, and the address of a variable of the program's module on the current device."""
    from ...driver import library
    from ...driver.module import modules
    from ..on_gpu import build, target_for

    driver = library.load()
    built = build(program, target_for(program, driver.device(0).arch))
    x, y, z = program.cluster
    kernel = modules().kernel(built, program.entry, 0, 0, program.dynamic_smem, x * y * z)
    address, _ = driver.call("cuModuleGetGlobal", driver.cuda.CUmodule(kernel.module), name.encode())
    return driver, int(address)
