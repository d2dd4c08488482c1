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


def test_products_in_f16_cost_more_than_in_bf16():
    """Both run under the cap: power.wgmma.n256.ctas132 and power.wgmma.f16.n256."""
    coarse, fine = (joules(Work(rate, f16=share), H200, ghz) for rate, ghz, share in (
        (859.58e12, 1.5899, 0.0), (827.11e12, 1.5298, 1.0)
    ))  # fmt: skip
    assert fine == pytest.approx(coarse, rel=0.01)
    assert joules(Work(1e12, f16=1.0), H200, GHZ) > 1.05 * joules(Work(1e12), H200, GHZ)


def test_a_byte_written_to_dram_costs_less_than_one_that_is_read_and_received():
    read, written = joules(Work(read=1e9, received=1e9, dram=1e9), H200, GHZ), joules(Work(stored=1e9), H200, GHZ)
    assert 0 < written < read / 2


def test_a_copy_draws_what_was_measured():
    tb_per_s, watts = 3.963, 345.2
    half = tb_per_s / 2 * 1e12
    drawn = H200["base_watts"] + joules(Work(read=half, received=half, dram=half, stored=half), H200, GHZ)
    assert drawn == pytest.approx(watts, rel=0.02)


@pytest.mark.parametrize(("ctas", "tb_per_s", "watts"), [(1, 9.158, 395.4), (2, 14.2, 371.2), (4, 15.091, 328.0)])
def test_a_byte_for_several_sms_is_read_once(ctas, tb_per_s, watts):
    """power.product.own, power.multicast2 and 4: what L2 reads costs more than what an SM receives."""
    received = tb_per_s * 1e12
    work = Work(read=received / ctas, received=received)
    assert H200["base_watts"] + joules(work, H200, GHZ) == pytest.approx(watts, rel=0.07)


@pytest.mark.parametrize(("asked", "share"), [(1.5e6, 0.65), (13.1e6, 0.70), (600e6, 0.90)])
def test_sms_in_step_are_served_by_one_read(asked, share):
    """The longer they run, the more often each reads for itself."""
    assert Chip(H200, GHZ, 132, asked=asked).read_share == pytest.approx(share, abs=0.03)
    assert Chip(H200, GHZ, 132, asked=asked, sharing=False).read_share == 1.0


@pytest.mark.parametrize(("sms", "clocks"), [(1, 156.8), (33, 273.0), (66, 427.5), (132, 645.5)])
def test_a_box_outside_of_its_array_waits_for_those_of_other_sms(sms, clocks):
    """rate.tma.l2.outside128: such rows come from one place."""
    assert 128 * Chip(H200, GHZ, 132, beyond=sms).outside_row == pytest.approx(clocks, rel=0.07)


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
