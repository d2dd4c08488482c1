"""Random calls of attention's operators are right: options, lengths, memory layouts and data that nobody chose.

`--explore SEED` draws others; `python -m benchmarks.attention_random --seconds 600` draws as many as there is time for.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from benchmarks.attention_random import one  # noqa: E402
from benchmarks.attention_random_arrays import Draw, hidden  # noqa: E402
from benchmarks.attention_random_calls import FAMILIES, setting  # noqa: E402
from benchmarks.attention_random_exact import Exact, Rules, folded, off_by  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::warploom.errors.CopyWarning")
GPU_SETTINGS = 3
"""Kernels of each kind that a GPU runs, six calls each."""


def exact(dtype=torch.bfloat16, rules: Rules | None = None) -> Exact:
    draw = Draw(0, "cpu")
    arrays = (draw.normal(1, heads, 40, 64) for heads in (4, 2, 2))
    unseen = hidden("causal", (0, 0), 40, 40, "cpu")[0]
    return Exact.of(*(x.to(dtype).double() for x in arrays), rules or Rules(0.125, unseen), dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounded_results_are_within_the_bounds_and_others_are_not(dtype: torch.dtype) -> None:
    of = exact(dtype)
    rounded = of.out.to(dtype)
    assert not off_by(rounded, of.out, of.bound(dtype)) and (rounded.double() - of.out).norm() < of.typical(dtype)
    assert "of the bound" in off_by(rounded * 1.05, of.out, of.bound(dtype))
    assert (rounded.double() * 1.01 - of.out).norm() > of.typical(dtype)
    rounded[0, 1, 2, 3] = torch.nan
    assert "first at [0, 1, 2, 3]" in off_by(rounded, of.out, of.bound(dtype))
    assert "shape" in off_by(rounded[:, :1], of.out, of.bound(dtype))


def test_a_row_without_keys_is_zero_and_its_logarithm_is_infinite() -> None:
    of = exact(rules=Rules(0.125, torch.ones(40, 40, dtype=torch.bool)))
    assert not of.out.any() and bool((of.lse == -torch.inf).all())
    assert off_by(of.lse * 0, of.lse, torch.ones(1))


def test_the_gradients_are_those_of_autograd() -> None:
    draw = Draw(1, "cpu")
    q, k, v = (draw.normal(1, heads, 40, 64).requires_grad_() for heads in (4, 2, 2))
    rules = Rules(0.125, hidden("window", (9, 3), 40, 40, "cpu")[0], cap=2.0)
    of, grad, lse_grad = Exact.of(q, k, v, rules, torch.bfloat16), draw.normal(1, 4, 40, 64), draw.normal(1, 4, 40)
    wanted = torch.autograd.grad((of.out, of.lse), (q, k, v), (grad, lse_grad))
    for (name, (found, _)), each in zip(of.gradients(of.out, grad, lse_grad).items(), wanted, strict=True):
        torch.testing.assert_close(found if name == "dq" else folded(found, 2), each)


def test_settings_and_calls_repeat() -> None:
    assert setting(Draw(3, "cpu"), "decode") == setting(Draw(3, "cpu"), "decode")
    assert {tuple(setting(Draw(seed, "cpu"), "forward")["dims"]) for seed in range(9)} != {(64, 64)}


@pytest.mark.sample(1, all=7)
@pytest.mark.parametrize("number", range(len(FAMILIES)), ids=FAMILIES)
def test_calls_in_the_emulator(number: int, request: pytest.FixtureRequest) -> None:
    seed = request.config.getoption("explore") or 0
    rows = one(seed, number, "cpu", "small", calls=1, families=FAMILIES)
    assert not [row for row in rows if row.get("wrong") or "raised" in row or "refused" in row]


@pytest.mark.gpu
@pytest.mark.parametrize("number", range(GPU_SETTINGS * len(FAMILIES)))
def test_calls_on_a_gpu(number: int, request: pytest.FixtureRequest) -> None:
    seed = request.config.getoption("explore") or 0
    rows = one(seed, number, "cuda", "large", calls=6, families=FAMILIES)
    assert not [row for row in rows if row.get("wrong") or "raised" in row or "refused" in row]
