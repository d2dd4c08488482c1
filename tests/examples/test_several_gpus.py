"""`warploom check` on the example of two GPUs: clean as it is, an error with each signal weakened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import command_line

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "several_gpus" / "exchange.py"


def rules(path: Path, schedule: str = "lazy") -> set[str]:
    """The rules that errors of a file broke."""
    made = command_line.run("check", path, "--json", "--schedule", schedule)
    (checked,) = json.loads(made.stdout)["kernels"]
    assert checked["mode"] == "emulated" and made.exit_code == (not checked["ok"])
    return {finding["rule"] for finding in checked["findings"] if finding["severity"] == "error"}


@pytest.mark.parametrize("schedule", ["lazy", "eager", "random"])
def test_two_gpus_exchange_their_numbers(schedule: str) -> None:
    assert not rules(EXAMPLE, schedule)


@pytest.mark.parametrize(
    "right, wrong, rule",
    [
        ("release.sys", "release.gpu", "peer-scope"),
        ("release.sys", "relaxed.sys", "global-hand-off"),
        ("acquire.sys", "acquire.gpu", "peer-scope"),
        ("acquire.sys", "relaxed.sys", "global-hand-off"),
        ('"devices": GPUS', '"devices": GPUS, "calls": 2', "peer-buffer-reused"),
    ],
)
def test_a_weaker_signal_is_an_error(tmp_path: Path, right: str, wrong: str, rule: str) -> None:
    text = EXAMPLE.read_text()
    assert text.count(right) >= 1
    changed = tmp_path / "changed.py"
    changed.write_text(text.replace(right, wrong))
    assert rule in rules(changed)
