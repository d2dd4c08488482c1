"""Boxes of pixels: the parameters of an im2col tensor map, and the pixels that one copy moves.

PTX ISA 5.5.4, 5.5.5; limits: CUDA driver API, cuTensorMapEncodeIm2col and cuTensorMapEncodeIm2colWide.

A tensor of images is NWC, NHWC or NDHWC. Innermost first, its dimensions are channels, 1 to 3 spatial ones, images. A
copy takes some channels of a column of pixels. It walks the base pixels of a convolution: along W inside the bounding
box, then along H and D, then to the next image. An offset, the filter's element, is added to each base pixel.

The modes `im2col::w` and `im2col::w::128` walk along W and then go to the next image. They also copy `halo` pixels
after the column, or after each 32 pixels of 128: those that the walk would reach next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from ..errors import ArgumentError

MODES = ("im2col", "im2col::w", "im2col::w::128")
MAXIMUM_CHANNELS = 256
MAXIMUM_PIXELS = 1024
_CORNER_BITS = {3: 16, 4: 8, 5: 5}
"""Signed bits of a corner, and unsigned bits of an offset, by the tensor's rank; a wide mode's corner has 16 bits."""
_GROUP = 32
_HALOS = {"im2col::w": 512, "im2col::w::128": 32}
_OFFSETS = 32

Pixel = tuple[int, ...]
Run = tuple[Pixel, int]
"""The first of some pixels that are consecutive along W by the traversal stride, and their number."""


@dataclass(frozen=True)
class PixelBox:
    """The bounding box of base pixels, from `lower` to the tensor's last pixel plus `upper`, inclusive.

    Attributes:
        lower, upper: (w, h, d), one entry per spatial dimension; (w,) in the wide modes.
        mode: "im2col", "im2col::w" or "im2col::w::128".
    """

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    mode: str = "im2col"

    @property
    def wide(self) -> bool:
        return self.mode != "im2col"

    def limits(self, dims: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """First and last base pixel of each spatial dimension that the box bounds. dims: of the tensor."""
        corners = zip(self.lower, self.upper, dims[1:], strict=False)
        return tuple((low, extent - 1 + up) for low, up, extent in corners)

    def validate(self, dims: Sequence[int]) -> None:
        """Raise ArgumentError for a mode, a corner or an empty box that TMA does not accept."""
        rank = len(dims)
        if self.mode not in MODES:
            raise ArgumentError(
                f"a tensor map has no mode {self.mode!r}", expected=f"one of {', '.join(MODES)}", got=self.mode
            )
        if not 3 <= rank <= 5:
            raise ArgumentError(
                "a tensor map of pixels has channels, 1 to 3 spatial dimensions and images",
                expected="rank 3 to 5",
                got=rank,
            )
        count, half = (1, 1 << 15) if self.wide else (rank - 2, 1 << _CORNER_BITS[rank] - 1)
        for name, corner in (("lower", self.lower), ("upper", self.upper)):
            if len(corner) != count or any(not -half <= at < half for at in corner):
                raise ArgumentError(
                    f"the {name} corner of a box of pixels is {corner}",
                    expected=f"{count} of {-half} to {half - 1}",
                    got=corner,
                )
        for low, high in self.limits(dims):
            if low > high:
                raise ArgumentError(
                    f"the box of pixels is empty: from {low} to {high}", expected="a lower corner that is not above"
                )

    def check(self, dims: Sequence[int], start: Pixel, offsets: Sequence[int]) -> None:
        """Raise ArgumentError for a base pixel outside the box, or for offsets or a halo out of range.

        start: (w, …, n). offsets: for `im2col`, one per spatial dimension; otherwise (halo, offset).
        """
        for axis, ((low, high), at) in enumerate(zip(self.limits(dims), start, strict=False)):
            if at > high or (at < low and not self.wide):
                raise ArgumentError(
                    f"the base pixel {start[:-1]} of the copy is outside the box of pixels",
                    expected=f"{'whd'[axis]} from {low} to {high}",
                    got=at,
                )
        most = [1 << _CORNER_BITS[len(dims)]] * len(offsets)
        if self.wide:
            most = [_HALOS[self.mode], _OFFSETS]
        for at, limit in zip(offsets, most, strict=True):
            if not 0 <= at < limit:
                raise ArgumentError(
                    f"the offsets of the copy are {tuple(offsets)}", expected=f"less than {limit}", got=at
                )

    def check_stores(self) -> None:
        """Raise ArgumentError for a box that reaches outside the images, which no store or reduction may.

        PTX ISA 9.7.9.27.1.1: the lower corner is not negative, the upper not positive.
        """
        for name, corner, expected in (
            ("lower", self.lower, "0 or more" if min(self.lower) < 0 else ""),
            ("upper", self.upper, "0 or less" if max(self.upper) > 0 else ""),
        ):
            if expected:
                raise ArgumentError(
                    f"the {name} corner of the box of pixels is {corner}, outside the images, and the copy writes",
                    expected=expected,
                    got=corner,
                    consequence="an H200 stops the kernel with CUDA_ERROR_ILLEGAL_INSTRUCTION",
                )

    def walk(self, dims: Sequence[int], steps: Sequence[int], start: Pixel) -> Iterator[Pixel]:
        """Base pixels (w, …, n) from `start` on, infinitely. steps: traversal strides of all dimensions."""
        limits, here = self.limits(dims), list(start)
        while True:
            yield tuple(here)
            for axis, (low, high) in enumerate(limits):
                here[axis] += steps[1 + axis]
                if here[axis] <= high:
                    break
                here[axis] = low
            else:
                here[-1] += 1

    def runs(
        self, dims: Sequence[int], steps: Sequence[int], pixels: int, start: Pixel, offsets: Sequence[int]
    ) -> tuple[Run, ...]:
        """The pixels of a copy in the order of its rows in shared memory, with offsets added.

        Raises ArgumentError if the PTX ISA does not specify the pixels of a halo.
        """
        walked = self.walk(dims, steps, start)
        if not self.wide:
            return _joined([_moved(pixel, offsets) for pixel in islice(walked, pixels)], steps[1])
        halo, offset = offsets
        line = [_moved(pixel, (offset,)) for pixel in islice(walked, pixels + halo)]
        group = _GROUP if self.mode == "im2col::w::128" else pixels
        found: list[Pixel] = []
        for at in range(0, pixels, group):
            found += line[at : at + group + halo]
            _check_halo(line[at + group - 1 : at + group + halo], dims, steps[1])
        return _joined(found, steps[1])


def _moved(pixel: Pixel, offsets: Sequence[int]) -> Pixel:
    return (*(at + by for at, by in zip(pixel, offsets, strict=False)), *pixel[len(offsets) :])


def _joined(pixels: Sequence[Pixel], step: int) -> tuple[Run, ...]:
    runs: list[Run] = []
    for pixel in pixels:
        if runs and pixel == (runs[-1][0][0] + step * runs[-1][1], *runs[-1][0][1:]):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((pixel, 1))
    return tuple(runs)


def _inside(pixel: Pixel, dims: Sequence[int]) -> bool:
    return all(0 <= at < extent for at, extent in zip(pixel, dims[1:], strict=True))


def _check_halo(line: Sequence[Pixel], dims: Sequence[int], step: int) -> None:
    """Check halo pixels after the first of `line`: at the end of an image, walking on and going straight must agree."""
    for number, pixel in enumerate(line):
        straight = (line[0][0] + number * step, *line[0][1:])
        if pixel != straight and (_inside(pixel, dims) or _inside(straight, dims)):
            raise ArgumentError(
                f"the halo of the copy goes from pixel {line[0]} past the end of the box of pixels",
                expected="a halo inside the row, or pixels outside the image on both sides of its end",
                got=f"pixel {pixel} next, or pixel {straight}: the PTX ISA (5.5.5.3) leaves it open",
            )
