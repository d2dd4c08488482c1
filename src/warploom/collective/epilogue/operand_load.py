"""Operands that an epilogue needs element by element: TMA loads their boxes, threads read fragments.

A box of a gate or a residual has the layout of a box of the result. A thread reads the elements that match its
accumulators from the offsets that it will write (`smem_tile.BoxWriter.read`). The first operand is therefore loaded
into the epilogue stages of the result and overwritten there; a second operand has its own stages.

    full[consumer, stage]   1 arrival of the consumer's leader + bytes of the boxes     TMA -> the consumer

A stage is refilled when TMA has read the result in it. Elements outside an array are zeros.
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
    """The loads of an epilogue's operands; see the module's docstring.

    Args:
        arrays: operands of the result's type, with Tiles as `arguments.result_tile` makes them.
        boxes: the result's stages.
        stages: stages per consumer.
        first_row: called as first_row(array, row); returns the row of the array from which the box at `row` is loaded.

    Thread 0 initialises the barriers here; the CTA must synchronise before they are used.
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
        """Call in all threads of a consumer before any box is loaded. One bit per stage holds the phase to wait for."""
        self.phases = reg.scalar(u32, init=0)

    def load(self, stage: int, corner: tuple[Register, Register], width: int) -> None:
        """Load boxes of `width` columns at (column, row) into a free stage. Called by the leader."""
        barrier, size = self.full[stage], width * BOX_ROWS * self.arrays[0].dtype.bytes
        ptx.mbarrier.arrive_expect_tx(barrier, size * len(self.arrays))
        for array, ring in zip(self.arrays, self.rings, strict=True):
            box = ring[stage]
            map_ = array.tma_desc((width, BOX_ROWS))
            column, row = corner
            ptx.cp.async_.bulk.tensor_2d(box + 0, map_, (column, self.first_row(array, row)), barrier)

    def wait(self, stage: int) -> None:
        """Wait until the boxes of the stage have arrived. Called by all threads of the consumer."""
        bit = stage % self.stages
        ptx.mbarrier.wait(self.full[stage], (self.phases >> bit) & 1)
        ptx.inst.bar.warp.sync(-1)  # the leader arrives later: it has started the next load
        self.phases ^= 1 << bit

    def starts(self, stage: int, own: Register, offset: Register) -> list[Register]:
        """The addresses from which a thread reads, one per array; the first is the one that it writes, `own`."""
        return [own, *((ring[stage] + offset).register() for ring in self.rings[1:])]
