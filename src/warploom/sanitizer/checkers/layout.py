"""Checks that an MMA reads a tile in the layout in which TMA or cp.async wrote it.

Every 16-byte chunk that a tensor copy writes is tagged with its position in the box, (row, chunk of the row). If an
operand reads the tile in the same layout, the box row of a chunk depends only on the operand's row and its position in
the row only on the operand's column, each in equal steps. Anything else is a permuted tile: a different swizzle,
swapped leading and stride offsets, the wrong major.

Chunks that cp.async wrote are tagged with the global address they come from. Rows may come from anywhere (a gather),
but the step between the chunks of a row must be the same in all rows, and pieces of one row are not several rows.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ...emulator.engines.boxes import SharedBox
from ...emulator.engines.bulk import Scattered
from ...emulator.engines.matrix_operands import OperandPlace
from ...emulator.machine.events import Observer
from ...isa.swizzle import CHUNK_BYTES as CHUNK
from ...isa.swizzle import Swizzle
from ..happens_before.access import InFlight, flights_of
from ..report.findings import at
from ..shadow.shadow import Shadow

if TYPE_CHECKING:
    from ...emulator.machine.async_operation import AsyncOperation
    from ...emulator.machine.frame import Frame
    from ..context import Context

WIDEST = Swizzle.B128.span
"""Bytes of a row in the widest swizzle (PTX ISA 5.5.7)."""
ATOM_ROWS = Swizzle.B128.repeat // WIDEST
"""Rows whose distance the descriptor does not give: those of a swizzle's atom (PTX ISA 9.7.16.5)."""
COPIED = "source"
"""Name of the source of tcgen05.cp: scale factors, in any order that their atoms have."""
OTHER_BOX = -1
"""Stands for the tag if an operand continues in a box other than its first."""
TAG_BITS = 16
"""Tags are (number of the box << TAG_BITS) + chunk; a box has at most 256 x 16 chunks in two dimensions."""


class Layouts(Observer):
    """See the module's docstring. Runs after the checker that owns the shadows, which drops overwritten entries."""

    rules = ("layout-mismatch",)

    def __init__(self, context: Context) -> None:
        self.context = context
        self._boxes: list[tuple[int, int, InFlight]] = []
        """Of each box its chunks in a row, its rows up to the next step of its third dimension, and its copy."""
        self._chunks: dict[int, tuple[object, np.ndarray]] = {}
        """The chunks of each operand, by its chunk map and base."""
        self._right: dict[tuple[int, int, int, int], bytes] = {}
        """Tags of an operand that were found correct, minus the first of them, by the width and rows of its box and the
        position of its first chunk there."""
        self._in_boxes: dict[tuple[object, ...], tuple[object, ...]] = {}
        """Operands found correct, by the ids of their chunk map and of the boxes' forms with their offsets, and what
        has these ids."""
        self._asked = any(
            form.converged == "warpgroup" or form.key.startswith("tcgen05.mma")
            for form in (one.bound.match.form for one in context.machine.code.operations if one.bound is not None)
        )

    def issued(self, operation: AsyncOperation) -> None:
        if not self._asked:
            return
        for flight in flights_of(operation):
            shadows = self.context.state(flight.cta).shadows
            for source in operation.sources:
                if isinstance(source, OperandPlace) and source.name != COPIED:
                    self._check(shadows[source.region], source, operation.issuer.frame)
            for target in operation.targets:
                shadow = shadows.get(getattr(target, "region", None))  # type: ignore[arg-type]
                if shadow is not None and isinstance(target, SharedBox):
                    self._tag(shadow, target, flight)
                elif shadow is not None and isinstance(target, Scattered):
                    self._note_origins(shadow, target, flight)

    def _tag(self, shadow: Shadow, target: SharedBox, flight: InFlight) -> None:
        """Record which chunk of which box is where."""
        places = target.places()
        if places.size >= 1 << TAG_BITS:
            return
        shadow.tagged = True
        counts = target.spec.counts
        self._boxes.append((places.shape[1], counts[1] if len(counts) > 1 else len(places), flight))
        base = (len(self._boxes) & 0x7FFF) << TAG_BITS
        whole = shadow.boxes.held.get(target.offset >> shadow.shift) if target.contiguous else None
        if whole is not None:
            whole.tag, whole.target = base, target
            return
        shadow.tags[places] = base + np.arange(places.size, dtype=np.int32).reshape(places.shape)

    def _check(self, shadow: Shadow, place: OperandPlace, frame: Frame) -> None:
        if not shadow.tagged:
            return
        whole = shadow.boxes.around(place.map)
        targets = [box.target for box in whole if box.target is not None]
        at_place = (id(place.map), *[(id(target.spec), target.offset) for target in targets])
        if targets and at_place in self._in_boxes:
            return
        for box in whole:
            shadow.settle_tags(box)
        if self._is_right(shadow, place, frame) and len(targets) == len(whole) > 0:
            self._in_boxes[at_place] = (place.map, *[target.spec for target in targets])

    def _is_right(self, shadow: Shadow, place: OperandPlace, frame: Frame) -> bool:
        """True if an operand is in the order of its boxes; False also if nothing says which boxes."""
        key = id(place.map)
        if key not in self._chunks:  # (rows, chunks along the contiguous dimension)
            self._chunks[key] = (place.map, place.map.chunks if place.operand.major == "K" else place.map.chunks.T)
        chunks = self._chunks[key][1]
        tags = shadow.tags[chunks]
        first = int(tags.flat[0])
        if first == 0:
            if shadow.origins is not None:
                self._check_origins(shadow, place, chunks, frame)
            return False
        number, start = first >> TAG_BITS, first & ((1 << TAG_BITS) - 1)
        width, depth, flight = self._boxes[number - 1]
        steps = (tags - first).tobytes()
        if self._right.get((key, width, depth, start)) == steps:
            return True
        pattern = tags - (number << TAG_BITS)
        pattern[pattern >> TAG_BITS != 0] = OTHER_BOX
        inside = self._of_first_box(pattern)
        rows, columns = inside // width, inside % width
        right = inside.size == 0 or _in_order(rows, columns, width, depth)
        if right:
            self._right[key, width, depth, start] = steps
        else:
            self._mismatch(place, flight, rows, columns, width, frame)
        return right

    # -- cp.async --------------------------------------------------------------------------------------------------

    @staticmethod
    def _note_origins(shadow: Shadow, target: Scattered, flight: InFlight) -> None:
        """Record where in global memory the chunks of a cp.async come from."""
        if target.size != CHUNK or target.origins is None:
            return
        if shadow.origins is None:
            shadow.origins = np.zeros(shadow.tags.size, np.int64)
        shadow.tagged = True
        mine = target.lanes >> 5 == flight.warp - flight.operation.issuer.frame.first_warp
        shadow.origins[target.index[mine]] = target.origins[mine].astype(np.int64)

    def _check_origins(self, shadow: Shadow, place: OperandPlace, chunks: np.ndarray, frame: Frame) -> None:
        assert shadow.origins is not None
        origins = shadow.origins[chunks]
        found = _uneven_columns(origins)
        severity = None
        if found is None:
            found, severity = _uneven_rows(origins), "warning"
        if found is None:
            return
        (row, column), words = found
        access = self.context.state(frame.cta).accesses[int(shadow.last[int(chunks[row, column]) * shadow.per_chunk])]
        codes = (frame.operation, access.code)
        if not self.context.findings.seen("layout-mismatch", codes, severity):
            self.context.findings.add(
                "layout-mismatch",
                f"operand {place.name} of {at(frame.operation)} reads a tile that {at(access.code)} wrote in a "
                f"different layout: {words}",
                codes,
                frame.cta,
                frame.first_warp,
                severity,
            )

    # -- boxes -----------------------------------------------------------------------------------------------------

    @staticmethod
    def _of_first_box(pattern: np.ndarray) -> np.ndarray:
        """The part of an operand, in whole rows and columns, that is in the box of its first chunk."""
        same = pattern != OTHER_BOX
        if same.all():
            return pattern
        rows, columns = same[:, 0], same[0]
        part = same[np.ix_(rows, columns)]
        return pattern[np.ix_(rows, columns)] if part.all() else pattern[:0]

    def _mismatch(
        self,
        place: OperandPlace,
        flight: InFlight,
        rows: np.ndarray,
        columns: np.ndarray,
        width: int,
        frame: Frame,
    ) -> None:
        copy = flight.code
        codes = (frame.operation, copy)
        if self.context.findings.seen("layout-mismatch", codes):
            return
        wanted_row, wanted_column = _expected(rows, columns, width)
        wrong = (rows != wanted_row) | (columns != wanted_column)
        r, c = (int(index[0]) for index in np.nonzero(wrong))
        self.context.findings.add(
            "layout-mismatch",
            f"operand {place.name} of {at(frame.operation)} reads a tile that {at(copy)} wrote in a different layout: "
            f"its chunk {c} of row {r} should be chunk {int(wanted_column[r, c])} of row {int(wanted_row[r, c])} "
            f"of the box, "
            f"but is chunk {int(columns[r, c])} of row {int(rows[r, c])}",
            codes,
            frame.cta,
            frame.first_warp,
        )


def _expected(rows: np.ndarray, columns: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Where chunks should be if the first steps continued: box row by operand row, box chunk by operand column.

    If a row of the box is one chunk (`width` 1: the layout without swizzle), the operand's columns are rows, too.
    """
    r, c = np.indices(rows.shape)[0], np.indices(rows.shape)[1]
    step_r = int(rows[1, 0] - rows[0, 0]) if rows.shape[0] > 1 else 0
    step_c = int(columns[0, 1] - columns[0, 0]) if rows.shape[1] > 1 else 0
    across = int(rows[0, 1] - rows[0, 0]) if width == 1 and rows.shape[1] > 1 else 0
    return int(rows[0, 0]) + r * step_r + c * across, int(columns[0, 0]) + c * step_c


def _affine(rows: np.ndarray, columns: np.ndarray, width: int) -> bool:
    wanted_row, wanted_column = _expected(rows, columns, width)
    return bool((rows == wanted_row).all() and (columns == wanted_column).all())


def _in_order(rows: np.ndarray, columns: np.ndarray, width: int, depth: int) -> bool:
    """True if chunks of a box are where an operand has them. depth: the rows of one step of the third dimension, which
    may go on to the right of the second: ThunderKittens loads tiles of 128 columns as two halves so."""
    beside = rows % depth, columns + rows // depth * width
    return _affine(rows, columns, width) or _affine(*beside, width) or _sliced(rows, columns, width)


def _sliced(rows: np.ndarray, columns: np.ndarray, width: int) -> bool:
    """True if each atom of an operand is the next slice of K of the same rows of the box: the stride offset is a slice.
    CuTe DSL multiplies 32 x 8 x 128 so in one instruction, with four slices of B as 32 columns of the product."""
    groups, chunks = len(rows) // ATOM_ROWS, rows.shape[1]
    first = rows[:ATOM_ROWS], columns[:ATOM_ROWS]
    moved = np.repeat(np.arange(groups) * chunks, ATOM_ROWS)[:, None]
    return (
        groups > 1
        and groups * ATOM_ROWS == len(rows)
        and np.array_equal(rows, np.tile(first[0], (groups, 1)))
        and np.array_equal(columns, np.tile(first[1], (groups, 1)) + moved)
        and _affine(*first, width)
    )


Where: TypeAlias = "tuple[tuple[int, int], str] | None"
"""An operand's (row, chunk) and what is wrong there."""


def _uneven_columns(origins: np.ndarray) -> Where:
    """The first row whose step differs from that of the first row. `origins`: (rows, chunks), 0 if unknown."""
    known = (origins[:, 1:] != 0) & (origins[:, :-1] != 0)
    if not known.any():
        return None
    steps = origins[:, 1:] - origins[:, :-1]
    first = int(np.flatnonzero(known.any(axis=1))[0])
    wrong = known & known[first] & (steps != steps[first])
    if not wrong.any():
        return None
    row, column = (int(index[0]) for index in np.nonzero(wrong))
    words = (
        f"from chunk {column} of row {row} to the next the global address advances by {int(steps[row, column])} "
        f"bytes, but in row {first} by {int(steps[first, column])}"
    )
    return (row, column), words


def _uneven_rows(origins: np.ndarray) -> Where:
    """Detects rows that are pieces of wider rows: as many rows as fill the width of a swizzle are closer together than
    that width, and then the step changes. More close rows than that are a gather, for example of an image's pixels."""
    known = np.flatnonzero(origins[:, 0])
    steps = np.diff(origins[known, 0])
    near = (steps != 0) & (np.abs(steps) < WIDEST)
    if not near.any() or (steps == steps[0]).all():
        return None
    pieces = WIDEST // int(np.abs(steps[near]).min())
    if max(len(list(run)) for is_near, run in groupby(near.tolist()) if is_near) >= pieces:
        return None
    row = int(known[np.flatnonzero(near)[0]])
    words = f"rows {row} and {row + 1} are {int(steps[near][0])} bytes apart in global memory, but others are not"
    return (row, 0), words
