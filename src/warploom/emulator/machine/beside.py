"""Interfaces of the units that run beside the warps of a machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import random

    from .machine import Cluster, Device, Warp


class Engine(Protocol):
    """The interface of `engines.engine`, which performs asynchronous operations, for the machine's parts.

    `signalling`: the operation that is signalling; `policy`: the schedule; `random`: from its seed.
    """

    signalling: Any
    policy: str
    random: random.Random

    @property
    def in_flight(self) -> int: ...

    def submit(self, operation: Any) -> Any: ...
    def pending(self) -> Iterator[Any]: ...
    def advance(self) -> bool: ...
    def take_effect(self, operation: Any) -> None: ...
    def finish(self, operation: Any) -> None: ...
    def drain(self) -> None: ...
    def drain_cluster(self, cluster: Cluster) -> None: ...
    def warp_exited(self, warp: Warp) -> None: ...
    def describe_pending(self) -> tuple[str, ...]: ...


class Streams(Protocol):
    """The interface of copies that run beside the kernel (`copy_streams`), for the machine's parts."""

    def over(self, device: Device) -> bool: ...
    def advance(self, idle: bool) -> bool: ...
