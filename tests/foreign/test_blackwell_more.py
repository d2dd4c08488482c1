"""More kernels of Triton 3.9 for sm_100a (`blackwell/more_kernels.py`): right by their launch descriptions. Emulated only.

Types and tiles, masks, gathers and scatters, parts of k added up or passed on under a lock, gradients of attention.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from warploom.testing import check_text

FOLDER = Path(__file__).parent / "blackwell" / "more"
TEXTS = sorted(path.stem for path in FOLDER.glob("*.ptx"))
SCHEDULES = [("lazy", 0), ("eager", 0), ("random", 1), ("starve", 101), ("pct", 3)]
KNOWN = {"generic-access-before-async-write", "same-value-race", "bank-conflict"}
"""What is true of them and no error, see `test_blackwell_current`."""


@pytest.mark.sample(3, full=18)
@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES, ids=[f"{name}-{seed}" for name, seed in SCHEDULES])
@pytest.mark.parametrize("name", TEXTS)
def test_a_text_does_what_its_description_expects(name: str, schedule: str, seed: int):
    checked = check_text(FOLDER / f"{name}.ptx", schedule=schedule, seed=seed)
    assert checked.errors == []
    assert {finding.rule for finding in checked.findings} <= KNOWN


def test_a_wrong_number_would_be_an_error(tmp_path: Path):
    """The descriptions' expectations are looked at: int8 that adds one more is refused."""
    text = (FOLDER / "int8.ptx").read_text()
    launch = (FOLDER / "int8.launch.toml").read_text().replace('"A @ B"', '"A @ B + 1"')
    (tmp_path / "int8.ptx").write_text(text)
    (tmp_path / "int8.launch.toml").write_text(launch)
    assert [finding.rule for finding in check_text(tmp_path / "int8.ptx").errors] == ["wrong-result"]


def test_every_text_has_a_description():
    described = {path.name.removesuffix(".launch.toml") for path in FOLDER.glob("*.toml")}
    assert described == set(TEXTS) != set()
