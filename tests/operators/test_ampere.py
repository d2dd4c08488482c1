"""GPUs before Hopper: products by the Ampere kernel, the rest by array operations. Tested in the emulator."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import warploom
from tests.operators.test_matmul import assert_close, draw, laid_out
from warploom.errors import ArgumentError, ArgumentTypeError
from warploom.operators import Gpu, Problem, choose, explain
from warploom.operators.families import candidates, from_text, to_text
from warploom.operators.families.ampere import AmpereConfig

BF16 = ml_dtypes.bfloat16
A100, A10 = Gpu("NVIDIA A100", "sm_80", 108), Gpu("NVIDIA A10", "sm_86", 72)

pytestmark = pytest.mark.filterwarnings("ignore::warploom.errors.CopyWarning")


def ampere(a, b, **options):
    return warploom.matmul(a, b, config=options.pop("config", AmpereConfig()), **options)


@pytest.mark.parametrize("layouts", [("rows", "columns"), ("columns", "rows"), ("anywhere", "gaps")])
@pytest.mark.parametrize("m, n, k", [(1, 8, 16), (130, 24, 64), (17, 19, 21)])
def test_layouts_and_odd_sizes_are_copied_into_what_the_kernel_takes(layouts, m, n, k):
    rng = np.random.default_rng(m)
    a, b = laid_out(draw(rng, (m, k), BF16), layouts[0]), laid_out(draw(rng, (k, n), BF16), layouts[1])
    assert_close(ampere(a, b), a, b)


def test_the_end_is_done_behind_the_kernel():
    rng = np.random.default_rng(0)
    a, b = draw(rng, (16, 32), BF16), draw(rng, (32, 24), BF16)
    bias, gate, c = draw(rng, (24,), BF16), draw(rng, (16, 24), BF16), draw(rng, (16, 24), BF16)
    result = ampere(a, b, alpha=0.5, bias=bias, activation="silu", gate=gate, c=c, beta=2.0)
    assert_close(result, a, b, scale=0.5, bias=bias, activation="silu", gate=gate, c=c, beta=2.0)
    row = draw(rng, (16, 1), BF16)
    assert_close(ampere(a, b, bias=row, out_dtype=np.float32), a, b, bias=row)


def test_a_batch_and_leading_rows():
    rng = np.random.default_rng(1)
    a, b = draw(rng, (3, 8, 32), BF16), draw(rng, (3, 32, 16), BF16)
    result = ampere(a, b)
    for each in range(3):
        assert_close(result[each], a[each], b[each])
    flat = ampere(a, b[0])
    assert flat.shape == (3, 8, 16)
    assert_close(flat.reshape(24, 16), a.reshape(24, 32), b[0])


def test_other_types_are_refused_with_what_there_is():
    with pytest.raises(ArgumentTypeError) as caught:
        choose(Problem.of(8, 8, 16, "f16"), A100)
    assert (caught.value.expected, caught.value.got) == ("bf16 x bf16 -> bf16 or f32", "f16 x f16 -> f16")


@pytest.mark.parametrize("gpu", [A100, A10], ids=lambda gpu: gpu.arch)
@pytest.mark.parametrize("size", [(4096, 4096, 4096), (16, 4096, 4096)], ids=["large", "few rows"])
def test_a_gpu_before_hopper_chooses_among_its_own_kernels_and_says_on_what_it_counts(size, gpu):
    problem = Problem.of(*size, "bf16")
    choice, found = choose(problem, gpu), explain(problem, gpu)
    assert isinstance(choice.config, AmpereConfig) and choice == found.choice
    assert "data sheet" in found.text() and choice.config.name() in found.text()
    assert 0 < choice.estimate.activity <= 1
    assert from_text(to_text(choice.config)) == choice.config


def test_hopper_gets_none_of_them_and_neither_runs_what_is_pinned_for_the_other():
    problem = Problem.of(512, 512, 512, "bf16")
    hopper = Gpu("NVIDIA H200", "sm_90a", 132)
    assert not any(isinstance(config, AmpereConfig) for config in candidates(problem, hopper))
    assert choose(problem, hopper, "ampere:tile_n=64").config == AmpereConfig(tile_n=64), "sm_80 runs on later GPUs"
    with pytest.raises(ArgumentError) as caught:
        choose(problem, A100, "hopper_large:stages=3")
    assert (caught.value.expected, caught.value.got) == ("a GPU of sm_90a", "sm_80")


@pytest.mark.parametrize("config", candidates(Problem.of(64, 64, 64, "bf16"), A100), ids=AmpereConfig.name)
def test_every_tile_multiplies_what_does_not_fill_it(config):
    rng = np.random.default_rng(7)
    a, b = draw(rng, (70, 72), BF16), draw(rng, (72, 88), BF16)
    assert_close(ampere(a, b, config=config), a, b)


@pytest.mark.parametrize("wrong", ["tile_m=40", "stages=20", "stages=1"])
def test_a_tile_that_cannot_be_built_is_refused(wrong):
    with pytest.raises(ArgumentError):
        choose(Problem.of(64, 64, 64, "bf16"), A100, f"ampere:{wrong}")
