"""A kernel with one mistake: `warploom check` reports the cause first and little else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import command_line

GEMM = (Path(__file__).parents[2] / "examples" / "broken" / "gemm.py").read_text()
GEMM = GEMM.replace("2 * sA.bytes", "sA.bytes + sB.bytes")
EXPECT = "ptx.mbarrier.arrive_expect_tx(full[0], sA.bytes + sB.bytes)"
REUSE = "        ptx.bar.sync()  # all warps have read the tiles before they are overwritten\n"

MISTAKES = {
    "the phase never flips": ("phase ^= 1", "phase ^= 0", ["stale-phase-wait", "wrong-result"]),
    "the phase begins at 1": ("init=0", "init=1", ["stale-phase-wait", "surplus-arrival"]),
    "nothing is announced": (
        EXPECT, "ptx.mbarrier.arrive(full[0])", ["bytes-in-later-phase", "bytes-in-later-phase", "wrong-result"],
    ),
    "the bytes of one tile are not announced": (
        EXPECT, EXPECT.replace(" + sB.bytes", ""), ["bytes-in-later-phase", "DeadlockError"],
    ),
    "no commit": (
        "        ptx.wgmma.commit_group()\n", "", ["operand-overwritten", "wgmma-register-in-flight", "wrong-result"],
    ),
    "two threads load": (
        "with ptx.if_(thread == 0):\n            ptx.mbarrier.arrive",
        "with ptx.if_(thread < 2):\n            ptx.mbarrier.arrive", ["surplus-arrival"],
    ),
    "the barrier is initialised for two": ("init(full[0], 1)", "init(full[0], 2)", ["DeadlockError"]),
    "a part of a warp skips a barrier": (
        REUSE, "        with ptx.if_(thread < 100):\n            ptx.bar.sync()\n", ["DeadlockError"],
    ),
    "the map has another swizzle": (
        "Tile.wgmma_a(M, K, bf16, tile_m=M, tile_k=TILE_K)", 'Tile(M, K, bf16, box=(TILE_K, M), swizzle="NONE")',
        ["layout-mismatch", "wrong-result"],
    ),
}  # fmt: skip


def checked(tmp_path: Path, old: str, new: str) -> tuple[list[dict[str, Any]], str]:
    path = tmp_path / "mine.py"
    assert old in GEMM
    path.write_text(GEMM.replace(old, new, 1))
    report = command_line.run("check", path, "--json").stdout
    return json.loads(report)["kernels"][0]["findings"], command_line.run("check", path).stdout


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_few_findings_and_its_cause_the_first(mistake: str, tmp_path: Path) -> None:
    old, new, codes = MISTAKES[mistake]
    found, said = checked(tmp_path, old, new)
    assert [one["rule"] for one in found if one["severity"] == "error"] == codes
    assert all(one["fix"] for one in found) and max(map(len, said.splitlines())) <= 200
    assert all(place.startswith("mine.py:") for place in found[0]["locations"])


MISTAKES_IN_TENSOR_MEMORY = {
    "an arrival, not a commit": ("ptx.tcgen05.commit(done[0])", "ptx.mbarrier.arrive(done[0])"),
    "no wait for the product": ("    ptx.mbarrier.wait(done[0], 0)\n", ""),
}


@pytest.mark.parametrize("mistake", MISTAKES_IN_TENSOR_MEMORY)
def test_a_product_that_nobody_waits_for_is_one_race(mistake: str, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "blackwell.md").read_text()
    text = next(part for part in page.split("```python\n") if part.startswith("import ml_dtypes")).split("```")[0]
    path = tmp_path / "mine.py"
    old, new = MISTAKES_IN_TENSOR_MEMORY[mistake]
    assert old in text
    path.write_text(text.replace(old, new, 1))
    found = json.loads(command_line.run("check", path, "--json").stdout)["kernels"][0]["findings"]
    assert [one["rule"] for one in found if one["severity"] == "error"] == ["tensor-memory-race", "wrong-result"]


def test_the_kernel_without_a_mistake_is_clean(tmp_path: Path) -> None:
    assert checked(tmp_path, "phase ^= 1", "phase ^= 1")[0] == []


def test_one_wait_that_is_wrong_for_two_arrays_is_one_finding_with_the_places_of_both(tmp_path: Path) -> None:
    found, said = checked(tmp_path, "phase ^= 1", "phase ^= 0")
    assert found[0]["count"] == 20 and len(found[0]["locations"]) == 3
    assert "1 other pair" in next(note["text"] for note in found[0]["notes"] if note["label"] == "also")


def test_an_error_with_a_page_of_its_own_names_it(tmp_path: Path) -> None:
    store = "        ptx.store(ptx.addr(c + offset), [acc[i], acc[i + 1]])"
    (found,), _ = checked(tmp_path, store, f"{store}\n    return acc")
    assert {"label": "page", "text": "warploom rules value-returned"} in found["notes"]


@pytest.mark.parametrize("old, new, near", [
    ("ptx.wgmma.commit_group()", "ptx.wgmma.commit()", "commit_group"),
    ("ptx.mbarrier.wait(", "ptx.mbarrier.wat(", "wait"),
])  # fmt: skip
def test_a_name_that_is_not_there_is_answered_with_one_that_is(tmp_path: Path, old: str, new: str, near: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(GEMM.replace(old, new))
    run = command_line.run("check", path)
    assert run.exit_code and near in run.stderr.split("hint")[-1]
