"""The launches of a call, ready to be repeated: unchanged, or on other memory of the same kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ..isa.tensor_map import TensorMapSpec
from .arrays import ArrayView

if TYPE_CHECKING:
    from ..driver.launch import PreparedLaunch
    from .program import Program


@dataclass(frozen=True)
class Launched:
    """One launch that ran on a GPU.

    Attributes:
        program: what was launched.
        launch: ready to be repeated.
        sources: the program's names of its arrays.
        arrays: for each, the call's argument that it views; None for a buffer that the library owns.
        views: the views.
    """

    program: Program
    launch: PreparedLaunch
    sources: tuple[str, ...]
    arrays: tuple[str | None, ...]
    views: tuple[ArrayView, ...]


class LaunchSequence:
    """The launches of one call, in order, as one launch."""

    def __init__(self, launches: tuple[PreparedLaunch, ...]) -> None:
        self.launches = launches
        self.calls: dict[int, Callable[[], Any]] = {}

    def __call__(self, stream: int) -> None:
        """Enqueue all of them. Raises DriverError if the driver rejects one."""
        for launch in self.launches:
            launch(stream)
        self.calls.setdefault(stream, partial(self._again, stream))

    def _again(self, stream: int) -> int:
        for launch in self.launches:
            launch(stream)
        return 0

    def check(self, status: int, stream: int) -> None:
        """Do nothing: each launch checked its own status."""


class OtherStreamError(KeyError):
    """A launch with memory that belongs to one stream was requested in another, or during a graph capture."""


class SingleStreamLaunch:
    """A launch whose arguments include the library's memory, which only calls in one stream may share.

    A graph may run in any stream, so it never gets such a launch.
    """

    def __init__(self, launch: PreparedLaunch | LaunchSequence, stream: int) -> None:
        self.launch, self.stream = launch, stream
        self.calls: dict[int, Callable[[], Any]] = {}  # stays empty, so that each call checks first

    def __call__(self, stream: int) -> None:
        """Enqueue it. Raises OtherStreamError."""
        from ..driver import library

        if stream != self.stream or library.load().is_capturing(stream):
            raise OtherStreamError(stream)
        self.launch(stream)

    def check(self, status: int, stream: int) -> None:
        """As in the launch."""
        self.launch.check(status, stream)


Launch: TypeAlias = "PreparedLaunch | LaunchSequence | SingleStreamLaunch"


@dataclass(frozen=True)
class Patch:
    """A parameter that depends on an address.

    Attributes:
        parameter: its index.
        tensor: the index of the call's tensor; outputs come last.
        offset: bytes from the tensor's first element.
        spec: for a tensor map; None for a pointer.
    """

    parameter: int
    tensor: int
    offset: int
    spec: TensorMapSpec | None


@dataclass(frozen=True)
class Template:
    """A launch, and how it depends on addresses."""

    launch: PreparedLaunch
    patches: tuple[Patch, ...]

    @classmethod
    def of(cls, made: Launched, order: Mapping[str, int], pointers: Sequence[int]) -> Template:
        """The template of a launch. order: the index into the call's `pointers`, by argument name."""
        position = {source: at for at, source in enumerate(made.sources)}
        patches = []
        for number, parameter in enumerate(made.program.parameters):
            at = position.get(parameter.source)
            if parameter.kind not in ("pointer", "tensor_map") or at is None:
                continue
            name = made.arrays[at]
            if name is None:
                continue  # the library's own memory does not move
            view, tensor = made.views[at], order[name]
            spec = parameter.map(view.shape, view.strides, view.dtype) if parameter.map is not None else None
            patches.append(Patch(number, tensor, view.pointer - pointers[tensor], spec))
        return cls(made.launch, tuple(patches))

    def at(self, pointers: Sequence[int]) -> PreparedLaunch:
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
    """What all calls with tensors of one kind share.

    Attributes:
        templates: the launches of such a call.
        spans: for each tensor, outputs last, the bytes from its first element to the end of its last.
        written: which of the tensors are written.
        out_facts: what an output passed by the caller must be, for each output.
        makes: for each output, the function that creates it; None if the launches need a layout that new arrays lack.
        device: of the tensors.
        stream: the only one in which such calls may be repeated, if they use the library's memory.
    """

    templates: tuple[Template, ...]
    spans: tuple[int, ...]
    written: tuple[int, ...]
    out_facts: tuple[tuple[Any, ...], ...]
    makes: tuple[Callable[[], Any], ...] | None
    device: int
    stream: int | None = None

    def at(self, pointers: tuple[int, ...]) -> Launch | None:
        """The launch for tensors at these addresses; None if a written tensor may overlap another one."""
        for out in self.written:
            start, end = pointers[out], pointers[out] + self.spans[out]
            for at, (pointer, span) in enumerate(zip(pointers, self.spans, strict=True)):
                if at != out and pointer < end and start < pointer + span:
                    return None
        return as_one(tuple(template.at(pointers) for template in self.templates), self.stream)


def as_one(launches: tuple[PreparedLaunch, ...], stream: int | None) -> Launch:
    """The launches of a call as one; bound to a stream if one is given."""
    one = launches[0] if len(launches) == 1 else LaunchSequence(launches)
    return one if stream is None else SingleStreamLaunch(one, stream)
