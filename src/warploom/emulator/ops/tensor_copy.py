"""The tensor copies of TMA.

PTX ISA 9.7.9.27.1 (cp.async.bulk.tensor, cp.reduce.async.bulk.tensor, prefetch), 5.5.4 and 5.5.5 (im2col modes). The
map is read when the copy is issued. A copy that does not move a single box is performed as several that do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import accumulate

import numpy as np

from ...errors import ArgumentError, InvalidOperandError, MisalignedError, VerificationError
from ...isa import dtypes
from ...isa.swizzle import Swizzle
from ...isa.tensor_map import MAP_BYTES
from ...plural import counted
from ..engines import tma
from ..engines.boxes import TENSOR_ALIGNMENT, Box, SharedBox
from ..engines.bulk import check_alive, members, own_barrier, submit
from ..engines.expected_bytes import byte_count_mismatch
from ..machine import mbarrier
from ..machine import shared_address as shared
from ..machine.address import AddressOperand
from ..machine.async_operation import AsyncOperation
from ..machine.frame import Frame, Issuer
from ..machine.groups import groups_of
from ..machine.machine import Cta
from ..machine.memory import PARAM_WINDOW, SHARED_WINDOW, WINDOW_SIZE, Region
from ..machine.register_list import lane_value
from ..machine.registers import WARP
from ..machine.units import LOADS, STORES
from ..numerics.reductions import combine
from ..program.decode import Decode
from ..program.handlers import Handlers, Step

HANDLERS = Handlers()
MAP_ALIGNMENT = 64
COORDINATE_ALIGNMENT = 16
"""The start of a box in the innermost dimension must be a multiple of this many bytes. The PTX ISA does not say so; an
H200 stops at any other (docs/measured-facts.md)."""


# -- maps --------------------------------------------------------------------------------------------------------


def map_bytes(frame: Frame, space: str, address: int, lane: int, writes: bool = False) -> np.ndarray:
    """The 128 bytes of a tensor map in parameter, global or (to be rewritten) shared memory, as a view.

    A generic address below the parameters' size counts as one of theirs: texts that omit `cvta.param` also run on
    hardware, where parameters are constants with low addresses.
    """
    if address % MAP_ALIGNMENT:
        frame.error(
            MisalignedError,
            f"the tensor map is at address {address:#x}",
            lane,
            expected=f"a multiple of {MAP_ALIGNMENT}",
            hint="declare the parameter as .param .align 64 .b8 name[128]",
        )
    parameters = frame.cta.parameters
    if space == "generic" and PARAM_WINDOW <= address < PARAM_WINDOW + WINDOW_SIZE:
        address, space = address - PARAM_WINDOW, "param"
    elif space == "generic" and 0 <= address < parameters.size:
        space = "param"
    if space.startswith("param") and not writes:
        view = parameters.data[address : address + MAP_BYTES]
    elif space.startswith("shared") or (space == "generic" and SHARED_WINDOW <= address < SHARED_WINDOW + WINDOW_SIZE):
        cta, offset = shared.place(frame, space, address, lane, "the tensor map")
        shared.check_range(frame, cta, offset, MAP_BYTES, MAP_ALIGNMENT, lane, "the tensor map")
        view = cta.shared.data[offset : offset + MAP_BYTES]
    else:
        allocation = frame.machine.memory.find(address)
        start = 0 if allocation is None else address - allocation.base
        view = np.empty(0, np.uint8) if allocation is None else allocation.region.data[start : start + MAP_BYTES]
    if view.size < MAP_BYTES:
        frame.error(
            InvalidOperandError,
            f"there is no tensor map at address {address:#x}",
            lane,
            expected="128 bytes in parameter, constant or global memory",
            code="no-tensor-map",
        )
    return view


def global_place(frame: Frame, address: int) -> tuple[Region, int] | None:
    """Region and offset of a map in global memory; None for a map in a parameter or shared memory."""
    found = frame.machine.memory.find(address)
    return None if found is None else (found.region, address - found.base)


def _box(
    frame: Frame, map_address: AddressOperand, address: int, coordinates: np.ndarray, lane: int, mode: str = "tile"
) -> Box:
    """The box that a lane requests, with the map checked."""
    if map_address.space == "generic" and SHARED_WINDOW <= address < SHARED_WINDOW + WINDOW_SIZE:
        frame.error(
            InvalidOperandError,
            "a copy cannot use a tensor map in shared memory",
            lane,
            expected="a map in global or parameter memory",
        )
    raw = map_bytes(frame, map_address.space, address, lane).tobytes()
    bound = tma.check(tma.decode(raw), len(coordinates), Issuer.of(frame, lane), mode)
    box = Box(bound, tuple(int(at) for at in coordinates), global_place(frame, address))
    offset = box.in_bytes.coordinates[0] * bound.spec.in_bytes.dtype.bytes
    if offset % COORDINATE_ALIGNMENT:
        frame.error(
            MisalignedError,
            f"the copy starts at element {box.coordinates[0]} of the innermost dimension, "
            f"{counted(offset, 'byte')} into its row",
            lane,
            got=f"element {box.coordinates[0]}",
            expected=f"a multiple of {COORDINATE_ALIGNMENT} bytes,"
            f" {COORDINATE_ALIGNMENT * 8 // bound.spec.dtype.bits} elements of {bound.spec.dtype}",
            consequence="an H200 stops the kernel with CUDA_ERROR_ILLEGAL_INSTRUCTION",
            hint="start the box at an aligned element and skip the first ones in shared memory",
        )
    return box


def _coordinates(d: Decode) -> Callable[[Frame], np.ndarray]:
    """A reader of the coordinates, (rank, lanes). Raises VerificationError if their number is not the opcode's."""
    listed = d.coordinates("map")
    if len(listed) != int(d.modifier("dim")[0]):
        d.error(VerificationError, f".{d.modifier('dim')} with {counted(len(listed), 'coordinate')}")
    return listed.read


Boxes = Callable[[Frame, AddressOperand, int, int], list[Box]]
"""The boxes that one lane's copy moves, from a frame, a map's operand, its address, the lane."""


def _boxes(d: Decode) -> Boxes:
    """One box; for gathers and scatters four rows, with a map whose box is one row: column, then rows (9.7.9.27.1.2).

    For im2col modes, runs of pixels along W.
    """
    if "_im2col" in d.match.form.key:
        return _pixels(d)
    if not d.match.form.key.removesuffix("_hint").removesuffix("_multicast").endswith(("gather4", "scatter4")):
        coordinates = _coordinates(d)
        return lambda frame, where, address, lane: [_box(frame, where, address, coordinates(frame)[:, lane], lane)]
    listed = d.coordinates("map").read

    def rows(frame: Frame, where: AddressOperand, address: int, lane: int) -> list[Box]:
        at = listed(frame)[:, lane]
        box = _box(frame, where, address, at[:2], lane)
        if box.spec.box[1] != 1:
            frame.error(
                InvalidOperandError, f"a gather or scatter of rows uses a tensor map whose box is {box.spec.box}", lane,
                expected="a box of one row",
            )  # fmt: skip
        return [Box(box.bound, (int(at[0]), int(row)), box.map_place) for row in at[1:]]

    return rows


def _pixels(d: Decode) -> Boxes:
    """The boxes of a copy in an im2col mode."""
    coordinates, mode = _coordinates(d), d.modifier("mode", "im2col")
    offsets = d.registers("offsets", dtypes.u16).read if d.has("offsets") else None

    def runs(frame: Frame, where: AddressOperand, address: int, lane: int) -> list[Box]:
        box = _box(frame, where, address, coordinates(frame)[:, lane], lane, mode)
        spec, (channel, *start) = box.spec, box.coordinates
        by = tuple(int(at) for at in offsets(frame)[:, lane]) if offsets else (0,) * (spec.rank - 2)
        assert spec.pixels is not None
        try:
            if offsets is None:  # a store or a reduction
                spec.pixels.check_stores()
            spec.pixels.check(spec.dims, tuple(start), by)
            found = spec.pixels.runs(spec.dims, spec.steps, spec.box[1], tuple(start), by)
        except ArgumentError as problem:
            frame.error(
                InvalidOperandError, problem.what, lane, expected=problem.expected, got=problem.got,
                consequence=problem.consequence,
            )  # fmt: skip
        return [
            Box(tma.BoundMap(spec.row_of_pixels(count), box.bound.address), (channel, *pixel), box.map_place)
            for pixel, count in found
        ]

    return runs


# -- loads -------------------------------------------------------------------------------------------------------


@HANDLERS.add(
    "tensor.load", "tensor.load_hint", "tensor.load_multicast", "tensor.load_multicast_hint",
    "tensor.load_gather4", "tensor.load_gather4_hint", "tensor.load_gather4_multicast",
    "tensor.load_gather4_multicast_hint", "tensor.load_im2col", "tensor.load_im2col_hint",
    "tensor.load_im2col_multicast", "tensor.load_im2col_multicast_hint", "tensor.load_im2col_w",
    "tensor.load_im2col_w_hint", "tensor.load_im2col_w_multicast", "tensor.load_im2col_w_multicast_hint",
)  # fmt: skip
def load(d: Decode) -> Step:
    target, where, barrier = d.address("dst"), d.address("map"), d.address("mbar")
    boxes = _boxes(d)
    mask = d.source("mask") if d.has("mask") else -1
    of_pair = d.modifier("cta_group") == "cta_group::2"
    reaches = d.modifier("to") != "shared::cta"

    def step(frame: Frame) -> None:
        targets, maps, barriers = target.compute(frame), where.compute(frame), barrier.compute(frame)
        for lane in frame.active_lanes.tolist():
            rows = boxes(frame, where, int(maps[lane]), lane)
            cta, offset = shared.place(frame, target.space, int(targets[lane]), lane, "the destination", reaches)
            place = mbarrier.locate(frame, barrier.space, int(barriers[lane]), lane, reaches or of_pair)
            if mask < 0:
                own_barrier(frame, cta, place, lane, of_pair)
            receivers = [cta] if mask < 0 else members(frame, lane_value(frame, mask, lane), lane)
            frame.machine.counters.tma_fetch_bytes += sum(row.spec.box_bytes for row in rows)
            size = sum(row.spec.shared_bytes for row in rows)
            for receiver in receivers:
                check = partial(_too_large, receiver, place, rows)
                shared.check_range(frame, receiver, offset, size, TENSOR_ALIGNMENT, lane, "the destination", check)
                told = frame.peer(receiver.rank & ~1 | place[0].rank & 1, lane) if of_pair else receiver
                for row, begin in zip(rows, _begins(rows, offset), strict=True):
                    _issue_load(frame, lane, row, SharedBox(row.spec, receiver, begin), (told, place[1]))

    return step


def _too_large(cta: Cta, place: tuple[Cta, int], rows: list[Box]) -> str:
    """The advice for a box that does not fit at its destination."""
    barrier = mbarrier.mbarriers_of(place[0]).get(place[1])
    found = byte_count_mismatch(barrier, rows) if barrier is not None else None
    guessed = cta.machine.guessed
    whose = f"{guessed} has guessed the box: enter the one that the host encodes" if guessed else (
        "the box of the tensor map is larger than the space that the kernel has for it"
    )  # fmt: skip
    return f"{whose}; {found}" if found is not None else whose


def _begins(rows: list[Box], offset: int) -> list[int]:
    """The start of each of several consecutive boxes in shared memory."""
    return [offset + at for at in accumulate((row.spec.shared_bytes for row in rows[:-1]), initial=0)]


def _issue_load(frame: Frame, lane: int, box: Box, into: SharedBox, barrier: tuple[Cta, int]) -> None:
    """One receiver's part of a load: fetched when it is read, its bytes signalled at its barrier."""
    memory, by = frame.machine.memory, Issuer.of(frame, lane)
    description = f"TMA load of {box.describe()} into {into.name}"
    box.window(memory, by, writes=False)  # a map that exceeds its buffer fails here, at its instruction
    into.poison()
    held: list[np.ndarray] = []

    def read(part: int, parts: int) -> None:
        if part == 0:
            held.append(box.gather(memory, by))

    def write(part: int, parts: int) -> None:
        check_alive(by, into.cta, description)
        into.write(held[0], part, parts)

    frame.machine.counters.tma_load_bytes += box.spec.box_bytes
    submit(LOADS, by, description, read, write, box.spec.box_bytes, barrier, into, (box,))


@HANDLERS.add(
    "tensor.prefetch", "tensor.prefetch_hint", "tensor.prefetch_gather4", "tensor.prefetch_gather4_hint",
    "tensor.prefetch_im2col", "tensor.prefetch_im2col_hint", "tensor.prefetch_im2col_w",
    "tensor.prefetch_im2col_w_hint",
)  # fmt: skip
def prefetch(d: Decode) -> Step:
    where, boxes = d.address("map"), _boxes(d)

    def step(frame: Frame) -> None:
        maps = where.compute(frame)
        for lane in frame.active_lanes.tolist():
            boxes(frame, where, int(maps[lane]), lane)

    return step


# -- stores ------------------------------------------------------------------------------------------------------


@HANDLERS.add(
    "tensor.store", "tensor.store_hint", "tensor.reduce", "tensor.reduce_hint", "tensor.store_scatter4",
    "tensor.store_scatter4_hint", "tensor.store_im2col", "tensor.store_im2col_hint", "tensor.reduce_im2col",
    "tensor.reduce_im2col_hint",
)  # fmt: skip
def store(d: Decode) -> Step:
    where, source, boxes = d.address("map"), d.address("src"), _boxes(d)
    operation = d.modifier("op")

    def step(frame: Frame) -> None:
        maps, sources = where.compute(frame), source.compute(frame)
        for lane in frame.active_lanes.tolist():
            rows = boxes(frame, where, int(maps[lane]), lane)
            for box in rows:
                if min(box.coordinates) < 0:
                    frame.error(
                        InvalidOperandError,
                        f"a TMA store starts at {box.coordinates}",
                        lane,
                        expected="coordinates of 0 or more",
                    )
            cta, offset = shared.place(frame, source.space, int(sources[lane]), lane, "the source")
            size = sum(row.spec.shared_bytes for row in rows)
            shared.check_range(frame, cta, offset, size, TENSOR_ALIGNMENT, lane, "the source")
            _check_reduction(frame, operation, rows[0], lane)
            if rows[0].spec.swizzle == Swizzle.B128_ATOM_32B_FLIP_8B.value:
                frame.error(
                    InvalidOperandError, "TMA cannot store through a map whose swizzle flips 8-byte halves", lane,
                    expected="a swizzle without a flip: a flip is for loads",
                )  # fmt: skip
            if rows[0].spec.packing is not None and not rows[0].spec.packing.stored:
                frame.error(
                    InvalidOperandError, f"TMA cannot store through a map of {rows[0].spec.dtype}", lane,
                    expected="b4x16 or b6x16_p32",
                )  # fmt: skip
            for box, begin in zip(rows, _begins(rows, offset), strict=True):
                _issue_store(frame, lane, box, SharedBox(box.spec, cta, begin), operation)

    return step


def _check_reduction(frame: Frame, operation: str, box: Box, lane: int) -> None:
    allowed = {
        "add": "u32 s32 u64 s64 f16 bf16 f32 f64", "min": "u32 s32 u64 s64 f16 bf16", "max": "u32 s32 u64 s64 f16 bf16",
        "inc": "u32", "dec": "u32",
    }.get(operation, "b32 b64 u32 s32 u64 s64")  # fmt: skip
    if operation and box.spec.dtype.name not in allowed.split():
        frame.error(
            InvalidOperandError, f"TMA cannot {operation} elements of type {box.spec.dtype}", lane, expected=allowed
        )


def _issue_store(frame: Frame, lane: int, box: Box, origin: SharedBox, operation: str) -> None:
    memory, by = frame.machine.memory, Issuer.of(frame, lane)
    element, packing = np.dtype(f"u{box.spec.dtype.bytes}"), box.spec.packing
    spread = packing if packing is not None and packing.spread else None
    held = np.empty(box.shape if spread is None else (*box.shape[:-1], box.spec.inner_bytes), element)
    found = box.window(memory, by, writes=True)
    dtype = _as_integer(box.spec.dtype) if operation in ("and", "or", "xor") else box.spec.dtype

    def read(part: int, parts: int) -> None:
        origin.read(held, part, parts)

    def write(part: int, parts: int) -> None:
        if found is None:  # the whole box is past the tensor's end
            return
        valid, view = found
        low, high = len(view) * part // parts, len(view) * (part + 1) // parts
        new = (held if spread is None else spread.pushed_together(held))[valid][low:high]
        if operation:
            new = combine(operation, dtype, view[low:high], new).view(element)
        view[low:high] = new

    frame.machine.counters.tma_store_bytes += box.spec.box_bytes
    verb = "reduction" if operation else "store"
    issued = AsyncOperation(
        STORES, by, f"TMA {verb} of {box.describe()} from {origin.name}", read, write,
        bytes=box.spec.box_bytes, sources=(origin,), targets=(box,),
    )  # fmt: skip
    groups_of("bulk", frame.cta, frame.first_warp + lane // WARP).add(issued, 1 << lane % WARP)
    frame.machine.engine.submit(issued)


def _as_integer(dtype: dtypes.DType) -> dtypes.DType:
    return dtypes.ALL[f"b{dtype.bits}"]
