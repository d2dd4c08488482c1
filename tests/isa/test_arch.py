"""The targets: limits, and compatibility."""

import pytest

from tests.errors import refused
from warploom.isa import arch


def test_hopper_has_the_limits_of_the_programming_guide():
    hopper = arch.get("sm_90a")
    assert (hopper.shared_per_cta, hopper.shared_per_sm, hopper.shared_static) == (232448, 233472, 49152)
    assert (hopper.registers_per_sm, hopper.registers_per_thread) == (65536, 255)
    assert (hopper.warps_per_sm, hopper.ctas_per_sm) == (64, 32)
    assert (hopper.cluster_portable, hopper.cluster_limit, hopper.ptx) == (8, 16, (8, 0))


def test_ampere_has_no_clusters_and_less_shared_memory():
    ampere = arch.get("sm_80")
    assert ampere.shared_per_cta == 163 * 1024
    assert ampere.cluster_limit == 0
    assert "cp.async" in ampere.features and "tma" not in ampere.features


@pytest.mark.parametrize(
    "target, needed, runs",
    [
        ("sm_90a", "sm_80", True),
        ("sm_90a", "sm_90", True),
        ("sm_90a", "sm_90a", True),
        ("sm_90", "sm_90a", False),
        ("sm_100a", "sm_90a", False),
        ("sm_80", "sm_90", False),
        ("sm_100a", "sm_100f", True),
        ("sm_103a", "sm_100f", True),
        ("sm_103", "sm_100f", False),
        ("sm_120a", "sm_100f", False),
        ("sm_100a", "sm_90a sm_100a", True),
    ],
)
def test_an_arch_specific_instruction_runs_on_that_arch_alone(target, needed, runs):
    assert arch.get(target).supports(needed) is runs


@pytest.mark.parametrize("name", arch.known())
def test_every_known_target_can_be_had(name):
    found = arch.get(name)
    assert found.name == name and found.shared_per_cta <= found.shared_per_sm


@pytest.mark.parametrize("name", ["sm_91", "sm_80a", "sm_90f", "hopper", "compute_90"])
def test_an_unknown_target_is_refused_with_the_known_ones(name):
    with refused("argument", got=name) as caught:
        arch.get(name)
    assert "sm_90" in str(caught.value)
