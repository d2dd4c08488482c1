"""The ladder's command without a GPU: which rungs, counters against hand-worked numbers, processes that break."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.errors import refused
from warploom.errors import ArgumentError
from warploom.kernels.ladder import RUNGS, find
from warploom.lab import ladder_runner


def numbers(text: str) -> list[int]:
    return [rung.number for rung in ladder_runner.chosen(text)]


def test_rungs_are_chosen_by_number_range_and_name() -> None:
    assert numbers("4,8-10,ping_pong,9") == [4, 8, 9, 10, 20]
    assert numbers("") == [rung.number for rung in RUNGS]


@pytest.mark.parametrize(
    "text, says", [("9-8", ("argument", "9-8")), ("0", ("argument", "'0'")), ("3,x", ("argument", "'x'"))]
)
def test_a_rung_that_does_not_exist_is_refused(text: str, says: str) -> None:
    with refused(*says):
        ladder_runner.chosen(text)


def test_a_gpu_below_hopper_runs_the_rungs_it_can() -> None:
    able, unable = ladder_runner.runnable(RUNGS, "sm_80", "NVIDIA A100", asked=False)
    assert [rung.number for rung in able] == [1, 2, 3, 4, 5, 6]
    assert len(able) + len(unable) == len(RUNGS)


def test_a_gpu_below_hopper_that_is_asked_for_a_hopper_rung_says_which_it_can_run() -> None:
    with pytest.raises(ArgumentError) as caught:
        ladder_runner.runnable(ladder_runner.chosen("4,8,20"), "sm_80", "NVIDIA A100", asked=True)
    said = str(caught.value)
    assert "NVIDIA A100 (sm_80) cannot run rungs 8 tma_wgmma, 20 ping_pong" in said
    assert "sm_90a" in said and "it can run rungs 1, 2, 3, 4, 5, 6" in said


def test_blackwell_runs_no_rung_that_is_made_for_hopper_only() -> None:
    able, _ = ladder_runner.runnable(RUNGS, "sm_100a", "NVIDIA B200", asked=False)
    assert [rung.number for rung in able] == [1, 2, 3, 4, 5, 6]


def test_the_gain_is_over_the_last_rung_below_that_has_a_figure() -> None:
    speeds = {1: 0.5, 2: 4.0, 3: 6.0, 5: None, 6: 400.0, 7: 500.0, 8: 250.0}
    rows = [{"rung": number, "tflops": {"median": speed}} for number, speed in speeds.items()]
    gains = {row["rung"]: row.get("gain") for row in ladder_runner.with_gains(rows, "tflops")}
    assert gains == {1: None, 2: 8.0, 3: 1.5, 5: None, 6: round(400 / 6, 4), 7: 1.25, 8: 0.5}


# -- counters ------------------------------------------------------------------------------------------------------


def test_counters_of_the_first_tma_rung_are_those_worked_out_by_hand() -> None:
    row = ladder_runner.emulate(find(8), 128, 128, 128)
    # four tiles of 64 x 64, each two k-tiles of 64: 2 x 64 x 64 x 2 bytes each; four threads store 16 bytes of a row of
    # C at a time, half of a sector
    loaded, stored = 4 * 2 * 2 * 64 * 64 * 2, 128 * 128 * 2 * 2
    assert row["global_bytes"] == loaded + stored
    # what TMA brought, and what 4 wgmmas for each k-tile read: (64 + 64) rows x 32 bytes
    assert row["shared_bytes"] == loaded + 4 * 2 * 4 * (64 + 64) * 32
    assert (row["tensor_instructions"], row["tensor_instruction"]) == (32, "wgmma")
    assert row["global_per_kfma"] == round(row["global_bytes"] / (128**3 / 1000), 3)
    assert row["findings"] == 0 and row["relative_error"] < 3e-3


def test_a_warp_that_reads_a_column_touches_a_sector_for_each_element() -> None:
    not_coalesced, coalesced = (ladder_runner.emulate(find(number), 64, 64, 64) for number in (1, 2))
    assert not_coalesced["global_bytes"] > 5 * coalesced["global_bytes"]
    assert coalesced["barriers_per_k_tile"] is None and coalesced["tensor_instruction"] == ""


@pytest.mark.full
def test_one_arrival_where_one_suffices_is_seen_in_the_barriers() -> None:
    many, one = (ladder_runner.emulate(find(number), 128, 256, 128)["barriers_per_k_tile"] for number in (13, 14))
    assert many > 20 * one


def test_a_size_that_a_rung_cannot_do_is_refused_by_dimension() -> None:
    with refused("argument", got="68"):
        ladder_runner.emulate(find(8), 64, 68, 64)


# -- processes -----------------------------------------------------------------------------------------------------


def guarded(code: str, timeout_s: float = 20.0) -> list[dict[str, Any]]:
    return ladder_runner.guarded(find(8), [sys.executable, "-c", code], timeout_s)


def test_a_rung_that_answers_gives_its_rows() -> None:
    rows = [{"rung": 8, "tflops": {"median": 1.0}}]
    assert guarded(f"print('noise'); print({json.dumps(json.dumps(rows))})") == rows


@pytest.mark.parametrize(
    "code, reason",
    [
        ("import time; time.sleep(30)", "no answer for 1 s: it hangs"),
        ("import sys; print('CUDA_ERROR_ILLEGAL_ADDRESS', file=sys.stderr); sys.exit(1)", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("print('this is not JSON')", "this is not JSON"),
        ("pass", "it printed nothing"),
    ],
)
def test_a_rung_that_hangs_or_breaks_costs_its_row(code: str, reason: str) -> None:
    (row,) = guarded(code, 1.0 if "sleep" in code else 20.0)
    assert reason in row["failed"]
    assert (row["rung"], row["kernel"]) == (8, "r08_tma_wgmma")
