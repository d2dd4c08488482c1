"""Warp-wide operations: shuffles, votes, matches, reductions, election, bar.warp.sync.

PTX ISA 9.7.9.6, 9.7.13.2, 9.7.13.9-12 and 14. The core executes them when the threads of the membermask that have not
exited have arrived (`schedule.convergence`). What remains is arithmetic on (warps, 32) arrays.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...isa import dtypes
from ..machine.frame import Frame
from ..machine.members import LANE_BIT, members
from ..machine.registers import WARP
from ..program.decode import Decode
from ..program.handlers import Handlers, Step

HANDLERS = Handlers()

FULL = 0xFFFFFFFF
POISON = np.uint32(FULL)
_LANE = np.arange(WARP)


def ballot(lanes: np.ndarray) -> np.ndarray:
    """(warps·32,) bools as one 32-bit mask for each warp, repeated for its lanes: (warps·32,) uint32."""
    words = np.packbits(lanes.reshape(-1, WARP), axis=1, bitorder="little").view(np.uint32)
    return np.repeat(words[:, 0], WARP)


def together(d: Decode, act: Callable[[Frame, np.ndarray], None]) -> Step:
    """A step that calls `act(frame, bits)` when the members of each lane's mask have arrived, as the core ensures.

    `bits`, (lanes,) uint32: the lanes of the own warp that are in the own membermask and execute this instruction.
    """
    slot = d.source("membermask", dtypes.b32)

    def step(frame: Frame) -> None:
        given = frame.values[slot]
        if frame.mask is True and not isinstance(given, np.ndarray) and int(given) == FULL:
            act(frame, np.full(frame.lanes, POISON))
        else:
            bits = members(frame, slot) & ballot(frame.active)
            act(frame, bits)
            for listener in frame.machine.events.kept:
                listener(frame, bits)

    return step


# -- shuffles ----------------------------------------------------------------------------------------------------


def source_lanes(mode: str, b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Source lane and predicate of shfl.sync for lanes 0..31 (9.7.9.6).

    Args:
        b: lane or offset; c: clamp value in bits 0-4, segment mask in bits 8-12; integers, (…, 32).
    """
    b, clamp, segment = b & 31, c & 31, c >> 8 & 31
    last = (_LANE & segment) | (clamp & ~segment)
    if mode == "up":
        source = _LANE - b
        in_range = source >= last
    else:
        if mode == "down":
            source = _LANE + b
        elif mode == "bfly":
            source = _LANE ^ b
        else:
            source = (_LANE & segment) | (b & ~segment)
        in_range = source <= last
    return np.where(in_range, source, _LANE), in_range


def absent_value(frame: Frame) -> np.uint32:
    """The value read from an absent lane: the same as uninitialised memory."""
    return np.uint32(int.from_bytes((frame.machine.unwritten * 4)[:4], "little"))


@HANDLERS.add("shfl.sync")
def _shuffle(d: Decode) -> Step:
    mode = d.modifier("mode")
    a, b, c = d.source("a"), d.source("b"), d.source("c")
    out, predicate = d.destination("d"), d.destination("p", dtypes.pred)
    layout = d.code.layout
    constants = [layout.slots[slot] for slot in (b, c)]
    numbers = [np.full(WARP, value, np.int64) for value in constants if isinstance(value, np.generic)]
    fixed = source_lanes(mode, *numbers) if len(numbers) == 2 else None

    def act(frame: Frame, bits: np.ndarray) -> None:
        shape = (frame.warps, WARP)
        value = np.broadcast_to(frame.values[a], (frame.lanes,)).reshape(shape)
        if fixed is not None:
            source, in_range = (np.broadcast_to(part, shape) for part in fixed)
        else:
            by, to = (np.broadcast_to(frame.values[slot], (frame.lanes,)).astype(np.int64) for slot in (b, c))
            source, in_range = source_lanes(mode, by.reshape(shape), to.reshape(shape))
        moved = np.take_along_axis(value, source, axis=1)
        absent = (bits.reshape(shape) >> source.astype(np.uint32)) & np.uint32(1) == 0
        if absent.any():  # the value of an inactive lane is undefined
            moved = np.where(absent, absent_value(frame), moved)
            told = absent.reshape(-1) & frame.active
            for listener in frame.machine.events.shuffled if told.any() else ():
                listener(frame, told)
        frame.write(out, moved.reshape(-1))
        frame.write(predicate, in_range.reshape(-1))

    return together(d, act)


# -- votes and matches -------------------------------------------------------------------------------------------


def _vote(d: Decode) -> Step:
    mode = d.modifier("mode", "ballot")
    read, out = d.predicate("a"), d.destination("d")

    def act(frame: Frame, bits: np.ndarray) -> None:
        said = ballot(np.broadcast_to(read(frame), (frame.lanes,)) & frame.active) & bits
        if mode == "ballot":
            frame.write(out, said)
        elif mode == "all":
            frame.write(out, said == bits)
        elif mode == "any":
            frame.write(out, said != 0)
        else:
            frame.write(out, (said == bits) | (said == 0))

    return together(d, act)


HANDLERS.add("vote.predicate", "vote.ballot")(_vote)


@HANDLERS.add("match.any", "match.all")
def _match(d: Decode) -> Step:
    a, out = d.source("a"), d.destination("d")
    every = d.match.form.key == "match.all"
    predicate = d.destination("p", dtypes.pred) if every else -1

    def act(frame: Frame, bits: np.ndarray) -> None:
        value = np.broadcast_to(frame.values[a], (frame.lanes,)).reshape(frame.warps, WARP)
        same = value[:, :, None] == value[:, None, :]  # [warp, own lane, other lane]
        equal = np.packbits(same, axis=2, bitorder="little").view(np.uint32).reshape(-1) & bits
        if every:
            agreed = equal == bits
            frame.write(out, np.where(agreed, bits, np.uint32(0)))
            frame.write(predicate, agreed)
        else:
            frame.write(out, equal)

    return together(d, act)


# -- reductions --------------------------------------------------------------------------------------------------

_REDUCTIONS: dict[str, np.ufunc] = {
    "add": np.add, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


def reduce_members(
    bits: np.ndarray, active: np.ndarray, value: np.ndarray, reduce: Callable[[np.ndarray], np.generic]
) -> np.ndarray:
    """Apply `reduce` to the values of each lane's members; equal masks of a warp are reduced once. (lanes,)."""
    result = np.zeros_like(value)
    for warp in range(bits.size // WARP):
        lanes = slice(warp * WARP, (warp + 1) * WARP)
        mine, here, out = bits[lanes], active[lanes], result[lanes]
        for mask in np.unique(mine[here]):
            members = (mask >> _LANE.astype(np.uint32)) & np.uint32(1) != 0
            out[here & (mine == mask)] = reduce(value[lanes][members])
    return result


def order_key(value: np.ndarray) -> np.ndarray:
    """Integers that order float32 numbers as IEEE does, with -0 below +0."""
    raw = value.view(np.int32).astype(np.int64)
    return np.where(raw < 0, np.int64(-0x80000000) - raw - 1, raw)


def reduce_floats(value: np.ndarray, operation: str, absolute: bool, nan: bool) -> np.float32:
    """redux.sync.{min,max}{.abs}{.NaN}.f32 of (n,) numbers (9.7.13.12)."""
    if absolute:
        value = np.abs(value)
    numbers = value[~np.isnan(value)]
    if not numbers.size or (nan and numbers.size < value.size):
        return np.uint32(0x7FFFFFFF).view(np.float32)
    key = order_key(np.ascontiguousarray(numbers))
    return numbers[np.argmin(key) if operation == "min" else np.argmax(key)]


@HANDLERS.add("redux.integer", "redux.bits", "redux.float")
def _redux(d: Decode) -> Step:
    a, out, operation = d.source("a"), d.destination("d"), d.modifier("op")
    if d.type("a") is dtypes.f32:
        absolute, nan = d.has("abs"), d.has("NaN")

        def reduce(value: np.ndarray) -> np.generic:
            return reduce_floats(value, operation, absolute, nan)
    else:
        combine = _REDUCTIONS[operation]

        def reduce(value: np.ndarray) -> np.generic:
            return combine.reduce(value, dtype=value.dtype)  # .add wraps at 32 bits

    def act(frame: Frame, bits: np.ndarray) -> None:
        value = np.broadcast_to(frame.values[a], (frame.lanes,))
        frame.write(out, reduce_members(bits, frame.active, value, reduce))

    return together(d, act)


# -- election, mask, barrier -------------------------------------------------------------------------------------


@HANDLERS.add("elect.sync")
def _elect(d: Decode) -> Step:
    """The lowest executing member is the leader; hardware only guarantees that it is always the same one."""
    out, predicate = d.destination("d"), d.destination("p", dtypes.pred)

    def act(frame: Frame, bits: np.ndarray) -> None:
        lowest = bits & (~bits + np.uint32(1))
        frame.write(out, np.log2(np.maximum(lowest, 1)))
        frame.write(predicate, lowest == np.tile(LANE_BIT, frame.warps))

    return together(d, act)


@HANDLERS.add("activemask")
def _active_mask(d: Decode) -> Step:
    out = d.destination("d")
    return lambda frame: frame.write(out, ballot(frame.active))


@HANDLERS.add("bar.warp")
def _warp_barrier(d: Decode) -> Step:
    """Threads may reach one barrier at different instructions (9.7.13.2); the core brings them together."""
    slot = d.source("membermask", dtypes.b32)

    def step(frame: Frame) -> None:
        listeners = frame.machine.events.met
        masks, whole = members(frame, slot), frame.mask
        for mask in np.unique(masks[frame.active_lanes]) if listeners else ():
            frame.mask = frame.active & (masks == mask)  # each set of threads synchronises separately
            for listener in listeners:
                listener(None, frame)
            frame.mask = whole

    return step
