"""`refused(code)`: a block that must raise an error of the package with that code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from warploom.error_codes import CODES
from warploom.errors import WarploomError


@contextmanager
def refused(code: str) -> Iterator[pytest.ExceptionInfo[WarploomError]]:
    """The block raises a WarploomError of this code; what it says beyond that is for the test to look at."""
    assert code in CODES, code
    with pytest.raises(WarploomError) as caught:
        yield caught
    assert caught.value.code == code, str(caught.value)
