"""The sweep of grouped products without a GPU: what is drawn, checked, timed and judged."""

from __future__ import annotations

import pytest

from warploom.kernels.hopper.grouped_config import tile
from warploom.lab.work import GemmWork

torch = pytest.importorskip("torch")

from benchmarks import sweep_grouped as sweep  # noqa: E402
from tests.lab.test_sweep_free_tile import Halved, Pretended  # noqa: E402

TINY = GemmWork(44, 16, 32, kind="grouped", rows=(4, 0, 40))
BOTH = [tile(64, 64), tile(128, 64)]


def test_a_draw_has_the_experts_of_public_models_and_every_row_has_one():
    found = sweep.drawn(3, 20)
    assert found == sweep.drawn(3, 20) != sweep.drawn(4, 20)
    assert all(sum(work.rows) == work.m and len(work.rows) == work.posed.groups for work in found)
    assert {work.scales for work in sweep.drawn(3, 5, "e4m3")} == {"row"}
    assert len({min(work.rows) == max(work.rows) for work in found} | {True}) == 2  # not all even


def test_a_tile_is_named_by_its_size_and_a_plus_for_ping_pong():
    assert [sweep.named(text) for text in ("64x128", "64x256+")] == [tile(64, 128), tile(64, 256, "ping_pong")]


@pytest.mark.parametrize(
    "option, value", [("--tiles", "64"), ("--tiles", "0x0"), ("--tiles", "50x33+"), ("--tiles", "256x256"),
                      ("--count", "0"), ("--count", "-1")],
)  # fmt: skip
def test_a_tile_that_no_kernel_has_or_no_products_are_refused(option: str, value: str, monkeypatch):
    monkeypatch.setattr("sys.argv", ["sweep", "--evidence", "none.json", option, value])
    with pytest.raises(SystemExit) as refused:
        sweep.main()
    assert refused.value.code == 2


def test_every_tile_is_checked_and_timed():
    names = {config.name() for config in BOTH}
    beat = lambda who, seconds=0.0: None  # noqa: E731
    found = sweep.point(Pretended(), TINY, BOTH, beat)  # type: ignore[arg-type]
    assert set(found["us"]) - {sweep.RIVAL} == names and not set(found["wrong"]) & names
    wrong = sweep.point(Halved(BOTH[0].name()), TINY, BOTH, beat)  # type: ignore[arg-type]
    assert BOTH[0].name() in wrong["wrong"] and set(wrong["us"]) - {sweep.RIVAL} == {BOTH[1].name()}


def test_the_regret_is_that_of_today_s_choice():
    from warploom.operators.select import ranking

    first, second = (config.name() for config, _ in ranking(TINY.posed)[:2])
    row = {**TINY.as_dict(), "us": {first: 11.0, second: 10.0, sweep.RIVAL: 22.0}}
    found = sweep.judged([row])
    assert (found["regret_mean"], found["of_torch_geomean"]) == (0.1, 2.0)
