"""A result on its way out through shared memory: boxes of 64 rows that TMA stores while the next one is written.

    slot = box % slots:   wait until TMA has read the slot | write | fence, barrier | one thread starts the store

Each consumer has slots, a named barrier and a storing thread of its own, so consumers do not wait for each other. The
store is asynchronous: it goes on while the consumer multiplies its next tile. `store_boxes` has the boxes; what is done
to the accumulators on the way, a `Transform`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ..isa.dtypes import f32, s32
from ..lang import ptx, smem
from ..lang.arrays import RegisterArray
from ..lang.tile import ArrayHandle
from ..lang.values import Register
from .roles import WARPGROUP
from .store_boxes import (
    BOX_ROWS,
    GROUP,
    PER_GROUP,
    SWIZZLE,
    TYPES,
    BoxWriter,
    box_columns,
    boxes_of,
    fits,
    own_thread,
)

_FIRST_BARRIER = 1


class TransformBlock(Protocol):
    """What happens to one block of 64 rows in a thread. Groups are of 8 columns, counted from the tile's first."""

    def load(self, first: int, groups: int) -> Sequence[Any]:
        """Begin to load what these groups need; one entry for each."""

    def apply(self, loaded: Any, values: RegisterArray) -> Sequence[Register]:
        """The four f32 results of a group: two columns of a row, two of the eighth row below."""


class Transform(Protocol):
    """What happens to accumulators before they are stored; `fused_end.FusedEnd`."""

    def begin(self) -> None:
        """Once, by all threads of a consumer, before its first tile."""

    def block(self, row: Register, column: Register) -> TransformBlock:
        """A block of 64 rows at (row, column), by all threads of a consumer."""

    def batch(self, groups: int, step: int) -> int:
        """How many groups, of those of a box, are loaded together: a multiple of `step`, or all of them."""

    def finish(self) -> None:
        """Once, by all threads of a consumer, after its last tile."""


class TmaStore:
    """See the module's docstring.

    Args:
        array: C, of one of `store_boxes.TYPES`, its Tile as `store_boxes.result_tile` makes it. Parts of a box outside
            of it are not written.
        consumers: how many warpgroups store.
        slots: boxes of each that may be under way.
        matrices: write 16-bit types with stmatrix, 16 columns of a warp's 16 rows at a time, instead of 32-bit stores.
        transform: what happens to the accumulators first. Then each consumer calls `begin` before its first tile.
    """

    def __init__(
        self, array: ArrayHandle, consumers: int, *, slots: int = 2, matrices: bool = True,
        transform: Transform | None = None,
    ) -> None:  # fmt: skip
        self.array, self.slots, self.transform = array, slots, transform
        if array.dtype not in TYPES:
            raise array.trace.error(
                f"{array.name} cannot be stored in boxes", expected=", ".join(map(str, TYPES)), got=array.dtype
            )
        box = (box_columns(array.dtype), BOX_ROWS)
        if (array.spec.box, array.spec.swizzle) != (box, SWIZZLE.value):
            raise array.trace.error(
                f"{array.name} is stored in boxes of {box[1]} x {box[0]}, and its tensor map has others",
                expected=f'Tile(..., box={box}, swizzle="{SWIZZLE.value}")',
                got=f"box {array.spec.box}, swizzle {array.spec.swizzle}",
                hint="store_boxes.result_tile makes such a Tile",
            )
        self.boxes = smem.wgmma_tile(
            array.dtype, box[::-1], stages=consumers * slots, swizzle=SWIZZLE.value, name="boxes"
        )
        self.writer = BoxWriter(array.dtype, matrices=matrices)
        self._totals: set[int] = set()

    def begin(self) -> None:
        """Before a consumer's first tile, where there is a transform: it loads what all tiles need."""
        if self.transform is not None:
            self.transform.begin()

    def store(self, acc: list[RegisterArray], me: int, row: Register, column: Register) -> None:
        """Store blocks of 64 rows at (row, column) of C; called by all threads of consumer `me`."""
        thread = own_thread()
        leader, barrier = thread == 0, _FIRST_BARRIER + me
        place = self.writer.place(thread)
        boxes = boxes_of(self._columns(acc), self.array.dtype)
        total, number = len(acc) * len(boxes), 0
        self._totals.add(total)
        for index, values in enumerate(acc):
            block = None if self.transform is None else self.transform.block(row + index * BOX_ROWS, column)
            for first, width in boxes:
                groups = (first // GROUP, width // GROUP)
                batch = groups[1] if self.transform is None else self.transform.batch(groups[1], self.writer.step)
                loaded = None if block is None else block.load(groups[0], batch)
                box = self.boxes[me * self.slots + number % self.slots]
                with ptx.if_(leader):
                    ptx.cp.async_.bulk.wait_group_read(self._allowed(number, total))
                ptx.bar.sync(barrier, WARPGROUP)
                self._write((box + place).register(), values, groups, block, loaded, batch)
                ptx.fence.proxy_async_shared_cta()
                ptx.bar.sync(barrier, WARPGROUP)
                with ptx.if_(leader):
                    corner = (column + first, row + index * BOX_ROWS)
                    ptx.tma.store(self.array.tma_desc((width, BOX_ROWS)), box, corner)
                    ptx.cp.async_.bulk.commit_group()
                number += 1

    def finish(self) -> None:
        """Before the CTA ends: its stores have read their shared memory."""
        if self.transform is not None:
            self.transform.finish()
        with ptx.if_(own_thread() == 0):
            ptx.cp.async_.bulk.wait_group(0)

    def _write(
        self, start: Register, values: RegisterArray, groups: tuple[int, int], block: TransformBlock | None,
        loaded: Sequence[Any] | None, batch: int,
    ) -> None:  # fmt: skip
        """The columns of a box, transformed in small steps so that few registers are needed between."""
        first, count = groups
        if block is None:
            self.writer.write(start, 0, values[first * PER_GROUP : (first + count) * PER_GROUP].elements)
            return
        for begin in range(0, count, self.writer.step):
            if begin and begin % batch == 0:
                loaded = block.load(first + begin, min(batch, count - begin))
            results: list[Register] = []
            for group in range(begin, min(begin + self.writer.step, count)):
                at = (first + group) * PER_GROUP
                assert loaded is not None
                results += block.apply(loaded[group % batch], values[at : at + PER_GROUP])
            self.writer.write(start, begin, results)

    def _columns(self, acc: list[RegisterArray]) -> int:
        """Columns of the tile."""
        array, columns = self.array, len(acc[0]) * GROUP // PER_GROUP
        if not fits(columns, array.dtype):
            raise array.trace.error(
                f"a tile of {columns} columns of {array.dtype} cannot be stored in boxes",
                expected="columns in multiples of 8, and of 16 bytes",
                got=f"{columns * array.dtype.bytes} bytes",
            )
        if array.dtype is s32 and (acc[0].dtype is f32 or self.transform is not None):
            raise array.trace.error(
                "an s32 result is stored as the tensor core gives it",
                expected="s32 accumulators, and nothing done to them",
                got=f"{acc[0].dtype} accumulators" + (", a transform" if self.transform is not None else ""),
            )
        return columns

    def _allowed(self, number: int, total: int) -> int:
        """How many stores may be under way before box `number`; the tile before may have had another number."""
        if number >= self.slots:
            return self.slots - 1
        return min(self._newer_stores(number, total, before) for before in self._totals)

    def _newer_stores(self, number: int, total: int, before: int | None = None) -> int:
        """How many stores were committed since the last one that used the slot of box `number`, of `total` in a tile.

        The numbers begin anew with each tile, so the first boxes look back at the last ones of the tile before, which
        had `before` of them: as many, if nothing is said.
        """
        if number >= self.slots:
            return self.slots - 1
        before = total if before is None else before
        last_use = max((box for box in range(before) if box % self.slots == number), default=before)
        return before - 1 - last_use + number
