"""A mock GPU that executes its calls: the emulator behind the mock driver (fake_cuda.c).

`install()` makes a process take PyTorch's CPU tensors for a GPU's, and runs each launch in the emulator, at the very
addresses that the tensors have. FAKE_CUDA_CAPABILITY and FAKE_CUDA_SMS say what GPU it is. FAKE_CUDA_BROKEN is a
pattern: after a kernel of that name has run, one bit of what it wrote is wrong, as on a broken chip.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import traceback
import weakref
from collections.abc import Callable, Iterable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import torch

from warploom.driver import compile as compiler
from warploom.driver import library, tensor_map
from warploom.driver.launch import LaunchConfig
from warploom.driver.module import Modules
from warploom.emulator import api
from warploom.emulator.arguments import StructArgument
from warploom.emulator.engines import tma
from warploom.emulator.machine.memory import Allocation, GlobalMemory, Region
from warploom.emulator.machine.model import Model
from warploom.runtime import arrays
from warploom.runtime.loading import loaded

FAILED = 719
"""CUDA_ERROR_LAUNCH_FAILED."""
CLUSTER = 4
"""CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION."""
LAUNCHED = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(LaunchConfig), ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p)
)


class HostMemory(GlobalMemory):
    """Tensors of this process, at their own addresses."""

    def __init__(self, living: Iterable[torch.Tensor]) -> None:
        super().__init__()
        storages = {tensor.data_ptr(): tensor.untyped_storage() for tensor in living if tensor.numel()}
        held = {storage.data_ptr(): storage.nbytes() for storage in storages.values()}
        for base, size in sorted(held.items()):
            data = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(base))
            self.allocations.append(Allocation(base, Region(data, f"the tensor at {base:#x}")))
            self._bases.append(base)


class Living:
    """Finds the tensors that live in this process.

    The first search takes what it has looked through from the garbage collector's lists: what torch has imported is
    a million objects, through which every launch would look again. It begins with what a fork server has taken already.
    """

    def __init__(self) -> None:
        self.earlier: list[weakref.ref[torch.Tensor]] | None = None

    def tensors(self) -> list[torch.Tensor]:
        if first := self.earlier is None:
            gc.unfreeze()
        listed = [found for found in gc.get_objects() if issubclass(type(found), torch.Tensor)]
        if first:
            self.earlier = [weakref.ref(tensor) for tensor in listed]
            gc.freeze()
            return listed
        return [*(tensor for known in self.earlier if (tensor := known()) is not None), *listed]


class Executor:
    """What the driver's launches do.

    Attributes:
        texts: by the driver's handle of a function, its text and entry.
        broken: kernels after which a bit is wrong.
    """

    def __init__(self) -> None:
        self.texts: dict[int, tuple[str, str]] = {}
        self.broken = os.environ.get("FAKE_CUDA_BROKEN")
        self.callback = LAUNCHED(self.launched)
        self.living = Living()

    def launched(self, config: Any, function: int, parameters: Any) -> int:
        try:
            self.run(config.contents, function, parameters)
        except Exception:  # it must not cross the driver, which is C
            traceback.print_exc()
            return FAILED
        return 0

    def run(self, config: LaunchConfig, function: int, parameters: Any) -> None:
        text, entry = self.texts[function]
        codes = loaded(text, "the text", entry)
        found = api.find_entry(codes.module, entry)
        values = [self._value(parameter, parameters[at]) for at, parameter in enumerate(found.parameters)]
        cluster = next(
            (tuple(each.value[:3]) for each in config.attributes[: config.count] if each.id == CLUSTER), (1, 1, 1)
        )
        memory = HostMemory(self.living.tensors())
        before = [held.region.data.copy() for held in memory.allocations] if self.broken else []
        made, api.GlobalMemory = api.GlobalMemory, lambda: memory  # type: ignore[assignment,misc]
        try:
            api.run(
                codes, entry, values, grid=tuple(config.grid), block=tuple(config.block), cluster=cluster,
                dynamic_smem=config.shared, schedule="random", seed=1, numerics="hardware", model=_model(),
            )  # fmt: skip
        finally:
            api.GlobalMemory = made  # type: ignore[misc]
        if self.broken and re.search(self.broken, entry):
            _break([held.region.data for held in memory.allocations], before)

    def _value(self, parameter: Any, address: int) -> Any:
        """A parameter's bytes as the emulator takes them."""
        size = int(parameter.type[1:]) // 8 * prod(parameter.dims)
        raw = ctypes.string_at(address, size)
        return StructArgument(raw, {}) if parameter.dims else np.frombuffer(raw, f"u{size}")[0]


def _break(after: list[np.ndarray], before: list[np.ndarray]) -> None:
    """Turn a bit of the last byte that a launch changed, in the array of which it changed most."""
    changes = [np.flatnonzero(new != old) for new, old in zip(after, before, strict=True)]
    most = max(range(len(after)), key=lambda at: len(changes[at]))
    after[most][changes[most][-1]] ^= 0x40


def _model() -> Model:
    found = library.load().device(0)
    return Model(found.name, found.sms)


def install() -> Executor:
    """Let this process have a GPU that executes."""
    executor = Executor()
    texts: dict[bytes, str] = {}
    build: Callable[..., compiler.Build] = compiler.build
    load = Modules._load
    view = arrays._torch_view

    def built(text: str, **how: Any) -> compiler.Build:
        result = build(text, **how)
        texts[result.cubin] = text
        return result

    def loading(self: Modules, result: compiler.Build, entry: str, *rest: Any) -> Any:
        kernel = load(self, result, entry, *rest)
        executor.texts[kernel.function] = texts[result.cubin], entry
        return kernel

    def viewed(tensor: Any, name: str) -> arrays.ArrayView:
        return replace(view(tensor, name), device="cuda", index=0, host=None)

    def written(self: tensor_map.Encoder, place: int, address: int) -> None:
        ctypes.memmove(place, tma.encode(tma.BoundMap(self.spec, address)), tma.MAP_BYTES)

    compiler.build, Modules._load, arrays._torch_view = built, loading, viewed  # type: ignore[assignment,method-assign]
    tensor_map.Encoder.write = written  # type: ignore[method-assign]
    torch._C._cuda_getCurrentRawStream = lambda index: 0x40
    library.load().native.fake_cuda_listen(executor.callback)
    return executor


def install_in_torch() -> Executor:
    """The same, and PyTorch says that it has a GPU."""
    capability = divmod(int(os.environ.get("FAKE_CUDA_CAPABILITY", "90")), 10)
    torch.Tensor.cuda = lambda self: self  # type: ignore[method-assign,assignment]
    torch.cuda.is_available = lambda: True
    torch.cuda.is_current_stream_capturing = lambda: False
    torch.cuda.synchronize = lambda device=None: None
    torch.cuda.get_device_capability = lambda device=None: capability
    torch.cuda.get_device_name = lambda device=None: "a pretended GPU"
    torch.version.cuda = "13.0"
    return install()
