"""A PTX text and a fresh cache for the tests of the GPU machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.driver.mock_gpu import ADD
from warploom import settings
from warploom.driver import cache


@pytest.fixture
def add_text() -> str:
    return ADD


@pytest.fixture
def cache_dir(tmp_path: Path) -> Iterator[Path]:
    """A cache folder of the test's own, and nothing remembered from before."""
    cache.builds().clear()
    folder = tmp_path / "cache"
    with settings.config.override(cache_dir=folder):
        yield folder
    cache.builds().clear()
