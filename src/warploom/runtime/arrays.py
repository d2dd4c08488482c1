"""One view of an array of any library: NumPy, PyTorch, CuPy, JAX, `__cuda_array_interface__`, DLPack.

A view gives the location and type of the elements; it copies nothing. No framework is imported here: a torch or JAX
object is recognised by the module of its class, and its own methods are called.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError
from ..isa import dtypes
from ..isa.dtypes import DType
from . import dlpack
from .torch_transforms import check_plain

_wrong_device = partial(ArgumentError, code="wrong-device")
_wrong_type = partial(ArgumentTypeError, code="wrong-type")

ACCEPTED = "a NumPy array, a torch tensor, a CuPy or JAX array, or anything with __cuda_array_interface__ or DLPack"


@dataclass(frozen=True)
class ArrayView:
    """The location and type of an array's elements.

    Attributes:
        pointer: address of element [0, …, 0], in the memory of `device`.
        shape: elements per dimension, outermost first.
        strides: bytes from one index to the next, per dimension.
        dtype: of the elements.
        device: "cpu" or "cuda".
        index: which CUDA device; 0 on the CPU.
        writable: True if a kernel may store to it.
        framework: "numpy", "torch", "cupy", "jax", "cuda array interface" or "dlpack".
        owner: the object itself, which keeps the memory alive.
        host: for a CPU array, the NumPy array that shares its memory.
        stream: raw CUDA stream that the owner asks callers to use or wait for; None if it names none.
    """

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    device: str
    index: int
    writable: bool
    framework: str
    owner: Any = field(repr=False, compare=False)
    host: np.ndarray | None = field(default=None, repr=False, compare=False)
    stream: int | None = None

    @property
    def size(self) -> int:
        """Number of elements."""
        count = 1
        for length in self.shape:
            count *= length
        return count

    @property
    def contiguous(self) -> bool:
        """True if the elements are row-major without gaps. Strides of dimensions of length 1 do not count."""
        step = self.dtype.bytes
        for length, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if length != 1 and stride != step:
                return self.size == 0
            step *= length
        return True

    @property
    def span(self) -> tuple[int, int]:
        """First byte address, and the address after the last byte."""
        low = high = self.pointer
        if self.size == 0:
            return low, low
        for length, stride in zip(self.shape, self.strides, strict=True):
            if stride < 0:
                low += (length - 1) * stride
            else:
                high += (length - 1) * stride
        return low, high + self.dtype.bytes

    @property
    def place(self) -> str:
        """ "the CPU" or "cuda:0", for messages."""
        return "the CPU" if self.device == "cpu" else f"cuda:{self.index}"

    def describe(self) -> str:
        """Framework, type, shape and device, for messages."""
        return f"{self.framework} array of {self.dtype}, shape {self.shape}, on {self.place}"


def root_module(value: object) -> str:
    """The top-level package of a value's class, seen through subclasses: "torch" for an nn.Parameter."""
    for cls in type(value).__mro__:
        root = cls.__module__.partition(".")[0]
        if root in ("numpy", "torch", "cupy", "jax", "jaxlib"):
            return root
    return type(value).__module__.partition(".")[0]


def is_array(value: object) -> bool:
    """True if `view` would accept it (judged by its class; the memory is not inspected)."""
    if isinstance(value, np.generic):
        return False
    return isinstance(value, np.ndarray) or any(  # a torch tensor with a gradient has an interface that only raises
        hasattr(value, name) for name in ("data_ptr", "__dlpack__", "__cuda_array_interface__")
    )


def view(value: object, name: str = "array") -> ArrayView:
    """The view of an array. `name` is the argument's, for messages.

    Raises ArgumentTypeError for anything but an array, or for an unsupported dtype, and ArgumentError for an array
    whose memory has no address (sparse, lazily conjugated, on a device that is neither CPU nor CUDA).
    """
    if isinstance(value, ArrayView):
        return value
    if isinstance(value, np.ndarray):
        return _numpy_view(value, name, "numpy", value)
    root = root_module(value)
    if root == "torch" and hasattr(value, "data_ptr"):
        return _torch_view(value, name)
    if root in ("jax", "jaxlib"):
        return _jax_view(value, name)
    if hasattr(value, "__cuda_array_interface__"):
        return _cuda_interface_view(value, name, "cupy" if root == "cupy" else "cuda array interface")
    if hasattr(value, "__dlpack__") and not isinstance(value, np.generic):
        return _dlpack_view(value, name)
    number = isinstance(value, (int, float, np.generic))
    hint = "in a call of a kernel, numbers follow the arrays or are passed by name" if number else None
    raise _wrong_type(f"argument `{name}` is not an array", expected=ACCEPTED, got=_short(value), hint=hint)


def _short(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def _dtype(value: object, name: str) -> DType:
    try:
        return dtypes.of(value)
    except ArgumentTypeError:
        raise _wrong_type(
            f"argument `{name}` has the dtype {value}, which kernels do not support",
            expected=f"one of {', '.join(each.name for each in dtypes.OF_ARRAYS)}",
        ) from None


def _numpy_view(array: np.ndarray, name: str, framework: str, owner: object, writable: bool | None = None) -> ArrayView:
    if type(array) is not np.ndarray:
        if isinstance(array, np.ma.MaskedArray):
            raise _wrong_type(
                f"argument `{name}` is a masked array, and kernels do not support masks",
                expected="a plain array",
                got="numpy.ma.MaskedArray",
                hint="pass x.filled(value) or x.data",
            )
        array = array.view(np.ndarray)  # matrix, memmap, recarray: the same memory with plain indexing
    if not array.dtype.isnative:
        raise _wrong_type(f"argument `{name}` is not in the byte order of this machine", got=array.dtype.str)
    pointer = array.__array_interface__["data"][0]
    return ArrayView(
        pointer,
        array.shape,
        array.strides,
        _dtype(array.dtype, name),
        "cpu",
        0,
        bool(array.flags.writeable) if writable is None else writable,
        framework,
        owner,
        array,
    )


def _torch_view(tensor: Any, name: str) -> ArrayView:
    if str(tensor.layout) != "torch.strided":
        raise ArgumentError(
            f"argument `{name}` is a sparse tensor", expected="layout torch.strided", got=str(tensor.layout)
        )
    if tensor.is_conj() or tensor.is_neg():
        raise ArgumentError(
            f"argument `{name}` is a lazily conjugated or negated view", hint="call .resolve_conj().resolve_neg()"
        )
    check_plain(tensor, name)
    dtype = _dtype(tensor.dtype, name)
    kind = tensor.device.type
    if kind == "cpu":
        try:
            array = _torch_to_numpy(tensor, dtype)
        except RuntimeError as error:
            raise ArgumentError(
                f"argument `{name}` is a tensor without its own memory (fake, traced or batched): {error}",
                expected="a tensor that holds its elements",
                got=type(tensor).__name__,
                hint="a kernel is opaque to torch.compile, export and vmap: call it outside them",
            ) from None
        return _numpy_view(array, name, "torch", tensor, writable=True)
    if kind != "cuda":
        raise _wrong_device(f"argument `{name}` is on the device {tensor.device}", expected="a CPU or CUDA tensor")
    strides = tuple(step * dtype.bytes for step in tensor.stride())
    return ArrayView(
        tensor.data_ptr(), tuple(tensor.shape), strides, dtype, "cuda", tensor.device.index or 0, True, "torch", tensor
    )


def wants_gradient(value: Any) -> bool:
    """True if autograd needs to record a write into this torch tensor."""
    import torch

    return bool(getattr(value, "requires_grad", False)) and torch.is_grad_enabled()


def _torch_to_numpy(tensor: Any, dtype: DType) -> np.ndarray:
    """The NumPy array on a CPU tensor's memory.

    `tensor.numpy()` is not used: torch could then never resize the storage again, but FSDP frees parameters that way.
    """
    plain = tensor.detach()
    strides = tuple(step * dtype.bytes for step in plain.stride())
    if not plain.numel():
        return np.empty(tuple(plain.shape), dtype.numpy)
    storage = plain.untyped_storage()
    start = plain.data_ptr()  # raises RuntimeError for a tensor without memory
    if not start or not storage.nbytes():
        raise RuntimeError("its storage is empty")
    memory: Any = (ctypes.c_byte * storage.nbytes()).from_address(storage.data_ptr())
    memory.owner = plain  # keeps the memory alive as long as the array
    raw = np.frombuffer(memory, np.uint8)
    return np.ndarray(tuple(plain.shape), dtype.numpy, raw, start - storage.data_ptr(), strides)


def _jax_view(array: Any, name: str) -> ArrayView:
    """A JAX array. It is immutable by contract, so it may be read but not be an explicit output."""
    if isinstance(array, sys.modules["jax"].core.Tracer):
        raise ArgumentTypeError(
            f"argument `{name}` is a JAX array that is being traced, which has no memory yet",
            expected="an array outside of jit, grad and vmap", got=str(array),
            hint="warploom.jax.matmul, linear and attention are for traced arrays",
        )  # fmt: skip
    devices = list(array.devices()) if hasattr(array, "devices") else []
    if len(devices) != 1:
        raise _wrong_device(
            f"argument `{name}` is spread over {len(devices)} devices", expected="an array on one device"
        )
    array.block_until_ready()
    if devices[0].platform == "cpu":
        return _numpy_view(np.asarray(array), name, "jax", array, writable=False)
    dtype = _dtype(array.dtype, name)
    index = int(getattr(devices[0], "local_hardware_id", None) or 0)
    strides = contiguous_strides(array.shape, dtype.bytes)
    return ArrayView(
        int(array.unsafe_buffer_pointer()), tuple(array.shape), strides, dtype, "cuda", index, False, "jax", array
    )


def _cuda_interface_view(value: Any, name: str, framework: str) -> ArrayView:
    """Numba's CUDA Array Interface, version 3."""
    described = value.__cuda_array_interface__
    pointer, read_only = described["data"]
    shape = tuple(described["shape"])
    # the interface cannot express bf16 and fp8: CuPy reports '<V2' or '|V1', so its own dtype is used
    own = getattr(value, "dtype", None)
    dtype = _dtype(own if own is not None and "V" in described["typestr"] else np.dtype(described["typestr"]), name)
    strides = described.get("strides")
    device = getattr(getattr(value, "device", None), "id", None)
    return ArrayView(
        int(pointer or 0),
        shape,
        tuple(strides) if strides is not None else contiguous_strides(shape, dtype.bytes),
        dtype,
        "cuda",
        int(device) if device is not None else _device_of_pointer(int(pointer or 0)),
        not read_only,
        framework,
        value,
        stream=described.get("stream"),
    )


def _device_of_pointer(pointer: int) -> int:
    from ..driver import library

    return library.load().device_of_pointer(pointer) if pointer else 0


def _dlpack_view(value: Any, name: str) -> ArrayView:
    try:
        tensor = dlpack.read(value)
    except (BufferError, TypeError, RuntimeError) as error:
        raise ArgumentError(
            f"argument `{name}` cannot be read through DLPack: {error}", got=type(value).__name__
        ) from None
    if tensor.device not in ("cpu", "cuda"):
        raise _wrong_device(f"argument `{name}` is on the DLPack device {tensor.device}", expected="CPU or CUDA memory")
    dtype = _dtype(tensor.dtype, name)
    strides = tuple(step * dtype.bytes for step in tensor.strides)
    host = dlpack.as_numpy(tensor, dtype) if tensor.device == "cpu" else None
    return ArrayView(
        tensor.pointer,
        tensor.shape,
        strides,
        dtype,
        tensor.device,
        tensor.index,
        not tensor.read_only,
        "dlpack",
        (value, tensor.capsule),
        host,
    )


def contiguous_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Row-major strides in bytes."""
    strides, step = [], itemsize
    for length in reversed(shape):
        strides.append(step)
        step *= length
    return tuple(reversed(strides))


def empty_like_kind(model: ArrayView, shape: tuple[int, ...], dtype: DType, *, zero: bool = False) -> Any:
    """A new array of the framework and on the device of `model`, zeros or uninitialised.

    NumPy arrays and CPU tensors hold poison instead (NaN, or -1): memory that was used before might hold the expected
    values of elements that an emulated kernel fails to store.
    """
    if model.framework == "torch":
        import torch

        made = (torch.zeros if zero else torch.empty)(
            shape, dtype=getattr(torch, dtypes.torch_name(dtype)), device=model.owner.device
        )
        if model.device == "cpu" and not zero:
            made.view(-1).view(torch.uint8).fill_(0xFF)
        return made
    if model.framework == "jax":
        import jax

        zeros = jax.numpy.zeros(shape, dtype=dtypes.torch_name(dtype), device=next(iter(model.owner.devices())))
        return zeros.block_until_ready()
    if model.device == "cuda":
        try:
            import cupy
        except ImportError:
            raise ArgumentError(
                f"the result cannot be allocated: {model.framework} arrays describe memory but cannot allocate it",
                hint="pass out=",
            ) from None
        with cupy.cuda.Device(model.index):
            return (cupy.zeros if zero else cupy.empty)(shape, dtype=dtype.numpy)
    if zero:
        return np.zeros(shape, dtype=dtype.numpy)
    return np.full(math.prod(shape) * dtype.bytes, 0xFF, np.uint8).view(dtype.numpy).reshape(shape)


def given_back(value: Any, views: Iterable[ArrayView | None]) -> Any:
    """An output in the callers' framework. JAX arrays are not writable, so theirs were created as NumPy arrays."""
    if isinstance(value, np.ndarray) and any(each is not None and each.framework == "jax" for each in views):
        import jax

        return jax.numpy.asarray(value)
    return value
