"""A tensor map bound to an array, for both machines: the emulator reads the spec, the driver encodes it.

TensorMap.tiled(array, box=(64, 128), swizzle="128B")     # box innermost first, as in PTX
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..errors import ArgumentError, WarploomError
from ..isa.im2col import PixelBox
from ..isa.tensor_map import TensorMapSpec
from .arrays import ArrayView, view

_wrong_layout = partial(ArgumentError, code="wrong-layout")


@dataclass(frozen=True)
class TensorMap:
    """The value of a kernel's tensor-map parameter: a spec and the array it describes."""

    spec: TensorMapSpec
    array: ArrayView

    @staticmethod
    def tiled(
        array: Any,
        *,
        box: Sequence[int],
        swizzle: str = "NONE",
        element_strides: Sequence[int] = (),
        interleave: str = "NONE",
        oob_fill: str = "ZERO",
        l2_promotion: str = "NONE",
        dtype: object = None,
        pixels: PixelBox | None = None,
    ) -> TensorMap:
        """The map of an array (CUDA driver API, cuTensorMapEncodeTiled).

        Args:
            array: on either machine; its last dimension contiguous, its other strides multiples of 16 bytes.
            box: elements per dimension of one copy, innermost first.
            dtype: element type of the map if it differs from the array's; same width. "b4x16", "b4x16_p64",
                "b6x16_p32" (sm_100): packed elements of an array of bytes.
            pixels: for copies in an im2col mode, of an array NWC, NHWC or NDHWC; `box` is then (channels, pixels)
                (cuTensorMapEncodeIm2col, cuTensorMapEncodeIm2colWide).

        Raises ArgumentError for anything that TMA cannot address: the base address, a stride, a box.
        """
        of = view(array)
        spec = TensorMapSpec.tiled(
            of.shape,
            of.strides,
            of.dtype if dtype is None else dtype,
            box,
            swizzle=swizzle,
            element_strides=element_strides,
            interleave=interleave,
            oob_fill=oob_fill,
            l2_promotion=l2_promotion,
            pixels=pixels,
        )
        if spec.dtype.bytes != of.dtype.bytes:
            raise ArgumentError(
                "a tensor map must keep the width of the array's elements", expected=of.dtype, got=spec.dtype
            )
        check_base(spec, of, "the array")
        return TensorMap(spec, of)


def bound(spec: TensorMapSpec, array: ArrayView, name: str) -> TensorMap:
    """A spec on an array, checked; `name` is the argument's."""
    check_base(spec, array, f"argument `{name}`")
    return TensorMap(spec, array)


def check_base(spec: TensorMapSpec, array: ArrayView, what: str) -> None:
    """Raise ArgumentError for a base address that TMA cannot use.

    On the CPU the emulated GPU gives every array its own aligned address, so only GPU addresses are checked.
    """
    if array.device == "cuda" and array.pointer % spec.address_alignment:
        raise _wrong_layout(
            f"{what} cannot be addressed by TMA: its first byte is misaligned",
            expected=f"an address that is a multiple of {spec.address_alignment}",
            got=hex(array.pointer),
            hint="a slice keeps the address of its first element: copy it with .contiguous() or .clone()",
        )


def named(error: WarploomError, name: str) -> WarploomError:
    """An error about an array, with the name of the argument."""
    if f"`{name}`" in error.what:
        return error
    return type(error)(
        f"argument `{name}`: {error.what}",
        where=error.where,
        expected=error.expected,
        got=error.got,
        consequence=error.consequence,
        hint=error.hint,
    )
