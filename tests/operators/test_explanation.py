"""`explain`: what it says about orders and waves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from warploom.operators import Gpu, Problem, choose, explain

B200 = Gpu("NVIDIA B200", "sm_100a", 148)


@pytest.mark.parametrize("gpu", [Gpu("NVIDIA A100", "sm_80", 108), B200])
def test_the_order_on_a_gpu_on_which_nothing_was_timed_is_said(gpu: Gpu) -> None:
    found = explain(Problem.of(4096, 4096, 4096), gpu)
    times = [row["time_us"] for row in found.data()["ranking"]]
    assert found.preferred == (times != sorted(times)) == (gpu is not B200)
    assert ("fastest first" in found.text()) is not found.preferred


def test_the_waves_of_groups_are_said_to_be_of_uneven_groups_or_of_the_mean() -> None:
    problem = replace(Problem.of(4096, 4096, 7168), groups=64)
    hopper, blackwell = (explain(problem, *gpu) for gpu in ((), (B200,)))
    of_groups = {found.choice.estimate.of_groups for found in (hopper, blackwell)}
    assert len(of_groups) == 2 and all(found.choice.estimate.of_groups in found.text() for found in (hopper, blackwell))
    assert not choose(replace(problem, groups=0)).estimate.of_groups
