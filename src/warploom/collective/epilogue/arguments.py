"""The arguments that an epilogue adds to a kernel, and the Tiles of arrays stored or read in boxes."""

from __future__ import annotations

from ...isa.dtypes import DType, f32
from ...lang.tile import Dimension, Scalar, Tile
from ..tile.sizes import STORE_BYTES
from .spec import Fusion

BOX_ROWS = 64
BOX_BYTES = 128
"""Bytes of a row of a box: the span of its swizzle."""
BOX_SWIZZLE = "128B"


def box_columns(dtype: DType) -> int:
    """Columns of a full box."""
    return BOX_BYTES // dtype.bytes


def result_tile(
    rows: Dimension, columns: Dimension, dtype: DType, *, order: str = "C", stored: bool = True,
    pads_to_16b: bool = False, may_alias: str = "",
) -> Tile:  # fmt: skip
    """The Tile of a rows x columns array that `TmaStore` writes, or of an operand of its epilogue.

    Its rows begin at multiples of 16 bytes, and their length is a multiple of 16 bytes, because TMA stores no smaller
    unit: a shorter last unit would overwrite bytes after the row (docs/measured-facts.md). The length is arbitrary if
    the array is only read (`stored` false), and with `pads_to_16b`, if nobody else uses those bytes. `may_alias`: see
    `Tile`.
    """
    multiple = (1, STORE_BYTES // dtype.bytes) if order == "C" or (stored and not pads_to_16b) else ()
    return Tile(
        rows, columns, dtype, multiple=multiple, box=(box_columns(dtype), BOX_ROWS), swizzle=BOX_SWIZZLE, order=order,
        may_alias=may_alias, pads_to_16b=pads_to_16b,
    )  # fmt: skip


def epilogue_arguments(
    fusion: Fusion, out: DType, *, rows: str = "M", columns: str = "N", operand: Tile | None = None
) -> dict[str, Tile | Scalar]:
    """The arguments of a kernel besides its operands and D, by name: arrays, then numbers.

    Scales and `scale_out` are f32 in global memory, where they were computed. Gate and C have D's type. `amax` is read
    and written, and must be 0 at first.

    Args:
        rows, columns: names of D's sizes.
        operand: the Tile of a gate and of C; by default as TMA loads them, with rows that begin at multiples of 16
            bytes.

    Raises ArgumentError for an epilogue that no kernel supports with an output of that type.
    """
    fusion.check(out)
    if operand is None:
        operand = result_tile(rows, columns, out, order="rows", stored=False)
    names: dict[str, Tile | Scalar] = {}
    if fusion.scales is not None:
        row = fusion.scales == "row"
        names["scale_a"] = Tile(rows if row else 1, f32)
        names["scale_b"] = Tile(columns if row else 1, f32)
    if fusion.bias is not None:
        names["bias"] = Tile(columns if fusion.bias == "column" else rows, fusion.bias_type(out))
    if fusion.gate:
        names["gate"] = operand
    if fusion.addend:
        names["C"] = operand
    if fusion.scale_out:
        names["scale_out"] = Tile(1, f32)
    if fusion.amax:
        names["amax"] = Tile(1, f32, inout=True)
    if fusion.alpha:
        names["alpha"] = Scalar(f32)
    if fusion.addend:
        names["beta"] = Scalar(f32)
    return names
