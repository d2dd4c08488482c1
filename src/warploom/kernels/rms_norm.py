"""Rows divided by their root mean square: y = x / sqrt(mean(x²) + eps) * weight.

Forms      `centred`: the mean of x is subtracted first (a layer norm without a bias). `unit_offset`: the factor is
           weight + 1, as in the Gemma models. `added`: a residual is added to the result, which is rounded before.

Idea       A row is read once and stays in registers: each thread holds `chunks` chunks of 16 bytes. Squares are added
           by shuffles, and across the warps of a row through shared memory.
Roles      all warps alike: 1 warp for a short row (8 rows per CTA), 8 warps for a long one
Rounding   sums, mean and quotient in f32. `rounded`: the quotient is rounded to x's type before it is multiplied by the
           weight, as in the language models of Hugging Face; otherwise the result is rounded once, at the end.
Barriers   bar 0      8 warps: their partial sums are written
Buffers    sums       f32, one per warp; if centred, a second array for the means
Limits     rows a multiple of 16 bytes long, at most `MOST_CHUNKS` x 256 x 8 elements
"""

from __future__ import annotations

from collections.abc import Callable

from ..collective.mma.fragment import pack, unpack
from ..isa.dtypes import DType, b32, bf16, f32, u64
from ..lang import Kernel, Scalar, Tile, kernel, ptx, reg, smem, tiles
from ..lang.arrays import RegisterArray
from ..lang.predicate import Predicate
from ..lang.values import Register
from .fields import builder

WARP, WARPS = 32, 8
PIECE = 8
"""16-bit elements in 16 bytes."""
PIECE_BYTES = 16
MOST_CHUNKS = 8
EVERY_LANE = 0xFFFFFFFF


def shape_of(columns: int) -> tuple[int, int]:
    """(warps per row, chunks per thread) for rows of that many elements; above `MOST_CHUNKS` if no kernel fits."""
    for warps in (1, WARPS):
        chunks = -(-columns // (warps * WARP * PIECE))
        if chunks <= 2 or warps == WARPS:
            return warps, chunks
    raise AssertionError


@builder(keep=64)
def build(
    dtype: DType = bf16, warps: int = 8, chunks: int = 2, rounded: bool = True, centred: bool = False,
    unit_offset: bool = False, added: bool = False,
) -> Kernel:  # fmt: skip
    """Y (R, C) from X (R, C), W (C), the number EPS and, if `added`, RESIDUAL (R, C); 16-bit floats. For the
    arguments, see the module's docstring."""
    rows_of_cta, lanes = WARPS // warps, warps * WARP
    of_rows = Tile("R", "C", dtype, multiple=(1, PIECE), order="rows")

    @kernel(
        in_specs={"X": of_rows, "W": Tile("C", dtype), "EPS": Scalar(f32), **({"RESIDUAL": of_rows} if added else {})},
        out_specs={"Y": of_rows},
        grid=(tiles("R", rows_of_cta),),
        block=WARPS * WARP,
        arch="sm_80",
        name="rms_norm",
    )
    def rms_norm(X, W, EPS, Y, RESIDUAL=None):
        rows, columns = X.shape
        thread = ptx.special.tid.x()
        lane = thread & (lanes - 1)
        row = ptx.special.ctaid.x() * rows_of_cta + thread // lanes
        here = row < rows
        pieces = [lane + chunk * lanes for chunk in range(chunks)]
        inside = [here & (piece * PIECE < columns) for piece in pieces]
        source = X.pointer() + row.to(u64) * X.row_stride() * dtype.bytes
        target = Y.pointer() + row.to(u64) * Y.row_stride() * dtype.bytes
        values = [words(source, piece, there) for piece, there in zip(pieces, inside, strict=True)]
        addends: list[list[Register]] = []
        if RESIDUAL is not None:
            start = RESIDUAL.pointer() + row.to(u64) * RESIDUAL.row_stride() * dtype.bytes
            addends = [words(start, piece, there) for piece, there in zip(pieces, inside, strict=True)]
        middle = mean_of(values, columns, dtype, warps) if centred else None
        total = reg.scalar(f32, init=0.0)
        for found, there in zip(values, inside, strict=True):
            for value in (value for word in found for value in unpack(word, dtype)):
                away = value if middle is None else ptx.select(there, value - middle, 0.0)
                ptx.inst.fma.rn.f32(total, away, away, total)
        over_the_warp(total, ptx.inst.add.rn.f32)
        if warps > 1:
            total = over_the_warps(total, warps)
        mean = total / columns.to(f32) + EPS
        scale = reg.scalar(f32)
        ptx.inst.rsqrt.approx.f32(scale, mean)
        for number, (found, piece, there) in enumerate(zip(values, pieces, inside, strict=True)):
            weights = words(W.pointer(), piece, there)
            made = [
                finished(word, weight, scale, dtype, rounded, middle, unit_offset)
                for word, weight in zip(found, weights, strict=True)
            ]
            if addends:
                made = [plus(*each, dtype) for each in zip(made, addends[number], strict=True)]
            ptx.store(ptx.addr(target + piece.to(u64) * PIECE_BYTES), RegisterArray(made), pred=there)

    return rms_norm


def words(start: Register, piece: Register, there: Predicate) -> list[Register]:
    """A thread's 16 bytes of a row that begins at `start`, as four words; zeros outside the row."""
    place = start + piece.to(u64) * PIECE_BYTES
    found = [reg.scalar(b32, init=0) for _ in range(4)]
    ptx.inst("ld.global.v4.b32", found, ptx.addr(place), pred=there)
    return found


def mean_of(values: list[list[Register]], columns: Register, dtype: DType, warps: int) -> Register:
    """The mean of a row whose elements the threads hold; elements outside the row must be zeros."""
    total = reg.scalar(f32, init=0.0)
    for word in (word for found in values for word in found):
        for value in unpack(word, dtype):
            ptx.inst.add.rn.f32(total, total, value)
    over_the_warp(total, ptx.inst.add.rn.f32)
    if warps > 1:
        total = over_the_warps(total, warps, name="means")
    return total / columns.to(f32)


def finished(
    word: Register, weight: Register, scale: Register, dtype: DType, rounded: bool, middle: Register | None,
    unit_offset: bool,
) -> Register:  # fmt: skip
    """Two elements of the result."""
    pair = [(value if middle is None else value - middle) * scale for value in unpack(word, dtype)]
    if rounded:
        pair = list(unpack(pack(pair, dtype), dtype))
    factors = [factor + 1.0 if unit_offset else factor for factor in unpack(weight, dtype)]
    return pack([value * factor for value, factor in zip(pair, factors, strict=True)], dtype)


def plus(word: Register, addend: Register, dtype: DType) -> Register:
    """The sums of two elements and two others, rounded."""
    pairs = zip(unpack(word, dtype), unpack(addend, dtype), strict=True)
    return pack([value + other for value, other in pairs], dtype)


def over_the_warp(value: Register, combine: Callable[..., object]) -> None:
    """Combine a register with that of every other lane of the warp, in place: five butterfly shuffles."""
    for distance in (16, 8, 4, 2, 1):
        other = reg.scalar(f32)
        ptx.inst.shfl.sync.bfly.b32(other, value, distance, WARP - 1, EVERY_LANE)
        combine(value, value, other)


def over_the_warps(value: Register, warps: int, name: str = "sums") -> Register:
    """The sum over all warps of the CTA."""
    sums = smem.array(f32, warps, name=name)
    thread = ptx.special.tid.x()
    ptx.store(sums[thread >> 5], value, pred=thread & (WARP - 1) == 0)
    ptx.bar.sync(0)
    whole = reg.scalar(f32, init=0.0)
    for warp in range(warps):
        whole = whole + ptx.load(f32, sums[warp])
    return whole
