"""Functions without a body: `vprintf`, `__assertfail`, `malloc` and `free` (`heap`); reaching any other is an error.

`vprintf(format, arguments)` takes two generic addresses: a zero-terminated string, and values one after the other,
each aligned to its size, as C promotes them (CUDA C++ Programming Guide, "Formatted output"). Output of threads
appears in the order of the schedule.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from ...asm.nodes import Instruction, Register, Symbol
from ...errors import EmulationError, UnsupportedInstructionError
from ...isa import dtypes
from ..machine.frame import Frame
from ..machine.registers import RegisterLayout
from ..machine.scopes import DeclaredRegister, Scope
from . import heap
from .handlers import Step

KNOWN = ("vprintf", "__assertfail", "malloc", "free")
_LONGEST = 1 << 16
_CONVERSION = re.compile(rb"%([-+ #0]*)(\*|\d*)(?:\.(\*|\d*))?(hh|h|ll|l|j|z|t|)([diouxXcsfFeEgGaAp%])")


def external_call(call: Instruction, scope: Scope, layout: RegisterLayout) -> Step:
    """The effect of calling a function without a body."""
    name = next((operand.name for operand in call.operands if isinstance(operand, (Symbol, Register))), "?")
    if name in KNOWN:
        slots = []
        for operand in call.operands[1:]:
            found = scope.find(getattr(operand, "name", ""))
            if isinstance(found, DeclaredRegister):
                slots.append(layout.slot(found.row, dtypes.ALL[found.type]))
        does = {"vprintf": _vprintf, "__assertfail": _assertion, "malloc": heap.malloc, "free": heap.free}
        return does[name](*slots)  # type: ignore[operator]

    pointer = scope.find(name)

    def step(frame: Frame) -> None:
        lane = int(frame.active_lanes[0])
        if isinstance(pointer, DeclaredRegister):
            value = int(np.broadcast_to(frame.values[layout.slot(pointer.row, dtypes.u64)], frame.lanes)[lane])
            frame.error(
                EmulationError, f"a call through {name} goes to {value:#x}, which is not a callable function", lane,
                expected="the address of a function with these parameters that is not running already",
            )  # fmt: skip
        frame.error(UnsupportedInstructionError, f"{name} has no body here, so the emulator cannot call it", lane)

    return step


def _vprintf(text: int, values: int, result: int) -> Step:
    def step(frame: Frame) -> None:
        where = np.broadcast_to(frame.values[text], frame.lanes)
        held = np.broadcast_to(frame.values[values], frame.lanes)
        counts, mask = np.zeros(frame.lanes, np.uint32), frame.mask
        for lane in map(int, frame.active_lanes):
            frame.mask = np.arange(frame.lanes) == lane
            read = _reader(frame, lane)
            characters = _string(read, int(where[lane]))
            printed, counts[lane] = formatted(characters, read, int(held[lane]))
            frame.machine.printed.append(printed)
        frame.mask = mask
        frame.write(result, counts)

    return step


def _assertion(claim: int, file: int, line: int, *rest: int) -> Step:
    def step(frame: Frame) -> None:
        lane = int(frame.active_lanes[0])
        frame.mask = np.arange(frame.lanes) == lane
        read = _reader(frame, lane)
        texts = [_string(read, int(np.broadcast_to(frame.values[slot], frame.lanes)[lane])) for slot in (claim, file)]
        claimed, where = (text.decode(errors="replace") for text in texts)
        number = int(np.broadcast_to(frame.values[line], frame.lanes)[lane])
        frame.error(EmulationError, f"an assertion of the kernel failed: {claimed} ({where}, line {number})", lane)

    return step


Read = Callable[[int, np.dtype], np.generic]


def _reader(frame: Frame, lane: int) -> Read:
    def read(address: int, dtype: np.dtype) -> np.generic:
        return frame.load("generic", np.full(frame.lanes, address, np.uint64), dtype)[0, lane]

    return read


def _string(read: Read, address: int) -> bytes:
    made = bytearray()
    while len(made) < _LONGEST and (byte := int(read(address + len(made), np.dtype(np.uint8)))):
        made.append(byte)
    return bytes(made)


def formatted(text: bytes, read: Read, at: int) -> tuple[str, int]:
    """A format string with its values starting at address `at`, and their number."""
    count = 0

    def value(dtype: type[np.generic]) -> np.generic:
        nonlocal at, count
        size = np.dtype(dtype).itemsize
        at = -(-at // size) * size
        got = read(at, np.dtype(dtype))
        at, count = at + size, count + 1
        return got

    def one(found: re.Match[bytes]) -> bytes:
        flags, width, precision, length, kind = (part or b"" for part in found.groups())
        if kind == b"%":
            return b"%"
        width, precision = (b"%d" % int(value(np.int32)) if part == b"*" else part for part in (width, precision))
        form = b"%" + flags + width + (b"." + precision if found.group(3) is not None else b"")
        if kind in b"fFeEgG":
            return (form + kind) % float(value(np.float64))
        if kind in b"aA":
            return float(value(np.float64)).hex().encode()
        if kind == b"s":
            return (form + b"s") % _string(read, int(value(np.uint64)))
        if kind == b"p":
            return b"%#x" % int(value(np.uint64))
        if kind == b"c":
            return (form + b"c") % (int(value(np.int32)) & 0xFF)
        wide = length in (b"l", b"ll", b"j", b"z", b"t")
        if kind in b"di":
            return (form + b"d") % int(value(np.int64 if wide else np.int32))
        return (form + (b"d" if kind == b"u" else kind)) % int(value(np.uint64 if wide else np.uint32))

    return _CONVERSION.sub(one, text).decode(errors="replace"), count
