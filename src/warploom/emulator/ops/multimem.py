"""multimem.ld_reduce, multimem.st, multimem.red: one address for one location in several buffers. PTX ISA 9.7.9.14.

Each buffer is accessed as if by its own address, so bounds, orders and the sanitizer see every access. The PTX ISA
leaves the order of a load's reduction open: here it is the order of the buffers, rounded to nearest even after each
step to the type or to that of .acc; sums of 8-bit floats saturate. Not run on hardware.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from ...errors import InvalidOperandError, UnsupportedInstructionError
from ...isa import dtypes
from ..machine.frame import Frame
from ..numerics.reductions import combine
from ..program.decode import Decode
from ..program.handlers import Handlers, Step
from .atomics import updates
from .convert_narrow import decoded, narrow_bits

HANDLERS = Handlers()

Values = Callable[[Sequence[np.ndarray]], np.ndarray]
_NARROW = ("e4m3", "e5m2")


def members(frame: Frame, address: np.ndarray) -> list[np.ndarray]:
    """The addresses, (lanes,), that multimem addresses refer to in each of their buffers."""
    where = np.broadcast_to(address, frame.lanes).astype(np.int64)
    made: list[np.ndarray] | None = None
    for lane in frame.active_lanes.tolist():
        found = frame.machine.memory.multimem(int(where[lane]))
        if found is None:
            frame.error(
                InvalidOperandError, f"the address {int(where[lane]):#x} is not a multimem address", lane,
                expected="an address made by warploom.runtime.Multimem or a multicast object",
            )  # fmt: skip
        if made is None:
            made = [np.zeros_like(where) for _ in found.members]
        if len(made) != len(found.members):
            frame.error(
                UnsupportedInstructionError, "lanes use multimem addresses with different numbers of buffers", lane
            )
        for places, member in zip(made, found.members, strict=True):
            places[lane] = where[lane] - found.base + member
    return made or []


@HANDLERS.add("multimem.st", "multimem.st_ordered", "multimem.st_bytes", "multimem.st_bytes_ordered")
def store(d: Decode) -> Step:
    dtype, address, values = d.type("b"), d.address("a"), d.registers("b")

    def step(frame: Frame) -> None:
        held = values.read(frame)
        for where in members(frame, address.compute(frame)):
            frame.store("global", where, dtype, held)

    return step


@HANDLERS.add("multimem.red", "multimem.red_ordered")
def update(d: Decode) -> Step:
    return updates(d, members)


def load(d: Decode) -> Step:
    dtype, address, out = d.type("d"), d.address("a"), d.registers("d")
    name, lanes_of = d.modifier("type").partition("x")[0], len(out.slots)
    reduced = _reduction(d.modifier("op"), name, d.modifier("acc").removeprefix("acc::"))
    scalar = dtypes.ALL[name].numpy
    d.operation.polled_address = address.compute

    def step(frame: Frame) -> None:
        found = [frame.load("global", where, dtype, lanes_of) for where in members(frame, address.compute(frame))]
        if found:
            parts = [np.ascontiguousarray(values).view(scalar) for values in found]
            out.write(frame, np.ascontiguousarray(reduced(parts)).view(found[0].dtype))

    return step


HANDLERS.add("multimem.ld_reduce", "multimem.ld_reduce_bytes")(load)
HANDLERS.add("multimem.ld_reduce_ordered", "multimem.ld_reduce_bytes_ordered", polls=True)(load)


def _reduction(operation: str, name: str, accumulator: str) -> Values:
    """The reduction of arrays of elements of a type, one from each buffer, to an array of that type."""
    dtype = dtypes.ALL[name]
    if name in _NARROW and not accumulator:

        def narrow(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            wide = combine(operation, dtypes.f32, *(decoded(part, name) for part in (a, b)))
            return narrow_bits(wide.astype(np.float64), name, False)

        return lambda parts: reduce(narrow, parts)
    if not accumulator:
        return lambda parts: reduce(lambda a, b: combine(operation, dtype, a, b), parts)
    wide = dtypes.ALL[accumulator]

    def widened(parts: Sequence[np.ndarray]) -> np.ndarray:
        total = reduce(lambda a, b: combine(operation, wide, a, b), [part.astype(wide.numpy) for part in parts])
        if name in _NARROW:
            return narrow_bits(total.astype(np.float64), name, False)
        return total.astype(dtype.numpy)

    return widened
