"""Functions of scores and masks in the gradient kernels: P of the modified scores, and the gradients of the scores.

For t = score_mod(s) of a score s = scale Q K, P = 2^(log2(e) t - lse2) where a query sees a key, else 0. The gradient
of s is dS = P (dP - delta) t'(s). Both are computed elementwise when S and dP are complete, and overwrite their
registers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...isa.dtypes import s32
from ...lang import ptx
from ...lang.tile import ArrayHandle
from ...lang.values import Register
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
        Indices out of bounds are clamped before the functions see them; a query that does not exist sees no key.
        """
        for index, score in enumerate(scores):
            position = at(index)
            exists = position.query < self.queries
            where = [
                self.batch,
                head,
                ptx.math.min(position.query, self.queries - 1),
                ptx.math.min(position.key, self.keys - 1),
            ]
            if delta is not None:
                gradients[index].set(gradients[index] - delta(index))
            if self.of.score_mod is not None:
                handles = self._handles("score")
                given = score * self.call["inner"]
                if delta is None:
                    value = self.of.score_mod.apply(handles, given, *where)
                else:
                    value, slope = self.of.score_mod.derive(handles, given, *where)
                    gradients[index].set(gradients[index] * slope.floating())
                score.set(value.floating())
            if self.of.mask_mod is not None:
                exists = exists & self.of.mask_mod.apply(self._handles("mask"), *where).truth()
            score.set(ptx.select(exists, score, float("-inf")))

    def _handles(self, kind: str) -> list[ArrayHandle]:
        return [handle for name, handle in self.call.items() if name.startswith(f"{kind}_")]


def weighted(p: Register, gradient: Register) -> Register:
    """P times a gradient; 0 where P is 0, even if a function gave inf or NaN for a masked score."""
    return ptx.select(p == 0.0, 0.0, p * gradient)
