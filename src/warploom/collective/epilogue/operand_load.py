"""Operands of an epilogue that are needed element by element: TMA loads their boxes, threads read fragments.

A box of a gate or a residual has the layout of a box of the result, and a thread reads the elements that belong to its
accumulators from the places that it will write (`smem_tile.BoxWriter.read`). So the first operand is loaded into the
epilogue stages of the result, and is overwritten there; another one has stages of its own.

    full[consumer, stage]   1 arrival of the consumer's leader + bytes of the boxes     TMA -> the consumer

A stage is filled again when TMA has read the result that was in it. Elements outside an array are zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...isa.dtypes import u32
from ...lang import ptx, reg, smem
from ...lang.smem import OperandTile
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from .arguments import BOX_ROWS, BOX_SWIZZLE, box_columns


class OperandLoad:
    """See the module's docstring.

    Args:
        arrays: of the result's type, their Tiles as `arguments.result_tile` makes them.
        boxes: the result's stages.
        stages: of each consumer.
        first_row: called as first_row(array, row), gives the row from which an array's box at `row` is taken.

    Thread 0 initialises the barriers here; the CTA meets before they are used.
    """

    def __init__(
        self, arrays: Sequence[ArrayHandle], boxes: OperandTile, stages: int,
        first_row: Callable[[ArrayHandle, Register], Register],
    ) -> None:  # fmt: skip
        self.arrays, self.stages, self.first_row = arrays, stages, first_row
        box = (box_columns(boxes.dtype), BOX_ROWS)
        self.rings = [boxes]
        for array in arrays:
            if (array.dtype, array.spec.box, array.spec.swizzle) != (boxes.dtype, box, BOX_SWIZZLE):
                raise array.trace.error(
                    f"{array.name} is loaded in boxes of the result's type, and its Tile has others",
                    expected=f'{boxes.dtype}, box={box}, swizzle="{BOX_SWIZZLE}"',
                    got=f"{array.dtype}, box={array.spec.box}, swizzle={array.spec.swizzle!r}",
                    hint="epilogue.arguments.result_tile makes such a Tile",
                )
        for array in arrays[1:]:
            self.rings.append(
                smem.tile(boxes.dtype, box[::-1], stages=boxes.stages, swizzle=BOX_SWIZZLE, name=array.name)
            )
        self.full = smem.mbarrier(boxes.stages, name="operands")
        with ptx.if_(ptx.special.tid.x() == 0):
            for barrier in self.full:
                ptx.mbarrier.init(barrier, 1)

    def begin(self) -> None:
        """By all threads of a consumer, before any box is loaded. A bit for each stage holds the phase to wait for."""
        self.phases = reg.scalar(u32, init=0)

    def load(self, stage: int, corner: tuple[Register, Register], width: int) -> None:
        """By the leader: load boxes of `width` columns at (column, row) into a free stage."""
        barrier, size = self.full[stage], width * BOX_ROWS * self.arrays[0].dtype.bytes
        ptx.mbarrier.arrive_expect_tx(barrier, size * len(self.arrays))
        for array, ring in zip(self.arrays, self.rings, strict=True):
            box = ring[stage]
            map_ = array.tma_desc((width, BOX_ROWS))
            column, row = corner
            ptx.cp.async_.bulk.tensor_2d(box + 0, map_, (column, self.first_row(array, row)), barrier)

    def wait(self, stage: int) -> None:
        """By all threads of the consumer: until the boxes of the stage are there."""
        bit = stage % self.stages
        ptx.mbarrier.wait(self.full[stage], (self.phases >> bit) & 1)
        ptx.inst.bar.warp.sync(-1)  # the leader comes later: it has started the next load
        self.phases ^= 1 << bit

    def starts(self, stage: int, own: Register, place: Register) -> list[Register]:
        """Where a thread begins to read, one address for each array; the first is where it writes, `own`."""
        return [own, *((ring[stage] + place).register() for ring in self.rings[1:])]
