"""Functions of scores that switch gradients off for some of their values, against float64 autograd."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import warploom  # noqa: E402
import warploom.torch as wt  # noqa: E402
from tests.integrations.test_torch_attention_functions import check_derivative  # noqa: E402
from tests.integrations.test_torch_captured_gradients import check_reads, compare, normal  # noqa: E402

pytestmark = pytest.mark.full


def by_no_grad(x: Any) -> Any:
    with torch.no_grad():
        limit, power, same = torch.abs(x) + 1, x**1, torch.clamp(x, -1, 1)
    return x / limit + power * x + same * x


def by_a_mode_that_is_set(x: Any) -> Any:
    torch.set_grad_enabled(False)
    squared = x * x
    torch.set_grad_enabled(True)
    return x * squared


def by_inference_mode(x: Any) -> Any:
    with torch.inference_mode():
        tripled = x * 3
    return x + tripled


def by_detach(x: Any) -> Any:
    return x * x.detach() + torch.detach(x * x) * x


def with_gradients_inside(x: Any) -> Any:
    with torch.no_grad():
        flat = torch.exp(x / 4)
        with torch.enable_grad():
            steep = torch.tanh(x) * flat
    return steep + flat * x


def of_what_no_operation_made(x: Any) -> Any:
    with torch.no_grad():
        y = x
    return y * y


MODES = [by_no_grad, by_a_mode_that_is_set, by_inference_mode, by_detach, with_gradients_inside,
         of_what_no_operation_made]  # fmt: skip


@pytest.mark.parametrize("function", MODES)
def test_what_is_computed_without_gradients_has_no_slope(function: Any) -> None:
    check_derivative(function)


def read_without(s: Any, x: Any, y: Any, i: Any) -> Any:
    with torch.no_grad():
        fixed = x[i]
    return s * fixed + x[31 - i] * y[i]


def rows_without(s: Any, x: Any, y: Any, i: Any) -> Any:
    with torch.no_grad():
        product = s * y[i]
    return x.detach()[i] * s + product * x[i] + y[i]


@pytest.mark.parametrize("function", [read_without, rows_without])
def test_what_is_read_without_gradients_has_none(function: Any) -> None:
    check_reads(function)


def scaled_by_what_is_fixed(x: Any) -> Any:
    def score_mod(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        with torch.no_grad():
            most = x[h] * (i - j)
        return s * (1 + most / 8) + x[h]

    return score_mod


def test_gradients_of_calls_and_captured_tensors_are_autograds() -> None:
    compare(warploom.attention, scaled_by_what_is_fixed, [normal(2)], 16)


def test_a_tensor_that_is_only_read_without_gradients_gets_zeros() -> None:
    bias, (q, k, v) = normal(8).requires_grad_(), [normal(1, 1, 8, 16, dtype=torch.bfloat16) for _ in range(3)]

    def score_mod(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        with torch.no_grad():
            return s + bias[j]

    (found,) = torch.autograd.grad(warploom.attention(q, k, v, score_mod=score_mod).sum(), bias)
    assert torch.equal(found, torch.zeros(8))


def leaves_gradients_off(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    torch.set_grad_enabled(False)
    return s


@pytest.mark.parametrize("enabled", [True, False])
def test_the_callers_mode_neither_counts_inside_nor_changes(enabled: bool) -> None:
    q, k, v = [normal(1, 1, 8, 16, dtype=torch.bfloat16).requires_grad_() for _ in range(3)]
    with torch.set_grad_enabled(enabled):
        warploom.attention(q, k, v, score_mod=leaves_gradients_off)
        assert torch.is_grad_enabled() is enabled
    with torch.no_grad():
        traced_here = warploom.attention(q, k, v, score_mod=scaled_by_what_is_fixed(normal(1)))
    assert not traced_here.requires_grad


def test_under_torch_compile_the_gradients_are_those_of_eager_calls() -> None:
    tensors = [normal(1, 1, 8, 16, dtype=torch.bfloat16, seed=n).requires_grad_() for n in range(3)]
    function = scaled_by_what_is_fixed(normal(1))
    torch._dynamo.reset()
    calls = [wt.flex_attention, torch.compile(wt.flex_attention, backend="aot_eager")]
    found = [torch.autograd.grad(call(*tensors, function).sum(), tensors) for call in calls]
    assert all(torch.equal(x, y) for x, y in zip(*found, strict=True))
