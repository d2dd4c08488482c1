"""Checks the arguments of a call. Every error names the argument, the expectation and what was passed.

All checks come before anything is compiled, encoded or launched, and they are the same for both machines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import index
from typing import Any

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError
from ..plural import counted
from .arrays import ArrayView, wants_gradient
from .program import ArraySpec, Program

_not_writable = partial(ArgumentError, code="not-writable")
_wrong_launch = partial(ArgumentError, code="launch-shape")
_wrong_sizes = partial(ArgumentTypeError, code="launch-shape")
_wrong_layout = partial(ArgumentError, code="wrong-layout")
_wrong_shape = partial(ArgumentError, code="wrong-shape")
_wrong_type = partial(ArgumentTypeError, code="wrong-type")
_wrong_value = partial(ArgumentError, code="wrong-type")

PIECE = 16
"""Bytes that wide stores and tensor stores write at a time."""


def dims_of(program: Program, views: Sequence[ArrayView]) -> dict[str, int]:
    """Check every array against its spec and return the sizes, by name.

    Raises ArgumentTypeError for a dtype, ArgumentError for all else.
    """
    dims: dict[str, int] = dict(program.dims)
    from_: dict[str, str] = {}
    for spec, array in zip(program.arrays, views, strict=True):
        check_dtype(program, spec, array)
        _check_shape(program, spec, array, dims, from_)
        _check_layout(program, spec, array)
    _check_aliasing(program, views)
    if program.check_dims is not None:
        program.check_dims(dims)
    return dims


def check_dtype(program: Program, spec: ArraySpec, array: ArrayView) -> None:
    """The dtype must be the spec's. Types with the same bytes and the same meaning on hardware count as equal."""
    wanted, got = spec.dtype, array.dtype
    if wanted is got or wanted.numpy == got.numpy:
        return
    raise _wrong_type(
        f"argument `{spec.name}` of {program.title} has the wrong dtype",
        expected=wanted,
        got=array.describe(),
        hint=None if wanted.bits == got.bits else f"convert it to {wanted} first",
    )


def _wanted(spec: ArraySpec) -> str:
    return "(" + ", ".join(str(size) for size in spec.shape) + ("," if len(spec.shape) == 1 else "") + ")"


def _check_shape(
    program: Program, spec: ArraySpec, array: ArrayView, dims: dict[str, int], from_: dict[str, str]
) -> None:
    if len(array.shape) != len(spec.shape):
        raise _wrong_shape(
            f"argument `{spec.name}` of {program.title} has the wrong rank",
            expected=f"rank {len(spec.shape)}, shape {_wanted(spec)}",
            got=f"rank {len(array.shape)}, shape {array.shape}",
        )
    multiples = spec.multiple or (1,) * len(spec.shape)
    for axis, (wanted, got, multiple) in enumerate(zip(spec.shape, array.shape, multiples, strict=True)):
        label = f"`{wanted}`, dimension {axis}" if isinstance(wanted, str) else f"dimension {axis}"
        if got == 0:
            raise _wrong_shape(
                f"argument `{spec.name}` of {program.title} is empty: {label}, is 0",
                expected="sizes of at least 1",
                got=f"shape {array.shape}",
            )
        if isinstance(wanted, int) or wanted in dims:
            needed = wanted if isinstance(wanted, int) else dims[wanted]
            if got != needed:
                reason = "" if isinstance(wanted, int) else f" ({wanted} = {needed}, from {_origin(wanted, from_)})"
                raise _wrong_shape(
                    f"argument `{spec.name}` of {program.title} has the wrong shape: {label}, does not match",
                    expected=f"{_wanted(spec)} with {needed} in dimension {axis}{reason}",
                    got=f"shape {array.shape}",
                )
        else:
            dims[wanted] = got
            from_[wanted] = spec.name
        if got % multiple:
            name, padded = f"argument `{spec.name}` of {program.title}: {label}", -(-got // multiple) * multiple
            if spec.writes and axis == len(spec.shape) - 1 and multiple * spec.dtype.bytes == PIECE:
                raise _wrong_shape(
                    f"{name}, is {got}, so that its rows are not multiples of {PIECE} bytes",
                    expected=f"a multiple of {multiple} elements of {spec.dtype}",
                    got=f"shape {array.shape}",
                    consequence="they are stored in chunks of that size: the bytes after each row would be overwritten",
                    hint=f"make the rows {padded} long and use a part of them; warploom.matmul pads",
                )
            raise _wrong_shape(
                f"{name}, is {got}, not a multiple of the tile",
                expected=f"a multiple of {multiple}",
                got=f"shape {array.shape}",
                hint=f"pad it to {padded}, or use a kernel with a smaller tile; warploom.matmul pads by itself",
            )


def _origin(size: str, from_: Mapping[str, str]) -> str:
    return f"argument `{from_[size]}`" if size in from_ else "the kernel"


def _check_layout(program: Program, spec: ArraySpec, array: ArrayView) -> None:
    item = array.dtype.bytes
    if spec.order == "C" and not array.contiguous:
        raise _wrong_layout(
            f"argument `{spec.name}` of {program.title} is not contiguous",
            expected=f"row-major strides for shape {array.shape}",
            got=f"strides of {array.strides} bytes",
            hint="pass .contiguous() (np.ascontiguousarray)",
        )
    if spec.order == "rows" and array.shape and array.shape[-1] > 1 and array.strides[-1] != item:
        raise _wrong_layout(
            f"argument `{spec.name}` of {program.title} must be contiguous in its last dimension",
            expected=f"a stride of {counted(item, 'byte')} there",
            got=f"strides of {array.strides} bytes for shape {array.shape}",
            hint="pass .contiguous() (np.ascontiguousarray), or use the kernel for the other major",
        )
    if any(stride < 0 for stride in array.strides):
        raise _wrong_layout(
            f"argument `{spec.name}` of {program.title} runs backwards in memory",
            expected="strides of at least 0",
            got=f"strides of {array.strides} bytes",
            hint="copy it",
        )
    if any(
        length > 1 and stride % spec.row_align
        for length, stride in zip(array.shape[:-1], array.strides[:-1], strict=True)
    ):
        raise _wrong_layout(
            f"argument `{spec.name}` of {program.title} has rows that begin at misaligned addresses",
            expected=f"strides that are multiples of {spec.row_align} bytes",
            got=f"strides of {array.strides} bytes for shape {array.shape}",
            consequence=f"the kernel accesses {spec.row_align} bytes of a row at a time, which would fault",
            hint="use a part of an array with longer rows; warploom.matmul pads",
        )
    if array.device == "cuda" and array.pointer % spec.align:
        raise _wrong_layout(
            f"argument `{spec.name}` of {program.title} is misaligned",
            expected=f"an address that is a multiple of {spec.align}",
            got=hex(array.pointer),
            hint="a slice keeps the address of its first element: copy it with .contiguous() or .clone()",
        )
    if spec.writes:
        check_writable(program, spec.name, array)


def check_writable(program: Program, name: str, array: ArrayView) -> None:
    """A written array must be writable, have distinct elements, and must not be recorded by autograd."""
    if not array.writable:
        why = (
            "JAX arrays are immutable; omit the output and it is created"
            if array.framework == "jax"
            else "it is read-only"
        )
        raise _not_writable(f"argument `{name}` of {program.title} is an output, but is not writable", got=why)
    if array.framework == "torch" and wants_gradient(array.owner):
        raise _not_writable(
            f"argument `{name}` of {program.title} is written by the kernel, but requires a gradient",
            expected="a tensor without requires_grad",
            got="requires_grad=True while gradients are on",
            consequence="autograd does not see the kernel, so its gradient would be silently wrong",
            hint="pass out.detach(), or call it under torch.no_grad()",
        )
    for length, stride in zip(array.shape, array.strides, strict=True):
        if stride == 0 and length > 1:
            raise _not_writable(
                f"argument `{name}` of {program.title} is written by the kernel, but is a broadcast view",
                got=f"strides of {array.strides} bytes for shape {array.shape}",
                hint="copy it",
            )


def _check_aliasing(program: Program, views: Sequence[ArrayView]) -> None:
    for at, (spec, array) in enumerate(zip(program.arrays, views, strict=True)):
        if not spec.writes:
            continue
        for other_at, (other_spec, other) in enumerate(zip(program.arrays, views, strict=True)):
            if other_at == at or not overlap(array, other):
                continue
            if spec.may_alias and spec.may_alias == other_spec.name and same_memory(array, other):
                continue
            raise ArgumentError(
                f"arguments `{spec.name}` and `{other_spec.name}` of {program.title} overlap in memory, "
                f"and `{spec.name}` is written",
                expected="separate arrays" + (", or both the same" if spec.may_alias == other_spec.name else ""),
                got=f"{array.place}, bytes {_span(array)} and {_span(other)}",
                consequence="the kernel reads values it has already overwritten",
                hint=f"pass another array for `{spec.name}`",
                code="overlap",
            )


def _span(array: ArrayView) -> str:
    low, high = array.span
    return f"{low:#x}..{high:#x}"


def same_memory(a: ArrayView, b: ArrayView) -> bool:
    """True if corresponding elements of the two arrays are at the same address."""
    return (a.device, a.index, a.pointer, a.shape, a.strides, a.dtype) == (
        b.device, b.index, b.pointer, b.shape, b.strides, b.dtype,
    )  # fmt: skip


def overlap(a: ArrayView, b: ArrayView) -> bool:
    """True if two arrays share bytes. Column blocks of one matrix do not; other interleavings count as sharing."""
    if (a.device, a.index) != (b.device, b.index):
        return False
    (a_low, a_high), (b_low, b_high) = a.span, b.span
    if a_low >= b_high or b_low >= a_high:
        return False
    if len(a.shape) == len(b.shape) == 2 and a.strides[0] == b.strides[0] > 0:
        row = a.strides[0]
        a_width = (a.shape[1] - 1) * a.strides[1] + a.dtype.bytes
        b_width = (b.shape[1] - 1) * b.strides[1] + b.dtype.bytes
        shift = (b_low - a_low) % row
        if a_width <= row and b_width <= row and shift >= a_width and shift + b_width <= row:
            return False
    return True


def three(values: Sequence[int], what: str) -> tuple[int, int, int]:
    """(x,), (x, y) or (x, y, z) as three positive ints. Raises ArgumentTypeError for anything but integers."""
    try:
        sizes = [index(value) for value in (values if isinstance(values, (tuple, list)) else (values,))]
    except TypeError:
        raise _wrong_sizes(f"{what} is not a tuple of integers", expected="(x, y, z)", got=repr(values)) from None
    if not 1 <= len(sizes) <= 3 or any(size < 1 for size in sizes):
        raise _wrong_launch(f"{what} is not one to three sizes of at least 1", expected="(x, y, z)", got=repr(values))
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def whole(value: Any, what: str) -> int:
    """An integer as an int. Raises ArgumentTypeError, naming `what`, for anything else."""
    try:
        return index(value)
    except TypeError:
        raise ArgumentTypeError(f"{what} is not an integer", expected="an int", got=repr(value)) from None


def at_least(least: int, value: Any, what: str, most: int | None = None) -> int:
    """An integer in a range as an int. Raises ArgumentError or ArgumentTypeError, naming `what`, for anything else."""
    number = whole(value, what)
    if number < least or (most is not None and number > most):
        wanted = f"at least {least}" if most is None else f"{least} to {most}"
        raise ArgumentError(f"{what} is out of range", expected=wanted, got=number)
    return number


def scalar_of(value: Any, dtype: Any, name: str, title: str) -> Any:
    """A Python or NumPy number as the NumPy scalar that a parameter takes. dtype: a DType.

    Raises ArgumentTypeError for a value that is not a number of that kind, ArgumentError for one out of range.
    """
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if dtype is None:
        raise _wrong_type(f"argument `{name}` of {title} has no known type", got=type(value).__name__)
    if isinstance(value, np.generic) and value.dtype == dtype.numpy:
        return value
    if isinstance(value, np.bool_):
        value = bool(value)
    try:
        if isinstance(value, (str, bytes, bytearray)):
            raise TypeError
        number = float(value) if dtype.is_float else index(value)
    except TypeError:
        if isinstance(value, (float, np.floating)):
            raise _wrong_type(
                f"argument `{name}` of {title} is an integer parameter", expected=dtype, got=repr(value)
            ) from None
        raise _wrong_type(
            f"argument `{name}` of {title} is not a number", expected=dtype, got=type(value).__name__
        ) from None
    except (ValueError, OverflowError) as error:
        raise _wrong_value(
            f"argument `{name}` of {title} cannot be read as a {dtype}: {error}", got=type(value).__name__
        ) from None
    if dtype.is_float:
        with np.errstate(over="ignore"):  # a number beyond the range becomes infinite, as in Python's own conversions
            return np.asarray(number).astype(dtype.numpy)[()]
    low, high = (
        (-(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1) if dtype.is_signed else (0, (1 << dtype.bits) - 1)
    )
    if dtype.kind.value == "bits" or isinstance(value, np.generic):
        low = -(1 << (dtype.bits - 1))
    if not low <= number <= high:
        raise _wrong_value(
            f"argument `{name}` of {title} does not fit its parameter", expected=f"{dtype}: {low} to {high}", got=number
        )
    return np.array(number & ((1 << dtype.bits) - 1), dtype=f"u{dtype.bytes}").view(dtype.numpy)[()]
