"""`warploom check` with the guesses of --init: it never passes cleanly, and reports wrong guesses first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import command_line

TEXT = """
.version 8.4
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry k(.param .align 64 .b8 A[128], .param .u64 from, .param .u64 out, .param .u32 n)
.reqntid 128, 1, 1
{
    .reg .pred %p<4>;
    .reg .b32 %r<20>;
    .reg .b64 %rd<8>;
    .shared .align 8 .b64 bar;
    mov.u32 %r0, %tid.x;
    setp.eq.u32 %p0, %r0, 0;
    ld.param.u32 %r9, [n];
    @%p0 mbarrier.init.shared::cta.b64 [bar], 1;
    bar.sync 0;
    mov.b64 %rd0, A;
    ld.param.u64 %rd3, [from];
    @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 8192;
    @%p0 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [smem], [%rd0, {0, 0}], [bar];
    @%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [smem+32768], [%rd3], 4096, [bar];
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0;
    @!%p1 bra WAIT;
    setp.lt.u32 %p2, %r0, %r9;
    @!%p2 bra DONE;
    shl.b32 %r4, %r0, 2;
    mov.u32 %r5, smem;
    add.u32 %r5, %r5, %r4;
    ld.shared.u32 %r6, [%r5];
    ld.param.u64 %rd1, [out];
    mul.wide.u32 %rd2, %r0, 4;
    add.s64 %rd1, %rd1, %rd2;
    st.global.u32 [%rd1], %r6;
DONE:
    ret;
}
"""


def check(path: Path, *more: object) -> tuple[int, list[dict[str, Any]]]:
    result = command_line.run("check", path, "--json", *map(str, more))
    return result.exit_code, json.loads(result.stdout)["kernels"][0]["findings"]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "k.ptx"
    path.write_text(TEXT)
    assert command_line.run("check", path, "--init").exit_code == 0
    return path


def described(text: Path, old: str, new: str) -> Path:
    launch = text.with_suffix(".launch.toml")
    said = launch.read_text()
    assert old in said
    launch.write_text(said.replace(old, new, 1))
    return launch


def note(finding: dict[str, Any], label: str) -> str:
    return next(one["text"] for one in finding["notes"] if one["label"] == label)


def test_a_run_under_guesses_ends_with_a_warning_that_lists_them(text: Path) -> None:
    code, (finding,) = check(text)
    assert (code, finding["rule"], finding["severity"]) == (0, "guessed-launch", "warning")
    assert "n.value = 1" in note(finding, "guesses") and "out.kind" not in note(finding, "guesses")
    launch = described(text, "guessed = true\n", "")
    assert check(text) == (0, [])
    assert "box = [64, 32]" in launch.read_text()  # 8192 less the 4096 of the copy that has no map


def test_a_kernel_that_has_nothing_to_do_under_its_guesses_is_said_to(text: Path) -> None:
    described(text, "value = 1", "value = 0")
    _, (finding,) = check(text)
    assert finding["rule"] == "guessed-launch" and "wrote nothing" in note(finding, "so")


@pytest.mark.parametrize("box, bytes_", [("[64, 64]", 8192), ("[64, 16]", 2048), ("[32, 32]", 2048)])
def test_a_guessed_box_that_contradicts_the_announced_bytes_comes_first(text: Path, box: str, bytes_: int) -> None:
    described(text, "box = [64, 32]", f"box = {box}")
    described(text, 'swizzle = "128B"', 'swizzle = "NONE"')
    code, findings = check(text)
    assert code == 1 and findings[0]["rule"] == "guessed-box"
    assert f"{box} of A, {bytes_} bytes" in findings[0]["summary"]
    assert "byte-count-mismatch" not in {finding["rule"] for finding in findings}
    # The copy without a map brings its part, too: what the box must have is the rest.
    assert f"box [{box[1:3]}, {4096 // 2 // int(box[1:3])}] of A" in findings[0]["summary"]


def test_a_box_that_somebody_put_in_is_told_beside_the_bytes_that_differ(text: Path) -> None:
    described(text, "box = [64, 32]", "box = [64, 16]")
    described(text, "guessed = true\n", "")
    _, findings = check(text)
    assert findings[0]["rule"] == "byte-count-mismatch" and "[64, 32] of A" in findings[0]["summary"]


def test_a_box_beyond_shared_memory_names_the_box_and_no_consequence(text: Path) -> None:
    described(text, "box = [64, 32]", "box = [64, 256]")
    described(text, "dynamic_smem = ", "dynamic_smem = 16384 # ")
    code, findings = check(text)
    errors = [finding for finding in findings if finding["severity"] == "error"]
    assert code == 1 and [finding["rule"] for finding in errors] == ["OutOfBoundsError"]
    assert "[64, 256] of A, 32768 bytes" in errors[0]["fix"]


def test_errors_that_a_guessed_value_may_bring_about_stand_behind_the_guesses(text: Path) -> None:
    """The kernel waits for a second phase if n is not 0; 1 is a guess."""
    more = "setp.eq.u32 %p3, %r9, 0;\n@%p3 bra DONE;\nMORE:\n@!%p1 bra MORE;\n"
    again = "mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 1;\n@!%p1"
    text.write_text(TEXT.replace("setp.lt.u32", more.replace("@!%p1", again) + "setp.lt.u32", 1))
    code, findings = check(text)
    assert code == 1 and findings[0]["rule"] == "guessed-launch" and "n.value = 1" in note(findings[0], "guesses")
    assert "DeadlockError" in {finding["rule"] for finding in findings}
    described(text, "value = 1", "value = 0")
    assert check(text)[0] == 0


def test_a_text_that_no_launch_can_run_is_said_to_be_one_by_init(tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    path.write_text(TEXT.replace("sm_90a", "sm_130a"))
    done = command_line.run("check", path, "--init")
    assert done.exit_code == 0 and "sm_130a is not known" in done.stdout
    assert "dynamic_smem" in path.with_suffix(".launch.toml").read_text()
