"""`warploom trace` and `warploom lab`: the files that they write, and their errors."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_commands import EXAMPLES, LAUNCH, run
from tests.testing.texts import COPY
from warploom.cli import lab


def test_a_hanging_example_becomes_a_page_and_a_perfetto_file(tmp_path: Path) -> None:
    page, perfetto = tmp_path / "page.html", tmp_path / "trace.json"
    done = run("trace", EXAMPLES / "broken" / "gemm.py", "--no-sass", "--html", page, "--perfetto", perfetto)
    assert done.exit_code == 0
    assert "deadlock" in done.output and "error[byte-count-mismatch]" in done.output
    assert f"wrote {page}" in done.output and "<title>gemm" in page.read_text()
    assert json.loads(perfetto.read_text())["otherData"]["error"].startswith("deadlock")


def test_a_text_is_traced_under_its_launch_description(tmp_path: Path) -> None:
    (tmp_path / "copy.ptx").write_text(COPY)
    missing = run("trace", tmp_path / "copy.ptx")
    assert missing.exit_code == 2 and "has no launch description" in missing.output
    (tmp_path / "copy.launch.toml").write_text(LAUNCH.format(n=60))
    (found,) = json.loads(run("trace", tmp_path / "copy.ptx", "--no-sass", "--json").output)
    assert found["kernel"] == "copy" and found["findings"] == [] and found["prediction"]["us"] > 0
    assert set(found["timeline"]["columns"]["kind"]) <= {"run", "wait", "arrive"}


def test_of_several_kernels_with_descriptions_one_must_be_named(tmp_path: Path) -> None:
    path = tmp_path / "copy.ptx"
    path.write_text(COPY + ".visible .entry other() { ret; }\n")
    (tmp_path / "copy.copy.launch.toml").write_text(LAUNCH.format(n=60))
    done = run("trace", path)
    assert done.exit_code == 2 and "[argument]" in done.stderr and f"{path}:copy" in done.stderr.replace("\n", "")
    assert f"{path}:other" in run("trace", f"{path}:other").stderr.replace("\n", "")  # where --init writes it
    (named,) = json.loads(run("trace", f"{path}:copy", "--no-sass", "--json").stdout)
    assert named["kernel"] == "copy", "the name says it, and the description need not"
    assert run("time", f"{path}:copy", "--predict").exit_code == 0
    (tmp_path / "copy.copy.launch.toml").write_text('entry = "other"\n' + LAUNCH.format(n=60))
    refused = run("trace", f"{path}:copy")
    assert refused.exit_code == 2 and "expected  copy" in refused.stderr and "got       other" in refused.stderr


def test_rungs_take_a_size_and_stand_above_each_other(tmp_path: Path) -> None:
    rungs = [f"warploom.kernels.ladder.{name}" for name in ("r08_tma_wgmma", "r09_larger_tile")]
    done = run("trace", *rungs, "--size", "128x128x64", "--no-sass", "--html", tmp_path / "two.html")
    assert done.exit_code == 0 and (tmp_path / "two.html").read_text().count('class="launch"') == 2


@pytest.mark.parametrize(
    "arguments, said",
    [
        ((EXAMPLES / "softmax.py", "--size", "512"), "--size needs a rung"),
        (("warploom.kernels.ladder.r08_tma_wgmma", "--size", "12x7"), "--size is not a size"),
        (
            (EXAMPLES / "softmax.py", EXAMPLES / "vector_add.py", "--no-sass", "--perfetto", "x.json"),
            "takes one launch",
        ),
    ],
)
def test_what_cannot_be_traced_is_a_sentence(arguments: tuple[object, ...], said: str) -> None:
    done = run("trace", *arguments)
    assert done.exit_code == 2 and said in done.output


def test_the_lab_names_its_pages_and_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("lab", "--list").output.split() == list(lab.pages())
    assert "the lab has no page 'x'" in run("lab", "x").output
    assert run("lab", "--edit").exit_code == 2
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install 'warploom[lab-ui]'" in run("lab", "swizzles").output


@pytest.mark.skipif(os.name != "posix", reason="a process cannot take another's place")
def test_a_signal_that_ends_the_lab_ends_its_server(tmp_path: Path) -> None:
    (tmp_path / "marimo").mkdir()
    (tmp_path / "marimo" / "__init__.py").touch()
    (tmp_path / "marimo" / "__main__.py").write_text("import os, sys; print(os.getpid(), *sys.argv[1:3])")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    command = [sys.executable, "-m", "warploom", "lab", "swizzles"]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True) as done:
        number, verb, page = done.communicate()[0].split()
    assert (int(number), verb) == (done.pid, "run") and page.endswith("swizzles.py")
