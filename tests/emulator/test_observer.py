"""What a checker is told of asynchronous copies, barriers and fences: every hook, and in which order."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.async_kernels import cluster_sync, dump, emulate, init, wait, words
from warploom.emulator.machine.machine import Machine
from warploom.emulator.machine.observer import Observer


class Recorder(Observer):
    """Writes down which hooks were called, with their arguments checked against `Observer`'s signatures."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[object, ...]]] = []

    def __getattribute__(self, name: str) -> object:
        if name.startswith("_") or name in ("calls", "names") or not hasattr(Observer, name):
            return object.__getattribute__(self, name)
        hook = getattr(Observer, name)

        def call(*arguments: object, **named: object) -> None:
            hook(self, *arguments, **named)
            self.calls.append((name, arguments))

        return call

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Watches every machine of the test."""
    watching = Recorder()
    monkeypatch.setattr(Machine, "observer", property(lambda self: watching, lambda self, value: None), raising=False)
    return watching


LOAD = """
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;
    @%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%a0], 128, [bar];
"""


def test_a_load_is_issued_read_written_signalled_and_waited_for(recorder):
    emulate(init(1) + LOAD + wait(0) + dump("%a1", 128), words(32), np.zeros(32, np.uint32))
    watched = {"mbarrier_initialised", "operation_issued", "operation_read", "operation_written", "mbarrier_event",
               "mbarrier_phase", "operation_done", "mbarrier_waited"}  # fmt: skip
    assert [name for name in recorder.names() if name in watched] == [
        "mbarrier_initialised",
        "mbarrier_event",  # the bytes are announced
        "mbarrier_event",  # the producer arrives
        "operation_issued",
        "operation_read",
        "operation_written",
        "mbarrier_event",  # the bytes are delivered
        "mbarrier_phase",
        "operation_done",
        "mbarrier_waited",
    ]


def test_an_operation_names_what_it_reads_and_writes(recorder):
    emulate(init(1) + LOAD + wait(0), words(32))
    operation = next(arguments[0] for name, arguments in recorder.calls if name == "operation_issued")
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
        """,
        words(64), grid=2, cluster=2,
    )  # fmt: skip
    told = set(recorder.names())
    assert told >= {
        "barrier_arrived", "barrier_passed", "fence", "cluster_arrived", "cluster_waited", "groups_waited",
        "copies_waited", "grid_dependency", "warp_exited",
    }  # fmt: skip
    assert {arguments[1] for name, arguments in recorder.calls if name == "fence"} == {
        "fence.proxy_async", "fence.proxy_tensormap_acquire",
    }  # fmt: skip
    assert recorder.names().index("barrier_arrived") < recorder.names().index("barrier_passed")
