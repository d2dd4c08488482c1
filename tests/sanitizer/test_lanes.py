"""Threads of a warp that run apart: each fences and releases what it did itself, and together they cover the warp."""

from __future__ import annotations

import pytest

from tests.sanitizer.running import rules
from warploom.sanitizer import EXPLORED
from warploom.sanitizer.rules import Example
from warploom.sanitizer.rules.schema import FILL, STORE, STORED, wait

APART = """
@%first mbarrier.init.shared::cta.b64 [bar], 1;
@%first mbarrier.init.shared::cta.b64 [bar+8], 128;
bar.sync 0;
and.b32 %r8, %tid, 1;
setp.eq.u32 %p3, %r8, 0;
@%first mbarrier.arrive.shared::cta.b64 _, [bar];
@%p3 bra even;
odd:
mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar], 0;
@!%p0 bra odd;
ODD
bra.uni meet;
even:
mbarrier.try_wait.parity.shared::cta.b64 %p0, [bar], 0;
@!%p0 bra even;
EVEN
meet:
"""
"""Even and odd threads leave a loop around a wait apart, and go different ways."""
PROXY = "fence.proxy.async;\n"
ARRIVE = "mbarrier.arrive.shared::cta.b64 _, [bar+8];\n"
OTHERS = """
xor.b32 %r0, %r0, 256;
mov.u32 %r1, tile;
add.u32 %r1, %r1, %r0;
ld.shared.u32 %r2, [%r1];
"""
everywhere = pytest.mark.parametrize(("schedule", "seed"), EXPLORED, ids=lambda value: str(value))


def apart(odd: str, even: str, then: str) -> Example:
    return Example(APART.replace("ODD", odd).replace("EVEN", even) + then)


@everywhere
def test_each_half_of_a_warp_fences_its_own_writes(schedule: str, seed: int):
    stored = "bar.sync 0;\n" + STORE + STORED
    assert rules(apart(FILL + PROXY, FILL + PROXY, stored), schedule, seed) == set()
    for odd, even in ((FILL, FILL + PROXY), (FILL + PROXY, FILL), (FILL + PROXY, PROXY + FILL)):
        assert "generic-write-before-async-read" in rules(apart(odd, even, stored), schedule, seed)


@everywhere
def test_a_write_behind_the_own_fence_is_not_covered_by_the_others_fence(schedule: str, seed: int):
    late = FILL + PROXY + "st.shared.u32 [%r1], 0;\n"
    body = apart(late, FILL + PROXY, "bar.sync 0;\n" + STORE + STORED)
    assert "generic-write-before-async-read" in rules(body, schedule, seed)


@everywhere
def test_arrivals_of_both_halves_release_what_the_warp_wrote(schedule: str, seed: int):
    then = wait(0, "9", "bar+8") + OTHERS
    assert rules(apart(FILL + ARRIVE, FILL + ARRIVE, then), schedule, seed) == set()
    for odd, even in ((FILL + ARRIVE, ARRIVE + FILL), (ARRIVE + FILL, FILL + ARRIVE)):
        assert rules(apart(odd, even, then), schedule, seed) & {"warp-synchronous", "data-race"}


@everywhere
def test_one_thread_does_not_speak_for_its_warp_to_the_async_proxy_either(schedule: str, seed: int):
    """All fence, and only the first of each warp arrives."""
    body = (
        "@%first mbarrier.init.shared::cta.b64 [bar], 4;\nbar.sync 0;\n" + FILL + PROXY + "MEET"
        "and.b32 %r4, %tid, 31;\nsetp.eq.u32 %p2, %r4, 0;\n@%p2 mbarrier.arrive.shared::cta.b64 %d0, [bar];"
        + wait() + STORE + STORED
    )  # fmt: skip
    assert "warp-synchronous" in rules(Example(body.replace("MEET", "")), schedule, seed)
    assert rules(Example(body.replace("MEET", "bar.warp.sync -1;\n")), schedule, seed) == set()
