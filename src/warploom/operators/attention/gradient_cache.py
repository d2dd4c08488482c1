"""Repeated calls of attention's gradients: their launches, by the kinds of their tensors.

All that the launches write is new in each call: the gradients, what each row needs, and the workspace. So a repeated
call allocates these, and starts the kernels without checking its arguments again. Of packed sequences, a launch depends
on how many there are; where they end is read from memory, by the kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...runtime.launch_cache import LaunchCache
from ...runtime.launch_template import Launched
from .calls import hashed

CACHE = LaunchCache(differentiable=True)
"""The launches of the gradients."""
NAMES = {"q": "Q", "k": "K", "v": "V", "cu_seqlens_q": "q_ends", "cu_seqlens_k": "k_ends", "sinks": "sinks"}
"""The kernels' names of a call's tensors; those of sinks do not take them, which are only checked."""
GIVEN = ("O", "LSE", "dO", "dLSE")
"""The kernels' names of what follows them: the call's results, and the gradients of these."""
GRADIENTS = ("dQ", "dK", "dV")


@dataclass(frozen=True)
class Known:
    """A call of gradients, as the cache knows it.

    Attributes:
        static: all but the tensors.
        tensors: by the kernels' names.
        cleared: what the launches write only in part; the rest is 0.
    """

    static: tuple[Any, ...]
    tensors: dict[str, Any]
    cleared: tuple[str, ...] = ()

    def again(self) -> tuple[Any, ...] | None:
        """What a repeated call writes, in the order in which it was remembered; None if the call is new."""
        try:
            return CACHE.again(self.static, tuple(self.tensors.values()))
        except TypeError:  # an unhashable option: the checks will report it
            return None

    def beside(self, tensors: Mapping[str, Any]) -> Known:
        """The same call with more tensors, by the kernels' names."""
        return replace(self, static=(*self.static, *tensors), tensors=self.tensors | dict(tensors))

    def remember(self, written: Mapping[str, Any], launched: Sequence[Launched] | None) -> None:
        """Remember the launches by the arrays that they write, by the kernels' names."""
        if launched:
            CACHE.remember(self.static, self.tensors, written, launched, cleared=self.cleared)


def known(
    tensors: Mapping[str, Any], given: Sequence[Any], choice: Any, options: Mapping[str, Any], functions: Any = (),
    captured: Mapping[str, Any] | None = None,
) -> Known:  # fmt: skip
    """The call of these tensors.

    given: results and their gradients, in the order of `GIVEN`. functions: what the launches depend on of functions and
    masks; captured: their arrays, by the kernels' names.
    """
    named = {NAMES[name]: tensor for name, tensor in tensors.items()} | dict(zip(GIVEN, given, strict=False))
    named |= captured or {}
    rest = sorted((name, hashed(value)) for name, value in options.items())
    packed = GRADIENTS if "q_ends" in named else ()  # no kernel writes rows after the last sequence
    return Known((choice, functions, *rest, *named), named, packed)
