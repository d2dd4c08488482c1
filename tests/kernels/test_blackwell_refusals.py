"""Arguments from which `build` of the Blackwell kernels cannot build: a message with a code, nothing launched."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.errors import refused
from warploom.emulator.schedule.scheduler import Scheduler
from warploom.isa.dtypes import bf16, e2m1, f16, f64, s8, s32
from warploom.kernels.blackwell import attention, block_scaled, gemm, grouped, minimal, small_m, specialised
from warploom.kernels.blackwell.attention_config import Config as Keys
from warploom.kernels.blackwell.description import Config, SmallMConfig
from warploom.kernels.hopper.attention_config import Attention
from warploom.kernels.hopper.description import Config as HopperConfig
from warploom.kernels.hopper.description import Fusion, Product


@pytest.fixture(autouse=True)
def _nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scheduler, "run", lambda self: pytest.fail("it was launched"))


@pytest.mark.parametrize(
    "build",
    [
        lambda: gemm.build("pair"), lambda: gemm.build({"tile_n": 64}),
        lambda: gemm.build(SmallMConfig()), lambda: gemm.build(HopperConfig()),
        lambda: gemm.build(Config(), "bf16"), lambda: gemm.build(Config(), Product(), "relu"),
        lambda: small_m.build(Config()), lambda: small_m.build(SmallMConfig(), "bf16"),
        lambda: grouped.build(config={"tile_n": 64}),
        lambda: grouped.build(config=SmallMConfig()), lambda: grouped.build("bf16"), lambda: minimal.build(7),
        lambda: specialised.build(minimal.Config()), lambda: block_scaled.build(Config()),
        lambda: attention.build("causal"),
        lambda: attention.build(Attention(), Config()),
    ],
)  # fmt: skip
def test_what_is_of_another_class_is_named_with_the_class_it_should_be(build):
    with refused("argument-type") as caught:
        build()
    assert "warploom." in caught.value.expected


@pytest.mark.parametrize("build", [lambda it: gemm.build(Config(), it), lambda it: small_m.build(SmallMConfig(), it),
                                   lambda it: grouped.build(it)], ids=["gemm", "few rows", "groups"])  # fmt: skip
@pytest.mark.parametrize(
    "product", [Product(f64, f64, f64), Product(e2m1, e2m1), Product(bf16, f16), Product(s8, s8), Product(out=s32)],
    ids=["f64", "four bits", "mixed", "integers to bf16", "bf16 to integers"],
)  # fmt: skip
def test_types_that_do_not_go_together_are_refused(build, product):
    with refused("argument-type"):
        build(product)


@pytest.mark.parametrize(
    ("config", "got"),
    [
        ({"tile_n": 64}, "64"), ({"tile_n": 192}, "192"), ({"tile_n": 512}, "512"), ({"tile_m": 256}, "256"),
        ({"stages": 0}, "0"), ({"buffers": 2.0}, "2.0"), ({"format": "mxfp8"}, "'mxfp8'"),
    ],
    ids=str,
)  # fmt: skip
def test_a_block_scaled_tile_is_of_whole_atoms(config, got):
    with refused("configuration", got=got):
        block_scaled.build(block_scaled.Config(**config))


@pytest.mark.parametrize(
    ("config", "code"),
    [({"stages": 30}, "shared-memory-full"), ({"buffers": 4}, "tensor-memory-full")],
    ids=["stages", "columns"],
)  # fmt: skip
def test_a_block_scaled_ring_that_does_not_fit_is_refused(config, code):
    with refused(code):
        block_scaled.build(block_scaled.Config(**config)).ptx()


ATOMS = (2, 3, 512)
"""Of 130 and 136 rows and 384 elements of eight bits."""


@pytest.mark.parametrize(
    ("atoms", "code"),
    [
        (np.ones((130, 12), np.uint8), "wrong-shape"), (np.ones((2, 2, 512), np.uint8), "wrong-shape"),
        (np.ones((3, 2, 512), np.uint8), "wrong-shape"), (np.ones(ATOMS, np.float32), "wrong-type"),
        (np.ones((2, 3, 1024), np.uint8)[:, :, ::2], "wrong-layout"),
    ],
    ids=["rows of factors", "an atom short", "turned", "floats", "gaps"],
)  # fmt: skip
def test_scale_factors_in_another_layout_are_refused(atoms, code):
    a, b = (np.ones((rows, 384), ml_dtypes.float8_e4m3fn) for rows in (130, 136))
    with refused(code):
        block_scaled.build().emulate(a, b, atoms, np.ones(ATOMS, np.uint8))


@pytest.mark.parametrize(
    ("asked", "got"),
    [({"window_left": True}, "a window"), ({"softcap": True}, "softcap"), ({"sinks": True, "varlen": True}, None)],
    ids=str,
)  # fmt: skip
def test_attention_names_what_it_does_not_compute(asked, got):
    with refused("argument", got=got) as caught:
        attention.build(Attention(head_dim=64, value_dim=64, **asked))
    assert got is not None or caught.value.got.split(", ") == ["sinks", "lengths of sequences"]


def test_keys_of_a_tile_and_stages_that_do_not_fit_are_refused():
    with refused("configuration", got="96", expected="64 or 128"):
        attention.build(Attention(), Keys(tile_n=96))
    with refused("shared-memory-full"):
        attention.build(Attention(), Keys(stages=40)).ptx()


@pytest.mark.parametrize(
    ("build", "config", "expected"),
    [
        (gemm, Config(tile_m=64), "128 or 256"), (gemm, Config(tile_n=24), "a multiple of 16 from 16 to 256"),
        (grouped, Config(tile_m=192), "128 or 256"), (small_m, SmallMConfig(split_k=3), "1, 2, 4 or 8"),
        (small_m, SmallMConfig(tokens=144), "a multiple of 16 from 16 to 128"),
        (block_scaled, block_scaled.Config(tile_m=64), "128"),
        (block_scaled, block_scaled.Config(tile_n=64), "128 or 256"),
        (gemm, Config(buffers=0), "a whole number from 1 to 65536"),
    ],
    ids=str,
)  # fmt: skip
def test_the_possible_values_of_a_number_are_named(build, config, expected):
    with refused("configuration", expected=expected):
        build.build(config=config)


def test_a_fusion_that_is_unknown_is_refused():
    with refused("argument"):
        gemm.build(Config(), Product(), Fusion(activation="gel"))


def test_rows_of_d_that_begin_inside_16_bytes_are_refused_before_anything_runs():
    """Its threads store 16 bytes at a time, so that N may be odd, but not the distance of two rows."""
    a, b = (np.zeros((rows, 64), ml_dtypes.bfloat16) for rows in (130, 49))
    with refused("wrong-layout", got="strides of (98, 2) bytes for shape (130, 49)"):
        gemm.build(Config(tile_m=128, tile_n=64, stages=2), whole=False).emulate(a, b)
