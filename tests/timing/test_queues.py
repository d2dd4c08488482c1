"""A tile queue gives the recorded CTA its share, not everybody's."""

import numpy as np
import pytest

import warploom
from warploom.errors import DeadlockError
from warploom.isa.dtypes import u32
from warploom.lang import Tile, kernel, ptx, reg
from warploom.timing.recording import Operation, Recording

CTAS, ITEMS = 8, 48


@kernel(
    in_specs={"counter": Tile(1, u32)}, out_specs={"out": Tile("N", u32)}, grid=(CTAS, 1, 1), block=32, arch="sm_90a"
)  # fmt: skip
def taking(counter, out):
    """Takes numbers until none is left, and writes each."""
    (source, target) = ptx.global_ptrs(counter, out)
    with ptx.if_(ptx.special.tid.x() == 0):
        number = reg.scalar(u32, init=0)
        number.set(ptx.atomic.inc(ptx.addr(source), ITEMS + CTAS - 1))
        with ptx.while_(lambda: number < ITEMS):
            ptx.store(ptx.addr(target + number.to(target.dtype) * 4), number)
            number.set(ptx.atomic.inc(ptx.addr(source), ITEMS + CTAS - 1))


@pytest.mark.parametrize("clusters", [1, 2])
def test_recorded_ctas_take_every_eighth_number(clusters):
    counter, out = np.zeros(1, np.uint32), np.zeros(ITEMS, np.uint32)
    prediction = warploom.predict(taking, counter, out=out, registers=32, clusters=clusters)
    assert prediction.dram_bytes == pytest.approx(ITEMS * 4, rel=0.4)


@kernel(
    in_specs={"counter": Tile(1, u32)}, out_specs={"out": Tile("N", u32)}, grid=(2, 1, 1), block=32, arch="sm_90a"
)  # fmt: skip
def meeting(counter, out):
    """A barrier of the whole grid: the counter wraps to 0 with the last CTA."""
    (source, target) = ptx.global_ptrs(counter, out)
    with ptx.if_(ptx.special.tid.x() == 0):
        ptx.atomic.inc(ptx.addr(source), 1)
        here = reg.scalar(u32, init=1)
        with ptx.while_(lambda: here != 0):
            here.set(ptx.load(u32, ptx.addr(source)))
        ptx.store(ptx.addr(target), here)


def test_a_barrier_of_the_grid_needs_all_clusters():
    arrays = {"counter": np.zeros(1, np.uint32), "out": np.zeros(1, np.uint32)}
    with pytest.raises(DeadlockError) as caught:
        warploom.predict(meeting, arrays["counter"], out=arrays["out"], registers=32)
    assert "clusters=" in caught.value.__notes__[0]
    arrays["counter"][:] = 0
    assert warploom.predict(meeting, arrays["counter"], out=arrays["out"], registers=32, clusters=2).us > 0


def lengths(*tiles):
    """A recording of a CTA that takes tiles of so many bytes from a queue."""
    made = Recording("queue", (8, 1, 1), (32, 1, 1), (1, 1, 1), turns={0: list(range(1, len(tiles)))})
    made.operations = [Operation("tma", 0, 0, 0, bytes=size, fetched=size) for size in tiles]
    return made


def test_a_mean_cta_has_less_than_the_one_with_the_first_of_each_turn_where_tiles_become_shorter():
    assert lengths(8, 6, 4, 2).pace == pytest.approx((7 + 5 + 3 + 2) / 20)
    assert lengths(2, 4, 6, 8).pace == pytest.approx((3 + 5 + 7 + 8) / 20)


def test_tiles_of_one_length_are_as_many_as_the_first_cta_has():
    assert lengths(4, 4, 4).pace == 1.0
