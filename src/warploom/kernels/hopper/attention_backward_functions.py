"""Functions of scores and masks in the gradient kernels: P of the modified scores, and the gradients of the scores.

For t = score_mod(s) of a score s = scale Q K, P = 2^(log2(e) t - lse2) where a query sees a key, else 0. The gradient
of s is dS = P (dP - delta) t'(s). Both are computed elementwise when S and dP are complete, and overwrite their
registers. If a function reads arrays whose gradients are wanted, P takes the place of t at once, while what it read of
them is still in registers (`weigh`, `attention_backward_reads`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ...isa.dtypes import s32
from ...lang import ptx
from ...lang.dependence import Dependence
from ...lang.predicate import Predicate
from ...lang.tile import ArrayHandle
from ...lang.trace import Trace
from ...lang.values import Register
from .attention_backward_reads import KEY, QUERY, ReadSums
from .attention_backward_rows import weight
from .attention_config import Attention


@dataclass
class ScorePosition:
    """The query and key of a fragment's register, s32; both may be out of bounds."""

    query: Register
    key: Register


class ScoreFunctions:
    """The functions of a kernel.

    Args:
        of: the attention problem; it has a function of scores, of masks, or both.
        call: the kernel's arguments.
        batch: index of the batch, s32.
    """

    def __init__(self, of: Attention, call: dict[str, Any], batch: Register) -> None:
        self.of, self.call, self.batch = of, call, batch
        self.queries, self.keys = call["Q"].shape[1].view(s32), call["K"].shape[1].view(s32)

    def apply(
        self,
        scores: Any,
        gradients: Any,
        head: Register,
        at: Callable[[int], ScorePosition],
        delta: Callable[[int], Register] | None,
    ) -> None:
        """Replace scores by t, or by -inf where a query does not see a key, and gradients by (dP - delta) t'(s).

        head: s32. at, delta: give the indices and delta of each register; without `delta`, no gradients are computed.
        Indices out of bounds are clamped before the functions see them; a query that does not exist sees no key. With
        lists, `hide` says what is seen.
        """
        for index, score in enumerate(scores):
            exists, where = self._place(at(index), head)
            if delta is not None:
                gradients[index].set(gradients[index] - delta(index))
            if self.of.score_mod is not None:
                handles = self._handles("score")
                given = self._unscaled(score)
                if delta is None:
                    value = self.of.score_mod.apply(handles, given, *where)
                else:
                    value, slope = self.of.score_mod.derive(handles, given, *where)
                    gradients[index].set(gradients[index] * slope.floating())
                score.set(value.floating())
            if not self.of.block_mask:
                exists = self._seen(exists, where)
                score.set(ptx.select(exists, score, float("-inf")))

    def hide(self, scores: Any, head: Register, at: Callable[[int], ScorePosition]) -> None:
        """Replace scores by -inf where a query does not see a key, or does not exist."""
        for index, score in enumerate(scores):
            exists = self._seen(*self._place(at(index), head))
            score.set(ptx.select(exists, score, float("-inf")))

    def weigh(
        self,
        scores: Any,
        gradients: Any,
        head: Register,
        at: Callable[[int], ScorePosition],
        rows: Iterator[tuple[Register, Register]],
        sees: Callable[[int], Predicate] | None,
        partly: Predicate | None = None,
    ) -> None:
        """Replace scores by P, and gradients by (dP - delta) t'(s); add to the gradients of what the function reads.

        rows: lse2 and delta of each register in turn. sees: false where a query does not see a key; by default all
        that the function of masks lets it see. partly: where this is false, the function of masks is not asked.
        """
        function = self.of.score_mod
        assert function is not None
        sums = ReadSums(self.call)
        for index, (score, (lse2, delta)) in enumerate(zip(scores, rows, strict=True)):
            exists, where = self._place(at(index), head)
            gradient = gradients[index] - delta
            given = self._unscaled(score)
            statements = Trace.current().statements
            begin = len(statements)
            value, slope, reads = function.derive_reads(self._handles("score"), given, *where)
            variables = {where[2]: QUERY, where[3]: KEY, given: QUERY | KEY}
            dependence = Dependence(statements[begin:], variables)
            exists = self._seen(exists, where, partly)
            if sees is not None:
                exists = exists & sees(index)
            seen = ptx.select(exists, value.floating(), float("-inf"))
            score.set(weight(seen, self.call["scale"], lse2))
            sums.add(index, score, gradient, reads, dependence)
            gradients[index].set(gradient * slope.floating())
        sums.finish()

    def _unscaled(self, score: Any) -> Any:
        """A score as the function takes it."""
        return score * self.call["inner"]

    def _seen(self, exists: Predicate, where: list[Register], partly: Predicate | None = None) -> Predicate:
        """Whether a query that exists also sees the key."""
        if self.of.mask_mod is None:
            return exists
        sees = self.of.mask_mod.sees(self._handles("mask"), *where)
        return exists & (sees if partly is None else sees | ~partly)

    def _place(self, position: ScorePosition, head: Register) -> tuple[Predicate, list[Register]]:
        """Whether the query exists, and what the functions are called with beside a score."""
        exists = position.query < self.queries
        query = ptx.math.min(position.query, self.queries - 1)
        return exists, [self.batch, head, query, ptx.math.min(position.key, self.keys - 1)]

    def _handles(self, kind: str) -> list[ArrayHandle]:
        return [handle for name, handle in self.call.items() if name.startswith(f"{kind}_")]
