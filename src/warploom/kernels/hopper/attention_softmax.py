"""The softmax of a consumer's 64 rows, one tile of scores after the other: exact, or guarded.

exact      m = the largest score so far;  P = 2^(s - m);  l, O = 2^(m_before - m) l, O  where m grew by more than 2^8
           (FlashAttention-2's recurrence; the threshold is FlashAttention-4's)

guarded    m = the largest score of the row's FIRST tile, and P = 2^(s - m - head) in all its tiles. Without maxima, the
           exponentials start with the first score, and O is not rescaled.
           guard      each thread's sum of P over a tile must be at most `limit`: one warp vote per tile.
           recompute  if it is not (or is NaN), the warp recomputes the tile exactly: S is still in its registers.
           careful    a warp that has recomputed a few tiles takes the maxima first in all its later tiles. In bf16 it
                      rescales only where a maximum grew by more than 2^60: the guard's range holds what is below.

Both give the same rows: in bf16, P has the exponents of f32, from 2^-126 to 2^127, so the reference may be far from the
maximum. f16 has only 30 exponents, so the guard fires earlier (`head`, `limit`). e4m3 has 18: P lies above 1, so that
small terms do not underflow, and maxima are taken sooner (`growth`).

A row's largest P is 1 if it is in the first tile; a later one is rounded. If it has most of the weight, O is off by as
much, unless the sum by which O is divided is rounded, too, a few keys at a time (`rounded_row_sum`). The logarithm is
that of the sum of the exact P.

A factor 2^(m_before - m) may underflow where the factor times l does not, so its square root is multiplied twice.
A row that has seen no key has m = -inf. The exact softmax then subtracts 0. The guard's reference is +inf, so the row's
first key causes `recompute`. If a row never sees a key, O is zeros and the logarithm of its sum is -inf.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...collective.mma.fragment import Fragment, a_elements, across_quad, pack
from ...isa.dtypes import DType, b32, bf16, e4m3, f16, f32, u32
from ...lang import ptx, reg
from ...lang.arrays import RegisterArray
from ...lang.predicate import Predicate
from ...lang.values import Register
from .attention_config import LOG2_E

LOWEST = {bf16: -(2.0**31), f16: -(2.0**26), e4m3: -(2.0**26)}
"""Scores below count as -inf if a function of scores may have made them, in units of log2: a maximum times the scale is
rounded by as much as the range of P's exponents."""
GROWTH = 8.0
"""`growth` for 16-bit types."""
CAREFUL_GROWTH = 60.0
"""`growth` of a careful warp in bf16: its P is then at most 2^0."""
_LARGEST = 3e38
ROUNDED_KEYS = 8
"""Keys whose sum of P is rounded to bf16 before it is added to the divisor of O. On an H200, 8 cost 2.5 % at scores of
deviation 64 and at most 1.8 % elsewhere, 4 cost 4 % (nvidia-h200/attention-rounded-sums.json). In larger groups, more
keys share the sum of a large P, so more of its rounding stays in the result."""


def head(dtype: DType, guarded: bool) -> float:
    """log2 of how far below 1 the reference scales a row's first maximum: the headroom above it grows by as much."""
    if dtype is e4m3:  # scaled to 16: 2^10 above the smallest value with 4 bits, 2^4.8 below the largest
        return -4.0
    return 60.0 if guarded and dtype is not f16 else 0.0


def limit(dtype: DType) -> float:
    """The largest sum of a thread's P in one tile that the guard lets pass."""
    return 448.0 if dtype is e4m3 else 2.0 ** (15 if dtype is f16 else 80)


def growth(dtype: DType) -> float:
    """log2 of how much a maximum may grow before l and O are scaled down to the new one."""
    return 4.0 if dtype is e4m3 else GROWTH


def most_recomputed(dtype: DType) -> int:
    """Tiles that a warp recomputes before it becomes careful (nvidia-h200/attention-deviation-64.json)."""
    return 4 if dtype is bf16 else 2


class Softmax:
    """See the module's docstring.

    Args:
        scores: a thread's f32 accumulators of S; this class does not overwrite them.
        scale: f32, positive: log2(e) times the scale of the scores.
        dtype: type of P: f16, bf16 or e4m3.
        guarded: use the guarded softmax; else the exact one.
        raise_all_maxima: a recomputed tile raises every maximum that it exceeds, by however little.
        rounded_row_sum: in bf16, divide O by a sum of rounded P.
        hidden: scores may be -inf without a mask, as a function of scores may say.

    Attributes:
        largest: the maximum of each of the thread's two rows, in units of the scores.
        total: the sums of this thread's columns.
        rounded_total: the same, but with the sum of each `ROUNDED_KEYS` keys rounded: the divisor of O. Empty if it is
            `total`.
        roots: factors by which complete rows of O must be multiplied, twice.
        needed: true if any row of the warp must be scaled.
    """

    def __init__(
        self, scores: RegisterArray, scale: Register, dtype: DType, *, guarded: bool, raise_all_maxima: bool = False,
        rounded_row_sum: bool = False, hidden: bool = False,
    ) -> None:  # fmt: skip
        self.scores, self.scale, self.dtype, self.guarded = Fragment(scores), scale, dtype, guarded
        self.hidden = hidden
        self.recompute_growth = 0.0 if raise_all_maxima else growth(dtype)
        self.head = head(dtype, guarded)
        self.largest, self.total = _two(), _two()
        self.rounded_total = _two() if rounded_row_sum and dtype is bf16 else []
        self.offset, self.roots = _two(), _two()
        self.needed = reg.predicate()
        self.recomputed = reg.scalar(u32)

    # -- a tile of scores --------------------------------------------------------------------------------------------

    def start(self, into: RegisterArray) -> None:
        """Process the first tile of a block of rows: P is written to `into` as an A operand."""
        self.recomputed.set(0)
        for largest, found in zip(self.largest, self._maxima(), strict=True):
            largest.set(found)
        self._refer()
        parts = self._exponentials(into, self._finite_offset())
        for total, part in zip(self.total, parts[:2], strict=True):
            total.set(part)
        for rounded, part in zip(self.rounded_total, parts[:2], strict=False):  # its largest P is 1, and not rounded
            rounded.set(part)

    def begin(self) -> None:
        """Reset the state, so that `update` can process all tiles of a block of rows exactly."""
        for largest, total in zip(self.largest, self.total, strict=True):
            largest.set(-math.inf)
            total.set(0.0)
        for rounded in self.rounded_total:
            rounded.set(0.0)

    def update(self, into: RegisterArray, *, masked: bool = False) -> None:
        """Process one more tile. `masked`: some scores are -inf, perhaps a row's first, so it is computed exactly."""
        if masked or not self.guarded:
            self._exactly(into)
        else:
            self._guarded(into)

    def _exactly(self, into: RegisterArray) -> None:
        grown = self._renew()
        parts = self._exponentials(into, self._finite_offset())
        # the vote depends on the sums, so that ptxas cannot sink the exponentials below the branch on the vote
        complete = (parts[0] <= _LARGEST) & (parts[1] <= _LARGEST)
        self.needed.set(ptx.warp.any(grown | ~complete))
        self._add(parts)

    def _guarded(self, into: RegisterArray) -> None:
        self.needed.set(False)
        careful = ptx.warp.any(self.recomputed >= most_recomputed(self.dtype))
        with ptx.if_(careful):
            self.needed.set(ptx.warp.any(self._renew(CAREFUL_GROWTH if self.dtype is bf16 else None)))
            if self.hidden:  # a row may still have seen no key, and a careful warp does not recompute
                for offset, finite in zip(self.offset, self._finite_offset(), strict=True):
                    offset.set(finite)
        parts = [reg.scalar(f32) for _ in (*self.total, *self.rounded_total)]
        for part, found in zip(parts, self._exponentials(into, self.offset), strict=True):
            part.set(found)
        bound = limit(self.dtype)
        passes = ptx.warp.all((parts[0] <= bound) & (parts[1] <= bound))  # false for NaN
        with ptx.if_(~(passes | careful)):
            self.recomputed += 1
            self.needed.set(ptx.warp.any(self._renew(self.recompute_growth)))
            for part, found in zip(parts, self._exponentials(into, self._finite_offset()), strict=True):
                part.set(found)
        self._add(parts)

    def _renew(self, least: float | None = None) -> Predicate:
        """Raise maxima that this tile exceeds by enough, and rescale l; true if either of the thread's rows changed.

        least: log2 of the factor by which a maximum must grow; None: `growth`.
        """
        grown, enough = [], growth(self.dtype) if least is None else least
        newest = self._maxima(self.largest)
        for half in range(2):
            largest, root = self.largest[half], self.roots[half]
            grew = (newest[half] - _finite(largest)) * self.scale > enough
            grew = grew | ((largest == -math.inf) & (newest[half] > -math.inf))
            before = largest.copy()
            largest.set(ptx.select(grew, newest[half], largest))
            root.set(ptx.math.ex2((before - _finite(largest)) * self.scale * 0.5))
            for total in (self.total[half], *self.rounded_total[half : half + 1]):
                total *= root
                total *= root
            grown.append(grew)
        self._refer()
        return grown[0] | grown[1]

    def _maxima(self, before: Sequence[Register] | None = None) -> list[Register]:
        """The maximum of each row in this tile, and before; -inf if it is so low that the row has seen no key."""
        found = self.scores.row_max() if before is None else self.scores.row_max(before)
        if not self.hidden:
            return list(found)
        nothing = float("-inf")
        return [ptx.select(each * self.scale < LOWEST[self.dtype], nothing, each) for each in found]

    def _refer(self) -> None:
        """Set `offset`, which is added to every scaled score of a row; +inf for a row that has seen no key."""
        for offset, largest in zip(self.offset, self.largest, strict=True):
            offset.set(-(largest * self.scale) - self.head if self.head else -(largest * self.scale))

    def _finite_offset(self) -> list[Register]:
        """The offset, but 0 for a row that has seen no key, all of whose scores are -inf."""
        return [ptx.select(offset == math.inf, 0.0, offset) for offset in self.offset]

    def _exponentials(self, into: RegisterArray, offset: Sequence[Register]) -> list[Register]:
        """Write P = 2^(S scale + offset), rounded; S is kept. Return the sums of this thread's columns, not rounded,
        and those for `rounded_total`."""
        if self.rounded_total:
            return self._weighed_exponentials(into, offset)
        sums: list[list[Register]] = [[], []]
        for word, rounded in enumerate(into):
            half = word % 2
            found = self._word(word, offset[half], rounded)
            for pair in (found[:2], found[2:]):
                if pair:
                    sums[half] = _added(sums[half], pair)
        return [even + odd for even, odd in sums]

    def _weighed_exponentials(self, into: RegisterArray, offset: Sequence[Register]) -> list[Register]:
        """The same in bf16. Zero times a sum is added to later offsets, so that ptxas adds it up before it computes
        their exponentials: all at the end, the sums would spill."""
        groups: list[list[Register]] = [[], []]
        sums: list[list[Register]] = [[], []]
        before: list[Register | None] = [None, None]
        offset, last = list(offset), len(into) // 2
        for word, rounded in enumerate(into):
            half, done = word % 2, word // 2 + 1
            groups[half] = _added(groups[half], self._word(word, offset[half], rounded))
            if done % (ROUNDED_KEYS // 2) and done != last:
                continue
            group = groups[half][0] + groups[half][1]
            sums[half], groups[half] = _added(sums[half], [group, _rounded(group)]), []
            earlier = before[half]
            if earlier is not None and done != last:
                offset[half] = ptx.math.fma(earlier, 0.0, offset[half])
            before[half] = sums[half][1]
        return [half[number] for number in range(2) for half in sums]

    def _word(self, word: int, offset: Register, rounded: Register) -> list[Register]:
        """The exponentials of a register of P, not rounded; `rounded`: that register."""
        found = [
            ptx.math.ex2(ptx.math.fma(self.scores.registers[at], self.scale, offset))
            for at in a_elements(word, self.dtype)
        ]
        pack(found, self.dtype, rounded)
        return found

    def _add(self, parts: Sequence[Register]) -> None:
        for total, part in zip((*self.total, *self.rounded_total), parts, strict=True):
            total += part

    # -- O -----------------------------------------------------------------------------------------------------------

    def rescale(self, out: Fragment) -> None:
        """Rescale O to the new maxima, after the products into it are complete."""
        with ptx.if_(self.needed):
            out.scale_rows(self.roots)
            out.scale_rows(self.roots)

    def finish(self, sink: Register | None = None) -> tuple[list[Register], list[Register]]:
        """For each of the two rows: the factor of O, and the logarithm of the sum of exp(score).

        sink: one more score, f32, not scaled, which is added to the sums and has no value.
        """
        factors, logarithms = [], []
        for largest, part, rounded in zip(self.largest, self.total, self.rounded_total or self.total, strict=True):
            total = across_quad(ptx.math.add, part)
            divisor = across_quad(ptx.math.add, rounded) if self.rounded_total else total
            empty = total == 0.0
            factor = ptx.math.rcp(divisor)
            if sink is not None:
                largest, total, share = self._with(sink, largest, total)
                factor = factor * share
            factors.append(ptx.select(empty, 0.0, factor))
            logarithms.append(ptx.math.fma(largest, self.scale, self._log2(total)) * (1 / LOG2_E))
        return factors, logarithms

    def _with(self, sink: Register, largest: Register, total: Register) -> tuple[Register, Register, Register]:
        """Maximum and sum of a row with one more score, and the share of the others in that sum."""
        sink = sink * LOG2_E / self.scale
        newest = ptx.math.max(largest, sink)
        root = ptx.math.ex2((largest - _finite(newest)) * self.scale * 0.5)
        own = ptx.math.ex2((sink - _finite(newest)) * self.scale - self.head)
        others = total * root * root
        both = others + own
        return newest, both, others * ptx.math.rcp(both)

    def _log2(self, total: Register) -> Register:
        """log2(total) + head. lg2.approx is more exact for small results, so 2^head is multiplied into its argument."""
        if not self.head:
            return ptx.math.lg2(total)
        small = total < 1.0
        return ptx.math.lg2(total * _either(small, 2.0**self.head, 1.0)) + _either(small, 0.0, self.head)


def _two() -> list[Register]:
    """One register for each of the thread's two rows."""
    return [reg.scalar(f32) for _ in range(2)]


def _added(sums: list[Register], more: list[Register]) -> list[Register]:
    return [a + b for a, b in zip(sums, more, strict=True)] if sums else more


def _rounded(value: Register) -> Register:
    """An f32 rounded to bf16, as f32."""
    word = reg.scalar(b32)
    ptx.inst("cvt.rn.bf16x2.f32", word, value, 0.0)
    return word.view(f32)


def _either(condition: Predicate, a: float, b: float) -> Register:
    return ptx.select(condition, reg.scalar(f32, init=a), b)


def _finite(largest: Register) -> Register:
    return ptx.select(largest == -math.inf, 0.0, largest)
