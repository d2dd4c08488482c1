"""A result on its way out through shared memory: boxes of 64 rows that TMA stores while the next one is written.

    slot = box % slots:   wait until TMA has read the slot | write | fence, barrier | one thread starts the store

Each consumer has slots, a named barrier and a storing thread of its own, so consumers do not wait for each other. The
store is asynchronous: it goes on while the consumer multiplies its next tile. `smem_tile` has the boxes; what is done
to the accumulators on the way, a `Transform`. Where that needs boxes of other arrays (`beside`), they come into the
slots first, and a full barrier takes the place of the wait for a free slot:

    box comes: `slots` of them ahead | wait for it, read, write | fence, barrier | one thread starts the store, waits
    until it has read the slot, and lets the next box come
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ...isa.dtypes import f32, s32
from ...lang import ptx, smem
from ...lang.arrays import RegisterArray
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from ..tile.roles import WARPGROUP
from ..tile.sizes import fits
from .operand_load import Beside
from .smem_tile import (
    BOX_ROWS,
    GROUP,
    PER_GROUP,
    SWIZZLE,
    TYPES,
    BoxWriter,
    box_columns,
    boxes_of,
    own_thread,
)

_FIRST_BARRIER = 1


class TransformBlock(Protocol):
    """What happens to one block of 64 rows in a thread. Groups are of 8 columns, counted from the tile's first."""

    def load(self, first: int, groups: int) -> Sequence[Any]:
        """Begin to load what these groups need; one entry for each."""

    def apply(
        self, loaded: Any, values: RegisterArray, beside: Sequence[Sequence[Register]] = ()
    ) -> Sequence[Register]:
        """The four f32 results of a group: two columns of a row, two of the eighth row below.

        `beside`: the same four elements of each array that is loaded beside the result.
        """


class Transform(Protocol):
    """What happens to accumulators before they are stored; `apply.FusedEnd`.

    Attributes:
        beside: arrays of the result's shape and type of which it needs the elements.
    """

    beside: Sequence[ArrayHandle]

    def begin(self) -> None:
        """Once, by all threads of a consumer, before its first tile."""

    def block(self, row: Register, column: Register) -> TransformBlock:
        """A block of 64 rows at (row, column), by all threads of a consumer."""

    def batch(self, groups: int, step: int) -> int:
        """How many groups, of those of a box, are loaded together: a multiple of `step`, or all of them."""

    def first_row(self, array: ArrayHandle, row: Register) -> Register:
        """Where the rows of an array beside the result's `row` begin: there, or behind its last one, where it is not
        read: TMA then writes zeros."""

    def finish(self) -> None:
        """Once, by all threads of a consumer, after its last tile."""


class TmaStore:
    """See the module's docstring.

    Args:
        array: C, of one of `smem_tile.TYPES`, its Tile as `smem_tile.result_tile` makes it. Parts of a box outside
            of it are not written, but where its rows are no whole 16-byte pieces (`Tile`'s overhang).
        consumers: how many warpgroups store.
        slots: boxes of each that may be under way.
        matrices: write 16-bit types with stmatrix, 16 columns of a warp's 16 rows at a time, instead of 32-bit stores.
        transform: what happens to the accumulators first. Then each consumer calls `begin` before its first tile. Where
            it has arrays `beside`, thread 0 initialises barriers here, so the CTA must meet before the first store.
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
                hint="smem_tile.result_tile makes such a Tile",
            )
        self.boxes = smem.wgmma_tile(
            array.dtype, box[::-1], stages=consumers * slots, swizzle=SWIZZLE.value, name="boxes"
        )
        self.writer = BoxWriter(array.dtype, matrices=matrices)
        self.beside: Beside | None = None
        if transform is not None and transform.beside:
            self.beside = Beside(transform.beside, self.boxes, slots, transform.first_row)
        self._totals: set[int] = set()

    def begin(self) -> None:
        """Before a consumer's first tile, where there is a transform: it loads what all tiles need."""
        if self.transform is not None:
            self.transform.begin()
        if self.beside is not None:
            self.beside.begin()

    def prefetch(self, acc: list[RegisterArray], me: int, row: Register, column: Register) -> None:
        """Let the first boxes beside a result come, some time before its `store(..., ahead=True)`, with its arguments.

        Called by all threads of consumer `me`; it stores nothing in between.
        """
        if self.beside is None:
            return
        boxes = self._boxes(acc)
        with ptx.if_(own_thread() == 0):
            ptx.cp.async_.bulk.wait_group_read(0)
            for number in range(min(self.slots, len(boxes))):
                self._come(boxes, number, me, row, column)

    def store(self, acc: list[RegisterArray], me: int, row: Register, column: Register, *, ahead: bool = False) -> None:
        """Store blocks of 64 rows at (row, column) of C; called by all threads of consumer `me`.

        `ahead`: `prefetch` was called for it.
        """
        if not ahead:
            self.prefetch(acc, me, row, column)
        thread = own_thread()
        leader, barrier = thread == 0, _FIRST_BARRIER + me
        place = self.writer.place(thread)
        boxes = self._boxes(acc)
        total = len(boxes)
        self._totals.add(total)
        block: TransformBlock | None = None
        for number, (index, first, width) in enumerate(boxes):
            if self.transform is not None and first == 0:
                block = self.transform.block(row + index * BOX_ROWS, column)
            groups = (first // GROUP, width // GROUP)
            batch = groups[1] if self.transform is None else self.transform.batch(groups[1], self.writer.step)
            loaded = None if block is None else block.load(groups[0], batch)
            slot = me * self.slots + number % self.slots
            box = self.boxes[slot]
            if self.beside is None:
                with ptx.if_(leader):
                    ptx.cp.async_.bulk.wait_group_read(self._allowed(number, total))
                ptx.bar.sync(barrier, WARPGROUP)
            else:
                self.beside.wait(slot)
            start = (box + place).register()
            others = [] if self.beside is None else self.beside.starts(slot, start, place)
            self._write(start, acc[index], groups, block, loaded, batch, others)
            ptx.fence.proxy_async_shared_cta()
            ptx.bar.sync(barrier, WARPGROUP)
            with ptx.if_(leader):
                corner = (column + first, row + index * BOX_ROWS)
                ptx.tma.store(self.array.tma_desc((width, BOX_ROWS)), box, corner)
                ptx.cp.async_.bulk.commit_group()
                if self.beside is not None and number + self.slots < total:
                    ptx.cp.async_.bulk.wait_group_read(0)
                    self._come(boxes, number + self.slots, me, row, column)

    def _come(self, boxes: list[tuple[int, int, int]], number: int, me: int, row: Register, column: Register) -> None:
        """By the leader: let the boxes beside box `number` come."""
        assert self.beside is not None
        index, first, width = boxes[number]
        self.beside.load(me * self.slots + number % self.slots, (column + first, row + index * BOX_ROWS), width)

    def _boxes(self, acc: list[RegisterArray]) -> list[tuple[int, int, int]]:
        """The boxes of a tile in their order: block of 64 rows, first column, width."""
        columns = self._columns(acc)
        return [(index, *box) for index in range(len(acc)) for box in boxes_of(columns, self.array.dtype)]

    def finish(self) -> None:
        """Before the CTA ends: its stores have read their shared memory."""
        if self.transform is not None:
            self.transform.finish()
        with ptx.if_(own_thread() == 0):
            ptx.cp.async_.bulk.wait_group(0)

    def _write(
        self, start: Register, values: RegisterArray, groups: tuple[int, int], block: TransformBlock | None,
        loaded: Sequence[Any] | None, batch: int, others: Sequence[Register],
    ) -> None:  # fmt: skip
        """The columns of a box, transformed in small steps so that few registers are needed between."""
        first, count = groups
        if block is None:
            self.writer.write(start, 0, values[first * PER_GROUP : (first + count) * PER_GROUP].elements)
            return
        words: list[list[Any]] = []
        for begin in range(0, count, self.writer.step):
            if begin % batch == 0:
                some = min(batch, count - begin)
                loaded = block.load(first + begin, some) if begin else loaded
                words = [self.writer.read(other, begin, some) for other in others]
            results: list[Register] = []
            for group in range(begin, min(begin + self.writer.step, count)):
                at, here = (first + group) * PER_GROUP, group % batch
                assert loaded is not None
                beside = [
                    [*self.writer.unpacked(read[2 * here]), *self.writer.unpacked(read[2 * here + 1])]
                    for read in words
                ]  # fmt: skip
                results += block.apply(loaded[here], values[at : at + PER_GROUP], beside)
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
