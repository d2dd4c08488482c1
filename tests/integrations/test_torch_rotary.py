"""The rotary embedding of a converted model: one kernel where its code is known, the model's code elsewhere."""

import pytest

torch = pytest.importorskip("torch")

from warploom.integrations.torch import fused as torch_fused  # noqa: E402
from warploom.operators.rotary import rotary_embedding  # noqa: E402


def rotate_half(x):
    x1 = x[..., : x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


def rotate(q, k, cos, sin, unsqueeze_dim=1):
    """As the language models of Hugging Face write it."""
    cos = cos.unsqueeze(unsqueeze_dim)
    sin = sin.unsqueeze(unsqueeze_dim)
    q_embed = (q * cos) + (rotate_half(q) * sin)
    k_embed = (k * cos) + (rotate_half(k) * sin)
    return q_embed, k_embed


def rotate_first(q, k, cos, sin, unsqueeze_dim=1):
    cos = cos.unsqueeze(unsqueeze_dim)
    sin = sin.unsqueeze(unsqueeze_dim)
    rotary_dim = cos.shape[-1]
    q_rot, q_pass = q[..., :rotary_dim], q[..., rotary_dim:]
    k_rot, k_pass = k[..., :rotary_dim], k[..., rotary_dim:]
    q_embed = (q_rot * cos) + (rotate_half(q_rot) * sin)
    k_embed = (k_rot * cos) + (rotate_half(k_rot) * sin)
    q_embed = torch.cat([q_embed, q_pass], dim=-1)
    k_embed = torch.cat([k_embed, k_pass], dim=-1)
    return q_embed, k_embed


def rotate_otherwise(q, k, cos, sin, unsqueeze_dim=1):
    cos = cos.unsqueeze(unsqueeze_dim)
    sin = sin.unsqueeze(unsqueeze_dim)
    q_embed = (q * cos) - (rotate_half(q) * sin)
    k_embed = (k * cos) + (rotate_half(k) * sin)
    return q_embed, k_embed


def distance(found, exact):
    return (found.double() - exact).abs().max()


@pytest.mark.parametrize("function, turned, kernel", [
    (rotate, 32, True), (rotate_first, 16, True), (rotate_first, 32, True), (rotate_first, 8, False),
    (rotate_otherwise, 32, False),
])  # fmt: skip
def test_a_rotary_embedding_is_one_kernel_if_its_code_is_known_and_the_kernel_supports_it(
    monkeypatch, function, turned, kernel
):
    torch.manual_seed(0)
    calls = []
    monkeypatch.setattr(torch_fused, "rotary_embedding", lambda *given: calls.append(1) or rotary_embedding(*given))
    q, k = (torch.randn(2, 3, heads, 32).bfloat16().transpose(1, 2) for heads in (4, 2))
    cos, sin = (torch.randn(2, 3, turned).bfloat16() for _ in range(2))
    found, expected = torch_fused.rotated(function, q, k, cos, sin), function(q, k, cos, sin)
    exact = function(*(each.double() for each in (q, k, cos, sin)))
    assert bool(calls) == kernel
    for ours, theirs, wide in zip(found, expected, exact, strict=True):
        assert ours.shape == theirs.shape
        assert distance(ours, wide) <= distance(theirs, wide)


def test_a_rotary_embedding_with_a_gradient_runs_the_model_s_code():
    q, k = (torch.randn(1, 2, 3, 32).bfloat16().requires_grad_() for _ in range(2))
    cos, sin = (torch.randn(1, 3, 32).bfloat16() for _ in range(2))
    assert torch_fused.rotated(rotate, q, k, cos, sin)[0].requires_grad
