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


def static_of(tensors: Mapping[str, Any], choice: Any, options: Mapping[str, Any]) -> Any:
    """The cache key of a call without its tensors; None for a call that is not cached."""
    functions = ("score_mod", "mask_mod", "block_mask")
    if any(options.get(name) is not None for name in functions) or len(tensors) != 3:
        return None
    rest = {name: hashed(value) for name, value in options.items() if name not in functions}
    return (choice, *sorted(rest.items()))


def again(static: Any, tensors: Sequence[Any]) -> tuple[Any, ...] | None:
    """What a repeated call writes, in the order in which it was remembered; None if the call is new."""
    if static is None:
        return None
    try:
        return CACHE.again(static, tensors)
    except TypeError:  # an unhashable option: the checks will report it
        return None


def remember(
    static: Any, tensors: Sequence[Any], written: Mapping[str, Any], launched: Sequence[Launched] | None
) -> None:  # fmt: skip
    """Remember a call by the arrays that its kernels write, by the kernels' names."""
    if static is not None and launched:
        CACHE.remember(static, dict(zip(TENSORS, tensors, strict=False)), written, launched)
