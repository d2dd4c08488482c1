"""atom and red: read, combine, write, one lane after another if their addresses are equal.

PTX ISA 9.7.13.5 and 9.7.13.6. Lanes with distinct addresses are processed at once; lanes with equal addresses go in
lane order, in rounds. Each element of a vector or packed operand is a separate atomic operation. A lane that leaves
memory unchanged is not progress: a warp that spins on a lock sleeps until another thread writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from ...isa import dtypes
from ...isa.dtypes import DType
from ..machine.frame import Frame
from ..machine.memory import SHARED_WINDOW, WINDOW_SIZE
from ..machine.places import Lanes
from ..numerics.reductions import INTEGER_OPERATIONS, combine
from ..numerics.rounding import flush
from ..program.decode import Decode
from ..program.handlers import Handlers, Step
from .memory import elements_of

HANDLERS = Handlers()

Combine: TypeAlias = "Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]"
"""New memory contents from the old ones, operand b and, for .cas, operand c; (n,) each."""

_ORDERS = ("", "_space_first", "_scope_first", "_operation_first", "_operation_first_generic")
_KINDS = (*(f"scalar{order}" for order in _ORDERS), "scalar_policy", "vector", "vector_type_first", "vector_policy")

_CANONICAL_NAN = {"f32": 0x7FFFFFFF, "f16": 0x7FFF, "bf16": 0x7FFF}
_HALF_OF = {"f16x2": dtypes.f16, "bf16x2": dtypes.bf16}


def add_float(dtype: DType) -> Combine:
    """Addition rounded to nearest even; a NaN result is the canonical one where PTX has one."""
    nan = _CANONICAL_NAN.get(dtype.name)

    def add(old: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        total = np.asarray(old + b, dtype.numpy)
        if nan is not None:
            bad = np.isnan(total)
            if bad.any():
                raw = total.view(f"u{dtype.bytes}").copy()
                raw[bad] = nan
                total = raw.view(dtype.numpy)
        return total

    return add


def add_flushed(old: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """.add.f32 in global memory, where subnormal inputs and results become zeros (9.7.13.5)."""
    return flush(add_float(dtypes.f32)(flush(old), flush(b), c))


def combination(operation: str, dtype: DType) -> Combine:
    """How an operation combines elements of a type, in a state space without flushing."""
    if dtype.is_float and operation == "add":
        return add_float(dtype)
    if operation == "exch":
        return lambda old, b, c: b
    if operation == "cas":
        return lambda old, b, c: np.where(old == b, c, old)
    return lambda old, b, c: combine(operation, dtype, old, b)


def rounds(index: np.ndarray) -> list[np.ndarray] | None:
    """Positions in `index`, split so that no round has an index twice and equal ones keep their order.

    None if one round suffices.
    """
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    new = np.ones(ordered.size, np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    if new.all():
        return None
    starts = np.maximum.accumulate(np.where(new, np.arange(ordered.size), 0))
    turn = np.arange(ordered.size) - starts
    return [order[turn == number] for number in range(int(np.max(turn)) + 1)]


def _same_bytes(a: np.ndarray, b: np.ndarray) -> bool:
    return np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()


def _split(values: np.ndarray, dtype: DType) -> np.ndarray:
    """(n, lanes) packed pairs as (2n, lanes) halves, low half first."""
    count, lanes = values.shape
    halves = np.ascontiguousarray(values).view(dtype.numpy).reshape(count, lanes, 2)
    return halves.transpose(0, 2, 1).reshape(2 * count, lanes)


def _join(values: np.ndarray) -> np.ndarray:
    """(2n, lanes) halves as (n, lanes) packed pairs."""
    count, lanes = values.shape[0] // 2, values.shape[1]
    pairs = values.reshape(count, 2, lanes).transpose(0, 2, 1)
    return np.ascontiguousarray(pairs).view(np.uint32).reshape(count, lanes)


Reach: TypeAlias = "Callable[[Frame, np.ndarray], list[np.ndarray]]"
"""The addresses, (lanes,), at which an operation is performed, one after the other, for those that it names."""


def updates(d: Decode, reach: Reach) -> Step:
    """Read, combine with operand b and write, and return the old value."""
    packed = d.type("b")
    dtype = _HALF_OF.get(packed.name, packed)
    halves = dtype is not packed
    operation = "cas" if d.match.form.key.startswith("atom.cas") else d.modifier("op")
    address = d.address("a")
    d.operation.polled_address = address.compute
    space = address.space
    b_registers = d.registers("b")
    c_registers = d.registers("c") if operation == "cas" else None
    result = d.registers("d") if "d" in d.operands else None
    count = len(elements_of(d.operands["b"])) * (2 if halves else 1)
    usual = combination(operation, dtype)
    flushes = dtype is dtypes.f32 and operation == "add"
    # The order in which integers are reduced has no effect.
    unordered = INTEGER_OPERATIONS.get(operation) if result is None and not dtype.is_float else None
    gather = unordered if isinstance(unordered, np.ufunc) else None

    def step(frame: Frame) -> None:
        b = b_registers.read(frame)
        c = c_registers.read(frame) if c_registers is not None else b
        if halves:
            b = _split(b, dtype)
        old = np.zeros((count, frame.lanes), dtype.numpy)
        changed = False
        listeners, links = frame.machine.events.accessed, frame.machine.links
        if links is not None:
            links.before(frame.cta.device.index, frame.operation.order)
        for where in reach(frame, address.compute(frame)):
            for lanes, region, first in frame.places(space, where, dtype, count):
                array = region.as_type(dtype.numpy)
                reached = where[lanes].astype(np.int64)
                if listeners:
                    name = "shared" if _is_shared(space, reached) else "global"
                    place = Lanes(region, name, first, dtype.bytes, count, lanes)
                    for listener in listeners:
                        listener(frame, "updates", place, None)
                frame.count(space, "store", dtype.bytes * count, lanes, reached)
                act = usual
                if flushes and not _is_shared(space, reached):
                    act = add_flushed
                turns = rounds(first)
                for part in range(count):
                    if gather is not None:
                        gather.at(array, first + part, b[part, lanes])
                        changed = True
                        continue
                    for turn in [slice(None)] if turns is None else turns:
                        at = first[turn] + part
                        found = array[at]
                        new = act(found, b[part, lanes[turn]], c[part if operation == "cas" else 0, lanes[turn]])
                        array[at] = new
                        old[part, lanes[turn]] = found
                        changed |= not _same_bytes(found, new)
        if links is not None:
            links.after(frame.cta.device.index, frame.operation.order)
        if changed:
            frame.machine.progress_count += 1
        if result is not None:
            result.write(frame, _join(old) if halves else old)

    return step


def in_place(d: Decode) -> Step:
    """Like `updates`, at the address itself."""
    return updates(d, lambda frame, where: [where])


def _is_shared(space: str, address: np.ndarray) -> bool:
    """True if an access is to shared memory; all the lanes' addresses are in one region."""
    if space == "generic":
        return bool(address.size) and SHARED_WINDOW <= int(address[0]) < SHARED_WINDOW + WINDOW_SIZE
    return space.startswith("shared")


HANDLERS.add(*(f"red.{kind}" for kind in _KINDS))(in_place)
HANDLERS.add(*(f"atom.{kind}" for kind in _KINDS), *(f"atom.cas{order}" for order in _ORDERS), polls=True)(in_place)
