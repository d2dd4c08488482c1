"""Parts of operand tiles that are chosen at run time."""

from __future__ import annotations

from ...isa.dtypes import u64
from ...lang.smem import WgmmaTile
from ...lang.values import Register


def row_block(tile: WgmmaTile, block: Register, rows: int) -> Register:
    """What to add to a descriptor of a tile's first `rows` rows to mean its `block`-th such block (u64).

    The start address stands in a descriptor divided by 16 (PTX ISA 9.7.15.5.1.2.2), and blocks of a K-major tile lie
    at equal distances, so this is one product.
    """
    return block.to(u64) * (tile.layout.row_offset(rows) >> 4)
