"""Modules of a former version say where their contents have moved."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OUT_OF_THE_WHEEL = ("f64", "f64_roles", "sparse", "sparse_operand", "stream_k")


@pytest.mark.parametrize(
    "former, now",
    [
        ("warploom.gemm", "warploom.operators"),
        ("warploom.gemm.problem", "warploom.operators"),
        ("warploom.kernels.hopper.decode_config", "small_m_config"),
        *((f"warploom.kernels.hopper.{name}", f"examples/hopper/{name}.py") for name in OUT_OF_THE_WHEEL),
    ],
)
def test_the_former_place_names_the_new_one(former: str, now: str):
    with pytest.raises(ImportError) as caught:
        importlib.import_module(former)
    assert now in str(caught.value).split(" is ", 1)[1]
    assert not now.endswith(".py") or (ROOT / now).exists()
