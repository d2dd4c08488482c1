"""`refused(code, got=…)`: a block that must raise an error of the package with this code and these values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from warploom.error_codes import CODES
from warploom.errors import WarploomError


@contextmanager
def refused(
    code: str, got: str | None = None, expected: str | None = None
) -> Iterator[pytest.ExceptionInfo[WarploomError]]:
    """The block must raise a WarploomError with this code, got and expected; the wording is free."""
    assert code in CODES, code
    with pytest.raises(WarploomError) as caught:
        yield caught
    assert caught.value.code == code, str(caught.value)
    for name, value in (("got", got), ("expected", expected)):
        assert value is None or str(getattr(caught.value, name)) == value, str(caught.value)
