"""Evidence: recipes, stale rows, merged files, the clock read inside a kernel, pictures."""

from __future__ import annotations

import errno
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import render, status
from tests.errors import refused
from tests.lab.conftest import HEAD, PING_PONG, row_of
from warploom import emulate, runtime
from warploom.driver import toolchain
from warploom.errors import ArgumentError
from warploom.isa.dtypes import bf16, e4m3
from warploom.kernels.hopper import gemm
from warploom.kernels.hopper.description import Config, Fusion, Product
from warploom.kernels.hopper.free_tile_config import FreeTileConfig
from warploom.kernels.ladder import RUNGS, find
from warploom.lab import charts, evidence, recipe, roofline
from warploom.runtime.benchmark import clock

ROOT = Path(__file__).resolve().parents[2]


# -- recipes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [Product(e4m3, e4m3, bf16), PING_PONG, Fusion(scales="row", bias="column", bias_dtype=bf16), (1, "a", None),
     FreeTileConfig(cluster=2, multicast="weights")],
)  # fmt: skip
def test_a_recipe_survives_json(value: Any) -> None:
    assert recipe.decode(json.loads(json.dumps(recipe.encode(value)))) == value


def test_a_recipe_of_before_a_field_was_renamed_is_followed() -> None:
    data = {"class": "warploom.kernels.hopper.description:Config", "form": "ping_pong", "multicast": "a"}
    assert recipe.decode(data) == Config("ping_pong", multicast="a")


def test_a_recipe_has_only_what_differs_from_the_defaults() -> None:
    data = recipe.encode(Config("ping_pong"))
    assert data == {"class": "warploom.kernels.hopper.description:Config", "kernel_schedule": "ping_pong"}


def test_a_kernel_is_built_again_from_its_recipe() -> None:
    data = json.loads(json.dumps(recipe.recipe(gemm.build, Product(), PING_PONG)))
    assert recipe.rebuild(data).ptx() == gemm.build(Product(), PING_PONG).ptx()


@pytest.mark.parametrize(
    "data, got",
    [
        ({"builder": "os:system", "arguments": ["true"]}, "os:system"),
        ({"builder": "warploom.kernels.gone:build", "arguments": []}, None),
        ({"builder": "warploom.kernels.hopper.gemm:build", "arguments": [
            {"class": "warploom.kernels.hopper.description:Product", "colour": "blue"}]}, None),
    ],
)  # fmt: skip
def test_a_recipe_that_cannot_be_followed_says_why(data: dict[str, Any], got: str | None) -> None:
    with refused("argument", got=got):
        recipe.rebuild(data)


def test_what_is_no_data_is_no_part_of_a_recipe() -> None:
    with refused("argument"):
        recipe.encode(lambda: None)


# -- files ---------------------------------------------------------------------------------------------------------


def test_a_full_disk_keeps_the_file_that_was_there_and_leaves_no_part(tmp_path, monkeypatch) -> None:
    path, other = tmp_path / "a.json", tmp_path / "a.1.part"
    evidence.write(path, {"suite": "a"}, [{"m": 1}])
    other.write_text("another process writes this")
    before = path.read_text()
    write_text = Path.write_text

    def full(self: Path, text: str) -> int:
        write_text(self, text[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk, refused("file"):
        disk.setattr(Path, "write_text", full)
        evidence.write(path, {"suite": "a"}, [{"m": 1}, {"m": 2}])
    evidence.check_place(path)
    assert path.read_text() == before and sorted(tmp_path.iterdir()) == [other, path]


# -- stale rows ----------------------------------------------------------------------------------------------------


def test_a_row_is_fresh_while_its_text_is_what_the_package_makes() -> None:
    assert status.judge(row_of()) == ("", True)


def test_a_row_of_another_text_or_of_no_kernel_any_more_is_stale() -> None:
    assert status.judge(row_of(ptx_sha256="0" * 64)) == ("the kernel's text has changed since", True)
    gone = {"builder": "warploom.kernels.gone:build", "arguments": []}
    assert "no longer fits" in status.judge(row_of(build=gone))[0]


def test_a_row_whose_text_became_another_of_the_same_machine_code_is_fresh(monkeypatch) -> None:
    now = evidence.ptx_sha256(recipe.rebuild(row_of()["build"]).ptx())
    monkeypatch.setattr(status, "equivalent", lambda: frozenset({("1" * 64, now), ("2" * 64, "3" * 64)}))
    assert status.judge(row_of(ptx_sha256="1" * 64)) == ("", True)
    assert status.judge(row_of(ptx_sha256="2" * 64))[0], "the text that is the same code is not built any more"


def test_rows_from_before_recipes_are_known_by_their_kernels_and_others_cannot_be_told() -> None:
    rung = find(4)
    row = {"kernel": rung.module, "ptx_sha256": evidence.ptx_sha256(rung.build().ptx())}
    assert status.judge(row) == ("", True)
    assert status.judge({"kernel": "mystery", "ptx_sha256": "0" * 64}) == ("", False)
    assert status.judge({"kernel": "torch.mm"}) == ("", True), "others have no text"


@pytest.mark.full
def test_the_evidence_of_gpus_is_found_and_all_that_documents_show_of_it_can_be_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(status, "_built", lambda recipe: ("", ""))  # whether it can be judged, not how
    files = status.evidence_files(ROOT / "benchmarks" / "results")
    assert {path.name for path in files} >= {"ladder.json", "first-light.json"}
    documents = (render.README, render.MEASURED)
    shown = {path for document in documents for _, *paths in render.TABLES[document].values() for path in paths}
    assert all(judged.known for judged in status.survey([path for path in files if path in shown]))


def recorded(tmp_path: Path, **more: Any) -> str:
    """An evidence file with one row about a kernel of ours."""
    path = tmp_path / "rows.json"
    evidence.write(path, HEAD, [row_of(**more)])
    return str(path)


def test_the_status_of_fresh_rows_is_exit_code_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recorded(tmp_path)
    assert status.main([path]) == 0
    told = capsys.readouterr().out
    assert "1 row with a text, 0 stale" in told and "nothing is stale" in told
    assert status.main(["--check", path]) == 0
    assert capsys.readouterr().out == "", "--check prints stale rows only"


def test_the_status_names_a_stale_row_and_its_exit_code_is_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recorded(tmp_path, ptx_sha256="0" * 64)
    assert status.main(["--check", path]) == 1
    assert "hopper_ping_pong" in capsys.readouterr().out
    assert status.main(["--json", path]) == 1
    (told,) = json.loads(capsys.readouterr().out)
    assert told["stale"] and told["known"]


def test_the_status_of_a_file_that_is_not_there_is_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status.main([str(tmp_path / "none.json")]) == 2
    assert "none.json" in capsys.readouterr().err


# -- files ---------------------------------------------------------------------------------------------------------


def test_a_second_run_adds_rows_and_takes_the_place_of_those_about_the_same(tmp_path: Path) -> None:
    path = tmp_path / "square-bf16.json"
    evidence.write(path, HEAD, [row_of(tflops={"median": 1.0}), row_of(protocol="burst")])

    first = {**HEAD, "rows": [row_of(tflops={"median": 1.0}), row_of(protocol="burst")]}
    both = evidence.added(first, {**HEAD, "date": "2026-11-22"}, [row_of(tflops={"median": 2.0}), row_of(m=128)])
    assert [(row["run"], row["protocol"], row["m"], row["tflops"]["median"]) for row in both["rows"]] == [
        (0, "burst", 64, 1.0), (1, "alone", 64, 2.0), (1, "alone", 128, 1.0),
    ]  # fmt: skip
    assert [run["date"] for run in both["runs"]] == ["2026-11-21", "2026-11-22"]
    third = evidence.added(both, {**HEAD, "date": "2026-11-23"}, [row_of(m=256)])
    assert [row["run"] for row in third["rows"]] == [0, 1, 1, 2]


@pytest.mark.parametrize("other", [{"gpu": "NVIDIA H100"}, {"suite": "llm-bf16"}])
def test_runs_of_another_gpu_or_suite_do_not_go_into_one_file(other: dict[str, str]) -> None:
    with refused("argument", got=next(iter(other.values()))):
        evidence.added({**HEAD, "rows": []}, {**HEAD, **other}, [])


@pytest.mark.parametrize("text", ["", "[]", '{"rows": 1, "suite": "x"}', '{"rows": []}'])
def test_a_file_that_is_no_evidence_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ArgumentError):
        evidence.read(path)


# -- the clock -----------------------------------------------------------------------------------------------------

CLOCKED = [*((rung.module, rung.build) for rung in RUNGS if rung.number in (1, 4, 8, 14, 19, 20)),
           ("ping_pong", lambda: gemm.build(Product(), PING_PONG))]  # fmt: skip


@pytest.mark.sample(2, full=4)
@pytest.mark.parametrize("build", [build for _, build in CLOCKED], ids=[name for name, _ in CLOCKED])
def test_a_text_with_the_clock_read_in_it_computes_the_same_and_does_not_spill(build: Any) -> None:
    program = build().program()
    text = clock.instrumented(program.text, program.entry)
    assert text.count("%globaltimer") == program.text.count("ret;")
    probe = replace(program, text=text)
    draw = np.random.default_rng(0)
    dtype = program.arrays[0].dtype.numpy
    a, b = (draw.standard_normal((64, 64), np.float32).astype(dtype) for _ in range(2))
    plain, clocked = (emulate(each, a, b, check=True) for each in (program, probe))
    assert plain.ok and clocked.ok, clocked.findings
    np.testing.assert_array_equal(plain.outputs[0], clocked.outputs[0])
    if toolchain.ptxas() is not None:
        used = runtime.build(probe).resources[program.entry]
        assert (used.spills, used.notes) == (0, ())


def test_a_return_under_a_condition_counts_only_where_it_happens() -> None:
    text = ".version 8.0\n.target sm_90a\n.visible .entry f(.param .u32 n)\n{\n    @!%p1 ret;\n    ret;\n}\n"
    lines = clock.instrumented(text, "f").splitlines()
    at = next(number for number, line in enumerate(lines) if line.strip() == "@!%p1 ret;")
    before = "\n".join(lines[:at])
    assert "not.pred %wlcp1, %p1;" in before and "and.pred %wlcp0, %wlcp0, %wlcp1;" in before


def test_a_clock_needs_two_marks_of_an_sm() -> None:
    with refused("argument"):
        clock.between(np.zeros((2, 2), np.uint64), np.ones((2, 2), np.uint64))


def test_a_text_without_the_entry_is_refused() -> None:
    with refused("argument"):
        clock.instrumented(".entry f() { ret; }", "g")


def test_the_clock_is_cycles_over_nanoseconds_and_the_share_is_taken_at_it() -> None:
    first = np.array([[100, 1000], [7, 2000], [0, 0], [5, 3000]], np.uint64)
    last = np.array([[1430, 2000], [2667, 4000], [9, 9000], [5, 3000]], np.uint64)
    reading = clock.between(first, last)
    assert (reading.cycles, reading.nanoseconds) == (1330 + 2660, 1000 + 2000)
    assert reading.megahertz == 1330
    assert roofline.activity(683.1, reading.megahertz * 1e6, 132, "bf16", "sm_90a") == pytest.approx(0.95, abs=0.001)


# -- pictures ------------------------------------------------------------------------------------------------------


def test_pictures_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = [row_of(provider=name, m=m, tflops={"median": 500.0}) for name in ("warploom", "cublas") for m in (64, 128)]
    charts.bars(rows, tmp_path / "bars.png", "bars")
    charts.roofline(rows, tmp_path / "roofline.png", "roofline")
    charts.steps(rows, tmp_path / "steps.png", "steps", "tflops", "TFLOP/s")
    for name in ("bars", "roofline", "steps"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with refused("chart") as caught:
        charts.pyplot()
    assert "warploom[lab]" in str(caught.value)


def test_the_command_names_files_without_a_machine_s_folders(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/somewhere/bench.py", "--suite", "llm", "--out", "/tmp/made/llm.json"])
    assert evidence.header("llm")["command"] == "bench.py --suite llm --out llm.json"
