"""The report of `warploom check`: source lines, both accesses, the verdict; whole folders; SARIF for editors and CI."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import run
from tests.testing.texts import bad, good, write

# -- one text ----------------------------------------------------------------------------------------------------


def test_a_finding_shows_both_lines_of_the_text_who_did_what_and_the_fix(tmp_path: Path) -> None:
    path = write(tmp_path, "bad", bad())
    numbered = {line.strip(): number for number, line in enumerate(path.read_text().splitlines(), 1)}
    write_line = numbered["st.shared.u32 [%r1], %idx;"]
    store_line = next(number for line, number in numbered.items() if "cp.async.bulk.global" in line)
    said = run("check", path).stdout
    assert f"--> bad.ptx:{store_line}\n" in said and f"::: bad.ptx:{write_line}\n" in said
    assert re.search(rf"^ {store_line} \| .*cp\.async\.bulk\.global\.shared::cta", said, re.MULTILINE)
    assert "issued by warp 0 of CTA (0, 0, 0), thread 0: reads tile" in said
    assert "wrote the same bytes before" in said
    assert "= missing  " in said and "= fix  " in said
    assert "warploom rules generic-write-before-async-read" in said


def test_only_some_schedules_show_it_so_the_report_says_how_to_see_it_again(tmp_path: Path) -> None:
    """The warps are ordered only by luck: warp 0 initialises what the others use."""
    text = good().replace(
        "fence.proxy.async;",
        "@%first mbarrier.init.shared::cta.b64 [bar], 128;\nmbarrier.arrive.shared::cta.b64 _, [bar];",
    )
    path = write(tmp_path, "early", text)
    result = run("check", path, "--schedule", "explore", "--json")
    (kernel,) = json.loads(result.stdout)["kernels"]
    assert result.exit_code == 1
    again = run("check", path, "--schedule", kernel["schedule"], "--seed", kernel["seed"], "--json")
    assert json.loads(again.stdout)["kernels"][0]["findings"] == kernel["findings"]


def test_json_has_the_parts_of_a_finding_apart(tmp_path: Path) -> None:
    known = json.loads(run("check", write(tmp_path, "bad", bad()), "--json").stdout)
    (finding,) = [one for one in known["kernels"][0]["findings"] if one["severity"] == "error"]
    assert [side["what"] for side in finding["sides"]] == ["reads tile", "wrote the same bytes before"]
    assert all(side["location"].startswith("bad.ptx:") and side["text"] for side in finding["sides"])
    assert finding["address"] == "tile" and "fence.proxy.async" in finding["missing"] and finding["fix"]


def test_which_kernel_of_a_text_is_said_with_the_name_of_the_file(tmp_path: Path) -> None:
    text = good()
    path = write(tmp_path, "two", text + text[text.index(".visible") :].replace("entry k(", "entry other("), None)
    assert "two.ptx:k" in run("inspect", "ptx", path).stderr


# -- a folder ----------------------------------------------------------------------------------------------------


def test_a_folder_is_checked_text_by_text(tmp_path: Path) -> None:
    write(tmp_path, "good", good())
    write(tmp_path / "deeper", "bad", bad())
    write(tmp_path, "unlaunched", good(), None)
    write(tmp_path, "broken", good()[:300], None)
    write(tmp_path, "wrong_launch", good(), "grid = [")
    result = run("check", tmp_path)
    assert result.exit_code == 1
    assert "good.ptx: emulated, nothing found" in result.stdout
    assert "unlaunched.ptx: static only: no launch given; nothing found" in result.stdout
    assert "error[generic-write-before-async-read]" in result.stdout
    assert "error[PtxSyntaxError]" in result.stdout
    assert "the launch description is not TOML" in result.stdout
    assert "5 texts: 3 with errors" in result.stdout


def test_a_folder_says_how_many_python_files_it_leaves_alone(tmp_path: Path) -> None:
    write(tmp_path, "good", good())
    assert "Python" not in run("check", tmp_path).stdout
    (tmp_path / "one.py").write_text("")
    assert "1 Python file is not checked: name it" in run("check", tmp_path).stdout
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "two.py").write_text("")
    result = run("check", tmp_path)
    assert result.exit_code == 0 and "2 Python files are not checked: name them" in result.stdout


def test_init_of_a_folder_writes_what_is_missing_and_leaves_the_rest(tmp_path: Path) -> None:
    write(tmp_path, "there", good(), "grid = [7]\n")
    write(tmp_path, "new", good(), None)
    assert run("check", tmp_path, "--init").exit_code == 0
    assert (tmp_path / "there.launch.toml").read_text() == "grid = [7]\n"
    assert 'entry = "k"' in (tmp_path / "new.launch.toml").read_text()


def test_a_folder_without_a_text_is_a_wrong_call(tmp_path: Path) -> None:
    result = run("check", tmp_path)
    assert result.exit_code == 2 and "there is no PTX text in this folder" in result.stderr
    assert "Python" not in result.stderr
    (tmp_path / "one.py").write_text("")
    assert "name a Python file to check it" in run("check", tmp_path).stderr


# -- SARIF -------------------------------------------------------------------------------------------------------


@pytest.fixture
def sarif(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The SARIF document of a folder with one bad text and one broken one, checked from its parent."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "ptx", "bad", bad())
    write(tmp_path / "ptx", "broken", good()[:300], None)
    assert run("check", "ptx", "--sarif", "out.sarif").exit_code == 1
    return json.loads((tmp_path / "out.sarif").read_text())


def test_sarif_has_its_version_schema_and_rules(sarif: dict[str, Any]) -> None:
    assert sarif["version"] == "2.1.0" and sarif["$schema"].endswith("sarif-schema-2.1.0.json")
    (one_run,) = sarif["runs"]
    driver = one_run["tool"]["driver"]
    assert driver["name"] == "warploom"
    for result in one_run["results"]:
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        assert result["message"]["text"] and result["partialFingerprints"]["warploom/v1"]


def test_sarif_places_are_relative_files_with_lines_that_are_there(sarif: dict[str, Any]) -> None:
    for result in sarif["runs"][0]["results"]:
        for place in (*result["locations"], *result.get("relatedLocations", ())):
            physical = place["physicalLocation"]
            file = Path(physical["artifactLocation"]["uri"])
            assert not file.is_absolute() and file.is_file()
            region = physical.get("region")
            if region:
                line = (file.read_text() + "\n").split("\n")[region["startLine"] - 1]
                assert region.get("snippet", {"text": ""})["text"] == line.rstrip()


def test_sarif_fingerprints_stay_where_lines_move(sarif: dict[str, Any]) -> None:
    path = Path("ptx/bad.ptx")
    path.write_text("// a comment\n" + path.read_text())
    run("check", "ptx", "--sarif", "again.sarif")
    again = json.loads(Path("again.sarif").read_text())
    prints = [
        {
            result["partialFingerprints"]["warploom/v1"]
            for result in document["runs"][0]["results"]
            if result["ruleId"] != "PtxSyntaxError"
        }
        for document in (sarif, again)
    ]
    assert prints[0] and prints[0] == prints[1]


def test_a_clean_folder_gives_an_empty_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "good", good())
    assert run("check", ".", "--sarif", "out.sarif").exit_code == 0
    assert json.loads(Path("out.sarif").read_text())["runs"][0]["results"] == []
