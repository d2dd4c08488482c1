"""A missing edge is found regardless of how the threads run: barriers not yet initialised, ignored waits."""

from __future__ import annotations

import pytest

from tests.sanitizer.pieces import INIT, PEER, READ, load, wait
from tests.sanitizer.running import findings, rules
from warploom.sanitizer import EXPLORED
from warploom.sanitizer.rules import Example

BEGIN = "@%first mbarrier.init.shared::cta.b64 [bar], 1;\n"
FENCE = "@%first fence.mbarrier_init.release.cluster;\nbar.sync 0;\n"
ARRIVE = "barrier.cluster.arrive.relaxed.aligned;\n"
MET = "barrier.cluster.wait.aligned;\n"
LEAVE = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"
EXPECT = "@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 512;\n"
PUSH = (
    PEER
    + """
mov.u32 %r6, tile;
mapa.shared::cluster.u32 %r6, %r6, %r4;
shl.b32 %r7, %idx, 2;
add.u32 %r6, %r6, %r7;
st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r6], %idx, [%r5];
"""
    + EXPECT
    + wait(scope=".acquire.cluster")
    + READ
)
"""Each thread sends a word to the other CTA, by st.async."""
TELL = (
    PEER
    + "@%first mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];\n"
    + wait(scope=".acquire.cluster")
    + LEAVE
)
TRY = "mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar], 0;\n"
everywhere = pytest.mark.parametrize(("schedule", "seed"), EXPLORED, ids=lambda value: str(value))


@everywhere
@pytest.mark.parametrize("act", [PUSH, TELL], ids=["st.async", "arrival"])
def test_a_barrier_of_another_cta_must_be_there_before_it_is_signalled(act: str, schedule: str, seed: int):
    def found(body: str) -> set[str]:
        return rules(Example(body, cluster=2), schedule, seed)

    assert found(BEGIN + FENCE + ARRIVE + MET + act) == set()
    assert "mbarrier-init-not-visible" in found(BEGIN + "bar.sync 0;\n" + ARRIVE + MET + act)
    too_early = found(BEGIN + FENCE + ARRIVE + act + (MET if act is PUSH else ""))
    assert {"mbarrier-init-not-visible", "cta-may-not-have-started"} <= too_early


def test_a_wait_for_a_store_of_another_cta_has_the_clusters_scope():
    body = BEGIN + FENCE + ARRIVE + MET + PUSH
    assert rules(Example(body, cluster=2)) == set()
    assert rules(Example(body.replace(".acquire.cluster", ""), cluster=2)) == {"remote-wait-scope"}


@everywhere
def test_a_wait_without_a_meeting_behind_the_initialisation(schedule: str, seed: int):
    body = INIT + load() + wait() + READ
    assert rules(Example(body), schedule, seed) == set()
    assert "mbarrier-init-not-visible" in rules(Example(body.replace("bar.sync 0;", "")), schedule, seed)


@everywhere
@pytest.mark.parametrize(("asked", "heeded"), [
    (wait(), True),
    (TRY, False),
    (TRY + "@%p0 bra on;\non:\n", False),
    (TRY + "selp.u32 %r9, 1, 0, %p0;\nsetp.eq.u32 %p4, %r9, 0;\n", False),
    ("again:\n" + TRY + "selp.u32 %r9, 1, 0, %p0;\nsetp.eq.u32 %p4, %r9, 0;\n@%p4 bra again;\n", True),
    (TRY + wait(), True),
], ids=["loop", "no loop", "branch on", "copied and left", "loop over a copy", "tried before"])  # fmt: skip
def test_a_wait_whose_result_nobody_looks_at_has_waited_for_nothing(asked: str, heeded: bool, schedule: str, seed: int):
    found = rules(Example(INIT + load() + asked + READ), schedule, seed)
    assert (found == set()) if heeded else ("copy-not-waited" in found)


def test_the_history_says_that_nobody_looked():
    (finding,) = (one for one in findings(Example(INIT + load() + TRY + READ)) if one.rule == "copy-not-waited")
    assert any("nothing uses its result" in line for line in finding.history)
