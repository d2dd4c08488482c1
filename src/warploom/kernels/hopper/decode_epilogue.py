"""From complete sums to D, where the rows of a wgmma are columns of D: scales, bias, activation, then the store.

Register 4 g + 2 h + j of a thread is row 16 w + l / 4 + 8 h of the weights, which is a column of D, and token
8 g + 2 (l % 4) + j, which is a row. So a thread has two columns and many tokens: what belongs to the columns is two
numbers, what belongs to the tokens as many as it has tokens, and all of them are loaded before the main loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...collective.epilogue.activations import FUNCTIONS
from ...collective.epilogue.direct_store import packed
from ...collective.epilogue.transposed_store import TransposedStore
from ...isa.dtypes import f32, u64
from ...lang import ptx, reg
from ...lang.arrays import RegisterArray
from ...lang.predicate import Predicate
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from .description import Fusion

_HALF = 8
_GROUP = 8
"""Columns of D between a thread's two; tokens of four registers."""


class DecodeEpilogue:
    """What one thread knows of its elements of D.

    Args:
        D: the output (M, N).
        given: the other arrays and numbers of the call by name, those of `fusion`.
        fusion: what is done.
        token, column: where the tile begins in D, in tokens and in columns (of this consumer).
        tokens: of the tile.
        turned: stores 16 bytes at a time; None: elements one by one.
        me: the consumer.
    """

    def __init__(
        self, D: ArrayHandle, given: Mapping[str, Any], fusion: Fusion, token: Register, column: Register, tokens: int,
        turned: TransposedStore | None = None, me: int = 0,
    ) -> None:  # fmt: skip
        self.D, self.given, self.fusion, self.tokens, self.turned = D, given, fusion, tokens, turned
        self.me = me
        self.m, self.n = D.shape
        lane, warp = ptx.special.tid.x() & 31, (ptx.special.tid.x() & 127) >> 5
        self.first_token, self.first_column = token, column + (warp << 4)
        self.column = self.first_column + (lane >> 2)
        self.token = token + ((lane & 3) << 1)
        self.inside = [self.column + half * _HALF < self.n for half in range(2)]
        self._load()

    # -- what belongs to columns and to tokens ---------------------------------------------------------------------

    def _load(self) -> None:
        """Scales and bias of this thread's columns and tokens; nothing outside of D is read."""
        fusion, given = self.fusion, self.given
        self.factors: list[Register] = []
        self.column_scale: list[Register] = []
        self.token_scale: dict[tuple[int, int], Register] = {}
        self.column_bias: list[Register] = []
        self.token_bias: dict[tuple[int, int], Register] = {}
        if fusion.alpha:
            self.factors.append(given["alpha"])
        if fusion.scales == "tensor":
            self.factors += [ptx.load(f32, ptx.addr(given[name].pointer())) for name in ("scale_a", "scale_b")]
        if fusion.scales == "row":
            self.column_scale = self._of_columns(given["scale_b"])
            self.token_scale = self._of_tokens(given["scale_a"])
        if fusion.bias == "column":
            self.column_bias = self._of_columns(given["bias"])
        if fusion.bias == "row":
            self.token_bias = self._of_tokens(given["bias"])
        factor = self.factors[0] if self.factors else None
        for more in self.factors[1:]:
            assert factor is not None
            factor = factor * more
        if factor is not None and self.column_scale:
            self.column_scale = [scale * factor for scale in self.column_scale]
            factor = None
        self.factor = factor
        if fusion.addend:
            self.reads_addend = given["beta"] != 0.0

    def _of_columns(self, array: ArrayHandle) -> list[Register]:
        place = array.pointer() + self.column.to(u64) * array.dtype.bytes
        return [
            _as_f32(array, place, half * _HALF * array.dtype.bytes, inside) for half, inside in enumerate(self.inside)
        ]

    def _of_tokens(self, array: ArrayHandle) -> dict[tuple[int, int], Register]:
        place = array.pointer() + self.token.to(u64) * array.dtype.bytes
        return {
            (group, odd): _as_f32(array, place, (group * _GROUP + odd) * array.dtype.bytes, self._has_token(group, odd))
            for group in range(self.tokens // _GROUP)
            for odd in range(2)
        }

    def _has_token(self, group: int, odd: int) -> Predicate:
        return self.token + (group * _GROUP + odd) < self.m

    # -- elements --------------------------------------------------------------------------------------------------

    def store(self, acc: RegisterArray, complete: range) -> None:
        """Finish and store some of the accumulators: `complete` are their indices."""
        whole = complete.start % 4 == 0 and complete.stop % 4 == 0
        if self.turned is not None and whole and not self.fusion.gate and not self.fusion.addend:
            self._store_turned(self.turned, acc, range(complete.start // 4, complete.stop // 4))
            return
        offset = self.token.to(u64) * self.n + self.column
        for group in range(complete.start // 4, -(-complete.stop // 4)):
            for odd in range(2):
                exists = self._has_token(group, odd)
                place = offset + (group * _GROUP + odd) * self.n.to(u64)
                for half in range(2):
                    index = 4 * group + 2 * half + odd
                    if index in complete:
                        value = self._finished(acc[index], half, group, odd)
                        self._element(value, place, half, exists & self.inside[half])

    def _store_turned(self, turned: TransposedStore, acc: RegisterArray, groups: range) -> None:
        """Two groups of 8 tokens at a time."""
        turned.begin(self.me)
        for turn, first in enumerate(groups[::2]):
            words = [
                packed([self._finished(acc[4 * group + 2 * half + odd], half, group, odd) for odd in range(2)],
                       self.D.dtype)
                for group in groups[2 * turn : 2 * turn + 2]
                for half in range(2)
            ]  # fmt: skip
            turned.store(words, self.me, turn, self.first_token + first * _GROUP, self.first_column)

    def _finished(self, value: Register, half: int, group: int, odd: int) -> Register:
        """Scales, bias and activation; the last factor and the bias are one fma."""
        factors = [] if self.factor is None else [self.factor]
        if self.column_scale:
            factors += [self.token_scale[group, odd], self.column_scale[half]]
        biases = self.column_bias[half : half + 1]
        if self.token_bias:
            biases = [*biases, self.token_bias[group, odd]]
        last = factors.pop() if factors and biases else None
        for factor in factors:
            value = value * factor
        for bias in biases:
            value = value + bias if last is None else _fma(value, last, bias)
        if self.fusion.activation is not None:
            value = FUNCTIONS[self.fusion.activation](value)
        return value

    def _element(self, value: Register, place: Register, half: int, inside: Predicate) -> None:
        """Gate, addend, and the store of one element of D; `place` counts elements from D's first."""
        if self.fusion.gate:
            value = value * self._beside(self.given["gate"], place, half, inside)
        if self.fusion.addend:
            addend = self._beside(self.given["C"], place, half, inside & self.reads_addend)
            value = _fma(addend, self.given["beta"], value)
        size = self.D.dtype.bytes
        target = ptx.addr(self.D.pointer() + place * size, half * _HALF * size)
        ptx.store(target, value.to(self.D.dtype), pred=inside)

    def _beside(self, array: ArrayHandle, place: Register, half: int, inside: Predicate) -> Register:
        """The element of another (M, N) array at the same place."""
        size = array.dtype.bytes
        return _as_f32(array, array.pointer() + place * size, half * _HALF * size, inside)


def _fma(a: Register, b: Register, c: Register) -> Register:
    result = reg.scalar(f32)
    ptx.inst.fma.rn.f32(result, a, b, c)
    return result


def _as_f32(array: ArrayHandle, pointer: Register, offset: int, inside: Predicate) -> Register:
    """An element as f32; 0 where it is outside."""
    value = reg.scalar(array.dtype, init=0.0)
    kind = array.dtype.name if array.dtype is f32 else f"b{array.dtype.bits}"
    ptx.inst(f"ld.global.{kind}", value, ptx.addr(pointer, offset), pred=inside)
    return value.to(f32)
