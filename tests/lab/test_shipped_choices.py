"""The shipped table keeps what a sweep found to be faster than the model's first configuration, and nothing else."""

import json
from typing import Any

import pytest

from benchmarks import shipped_choices
from warploom.lab.suites import LLM, SMALL_K, SQUARE
from warploom.lab.work import GemmWork
from warploom.operators.select import ranking
from warploom.operators.tuned import key_of

WORK = GemmWork(4096, 7168, 2048)
FIRST, SECOND = (config.name() for config, _ in ranking(WORK.posed)[:2])


def point(interleaved: float, alone: float, library: str = SECOND) -> dict[str, Any]:
    """The model's first takes 100 us; its second as many as given."""
    times = {FIRST: 100.0, SECOND: interleaved, "library": 101.0, "cublas": 110.0}
    return {**WORK.as_dict(), "us": times, "final_us": times, "library": library,
            "alone_us": {**times, SECOND: alone}}  # fmt: skip


@pytest.mark.parametrize(("interleaved", "alone", "kept"), [(95, 97, True), (99, 106, False), (99.9, 99.9, False)])
def test_an_entry_is_worth_keeping_by_both_protocols_together(interleaved: float, alone: float, kept: bool) -> None:
    found = shipped_choices.table([point(interleaved, alone)])
    assert list(found) == ([key_of(WORK.posed)] if kept else [])
    if kept:
        entry = found[key_of(WORK.posed)]
        assert entry["config"] == SECOND
        assert entry["of_cublas"] == {"interleaved": round(110 / interleaved, 4), "alone": round(110 / alone, 4)}


def test_the_shipped_configuration_takes_part_under_its_own_name() -> None:
    measured = {**point(105, 105), "final_us": {FIRST: 100.0, "library": 90.0, "cublas": 110.0}}
    measured["alone_us"] = measured["final_us"]
    assert shipped_choices.table([measured])[key_of(WORK.posed)]["config"] == SECOND


def test_the_fastest_is_kept_where_the_models_first_configuration_was_not_timed() -> None:
    measured = point(99.9, 99.9)
    for times in (measured["us"], measured["final_us"], measured["alone_us"]):
        times.pop(FIRST, None)
    entry = shipped_choices.table([measured])[key_of(WORK.posed)]
    assert entry["config"] == SECOND and "of_model" not in entry


def test_every_product_of_the_table_and_of_the_suites_is_swept_again() -> None:
    swept = {GemmWork.of_row(each): each["configs"] for each in shipped_choices.products()}
    shipped = json.loads(shipped_choices.TABLE.read_text())["choices"]
    assert {key_of(work.posed): configs for work, configs in swept.items() if configs} == {
        key: [row["config"]] for key, row in shipped.items()
    }
    assert {GemmWork(*shape) for shape in (*LLM, *SMALL_K, *SQUARE)} <= swept.keys()
