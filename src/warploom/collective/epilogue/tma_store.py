"""A result stored through shared memory: boxes of 64 rows that TMA stores while the next box is written.

    stage = box % epi_stages:   wait until TMA has read the stage | write | fence, barrier | one thread starts the store

Each consumer has its own stages, named barrier and storing thread, so consumers do not wait for each other. The store
is asynchronous: it overlaps the next tile's main loop. An `Epilogue` transforms the accumulators on the way. If it
needs boxes of other arrays (`operand_load`), they are loaded into the stages first, and a full barrier replaces the
wait for a free stage:

    load of `epi_stages` boxes | wait for one, read, write | fence, barrier | one thread starts the store, waits until
    it has read the stage, and loads the next box
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ...isa.dtypes import DType, f32, s32
from ...lang import ptx, smem
from ...lang.arrays import RegisterArray
from ...lang.pointers import TensorMap
from ...lang.predicate import Predicate
from ...lang.smem import SharedAddress
from ...lang.tile import Tile
from ...lang.trace import Trace
from ...lang.values import Register
from ..mma.fragment import ACC_REGS, thread_of_warpgroup
from ..pipeline.cache_policy import read_once
from ..tile.roles import WARPGROUP
from ..tile.sizes import ACC_ATOM_N, fits
from .apply import Epilogue, EpilogueBlock, Loaded
from .arguments import BOX_ROWS, BOX_SWIZZLE, box_columns
from .operand_load import OperandLoad
from .smem_tile import TYPES, BoxWriter, boxes_of

FIRST_BARRIER = 1
"""The named barrier of the first consumer; those of the others follow."""


@dataclass(frozen=True)
class Box:
    """A box of a consumer's tile.

    Attributes:
        number, total: index among the tile's boxes, and their number.
        block: index of the tile's block of 64 rows.
        column, width: its columns in the tile.
        stage: the stage that it is written to.
    """

    number: int
    total: int
    block: int
    column: int
    width: int
    stage: int

    def corner(self, row: Register, column: Register) -> tuple[Register, Register]:
        """(column, row) of the box in D, for a tile at (row, column)."""
        return column + self.column, row + self.block * BOX_ROWS


class Target(Protocol):
    """The destination of a store: an array, or one of several that is chosen per tile."""

    trace: Trace
    name: str
    spec: Tile
    dtype: DType

    def tma_desc(self, box: tuple[int, ...] | None = None) -> TensorMap:
        """Its tensor map."""


class TmaStore:
    """A store by TMA; see the module's docstring.

    Args:
        array: D, of one of `smem_tile.TYPES`, with a Tile as `arguments.result_tile` makes it. Parts of a box outside
            it are not written, unless the length of its rows is not a multiple of 16 bytes (`Tile`'s pads_to_16b).
        consumers: warpgroups that store.
        epi_stages: boxes per consumer that may be in flight.
        matrices: write 16-bit types with stmatrix, 16 columns of a warp's 16 rows at a time, instead of 32-bit stores.
        epilogue: the operations on the accumulators. Each consumer then calls `begin` before its first tile. If the
            epilogue has operands, thread 0 initialises barriers here, and the CTA must synchronise before the first
            store.
        evict_first: tell L2 to evict the result before other lines.

    Raises TraceError for a type that cannot be stored in boxes, or a Tile with another box.
    """

    def __init__(
        self, array: Target, consumers: int, *, epi_stages: int = 2, matrices: bool = True,
        epilogue: Epilogue | None = None, evict_first: bool = False,
    ) -> None:  # fmt: skip
        self.array, self.epi_stages, self.epilogue, self.evict_first = array, epi_stages, epilogue, evict_first
        if array.dtype not in TYPES:
            raise array.trace.error(
                f"{array.name} cannot be stored in boxes", expected=", ".join(map(str, TYPES)), got=array.dtype
            )
        box = (box_columns(array.dtype), BOX_ROWS)
        self._extents = tuple(array.spec.box or ())
        if (tuple(extent for extent in self._extents if extent > 1), array.spec.swizzle) != (box, BOX_SWIZZLE):
            raise array.trace.error(
                f"{array.name} is stored in boxes of {box[1]} x {box[0]}, and its tensor map has others",
                expected=f'Tile(..., box={box}, swizzle="{BOX_SWIZZLE}")',
                got=f"box {array.spec.box}, swizzle {array.spec.swizzle}",
                hint="epilogue.arguments.result_tile makes such a Tile",
            )
        self.boxes = smem.tile(array.dtype, box[::-1], stages=consumers * epi_stages, swizzle=BOX_SWIZZLE, name="boxes")
        self.writer = BoxWriter(array.dtype, matrices=matrices)
        self.operands: OperandLoad | None = None
        if epilogue is not None and epilogue.operands:
            self.operands = OperandLoad(epilogue.operands, self.boxes, epi_stages, epilogue.first_row)
        self._totals: set[int] = set()

    def begin(self) -> None:
        """Load the values that the epilogues of all tiles need, before a consumer's first tile."""
        if self.epilogue is not None:
            self.epilogue.begin()
        if self.operands is not None:
            self.operands.begin()

    def prefetch(self, acc: list[RegisterArray], me: int, row: Register, column: Register) -> None:
        """Start loading the operands of a result's first boxes, some time before its `store(..., ahead=True)`.

        Called by all threads of consumer `me`, with the arguments of `store`; the consumer stores nothing in between.
        """
        if self.operands is None:
            return
        boxes = self._boxes(acc, me)
        with ptx.if_(thread_of_warpgroup() == 0):
            ptx.cp.async_.bulk.wait_group_read(0)
            for box in boxes[: self.epi_stages]:
                self._load(box, row, column)

    def store(
        self, acc: list[RegisterArray], me: int, row: Register, column: Register, *, ahead: bool = False,
        at: Callable[[Register, Register], Sequence[Register | int]] | None = None,
    ) -> None:  # fmt: skip
        """Store blocks of 64 rows at (row, column) of D; called by all threads of consumer `me`.

        Args:
            ahead: `prefetch` was called for this store.
            at: for a D that does not have two dimensions: at(row, column) returns the coordinates of an element,
                innermost first. Its box is 1 in all dimensions but those of rows and columns.
        """
        if not ahead:
            self.prefetch(acc, me, row, column)
        thread = thread_of_warpgroup()
        leader, barrier = thread == 0, FIRST_BARRIER + me
        offset = self.writer.offset(thread)
        boxes = self._boxes(acc, me)
        self._totals.add(len(boxes))
        block: EpilogueBlock | None = None
        for box in boxes:
            if self.epilogue is not None and box.column == 0:
                block = self.epilogue.block(row + box.block * BOX_ROWS, column)
            slot = self._fill(box, acc, block, offset, lambda box=box: self._claim(box, leader, barrier))  # type: ignore[misc]
            ptx.fence.proxy_async_shared_cta()
            ptx.bar.sync(barrier, WARPGROUP)
            with ptx.if_(leader):
                corner: Sequence[Register | int] = box.corner(row, column)
                if at is not None:
                    corner = at(corner[1], corner[0])  # type: ignore[arg-type]
                policy = read_once() if self.evict_first else None
                ptx.tma.store(self.array.tma_desc((box.width, *self._extents[1:])), slot, corner, cache_hint=policy)
                ptx.cp.async_.bulk.commit_group()
                following = box.number + self.epi_stages
                if self.operands is not None and following < box.total:
                    ptx.cp.async_.bulk.wait_group_read(0)
                    self._load(boxes[following], row, column)

    def finish(self) -> None:
        """Wait until the stores are complete, before the CTA exits."""
        if self.epilogue is not None:
            self.epilogue.finish()
        with ptx.if_(thread_of_warpgroup() == 0):
            ptx.cp.async_.bulk.wait_group(0)

    # -- boxes -----------------------------------------------------------------------------------------------------

    def _boxes(self, acc: list[RegisterArray], me: int) -> list[Box]:
        """The boxes of a tile in order."""
        columns = self._columns(acc)
        parts = [(index, *box) for index in range(len(acc)) for box in boxes_of(columns, self.array.dtype)]
        return [
            Box(number, len(parts), *part, me * self.epi_stages + number % self.epi_stages)
            for number, part in enumerate(parts)
        ]

    def _fill(
        self, box: Box, acc: list[RegisterArray], block: EpilogueBlock | None, offset: Register,
        claim: Callable[[], None],
    ) -> SharedAddress:  # fmt: skip
        """Write a box to its stage after `claim`, which comes after the loads of its first values."""
        first, atoms = box.column // ACC_ATOM_N, box.width // ACC_ATOM_N
        batch = atoms if self.epilogue is None else self.epilogue.batch(atoms, self.writer.step)
        loaded = None if block is None else block.load(first, batch)
        claim()
        slot = self.boxes[box.stage]
        start = (slot + offset).register()
        values = acc[box.block][first * ACC_REGS : (first + atoms) * ACC_REGS]
        if block is None or loaded is None:
            self.writer.write(start, 0, values.elements)
        else:
            others = [] if self.operands is None else self.operands.starts(box.stage, start, offset)
            self._write(start, values, first, block, loaded, others)
        return slot

    def _claim(self, box: Box, leader: Predicate, barrier: int) -> None:
        """Wait until the box's stage may be written: its operands have arrived, or TMA has read the previous box."""
        if self.operands is not None:
            self.operands.wait(box.stage)
            return
        with ptx.if_(leader):
            ptx.cp.async_.bulk.wait_group_read(self._allowed(box.number, box.total))
        ptx.bar.sync(barrier, WARPGROUP)

    def _load(self, box: Box, row: Register, column: Register) -> None:
        """Start loading the operands of a box. Called by the leader."""
        assert self.operands is not None
        self.operands.load(box.stage, box.corner(row, column), box.width)

    def _write(
        self, start: Register, values: RegisterArray, first: int, block: EpilogueBlock, loaded: Sequence[Loaded],
        others: Sequence[Register],
    ) -> None:  # fmt: skip
        """Write the columns of a box through the epilogue, in small steps so that few registers are live between them.

        first: the tile's atom at which the box begins; `loaded`: the operands of its first batch.
        """
        batch, atoms = len(loaded), len(values) // ACC_REGS
        words: list[list[Any]] = []
        for begin in range(0, atoms, self.writer.step):
            if begin % batch == 0:
                some = min(batch, atoms - begin)
                loaded = block.load(first + begin, some) if begin else loaded
                words = [self.writer.read(other, begin, some) for other in others]
            results: list[Register] = []
            for atom in range(begin, min(begin + self.writer.step, atoms)):
                here = atom % batch
                operands = [
                    [*self.writer.unpacked(read[2 * here]), *self.writer.unpacked(read[2 * here + 1])]
                    for read in words
                ]  # fmt: skip
                results += block.apply(loaded[here], values[atom * ACC_REGS : (atom + 1) * ACC_REGS], operands)
            self.writer.write(start, begin, results)

    def _columns(self, acc: list[RegisterArray]) -> int:
        """Columns of the tile."""
        array, columns = self.array, len(acc[0]) * ACC_ATOM_N // ACC_REGS
        if not fits(columns, array.dtype):
            raise array.trace.error(
                f"a tile of {columns} columns of {array.dtype} cannot be stored in boxes",
                expected="columns in multiples of 8, and of 16 bytes",
                got=f"{columns * array.dtype.bytes} bytes",
            )
        if array.dtype is s32 and (acc[0].dtype is f32 or self.epilogue is not None):
            raise array.trace.error(
                "an s32 result is stored as the tensor core gives it",
                expected="s32 accumulators, and no epilogue",
                got=f"{acc[0].dtype} accumulators" + (", an epilogue" if self.epilogue is not None else ""),
            )
        return columns

    def _allowed(self, number: int, total: int) -> int:
        """The stores that may be in flight before box `number`; the previous tile may have had another number of
        boxes."""
        if number >= self.epi_stages:
            return self.epi_stages - 1
        return min(self._newer_stores(number, total, before) for before in self._totals)

    def _newer_stores(self, number: int, total: int, before: int | None = None) -> int:
        """The stores committed since the last one that used the stage of box `number`, of `total` in a tile.

        Numbers restart with each tile, so the first boxes look back at the last ones of the previous tile, which had
        `before` boxes, by default `total`.
        """
        if number >= self.epi_stages:
            return self.epi_stages - 1
        before = total if before is None else before
        last_use = max((box for box in range(before) if box % self.epi_stages == number), default=before)
        return before - 1 - last_use + number
