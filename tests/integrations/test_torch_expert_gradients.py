"""Gradients of experts on several ranks, next to those of the whole mixture; the kernel's part is computed by gloo."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
dist = torch.distributed

from tests.errors import refused  # noqa: E402
from tests.integrations.torch_ranks import begin, end, spawn  # noqa: E402
from warploom.integrations.torch import distributed, peer_experts, symmetric  # noqa: E402
from warploom.operators.spec.activations import ACTIVATIONS  # noqa: E402

BF16 = torch.bfloat16
TOLERANCE = 0.015
"""Of the norm; z is rounded to bf16 before the slope of an activation is taken."""
K, N, TOPK, LOCAL, CAPACITY = 16, 24, 2, 2, 7
ACTIVATED = (None, "silu")


def by_gloo(known, x, experts, weights, w, capacity=None, activation=None, scale_x=None, scale_w=None, out=None):
    """The sums as the kernel makes them: products rounded, then added up in f32."""
    every = [torch.empty_like(w) for _ in range(known.ranks)]
    dist.all_gather(every, w.contiguous())
    assert x.shape[0] <= (x.shape[0] if capacity is None else capacity)
    return mixture(x, experts, weights, torch.cat(every), activation)


def mixture(x, experts, weights, w, activation):
    """On one rank, of all experts' matrices."""
    valid = (experts >= 0) & (experts < len(w))
    rows = torch.einsum("tk,tjnk->tjn", x.float(), w.float()[experts.long().where(valid, 0)])
    y = rows if activation is None else ACTIVATIONS[activation].forward(rows, torch)
    y = y + (y.to(x.dtype).float() - y).detach()  # rounded as it travels; rounding has no gradient
    return (y * (weights * valid)[..., None]).sum(1).to(x.dtype)


def data(world: int):
    """Tokens, experts, weights and slopes of all ranks, and all matrices. Rank 1 has no tokens."""
    draw = torch.Generator().manual_seed(world)
    tokens = [CAPACITY, 0, 5, 1][:world]
    x, g = ([torch.randn(count, size, generator=draw).to(BF16) for count in tokens] for size in (K, N))
    experts = [torch.randint(-1, LOCAL * world + 1, (count, TOPK), generator=draw, dtype=torch.int32)
               for count in tokens]  # fmt: skip
    weights = [torch.rand(count, TOPK, generator=draw) for count in tokens]
    return x, experts, weights, torch.randn(LOCAL * world, N, K, generator=draw).to(BF16), g


def far(found, right) -> float:
    return float((found.float() - right.float()).norm() / right.float().norm().clamp(min=1e-6))


def worker(rank: int, world: int, port: int, folder: str) -> None:
    begin(rank, world, port, "gloo")
    peer_experts.experts_matmul = by_gloo
    x, experts, weights, w, g = data(world)
    lines = []
    for activation in ACTIVATED:
        leaves = [[each.clone().requires_grad_() for each in some] for some in (x, weights)]
        matrices = w.clone().requires_grad_()
        for at in range(world):
            mixture(leaves[0][at], experts[at], leaves[1][at], matrices, activation).backward(g[at])
        right = (leaves[0][rank].grad, leaves[1][rank].grad, matrices.grad[rank * LOCAL : (rank + 1) * LOCAL])
        for compiled in (False, True):
            mine = [x[rank].clone(), weights[rank].clone(), w[rank * LOCAL : (rank + 1) * LOCAL].clone()]
            mine = [each.requires_grad_() for each in mine]

            def call(a, b, c, activation=activation):
                return distributed.experts_matmul(a, experts[rank], b, c, capacity=CAPACITY, activation=activation)

            function = torch.compile(call, backend="aot_eager", fullgraph=True) if compiled else call
            function(*mine).backward(g[rank])
            worst = max(far(one.grad, other) for one, other in zip(mine, right, strict=True))
            lines.append(f"{activation} {compiled} {worst:.4f} {worst < TOLERANCE}")
    only = x[rank].clone().requires_grad_()  # nobody asks for the others' gradients
    distributed.experts_matmul(
        only, experts[rank], weights[rank], w[rank * LOCAL : (rank + 1) * LOCAL], capacity=CAPACITY
    ).backward(g[rank])
    lines.append(f"x alone {only.grad.shape == x[rank].shape}")
    end(folder, rank, lines)


@pytest.mark.full
@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_gradients_are_those_of_the_whole_mixture(tmp_path, world):
    for lines in spawn(worker, world, tmp_path):
        assert len(lines) == 2 * len(ACTIVATED) + 1
        assert all(line.endswith("True") for line in lines), lines


@pytest.fixture
def one_rank(monkeypatch):
    """A group of one rank, whose all-to-all is a copy."""
    from warploom.integrations.torch import expert_gradients

    class One(symmetric.Group):
        def __init__(self) -> None:
            self.name, self.ranks, self.rank, self.process_group = "one", 1, 0, None

    monkeypatch.setattr(expert_gradients, "group_of", lambda name: One())
    monkeypatch.setattr(dist, "all_to_all_single", lambda out, given, *sizes, group=None: out.copy_(given))
    return expert_gradients


def test_a_second_derivative_of_the_matrices_is_refused_and_not_zero(one_rank):
    x, dz = torch.randn(3, K).to(BF16).requires_grad_(), torch.randn(3, N).to(BF16)
    experts = torch.zeros(3, 1, dtype=torch.int32)
    found = torch.ops.warploom.experts_matmul_gradient_of_w(x, dz, experts, "one", 1)
    assert found.requires_grad
    with refused("argument"):
        found.sum().backward()


def test_rows_go_to_the_ranks_of_their_experts_and_back_in_no_other_order(one_rank):
    draw = torch.Generator().manual_seed(0)
    x, dz = torch.randn(9, K, generator=draw).to(BF16), torch.randn(9 * TOPK, N, generator=draw).to(BF16)
    experts = torch.randint(-1, 4, (9, TOPK), generator=draw, dtype=torch.int32)
    found = one_rank.of_w(x, dz, experts, "one", 3)
    for expert in range(3):
        chosen = (experts.reshape(-1) == expert)[:, None]
        right = (dz.float() * chosen).mT @ x.float().repeat_interleave(TOPK, 0)
        assert far(found[expert], right) < TOLERANCE
