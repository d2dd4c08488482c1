"""The launches of a call, ready to be repeated: unchanged, or on other memory of the same kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from .arrays import ArrayView

if TYPE_CHECKING:
    from ..driver.launch import PreparedLaunch
    from ..driver.moving_launch import MovingLaunch
    from .program import Program

MOST_ADDRESSES = 1024
"""Sets of addresses of one kind that are remembered to notice that they come again."""


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

    def moving(self, order: Mapping[str, int], pointers: Sequence[int]) -> MovingLaunch:
        """The same for tensors elsewhere. order: the index into the call's `pointers`, by argument name."""
        from ..driver.moving_launch import MovingLaunch, Patch

        position = {source: at for at, source in enumerate(self.sources)}
        patches = []
        for number, parameter in enumerate(self.program.parameters):
            at = position.get(parameter.source)
            if parameter.kind not in ("pointer", "tensor_map") or at is None:
                continue
            name = self.arrays[at]
            if name is None:
                continue  # the library's own memory does not move
            view, tensor = self.views[at], order[name]
            spec = parameter.map(view.shape, view.strides, view.dtype) if parameter.map is not None else None
            patches.append(Patch(number, tensor, view.pointer - pointers[tensor], spec))
        return MovingLaunch(self.launch, patches, len(pointers), pointers)


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
        if stream != self.stream or is_capturing(stream):
            raise OtherStreamError(stream)
        self.launch(stream)

    def check(self, status: int, stream: int) -> None:
        """As in the launch."""
        self.launch.check(status, stream)


Launch: TypeAlias = "PreparedLaunch | LaunchSequence | SingleStreamLaunch"


def is_capturing(stream: int) -> bool:
    """True while a graph is captured from a stream."""
    from ..driver import library

    return library.load().is_capturing(stream)


class Kind:
    """What all calls with tensors of one kind share.

    Args:
        launches: the launches of such a call.
        spans: for each tensor, outputs last, the bytes from its first element to the end of its last.
        written: which of the tensors that the caller passes are written.
        makes: for each output that is created, the function that creates it.
        device: of the tensors.
        stream: the only one in which such calls may be repeated, if they use the library's memory.
    """

    __slots__ = ("addresses", "device", "launches", "makes", "spans", "stream", "uses", "written")

    def __init__(
        self, launches: tuple[MovingLaunch, ...], spans: tuple[int, ...], written: tuple[int, ...],
        makes: tuple[Callable[[], Any], ...], device: int, stream: int | None = None,
    ) -> None:  # fmt: skip
        self.launches, self.spans, self.written, self.makes = launches, spans, written, makes
        self.device, self.stream = device, stream
        self.uses = 0
        self.addresses: set[tuple[int, ...]] = set()

    def run(self, pointers: Sequence[int], stream: int) -> bool:
        """Enqueue the launches for tensors at these addresses; False if the full path must decide."""
        if self.stream is not None and (stream != self.stream or is_capturing(stream)):
            return False
        for launch in self.launches:
            launch.run(pointers, stream)
        return True

    def overlap(self, pointers: Sequence[int]) -> bool:
        """True if a written tensor may overlap another one. Created outputs, which are missing here, never do."""
        for out in self.written:
            start, end = pointers[out], pointers[out] + self.spans[out]
            for at, pointer in enumerate(pointers):
                if at != out and pointer < end and start < pointer + self.spans[at]:
                    return True
        return False

    def repeated(self, pointers: tuple[int, ...]) -> bool:
        """True if a call had these addresses before."""
        if pointers in self.addresses:
            return True
        if len(self.addresses) >= MOST_ADDRESSES:
            self.addresses.clear()
        self.addresses.add(pointers)
        return False

    def fixed(self, pointers: Sequence[int]) -> Launch:
        """The launch for these addresses alone."""
        launches = tuple(launch.at(pointers) for launch in self.launches)
        one = launches[0] if len(launches) == 1 else LaunchSequence(launches)
        return one if self.stream is None else SingleStreamLaunch(one, self.stream)
