"""The history of a barrier's phase: arrivals on one line are one entry, which names the warps."""

import pytest

from tests.emulator.async_kernels import cluster_sync, emulate, init, wait
from tests.errors import refused
from warploom.errors import DeadlockError

REMOTE = """
    mapa.shared::cluster.u32 %r1, %bar, 0;
    mbarrier.arrive.shared::cluster.b64 _, [%r1];
"""
ARRIVE = "mbarrier.arrive.shared::cta.b64 _, [%bar];"


def came(error: DeadlockError) -> list[tuple[str, ...]]:
    """Of each wait for which something has arrived, the entries without their places."""
    return [tuple(words.partition(" at ")[0] for words in one.came) for one in error.waits if one.came]


def test_arrivals_of_a_warp_from_another_cta_are_told_together():
    """Both CTAs arrive on the barrier of the first; one arrival more is expected than comes."""
    body = init(65) + cluster_sync() + REMOTE + wait(0) + cluster_sync()
    with refused("deadlock") as caught:
        emulate(body, grid=2, cluster=2)
    first = next(one for one in caught.value.waits if one.came)
    assert [words.partition(" at ")[0] for words in first.came] == ["64 arrivals: warp 0 of 2 CTAs"]


def guarded(which: str, body: str) -> str:
    return f"{{ .reg .pred %some; setp.{which}; @!%some bra over; {body}\nover: }}\n"


@pytest.mark.parametrize(
    "arrive, entries",
    [
        (ARRIVE, ("128 arrivals: warps 0-3",)),
        (guarded("ge.u32 %some, %idx, 32", ARRIVE), ("96 arrivals: warps 1-3",)),
        (guarded("eq.u32 %some, %idx, 70", ARRIVE), ("1 arrival: thread 70",)),
        (
            guarded("lt.u32 %some, %idx, 64", ARRIVE) + guarded("ge.u32 %some, %idx, 80", ARRIVE),
            ("64 arrivals: warps 0-1", "48 arrivals: warps 2-3"),
        ),
        ("\n".join([ARRIVE] * 8), (*("128 arrivals: warps 0-3",) * 6, "and 2 more")),
    ],
)
def test_arrivals_of_several_warps_name_them(arrive: str, entries: tuple[str, ...]):
    with refused("deadlock") as caught:
        emulate(init(2000) + "bar.sync 0;\n" + arrive + wait(0), threads=128)
    assert came(caught.value) == [entries]


NAMED = guarded("lt.u32 %some, %idx, 64", "bar.arrive 1, 128;") + guarded("ge.u32 %some, %idx, 96", "bar.sync 1, 128;")


def test_the_history_of_a_named_barrier_names_the_warps_and_the_lines_of_their_arrivals():
    with refused("deadlock") as caught:
        emulate(NAMED, threads=128)
    assert came(caught.value) == [("64 arrivals: warps 0-1", "32 arrivals: warp 3")]
    (wait,) = caught.value.waits
    lines = [int(words.rpartition(":")[2]) for words in wait.came]
    assert lines[0] < lines[1] == wait.location.line


def test_the_history_of_the_barrier_of_a_cluster_names_who_has_arrived():
    body = guarded("lt.u32 %some, %idx, 32", "barrier.cluster.arrive;\nbarrier.cluster.wait;") + "bar.sync 0;\n"
    with refused("deadlock") as caught:
        emulate(body, grid=2, cluster=2, threads=64)
    assert ("64 arrivals: warp 0 of 2 CTAs",) in came(caught.value)
