"""Fixtures of the tests of `lang`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from warploom.driver import toolchain
from warploom.lang import Kernel


@pytest.fixture
def assembles() -> Callable[[Kernel], object]:
    """Build a kernel with ptxas and give its resources; skips where there is no ptxas."""
    if toolchain.ptxas() is None:
        pytest.skip("no ptxas here")

    def run(kernel: Kernel) -> object:
        return kernel.resources()

    return run
