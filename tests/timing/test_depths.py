"""What L2 has: for CTAs at different depths of k, and beside data that is evicted first."""

import pytest

from warploom.timing import H200, Launch
from warploom.timing.depths import apart
from warploom.timing.instructions import Facts
from warploom.timing.prediction import Predictor
from warploom.timing.recording import BoxPlace, Operation, Recording
from warploom.timing.units import Chip

SMS, K_TILES, BOX = 132, 128, 48 << 10


def recorded(*k_tiles, shared=True):
    """A CTA that loads so many boxes of each tile, and counts its arrival if it shares tiles."""
    loads = [
        Operation("tma", 0, 0, 0, bytes=BOX, fetched=BOX, place=BoxPlace(64, (k * 64, tile), (64, 128), (8192, 4096)))
        for tile, many in enumerate(k_tiles) for k in range(many)
    ]  # fmt: skip
    found = Recording("product", (SMS, 1, 1), (384, 1, 1), (1, 1, 1), operations=loads, clusters={0: [0]})
    if shared:
        found.last = Recording("product", (SMS, 1, 1), (384, 1, 1), (1, 1, 1))
    return found


def test_the_loads_of_a_tile_that_ends_early_and_of_the_one_before_are_out_of_step():
    found = apart(recorded(K_TILES, 23, K_TILES), SMS)
    assert found.operations == frozenset(range(K_TILES + 23))
    assert found.bytes == (K_TILES + 23) * BOX
    assert 0.5 < found.missed < 0.8


def test_ctas_at_few_depths_or_at_the_same_are_in_step():
    for k_tiles in ((K_TILES, K_TILES), (K_TILES, K_TILES // 2), (K_TILES, K_TILES // 4)):
        assert not apart(recorded(*k_tiles), SMS).operations
    assert not apart(recorded(K_TILES, 23, shared=False), SMS).operations


def test_operands_that_fit_in_l2_are_not_read_again():
    assert apart(recorded(K_TILES, 23), SMS, spare_bytes=1e9).missed == 0.0


def test_copies_out_of_step_share_no_reads_and_wait_for_dram():
    chip = Chip(H200, 1.8, SMS, dram_share=0.1, apart=frozenset({7}), missed=0.65)
    assert chip.of(6) is chip
    assert chip.of(7).network == pytest.approx(H200["l2_own_bytes_per_ns"])
    assert chip.of(7).fetch < chip.fetch
    assert chip.of(7).late == pytest.approx(0.65)


def test_copies_marked_to_be_evicted_first_leave_the_other_arrays_in_l2():
    policy = Facts(0, "createpolicy.fractional.L2::evict_first.b64", "control", 1.0, "alu", frozenset(), frozenset({5}))
    found = recorded(K_TILES)
    for one in found.operations:
        one.text, one.pc, one.distant = "cp.async.bulk.tensor.2d.L2::cache_hint", 1, one.bytes
    streamed, others = SMS * K_TILES * BOX, 4e6
    found.dirty = 1e6 / SMS
    launch = Launch(input_bytes=streamed + others, output_bytes=1e6)
    for reads, near in (({5}, True), ({6}, False)):
        found.pcs = [policy, Facts(1, found.operations[0].text, "control", 1.0, "alu", frozenset(reads), frozenset())]
        one = Predictor(found, H200, launch)
        assert one.near is near
        assert one.known_bytes == (others if near else 0.0)
        assert one.stored == (0.0 if near else 1e6)
