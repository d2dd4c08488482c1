"""Tensor memory (sm_100): addresses, allocations, and the data paths of an MMA's accumulator.

An SM has 128 lanes of 512 columns of 32 bits. An address is `lane << 16 | column` (PTX ISA 9.7.16.1.1). A warp can
access the 32 lanes of its quarter: warp w of a warpgroup has lanes 32w to 32w + 31 (9.7.16.8.1).

The rows and columns of D are in tensor memory in one of seven layouts, A to G (9.7.16.10.5), whose names are the ISA's.
Not run on hardware: A, B, D and F are those for which kernels of Triton and CUTLASS give correct results; C, E and G
have one source each.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ArgumentError
from ..plural import counted

LANES = 128
COLUMNS = 512
"""Columns of an SM."""
QUARTER = 32
"""Lanes that one warp can access."""
LANE_SHIFT = 16
"""Position of the lane in an address; the column is below it."""
SIZES = (32, 64, 128, 256, 512)
"""Numbers of columns that an allocation may have."""


@dataclass(frozen=True)
class DataPath:
    """The layout in tensor memory of an MMA's M x N accumulator.

    Attributes:
        name: the ISA's layout, "A" to "G".
        m: extent of the MMA in m; of the whole pair for group 2.
        group: the number of CTAs that share the MMA.
        rows: rows of D that a CTA holds.
        parts: the number of parts into which D's columns are divided; parts of a row are in different lanes.
        spread: whether the rows are in the first, or the second, 16 lanes of each quarter.
    """

    name: str
    m: int
    group: int
    rows: int
    parts: int = 1
    spread: bool = False

    def columns(self, n: int) -> int:
        """Columns of tensor memory that `n` columns of D take."""
        return n // self.parts

    def lane(self, row: int, part: int = 0) -> int:
        """The lane of a row, counted within the CTA."""
        return row % 16 + row // 16 * QUARTER if self.spread else row + part * self.rows

    def place(self, row: int, column: int, n: int) -> tuple[int, int, int]:
        """(CTA of the pair, lane, column of tensor memory) of element (row, column) of an M x n accumulator."""
        part, inside = divmod(column, self.columns(n))
        return row // self.rows, self.lane(row % self.rows, part), inside


DATA_PATHS: tuple[DataPath, ...] = (
    DataPath("A", 256, 2, 128),
    DataPath("B", 128, 2, 64, parts=2),
    DataPath("C", 128, 2, 64, spread=True),
    DataPath("D", 128, 1, 128),
    DataPath("E", 64, 1, 64, parts=2),
    DataPath("F", 64, 1, 64, spread=True),
    DataPath("G", 32, 1, 32, parts=4),
)
"""All layouts of an accumulator."""


def data_path(m: int, group: int = 1, *, sparse: bool = False, ws: bool = False) -> DataPath:
    """The layout of an MMA's accumulator.

    Args:
        m: extent in m, of the whole pair for group 2.
        group: 1, or 2 for a CTA pair.
        sparse: whether A is sparse.
        ws: whether the instruction is `.ws`.

    Raises ArgumentError for an unsupported extent.
    """
    name = {(256, 2): "A", (128, 2): "C" if sparse else "B", (128, 1): "D", (64, 1): "E" if ws else "F"}.get((m, group))
    if (m, group, ws) == (32, 1, True):
        name = "G"
    for path in DATA_PATHS:
        if path.name == name:
            return path
    expected = "128 or 256" if group == 2 else "32, 64 or 128" if ws else "64 or 128"
    raise ArgumentError(
        f"no product of {'a pair of CTAs' if group == 2 else 'one CTA'} has {counted(m, 'row')}",
        expected=expected,
        got=m,
    )
