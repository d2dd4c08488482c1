"""Reading a DLPack capsule: the C structure behind `__dlpack__`, as far as a pointer, a shape and a type need it.

Layout: dlpack.h 1.1 (DLTensor, DLManagedTensor, DLManagedTensorVersioned). The capsule is not consumed: as long as
it exists its producer keeps the memory, and its own destructor frees the memory.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..isa.dtypes import DType


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    ]


_DEVICES = {1: "cpu", 2: "cuda", 3: "cpu", 13: "cuda"}
_CODES = {
    (0, 8): "int8",
    (0, 16): "int16",
    (0, 32): "int32",
    (0, 64): "int64",
    (1, 8): "uint8",
    (1, 16): "uint16",
    (1, 32): "uint32",
    (1, 64): "uint64",
    (2, 16): "float16",
    (2, 32): "float32",
    (2, 64): "float64",
    (4, 16): "bfloat16",
    (6, 8): "bool",
    (10, 8): "float8_e4m3fn",
    (12, 8): "float8_e5m2",
}
_READ_ONLY = 1
_PER_THREAD_DEFAULT, _LEGACY_DEFAULT = 2, 1


@dataclass(frozen=True)
class Tensor:
    """The contents of a capsule. shape and strides are in elements, outermost first."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: str
    index: int
    read_only: bool
    capsule: Any = field(repr=False)


def read(value: Any) -> Tensor:
    """Read `value.__dlpack__()`; the producer makes CUDA memory ready on the legacy default stream.

    Raises BufferError, TypeError or RuntimeError, like the producer.
    """
    kind, _ = value.__dlpack_device__()
    on_gpu = _DEVICES.get(int(kind)) == "cuda"
    stream = {"stream": _LEGACY_DEFAULT} if on_gpu else {}
    try:
        capsule = value.__dlpack__(max_version=(1, 0), **stream)
    except TypeError:
        capsule = value.__dlpack__(**stream)
    tensor, flags = _structure(capsule)
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if tensor.strides:
        strides = tuple(tensor.strides[i] for i in range(tensor.ndim))
    else:
        steps, step = [], 1
        for length in reversed(shape):
            steps.append(step)
            step *= length
        strides = tuple(reversed(steps))
    return Tensor(
        pointer=(tensor.data or 0) + tensor.byte_offset,
        shape=shape,
        strides=strides,
        dtype=_CODES.get((tensor.code, tensor.bits), f"DLPack type {tensor.code} of {tensor.bits} bits")
        if tensor.lanes == 1
        else f"DLPack vector of {tensor.lanes}",
        device=_DEVICES.get(tensor.device_type, str(tensor.device_type)),
        index=tensor.device_id if on_gpu else 0,
        read_only=bool(flags & _READ_ONLY),
        capsule=capsule,
    )


def _structure(capsule: Any) -> tuple[_DLTensor, int]:
    api = ctypes.pythonapi
    get_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", api))
    get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", api))
    name = get_name(capsule)
    address = get_pointer(capsule, name)
    if name == b"dltensor_versioned":
        managed = _Versioned.from_address(address)
        return managed.tensor, managed.flags
    if name == b"dltensor":
        return _DLTensor.from_address(address), 0
    raise BufferError(f"the capsule is called {name!r}")


def as_numpy(tensor: Tensor, dtype: DType) -> np.ndarray:
    """The NumPy array on the capsule's CPU memory; the capsule must outlive it (the caller keeps both)."""
    strides = tuple(step * dtype.bytes for step in tensor.strides)
    low = sum((length - 1) * step for length, step in zip(tensor.shape, strides, strict=True) if step < 0 and length)
    span = sum((length - 1) * abs(step) for length, step in zip(tensor.shape, strides, strict=True)) + dtype.bytes
    if 0 in tensor.shape:
        return np.empty(tensor.shape, dtype.numpy)
    raw = (ctypes.c_uint8 * span).from_address(tensor.pointer + low)
    array: np.ndarray = np.ndarray(tensor.shape, dtype.numpy, memoryview(raw), -low, strides)
    array.flags.writeable = not tensor.read_only
    return array
