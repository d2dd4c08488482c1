"""The events that a checker receives for asynchronous copies, barriers and fences, and their order."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.async_kernels import cluster_sync, dump, emulate, init, wait, words
from warploom.emulator.machine.events import Observer
from warploom.emulator.machine.listeners import EVENTS
from warploom.emulator.machine.mbarrier import MBarrier


class Recorder(Observer):
    """Writes down which events were told, with their arguments checked against `Observer`'s signatures."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[object, ...]]] = []

    def __call__(self, machine: object) -> Recorder:
        return self

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def told(self, name: str) -> list[tuple[object, ...]]:
        return [arguments for told, arguments in self.calls if told == name]


def _hear(name: str):
    def hear(self: Recorder, *arguments: object) -> None:
        getattr(Observer, name)(self, *arguments)
        self.calls.append((name, arguments))

    return hear


for _name in EVENTS:
    setattr(Recorder, _name, _hear(_name))


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


LOAD = """
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;
    @%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%a0], 128, [bar];
"""


def test_a_load_is_issued_read_written_signalled_and_waited_for(recorder):
    emulate(init(1) + LOAD + wait(0) + dump("%a1", 128), words(32), np.zeros(32, np.uint32), watch=[recorder])
    copy = {"made", "issued", "read", "written", "done"}
    heard = [
        name
        for name, arguments in recorder.calls
        if name in copy
        or (name in ("arrived", "met") and isinstance(arguments[0], MBarrier))
        or (name == "waited" and arguments[1].on == "phase")
    ]
    assert heard == [
        "made",
        "arrived",  # the bytes are announced
        "arrived",  # the producer arrives
        "issued",
        "read",
        "written",
        "arrived",  # the bytes are delivered
        "met",
        "done",
        "waited",
    ]
    (operation,) = (arguments[0] for arguments in recorder.told("issued"))
    signals = [event.operation for on, event in recorder.told("arrived") if isinstance(on, MBarrier)]
    assert signals == [None, None, operation]


def test_an_operation_names_what_it_reads_and_writes(recorder):
    emulate(init(1) + LOAD + wait(0), words(32), watch=[recorder])
    ((operation,),) = recorder.told("issued")
    assert [(part.region.name, part.size) for part in operation.sources] == [("argument0", 128)]
    assert [(part.region.name, part.start, part.size) for part in operation.targets] == [("shared memory", 1024, 128)]


def test_barriers_groups_fences_and_exits_are_told(recorder):
    emulate(
        "bar.sync 0;\nfence.proxy.async;\nfence.proxy.tensormap::generic.acquire.gpu [%a0], 128;\n" + cluster_sync()
        + """
        @%first cp.async.bulk.global.shared::cta.bulk_group [%a0], [tile], 16;
        @%first cp.async.bulk.commit_group;
        @%first cp.async.bulk.wait_group 0;
        cp.async.ca.shared.global [%tile], [%a0], 4;
        cp.async.wait_all;
        griddepcontrol.wait;
        griddepcontrol.launch_dependents;
        """,
        words(64), grid=2, cluster=2, watch=[recorder],
    )  # fmt: skip
    assert {wait.on for _, wait in recorder.told("waited")} == {"cta", "cluster", "bulk", "cp_async", "grid"}
    assert {on.kind for on, _ in recorder.told("arrived")} == {"cta", "cluster"}
    assert {family for _, family, _ in recorder.told("committed")} == {"bulk", "cp_async"}
    assert sorted(places is not None for _, places in recorder.told("fenced")) == [False, False, True, True]
    assert len(recorder.told("exited")) == 2
    assert recorder.told("permitted")


def test_a_wait_names_the_operations_that_it_proves_and_each_only_to_its_lanes(recorder):
    emulate(
        """
        @%first cp.async.bulk.global.shared::cta.bulk_group [%a0], [tile], 16;
        cp.async.bulk.commit_group;
        @%first cp.async.bulk.global.shared::cta.bulk_group [%a0+16], [tile], 16;
        cp.async.bulk.commit_group;
        cp.async.bulk.wait_group 1;
        cp.async.bulk.wait_group.read 0;
        cp.async.bulk.wait_group 0;
        """,
        words(64), watch=[recorder],
    )  # fmt: skip
    first, second = (arguments[0] for arguments in recorder.told("issued"))
    proven = [(wait.newest, wait.reads_only, list(wait.operations)) for _, wait in recorder.told("waited")]
    assert proven == [(1, False, [(first, 1)]), (0, True, [(second, 1)]), (0, False, [(second, 1)])]


def test_an_invalidated_barrier_is_told(recorder):
    emulate(init(1) + "@%first mbarrier.inval.shared::cta.b64 [bar];", words(32), watch=[recorder])
    ((_, made, _),), ((_, unmade, _),) = recorder.told("made"), recorder.told("unmade")
    assert made is unmade


def test_several_observers_hear_in_their_order():
    order: list[str] = []

    class Named(Observer):
        def __init__(self, name: str) -> None:
            self.name = name

        def exited(self, warp: object) -> None:
            order.append(self.name)

    emulate("", words(1), watch=[lambda machine: Named("first"), lambda machine: Named("second")])
    assert order == ["first", "second"]
