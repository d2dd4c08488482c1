"""Functions of scores and masks as arguments of a kernel: in its subject, and with the arrays that they capture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...errors import ArgumentError
from ...kernels.hopper.attention_config import LOG2_E, Attention
from ...runtime.arrays import ArrayView
from ..dispatch_hook import refuse_gradients
from ..views import restrided
from .captured import Contents, prepared, read, spanned


def with_functions(
    of: Attention, numbers: dict[str, float], views: dict[str, ArrayView], score_mod: Any, mask_mod: Any,
    contents: Mapping[str, Contents],
) -> tuple[Attention, dict[str, float]]:  # fmt: skip
    """Return the subject and scalars with score and mask functions; captured arrays are added to `views`.

    contents: the functions by "score_mod" and "mask_mod", if they were read. Raises ArgumentError, ArgumentTypeError.
    """
    for name, function in (("score", score_mod), ("mask", mask_mod)):
        if function is None:
            continue
        found = prepared(contents.get(f"{name}_mod") or read(function, f"{name}_mod"))
        refuse_gradients({f"an array that {name}_mod captures": array for array in found.given})
        of = replace(of, score_mod=found.function) if name == "score" else replace(of, mask_mod=found.function)
        for number, array in enumerate(found.arrays):
            if (array.device, array.index) != (views["q"].device, views["q"].index):
                raise ArgumentError(
                    f"`{name}_mod` captures an array on another device", expected=views["q"].place, got=array.place
                )
            views[f"{name}_{number}"] = restrided(array, (spanned(array),), (array.dtype.bytes,))
    if score_mod is not None:
        numbers = numbers | {"scale": LOG2_E, "inner": numbers["scale"] / LOG2_E}
    return of, numbers
