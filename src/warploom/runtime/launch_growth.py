"""Launches over arrays that grow: a cache with one token more differs from the last call's in one dimension only.

Arrays of a call that share a length T are told apart from calls with another T by their layout without it: sizes, and
strides divided by T if they step over it. The launch for another T is that of the first one with T and the tensor maps
of these arrays replaced. Calls whose T is in the same `STEP` use the same kernel and configuration.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..isa.tensor_map import TensorMapSpec
from .arrays import contiguous_strides
from .launch_template import Kind, Launched

STEP = 256
"""Lengths per choice of a kernel."""


def without_length(facts: Sequence[tuple[Any, ...]], axes: Mapping[int, int]) -> tuple[Any, int] | None:
    """The facts of a call's tensors (`LaunchCache`) without the length that some share, and the length; None if they
    do not share one, or their memory is not a multiple of it.

    axes: the dimension of the length, by the index of the tensor.
    """
    length, found = 0, list(facts)
    for at, axis in axes.items():
        shape, dtype, strides, *rest = facts[at]
        here = shape[axis]
        steps = contiguous_strides(shape, 1) if strides is True else strides
        over = [step > steps[axis] for step in steps]
        if here < 2 or here != (length or here) or any(step % here for step, on in zip(steps, over, strict=True) if on):
            return None
        length = here
        reduced = tuple(step // here if on else step for step, on in zip(steps, over, strict=True))
        found[at] = (shape[:axis], shape[axis + 1 :], dtype, reduced, tuple(over), *rest)
    return (length // STEP, *found), length


class Growth:
    """A call that others may differ from by the length of some arrays.

    Args:
        launched: its launch.
        dimension: the program's name of the length.
        length: in this call.
        kind: of this call.
    """

    def __init__(self, launched: Launched, dimension: str, length: int, kind: Kind) -> None:
        self.length, self.kind = length, kind
        self.recent: deque[Any] = deque()  # keys of the last kinds of other lengths
        shapes = {spec.name: spec.shape for spec in launched.program.arrays}
        self.sizes, self.maps = [], {}
        for number, parameter in enumerate(launched.program.parameters):
            if parameter.kind == "scalar" and parameter.source == dimension and parameter.dtype is not None:
                self.sizes.append((number, parameter.dtype.numpy.type))
            elif parameter.kind == "tensor_map" and dimension in (shape := shapes[parameter.source]):
                self.maps[number] = len(shape) - 1 - shape.index(dimension)

    def at(self, length: int, spans: tuple[int, ...]) -> Kind:
        """The kind of calls with another length. spans: of the tensors that the caller passes, as in `Kind`."""
        known, (moving,) = self.kind, self.kind.launches
        changes = {number: number_type(length).tobytes() for number, number_type in self.sizes}
        patches = [
            replace(each, spec=self._resized(each.spec, self.maps[each.parameter], length))
            if each.spec is not None and each.parameter in self.maps else each
            for each in moving.patches
        ]  # fmt: skip
        launches = (moving.changed(changes, patches),)
        spans += known.spans[len(spans) :]
        return Kind(launches, spans, known.written, known.makes, known.device, known.stream)

    def _resized(self, spec: TensorMapSpec, axis: int, length: int) -> TensorMapSpec:
        over = spec.strides[axis - 1]
        steps = tuple(step // self.length * length if step > over else step for step in spec.strides)
        return replace(spec, dims=(*spec.dims[:axis], length, *spec.dims[axis + 1 :]), strides=steps)
