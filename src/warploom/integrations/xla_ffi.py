"""XLA's foreign function interface through its C ABI: a Python function as a handler, without a compiler.

The structures are those of xla/ffi/api/c_api.h, version 0.x; only what a handler needs is declared: buffers,
attributes, the stream, errors, and the response to the metadata query that XLA makes when a handler is registered.
Fields are accessed by their offsets in structures that XLA only extends at the end.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, Structure, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_void_p
from dataclasses import dataclass
from typing import Any

from ..errors import ArgumentTypeError
from ..isa import dtypes
from ..isa.dtypes import DType

METADATA, EXECUTE = 1, 3
BUFFER, SCALAR, STRING = 1, 3, 4
INVALID_ARGUMENT, INTERNAL = 3, 13
DTYPES: dict[int, DType] = {
    1: dtypes.b8, 2: dtypes.s8, 3: dtypes.s16, 4: dtypes.s32, 5: dtypes.s64, 6: dtypes.u8, 7: dtypes.u16, 8: dtypes.u32,
    9: dtypes.u64, 10: dtypes.f16, 11: dtypes.f32, 12: dtypes.f64, 16: dtypes.bf16, 19: dtypes.e5m2, 20: dtypes.e4m3,
}  # fmt: skip
"""XLA_FFI_DataType."""


class Extension(Structure):
    """XLA_FFI_Extension_Base, followed by the metadata if its type says so."""


Extension._fields_ = [("size", c_size_t), ("type", c_int), ("next", POINTER(Extension)), ("metadata", c_void_p)]


class Version(Structure):
    """XLA_FFI_Api_Version."""

    _fields_ = [("size", c_size_t), ("extension", c_void_p), ("major", c_int), ("minor", c_int)]


class Metadata(Structure):
    """XLA_FFI_Metadata."""

    _fields_ = [("size", c_size_t), ("version", Version), ("traits", c_uint32), ("state", c_int64)]


class Buffer(Structure):
    """XLA_FFI_Buffer."""

    _fields_ = [
        ("size", c_size_t), ("extension", c_void_p), ("dtype", c_int), ("data", c_void_p), ("rank", c_int64),
        ("dims", POINTER(c_int64)),
    ]  # fmt: skip


class Values(Structure):
    """XLA_FFI_Args, XLA_FFI_Rets."""

    _fields_ = [
        ("size", c_size_t), ("extension", c_void_p), ("count", c_int64), ("types", POINTER(c_int)),
        ("values", POINTER(c_void_p)),
    ]  # fmt: skip


class Span(Structure):
    """XLA_FFI_ByteSpan."""

    _fields_ = [("data", c_void_p), ("length", c_size_t)]

    def text(self) -> str:
        """The characters of the span."""
        return ctypes.string_at(self.data, self.length).decode() if self.length else ""


class Attributes(Structure):
    """XLA_FFI_Attrs."""

    _fields_ = [
        ("size", c_size_t), ("extension", c_void_p), ("count", c_int64), ("types", POINTER(c_int)),
        ("names", POINTER(POINTER(Span))), ("values", POINTER(c_void_p)),
    ]  # fmt: skip


class Api(Structure):
    """XLA_FFI_Api, as far as the functions that are called here."""

    _fields_ = [
        ("size", c_size_t), ("extension", c_void_p), ("version", Version), ("internal", c_void_p),
        ("error_create", c_void_p), ("error_message", c_void_p), ("error_destroy", c_void_p), ("register", c_void_p),
        ("stream_get", c_void_p),
    ]  # fmt: skip


class Frame(Structure):
    """XLA_FFI_CallFrame."""

    _fields_ = [
        ("size", c_size_t), ("extension", POINTER(Extension)), ("api", POINTER(Api)), ("context", c_void_p),
        ("stage", c_int), ("arguments", Values), ("results", Values), ("attributes", Attributes),
    ]  # fmt: skip


class ErrorArguments(Structure):
    """XLA_FFI_Error_Create_Args."""

    _fields_ = [("size", c_size_t), ("extension", c_void_p), ("message", c_char_p), ("code", c_int)]


class StreamArguments(Structure):
    """XLA_FFI_Stream_Get_Args."""

    _fields_ = [("size", c_size_t), ("extension", c_void_p), ("context", c_void_p), ("stream", c_void_p)]


HANDLER = ctypes.CFUNCTYPE(c_void_p, POINTER(Frame))
FUNCTION = ctypes.CFUNCTYPE(c_void_p, c_void_p)


@dataclass(frozen=True)
class Memory:
    """An argument or a result: row-major, without gaps.

    Attributes:
        pointer: address.
        shape: elements per dimension, outermost first.
        dtype: of the elements.
    """

    pointer: int
    shape: tuple[int, ...]
    dtype: DType


@dataclass(frozen=True)
class Call:
    """One execution.

    Attributes:
        arguments, results: their memory.
        text: string attributes by name.
        stream: queries XLA for the raw CUDA stream; only on a GPU.
    """

    arguments: tuple[Memory, ...]
    results: tuple[Memory, ...]
    text: dict[str, str]
    stream: Callable[[], int]


def handler(function: Callable[[Call], None]) -> tuple[Any, Any]:
    """A PyCapsule for `jax.ffi.register_ffi_target` that calls `function`, and the objects to keep alive for it.

    An exception becomes XLA's error, with its text.
    """

    @HANDLER
    def entry(frame: Any) -> int | None:
        try:
            if _asked_for_metadata(frame.contents) or frame.contents.stage != EXECUTE:
                return None
            function(_call(frame.contents))
        except BaseException as error:  # noqa: BLE001 - nothing may pass into C++
            return _error(frame.contents, error)
        return None

    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (c_void_p, c_char_p, c_void_p)
    return new(ctypes.cast(entry, c_void_p).value, None, None), entry


def _asked_for_metadata(frame: Any) -> bool:
    """Answer XLA's query for a handler's version and traits (none)."""
    extension = frame.extension
    while extension:
        if extension.contents.type == METADATA:
            metadata = ctypes.cast(extension.contents.metadata, POINTER(Metadata)).contents
            metadata.version.major, metadata.version.minor = 0, _minor(frame)
            metadata.traits = 0
            return True
        extension = extension.contents.next
    return False


def _minor(frame: Any) -> int:
    """The minor version: XLA's own if it reports one, because nothing that a later one changed is used here."""
    return frame.api.contents.version.minor if frame.api else 1


def _call(frame: Any) -> Call:
    def stream() -> int:
        wanted = StreamArguments(ctypes.sizeof(StreamArguments), None, frame.context, None)
        failed = FUNCTION(frame.api.contents.stream_get)(ctypes.addressof(wanted))
        if failed:
            raise RuntimeError("XLA does not report its stream")
        return int(wanted.stream or 0)

    return Call(_memories(frame.arguments), _memories(frame.results), _texts(frame.attributes), stream)


def _memories(values: Any) -> tuple[Memory, ...]:
    found = []
    for at in range(values.count):
        if values.types[at] != BUFFER:
            raise ArgumentTypeError("XLA passes something that is not a buffer", got=int(values.types[at]))
        buffer = ctypes.cast(values.values[at], POINTER(Buffer)).contents
        if buffer.dtype not in DTYPES:
            raise ArgumentTypeError("XLA passes an unsupported type", got=f"XLA_FFI_DataType {buffer.dtype}")
        shape = tuple(buffer.dims[axis] for axis in range(buffer.rank))
        found.append(Memory(int(buffer.data or 0), shape, DTYPES[buffer.dtype]))
    return tuple(found)


def _texts(attributes: Any) -> dict[str, str]:
    found = {}
    for at in range(attributes.count):
        if attributes.types[at] == STRING:
            value = ctypes.cast(attributes.values[at], POINTER(Span)).contents
            found[attributes.names[at].contents.text()] = value.text()
    return found


def _error(frame: Any, error: BaseException) -> int | None:
    code = INVALID_ARGUMENT if isinstance(error, (ValueError, TypeError)) else INTERNAL
    text = f"{type(error).__module__}.{type(error).__name__}: {error}"
    wanted = ErrorArguments(ctypes.sizeof(ErrorArguments), None, text.encode(), code)
    return FUNCTION(frame.api.contents.error_create)(ctypes.addressof(wanted))


__all__ = ["Call", "Memory", "handler"]
