"""Names of a former version say what they are called now."""

from __future__ import annotations

import importlib

import pytest


@pytest.mark.parametrize("former", ["warploom.gemm", "warploom.gemm.problem"])
def test_the_former_place_names_the_new_one(former: str):
    with pytest.raises(ImportError) as caught:
        importlib.import_module(former)
    assert "warploom.operators" in str(caught.value)
