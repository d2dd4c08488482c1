"""Modules, arguments and fields of a former version name the new ones."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tests.errors import refused
from warploom import Tile, kernel
from warploom.kernels.blackwell import description as blackwell
from warploom.kernels.hopper import description as hopper
from warploom.kernels.hopper.free_tile_config import FreeTileConfig
from warploom.kernels.hopper.small_m_config import SmallMConfig
from warploom.types import f32

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


CONFIGS = (hopper.Config, blackwell.Config, FreeTileConfig, SmallMConfig)


@pytest.mark.parametrize(
    "call, former, now",
    [
        (lambda **old: Tile("M", f32, **old), "over", "may_alias"),
        (lambda **old: Tile("M", f32, **old), "overhang", "pads_to_16b"),
        (lambda **old: kernel(grid=(1,), block=32, **old), "elsewhere", "fallback_hint"),
        *((config, former, now) for config in CONFIGS for former, now in config.former.items()),
    ],
)
def test_an_argument_s_former_name_is_refused_with_the_new_one(call, former: str, now: str):
    with refused("renamed", got=former, expected=now):
        call(**{former: 1})
