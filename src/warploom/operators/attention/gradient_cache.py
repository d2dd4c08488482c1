"""Repeated calls of attention's gradients: their launches, by the kinds of their tensors.

All that the launches write is new in each call: the gradients, what each row needs, and the workspace. So a repeated
call allocates these, and starts the kernels without checking its arguments again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...runtime.launch_cache import LaunchCache
from ...runtime.launch_template import Launched
from .calls import hashed

CACHE = LaunchCache(differentiable=True)
"""The launches of the gradients."""
TENSORS = ("Q", "K", "V", "O", "LSE", "dO", "dLSE")
"""The kernels' names of a call's tensors, in the order of `again`."""


def static_of(tensors: Mapping[str, Any], choice: Any, options: Mapping[str, Any], functions: Any) -> Any:
    """The cache key of a call without its tensors; None for a call that is not cached. functions: their part of it."""
    if len(tensors) != 3:
        return None
    rest = {name: hashed(value) for name, value in options.items()}
    return (choice, functions, *sorted(rest.items()))


def again(static: Any, tensors: Sequence[Any]) -> tuple[Any, ...] | None:
    """What a repeated call writes, in the order in which it was remembered; None if the call is new."""
    if static is None:
        return None
    try:
        return CACHE.again(static, tensors)
    except TypeError:  # an unhashable option: the checks will report it
        return None


def remember(
    static: Any, tensors: Sequence[Any], captured: Mapping[str, Any], written: Mapping[str, Any],
    launched: Sequence[Launched] | None,
) -> None:  # fmt: skip
    """Remember a call by the arrays that its kernels write, by the kernels' names. captured: by functions, the last
    tensors in `again`."""
    if static is not None and launched:
        CACHE.remember(static, dict(zip(TENSORS, tensors, strict=False)) | dict(captured), written, launched)
