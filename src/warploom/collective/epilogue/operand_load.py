"""Arrays that are needed element by element where a result is stored: TMA brings their boxes, threads read fragments.

A box of a gate or a residual lies in shared memory as a box of the result does, and a thread reads the elements that
belong to its accumulators from the very places that it will write (`smem_tile.BoxWriter.read`). So the first array
comes into the slots of the result itself, and is overwritten there; another one has slots of its own.

    full[consumer, slot]   1 arrival of the consumer's leader + bytes of the boxes     TMA -> the consumer

A slot is filled again when TMA has read the result that was in it. Elements outside of an array are zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...isa.dtypes import u32
from ...lang import ptx, reg, smem
from ...lang.smem import WgmmaTile
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from .smem_tile import BOX_ROWS, SWIZZLE, box_columns


class Beside:
    """See the module's docstring.

    Args:
        arrays: of the result's type, their Tiles as `smem_tile.result_tile` makes them.
        boxes: the result's slots.
        slots: of each consumer.
        first_row: called as first_row(array, row), gives the row from which an array's box at `row` is taken.

    Thread 0 initialises the barriers here; the CTA meets before they are used.
    """

    def __init__(
        self, arrays: Sequence[ArrayHandle], boxes: WgmmaTile, slots: int,
        first_row: Callable[[ArrayHandle, Register], Register],
    ) -> None:  # fmt: skip
        self.arrays, self.slots, self.first_row = arrays, slots, first_row
        box = (box_columns(boxes.dtype), BOX_ROWS)
        self.rings = [boxes]
        for array in arrays:
            if (array.dtype, array.spec.box, array.spec.swizzle) != (boxes.dtype, box, SWIZZLE.value):
                raise array.trace.error(
                    f"{array.name} is loaded in boxes of the result's type, and its Tile is another",
                    expected=f'{boxes.dtype}, box={box}, swizzle="{SWIZZLE.value}"',
                    got=f"{array.dtype}, box={array.spec.box}, swizzle={array.spec.swizzle!r}",
                    hint="smem_tile.result_tile makes such a Tile",
                )
        for array in arrays[1:]:
            self.rings.append(
                smem.wgmma_tile(boxes.dtype, box[::-1], stages=boxes.stages, swizzle=SWIZZLE.value, name=array.name)
            )
        self.full = smem.mbarrier(boxes.stages, name="beside")
        with ptx.if_(ptx.special.tid.x() == 0):
            for barrier in self.full:
                ptx.mbarrier.init(barrier, 1)

    def begin(self) -> None:
        """By all threads of a consumer: no box has come. A bit for each slot holds the phase that is waited for."""
        self.phases = reg.scalar(u32, init=0)

    def load(self, slot: int, corner: tuple[Register, Register], width: int) -> None:
        """By the leader: boxes of so many columns at (column, row) into the slot, which is free."""
        barrier, size = self.full[slot], width * BOX_ROWS * self.arrays[0].dtype.bytes
        ptx.mbarrier.arrive_expect_tx(barrier, size * len(self.arrays))
        for array, ring in zip(self.arrays, self.rings, strict=True):
            box = ring[slot]
            map_ = array.tma_desc((width, BOX_ROWS))
            column, row = corner
            ptx.cp.async_.bulk.tensor_2d(box + 0, map_, (column, self.first_row(array, row)), barrier)

    def wait(self, slot: int) -> None:
        """By all threads of the consumer: until the slot's boxes have come."""
        bit = slot % self.slots
        ptx.mbarrier.wait(self.full[slot], (self.phases >> bit) & 1)
        ptx.inst.bar.warp.sync(-1)  # the leader comes later: it has let the next box come
        self.phases ^= 1 << bit

    def starts(self, slot: int, own: Register, place: Register) -> list[Register]:
        """Where a thread begins to read, one address for each array; the first is where it writes, `own`."""
        return [own, *((ring[slot] + place).register() for ring in self.rings[1:])]
