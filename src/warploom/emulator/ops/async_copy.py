"""`cp.async`: copies of 4 to 16 bytes by each thread, and their groups.

One instruction of several warps is one operation of the engine. Groups are kept per warp with the mask of lanes that
committed them, since lanes may commit separately. PTX ISA 9.7.9.25.3, 9.7.13.15.15.
"""

from __future__ import annotations

import numpy as np

from ...errors import InvalidOperandError, VerificationError
from ...plural import counted
from ..engines.boxes import CHUNK_DTYPE
from ..engines.bulk import Scattered
from ..machine import mbarrier
from ..machine.address import AddressOperand
from ..machine.async_operation import AsyncOperation
from ..machine.frame import Frame, Issuer
from ..machine.groups import groups_of
from ..machine.machine import FULL, Cta, mask_of
from ..machine.registers import WARP
from ..machine.units import CP_ASYNC
from ..machine.wait import Wait
from ..program.decode import Decode
from ..program.handlers import Handlers, Step
from .group_waits import commit, wait_for_groups

HANDLERS = Handlers()
ELEMENTS: dict[int, np.dtype] = {4: np.dtype(np.uint32), 8: np.dtype(np.uint64), 16: CHUNK_DTYPE}
POISON: dict[int, np.generic] = {size: np.frombuffer(b"\xff" * size, dtype)[0] for size, dtype in ELEMENTS.items()}


@HANDLERS.add(
    "cp_async.copy",
    "cp_async.copy_ignore",
    "cp_async.copy_hint",
    "cp_async.copy_size_hint",
    "cp_async.copy_ignore_hint",
)
def copy(d: Decode) -> Step:
    target, source, size = d.address("dst"), d.address("src"), d.constant("size")
    sizes = (16,) if d.modifier("cache") == "cg" else (4, 8, 16)
    if size not in sizes:
        d.error(
            VerificationError,
            f"cp.async.{d.modifier('cache')} copies {counted(size, 'byte')}",
            expected=" or ".join(str(allowed) for allowed in sizes),
        )
    partial = d.source("src_size") if d.has("src_size") else -1
    ignore = d.predicate("ignore") if d.has("ignore") else None
    dtype = ELEMENTS[size]

    def step(frame: Frame) -> None:
        lanes = frame.active_lanes
        places = frame.places(target.space, target.compute(frame), dtype)
        targets = [(picked, region.as_type(dtype), index) for picked, region, index in places]
        taken = np.full(frame.lanes, size, np.int64)
        if partial >= 0:
            taken[...] = frame.values[partial]
            too_much = lanes[taken[lanes] > size]
            if too_much.size:
                frame.error(
                    InvalidOperandError,
                    f"cp.async reads {int(taken[too_much[0]])} of {counted(size, 'byte')}",
                    int(too_much[0]),
                    expected=f"src-size of at most {size}",
                )
        if ignore is not None:
            taken[np.broadcast_to(ignore(frame), (frame.lanes,))] = 0
        sources = _sources(frame, source, taken, size)
        data = np.zeros(frame.lanes, dtype)
        raw = data.view(np.uint8).reshape(frame.lanes, size)
        for _, array, index in targets:
            array[index] = POISON[size]

        def read(part: int, parts: int) -> None:
            for width, picked, array, index in sources:
                chosen = slice(len(picked) * part // parts, len(picked) * (part + 1) // parts)
                if width == size:
                    data[picked[chosen]] = array[index[chosen]]
                else:
                    raw[picked[chosen], :width] = array[index[chosen][:, None] + np.arange(width)]

        def write(part: int, parts: int) -> None:
            for picked, array, index in targets:
                chosen = slice(len(picked) * part // parts, len(picked) * (part + 1) // parts)
                array[index[chosen]] = data[picked[chosen]]

        origins = None
        if frame.machine.events.issued:
            origins = np.where(taken == size, source.compute(frame), np.uint64(0))
        operation = AsyncOperation(
            CP_ASYNC, Issuer.of(frame),
            f"cp.async of {size} bytes by {counted(lanes.size, 'thread')}", read, write, bytes=size * int(lanes.size),
            targets=tuple(
                Scattered(r, picked, at, size, None if origins is None else origins[picked]) for picked, r, at in places
            ),
        )  # fmt: skip
        frame.machine.counters.cp_async_bytes += int(taken[lanes].sum())  # zero fill is not read
        for at in range(frame.warps):
            mine = FULL if frame.mask is True else mask_of(frame.active[at * WARP : (at + 1) * WARP])
            if mine:
                groups_of("cp_async", frame.cta, frame.first_warp + at).add(operation, mine)
        frame.machine.engine.submit(operation)

    return step


def _sources(
    frame: Frame, source: AddressOperand, taken: np.ndarray, size: int
) -> list[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
    """The source of the bytes: (bytes, lanes, array, index) for each byte count and buffer.

    Threads that copy no byte do not access their source address, so it may be anything.
    """
    addresses = source.compute(frame)
    found = []
    whole, lanes = frame.mask, frame.active
    for width in np.unique(taken[lanes]):
        if width == 0:
            continue
        same = lanes & (taken == width)
        frame.mask = True if same.all() else same
        try:
            crooked = same & (addresses % size != 0)
            if crooked.any():
                frame.places("global", addresses, ELEMENTS[size])  # raises, naming the thread
            dtype = ELEMENTS[size] if width == size else np.dtype(np.uint8)
            count = 1 if width == size else int(width)
            for picked, region, index in frame.places("global", addresses, dtype, count, writes=False):
                found.append((int(width), picked, region.as_type(dtype), index))
        finally:
            frame.mask = whole
    return found


# -- groups ------------------------------------------------------------------------------------------------------


@HANDLERS.add("cp_async.commit_group")
def commit_group(d: Decode) -> Step:
    return lambda frame: commit(frame, "cp_async")


@HANDLERS.add("cp_async.wait_group")
def wait_group(d: Decode) -> Step:
    newest = d.constant("n")
    if newest < 0:
        d.error(VerificationError, f"cp.async.wait_group {newest}", expected="0 or more groups")
    return lambda frame: wait_for_groups(frame, "cp_async", newest)


@HANDLERS.add("cp_async.wait_all")
def wait_all(d: Decode) -> Step:
    def step(frame: Frame) -> Wait | None:
        commit(frame, "cp_async")
        return wait_for_groups(frame, "cp_async", 0)

    return step


@HANDLERS.add("cp_async.mbarrier_arrive")
def mbarrier_arrive(d: Decode) -> Step:
    """Arrive on a barrier once all earlier copies of the thread are complete."""
    address, expected = d.address("a"), d.has("noinc")

    def step(frame: Frame) -> None:
        places = address.compute(frame)
        lanes = frame.active_lanes
        for where in np.unique(places[lanes]):
            same = frame.active & (places == where)
            first, times = int(np.flatnonzero(same)[0]), int(np.count_nonzero(same))
            cta, offset = mbarrier.locate(frame, address.space, int(where), first)
            by = Issuer.of(frame, first if times == 1 else None)
            barrier = mbarrier.find(by, cta, offset)
            if not expected:
                barrier.add_pending(times, by)

            def signal(by: Issuer = by, cta: Cta = cta, offset: int = offset, times: int = times) -> None:
                barrier = mbarrier.find(by, cta, offset)
                if times <= barrier.pending:
                    barrier.arrive(times, by)
                else:  # the phase ends among these arrivals
                    for _ in range(times):
                        barrier.arrive(1, by)

            waited_for = tuple(groups_of("cp_async", frame.cta, frame.first_warp).in_flight(mask_of(same)))
            frame.machine.engine.submit(
                AsyncOperation(
                    CP_ASYNC,
                    by,
                    f"arrival of {counted(times, 'thread')} on {barrier.name} after their cp.async",
                    signal=signal,
                    after=waited_for,
                )  # fmt: skip
            )

    return step
