"""A TMA tensor map as pure data: a tensor in global memory and the box that one copy moves.

All lists are innermost dimension first, as in PTX and in the driver. Only `tiled` takes an array's shape and strides,
which are outermost first. Limits: CUDA driver API, cuTensorMapEncodeTiled; PTX ISA 5.5 and 9.7.9.27.1.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ..annotated import integers
from ..errors import ArgumentError, ArgumentTypeError
from ..plural import counted
from . import dtypes
from .dtypes import DType
from .im2col import MAXIMUM_CHANNELS, MAXIMUM_PIXELS, PixelBox
from .swizzle import Swizzle
from .tensor_elements import DRIVER_FLOATS, ELEMENTS, PACKINGS, REPLACE_ELEMENTS, Packing, element_of

MAXIMUM_RANK = 5
MAXIMUM_DIMENSION = 1 << 32
MAXIMUM_STRIDE = 1 << 40
MAXIMUM_BOX = 256
MAXIMUM_ELEMENT_STRIDE = 8
MAP_BYTES = 128
"""Size of the opaque tensor-map object in memory; it is aligned to 64 bytes."""

INTERLEAVES = ("NONE", "16B", "32B")
L2_PROMOTIONS = ("NONE", "64B", "128B", "256B")
OOB_FILLS = ("ZERO", "NAN")
SWIZZLES = tuple(swizzle.value for swizzle in Swizzle)
_WIDE_SWIZZLES = (Swizzle.B64.value, Swizzle.B128.value, Swizzle.B128_ATOM_32B.value)


@dataclass(frozen=True)
class TensorMapSpec:
    """A tensor map without its base address. `validate` checks it; nothing is checked before.

    Attributes:
        dtype: type of one element.
        dims: extents in elements, innermost first; 1 to 5 entries.
        strides: bytes from one index to the next of dimensions 1, 2, …; one entry fewer than `dims`.
        box: extents of the box that one copy moves, in elements, innermost first.
        element_strides: traversal steps; () means all 1. Without interleave, the step of dimension 0 is ignored.
        swizzle: "NONE", "32B", "64B", "128B" (and the atom modes of sm_100, see `Swizzle`).
        interleave: "NONE", "16B", "32B".
        oob_fill: value of elements outside the tensor: "ZERO", or "NAN" for float types.
        l2_promotion: "NONE", "64B", "128B", "256B"; a hint.
        pixels: for a map in an im2col mode, its box of base pixels; `box` is then (channels, pixels) of one copy.
    """

    dtype: DType
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...] = ()
    swizzle: str = "NONE"
    interleave: str = "NONE"
    oob_fill: str = "ZERO"
    l2_promotion: str = "NONE"
    pixels: PixelBox | None = field(default=None, repr=False)

    @classmethod
    def tiled(
        cls,
        shape: Sequence[int],
        strides: Sequence[int] | None,
        dtype: object,
        box: Sequence[int],
        *,
        swizzle: str = "NONE",
        element_strides: Sequence[int] = (),
        interleave: str = "NONE",
        oob_fill: str = "ZERO",
        l2_promotion: str = "NONE",
        pixels: PixelBox | None = None,
    ) -> TensorMapSpec:
        """The map of an array, validated.

        Args:
            shape, strides: the array's, outermost first; strides in bytes (None: C-contiguous). The last dimension of
                an array of packed elements counts bytes.
            dtype: anything that `dtypes.of` accepts, or the name of a packed type (`tensor_elements`).
            box, element_strides: innermost first.
            pixels: for a map in an im2col mode of an array NWC, NHWC or NDHWC; `box` is (channels, pixels).

        Raises ArgumentError if TMA cannot address the array, ArgumentTypeError for a type that it cannot move.
        """
        element = element_of(dtype)
        extents = tuple(int(extent) for extent in shape)
        if strides is None:
            steps = _contiguous(extents, element.bytes)
        else:
            steps = tuple(int(stride) for stride in strides)
        if len(steps) != len(extents):
            raise ArgumentError("an array has one stride per dimension", expected=len(extents), got=steps)
        if extents and extents[-1] > 1 and steps[-1] != element.bytes:
            raise ArgumentError(
                "a tensor map needs an array whose last dimension is contiguous",
                expected=f"a stride of {counted(element.bytes, 'byte')} in the last dimension",
                got=f"{steps[-1]} bytes (shape {extents}, strides {steps})",
                hint="copy the array, or describe its transpose",
            )
        inner_first = [
            # a dimension of extent 1 is never stepped over: whatever stride the array reports, use a legal one
            stride if extent > 1 else 16 * max(1, -(-element.bytes * extents[-1] // 16))
            for extent, stride in zip(extents[:-1], steps[:-1], strict=True)
        ][::-1]
        packing = PACKINGS.get(element.name)
        spec = cls(
            dtype=element,
            dims=extents[::-1] if packing is None else (packing.elements(extents[-1]), *extents[-2::-1]),
            strides=tuple(inner_first),
            box=integers(box, "box of a tensor map"),
            element_strides=integers(element_strides, "element_strides of a tensor map"),
            swizzle=swizzle,
            interleave=interleave,
            oob_fill=oob_fill,
            l2_promotion=l2_promotion,
            pixels=pixels,
        )
        spec.validate()
        return spec

    def row_of_pixels(self, count: int) -> TensorMapSpec:
        """For a map in an im2col mode: the tiled map whose box is `count` pixels along W."""
        step, ones = self.steps[1], (1,) * (self.rank - 2)
        box = (self.box[0], count * step, *ones)
        return replace(self, pixels=None, box=box, element_strides=(1, step, *ones))

    # -- derived -------------------------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        return len(self.dims)

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """Traversal step of each dimension, with the rule about dimension 0 applied."""
        steps = self.element_strides or (1,) * self.rank
        return (1, *steps[1:]) if self.interleave == "NONE" else tuple(steps)

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Elements that one copy moves along each dimension, innermost first: ceil(box / step).

        For a map in an im2col mode: channels and pixels.
        """
        if self.pixels is not None:
            return self.box
        return tuple(-(-extent // step) for extent, step in zip(self.box, self.steps, strict=True))

    @cached_property
    def box_elements(self) -> int:
        total = 1
        for count in self.counts:
            total *= count
        return total

    @cached_property
    def box_bytes(self) -> int:
        """Bytes that one load completes on its mbarrier. Filled elements count, so it is the same at every edge.

        Gaps between packed elements do not count: CUTLASS and DeepGEMM expect it so; the ISA does not specify it.
        """
        return self.box_elements // self.counts[0] * self.in_bytes.inner_bytes

    @cached_property
    def packing(self) -> Packing | None:
        """The packing of elements smaller than a byte; None for others."""
        return PACKINGS.get(self.dtype.name)

    @cached_property
    def inner_bytes(self) -> int:
        """Bytes of one row of the box in shared memory."""
        return self.counts[0] * (self.dtype.bits if self.packing is None else self.packing.shared_bits) // 8

    @cached_property
    def in_bytes(self) -> TensorMapSpec:
        """The map of the same addresses in global memory with whole-byte elements: itself, or one of bytes."""
        if self.packing is None:
            return self
        dims, box = (self.packing.bytes(each) for each in (self.dims[0], self.box[0]))
        return replace(self, dtype=dtypes.u8, dims=(dims, *self.dims[1:]), box=(box, *self.box[1:]))

    @cached_property
    def pitch(self) -> int:
        """Bytes from one row of the box to the next in shared memory: the swizzle's span if there is a swizzle."""
        return self.inner_bytes if self.swizzle == "NONE" else max(self.inner_bytes, self.swizzle_mode.span)

    @cached_property
    def shared_bytes(self) -> int:
        """Bytes of shared memory that a box occupies, gaps between rows included (also the last row's)."""
        return self.box_elements // self.counts[0] * self.pitch

    @cached_property
    def swizzle_mode(self) -> Swizzle:
        return Swizzle(self.swizzle)

    @property
    def address_alignment(self) -> int:
        """Alignment of the tensor's base address in bytes."""
        return 32 if self.interleave == "32B" or self.packing is not None and self.packing.spread else 16

    # -- codes ---------------------------------------------------------------------------------------------------

    @property
    def driver_element(self) -> int:
        """CUtensorMapDataType."""
        return ELEMENTS[self.dtype.name][1]

    @property
    def driver_interleave(self) -> int:
        """CUtensorMapInterleave."""
        return INTERLEAVES.index(self.interleave)

    @property
    def driver_swizzle(self) -> int:
        """CUtensorMapSwizzle."""
        return self.swizzle_mode.driver_code

    @property
    def driver_l2_promotion(self) -> int:
        """CUtensorMapL2promotion."""
        return L2_PROMOTIONS.index(self.l2_promotion)

    @property
    def driver_oob_fill(self) -> int:
        """CUtensorMapFloatOOBfill."""
        return OOB_FILLS.index(self.oob_fill)

    @property
    def replace_element(self) -> int:
        """Value of tensormap.replace's .elemtype, which differs from the driver's."""
        return ELEMENTS[self.dtype.name][2]

    def with_mode(self, field: str, code: int) -> TensorMapSpec:
        """This map after `tensormap.replace.tile.<field>` with that code (PTX ISA 9.7.9.28, table 33).

        Raises ArgumentError for a code that the table lacks.
        """
        tables: dict[str, dict[int, str]] = {
            "elemtype": REPLACE_ELEMENTS,
            "interleave_layout": dict(enumerate(INTERLEAVES)),
            "swizzle_mode": {0: "NONE", 1: "32B", 2: "64B", 3: "128B"},
            "fill_mode": dict(enumerate(OOB_FILLS)),
        }
        table = tables[field]
        if code not in table:
            raise ArgumentError(
                f"tensormap.replace.{field} has no value {code}", expected=f"one of {sorted(table)}", got=code
            )
        if field == "elemtype":
            return replace(self, dtype=element_of(table[code]))
        attribute = {"interleave_layout": "interleave", "swizzle_mode": "swizzle", "fill_mode": "oob_fill"}[field]
        return replace(self, **{attribute: table[code]})  # type: ignore[arg-type]

    # -- limits --------------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Raise ArgumentError (ArgumentTypeError for the type) naming the first field beyond TMA's limits.

        The base address, 16-byte aligned (32 with interleave "32B"), is checked when the map is bound to memory.
        """
        _check_names(self)
        if not 1 <= self.rank <= MAXIMUM_RANK:
            raise ArgumentError("a tensor map has 1 to 5 dimensions", expected="rank 1 to 5", got=f"rank {self.rank}")
        if self.interleave != "NONE" and self.rank < 3:
            raise ArgumentError(
                f"interleave {self.interleave!r} needs a tensor of at least 3 dimensions", expected="rank 3 to 5",
                got=self.rank,
            )  # fmt: skip
        for name, values, length in (
            ("strides", self.strides, self.rank - 1),
            ("box", self.box, self.rank if self.pixels is None else 2),
            ("element_strides", self.element_strides or (1,) * self.rank, self.rank),
        ):
            if len(values) != length:
                raise ArgumentError(
                    f"{name} of a rank-{self.rank} tensor map has {counted(length, 'entry')}",
                    expected=length,
                    got=f"{len(values)}: {values}",
                )
        for index, extent in enumerate(self.dims):
            _check_range("dims", index, extent, 1, MAXIMUM_DIMENSION)
        most = (MAXIMUM_BOX,) * self.rank if self.pixels is None else (MAXIMUM_CHANNELS, MAXIMUM_PIXELS)
        for index, (extent, highest) in enumerate(zip(self.box, most, strict=True)):
            _check_range("box", index, extent, 1, highest)
        for index, step in enumerate(self.element_strides):
            _check_range("element_strides", index, step, 1, MAXIMUM_ELEMENT_STRIDE)
        multiple = self.address_alignment
        for index, stride in enumerate(self.strides):
            if stride % multiple or not 0 <= stride < MAXIMUM_STRIDE:
                raise ArgumentError(
                    f"strides[{index}] of a tensor map (dimension {index + 1} of {self.rank}, innermost first) "
                    f"is {counted(stride, 'byte')}",
                    expected=f"a multiple of {multiple} from 0 to 2^40 - {multiple}",
                    got=stride,
                    hint=f"pad the rows of the array to a multiple of {multiple // self.dtype.bytes or 1} elements and "
                    "pass the part of them that counts; warploom.matmul pads by itself",
                )
        self._validate_inner()
        if self.pixels is not None:
            self._validate_pixels(self.pixels)

    def _validate_inner(self) -> None:
        if self.packing is not None:
            self._validate_packed(self.packing)
        inner = self.box[0] * (self.dtype.bits if self.packing is None else self.packing.shared_bits) // 8
        if self.interleave == "NONE" and inner % 16:
            raise ArgumentError(
                f"the box's inner dimension is {counted(inner, 'byte')} ({self.box[0]} × {self.dtype})",
                expected="a multiple of 16 bytes",
                got=inner,
            )
        if self.interleave == "32B" and self.swizzle != "32B":
            raise ArgumentError('interleave "32B" needs swizzle "32B"', expected="32B", got=self.swizzle)
        span = self.swizzle_mode.span
        if self.swizzle != "NONE" and self.interleave == "NONE" and inner > span:
            raise ArgumentError(
                f"the box's inner dimension is {counted(inner, 'byte')} ({self.box[0]} × {self.dtype}), "
                f"wider than the {self.swizzle} swizzle",
                expected=f"at most {span} bytes, {span // self.dtype.bytes} elements",
                got=counted(inner, "byte"),
                hint="split the box into several copies, or use a wider swizzle",
            )

    def _validate_packed(self, packing: Packing) -> None:
        """The rules of CUDA driver API, cuTensorMapEncodeTiled, for packed types."""
        if self.dims[0] % packing.multiple:
            raise ArgumentError(
                f"the innermost extent of a tensor of {self.dtype} is {counted(self.dims[0], 'element')}",
                expected=f"a multiple of {packing.multiple}", got=self.dims[0],
            )  # fmt: skip
        if not packing.spread:
            return
        if self.box[0] != packing.multiple:
            raise ArgumentError(
                f"the box of a map of {self.dtype} is {counted(self.box[0], 'element')} wide",
                expected=packing.multiple, got=self.box[0],
            )  # fmt: skip
        if self.interleave != "NONE":
            raise ArgumentError(
                f"a map of {self.dtype} is not interleaved", expected="interleave NONE", got=self.interleave
            )
        if self.swizzle not in packing.swizzles:
            raise ArgumentError(
                f"a map of {self.dtype} has no swizzle {self.swizzle}", expected=", ".join(packing.swizzles),
                got=self.swizzle,
            )  # fmt: skip

    def _validate_pixels(self, pixels: PixelBox) -> None:
        pixels.validate(self.dims)
        if pixels.mode == "im2col::w::128" and self.box[1] != 128:
            raise ArgumentError("im2col::w::128 moves 128 pixels", expected=128, got=self.box[1])
        if pixels.wide and (self.interleave != "NONE" or self.swizzle not in _WIDE_SWIZZLES):
            raise ArgumentError(
                f"a map of mode {pixels.mode} has no swizzle {self.swizzle!r} with interleave {self.interleave!r}",
                expected=f"one of {', '.join(_WIDE_SWIZZLES)}, and no interleave",
                got=self.swizzle,
            )


def _check_names(spec: TensorMapSpec) -> None:
    if spec.dtype.name not in ELEMENTS:
        raise ArgumentTypeError(f"TMA cannot move {spec.dtype}", expected=f"one of {', '.join(ELEMENTS)}")
    for name, value, choices in (
        ("swizzle", spec.swizzle, SWIZZLES),
        ("interleave", spec.interleave, INTERLEAVES),
        ("oob_fill", spec.oob_fill, OOB_FILLS),
        ("l2_promotion", spec.l2_promotion, L2_PROMOTIONS),
    ):
        if value not in choices:
            raise ArgumentError(
                f"a tensor map has no {name}={value!r}", expected=f"one of {', '.join(choices)}", got=repr(value)
            )
    if spec.oob_fill == "NAN" and ELEMENTS[spec.dtype.name][0] not in DRIVER_FLOATS:
        raise ArgumentError(
            f'oob_fill="NAN" is for types that TMA knows as floats; '
            f"it moves {spec.dtype} as {ELEMENTS[spec.dtype.name][0]}",
            expected="f16, bf16, tf32, f32 or f64",
            got=spec.dtype,
        )


def _check_range(field: str, index: int, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ArgumentError(
            f"{field}[{index}] of a tensor map (innermost first) is {value}", expected=f"{low} to {high}", got=value
        )


def _contiguous(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    strides, step = [], itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))
