"""Plain bulk copies, their reductions, their groups, and asynchronous stores.

PTX ISA 9.7.9.25.4 (cp.async.bulk, cp.reduce.async.bulk), 9.7.9.27.2 (groups), 9.7.9.12 (st.async), 9.7.13.7
(red.async). Destinations hold poison from issue to completion. Asynchronous stores to global memory take effect at
once: only an observed release shows when they do.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...errors import InvalidOperandError, VerificationError
from ...isa import dtypes
from ...plural import counted
from ..engines.boxes import POISON
from ..engines.bulk import (
    MULTIPLE,
    Bytes,
    check_alive,
    check_size,
    cut,
    global_bytes,
    members,
    own_barrier,
    shared_bytes,
    submit,
)
from ..machine import mbarrier
from ..machine import shared_address as shared
from ..machine.async_operation import AsyncOperation
from ..machine.frame import Frame, Issuer
from ..machine.groups import groups_of
from ..machine.machine import Cta
from ..machine.register_list import lane_value
from ..machine.registers import WARP
from ..machine.units import LOADS, REMOTE, STORES
from ..numerics.reductions import combine
from ..program.decode import Decode
from ..program.handlers import Handlers, Step
from .atomics import in_place
from .group_waits import commit, wait_for_groups
from .memory import plain_store

HANDLERS = Handlers()
_ALL = (1 << MULTIPLE) - 1
HANDLERS.add("async_store.global")(plain_store)
HANDLERS.add("async_store.global_reduce")(in_place)


Parts = tuple[Callable[[int, int], None], Callable[[int, int], None]]


def _moves(source: Bytes, target: Bytes, operation: str = "", dtype: dtypes.DType | None = None) -> Parts:
    """The read and the write of a copy, or of a reduction; the source may be overwritten once it has been read."""
    held = np.empty(source.size, np.uint8)

    def read(part: int, parts: int) -> None:
        low, high = cut(source.size, part, parts)
        held[low:high] = source.part(part, parts)

    def write(part: int, parts: int) -> None:
        low, high = cut(source.size, part, parts)
        into, new = target.part(part, parts), held[low:high]
        if into.size:
            into[...] = new if dtype is None else combine(operation, dtype, into, new).view(np.uint8)

    return read, write


def _poison(target: Bytes) -> None:
    target.part(0, 1)[...] = POISON


# -- copies into shared memory -----------------------------------------------------------------------------------


@HANDLERS.add("bulk.load", "bulk.load_hint", "bulk.load_multicast", "bulk.load_multicast_hint")
def load(d: Decode) -> Step:
    target, source, size = d.address("dst"), d.address("src"), d.source("size")
    barrier = d.address("mbar")
    mask = d.source("mask") if d.has("mask") else -1
    reaches = d.modifier("to") != "shared::cta"

    def step(frame: Frame) -> None:
        targets, sources, barriers = target.compute(frame), source.compute(frame), barrier.compute(frame)
        for lane in frame.active_lanes.tolist():
            count = lane_value(frame, size, lane)
            check_size(frame, count, lane)
            origin = global_bytes(frame, int(sources[lane]), count, lane, writes=False)
            cta, offset = shared.place(frame, target.space, int(targets[lane]), lane, "the destination", reaches)
            at = mbarrier.locate(frame, barrier.space, int(barriers[lane]), lane, reaches)
            if mask < 0:
                own_barrier(frame, cta, at, lane)
            receivers = [cta] if mask < 0 else members(frame, lane_value(frame, mask, lane), lane)
            by = Issuer.of(frame, lane)
            frame.machine.counters.tma_fetch_bytes += count
            for receiver in receivers:
                shared.check_range(frame, receiver, offset, count, MULTIPLE, lane, "the destination")
                into = shared_bytes(receiver, offset, count)
                description = f"bulk copy of {counted(count, 'byte')} into {shared.name(receiver, offset)}"
                _poison(into)
                read, write = _moves(origin, into)
                frame.machine.counters.tma_load_bytes += count
                submit(LOADS, by, description, read, write, count, (receiver, at[1]), into, (origin,))

    return step


@HANDLERS.add("bulk.send", "bulk.reduce_send")
def send(d: Decode) -> Step:
    """From the CTA's own shared memory to another CTA's."""
    target, source, size, barrier = d.address("dst"), d.address("src"), d.source("size"), d.address("mbar")
    operation = d.modifier("op")
    dtype = dtypes.ALL[d.modifier("type")] if operation else None

    def step(frame: Frame) -> None:
        targets, sources, barriers = target.compute(frame), source.compute(frame), barrier.compute(frame)
        for lane in frame.active_lanes.tolist():
            count = lane_value(frame, size, lane)
            check_size(frame, count, lane)
            mine, start = shared.place(frame, "shared", int(sources[lane]), lane, "the source")
            shared.check_range(frame, mine, start, count, MULTIPLE, lane, "the source")
            cta, offset = shared.place(frame, target.space, int(targets[lane]), lane, "the destination", remote=True)
            shared.check_range(frame, cta, offset, count, MULTIPLE, lane, "the destination")
            if cta is mine:
                frame.error(
                    InvalidOperandError,
                    "a copy between shared memories has its destination in its own CTA",
                    lane,
                    expected="a destination in another CTA of the cluster",
                )
            at = mbarrier.locate(frame, barrier.space, int(barriers[lane]), lane, remote=True)
            own_barrier(frame, cta, at, lane)
            origin, into = shared_bytes(mine, start, count), shared_bytes(cta, offset, count)
            by = Issuer.of(frame, lane)
            description = f"bulk copy of {counted(count, 'byte')} into {shared.name(cta, offset)}"
            read, write = _moves(origin, into, operation, dtype)
            if dtype is None:
                _poison(into)
            submit(REMOTE, by, description, read, _guarded(write, by, cta, description), count, at, into, (origin,))

    return step


def _guarded(write: Callable[[int, int], None], by: Issuer, cta: Cta, description: str) -> Callable[[int, int], None]:
    """A write that fails if its CTA has exited."""

    def checked(part: int, parts: int) -> None:
        check_alive(by, cta, description)
        write(part, parts)

    return checked


# -- copies into global memory -----------------------------------------------------------------------------------


def _bits(source: Bytes, target: Bytes) -> Parts:
    """Like `_moves`, for less than 16 bytes, at once."""
    held = np.empty(source.size, np.uint8)

    def read(part: int, parts: int) -> None:
        if part == 0:
            held[:] = source.region.data[source.start : source.start + source.size]

    def write(part: int, parts: int) -> None:
        if part == 0:
            target.region.data[target.start : target.start + target.size] = held

    return read, write


def _pieces(size: int, mask: int) -> list[tuple[int, int]]:
    """First byte and length of what a mask leaves of each 16 bytes; for a full mask, everything at once."""
    if mask == _ALL:
        return [(0, size)]
    edges = [at for at in range(MULTIPLE + 1) if (mask << 1 >> at & 1) != (mask >> at & 1)]
    runs = list(zip(edges[::2], edges[1::2], strict=True))
    return [(start + low, high - low) for start in range(0, size, MULTIPLE) for low, high in runs]


@HANDLERS.add("bulk.store", "bulk.store_hint", "bulk.store_masked", "bulk.store_masked_hint")
def store(d: Decode) -> Step:
    return _store(d, "", None)


@HANDLERS.add("bulk.reduce", "bulk.reduce_hint", "bulk.reduce_noftz", "bulk.reduce_noftz_hint")
def reduce(d: Decode) -> Step:
    return _store(d, d.modifier("op"), dtypes.ALL[d.modifier("type")])


def _store(d: Decode, operation: str, dtype: dtypes.DType | None) -> Step:
    target, source, size = d.address("dst"), d.address("src"), d.source("size")
    chosen = d.source("bytes") if d.has("bytes") else -1

    def step(frame: Frame) -> None:
        targets, sources = target.compute(frame), source.compute(frame)
        for lane in frame.active_lanes.tolist():
            count = lane_value(frame, size, lane)
            check_size(frame, count, lane)
            into = global_bytes(frame, int(targets[lane]), count, lane, writes=True)
            cta, start = shared.place(frame, source.space, int(sources[lane]), lane, "the source")
            shared.check_range(frame, cta, start, count, MULTIPLE, lane, "the source")
            for at, length in _pieces(count, lane_value(frame, chosen, lane) if chosen >= 0 else _ALL):
                origin, piece = shared_bytes(cta, start + at, length), Bytes(into.region, into.start + at, length)
                moves = _bits(origin, piece) if length % MULTIPLE else _moves(origin, piece, operation, dtype)
                _issue_store(frame, lane, origin, piece, moves, "reduction" if dtype else "store")

    return step


def _issue_store(frame: Frame, lane: int, origin: Bytes, into: Bytes, moves: Parts, verb: str) -> None:
    frame.machine.counters.tma_store_bytes += origin.size
    description = (
        f"bulk {verb} of {origin.size} bytes from {shared.name(frame.cta, origin.start)} to {into.region.name}"
    )
    issued = AsyncOperation(
        STORES, Issuer.of(frame, lane), description, *moves, bytes=origin.size, sources=(origin,), targets=(into,)
    )
    groups_of("bulk", frame.cta, frame.first_warp + lane // WARP).add(issued, 1 << lane % WARP)
    frame.machine.engine.submit(issued)


@HANDLERS.add("bulk.prefetch", "bulk.prefetch_hint")
def prefetch(d: Decode) -> Step:
    source, size = d.address("src"), d.source("size")

    def step(frame: Frame) -> None:
        sources = source.compute(frame)
        for lane in frame.active_lanes.tolist():
            count = lane_value(frame, size, lane)
            check_size(frame, count, lane)
            global_bytes(frame, int(sources[lane]), count, lane, writes=False)

    return step


# -- groups ------------------------------------------------------------------------------------------------------


@HANDLERS.add("bulk.commit_group")
def commit_group(d: Decode) -> Step:
    return lambda frame: commit(frame, "bulk")


@HANDLERS.add("bulk.wait_group")
def wait_group(d: Decode) -> Step:
    newest, reads_only = d.constant("n"), bool(d.modifiers.get("read"))
    if newest < 0:
        d.error(VerificationError, f"cp.async.bulk.wait_group {newest}", expected="0 or more groups")
    return lambda frame: wait_for_groups(frame, "bulk", newest, reads_only)


# -- asynchronous stores -----------------------------------------------------------------------------------------


@HANDLERS.add("async_store.store", "async_store.reduce")
def async_store(d: Decode) -> Step:
    """Store a few registers into another CTA's shared memory, and signal the bytes at a barrier there."""
    target, barrier = d.address("a"), d.address("mbar")
    dtype = dtypes.ALL[d.modifier("type")]
    values = d.registers("b", dtype)
    operation = d.modifier("op")

    def step(frame: Frame) -> None:
        targets, barriers = target.compute(frame), barrier.compute(frame)
        data = values.read(frame)
        size = dtype.bytes * len(values)
        if frame.cta.cluster.size == 1:
            frame.error(InvalidOperandError, "an asynchronous store needs a cluster of more than one CTA")
        for lane in frame.active_lanes.tolist():
            cta, offset = shared.place(frame, target.space, int(targets[lane]), lane, "the destination", remote=True)
            shared.check_range(frame, cta, offset, size, size, lane, "the destination")
            at = mbarrier.locate(frame, barrier.space, int(barriers[lane]), lane, remote=True)
            own_barrier(frame, cta, at, lane)
            if operation and cta is frame.cta:
                frame.error(
                    InvalidOperandError, "red.async has its destination in its own CTA", lane, expected="another CTA"
                )
            new = np.ascontiguousarray(data[:, lane]).view(np.uint8)
            into = shared_bytes(cta, offset, size)
            by = Issuer.of(frame, lane)
            description = f"asynchronous store of {counted(size, 'byte')} into {shared.name(cta, offset)}"

            def write(
                part: int, parts: int, into: Bytes = into, new: np.ndarray = new, by: Issuer = by, cta: Cta = cta,
                description: str = description,
            ) -> None:  # fmt: skip
                if part:
                    return
                check_alive(by, cta, description)
                view = into.region.data[into.start : into.start + into.size]
                view[...] = combine(operation, dtype, view, new).view(np.uint8) if operation else new

            if not operation:
                into.region.data[offset : offset + size] = POISON
            submit(REMOTE, by, description, None, write, size, at, into)

    return step


@HANDLERS.add("async_store.fill")
def fill(d: Decode) -> Step:
    """st.bulk: zeros, at once (it has no completion of its own)."""
    if d.constant("value"):
        d.error(VerificationError, "st.bulk stores zeros", expected=0, got=d.constant("value"))
    target, size = d.address("a"), d.source("size")

    def step(frame: Frame) -> None:
        targets = target.compute(frame)
        for lane in frame.active_lanes.tolist():
            count = lane_value(frame, size, lane)
            cta, offset = shared.place(frame, target.space, int(targets[lane]), lane, "the destination")
            shared.check_range(frame, cta, offset, count, 8, lane, "the destination")
            cta.shared.data[offset : offset + count] = 0
        frame.machine.progress()

    return step
