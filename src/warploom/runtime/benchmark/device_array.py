"""A NumPy array's copy in GPU memory, for timing, demos and tests without a framework.

It supports `__cuda_array_interface__` and nothing else: no arithmetic, no slicing.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

import numpy as np

from ...driver import library


class DeviceArray:
    """Row-major array on one GPU; `free` or the end of a `with` releases its memory.

    Attributes:
        shape, dtype: as in NumPy.
        pointer: device address.
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any, device: int = 0) -> None:
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.device_index = device
        self._driver = library.load()
        with self._driver.activated(device):
            self.pointer = int(self._driver.call("cuMemAlloc", max(self.nbytes, 1), doing="making an array"))

    @classmethod
    def of(cls, array: np.ndarray, device: int = 0) -> DeviceArray:
        """A copy of a NumPy array on the GPU."""
        host = np.ascontiguousarray(array)
        made = cls(host.shape, host.dtype, device)
        with made._driver.activated(device):
            made._driver.call("cuMemcpyHtoD", made.pointer, host.ctypes.data, host.nbytes, doing="copying to the GPU")
        return made

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.pointer, False),
            "version": 3,
            "strides": None,
        }

    def numpy(self) -> np.ndarray:
        """The values, copied back after all work on the device has finished."""
        host = np.empty(self.shape, self.dtype)
        with self._driver.activated(self.device_index):
            self._driver.call("cuCtxSynchronize", doing="waiting for the GPU")
            self._driver.call("cuMemcpyDtoH", host.ctypes.data, self.pointer, self.nbytes, doing="copying from the GPU")
        return host

    def free(self) -> None:
        """Free the memory; a second call does nothing."""
        if self.pointer:
            with self._driver.activated(self.device_index):
                self._driver.call("cuMemFree", self.pointer, doing="freeing an array")
            self.pointer = 0

    def __enter__(self) -> DeviceArray:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.free()
