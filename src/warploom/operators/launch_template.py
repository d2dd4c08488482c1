"""The launches of a call, kept so that they can run again: as they are, or on other memory of the same kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..driver.launch import PreparedLaunch
from ..isa.tensor_map import TensorMapSpec


class Several:
    """The launches of one call in order, as one."""

    def __init__(self, launches: tuple[PreparedLaunch, ...]) -> None:
        self.launches = launches
        self.calls: dict[int, Callable[[], Any]] = {}

    def __call__(self, stream: int) -> None:
        """Enqueue all of them. Raises DriverError where the driver refuses one."""
        for launch in self.launches:
            launch(stream)
        self.calls.setdefault(stream, partial(self._again, stream))

    def _again(self, stream: int) -> int:
        for launch in self.launches:
            launch(stream)
        return 0

    def check(self, status: int, stream: int) -> None:
        """Nothing is left to be checked: each launch did."""


class OtherStream(KeyError):
    """A launch with memory that belongs to one stream is asked for in another."""


class OfOneStream:
    """A launch with memory of ours in its arguments, which only calls in one stream may share."""

    def __init__(self, launch: PreparedLaunch | Several, stream: int) -> None:
        self.launch, self.stream = launch, stream
        self.calls: dict[int, Callable[[], Any]] = {}

    def __call__(self, stream: int) -> None:
        """Enqueue it. Raises OtherStream."""
        if stream != self.stream:
            raise OtherStream(stream)
        self.launch(stream)
        self.calls[stream] = self.launch.calls[stream]

    def check(self, status: int, stream: int) -> None:
        """As the launch's."""
        self.launch.check(status, stream)


@dataclass(frozen=True)
class Patch:
    """A parameter that names an address.

    Attributes:
        parameter: its number.
        tensor: which of the call's tensors; the output is the last.
        offset: bytes from the tensor's first element.
        spec: of a tensor map; None for a pointer.
    """

    parameter: int
    tensor: int
    offset: int
    spec: TensorMapSpec | None


@dataclass(frozen=True)
class Template:
    """A launch, and what of it depends on addresses."""

    launch: PreparedLaunch
    patches: tuple[Patch, ...]

    def at(self, pointers: tuple[int, ...]) -> PreparedLaunch:
        """The same launch on other memory."""
        from ..driver.tensor_map import encode

        changes = {}
        for patch in self.patches:
            address = pointers[patch.tensor] + patch.offset
            if patch.spec is None:
                changes[patch.parameter] = address.to_bytes(8, "little")
            else:
                changes[patch.parameter] = encode(patch.spec, address)
        return self.launch.with_values(changes)


@dataclass(frozen=True)
class Kind:
    """What is the same for all calls with tensors of one kind.

    Attributes:
        templates: the launches of such a call.
        spans: for each tensor, output last, the bytes from its first element to behind its last.
        out_facts: shape, dtype, strides and device of the output.
        make: makes an output.
        device: of the tensors.
        stream: the only one in which such calls may run again, where they need memory of ours.
    """

    templates: tuple[Template, ...]
    spans: tuple[int, ...]
    out_facts: tuple[Any, ...]
    make: Callable[[], Any]
    device: int
    stream: int | None = None

    def at(self, pointers: tuple[int, ...]) -> PreparedLaunch | Several | OfOneStream | None:
        """The launch for tensors at these addresses; None where the output may overlap another."""
        start, end = pointers[-1], pointers[-1] + self.spans[-1]
        for pointer, span in zip(pointers[:-1], self.spans[:-1], strict=True):
            if pointer < end and start < pointer + span:
                return None
        return together(tuple(template.at(pointers) for template in self.templates), self.stream)


def together(launches: tuple[PreparedLaunch, ...], stream: int | None) -> PreparedLaunch | Several | OfOneStream:
    """The launches of a call as one; bound to a stream where one is given."""
    one = launches[0] if len(launches) == 1 else Several(launches)
    return one if stream is None else OfOneStream(one, stream)


def template_of(each: Any, order: dict[str, int], pointers: tuple[int, ...]) -> Template:
    """What of a launch depends on addresses. order: which of the call's `pointers` an argument is, by its name."""
    position = {spec.name: at for at, spec in enumerate(each.program.arrays)}
    patches = []
    for number, parameter in enumerate(each.program.parameters):
        if parameter.kind not in ("pointer", "tensor_map"):
            continue
        at = position[parameter.source]
        if each.arrays[at] is None:
            continue  # memory of ours stays where it is
        view, tensor = each.views[at], order[each.arrays[at]]
        spec = parameter.map(view.shape, view.strides, view.dtype) if parameter.kind == "tensor_map" else None
        patches.append(Patch(number, tensor, view.pointer - pointers[tensor], spec))
    return Template(each.launch, tuple(patches))
