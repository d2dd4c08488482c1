"""Roles of single warps next to a warpgroup that stores, as in a Blackwell kernel.

warp 0      load        one thread: TMA
warp 1      multiply    one thread: tcgen05.mma
warp 2      schedule    one thread: cluster launch control, if used
warps 4-7   epilogue    128 threads: tensor memory to global memory
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...lang import ptx
from ...lang.protocol import Role
from ...lang.trace import Trace
from .roles import WARP, WARPGROUP
from .sizes import ROLE_THREADS

LOAD, MULTIPLY, SCHEDULE = 0, 1, 2
THREADS = ROLE_THREADS
REGISTERS = 128
"""Registers per thread; with one CTA per SM, 255 would fit."""


@contextmanager
def one_thread(name: str, warp: int) -> Iterator[None]:
    """The first thread of a warp runs the block, after the warp has synchronised, so that it acts for all its lanes."""
    Trace.current().protocol.roles.append(Role(name, f"warp {warp}, its first thread", None, (warp, warp)))
    ptx.inst.bar.warp.sync(-1)
    with ptx.if_(ptx.special.tid.x() == warp * WARP):
        yield


@contextmanager
def epilogue() -> Iterator[None]:
    """The second warpgroup runs the block."""
    Trace.current().protocol.roles.append(Role("epilogue", "warpgroup 1", None, (4, 7), 4))
    with ptx.if_(ptx.special.tid.x() >= WARPGROUP):
        yield
