"""All interleavings of small skeletons: counted, passed, or the shortest bad one shown."""

from __future__ import annotations

import io
from math import comb, factorial

import numpy as np
import pytest

from tests import command_line
from tests.testing.texts import write
from warploom.emulator.diagnosis.report import Interleavings
from warploom.runtime.progress import Progress
from warploom.testing import exhaustive

HEAD = """\
.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 data)
{
    .reg .pred %p<8>;
    .reg .b32 %r<16>;
    .reg .b64 %data;
    .shared .align 128 .b8 tile[256];
    .shared .align 8 .b64 full[2];
    .shared .align 8 .b64 empty[2];
    ld.param.u64 %data, [data];
    mov.u32 %r0, %tid.x;
    setp.eq.u32 %p0, %r0, 0;
    @%p0 mbarrier.init.shared::cta.b64 [full], COUNT_FULL;
    @%p0 mbarrier.init.shared::cta.b64 [full+8], COUNT_FULL;
    @%p0 mbarrier.init.shared::cta.b64 [empty], COUNT_EMPTY;
    @%p0 mbarrier.init.shared::cta.b64 [empty+8], COUNT_EMPTY;
    bar.sync 0;
    shr.u32 %r1, %r0, 5;
    and.b32 %r2, %r0, 31;
    setp.ne.u32 %p1, %r2, 0;
    @%p1 bra done;
"""


def wait(barrier: str, parity: int, label: str) -> str:
    return f"{label}: mbarrier.try_wait.parity.shared::cta.b64 %p3, [{barrier}], {parity};\n@!%p3 bra {label};\n"


def arrive(barrier: str) -> str:
    return f"mbarrier.arrive.shared::cta.b64 _, [{barrier}];\n"


def threads(*bodies: str, full: int = 1, empty: int = 1) -> str:
    """A kernel in which thread 0 of warp w runs the w-th body, after a common start."""
    counts = HEAD.replace("COUNT_FULL", str(full)).replace("COUNT_EMPTY", str(empty))
    branches = "".join(f"setp.eq.u32 %p2, %r1, {warp};\n@%p2 bra warp{warp};\n" for warp in range(len(bodies)))
    return (
        counts + branches + "".join(f"warp{w}:\n{body}bra done;\n" for w, body in enumerate(bodies)) + "done: ret;\n}\n"
    )


def search(text: str, warps: int, bound: int = 2000) -> Interleavings:
    return exhaustive(text, np.zeros(64, np.uint32), grid=(1, 1, 1), block=(32 * warps, 1, 1), bound=bound)


def pipeline(
    tiles: int, consumers: int = 1, *, flip: bool = False, release: bool = True, wait_for_room: bool = True
) -> str:
    """A ring of two stages: a producer copies 64 bytes into each, consumers read them and release the stage."""
    produce, consume = "", ["" for _ in range(consumers)]
    for tile in range(tiles):
        stage, phase = tile % 2, tile // 2 & 1
        if wait_for_room:
            produce += wait(f"empty+{8 * stage}", phase ^ (0 if flip else 1), f"room{tile}")
        produce += (
            f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [full+{8 * stage}], 64;\n"
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
            f"[tile+{128 * stage}], [%data], 64, [full+{8 * stage}];\n"
        )
        for number in range(consumers):
            consume[number] += wait(f"full+{8 * stage}", phase, f"data{tile}_{number}")
            consume[number] += f"ld.shared.u32 %r3, [tile+{128 * stage}];\nfence.proxy.async;\n"
            if release:
                consume[number] += arrive(f"empty+{8 * stage}")
    return threads(produce, *consume, empty=consumers)


# -- counting ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "second"), [(1, 1), (2, 2), (3, 2), (4, 3)])
def test_threads_that_do_not_meet_interleave_in_all_ways(first: int, second: int) -> None:
    """With a and b steps there are (a + b) choose a orders; a step here is an arrival on the thread's own barrier."""
    bodies = (arrive("full") * first, arrive("empty") * second)
    found = search(threads(*bodies, full=first, empty=second), 2)
    assert found.ok and found.complete and found.count == comb(first + second, first)


def test_three_threads_with_a_step_each_have_six_orders() -> None:
    found = search(threads(*[arrive("full")] * 3, full=3), 3)
    assert found.complete and found.count == factorial(3)
    assert str(found).startswith("all 6 interleavings pass")


def test_what_nobody_can_see_is_no_step() -> None:
    unseen = "add.u32 %r4, %r1, 1;\nst.shared.u32 [tile], %r4;\nld.shared.u32 %r5, [tile];\n"
    assert search(threads(unseen * 3 + arrive("full"), arrive("empty")), 2).count == 2


# -- pipelines ---------------------------------------------------------------------------------------------------


def test_a_pipeline_of_two_stages_is_right_in_every_order() -> None:
    found = search(pipeline(4), 2)
    assert found.ok and found.complete and found.count is not None and found.count > 1000
    assert found.runs < 500  # states are visited once, however many ways lead to them


@pytest.mark.full
def test_two_consumers_release_a_stage_together() -> None:
    found = search(pipeline(2, consumers=2), 3)
    assert found.ok and found.complete


def test_a_flipped_phase_is_a_deadlock_or_an_overtaking() -> None:
    found = search(pipeline(4, flip=True), 2)
    assert {finding.rule for finding in found.findings} == {"DeadlockError"}


def test_a_missing_release_stops_the_producer_at_its_third_tile() -> None:
    found = search(pipeline(4, release=False), 2)
    assert not found.ok and found.complete
    assert "DeadlockError" in {finding.rule for finding in found.findings}
    assert found.steps and f"{len(found.steps):3}. " in str(found)


def test_a_pipeline_without_a_wait_for_room_overwrites_what_is_read() -> None:
    found = search(pipeline(3, wait_for_room=False), 2)
    rules = {finding.rule for finding in found.findings}
    assert rules & {"overlapping-copies", "data-race", "generic-access-before-async-write", "surplus-arrival"}


def test_one_release_for_two_consumers_is_too_few() -> None:
    """The barrier counts one arrival a phase, and two come: the second one is for a phase nobody has seen begin."""
    text = pipeline(3, consumers=2).replace("[empty], 2", "[empty], 1").replace("[empty+8], 2", "[empty+8], 1")
    assert not search(text, 3).ok


# -- turns -------------------------------------------------------------------------------------------------------


def turns(rounds: int, first_parity: int = 0) -> str:
    """Two threads take turns with a word in shared memory: `full` lets the second go, `empty` the first again."""
    touch = "ld.shared.u32 %r4, [tile];\nst.shared.u32 [tile], %r1;\n"
    first, second = "", ""
    for number in range(rounds):
        first += (wait("empty", (number - 1) & 1, f"first{number}") if number else "") + touch + arrive("full")
        second += wait("full", (number + first_parity) & 1, f"second{number}") + touch + arrive("empty")
    return threads(first, second)


def test_ordered_turns_leave_no_choice_that_matters() -> None:
    found = search(turns(3), 2)
    assert found.ok and found.complete


def test_turns_that_begin_with_the_wrong_parity_collide() -> None:
    """The second passes at once where it is early, and forever waits for the next turn where it is late."""
    found = search(turns(1, first_parity=1), 2)
    assert {finding.rule for finding in found.findings} == {"DeadlockError"}
    assert "phase 1 (parity 1): 1 of 1 arrivals missing" in found.findings[0].message
    assert len(found.steps) == 1 and found.steps[0].startswith("warp 0 of CTA (0, 0, 0): mbarrier.arrive")


# -- bounds and the command line -----------------------------------------------------------------------------------


def test_a_search_that_reaches_its_bound_says_so_and_claims_nothing() -> None:
    found = search(pipeline(4), 2, bound=10)
    assert found.ok and not found.complete and found.count is None
    assert found.bound == found.runs == 10 and "10" in str(found)


def test_a_search_says_how_far_it_is_after_two_seconds_and_then_every_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _told(monkeypatch, at=(1, 3, 9, 12.9, 15, 20, 25.5)) == [
        "k: 1 of at most 9, 3 s", "k: 4 of at most 9, 15 s", "k: 6 of at most 9, 26 s",
    ]  # fmt: skip


def _told(monkeypatch: pytest.MonkeyPatch, at: tuple[float, ...]) -> list[str]:
    """What is shown of a search whose runs end that many seconds after its start."""
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    times = iter((100.0, *(100.0 + seconds for seconds in at)))
    with Progress("k", after_s=2.0, every_s=10.0, clock=lambda: next(times)) as tell:
        for number in range(len(at)):
            tell(number, 9)
    return [line.strip() for line in stream.getvalue().replace("\r", "\n").splitlines() if line.strip()]


@pytest.mark.full
def test_the_same_search_gives_the_same_answer() -> None:
    assert str(search(pipeline(3), 2)) == str(search(pipeline(3), 2))


def test_the_command_line_shows_the_shortest_bad_interleaving(tmp_path: object) -> None:
    launch = 'grid = [1]\nblock = [64]\n[[parameter]]\nname = "data"\ndtype = "u32"\nshape = [64]\n'
    good = write(tmp_path, "good", pipeline(3), launch)  # type: ignore[arg-type]
    bad = write(tmp_path, "bad", pipeline(3, release=False), launch)  # type: ignore[arg-type]
    said = command_line.run("check", str(good), "--schedule", "exhaustive", "--bound", "1000")
    assert said.exit_code == 0 and "interleavings pass" in said.stdout
    said = command_line.run("check", str(bad), "--schedule", "exhaustive")
    assert said.exit_code == 1 and "a bad interleaving of" in said.stdout and "error[DeadlockError]" in said.stdout
