"""The CUDA driver: libcuda through `cuda-bindings`, loaded on first use; errors by name; contexts and devices.

Contexts are the primary ones, which torch, CuPy and JAX use too. If the caller's thread already has a context of the
right device, it is kept.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from ..errors import ArgumentError, DriverError, NoGpuError
from .once import once

INVALID_CONTEXT, INVALID_HANDLE = 201, 400
_HINTS = {
    2: "the GPU's memory is full",
    209: "the cubin was built for another GPU generation",
    218: "the driver cannot compile this PTX",
    222: "the PTX is newer than the driver: update the driver, or name an older .version",
    700: "an earlier kernel accessed memory illegally; the context is lost, restart the process",
    701: "registers × threads, or shared memory, exceed one multiprocessor",
    702: "an earlier kernel ran into the watchdog",
    715: "an earlier kernel executed an illegal instruction; the context is lost, restart the process",
    716: "an earlier kernel used a misaligned address; the context is lost, restart the process",
    719: "an earlier kernel failed; the context is lost, restart the process",
    900: "this is not permitted while a stream is being captured",
    912: "no cluster of this size fits on the GPU with this much shared memory",
}


@dataclass(frozen=True)
class Device:
    """One GPU.

    Attributes:
        index: CUDA's number.
        arch: target of its own instructions: "sm_90a" for compute capability 9.0.
        capability: (9, 0).
        sms: multiprocessors.
        memory: bytes.
        shared_per_cta: maximum bytes of shared memory of one CTA.
        memory_gbps: memory bandwidth from clock and width, in 10^9 bytes per second; 0 if the driver reports
            neither.
    """

    index: int
    name: str
    arch: str
    capability: tuple[int, int]
    sms: int
    memory: int
    shared_per_cta: int
    memory_gbps: int = 0
    clock_mhz: int = 0


class Library:
    """libcuda. All methods raise DriverError with CUDA's own error name if a call fails."""

    def __init__(self, cuda: Any, native: ctypes.CDLL) -> None:
        self.cuda = cuda
        self.native = native
        self._contexts: dict[int, int] = {}
        self._unknown_graphs = itertools.count(1)
        self._lock = threading.Lock()

    def call(self, name: str, *arguments: Any, doing: str = "") -> Any:
        """Call one function of the driver. Returns its result without the status, or a tuple of several results."""
        status, *results = getattr(self.cuda, name)(*arguments)
        if int(status) != 0:
            raise self.error(int(status), name, doing)
        return results[0] if len(results) == 1 else tuple(results) if results else None

    def error(self, status: int, function: str, doing: str = "", **parts: Any) -> DriverError:
        """The DriverError of a status."""
        name, text = self.error_name(status)
        what = f"{doing}: " if doing else ""
        return DriverError(f"{what}{function} returned {name} ({text})", **{"hint": _HINTS.get(status), **parts})

    def error_name(self, status: int) -> tuple[str, str]:
        """CUDA's name and description of a status: ("CUDA_ERROR_INVALID_VALUE", "invalid argument")."""
        words = []
        for function in (self.native.cuGetErrorName, self.native.cuGetErrorString):
            text = ctypes.c_char_p()
            failed = function(ctypes.c_int(status), ctypes.byref(text))
            words.append(text.value.decode() if not failed and text.value else f"CUDA error {status}")
        return words[0], words[1]

    @property
    def version(self) -> str:
        """The newest CUDA version that the driver supports: "13.0"."""
        number = int(self.call("cuDriverGetVersion"))
        return f"{number // 1000}.{number % 1000 // 10}"

    @property
    def device_count(self) -> int:
        return int(self.call("cuDeviceGetCount"))

    def attribute(self, index: int, name: str) -> int:
        """An attribute of a GPU, by its name without CU_DEVICE_ATTRIBUTE_."""
        known = getattr(self.cuda.CUdevice_attribute, "CU_DEVICE_ATTRIBUTE_" + name)
        return int(self.call("cuDeviceGetAttribute", known, self.call("cuDeviceGet", index)))

    @lru_cache(maxsize=64)  # noqa: B019  (one Library per process)
    def device(self, index: int) -> Device:
        """Properties of a GPU."""
        if not 0 <= index < self.device_count:
            raise ArgumentError(
                f"there is no GPU {index}", expected=f"0 to {self.device_count - 1}", got=index, code="unknown-name"
            )
        handle, read = self.call("cuDeviceGet", index), partial(self.attribute, index)
        major, minor = read("COMPUTE_CAPABILITY_MAJOR"), read("COMPUTE_CAPABILITY_MINOR")
        name = self.call("cuDeviceGetName", 128, handle)
        return Device(
            index=index,
            name=name.split(b"\0")[0].decode(errors="replace").strip(),
            arch=f"sm_{major}{minor}" + ("a" if major >= 9 else ""),
            capability=(major, minor),
            sms=read("MULTIPROCESSOR_COUNT"),
            memory=int(self.call("cuDeviceTotalMem", handle)),
            shared_per_cta=read("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            memory_gbps=2 * read("MEMORY_CLOCK_RATE") * read("GLOBAL_MEMORY_BUS_WIDTH") // 8 // 10**6,
            clock_mhz=read("CLOCK_RATE") // 1000,
        )

    # -- contexts ------------------------------------------------------------------------------------------------

    def primary_context(self, index: int) -> int:
        """The primary context of a GPU, retained once for the life of the process."""
        with self._lock:
            if index not in self._contexts:
                device = self.call("cuDeviceGet", index)
                self._contexts[index] = int(self.call("cuDevicePrimaryCtxRetain", device, doing=f"opening GPU {index}"))
            return self._contexts[index]

    def current_context(self) -> tuple[int, int]:
        """This thread's context and its GPU; (0, -1) if it has none."""
        context = int(self.call("cuCtxGetCurrent"))
        return (context, int(self.call("cuCtxGetDevice"))) if context else (0, -1)

    @contextmanager
    def activated(self, index: int) -> Iterator[int]:
        """A context of GPU `index` inside the `with`; afterwards the thread has its previous one."""
        before, device = self.current_context()
        if device == index:
            yield before
            return
        context = self.primary_context(index)
        self.call("cuCtxSetCurrent", self.cuda.CUcontext(context))
        try:
            yield context
        finally:
            if before:
                self.call("cuCtxSetCurrent", self.cuda.CUcontext(before))

    def device_of_pointer(self, pointer: int) -> int:
        """The GPU whose memory contains an address."""
        attribute = self.cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        return int(
            self.call("cuPointerGetAttribute", attribute, pointer, doing=f"asking whose address {pointer:#x} is")
        )

    # -- streams -------------------------------------------------------------------------------------------------

    def is_capturing(self, stream: int) -> bool:
        """True if a CUDA graph is being captured from that stream."""
        status = ctypes.c_int(0)
        failed = self.native.cuStreamIsCapturing(ctypes.c_void_p(stream), ctypes.byref(status))
        return bool(failed or status.value)

    def captured_graph(self, stream: int) -> int:
        """A number for the CUDA graph that is being captured from that stream, one for each capture; 0 for none.

        If the driver does not tell them apart, each call returns a different number.
        """
        status, number = ctypes.c_int(0), ctypes.c_ulonglong(0)
        for name in ("cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo_v2"):
            ask = getattr(self.native, name, None)  # (stream, status, number), in later versions optional outputs too
            if ask is not None and not ask(
                ctypes.c_void_p(stream), ctypes.byref(status), ctypes.byref(number), None, None, None, None
            ):
                return number.value * bool(status.value)
        return -next(self._unknown_graphs) if self.is_capturing(stream) else 0

    def synchronize(self, stream: int) -> None:
        """Wait for all work in a stream."""
        self.call("cuStreamSynchronize", self.cuda.CUstream(stream), doing="waiting for a kernel")

    # -- the driver's own compiler -------------------------------------------------------------------------------

    def link(self, text: str, arch: str) -> tuple[bytes | None, str, str]:
        """Compile PTX with the driver's own compiler for the GPU of the current context.

        Returns (cubin or None, information, errors), the two texts as the compiler wrote them.
        """
        option = self.cuda.CUjit_option
        size = 1 << 16
        info, error = b"\0" * size, b"\0" * size
        names = [
            option.CU_JIT_INFO_LOG_BUFFER,
            option.CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
            option.CU_JIT_ERROR_LOG_BUFFER,
            option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
            option.CU_JIT_LOG_VERBOSE,
        ]
        data = text.encode() + b"\0"
        with self.activated(0):
            state = self.call(
                "cuLinkCreate", len(names), names, [info, size, error, size, 1], doing="starting the driver's compiler"
            )
            try:
                kind = self.cuda.CUjitInputType.CU_JIT_INPUT_PTX
                status = self.cuda.cuLinkAddData(state, kind, data, len(data), b"kernel.ptx", 0, [], [])[0]
                cubin = None
                if int(status) == 0:
                    status, address, length = self.cuda.cuLinkComplete(state)
                    if int(status) == 0:
                        cubin = ctypes.string_at(int(address), int(length))
                messages = error.split(b"\0")[0].decode(errors="replace")
                if cubin is None and not messages:
                    messages = "{} ({})".format(*self.error_name(int(status)))
                return cubin, info.split(b"\0")[0].decode(errors="replace"), messages
            finally:
                self.call("cuLinkDestroy", state)


def no_gpu(reason: str) -> NoGpuError:
    """The error for a machine without a GPU or driver."""
    return NoGpuError(
        f"there is no GPU or no CUDA driver here ({reason}); the emulator can run it: pass NumPy arrays or CPU "
        "tensors, or call warploom.emulate(kernel, …)"
    )


@once
def load() -> Library:
    """The driver of this machine. Raises NoGpuError if there is no driver, no GPU or no `cuda-bindings`."""
    native = _native()
    try:
        from cuda.bindings import driver as cuda
    except ImportError:
        raise NoGpuError(
            "the Python package cuda-bindings, which accesses the GPU, is missing; the emulator can run it",
            hint="pip install 'warploom[gpu]'",
        ) from None
    try:
        status = int(cuda.cuInit(0)[0])
    except RuntimeError as error:
        raise no_gpu(str(error)) from None
    library = Library(cuda, native)
    if status:
        raise no_gpu("cuInit: " + library.error_name(status)[0])
    if library.device_count == 0:
        raise no_gpu("the driver sees no GPU")
    return library


def _native() -> ctypes.CDLL:
    """libcuda itself, for frequent calls."""
    reason = ""
    for name in ("libcuda.so.1", "libcuda.so", "nvcuda.dll"):
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            reason = reason or str(error)
    raise no_gpu(reason)


def available() -> bool:
    """True if there is a usable GPU."""
    try:
        load()
    except NoGpuError:
        return False
    return True
