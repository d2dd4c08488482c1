"""A cubin in a context, ready to launch.

Loading may allocate and wait, which a stream capture does not allow. So a kernel that is not loaded yet is refused
during a capture, with the advice to call it once before.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from ..errors import DriverError
from .compile import Build
from .library import Library, load
from .once import once
from .resources import Resources

PORTABLE_CLUSTER = 8


@dataclass(frozen=True)
class LoadedKernel:
    """An entry of a loaded module.

    Attributes:
        function, module, context: raw handles.
        device: GPU number.
        resources: from the build, or read from the driver if the log lacks them.
    """

    entry: str
    function: int
    module: int
    context: int
    device: int
    resources: Resources


class Modules:
    """Modules loaded in this process: one per (build, context). They stay until the process ends."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._modules: dict[tuple[str, int], int] = {}
        self._kernels: dict[tuple[str, int, str, int, bool], LoadedKernel] = {}
        self._shared_limit: dict[int, int] = {}
        self._lock = threading.RLock()

    def kernel(
        self, build: Build, entry: str, device: int, stream: int, dynamic_smem: int = 0, cluster_size: int = 1
    ) -> LoadedKernel:
        """The loaded entry with its attributes set. stream: where it will run, checked for a capture.

        Raises DriverError for a load during a capture, and if the driver rejects the cubin or has no such entry.
        """
        with self._library.activated(device) as context:
            key = (build.key, context, entry, dynamic_smem, cluster_size > PORTABLE_CLUSTER)
            with self._lock:
                found = self._kernels.get(key)
                if found is None:
                    found = self._load(build, entry, device, context, stream, dynamic_smem, cluster_size)
                    self._kernels[key] = found
                return found

    def _load(
        self, build: Build, entry: str, device: int, context: int, stream: int, dynamic_smem: int, cluster_size: int
    ) -> LoadedKernel:
        library = self._library
        module = self._modules.get((build.key, context))
        if module is None:
            if library.is_capturing(stream):
                raise DriverError(
                    f"kernel `{entry}` is not loaded yet, and a kernel cannot be loaded while a CUDA graph is captured",
                    hint="call it once with the same kind of arguments before the capture (warm up)",
                    code="load-in-capture",
                )
            module = int(
                library.call("cuModuleLoadData", build.cubin, doing=f"loading `{entry}` ({build.arch}) on GPU {device}")
            )
            self._modules[build.key, context] = module
        cuda = library.cuda
        function = library.call(
            "cuModuleGetFunction", cuda.CUmodule(module), entry.encode(), doing=f"looking for the entry `{entry}`"
        )
        handle = int(function)
        attribute = cuda.CUfunction_attribute
        # the attribute belongs to the function, not the launch: only ever raise it
        if dynamic_smem > self._shared_limit.get(handle, 0):
            library.call(
                "cuFuncSetAttribute",
                function,
                attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                dynamic_smem,
                doing=f"giving `{entry}` {dynamic_smem} bytes of dynamic shared memory",
            )
            self._shared_limit[handle] = dynamic_smem
        if cluster_size > PORTABLE_CLUSTER:
            library.call(
                "cuFuncSetAttribute",
                function,
                attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
                1,
                doing=f"allowing `{entry}` clusters of {cluster_size}",
            )
        return LoadedKernel(
            entry, handle, module, context, device, build.resources.get(entry) or self._read(function, entry, build)
        )

    def _read(self, function: object, entry: str, build: Build) -> Resources:
        """Registers and memory as reported by the driver."""
        attribute = self._library.cuda.CUfunction_attribute

        def read(name: str) -> int:
            return int(
                self._library.call("cuFuncGetAttribute", getattr(attribute, "CU_FUNC_ATTRIBUTE_" + name), function)
            )

        return Resources(
            entry,
            build.arch,
            registers=read("NUM_REGS"),
            stack=read("LOCAL_SIZE_BYTES"),
            static_shared=read("SHARED_SIZE_BYTES"),
        )


@once
def modules() -> Modules:
    """The process's modules."""
    return Modules(load())
