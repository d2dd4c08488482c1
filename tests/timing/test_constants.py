"""The origin of the timing model's constants."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.microbenchmarks.__main__ import everything
from warploom.kernels.ladder import RUNGS
from warploom.timing import H100, H200

ROOT = Path(__file__).resolve().parents[2]
CARDS = ("nvidia-h100", "nvidia-h200")
"""Where both have a row, the H200's counts for the H200."""
FILES = [json.loads((ROOT / f"benchmarks/results/{card}/microbenchmarks.json").read_text())["rows"] for card in CARDS]
MEASURED = {row["name"]: row for rows in FILES for row in rows}
MOST_FITTED = 5


def _measured(name: str, field: str) -> float:
    return MEASURED[name][field]


def _on_h100(name: str, field: str) -> float:
    return next(row for row in FILES[0] if row["name"] == name)[field]


CONSTANTS = H200.constants()
OF_H100 = {name: one for name, one in H100.constants().items() if one is not CONSTANTS[name]}
KNOWN = SimpleNamespace(**{name: one.value for name, one in H200.values.items()})
COMPUTED = {name: one for name, one in CONSTANTS.items() if one.source.split(":")[0] not in ("published", "fitted")}


@pytest.mark.parametrize("name", COMPUTED)
def test_a_constant_is_what_its_measurement_says(name):
    value = eval(COMPUTED[name].source, {"m": _measured, "c": KNOWN, "h": _on_h100})
    assert COMPUTED[name].value == pytest.approx(value, rel=0.02)


@pytest.mark.parametrize("name", OF_H100)
def test_a_constant_of_the_h100_is_what_its_measurement_says(name):
    value = eval(OF_H100[name].source, {"m": _measured, "c": KNOWN, "h": _on_h100})
    assert OF_H100[name].value == pytest.approx(value, rel=0.02)


def test_no_source_repeats_the_value_of_another_constant():
    """Of values with at least three digits that are not sizes: 9158, 119.7."""
    told = {f"{one.value:g}" for one in H200.values.values() if one.value % 16}
    told = {value for value in told if len(value.replace(".", "").lstrip("0")) > 2}
    numbers = re.compile(r"(?<![\w.])\d[\d.]*")
    repeated = {name: found for name, one in COMPUTED.items() if (found := told & set(numbers.findall(one.source)))}
    assert not repeated


def test_few_constants_are_fitted():
    assert sum(one.source.startswith("fitted") for one in CONSTANTS.values()) <= MOST_FITTED


def test_the_model_names_no_kernel_rung_or_configuration():
    text = "\n".join(path.read_text() for path in (ROOT / "src/warploom/timing").glob("*.py"))
    assert not [rung.module for rung in RUNGS if rung.module in text]
    assert not re.search(r"\b[a-z]*\d{2,3}x\d{2,3}\b|\brung\b|warploom\.kernels|\b(8192|4096)\b", text)
    assert not re.search(r"recording\.kernel\s*(==|in\b|\.startswith)", text)


def test_each_microbenchmark_is_listed_once():
    timed, started, loads = everything([])
    names = [each.name for each in (*timed, *started)] + [each.measurement.name for each in loads]
    assert len(names) > 300 and len(set(names)) == len(names)
