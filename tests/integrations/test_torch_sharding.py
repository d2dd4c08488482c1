"""Models split over several processes (gloo, on CPUs) compute what they compute in one."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tests.integrations.torch_ranks import begin, end, spawn  # noqa: E402

pytestmark = pytest.mark.full
WIDTH, HIDDEN, ROWS = 32, 64, 8
TOLERANCE = 0.04  # of bf16 sums that are rounded once more where parts are added


class Block(nn.Module):
    """Norm, up, activation, down, residual: each way of tensor parallelism has its place in it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, HIDDEN)
        self.down = nn.Linear(HIDDEN, WIDTH)

    def forward(self, x):
        return x + self.down(nn.functional.silu(self.up(self.norm(x))))


def model():
    torch.manual_seed(3)
    return Block().to(torch.bfloat16)


def split(block, mesh, how):
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    if how == "columns and rows":
        return parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    if how == "sequence":
        plan = {
            "norm": SequenceParallel(),
            "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(output_layouts=Shard(1)),
        }
        return parallelize_module(block, mesh, plan)
    from torch.distributed.fsdp import fully_shard

    return fully_shard(block, mesh=mesh)


def worker(rank, world, port, folder):
    begin(rank, world, port, "gloo")
    from torch.distributed.device_mesh import init_device_mesh

    import warploom.torch

    mesh = init_device_mesh("cpu", (world,))
    lines = []
    for how in ("columns and rows", "sequence", "fsdp"):
        expected, block = model(), model()
        x = torch.randn(1, ROWS, WIDTH, generator=torch.Generator().manual_seed(5)).to(torch.bfloat16)
        right = expected(x)
        right.float().square().sum().backward()
        block = split(warploom.torch.convert(block), mesh, how)
        mine = slice(rank * ROWS // world, (rank + 1) * ROWS // world) if how == "sequence" else slice(None)
        y = block(x[:, mine])
        y.float().square().sum().backward()
        whole = y.full_tensor() if hasattr(y, "full_tensor") else y
        right = right.detach()[:, mine].float()
        worst = float((whole.detach().float() - right).abs().max() / right.abs().max())
        for name, parameter in block.named_parameters():
            gradient = parameter.grad.full_tensor() if hasattr(parameter.grad, "full_tensor") else parameter.grad
            wanted = expected.get_parameter(name).grad
            away = float((gradient.float() - wanted.float()).abs().max() / wanted.float().abs().max())
            worst = max(worst, away)
        layers = warploom.torch.converted(block)
        lines.append(f"{how}|{worst}|{','.join(layers)}")
    end(folder, rank, lines)


@pytest.mark.parametrize("world", [2, 4])
def test_a_split_model_computes_what_the_whole_one_does_and_keeps_our_layers(world, tmp_path):
    for lines in spawn(worker, world, tmp_path):
        for line in lines:
            how, worst, layers = line.split("|")
            assert float(worst) < TOLERANCE, how
            assert layers == "up,down"
