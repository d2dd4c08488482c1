"""Functions of scores and masks in the kernels for gradients: P of modified scores, and what the scores themselves get.

With t = score_mod(s) of a score s = scale Q K, P = 2^(log2(e) t - lse2) where a query sees a key and 0 where it does
not, and s gets dS = P (dP - delta) t'(s). Both are computed score by score, when S and dP have arrived, into the
registers in which these came.
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
class At:
    """Where a register of a fragment is: a query and a key, s32, which may be outside of the arrays."""

    query: Register
    key: Register


class Modified:
    """The functions of a kernel.

    Args:
        of: what the kernel is for; it has a function of scores, of masks, or both.
        call: the kernel's arguments.
        batch: s32.
    """

    def __init__(self, of: Attention, call: dict[str, Any], batch: Register) -> None:
        self.of, self.call, self.batch = of, call, batch
        self.queries, self.keys = call["Q"].shape[1].view(s32), call["K"].shape[1].view(s32)

    def apply(
        self,
        scores: Any,
        gradients: Any,
        head: Register,
        at: Callable[[int], At],
        delta: Callable[[int], Register] | None,
    ) -> None:
        """Scores become t, or -inf where a query does not see a key; gradients (dP - delta) t'(s).

        head: s32; at, delta: of each register. Without `delta` gradients are not wanted. Places outside of the arrays
        are moved to their edges for the functions; a query that does not exist sees nothing.
        """
        for index, score in enumerate(scores):
            place = at(index)
            exists = place.query < self.queries
            where = [
                self.batch,
                head,
                ptx.math.min(place.query, self.queries - 1),
                ptx.math.min(place.key, self.keys - 1),
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
    """P times what it is multiplied by: 0 where P is, whatever a function has made of a place that nobody sees."""
    return ptx.select(p == 0.0, 0.0, p * gradient)
