"""ldmatrix and stmatrix of 8-bit elements, and of 6- and 4-bit ones that are expanded into bytes (sm_100 and up).

PTX ISA 9.7.14.5.15, .16. Lane r gives the address of row r, matrix after matrix; a row is 16 bytes, of which packed
elements fill the first 12 or 8. They are expanded into the low bits of their bytes; CUTLASS shifts 4-bit ones before
it multiplies them. A stored matrix is transposed: the rows in memory are its columns. `isa.fragments` has the element
of each lane. Not run on hardware.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...errors import MisalignedError
from ...isa import dtypes
from ...isa.fragments import Fragment, matrix_b8, matrix_b8_stored, matrix_b8_transposed
from ...isa.instructions.matrix import matrices
from ...plural import counted
from ..machine.address import AddressOperand
from ..machine.frame import Frame
from ..program.decode import Decode
from ..program.handlers import Handlers, Step
from .matrix import row_lanes

HANDLERS = Handlers()
_ROW = 16

Spread = Callable[[np.ndarray], np.ndarray]


def _spread(source: str) -> tuple[int, Spread]:
    """32-bit words read per row in memory, and its bytes, (…, 4 * words), as 16 elements."""
    if not source:
        return 4, lambda rows: rows
    bits = int(source[1])

    def packed(rows: np.ndarray) -> np.ndarray:
        stream = np.unpackbits(rows, axis=-1, bitorder="little")
        fields = np.zeros((*rows.shape[:-1], 16, 8), np.uint8)
        fields[..., :bits] = stream[..., : 16 * bits].reshape(*rows.shape[:-1], 16, bits)
        return np.packbits(fields, axis=-1, bitorder="little")[..., 0]

    return 2 * bits // 4, packed


def _rows(frame: Frame, address: AddressOperand, count: int, words: int) -> np.ndarray:
    """The first words of each group of 8 rows: (warps, rows, 4 * words) bytes."""
    where, mask = address.compute(frame), frame.mask
    frame.mask = row_lanes(count, frame.warps)
    try:
        _check_alignment(frame, where)
        found = frame.load(address.space, where, dtypes.b32, words)
    finally:
        frame.mask = mask
    raw = np.ascontiguousarray(found.T).view(np.uint8)
    return raw.reshape(frame.warps, -1, 4 * words)[:, : 8 * count]


def _check_alignment(frame: Frame, where: np.ndarray) -> None:
    for lane in frame.active_lanes.tolist():
        if int(where[lane]) % _ROW:
            frame.error(
                MisalignedError, f"the row at {int(where[lane]):#x} is misaligned", lane,
                expected=f"a multiple of {_ROW}", got=f"{counted(int(where[lane]) % _ROW, 'byte')} past one",
            )  # fmt: skip


@HANDLERS.add("ldmatrix.b8", "ldmatrix.b8_packed", "ldmatrix.m8n16_packed")
def load(d: Decode) -> Step:
    address, out, count = d.address("p"), d.registers("r", dtypes.b32), matrices(d.modifiers)
    of: Fragment = matrix_b8() if d.match.form.key == "ldmatrix.m8n16_packed" else matrix_b8_transposed()
    words, spread = _spread(d.modifier("source"))

    def step(frame: Frame) -> None:
        elements = spread(_rows(frame, address, count * of.shape[0] // 8, words))
        elements = elements.reshape(frame.warps, count, *of.shape)
        held = np.ascontiguousarray(elements[:, :, of.rows, of.columns]).view(np.uint32)  # warp, matrix, lane, register
        out.write(frame, held.transpose(1, 3, 0, 2).reshape(count * of.registers, -1))

    return step


@HANDLERS.add("stmatrix.b8")
def store(d: Decode) -> Step:
    address, source, count = d.address("p"), d.registers("r", dtypes.b32), matrices(d.modifiers)
    of = matrix_b8_stored()

    def step(frame: Frame) -> None:
        held = np.ascontiguousarray(source.read(frame)).view(np.uint8).reshape(count, frame.warps, -1, 4)
        rows = np.zeros((frame.warps, 4, 8, _ROW), np.uint8)
        rows[:, :count, of.columns, of.rows] = held.transpose(1, 0, 2, 3)
        where, mask = address.compute(frame), frame.mask
        frame.mask = row_lanes(count, frame.warps)
        try:
            frame.store(address.space, where, dtypes.b64, np.ascontiguousarray(rows.view(np.uint64).reshape(-1, 2).T))
        finally:
            frame.mask = mask

    return step
