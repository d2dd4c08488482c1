"""ldmatrix, stmatrix, movmatrix: 8 x 8 matrices of 16-bit elements between shared memory and a warp's registers.

PTX ISA 9.7.14.5.15 to .17. Lanes 8j to 8j+7 give the addresses of the eight 16-byte rows of matrix j; which lane
holds which element is `isa.fragments.matrix_b16`. `matrix_bytes` has the forms with 8-bit elements.
"""

from __future__ import annotations

import numpy as np

from ...isa import dtypes
from ...isa.fragments import WARP, matrix_b16
from ...isa.instructions.matrix import matrices
from ..machine.frame import Frame
from ..program.decode import Decode
from ..program.handlers import Handlers, Step

HANDLERS = Handlers()


def row_lanes(count: int, warps: int) -> np.ndarray:
    """The lanes that give the addresses of the rows of `count` 8 x 8 matrices, (lanes,) bool."""
    return np.tile(np.arange(WARP) < 8 * count, warps)


@HANDLERS.add("ldmatrix.b16")
def ldmatrix(d: Decode) -> Step:
    count = matrices(d.modifiers)
    address, out = d.address("p"), d.registers("r", dtypes.b32)
    order = matrix_b16(d.has("trans")).order[0]

    def step(frame: Frame) -> None:
        warps, mask = frame.warps, frame.mask
        where = address.compute(frame)
        if count < 4:
            frame.mask = row_lanes(count, warps)
        try:
            rows = frame.load(address.space, where, dtypes.b64, 2)
        finally:
            frame.mask = mask
        elements = np.ascontiguousarray(rows.T).view(np.uint16).reshape(warps, 4, 64)[:, :count]
        registers = np.take(elements, order, axis=2).view(np.uint32)[..., 0]
        out.write(frame, registers.transpose(1, 0, 2).reshape(count, -1))

    return step


@HANDLERS.add("stmatrix.b16")
def stmatrix(d: Decode) -> Step:
    count = matrices(d.modifiers)
    address, source = d.address("p"), d.registers("r", dtypes.b32)
    owner = matrix_b16(d.has("trans")).owner

    def step(frame: Frame) -> None:
        warps, mask = frame.warps, frame.mask
        elements = source.read(frame).view(np.uint16).reshape(count, warps, 64)
        rows = np.zeros((warps, 4, 8, 8), np.uint16)
        rows[:, :count] = np.take(elements, owner, axis=2).transpose(1, 0, 2, 3)
        where = address.compute(frame)
        if count < 4:
            frame.mask = row_lanes(count, warps)
        try:
            frame.store(address.space, where, dtypes.b64, np.ascontiguousarray(rows.view(np.uint64).reshape(-1, 2).T))
        finally:
            frame.mask = mask

    return step


@HANDLERS.add("movmatrix.b16")
def movmatrix(d: Decode) -> Step:
    a, out = d.source("a", dtypes.b32), d.destination("d", dtypes.b32)
    moved = matrix_b16().owner.ravel()[matrix_b16(True).order[0]]

    def step(frame: Frame) -> None:
        elements = np.ascontiguousarray(np.broadcast_to(frame.values[a], (frame.lanes,))).view(np.uint16)
        registers = np.take(elements.reshape(frame.warps, 64), moved, axis=1).view(np.uint32)
        frame.write(out, registers.reshape(-1))

    return step
