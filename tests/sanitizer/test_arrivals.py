"""Arrivals after the last of a phase: a count that is too small for the arriving threads."""

from __future__ import annotations

import pytest

from tests.sanitizer.pieces import wait
from tests.sanitizer.running import SCHEDULES, findings, run
from warploom.errors import DeadlockError
from warploom.sanitizer.rules import Example

LEADERS = """
and.b32 %r4, %idx, 31;
setp.eq.u32 %p3, %r4, 0;
"""
"""%p3: the first lane of each of the four warps."""


def codes(body: str, schedule: str = "lazy", seed: int = 0) -> set[str]:
    return {finding.rule for finding in findings(Example(body), schedule, seed) if finding.severity == "error"}


def init(count: int) -> str:
    return f"@%first mbarrier.init.shared::cta.b64 [bar], {count};\nbar.sync 0;\n"


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_four_warps_arrive_where_three_are_counted(schedule: tuple[str, int]):
    arrive = "@%p3 mbarrier.arrive.shared::cta.b64 _, [bar];\n"
    assert codes(init(3) + LEADERS + arrive + wait(), *schedule) == {"surplus-arrival"}
    assert codes(init(4) + LEADERS + arrive + wait(), *schedule) == set()


def test_lanes_of_one_instruction_arrive_in_two_phases():
    arrive = "mbarrier.arrive.shared::cta.b64 _, [bar];\n"
    assert codes(init(127) + arrive + wait()) == {"surplus-arrival"}
    assert codes(init(128) + arrive + wait()) == set()


def test_a_wait_between_two_arrivals_tells_of_the_phase():
    arrive = "@%p3 mbarrier.arrive.shared::cta.b64 _, [bar];\n"
    assert codes(init(4) + LEADERS + arrive + wait() + arrive + wait(1, "1")) == set()


def test_who_arrives_alone_knows_when_the_phase_is_complete():
    arrive = "@%first mbarrier.arrive.shared::cta.b64 _, [bar];\n"
    assert "surplus-arrival" not in codes(init(1) + arrive + arrive + wait(1))


def test_a_thread_that_met_the_last_to_arrive_knows_of_the_phase():
    first, last = "@%first mbarrier.arrive.shared::cta.b64 _, [bar];\n", "setp.eq.u32 %p3, %idx, 64;\n"
    second = "@%p3 mbarrier.arrive.shared::cta.b64 _, [bar];\n"
    assert "surplus-arrival" not in codes(init(1) + first + "bar.sync 0;\n" + last + second + wait(1))
    assert "surplus-arrival" in codes(init(1) + first + last + second + wait(1))


ASKED = """
@%first mbarrier.init.shared::cta.b64 [bar], 1;
bar.sync 0;
@%first mbarrier.arrive.shared::cta.b64 %d0, [bar];
mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar], 0;
AGAIN
bar.sync 0;
@%first mbarrier.arrive.shared::cta.b64 %d0, [bar];
wait_1:
mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar], 1;
@!%p0 bra wait_1;
"""
WAITS = "wait_0:\nmbarrier.try_wait.parity.shared::cta.b64 %p0, [bar], 0;\n@!%p0 bra wait_0;"


@pytest.mark.parametrize(("change", "severity"), [
    (("AGAIN", ""), {"error"}), (("AGAIN", WAITS), set()),
    (("mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar], 0;\nAGAIN", ""), {"warning"}),
], ids=["asked, and the answer not used", "asked ahead of a wait", "not asked"])  # fmt: skip
def test_an_arrival_behind_a_wait_whose_answer_nobody_uses_is_an_error(change: tuple[str, str], severity: set[str]):
    """try_wait may return false, so that its thread has not waited: the loop around it was forgotten."""
    found = findings(Example(ASKED.replace(*change), threads=64))
    assert {one.severity for one in found if one.rule == "phase-not-observed"} == severity


RING = """
@%first mbarrier.init.shared::cta.b64 [tile+2048], 1;
@%first mbarrier.init.shared::cta.b64 [tile+2056], 1;
@%first mbarrier.init.shared::cta.b64 [tile+2064], 1;
@%first mbarrier.init.shared::cta.b64 [tile+2072], 1;
bar.sync 0;
mov.u32 %r0, tile;
mov.u32 %r1, 0;
setp.ge.u32 %p3, %idx, 32;
@%p3 bra consumer;
@!%first bra done;
mov.u32 %r2, 1;
produce:
and.b32 %r3, %r1, 1;
mad.lo.u32 %r4, %r3, 8, %r0;
@%free bra free;
not_free:
mbarrier.try_wait.parity.shared::cta.b64 %p0, [%r4+2064], %r2;
@!%p0 bra not_free;
free:
mad.lo.u32 %r6, %r3, 4, %r0;
st.shared.u32 [%r6], %r1;
mbarrier.arrive.shared::cta.b64 _, [%r4+2048];
add.u32 %r1, %r1, 1;
setp.eq.u32 %p0, %r1, 3;
@%p0 bra done;
shr.u32 %r2, %r1, 1;
xor.b32 %r2, %r2, 1;
xor.b32 %r7, %r2, WRONG;
and.b32 %r3, %r1, 1;
mad.lo.u32 %r4, %r3, 8, %r0;
mbarrier.try_wait.parity.shared::cta.b64 %free, [%r4+2064], %r7;
bra produce;
consumer:
setp.ne.u32 %p3, %idx, 32;
@%p3 bra done;
consume:
and.b32 %r3, %r1, 1;
shr.u32 %r2, %r1, 1;
mad.lo.u32 %r4, %r3, 8, %r0;
not_full:
mbarrier.try_wait.parity.shared::cta.b64 %p0, [%r4+2048], %r2;
@!%p0 bra not_full;
mad.lo.u32 %r6, %r3, 4, %r0;
ld.shared.u32 %r8, [%r6];
mad.wide.u32 %d0, %r1, 4, %data;
st.global.u32 [%d0], %r8;
mbarrier.arrive.shared::cta.b64 _, [%r4+2064];
add.u32 %r1, %r1, 1;
setp.lt.u32 %p0, %r1, 3;
@%p0 bra consume;
done:
"""
"""Two stages and three tiles. The producer asks ahead whether the next stage is free, and waits if it is not."""


def test_a_producer_that_asks_ahead_with_the_wrong_parity_is_found():
    """It overtakes the consumer, which then waits for a phase that has passed twice."""
    ring = ".reg .pred %free;\nsetp.ne.u32 %free, %idx, %idx;\n" + RING
    for schedule in SCHEDULES:
        report = run(Example(ring.replace("WRONG", "0")), *schedule)
        assert report.findings == [] and report.outputs[0][:3].tolist() == [0, 1, 2]
    with pytest.raises(DeadlockError):
        run(Example(ring.replace("WRONG", "1")))
    assert "data-race" in codes(ring.replace("WRONG", "1"), "random", 0)


def test_a_thread_may_arrive_twice_where_one_thread_has_stood_for_both():
    """A ring is opened with both arrivals of a phase; then one thread, as by two commits, releases it."""
    both = "@%first mbarrier.arrive.shared::cta.b64 _, [bar], 2;\n"
    two = LEADERS + "setp.lt.and.u32 %p3, %idx, 64, %p3;\n@%p3 mbarrier.arrive.shared::cta.b64 _, [bar];\n"
    twice = "setp.eq.u32 %p3, %idx, 64;\n" + 2 * "@%p3 mbarrier.arrive.shared::cta.b64 _, [bar];\n"
    for opened, found in ((both, set()), (two, {"double-arrival"})):
        body = init(2) + opened + wait() + "bar.sync 0;\n" + twice + wait(1, "1")
        assert {one.rule for one in findings(Example(body))} == found


@pytest.mark.parametrize(("schedule", "seed"), [("lazy", 0), ("random", 1), ("starve", 2)])
def test_a_second_arrival_at_the_clusters_barrier_is_found_and_the_run_goes_on(schedule: str, seed: int):
    arrive, wait_for = "barrier.cluster.arrive.aligned;\n", "barrier.cluster.wait.aligned;\n"
    stored = "setp.eq.and.u32 %p3, %rank, 1, %first;\n@%p3 st.global.u32 [%data], 7;\n"
    body = arrive + "setp.eq.u32 %p4, %rank, 0;\n@%p4 barrier.cluster.arrive;\n" + wait_for + stored + arrive + wait_for
    report = run(Example(body, cluster=2), schedule, seed)
    assert [(one.rule, one.severity) for one in report.findings] == [("second-cluster-arrival", "error")]
    assert report.counters.global_store_bytes > 0
