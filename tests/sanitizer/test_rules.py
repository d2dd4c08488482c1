"""Every rule finds its bad example under every schedule, and reports nothing in its good one."""

from __future__ import annotations

import pytest

from tests.sanitizer.running import SCHEDULES, findings, fresh, rules, run
from warploom import asm
from warploom.errors import EmulationError
from warploom.sanitizer.checkers.matrix_registers import MatrixRegisters
from warploom.sanitizer.checkers.text import Text
from warploom.sanitizer.rules import ERROR, RULES

WITH_EXAMPLES = [rule for rule in RULES.values() if rule.bad is not None]
SCHEDULE_IDS = [f"{name}-{seed}" for name, seed in SCHEDULES]
MAY_STOP_FIRST = {
    "mbarrier-init-not-visible": "a thread uses the barrier before it is there",
    "stale-phase-wait": "the phase is complete before the wait, which then waits for the next one",
}
"""Where some schedules end in an error of the machine before the rule can speak."""

SAME_CAUSE = {
    "bytes-in-later-phase": "byte-count-mismatch",
    "mbarrier-invalidated-too-early": "mbarrier-used-when-invalid",
    "peer-flag-order": "peer-buffer-reused",
    "peer-buffer-reused": "peer-flag-order",
    "tensor-memory-overwritten": "tensor-memory-race",
}
"""Where some schedules show another effect: the phase is over before the second copy is issued; a barrier is used after
it is invalidated, not before; one GPU, or one warp, reads before the other writes, or after it."""


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES, ids=SCHEDULE_IDS)
@pytest.mark.parametrize("rule", WITH_EXAMPLES, ids=lambda rule: rule.id)
def test_the_bad_example_is_found(rule, schedule, seed):
    found = rules(rule.bad, schedule, seed)
    if rule.id in MAY_STOP_FIRST and schedule != "lazy" and rule.id not in found:
        with pytest.raises(EmulationError):
            run(rule.bad, schedule, seed)
    else:
        assert {rule.id, SAME_CAUSE.get(rule.id)} & found


@pytest.mark.parametrize("rule", (*MatrixRegisters.rules, *Text.rules))
def test_a_kernel_that_is_run_again_gets_the_findings_of_its_first_run(rule):
    ready = fresh(RULES[rule].bad.text())
    first, second = (run(RULES[rule].bad, ready=ready).findings for _ in range(2))
    assert first and list(map(str, first)) == list(map(str, second))


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES, ids=SCHEDULE_IDS)
@pytest.mark.parametrize("rule", WITH_EXAMPLES, ids=lambda rule: rule.id)
def test_the_good_example_is_clean(rule, schedule, seed):
    report = run(rule.good, schedule, seed)
    assert [finding for finding in report.findings if finding.severity == ERROR or finding.rule == rule.id] == []


@pytest.mark.parametrize("rule", WITH_EXAMPLES, ids=lambda rule: rule.id)
def test_both_examples_are_legal_texts(rule):
    for example in (rule.bad, rule.good):
        assert asm.verify(asm.parse(example.text())) == []


def test_a_finding_names_both_lines_and_the_fix():
    rule = RULES["generic-write-before-async-read"]
    (finding,) = [finding for finding in findings(rule.bad) if finding.rule == rule.id]
    text = rule.bad.text().splitlines()
    lines = [text[place.line - 1].strip() for place in finding.locations]
    assert lines[0].startswith("@%first cp.async.bulk.global") and lines[1].startswith("st.shared")
    assert "`tile`" in finding.message and "warp 0 of CTA (0, 0, 0)" in finding.message
    assert rule.fix in finding.message


def test_a_fence_for_global_memory_where_shared_memory_needs_one_is_an_error():
    example = RULES["cp-async-before-wgmma"].good
    other = example.text().replace("fence.proxy.async;", "fence.proxy.async.global;")
    found = run(example, ready=fresh(other)).findings
    assert [finding.rule for finding in found if finding.severity == ERROR] == ["cp-async-before-wgmma"]
