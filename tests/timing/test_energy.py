"""The energy of work, and the cost of products for MUFU."""

from dataclasses import replace

import pytest

from warploom.timing import H200
from warploom.timing.constants import Constant
from warploom.timing.power import Work, ceiling, joules
from warploom.timing.runs import Cost
from warploom.timing.units import Chip, Sm

GHZ = 1.5
EXPONENTIALS = Cost(
    issue=96.0, pipes=(("mufu", 768.0),), lsu=0.0, chain=17.0, missed=0.0, distant=0.0, stored=0.0, late=(),
    needs=frozenset(), instructions=96.0, flops=0.0, wavefronts=0.0,
)  # fmt: skip


def test_products_whose_first_operand_is_in_registers_cost_less():
    shared, registers = (joules(Work(1e12, from_registers=share), H200, GHZ) for share in (0.0, 1.0))
    assert registers / shared == pytest.approx(H200["register_energy_ratio"])
    assert 0.8 < registers / shared < 1.0


def test_a_byte_written_to_dram_costs_less_than_one_that_is_read_and_received():
    read, written = joules(Work(filled=1e9, dram=1e9), H200, GHZ), joules(Work(stored=1e9), H200, GHZ)
    assert 0 < written < read / 2


def test_a_copy_draws_what_was_measured():
    tb_per_s, watts = 3.963, 345.2
    half = tb_per_s / 2 * 1e12
    drawn = H200["base_watts"] + joules(Work(filled=half, dram=half, stored=half), H200, GHZ)
    assert drawn == pytest.approx(watts, rel=0.02)


@pytest.mark.parametrize(("busy", "clocks"), [(0.0, 768.0), (384.0, 768.0 + 384.0 * 0.285), (9e9, 768.0 * 1.285)])
def test_exponentials_take_longer_while_products_are_on_their_way(busy, clocks):
    sm = Sm(H200)
    sm.tensor = busy
    assert sm.execute(0, 0.0, EXPONENTIALS, Chip(H200, GHZ, 132)) == pytest.approx(clocks)


def test_without_the_measured_ratio_they_would_not():
    sm = Sm(replace(H200, values={**H200.values, "mufu_beside_ratio": Constant(1.0, "test")}))
    sm.tensor = 9e9
    assert sm.execute(0, 0.0, EXPONENTIALS, Chip(H200, GHZ, 132)) == pytest.approx(768.0)


@pytest.mark.parametrize(("rate", "watts", "ghz"), [(700.66, 649.0, 1.5119), (717.18, 657.4, 1.4923)])
def test_sparse_products_draw_what_was_measured(rate, watts, ghz):
    """power.wgmma_sp.bf16.n192 and n256: a quarter more than a dense product that multiplies as much."""
    drawn = H200["base_watts"] + joules(Work(rate * 1e12, sparse=1.0), H200, ghz)
    assert drawn == pytest.approx(watts, rel=0.02)


def test_products_of_f64_draw_what_was_measured_at_the_nominal_clock():
    """power.mma_f64: 650 W at 1.96 GHz."""
    work = Work(f64_flops=64.86e12)
    assert H200["base_watts"] + joules(work, H200, 1.9646) == pytest.approx(650.3, rel=0.01)
    assert ceiling(work, H200, 1.0) == H200["nominal_ghz"] > ceiling(Work(mma_flops=1.0), H200, 1.0)
