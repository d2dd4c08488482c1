"""Run cases on the GPU: many kernels per module, each launched through the driver.

A launch that faults destroys the process's context, and one that hangs never ends, so `record.py` runs this in child
processes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from warploom.driver import compile as compiler
from warploom.driver import library, tensor_map
from warploom.driver.launch import PreparedLaunch
from warploom.driver.module import modules
from warploom.errors import WarploomError

from .case import UNSIGNED, Argument, Array, Block, Case, Map, Scalar, module_text

_ALIGN = 4096
_PER_MODULE = 48


@dataclass(frozen=True)
class Built:
    """A module with kernels `c0`, `c1`, … for these cases; `error` where ptxas refused it (then of one case)."""

    cases: tuple[Case, ...]
    build: compiler.Build | None
    error: str = ""


def build(cases: Sequence[Case], workers: int, progress: Callable[[int], None] = lambda count: None) -> list[Built]:
    """Assemble all cases; a module that ptxas refuses is split until the refused case stands alone."""
    groups: list[tuple[Case, ...]] = []
    for target in dict.fromkeys(case.target for case in cases):
        own = [case for case in cases if case.target == target]
        groups += [tuple(own[at : at + _PER_MODULE]) for at in range(0, len(own), _PER_MODULE)]
    built: list[Built] = []
    with ThreadPoolExecutor(workers) as pool:
        for parts in pool.map(_build, groups):
            built += parts
            progress(sum(len(part.cases) for part in built))
    return built


def _build(cases: tuple[Case, ...]) -> list[Built]:
    # code for the GPU at hand, whatever target the text names
    try:
        arch = "sm_90a" if cases[0].target == "sm_90a" else "sm_90"
        return [Built(cases, compiler.build(module_text(cases), arch=arch, name="conformance", allow_spills=True))]
    except WarploomError as error:
        if len(cases) == 1:
            return [Built(cases, None, str(error))]
        half = len(cases) // 2
        return [*_build(cases[:half]), *_build(cases[half:])]


class Gpu:
    """GPU 0 with room for the buffers of one case at a time."""

    def __init__(self, room: int = 64 << 20) -> None:
        self.library = library.load()
        self.library.call("cuCtxSetCurrent", self.library.cuda.CUcontext(self.library.primary_context(0)))
        self._start = int(self.library.call("cuMemAlloc", room, doing="making room for the buffers"))
        self._room = room

    def run(self, built: Built, number: int) -> dict[str, np.ndarray]:
        """Case `number` of a module: the result buffers by argument number, flat and as raw bits."""
        assert built.build is not None
        case = built.cases[number]
        arguments = case.arguments()
        places, parameters = self._bind(arguments)
        size = math.prod(case.cluster_shape)
        kernel = modules().kernel(built.build, f"c{number}", 0, 0, case.dynamic_smem, size)
        PreparedLaunch(
            kernel, case.ctas, case.block, case.cluster_shape, case.dynamic_smem, parameters,
            describe=case.name,
        )(0)  # fmt: skip
        self.library.synchronize(0)
        found = {}
        for index, (argument, place) in enumerate(zip(arguments, places, strict=True)):
            if isinstance(argument, (Array, Map)) and argument.output:
                data = np.ascontiguousarray(argument.data)
                room = np.zeros_like(data)
                self.library.call("cuMemcpyDtoH", room.ctypes.data, self.library.cuda.CUdeviceptr(place), room.nbytes)
                found[str(index)] = room.view(UNSIGNED[room.itemsize])
        return found

    def _bind(self, arguments: Sequence[Argument]) -> tuple[list[int], list[bytes]]:
        places, parameters, at = [], [], self._start
        for argument in arguments:
            if isinstance(argument, (Scalar, Block)):
                places.append(0)
                by_value = isinstance(argument, Block)
                parameters.append(argument.data if by_value else (argument.value & 0xFFFFFFFF).to_bytes(4, "little"))
                continue
            data = np.ascontiguousarray(argument.data)
            self.library.call("cuMemcpyHtoD", self.library.cuda.CUdeviceptr(at), data.ctypes.data, data.nbytes)
            places.append(at)
            if isinstance(argument, Array):
                parameters.append(at.to_bytes(8, "little"))
            else:
                parameters.append(tensor_map.encode(argument.spec, at))
            at += -(-data.nbytes // _ALIGN) * _ALIGN + _ALIGN
            if at > self._start + self._room:
                raise ValueError(f"the buffers of a case need more than {self._room} bytes")
        return places, parameters
