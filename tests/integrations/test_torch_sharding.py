"""Models split over several processes give the same results as in one process: on CPUs with gloo, and on GPUs with NCCL
(`-m gpu`)."""

from __future__ import annotations

import faulthandler
import itertools
import sys
import time
from functools import partial

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tests.integrations.torch_ranks import begin, end, spawn  # noqa: E402
from warploom.errors import ArgumentTypeError  # noqa: E402

WIDTH, HIDDEN, ROWS = 32, 64, 8
WAYS = ("columns and rows", "sequence", "fsdp")
PATIENCE_S = 45
"""How long a rank on a GPU may take for one model before it prints where it is and ends."""
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


class RootMeanSquare(nn.Module):
    """A norm that `convert` makes one kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))
        self.eps = 1e-6

    def forward(self, hidden_states):
        input_dtype = hidden_states.dtype
        hidden_states = hidden_states.to(torch.float32)
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.eps)
        return self.weight * hidden_states.to(input_dtype)


class Gated(nn.Module):
    """As the decoders of `transformers` have it: `convert` puts `gate` and `up` one after the other in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = RootMeanSquare()
        self.gate, self.up = (nn.Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x):
        residual = x
        x = self.norm(x)
        gate, up = self.gate(x), self.up(x)
        x = self.down(nn.functional.silu(gate) * up)
        return residual + x


def model(kind):
    torch.manual_seed(3)
    return kind().to(torch.bfloat16)


def split(block, mesh, how):
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    columns = [name for name in ("gate", "up") if hasattr(block, name)]
    if how == "columns and rows":
        plan = {name: ColwiseParallel() for name in columns}
        return parallelize_module(block, mesh, plan | {"down": RowwiseParallel()})
    if how == "sequence":
        plan = {
            "norm": SequenceParallel(),
            **{name: ColwiseParallel(input_layouts=Shard(1)) for name in columns},
            "down": RowwiseParallel(output_layouts=Shard(1)),
        }
        return parallelize_module(block, mesh, plan)
    from torch.distributed.fsdp import fully_shard

    return fully_shard(block, mesh=mesh)


def mixed(mesh) -> str:
    """The code of the error where a tensor of one rank meets one of all."""
    from torch.distributed.tensor import Shard, distribute_tensor

    import warploom.torch

    x = distribute_tensor(torch.ones(4, WIDTH, device=mesh.device_type).bfloat16(), mesh, [Shard(0)])
    try:
        warploom.torch.linear(x, torch.ones(8, WIDTH, device=mesh.device_type).bfloat16())
    except ArgumentTypeError as error:
        return error.code
    return "none"


def worker(rank, world, port, folder, device="cpu", ways=WAYS):
    began = time.perf_counter()
    if device == "cuda":
        torch.cuda.set_device(rank)
    begin(rank, world, port, "gloo" if device == "cpu" else "nccl")
    from torch.distributed.device_mesh import init_device_mesh

    import warploom.torch

    mesh = init_device_mesh(device, (world,))
    lines = [mixed(mesh)]
    for how, kind, first in itertools.product(ways, (Block, Gated), (True, False)):
        if device == "cuda":
            faulthandler.dump_traceback_later(PATIENCE_S, exit=True)
            said = f"rank {rank} of {world}, {time.perf_counter() - began:.1f} s: {how} {kind.__name__} {first}"
            print(said, file=sys.stderr, flush=True)
        expected, block = (model(kind).to(device) for _ in range(2))
        x = torch.randn(1, ROWS, WIDTH, generator=torch.Generator().manual_seed(5)).to(device, torch.bfloat16)
        right = expected(x)
        right.float().square().sum().backward()
        if first:
            block = split(warploom.torch.convert(block), mesh, how)
        else:
            block = warploom.torch.convert(split(block, mesh, how))
        mine = slice(rank * ROWS // world, (rank + 1) * ROWS // world) if how == "sequence" else slice(None)
        with torch.no_grad():  # what `convert` fuses is fused here, if at all
            again = block(x[:, mine])
        y = block(x[:, mine])
        y.float().square().sum().backward()
        whole = y.full_tensor() if hasattr(y, "full_tensor") else y
        right = right.detach()[:, mine].float()
        worst = float((whole.detach().float() - right).abs().max() / right.abs().max())
        again = again.full_tensor() if hasattr(again, "full_tensor") else again
        worst = max(worst, float((again.float() - right).abs().max() / right.abs().max()))
        for name, parameter in block.named_parameters():
            gradient = parameter.grad.full_tensor() if hasattr(parameter.grad, "full_tensor") else parameter.grad
            wanted = expected.get_parameter(name).grad
            away = float((gradient.float() - wanted.float()).abs().max() / wanted.float().abs().max())
            worst = max(worst, away)
        layers = warploom.torch.converted(block)
        lines.append(f"{how} {kind.__name__} {first}|{worst}|{','.join(layers)}")
    end(folder, rank, lines)


@pytest.mark.full
@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_a_split_model_computes_what_the_whole_one_does_and_keeps_our_layers(world, tmp_path):
    check(spawn(worker, world, tmp_path))


@pytest.mark.gpu
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("world", [2, 4])
def test_a_model_split_over_gpus_computes_what_the_whole_one_does(world, way, tmp_path):
    """One test each, so that `pytest -n 6` builds their kernels in parallel."""
    if torch.cuda.device_count() < world:
        pytest.skip(f"needs {world} GPUs")
    check(spawn(partial(worker, device="cuda", ways=(way,)), world, tmp_path), (way,))


def check(found: list[list[str]], ways: tuple[str, ...] = WAYS) -> None:
    """Each rank's lines."""
    for code, *lines in found:
        assert code == "mixed-tensors" and len(lines) == 4 * len(ways)
        for line in lines:
            how, worst, layers = line.split("|")
            assert float(worst) < TOLERANCE, how
            assert layers == ("gate,up,down" if "Gated" in how else "up,down")
