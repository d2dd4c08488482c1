"""The engine's policies on test operations: when effects happen, and which orders are forbidden."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from tests.errors import refused
from warploom.emulator.engines import engine
from warploom.emulator.engines.engine import Engine
from warploom.emulator.machine.async_operation import AsyncOperation
from warploom.emulator.machine.listeners import Events
from warploom.emulator.machine.units import CP_ASYNC, EVERY_THIRD, LOADS, REMOTE, STORES, UNITS, WARPGROUP_MMA, Unit
from warploom.emulator.machine.units import starved_seed as starved
from warploom.emulator.schedule.policy import SCHEDULES, make_policy


class Log:
    """A machine that counts progress, and the order in which parts of operations took effect."""

    def __init__(self, policy: str, seed: int = 0) -> None:
        self.events: list[str] = []
        self.machine = SimpleNamespace(events=Events(), progress_count=0, signals=0, numerics="exact")
        self.engine = Engine(self.machine, policy, seed)

    @property
    def steps(self) -> int:
        return self.machine.progress_count

    def submit(self, name: str, unit: Unit = LOADS, after: tuple[AsyncOperation, ...] = ()) -> AsyncOperation:
        """An operation whose every step is written down."""
        note = self.events.append
        return self.engine.submit(
            AsyncOperation(
                unit,
                SimpleNamespace(short=lambda: "a test"),
                name,
                read=lambda part, parts: note(f"{name} read {part}/{parts}"),
                write=lambda part, parts: note(f"{name} write {part}/{parts}"),
                signal=lambda: note(f"{name} signal"),
                after=after,
            )  # fmt: skip
        )


WHOLE = ["a read 0/1", "a write 0/1", "a signal"]


def test_eager_operations_are_done_at_issue():
    log = Log("eager")
    operation = log.submit("a")
    assert operation.done and log.events == WHOLE and log.engine.in_flight == 0 and log.steps


def test_lazy_operations_wait_until_nothing_else_can_move():
    log = Log("lazy")
    operation = log.submit("a")
    assert not operation.done and not log.events
    assert log.engine.advance() and operation.done and log.events == WHOLE
    assert not log.engine.advance()


def test_lazy_takes_wgmma_first_and_stores_last():
    log = Log("lazy")
    for unit in (STORES, REMOTE, LOADS, CP_ASYNC, WARPGROUP_MMA):
        log.submit(unit.name, unit)
    log.engine.drain()
    order = [event.removesuffix(" signal") for event in log.events if event.endswith(" signal")]
    assert order == ["warpgroup mma", "cp.async", "load", "remote", "store"]


def test_a_store_is_read_in_one_step_and_written_in_another():
    log = Log("lazy")
    operation = log.submit("a", STORES)
    log.engine.advance()
    assert operation.read_done and not operation.done and log.events == ["a read 0/1"]
    log.engine.advance()
    assert operation.done and log.events == WHOLE


@pytest.mark.parametrize("policy", SCHEDULES)
@pytest.mark.parametrize("seed", range(6))
def test_nothing_starts_before_what_it_comes_after(policy, seed):
    log = Log(policy, seed)
    first = log.submit("first", LOADS)
    second = log.submit("second", WARPGROUP_MMA, (first,))
    log.submit("third", STORES, (second,))
    log.engine.drain()
    begins = {name: log.events.index(next(e for e in log.events if e.startswith(name))) for name in ("second", "third")}
    assert log.events.index("first signal") < begins["second"]
    assert log.events.index("second signal") < begins["third"]


def test_random_lands_pieces_in_any_order_and_the_signal_last():
    orders = set()
    for seed in range(60):
        log = Log("random", seed)
        log.submit("a")
        log.engine.drain()
        reads = [event for event in log.events if "read" in event]
        writes = [event for event in log.events if "write" in event]
        assert log.events == [*reads, *writes, "a signal"]
        parts = int(writes[0][-1])
        assert sorted(writes) == [f"a write {part}/{parts}" for part in range(parts)]
        orders.add(tuple(writes))
    assert len(orders) > 10


def test_the_same_seed_makes_the_same_choices():
    def run(seed: int) -> list[str]:
        log = Log("random", seed)
        for name in "abcdef":
            log.submit(name)
            log.engine.advance()
        log.engine.drain()
        return log.events

    assert run(3) == run(3) != run(4)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_starve_holds_back_one_unit_and_does_the_others_at_issue(unit):
    log = Log("starve", unit.seed)
    operations = {one: log.submit(one.name, one) for one in UNITS}
    assert {one for one, operation in operations.items() if not operation.done} == {unit}
    log.engine.drain()
    assert all(operation.done for operation in operations.values())


def test_a_seed_of_starve_means_the_same_when_units_are_added():
    """These numbers stand in reports that people replay."""
    assert {unit.name: unit.seed for unit in UNITS if unit.seed < 100} == {
        "warpgroup mma": 0, "cp.async": 1, "load": 2, "remote": 3, "store": 4,
    }  # fmt: skip
    assert len({unit.seed for unit in UNITS}) == len(UNITS) and EVERY_THIRD not in {unit.seed for unit in UNITS}
    assert [starved(seed) for seed in (5, 6, 11, 12, 96)] == [5, 0, 5, 0, 0]


def test_pct_tosses_one_coin_for_each_operation(monkeypatch: pytest.MonkeyPatch):
    """Hundreds of operations are held back at once (cp.async of every thread), and each step asks about all of them."""
    tosses = 0

    def counted(seed: int) -> random.Random:
        nonlocal tosses
        tosses += 1
        return random.Random(seed)

    log = Log("pct", 3)
    monkeypatch.setattr(engine, "random", SimpleNamespace(Random=counted))
    engine._tossed.cache_clear()
    for number in range(200):
        log.submit(f"{number}")
    held = log.engine.in_flight
    log.engine.drain()
    assert 50 < held < 150 and log.engine.in_flight == 0
    assert tosses == 200


def test_what_is_in_flight_can_be_told():
    log = Log("lazy")
    log.submit("TMA load of a box")
    assert log.engine.describe_pending() == ("TMA load of a box, issued by a test",)


def test_an_unknown_schedule_is_refused():
    with refused("argument", expected="one of eager, lazy, random, starve, pct, explore, exhaustive"):
        make_policy("sometimes", 0)
