"""Environment variables are the defaults of the settings; unknown values are refused."""

from __future__ import annotations

import pytest

from warploom.errors import ArgumentError
from warploom.settings import FLAGS, from_environment


@pytest.mark.parametrize("word, on", [*FLAGS.items(), ("ON", True), (" off ", False)])
def test_a_switch_takes_words_for_on_and_off(word: str, on: bool) -> None:
    assert from_environment({"WARPLOOM_CHECK": word}).emulator.check is on


def test_a_switch_that_is_not_set_has_its_default() -> None:
    assert from_environment({}).emulator.check is False
    assert from_environment({}).line_info is True


@pytest.mark.parametrize("name", ["CHECK", "LINEINFO"])
def test_a_switch_refuses_any_other_word(name: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        from_environment({f"WARPLOOM_{name}": "maybe"})
    assert f"WARPLOOM_{name}" in caught.value.what and caught.value.got == "'maybe'"
