"""Matrices inside arrays: their location, whether TMA can read them there, and their copy if it cannot.

Everything works on `runtime.ArrayView`. Slicing, transposing and merging are arithmetic on addresses and strides, the
same for every framework and both machines. Only copies use the framework, and only torch, CuPy and NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..isa.dtypes import DType
from ..runtime.arrays import ArrayView, empty_like_kind, view
from .spec.problem import TMA_BYTES


def restrided(source: ArrayView, shape: Sequence[int], strides: Sequence[int]) -> ArrayView:
    """The same memory from the same address, with another shape and other strides (bytes)."""
    host = source.host
    if host is not None:  # by bits: as_strided does not know the eight-bit floats
        bits = host.view(f"u{host.itemsize}")
        bits = np.lib.stride_tricks.as_strided(bits, tuple(shape), tuple(strides), writeable=host.flags.writeable)
        host = bits.view(host.dtype)
    return replace(source, shape=tuple(shape), strides=tuple(strides), host=host)


def transposed(source: ArrayView) -> ArrayView:
    """The view with its last two dimensions swapped."""
    shape, strides = source.shape, source.strides
    return restrided(
        source, (*shape[:-2], shape[-1], shape[-2]), (*strides[:-2], strides[-1], strides[-2])
    )  # fmt: skip


def item(source: ArrayView, index: tuple[int, ...]) -> ArrayView:
    """The matrix (or row) at an index of the leading dimensions."""
    if not index:
        return source
    offset = sum(i * stride for i, stride in zip(index, source.strides, strict=False))
    host = source.host[index] if source.host is not None else None
    rank = len(index)
    return replace(
        source, pointer=source.pointer + offset, shape=source.shape[rank:], strides=source.strides[rank:], host=host
    )


def broadcast(source: ArrayView, batch: tuple[int, ...]) -> ArrayView:
    """Leading dimensions broadcast to `batch`, with strides of 0 for repeated matrices."""
    own = source.shape[:-2]
    missing = len(batch) - len(own)
    strides = [0] * missing
    for have, stride in zip(own, source.strides[:-2], strict=True):
        strides.append(0 if have == 1 else stride)
    return restrided(source, (*batch, *source.shape[-2:]), (*strides, *source.strides[-2:]))


def merged(source: ArrayView) -> ArrayView | None:
    """(…, M, K) as one (M', K), or None if the leading dimensions have no common stride."""
    rows, stride = source.shape[-2], source.strides[-2]
    for length, step in zip(reversed(source.shape[:-2]), reversed(source.strides[:-2]), strict=True):
        if length == 1:
            continue
        if rows == 1:
            rows, stride = length, step
        elif step == rows * stride:
            rows *= length
        else:
            return None
    return restrided(source, (rows, source.shape[-1]), (stride, source.strides[-1]))


# -- what TMA can address ------------------------------------------------------------------------------------------


def aligned(source: ArrayView, align: int = TMA_BYTES) -> bool:
    """True if the address is a multiple of `align` bytes."""
    return source.pointer % align == 0


def rows_addressable(source: ArrayView) -> bool:
    """True if a 2-D view has contiguous rows that start at multiples of 16 bytes (PTX ISA 5.5.2)."""
    rows, columns = source.shape
    outer, inner = source.strides
    width = source.dtype.bytes
    if columns > 1 and inner != width:
        return False
    if rows > 1 and (outer <= 0 or outer % TMA_BYTES):
        return False
    return aligned(source)


def rows_storable(source: ArrayView) -> bool:
    """True if a TMA store to a 2-D view writes nothing else. It stores rows in whole 16-byte chunks, and so writes
    past the end of rows of any other length (docs/measured-facts.md)."""
    return rows_addressable(source) and source.shape[1] * source.dtype.bytes % TMA_BYTES == 0


def with_rows(source: ArrayView) -> ArrayView:
    """A view accepted by `rows_addressable`, with normalised strides for dimensions of one element."""
    rows, columns = source.shape
    outer, width = source.strides[0], source.dtype.bytes
    if rows == 1:
        outer = round_up(columns * width, TMA_BYTES)
    if (outer, width) == source.strides:
        return source
    return restrided(source, source.shape, (outer, width))


@dataclass(frozen=True)
class Stored:
    """How the kernel can read an operand.

    Attributes:
        major: "K" if the array is (rows, K), "MN" if it is (K, rows).
        copy: why it must be copied first; "" if it need not be.
    """

    major: str
    copy: str = ""


def stored(operand: ArrayView, transposable: bool) -> Stored:
    """How an operand, viewed as (rows, K), can be read.

    transposable: True if the tensor core takes the type MN-major (16-bit types only, PTX ISA 9.7.15.5.1.2).
    """
    if rows_addressable(operand):
        return Stored("K")
    if rows_addressable(transposed(operand)):
        return Stored("MN") if transposable else Stored("K", f"{operand.dtype} can only be read along k")
    return Stored("K", misfit(operand))


def misfit(operand: ArrayView) -> str:
    """Why TMA cannot read a matrix where it is."""
    width = operand.dtype.bytes
    strides = [step for step, length in zip(operand.strides, operand.shape, strict=True) if length > 1]
    if any(step <= 0 for step in strides):
        return "one of its strides is not positive"
    if width not in strides and len(strides) == 2:
        return "none of its dimensions is contiguous"
    if any(step % TMA_BYTES for step in strides if step != width):
        return f"its rows do not start at multiples of {TMA_BYTES} bytes"
    return f"its address is not a multiple of {TMA_BYTES} bytes"


# -- copies --------------------------------------------------------------------------------------------------------


def round_up(value: int, multiple: int) -> int:
    """The value rounded up to a multiple."""
    return -(-value // multiple) * multiple


def padded_like(model: ArrayView, shape: tuple[int, ...], dtype: DType) -> ArrayView:
    """A new (rows, columns) array on the device of `model`, with rows at multiples of 16 bytes, uninitialised."""
    rows, columns = shape
    step = round_up(columns * dtype.bytes, TMA_BYTES)
    room = view(empty_like_kind(_host_model(model), (rows, step // dtype.bytes), dtype), "buffer")
    return restrided(replace(room, writable=True), (rows, columns), (step, dtype.bytes))


def _host_model(model: ArrayView) -> ArrayView:
    """A JAX array on the CPU is not writable; its copies are NumPy arrays."""
    return replace(model, framework="numpy") if model.framework == "jax" and model.device == "cpu" else model


def copy_into(target: ArrayView, source: ArrayView) -> None:
    """target[...] = source, on the current stream of a GPU. Both have one shape and dtype."""
    if source.host is not None and target.host is not None:
        target.host[...] = source.host
        return
    to_array(target)[...] = to_array(source)


def to_array(source: ArrayView) -> Any:
    """The view as an array of its owner's framework. Raises ArgumentError for frameworks without strided views."""
    if source.framework == "torch":
        owner = source.owner.detach()
        width = source.dtype.bytes
        offset = owner.storage_offset() + (source.pointer - owner.data_ptr()) // owner.element_size()
        return owner.as_strided(source.shape, tuple(step // width for step in source.strides), offset)
    if source.framework == "cupy":
        import cupy

        pointer = source.owner.data + (source.pointer - source.owner.data.ptr)
        return cupy.ndarray(source.shape, source.owner.dtype, memptr=pointer, strides=source.strides)
    if source.host is not None:
        return source.host
    raise ArgumentError(
        f"a {source.framework} array cannot be copied to where the hardware can read it",
        expected="a torch or CuPy array, or rows that start at multiples of 16 bytes",
        got=source.describe(),
        hint="copy it yourself, with each row padded to 16 bytes",
    )


def writable(model: ArrayView, shape: tuple[int, ...], dtype: DType, name: str) -> ArrayView:
    """A view of a `new_array`, to be written."""
    return replace(view(new_array(model, shape, dtype), name), writable=True)


def contiguous(array: ArrayView, name: str) -> ArrayView:
    """The array itself, or a contiguous copy of it."""
    if array.contiguous:
        return array
    copy = writable(array, array.shape, array.dtype, name)
    copy_into(copy, array)
    return copy


def new_array(model: ArrayView, shape: tuple[int, ...], dtype: DType) -> Any:
    """A new contiguous array on the device of `model`, in its framework (NumPy for JAX on the CPU), uninitialised."""
    return empty_like_kind(_host_model(model), shape, dtype)
