"""Fences: no effect on values, because the memory of one GPU is in program order already. PTX ISA 9.7.13.4.

A fence at .sys scope orders data in flight between GPUs. Fences are reported to observers, whose clocks they move.
"""

from __future__ import annotations

from ...errors import MisalignedError, VerificationError
from ...isa import effects
from ...isa.tensor_map import MAP_BYTES
from ..machine.frame import Frame
from ..program.decode import Decode
from ..program.handlers import Handlers, Step

HANDLERS = Handlers()
MAP_ALIGNMENT = 64


@HANDLERS.add(
    "fence.membar",
    "fence.membar_proxy",
    "fence.scope",
    "fence.acquire_restricted",
    "fence.release_restricted",
    "fence.mbarrier_init",
    "fence.proxy_alias",
    "fence.proxy_async",
    "fence.proxy_async_acquire",
    "fence.proxy_async_release",
    "fence.proxy_tensormap_release",
)
def fence(d: Decode) -> Step:
    memory = [one.order for one in d.operation.effects if isinstance(one, effects.Fences) and one.kind == "memory"]
    of_system = any(order.scope == "sys" for order in memory)

    def step(frame: Frame) -> None:
        if of_system and frame.machine.links is not None:
            frame.machine.links.fence(frame.cta.device.index)
        for listener in frame.machine.events.fenced:
            listener(frame, None)

    return step


@HANDLERS.add("fence.proxy_tensormap_acquire")
def acquire_map(d: Decode) -> Step:
    if d.constant("size") != MAP_BYTES:
        d.error(VerificationError, "a tensormap fence covers one map", expected=f"{MAP_BYTES} bytes")
    address = d.address("a")

    def step(frame: Frame) -> None:
        places = address.compute(frame)
        for lane in frame.active_lanes:
            if int(places[lane]) % MAP_ALIGNMENT:
                frame.error(
                    MisalignedError,
                    f"a tensormap fence at {int(places[lane]):#x}",
                    int(lane),
                    expected=f"a multiple of {MAP_ALIGNMENT}",
                )
        for listener in frame.machine.events.fenced:
            listener(frame, places)

    return step
