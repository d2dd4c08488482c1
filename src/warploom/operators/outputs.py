"""Checks of the arrays that a caller passes to be written: `out` and `lse`."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import ArgumentError, ArgumentTypeError
from ..isa.dtypes import DType, f32, tf32
from ..runtime.arrays import ArrayView, wants_gradient
from ..runtime.validate import overlap


def check_output(out: ArrayView, name: str, shape: tuple[int, ...], dtype: DType) -> ArrayView:
    """Return an output that has this shape and type, is writable, and has an address of its own for each element."""
    if out.dtype is not dtype and not (dtype is f32 and out.dtype is tf32):
        raise ArgumentTypeError(f"`{name}` has the wrong type", expected=dtype, got=out.describe(), code="wrong-type")
    if out.shape != shape:
        raise ArgumentError(f"`{name}` has the wrong shape", expected=shape, got=out.shape, code="wrong-shape")
    if not out.writable:
        immutable = out.framework == "jax"
        raise ArgumentError(
            f"`{name}` is not writable", expected="a writable array", got=out.describe(), code="not-writable",
            hint=f"JAX arrays are immutable: omit {name}=" if immutable else None,
        )  # fmt: skip
    if out.framework == "torch" and wants_gradient(out.owner):
        raise ArgumentError(
            f"`{name}` requires a gradient", expected="a tensor without requires_grad", code="not-writable",
            consequence="autograd would not see that the kernel writes it", hint="pass it as .detach()",
        )  # fmt: skip
    _check_strides(out, name)
    return out


def _check_strides(out: ArrayView, name: str) -> None:
    if 0 in out.shape:
        return
    reach = out.dtype.bytes  # bytes from the first to the end of the last element, innermost dimensions first
    for stride, length in sorted((abs(s), n) for s, n in zip(out.strides, out.shape, strict=True) if n > 1):
        if stride < reach:
            what = f"rows of `{name}` overlap" if stride else f"`{name}` is a broadcast view, whose elements overlap"
            raise ArgumentError(what, got=f"shape {out.shape}, strides {out.strides}", code="overlap")
        reach += stride * (length - 1)


def check_apart(out: ArrayView, name: str, others: Iterable[tuple[str, ArrayView]], allowed: str = "") -> None:
    """Raise ArgumentError if an output shares memory with an input or another output.

    allowed: the input that the call may read and write in place, for the message.
    """
    for other, array in others:
        if overlap(out, array):
            raise ArgumentError(
                f"`{name}` and `{other}` overlap in memory",
                expected=f"a separate `{name}`" + (f", or `{other}` itself as `{name}`" if other == allowed else ""),
                got=f"{out.describe()} and {array.describe()}",
                consequence=f"the kernel would overwrite `{other}` while it runs",
                code="overlap",
            )  # fmt: skip
