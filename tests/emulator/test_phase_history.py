"""The history of a barrier's phase: a warp's arrivals at one place are one entry, even of single lanes."""

from tests.emulator.async_kernels import cluster_sync, emulate, init, wait
from tests.errors import refused

REMOTE = """
    mapa.shared::cluster.u32 %r1, %bar, 0;
    mbarrier.arrive.shared::cluster.b64 _, [%r1];
"""


def test_arrivals_of_a_warp_from_another_cta_are_told_together():
    """Both CTAs arrive on the barrier of the first; one arrival more is expected than comes."""
    body = init(65) + cluster_sync() + REMOTE + wait(0) + cluster_sync()
    with refused("deadlock") as caught:
        emulate(body, grid=2, cluster=2)
    first = next(one for one in caught.value.waits if one.came)
    assert [words.partition(" at ")[0] for words in first.came] == ["64 arrivals: warp 0 of 2 CTAs"]
