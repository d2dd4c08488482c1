"""A warpgroup's fragment written transposed into shared memory: its columns become rows of a panel, 64 elements wide.

    fragment, 64 x n       row 16w + l / 4 + 8h, column 8g + 2(l % 4) + j
    panel, n x 64          one row of 128 bytes per column, swizzled over 128 bytes: a TMA box, or K-major for wgmma

Each stmatrix.trans writes 16 columns of a warp's 16 rows: four matrices, whose rows are 16 bytes of eight panel rows in
different banks.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...isa.swizzle import CHUNK_BYTES, Swizzle
from ...lang import ptx
from ...lang.arrays import RegisterArray
from ...lang.smem import SharedAddress
from ..mma.fragment import thread_of_warpgroup
from ..pipeline.swizzling import swizzled

PANEL_BYTES = Swizzle.B128.span
"""Bytes of a panel's row: 64 elements of 16 bits."""
COLUMNS = 16
"""Columns of the fragment that one stmatrix writes."""
_WARP_BYTES = 2 * CHUNK_BYTES


class TransposedPanel:
    """The writes of one warpgroup; the calling thread's offset is computed once."""

    def __init__(self) -> None:
        thread = thread_of_warpgroup()
        lane, warp = thread & 31, thread >> 5
        matrix, row = lane >> 3, lane & 7
        column = ((matrix >> 1) << 3) + row
        inside = warp * _WARP_BYTES + (matrix & 1) * CHUNK_BYTES
        self._place = swizzled(column * PANEL_BYTES + inside, Swizzle.B128)

    def write(self, parts: Sequence[RegisterArray], panel: SharedAddress) -> None:
        """Write a fragment of 16-bit elements, as `Fragment.as_a` packs it. Called by all threads of the warpgroup.

        panel: the address of a panel with at least as many rows as the fragment has columns.
        """
        start = (panel + self._place).register()
        for number, part in enumerate(parts):
            ptx.stmatrix(ptx.addr(start, number * COLUMNS * PANEL_BYTES), part, trans=True)
