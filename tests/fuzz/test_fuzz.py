"""Thousands of odd texts: no crash, no hang, and only errors of the package."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.cases import limited, run, texts
from tests.fuzz.mutate_text import of_bytes, of_tokens
from warploom.errors import WarploomError
from warploom.runtime import program_of
from warploom.sanitizer.rules import RULES

SEEDS = st.integers(0, 2**32 - 1)
QUICK = settings(max_examples=60, suppress_health_check=list(HealthCheck))
LONG = settings(QUICK, max_examples=5000)


@st.composite
def base_texts(draw: st.DrawFn) -> str:
    return draw(st.sampled_from(texts()))


def decoded(raw: bytes) -> str:
    return raw.decode(errors="replace")


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("part", range(8))
def test_the_texts_are_sound_before_they_are_changed(part: int) -> None:
    """What is mutated runs or stops with an error of the emulator: it is not refused from the start."""
    assert {run(text) for text in texts()[part::8]} == {"ran", "stopped"}


def test_a_copy_of_no_bytes_touches_nothing() -> None:
    """What fuzzing has found: the sanitizer took the greatest of no granules."""
    example = RULES["generic-write-before-async-read"].good
    assert example is not None
    assert run(example.text().replace("[tile], 512", "[tile], 0")) == "ran"


@QUICK
@given(base_texts(), SEEDS)
def test_changed_tokens(text: str, seed: int) -> None:
    run(of_tokens(text, texts(), seed))


@QUICK
@given(base_texts(), SEEDS)
def test_changed_bytes(text: str, seed: int) -> None:
    run(decoded(of_bytes(text, seed)))


@pytest.mark.slow
@LONG
@given(base_texts(), SEEDS)
def test_changed_tokens_at_length(text: str, seed: int) -> None:
    run(of_tokens(text, texts(), seed))


@pytest.mark.slow
@LONG
@given(base_texts(), SEEDS)
def test_changed_bytes_at_length(text: str, seed: int) -> None:
    run(decoded(of_bytes(text, seed)))


@QUICK
@given(base_texts(), SEEDS, st.binary(max_size=64))
def test_a_file_of_any_bytes_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, text: str, seed: int, odd: bytes
) -> None:
    path = Path(tmp_path_factory.getbasetemp()) / "odd.ptx"
    for raw in (of_bytes(text, seed), odd, odd + text.encode()):
        path.write_bytes(raw)
        with limited():
            try:
                program_of(path)
            except WarploomError as error:
                assert str(error)
