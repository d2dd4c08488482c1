"""Registers of products in flight, as in attention: scores, P in registers, several accumulators.

Each kernel has a product followed by an access to its registers; WAIT is what an author may forget between them.
"""

from __future__ import annotations

import pytest

from tests.sanitizer.pieces import COMMIT, DESCRIPTORS, FENCE_MMA, WAIT_MMA, load, wait
from tests.sanitizer.running import SCHEDULES, findings, rules, run
from warploom import asm
from warploom.sanitizer.rules import Example

IN_FLIGHT = "wgmma-register-in-flight"
BEGIN = (
    "".join(f"mov.f32 %f{number}, 0f00000000;\n" for number in range(8))
    + "".join(f"mov.b32 %r{number}, 0;\n" for number in range(4, 12))
    + "@%first mbarrier.init.shared::cta.b64 [bar], 1;\nbar.sync 0;\n"
    + load(4096) + wait() + DESCRIPTORS + "setp.ne.u32 %p1, 1, 0;\nsetp.ne.u32 %p2, 0, 0;\n"
)  # fmt: skip
"""Zeros in all accumulators and operands, the tile loaded, %p1 true: the product adds; %p2 false: it overwrites."""
S_WIDE = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %d0, %d1, %p2, 1, 1, 0, 0;\n"
S_HALF = "wgmma.mma_async.sync.aligned.m64n16k16.f16.f16.f16 {%r4, %r5, %r6, %r7}, %d0, %d1, %p2, 1, 1, 0, 0;\n"
"""Accumulators of 16 bits are an A operand as they are."""
P_V = (
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f4, %f5, %f6, %f7}, {%r4, %r5, %r6, %r7}, %d1, %p1, 1, 1, 0;\n"
)
SHIFTED = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f2, %f3, %f4, %f5}, %d0, %d1, %p1, 1, 1, 0, 0;\n"
EXCHANGED = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f3, %f2, %f1, %f0}, %d0, %d1, %p1, 1, 1, 0, 0;\n"
SECOND_P_V = P_V.replace("{%f4, %f5, %f6, %f7}", "{%f0, %f1, %f2, %f3}")


def of(*parts: str) -> str:
    """Products in groups of their own, each behind a fence; what is no product as it is."""
    return BEGIN + "".join(FENCE_MMA + part + COMMIT if part.startswith("wgmma.mma") else part for part in parts)


WAIT = "WAIT\n"
EARLY = {
    "scores are read": of(S_WIDE, WAIT, "max.f32 %f8, %f0, %f1;\n"),
    "scores are read behind a branch": of(
        S_WIDE, WAIT, "setp.gt.u32 %p3, %idx, 63;\n@%p3 bra over;\nex2.approx.f32 %f8, %f3;\nover:\n"
    ),
    "scores are stored": of(S_WIDE, WAIT, "@%first st.shared.v4.f32 [tile+2048], {%f0, %f1, %f2, %f3};\n"),
    "sums are scaled": of(P_V, WAIT, "mul.f32 %f7, %f7, 0f3F000000;\n"),
    "the next P is written over the one that is multiplied": of(P_V, WAIT, "cvt.rn.f16x2.f32 %r6, %f0, %f1;\n"),
    "one lane writes the next P": of(P_V, WAIT, "@%first mov.b32 %r6, 1;\n"),
    "scores of 16 bits are multiplied as P": of(S_HALF, WAIT, P_V),
    "a product goes where another reads P": of(P_V, WAIT, S_HALF),
    "a product goes into half of another's accumulator": of(S_WIDE, WAIT, SHIFTED),
    "a product takes an accumulator in another order": of(S_WIDE, WAIT, EXCHANGED),
    "the group before the last is not waited for": of(
        S_WIDE, P_V, "wgmma.wait_group.sync.aligned 2;\n", WAIT, "max.f32 %f8, %f0, %f1;\n"
    ),
}  # fmt: skip
LEGAL = {
    "two products read the same P": of(P_V, SECOND_P_V, WAIT_MMA),
    "a product adds to the accumulator of the one before": of(S_WIDE, S_WIDE.replace("%p2", "%p1"), WAIT_MMA),
    "scores are read under the P V behind them": of(
        S_WIDE, P_V, "wgmma.wait_group.sync.aligned 1;\nmax.f32 %f8, %f0, %f1;\n", WAIT_MMA
    ),
    "the other P is written under the product of this one": of(P_V, "mov.b32 %r8, 1;\nmov.b32 %r9, 1;\n", WAIT_MMA),
}
schedules = pytest.mark.parametrize(("schedule", "seed"), SCHEDULES[:4])


def example(body: str) -> Example:
    return Example(body + WAIT_MMA)


@schedules
@pytest.mark.parametrize("name", EARLY)
def test_a_register_of_a_product_in_flight_is_touched(name: str, schedule: str, seed: int):
    bad, good = (example(EARLY[name].replace(WAIT, wait_)) for wait_ in ("", WAIT_MMA))
    assert IN_FLIGHT in rules(bad, schedule, seed)
    assert run(good, schedule, seed).findings == []


@schedules
@pytest.mark.parametrize("name", LEGAL)
def test_what_products_in_flight_may_share(name: str, schedule: str, seed: int):
    assert run(example(LEGAL[name]), schedule, seed).findings == []


@pytest.mark.parametrize("name", ["scores of 16 bits are multiplied as P", "a product goes where another reads P"])
def test_the_finding_names_both_products(name: str):
    body = EARLY[name].replace(WAIT, "")
    (found,) = (one for one in findings(example(body)) if one.rule == IN_FLIGHT)
    assert len(set(found.locations)) == 2


NO_FENCE = "missing-wgmma-fence"
COPY = "".join(f"mov.b32 %f{4 + number}, %f{number};\n" for number in range(4))
BESIDE = of(P_V).removeprefix(BEGIN)
UNFENCED = BESIDE.replace(FENCE_MMA, "")
DONE = of(S_WIDE, WAIT_MMA)
RENAMED = S_WIDE.replace("%f2, %f3", "%f8, %f9").replace("%p2", "%p1")
MOVED = {
    "scores in flight": (of(S_WIDE, COPY, WAIT_MMA) + BESIDE, {IN_FLIGHT: "warning"}),
    "scores in flight, and a copy is used": (of(S_WIDE, COPY, "max.f32 %f8, %f4, %f5;\n"), {IN_FLIGHT: "error"}),
    "scores in flight, and a copy of a copy is used": (
        of(S_WIDE, COPY, "mov.b32 %f9, %f4;\nex2.approx.f32 %f9, %f9;\n"), {IN_FLIGHT: "error"},
    ),
    "some registers of an accumulator get other names": (
        of(S_WIDE, "mov.f32 %f8, %f2;\nmov.f32 %f9, %f3;\n") + FENCE_MMA + RENAMED + COMMIT, {IN_FLIGHT: "warning"},
    ),
    "constants over scores in flight": (of(S_WIDE, "mov.f32 %f0, 0f00000000;\n"), {IN_FLIGHT: "error"}),
    "scores behind the fence": (DONE + FENCE_MMA + COPY + UNFENCED, {NO_FENCE: "warning"}),
    "constants behind the fence": (DONE + FENCE_MMA + "mov.f32 %f4, 0f00000000;\n" + UNFENCED, {NO_FENCE: "warning"}),
    "a number computed behind the fence": (
        DONE + FENCE_MMA + "add.f32 %f8, %f0, %f1;\nmov.f32 %f9, %f8;\nmov.f32 %f4, %f9;\n" + UNFENCED,
        {NO_FENCE: "error"},
    ),
    "a number computed before the fence": (
        DONE + "add.f32 %f8, %f0, %f1;\n" + FENCE_MMA + "mov.f32 %f4, %f8;\n" + UNFENCED, {NO_FENCE: "warning"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVED)
def test_a_move_is_judged_by_its_value_and_its_copy(name: str):
    """Compilers place moves behind fences and under products in flight; ptxas adds the fence or the wait."""
    body, expected = MOVED[name]
    worst_first = findings(example(body))
    assert {one.rule: one.severity for one in reversed(worst_first)} == expected


@pytest.mark.parametrize("body", [*EARLY.values(), *LEGAL.values()], ids=[*EARLY, *LEGAL])
def test_the_texts_are_legal(body: str):
    assert asm.verify(asm.parse(example(body.replace(WAIT, "")).text())) == []
