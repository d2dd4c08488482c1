"""What happens to the complete sums of a free tile before they are stored: scales, bias, activation.

A vector along wgmma's M axis is two numbers of a thread for each block of 64 rows (rows l / 4 and l / 4 + 8 of its
warp's 16); one along the N axis is two for each 8 columns (2 (l % 4) and the next).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...collective.epilogue.activations import FUNCTIONS
from ...collective.mma.fragment import pack
from ...isa.dtypes import f32, u64
from ...lang import Tile, ptx, reg
from ...lang.arrays import RegisterArray
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from .description import Fusion, Product

_HALF = 8
_GROUP = 8


def arguments(fusion: Fusion, product: Product) -> dict[str, Tile]:
    """The arrays that a call takes after A and W."""
    names: dict[str, Tile] = {}
    if fusion.scales is not None:
        row = fusion.scales == "row"
        names |= {"scale_a": Tile("M" if row else 1, f32), "scale_b": Tile("N" if row else 1, f32)}
    if fusion.bias is not None:
        names["bias"] = Tile("N", fusion.bias_dtype or product.out)
    return names


class End:
    """The end of one block of 64 rows on the M axis.

    Args:
        given: the call's arrays by name.
        swapped: the M axis is of weights (columns of D).
        on_m, on_n: where the block begins in D, on the M axis and on the N axis.
    """

    def __init__(
        self, D: ArrayHandle, given: Mapping[str, Any], fusion: Fusion, swapped: bool, on_m: Register, on_n: Register
    ) -> None:
        self.D, self.fusion = D, fusion
        lane, warp = ptx.special.tid.x() & 31, (ptx.special.tid.x() & 127) >> 5
        tokens, weights = D.shape[0], D.shape[1]
        self.on_m, self.limit_m = on_m + (warp << 4) + (lane >> 2), weights if swapped else tokens
        self.on_n, self.limit_n = on_n + ((lane & 3) << 1), tokens if swapped else weights
        of_tokens, of_weights = given.get("scale_a"), given.get("scale_b")
        row = fusion.scales == "row"
        self.scales = ((of_weights, of_tokens) if swapped else (of_tokens, of_weights)) if row else (None, None)
        bias = given.get("bias")
        self.bias = (bias, None) if swapped else (None, bias)
        self.factor: Register | None = None
        if fusion.scales == "tensor":
            assert of_tokens is not None and of_weights is not None
            self.factor = ptx.load(f32, ptx.addr(of_tokens.pointer())) * ptx.load(f32, ptx.addr(of_weights.pointer()))
        self.scale_m, self.bias_m = self._along_m(self.scales[0]), self._along_m(self.bias[0])

    def _along_m(self, array: ArrayHandle | None) -> list[Register] | None:
        return None if array is None else [_at(array, self.on_m + half * _HALF, self.limit_m) for half in range(2)]

    def _along_n(self, array: ArrayHandle | None, column: int) -> list[Register] | None:
        if array is None:
            return None
        return [_at(array, self.on_n + (column + odd), self.limit_n) for odd in range(2)]

    def words(self, values: RegisterArray, column: int) -> list[Register]:
        """The accumulators from column `column` of the tile on, as pairs of elements of D."""
        found = []
        for group in range(0, len(values), 4):
            across = column + group // 4 * _GROUP
            scale_n, bias_n = self._along_n(self.scales[1], across), self._along_n(self.bias[1], across)
            for half in range(2):
                pair = [
                    self._finished(values[group + 2 * half + odd], _of(self.scale_m, half), _of(scale_n, odd),
                                   _of(self.bias_m, half), _of(bias_n, odd))
                    for odd in range(2)
                ]  # fmt: skip
                found.append(pack(pair, self.D.dtype))
        return found

    def _finished(
        self, value: Register, scale_m: Register | None, scale_n: Register | None, *bias: Register | None
    ) -> Register:
        for factor in (self.factor, scale_m, scale_n):
            if factor is not None:
                value = value * factor
        for addend in bias:
            if addend is not None:
                value = value + addend
        return value if self.fusion.activation is None else FUNCTIONS[self.fusion.activation](value)


def _of(values: Sequence[Register] | None, index: int) -> Register | None:
    return None if values is None else values[index]


def _at(array: ArrayHandle, index: Register, limit: Register) -> Register:
    """An element as f32; 0 where it is outside."""
    value = reg.scalar(array.dtype, init=0.0)
    kind = array.dtype.name if array.dtype is f32 else f"b{array.dtype.bits}"
    place = array.pointer() + index.to(u64) * array.dtype.bytes
    ptx.inst(f"ld.global.{kind}", value, ptx.addr(place), pred=index < limit)
    return value.to(f32)
