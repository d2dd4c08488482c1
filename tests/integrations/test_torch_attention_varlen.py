"""Attention of sequences of different lengths in PyTorch: gradients, torch.compile; and GPUs without gradients."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import warploom  # noqa: E402
from warploom.errors import ArgumentError  # noqa: E402
from warploom.operators.attention import gradients  # noqa: E402
from warploom.operators.spec.gpu import Gpu  # noqa: E402

pytestmark = pytest.mark.full
Q_LENGTHS, K_LENGTHS, SPARE = (40, 0, 9), (50, 3, 9), 2


def given(grad: bool = True) -> list:
    """q, k, v and sinks, with rows after the last sequence."""
    torch.manual_seed(0)
    rows, keys = sum(Q_LENGTHS) + SPARE, sum(K_LENGTHS) + SPARE
    tensors = [torch.randn(rows, 2, 64), torch.randn(keys, 1, 64), torch.randn(keys, 1, 64)]
    return [x.bfloat16().requires_grad_(grad) for x in tensors] + [torch.randn(2).requires_grad_(grad)]


def ends() -> tuple:
    return tuple(torch.tensor([0, *x]).cumsum(0).to(torch.int32) for x in (Q_LENGTHS, K_LENGTHS))


def attend(q, k, v, sinks):
    return warploom.attention_varlen(q, k, v, *ends(), causal=True, sinks=sinks)


def exact(q, k, v, sinks):
    parts, (q_ends, k_ends) = [], (x.tolist() for x in ends())
    for begin, end, first, last in zip(q_ends[:-1], q_ends[1:], k_ends[:-1], k_ends[1:], strict=True):
        rows, keys = end - begin, last - first
        scores = torch.einsum("qhd,kd->hqk", q[begin:end], k[first:last, 0]) * 64**-0.5
        hidden = torch.ones(rows, keys, dtype=torch.bool).triu(keys - rows + 1)
        scores = scores.masked_fill(hidden, -torch.inf)
        scores = torch.cat([scores, sinks[:, None, None].expand(2, rows, 1)], -1)
        parts.append(torch.einsum("hqk,kd->qhd", torch.softmax(scores, -1)[..., :-1], v[first:last, 0]))
    return torch.cat(parts)


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_reach_queries_keys_values_and_sinks_of_every_sequence(compiled: bool):
    ours, theirs = given(), [tensor.detach().double().requires_grad_() for tensor in given()]
    call = torch.compile(attend, backend="aot_eager", fullgraph=True) if compiled else attend
    out, wanted = call(*ours)[: sum(Q_LENGTHS)], exact(*theirs)
    grad = torch.randn(wanted.shape).bfloat16()
    out.backward(grad)
    wanted.backward(grad.double())
    torch.testing.assert_close(out.double(), wanted, atol=0.02, rtol=0)
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine.grad.double() - other.grad).norm() <= 0.015 * other.grad.norm()
    assert all(not x.grad[-SPARE:].any() for x in ours[:3]), "rows behind the last sequence"


def test_logarithms_of_every_sequence_have_a_gradient():
    """Of a loss of theirs alone: P times their gradient, by K and by Q; a sink takes its own share."""
    q, k, v, sinks = given()
    _, lse = warploom.attention_varlen(q, k, v, *ends(), causal=True, sinks=sinks, return_lse=True)
    share = torch.randn(lse.shape)
    (lse * share)[..., : sum(Q_LENGTHS)].sum().backward()
    theirs = [tensor.detach().double().requires_grad_() for tensor in (q, k, sinks)]
    total, (q_ends, k_ends) = 0.0, (x.tolist() for x in ends())
    for begin, end, first, last in zip(q_ends[:-1], q_ends[1:], k_ends[:-1], k_ends[1:], strict=True):
        rows, keys = end - begin, last - first
        scores = torch.einsum("qhd,kd->hqk", theirs[0][begin:end], theirs[1][first:last, 0]) * 64**-0.5
        scores = scores.masked_fill(torch.ones(rows, keys, dtype=torch.bool).triu(keys - rows + 1), -torch.inf)
        scores = torch.cat([scores, theirs[2][:, None, None].expand(2, rows, 1)], -1)
        total = total + (scores.logsumexp(-1) * share[0, :, begin:end]).sum()
    total.backward()
    for mine, other in zip((q, k, sinks), theirs, strict=True):
        assert (mine.grad.double() - other.grad).norm() <= 0.015 * other.grad.norm()
    assert not v.grad.any()


def test_the_operator_keeps_torchs_rules():
    tensors = [x.detach() for x in given()]
    options = (*tensors[:3], *ends(), tensors[3], None, True, None, -1, -1, None)
    tests = ("test_schema", "test_faketensor")
    torch.library.opcheck(torch.ops.warploom.attention_varlen.default, options, test_utils=tests)


def test_autocast_makes_sixteen_bits_of_f32():
    q, k, v, _ = (x.detach().float() for x in given())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert warploom.attention_varlen(q, k, v, *ends()).dtype is torch.bfloat16


@pytest.mark.parametrize("varlen", [False, True])
@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_a_gpu_without_gradients_refuses_the_call_and_launches_nothing(varlen, how, monkeypatch):
    launched = []
    monkeypatch.setattr(gradients, "emulated", lambda: Gpu("NVIDIA B200", "sm_100a", 148))
    monkeypatch.setattr("warploom.operators.attention.calls.launch", lambda *rest, **more: launched.append(rest))
    q, k, v, _ = given()

    def call(q, k, v):
        if varlen:
            return warploom.attention_varlen(q, k, v, *ends())
        return warploom.attention(*(x[None] for x in (q, k, v)), layout="bshd")

    run = torch.compile(call, backend="aot_eager") if how == "compiled" else call
    with pytest.raises(Exception, match="has no kernel for this GPU") as found:
        run(q, k, v)
    assert how == "compiled" or isinstance(found.value, ArgumentError)
    assert not launched
    with pytest.raises(ArgumentError):
        warploom.attention_varlen(q, k, v, *ends(), out=torch.empty_like(q))
