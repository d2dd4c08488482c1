"""Row-wise softmax: one warp per row, reductions by shuffles.

Idea       A butterfly of five shuffles leaves the maximum (or sum) of 32 lanes in every lane, without shared memory or
           a barrier. Three passes over the row: maximum, sum of exponentials, quotient.
Roles      each of the four warps of a CTA takes one row; lane l takes the columns l, l + 32, l + 64, …
Numbers    exp(x) = 2^(x log2 e) by ex2.approx, whose relative error is at most 2^-22 (PTX ISA 9.7.3.20)

    python examples/softmax.py
"""

import math
from collections.abc import Callable, Iterator

import numpy as np

from warploom import Tile, kernel, ptx, reg, tiles
from warploom.types import f32, u32, u64

WARP = 32
ROWS_PER_CTA = 4
EVERY_LANE = 0xFFFFFFFF


def over_the_warp(value, combine: Callable) -> None:
    """Combine a register with that of every other lane, in place: five butterfly shuffles."""
    for distance in (16, 8, 4, 2, 1):
        other = reg.scalar(f32)
        ptx.inst.shfl.sync.bfly.b32(other, value, distance, WARP - 1, EVERY_LANE)
        combine(value, value, other)


@kernel(
    in_specs=(Tile("M", "N", f32),),
    out_specs=(Tile("M", "N", f32),),
    grid=(tiles("M", ROWS_PER_CTA),),
    block=ROWS_PER_CTA * WARP,
    arch="sm_80",
)
def softmax(X, Y):
    rows, columns = X.shape
    x, y = ptx.global_ptrs(X, Y)
    thread = ptx.special.tid.x()
    lane = thread % WARP
    row = ptx.special.ctaid.x() * ROWS_PER_CTA + thread // WARP

    with ptx.if_(row < rows):  # uniform in a warp, so the shuffles inside see all their lanes
        row_offset = row.to(u64) * columns * f32.bytes
        source, target = x + row_offset, y + row_offset

        def each_column():
            for column in ptx.range(lane, columns, WARP, dtype=u32):
                yield column * f32.bytes

        largest = reg.scalar(f32, init=-math.inf)
        for offset in each_column():
            ptx.inst.max.f32(largest, largest, ptx.load(f32, ptx.addr(source + offset)))
        over_the_warp(largest, ptx.inst.max.f32)

        def exponential(offset):
            power = reg.scalar(f32)
            ptx.inst.ex2.approx.f32(power, (ptx.load(f32, ptx.addr(source + offset)) - largest) * math.log2(math.e))
            return power

        total = reg.scalar(f32, init=0.0)
        for offset in each_column():
            total += exponential(offset)
        over_the_warp(total, ptx.inst.add.rn.f32)

        scale = 1.0 / total
        for offset in each_column():
            ptx.store(ptx.addr(target + offset), exponential(offset) * scale)


def example() -> Iterator[tuple]:
    """A number of rows that the warps do not divide; large values, with which a softmax without the maximum would
    overflow."""
    rng = np.random.default_rng(0)
    for rows, columns, spread in ((6, 100, 1.0), (3, 32, 200.0)):
        x = (spread * rng.standard_normal((rows, columns))).astype(np.float32)

        def check(y, x=x):
            powers = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
            np.testing.assert_allclose(y, powers / powers.sum(axis=1, keepdims=True), rtol=3e-5, atol=1e-30)

        yield softmax, (x,), check


def main() -> None:
    for kernel_, arguments, check in example():
        y = kernel_(*arguments)
        check(y)
        sums = y.sum(axis=1)
        print(f"{kernel_.name} of {y.shape[0]} x {y.shape[1]}: row sums {sums.min():.7f} to {sums.max():.7f}")


if __name__ == "__main__":
    main()
