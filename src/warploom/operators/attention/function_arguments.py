"""Functions of scores and masks as arguments of a kernel: in its subject, and with the arrays that they capture."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ...errors import ArgumentError, OutOfBoundsError
from ...kernels.hopper import attention_functions
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


@contextmanager
def naming_captured(of: Any) -> Iterator[None]:
    """Where emulation stops at a read outside of a captured array, name the array and the caller's function instead of
    the kernel's parameter and the line that emits all such reads."""
    try:
        yield
    except OutOfBoundsError as error:
        found = re.search(r"\b(score|mask)_(\d+)\b", error.what)
        reads = attention_functions.__name__.rpartition(".")[2]
        function = None if found is None else getattr(of, f"{found[1]}_mod", None)
        if found is None or function is None or reads not in str(error.where):
            raise
        dtype, shape, _ = function.arrays[int(found[2])]
        array = f"the captured array of {dtype} with the shape {shape}"
        error.what = f"{found[1]}_mod reads outside of an array: {error.what.replace(found[0], array)}"
        error.where = function.where or error.where
        error.hint = "the function is called with each query and key: clamp the index, or make the array as long"
        raise
