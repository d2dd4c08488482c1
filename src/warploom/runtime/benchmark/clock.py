"""The SM clock as a kernel measures it: its own cycles over its own nanoseconds.

NVML's clock is not the clock at which a tensor-heavy kernel runs, so a share of the peak uses the clock read inside
the kernel. `instrumented` adds a read of %clock64 and %globaltimer by thread 0 of every CTA to the start and to each
end of a text (PTX ISA, special registers), and sums the differences in a module variable: it holds no register in
between and adds neither a branch nor a parameter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...errors import ArgumentError

if TYPE_CHECKING:
    from ..program import Program

SUMS, STARTS = "warploom_clock_sums", "warploom_clock_starts"
SLOTS = 65536
"""Number of CTAs whose start is kept; higher-numbered ones share the slots of earlier ones that have ended."""
_END = re.compile(r"^(?P<space>[ \t]*)(?:@(?P<guard>!?%?\w+)[ \t]+)?(?P<what>ret|exit)[ \t]*;", re.MULTILINE)
_PREFIX = "%wlc"


def instrumented(text: str, entry: str) -> str:
    """The text with clock reads added. Raises ArgumentError if it has no such entry."""
    head, opening, ending = place_of(text, entry)
    body, count = text[opening + 1 : ending], 0

    def at_end(match: re.Match[str]) -> str:
        nonlocal count
        count += 1
        return f"{_finish(match['guard'])}\n{match[0]}"

    body = _END.sub(at_end, body)
    if not count:
        raise ArgumentError(f"the entry `{entry}` has no ret")
    variables = f".visible .global .align 8 .b64 {SUMS}[2];\n.visible .global .align 8 .b64 {STARTS}[{2 * SLOTS}];\n"
    return text[:head] + variables + text[head : opening + 1] + _begin() + body + text[ending:]


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


def _where() -> str:
    """Computes the address of the CTA's slot in %wlcd2, and whether this is thread 0 in %wlcp0."""
    return f"""
    mov.u32 {_PREFIX}r0, %tid.x;
    mov.u32 {_PREFIX}r1, %tid.y;
    or.b32 {_PREFIX}r0, {_PREFIX}r0, {_PREFIX}r1;
    setp.eq.u32 {_PREFIX}p0, {_PREFIX}r0, 0;
    mov.u32 {_PREFIX}r1, %ctaid.x;
    mov.u32 {_PREFIX}r2, %ctaid.y;
    mov.u32 {_PREFIX}r3, %nctaid.x;
    mad.lo.u32 {_PREFIX}r1, {_PREFIX}r2, {_PREFIX}r3, {_PREFIX}r1;
    and.b32 {_PREFIX}r1, {_PREFIX}r1, {SLOTS - 1};
    mov.u64 {_PREFIX}d2, {STARTS};
    mad.wide.u32 {_PREFIX}d2, {_PREFIX}r1, 16, {_PREFIX}d2;
    mov.u64 {_PREFIX}d0, %clock64;
    mov.u64 {_PREFIX}d1, %globaltimer;"""


def _begin() -> str:
    return f"""
    .reg .pred {_PREFIX}p<2>;
    .reg .b32 {_PREFIX}r<4>;
    .reg .b64 {_PREFIX}d<6>;{_where()}
    @{_PREFIX}p0 st.global.u64 [{_PREFIX}d2], {_PREFIX}d0;
    @{_PREFIX}p0 st.global.u64 [{_PREFIX}d2+8], {_PREFIX}d1;"""


def _finish(guard: str | None) -> str:
    guarded = ""
    if guard:
        name, inverted = guard.lstrip("!"), guard.startswith("!")
        change = f"\n    not.pred {_PREFIX}p1, {name};" if inverted else ""
        guarded = f"{change}\n    and.pred {_PREFIX}p0, {_PREFIX}p0, {_PREFIX + 'p1' if inverted else name};"
    return f"""{_where()}{guarded}
    mov.u64 {_PREFIX}d3, {SUMS};
    @{_PREFIX}p0 ld.global.u64 {_PREFIX}d4, [{_PREFIX}d2];
    @{_PREFIX}p0 ld.global.u64 {_PREFIX}d5, [{_PREFIX}d2+8];
    @{_PREFIX}p0 sub.u64 {_PREFIX}d4, {_PREFIX}d0, {_PREFIX}d4;
    @{_PREFIX}p0 sub.u64 {_PREFIX}d5, {_PREFIX}d1, {_PREFIX}d5;
    @{_PREFIX}p0 red.global.add.u64 [{_PREFIX}d3], {_PREFIX}d4;
    @{_PREFIX}p0 red.global.add.u64 [{_PREFIX}d3+8], {_PREFIX}d5;"""


@dataclass(frozen=True)
class ClockReading:
    """The counts of a kernel.

    Attributes:
        cycles, nanoseconds: sums over its CTAs.
    """

    cycles: int
    nanoseconds: int

    @property
    def megahertz(self) -> float:
        return self.cycles / self.nanoseconds * 1e3


class Probe:
    """A program with clock reads, ready to be launched."""

    def __init__(self, program: Program) -> None:
        from ..caller import Caller

        # One register too many would make it another kernel, so spills are refused. With dependent launch, a CTA could
        # start while the CTA with its number in the previous launch still runs, on another SM with another count.
        text = instrumented(program.text, program.entry)
        self.program = replace(program, text=text, allow_spills=False, pdl=False)
        self.call = Caller(self.program)

    def zero(self) -> None:
        """Restart the counts; call it after the first launch, with the GPU idle."""
        driver, address = variable(self.program, SUMS)
        driver.call("cuMemsetD8", address, 0, 16, doing="clearing the clock's sums")

    def read(self) -> ClockReading:
        """The counts since `zero`; the GPU must be idle."""
        import numpy as np

        values = np.zeros(2, np.uint64)
        driver, address = variable(self.program, SUMS)
        driver.call("cuMemcpyDtoH", values.ctypes.data, address, 16, doing="reading the clock's sums")
        return ClockReading(int(values[0]), int(values[1]))


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
