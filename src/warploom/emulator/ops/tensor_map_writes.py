"""The instructions that write tensor maps.

PTX ISA 9.7.9.28 (tensormap.replace), 9.7.13.16 (tensormap.cp_fenceproxy).
"""

from __future__ import annotations

import numpy as np

from ...errors import ArgumentError, InvalidOperandError, VerificationError
from ...isa.instructions.bulk_copy import LATER_MODES, MODES
from ...isa.tensor_map import MAP_BYTES
from ..engines import tma
from ..machine import shared_address as shared
from ..machine.frame import Frame
from ..machine.memory import SHARED_WINDOW, WINDOW_SIZE
from ..machine.places import Lanes
from ..machine.register_list import lane_value
from ..program.decode import Decode
from ..program.handlers import Handlers, Step
from .tensor_copy import global_place, map_bytes

HANDLERS = Handlers()
FIELDS = 64
"""Bytes of a map from its start that hold its fields: CuTe DSL copies no more to shared memory."""
ELEMENT = 16


def _tell_written(frame: Frame, address: int, lane: int) -> None:
    """Report to observers that a map in global memory was written."""
    place = global_place(frame, address)
    if place is not None:
        region, start = place
        for listener in frame.machine.events.accessed:
            listener(frame, "changes", Lanes(region, "global", np.array([start]), MAP_BYTES, 1, np.array([lane])), None)


def _tell_shared(frame: Frame, how: str, space: str, address: int, lanes: np.ndarray) -> None:
    """Report to observers that lanes read or write the fields of a map in shared memory."""
    if space.startswith("shared") or (space == "generic" and SHARED_WINDOW <= address < SHARED_WINDOW + WINDOW_SIZE):
        cta, offset = shared.place(frame, space, address, int(lanes[0]), "the tensor map")
        place = Lanes(
            cta.shared, "shared", np.full(lanes.size, offset // ELEMENT), ELEMENT, FIELDS // ELEMENT, lanes
        )  # fmt: skip
        for listener in frame.machine.events.accessed:
            listener(frame, how, place, None)


@HANDLERS.add(
    "tensormap.replace_address",
    "tensormap.replace_rank",
    "tensormap.replace_dimension",
    "tensormap.replace_stride",
    *(f"tensormap.replace_{mode}" for mode in MODES),
    *(f"tensormap.replace_{mode}_later" for mode in LATER_MODES),
    "tensormap.replace_atomicity",
)
def replace(d: Decode) -> Step:
    address = d.address("a")
    fixed = {
        "address": "global_address", "rank": "rank", "stride": "global_stride", "atomicity": "swizzle_atomicity",
    }  # fmt: skip
    name = d.match.form.key.removeprefix("tensormap.replace_").removesuffix("_later")
    field = d.modifier("field") if name == "dimension" else fixed.get(name, name)
    index = d.constant("index") if d.has("index") else 0
    value = -1 if field in MODES or name == "atomicity" else d.source("value")
    code = d.constant("value") if value < 0 else 0

    def step(frame: Frame) -> None:
        places = address.compute(frame)
        for lane in frame.active_lanes.tolist():
            view = map_bytes(frame, address.space, int(places[lane]), lane, writes=True)
            new = code if value < 0 else lane_value(frame, value, lane)
            try:
                replaced = tma.replace_field(view.tobytes(), field, index, new)
            except ArgumentError as problem:
                frame.error(InvalidOperandError, problem.what, lane, expected=problem.expected)
            if replaced is None:
                frame.error(
                    InvalidOperandError,
                    f"tensormap.replace of {field}[{index}] with {new}",
                    lane,
                    expected="a tensor map at the address, and a value its field can hold",
                )
            _tell_shared(frame, "writes", address.space, int(places[lane]), np.array([lane]))
            view[...] = np.frombuffer(replaced, np.uint8)
            _tell_written(frame, int(places[lane]), lane)
        frame.machine.progress()

    return step


@HANDLERS.add("tensormap.cp_fenceproxy")
def copy_map(d: Decode) -> Step:
    """A map from shared to global memory by the whole warp, with the release fence of the tensormap proxy."""
    if d.constant("size") != MAP_BYTES:
        d.error(VerificationError, "tensormap.cp_fenceproxy copies one map", expected=f"{MAP_BYTES} bytes")
    target, source = d.address("dst"), d.address("src")

    def step(frame: Frame) -> None:
        lane = int(frame.active_lanes[0])
        at = int(source.compute(frame)[lane])
        origin = map_bytes(frame, source.space, at, lane)
        _tell_shared(frame, "reads", source.space, at, frame.active_lanes)
        into = map_bytes(frame, target.space, int(target.compute(frame)[lane]), lane, writes=True)
        into[...] = origin
        _tell_written(frame, int(target.compute(frame)[lane]), lane)
        for listener in frame.machine.events.fenced:
            listener(frame, None)
        frame.machine.progress()

    return step
