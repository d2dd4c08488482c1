"""Barriers: the PTX that the helpers emit."""

from __future__ import annotations

from tests.lang.tools import emitted
from warploom.lang import ptx, smem


def arrivals(**options: bool) -> list[str]:
    def body() -> None:
        ptx.mbarrier.arrive_remote(smem.mbarrier(1)[0], 1, **options)

    return [line for line in emitted(body, arch="sm_90a", cluster=(2, 1, 1)) if line.startswith("mbarrier")]


def test_a_remote_arrival_releases_at_cluster_scope_unless_it_is_relaxed():
    assert arrivals()[0].startswith("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [")
    assert arrivals(relaxed=True)[0].startswith("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [")
