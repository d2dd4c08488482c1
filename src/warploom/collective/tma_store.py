"""A result on its way out through shared memory: boxes of 64 x 64 that TMA stores while the next one is written.

    slot = box % slots:   wait until TMA has read the slot | write | fence, barrier | one thread starts the store

Each consumer has slots, a named barrier and a storing thread of its own, so consumers do not wait for each other. The
store is asynchronous: it goes on while the consumer multiplies its next tile.
"""

from __future__ import annotations

from ..lang import ptx, smem
from ..lang.arrays import RegisterArray
from ..lang.tile import ArrayHandle
from ..lang.values import Register
from .epilogue import packed
from .roles import WARPGROUP
from .swizzling import CHUNK, swizzled
from .wgmma_mainloop import WGMMA_ROWS

BOX = 64
"""Rows and columns of a box: 64 elements of 16 bits are the 128 bytes of its swizzle."""
_FIRST_BARRIER = 1
_GROUP = 4
"""Accumulators of 8 columns; packed words of 16."""
_ROW_SHIFT = 7


class TmaStore:
    """See the module's docstring.

    Args:
        array: C, a 16-bit float type, with a tensor map of 64 x 64 boxes and swizzle 128B (`Tile(..., box=(64, 64),
            swizzle="128B")`); its rows are multiples of 16 bytes. Parts of a box outside of it are not written.
        consumers: how many warpgroups store.
        slots: boxes of each that may be under way.
        matrices: write with stmatrix, 16 columns of a warp's 16 rows at a time, instead of 32-bit stores.
    """

    def __init__(self, array: ArrayHandle, consumers: int, *, slots: int = 2, matrices: bool = True) -> None:
        self.array, self.slots, self.matrices = array, slots, matrices
        if (array.spec.box, array.spec.swizzle) != ((BOX, BOX), "128B"):
            raise array.trace.error(
                f"{array.name} is stored in boxes of {BOX} x {BOX}, and its tensor map has others",
                expected=f'Tile(..., box=({BOX}, {BOX}), swizzle="128B")',
                got=f"box {array.spec.box}, swizzle {array.spec.swizzle}",
            )
        self.boxes = smem.wgmma_tile(array.dtype, (BOX, BOX), stages=consumers * slots, swizzle="128B", name="boxes")
        self.swizzle = self.boxes.layout.swizzle

    def store(self, acc: list[RegisterArray], me: int, row: Register, column: Register) -> None:
        """Store blocks of 64 rows at (row, column) of C; called by all threads of consumer `me`."""
        thread = ptx.special.tid.x() & (WARPGROUP - 1)
        leader, barrier = thread == 0, _FIRST_BARRIER + me
        place = self._place(thread)
        number = 0
        per_box = BOX * _GROUP // 8
        total = sum(len(block) // per_box for block in acc)
        for index, block in enumerate(acc):
            if len(block) % per_box:
                raise self.array.trace.error(
                    f"a tile that is stored in boxes has columns in multiples of {BOX}",
                    got=f"{len(block) // _GROUP * 8} columns",
                    consequence="the last box would write into the neighbouring tile",
                )
            for first in range(0, len(block), per_box):
                box = self.boxes[me * self.slots + number % self.slots]
                with ptx.if_(leader):
                    ptx.cp.async_.bulk.wait_group_read(self._newer_stores(number, total))
                ptx.bar.sync(barrier, WARPGROUP)
                self._write(box + place, block[first : first + per_box])
                ptx.fence.proxy_async_shared_cta()
                ptx.bar.sync(barrier, WARPGROUP)
                with ptx.if_(leader):
                    corner = (column + first // _GROUP * 8, row + index * WGMMA_ROWS)
                    ptx.tma.store(self.array.tma_desc(), box, corner)
                    ptx.cp.async_.bulk.commit_group()
                number += 1

    def _newer_stores(self, number: int, total: int) -> int:
        """How many stores were committed since the last one that used the slot of box `number`, of `total` in a tile.

        The numbers begin anew with each tile, so the first boxes look back at the last ones of the tile before.
        """
        if number >= self.slots:
            return self.slots - 1
        last_use = max((box for box in range(total) if box % self.slots == number), default=total)
        return total - 1 - last_use + number

    def finish(self) -> None:
        """Before the CTA ends: its stores have read their shared memory."""
        with ptx.if_((ptx.special.tid.x() & (WARPGROUP - 1)) == 0):
            ptx.cp.async_.bulk.wait_group(0)

    def _place(self, thread: Register) -> Register:
        """Where a thread begins to write in a box: with stmatrix, the row it points at; else its own two columns."""
        lane, warp_row = thread & 31, (thread >> 5) << 4
        if self.matrices:
            row, inside = warp_row + (lane & 15), (lane >> 4) * CHUNK
        else:
            row, inside = warp_row + (lane >> 2), (lane & 3) * 4
        return swizzled((row << _ROW_SHIFT) + inside, self.swizzle)

    def _write(self, place: smem.SharedAddress, acc: RegisterArray) -> None:
        """The 64 columns of a box; each step of 8 or 16 columns goes into the swizzled place by XOR."""
        words = [packed(acc[i : i + 2], self.array.dtype) for i in range(0, len(acc), 2)]
        start = place.register()
        if self.matrices:
            for pair in range(len(words) // _GROUP):
                target = start ^ (pair * 2 * CHUNK) if pair else start
                ptx.stmatrix(ptx.addr(target), words[pair * _GROUP : (pair + 1) * _GROUP])
            return
        for group in range(len(words) // 2):
            target = start ^ (group * CHUNK) if group else start
            ptx.store(ptx.addr(target), words[2 * group], space="shared")
            ptx.store(ptx.addr(target, 8 << _ROW_SHIFT), words[2 * group + 1], space="shared")
