"""Products that communicate, for CPU tensors: computed by the library's product and gloo instead of kernels.

One to four gloo processes; each compares its own result with the formula, computed from all ranks' operands.
"""

from __future__ import annotations

import copy
import time
from functools import partial

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

from tests.integrations.torch_ranks import begin, end, spawn  # noqa: E402
from warploom import config  # noqa: E402
from warploom.errors import ArgumentError, ArgumentTypeError, PeerError  # noqa: E402
from warploom.integrations.torch import distributed, symmetric  # noqa: E402

pytestmark = pytest.mark.full
BF16, F16, E4M3 = torch.bfloat16, torch.float16, torch.float8_e4m3fn
M, N, K = 12, 24, 32
TOLERANCE = 0.02
SHORT_S, PATIENT_S = 1.0, 120.0


def normal(*shape, seed=0, dtype=BF16):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def positive(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) + 0.5


def far(found, right) -> float:
    return float((found.detach().float() - right.detach().float()).norm() / right.detach().float().norm())


class Rank:
    """One process's view: operands of all ranks, its own result and the right one."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world = rank, world

    def operands(self, dtype=BF16, rows=M):
        ranks = range(self.world)
        return (
            [normal(rows, K, seed=each, dtype=dtype) for each in ranks],
            [normal(N, K, seed=9 + each, dtype=dtype) for each in ranks],
        )

    def total(self, a, b, scales=None):
        parts = [x.float() @ w.float().mT for x, w in zip(a, b, strict=True)]
        return sum(part * (1 if scales is None else scales[at]) for at, part in enumerate(parts))

    def gathered(self, dtype=BF16, rows=M, by=None):
        a, b = self.operands(dtype, rows)
        found = distributed.all_gather_matmul(a[self.rank], b[self.rank].mT, by=by)
        return far(found, torch.cat(a).float() @ b[self.rank].float().mT)

    def scattered(self, dtype=BF16, rows=M):
        a, b = self.operands(dtype, rows)
        found = distributed.matmul_reduce_scatter(a[self.rank], b[self.rank].mT)
        return far(found, self.total(a, b).chunk(self.world)[self.rank])

    def summed(self, dtype=BF16, rows=5, group=None, others=None, by=None):
        a, b = self.operands(dtype, rows)
        found = distributed.matmul_all_reduce(a[self.rank], b[self.rank].mT, group, by=by)
        others = range(self.world) if others is None else others
        return far(found, self.total([a[each] for each in others], [b[each] for each in others]))

    def scaled(self, what: str, rows: bool):
        a, b = self.operands(E4M3)
        ranks = range(self.world)
        of_a = [positive(M, 1, seed=each) if rows else positive(1, seed=each) for each in ranks]
        of_b = [positive(1, N, seed=each) if rows else positive(1, seed=each) for each in ranks]
        x, w, s, t = (each[self.rank] for each in (a, b, of_a, of_b))
        if what == "gather":
            s, t = (s, t) if rows else (positive(1), t)
            _, (found,) = distributed.fused_all_gather_scaled_matmul(
                x, [w.mT], s, [t], 0, "0", [None], [None], [None], [True]
            )
            left = torch.cat([each.float() for each in a]) * (torch.cat(of_a) if rows else s)
            return far(found, left @ w.float().mT * t)
        right = self.total(a, b, [p * q for p, q in zip(of_a, of_b, strict=True)])
        if what == "sum":
            return far(distributed.scaled_matmul_all_reduce(x, w.mT, s, t), right)
        found = distributed.fused_scaled_matmul_reduce_scatter(
            x, w.mT, s, t, "avg", 0, 0, "0", None, use_fast_accum=True
        )
        return far(found, (right / self.world).chunk(self.world)[self.rank])

    def experts(self, eight: bool, activation: str | None = None):
        dtype, topk, tokens = E4M3 if eight else BF16, 2, [3 * each for each in range(self.world)]
        tokens[0] = 4 if self.world == 1 else 0
        x = [normal(count, K, seed=at, dtype=dtype) for at, count in enumerate(tokens)]
        w = [normal(2, N, K, seed=40 + at, dtype=dtype) for at in range(self.world)]
        count, matrices = tokens[self.rank], torch.cat([each.float() for each in w])
        draw = torch.Generator().manual_seed(self.rank)
        chosen = torch.randint(-1, len(matrices) + 1, (count, topk), generator=draw, dtype=torch.int32)
        weights, of_x, of_w = positive(count, topk), positive(count, seed=self.rank), positive(len(matrices))
        found = distributed.experts_matmul(
            x[self.rank], chosen, weights, w[self.rank], capacity=max(tokens), activation=activation,
            **({"scale_x": of_x, "scale_w": of_w} if eight else {}),
        )  # fmt: skip
        right = torch.zeros(count, N)
        for token, entry in ((t, e) for t in range(count) for e in range(topk)):
            expert = int(chosen[token, entry])
            if 0 <= expert < len(matrices):
                z = x[self.rank][token].float() @ matrices[expert].mT
                z = nn.functional.silu(z) if activation else z
                scale = of_x[token] * of_w[expert] if eight else 1.0
                right[token] += weights[token, entry] * z * scale
        return far(found, right) if count and bool((right != 0).any()) else float(found.numel() if not count else 0)

    def plan(self, sequence: bool, autocast: bool = False):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import parallelize_module

        torch.manual_seed(3)
        whole = nn.Sequential(nn.Linear(16, 8 * self.world), nn.SiLU(), nn.Linear(8 * self.world, 16))
        whole = whole if autocast else whole.to(BF16)
        styles = distributed.ColwiseParallel(sequence=sequence), distributed.RowwiseParallel(sequence=sequence)
        split = parallelize_module(
            copy.deepcopy(whole), init_device_mesh("cpu", (self.world,)), dict(zip("02", styles, strict=True))
        )
        x = torch.randn(1, M, 16).to(whole[0].weight.dtype)
        each = M // self.world
        mine = slice(self.rank * each, (self.rank + 1) * each) if sequence else slice(None)
        with torch.autocast("cpu", BF16, enabled=autocast):
            found, right = split(x[:, mine]), whole(x)
        for y in (found, right):
            y.float().square().sum().backward()
        return max(
            far(found, right[:, mine]), far(split[2].bias.grad, whole[2].bias.grad),
            far(split[0].weight.grad, whole[0].weight.grad.chunk(self.world)[self.rank]),
        )  # fmt: skip

    # -- refused -------------------------------------------------------------------------------------------------------

    def refused(self, call) -> str:
        try:
            call()
        except (ArgumentError, ArgumentTypeError, PeerError) as error:
            return error.code
        return "computed"

    def split(self, weight):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Replicate, distribute_tensor

        return distribute_tensor(weight, init_device_mesh("cpu", (self.world,)), [Replicate()])

    def on_its_way(self):
        """Rows that torch still gathers when they are multiplied."""
        from torch.distributed import _functional_collectives as collectives

        a, b = self.operands()
        x = collectives.all_reduce(a[self.rank], "sum", dist.group.WORLD)
        found = distributed.matmul_all_reduce(x, b[self.rank].mT)
        total = sum(each.float() for each in a).to(BF16)
        return far(found, self.total([total] * self.world, b))

    def plan_of(self, features: int) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import parallelize_module

        mesh = init_device_mesh("cpu", (self.world,))
        parallelize_module(nn.Sequential(nn.Linear(16, features)), mesh, {"0": distributed.ColwiseParallel()})

    def refusals(self) -> list[str]:
        a, b = self.operands()
        a, b = a[self.rank], b[self.rank].mT
        destroyed = dist.new_group(list(range(self.world)))
        dist.destroy_process_group(destroyed)
        calls = {
            "wrong-shape": [
                lambda: distributed.matmul_all_reduce(a, b[:16]),
                lambda: distributed.all_gather_matmul(a, b, out=a.new_empty(1, N)),
                lambda: distributed.fused_all_gather_matmul(a, [b], 1, "0"),
            ],
            "wrong-layout": [
                lambda: distributed.all_gather_matmul(normal(M, 2 * K)[:, ::2], b),
                lambda: distributed.all_gather_matmul(a, b[:, :5]),
                lambda: distributed.matmul_all_reduce(a, b.contiguous()),
                lambda: self.plan_of(4 * self.world),
            ],
            "peer-group": [
                lambda: distributed.matmul_all_reduce(a, b, destroyed),
                lambda: distributed.matmul_all_reduce(a, b, "nobody's"),
            ],
            "mixed-tensors": [lambda: distributed.matmul_all_reduce(a, self.split(b.mT).mT)],
            "argument-type": [
                lambda: distributed.all_gather_matmul(a.float(), b.float()),
                lambda: distributed.matmul_all_reduce(a, b, config="s64x8"),
            ],
        }
        if self.world > 1:
            calls["wrong-shape"] += [
                lambda: distributed.matmul_reduce_scatter(a[:1], b), lambda: self.plan_of(8 * self.world + 1),
            ]  # fmt: skip
        return [f"{code} {self.refused(call)}" for code, some in calls.items() for call in some]

    def faults(self) -> list[str]:
        """Ranks that differ, that do not come to a new call, and to one that all have made before."""
        own = "two_shot" if self.rank == 1 else "one_shot"
        lines = [
            self.refused(lambda: self.summed(rows=5 + (self.rank == 1))),
            self.refused(lambda: self.summed(by=own)),
        ]
        with config.override(peer_timeout_s=SHORT_S):
            began = time.monotonic()
            lines += [self.refused(self.summed) for _ in range(2)] if self.rank != 1 else []
            lines.append(f"in time {time.monotonic() - began < PATIENT_S / 4}")
        dist.barrier()
        distributed.reset()
        return [*lines, f"anew {self.summed() < TOLERANCE}"]


def values(here: Rank) -> dict[str, float]:
    calls = {
        **{f"{call.__name__} {dtype}": partial(call, dtype)
           for call in (here.gathered, here.scattered, here.summed) for dtype in (BF16, F16)},
        "many rows": partial(here.gathered, rows=300), "one row": partial(here.gathered, rows=1),
        **{f"scaled {what} {rows}": partial(here.scaled, what, rows)
           for what in ("gather", "scatter", "sum") for rows in (False, True)},
        "gathered by copies": partial(here.gathered, by="copy"),
        "summed in two shots": partial(here.summed, by="two_shot"), "on its way": here.on_its_way,
        "experts": partial(here.experts, False), "experts silu": partial(here.experts, False, "silu"),
        "experts of eight bits": partial(here.experts, True),
        **{f"plan {sequence} {autocast}": partial(here.plan, sequence, autocast)
           for sequence in (False, True) for autocast in (False, True)},
    }  # fmt: skip
    return {name: call() for name, call in calls.items()}


def subgroups(here: Rank) -> dict[str, float]:
    """Rows and columns of a mesh of 2 x 2 ranks."""
    from torch.distributed.device_mesh import init_device_mesh

    mesh, rank = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor")), here.rank
    row, column = [rank - rank % 2, rank - rank % 2 + 1], [rank % 2, rank % 2 + 2]
    return {
        "row": here.summed(group=mesh["tensor"], others=row),
        "column": here.summed(group=mesh["data"].get_group(), others=column),
        "row again": here.summed(group=mesh["tensor"].get_group().group_name, others=row),
    }


def worker(rank, world, port, folder):
    begin(rank, world, port, "gloo")
    with config.override(peer_timeout_s=PATIENT_S):
        here = Rank(rank, world)
        found = values(here) | (subgroups(here) if world == 4 else {})
        lines = [*(f"value {name}|{away}" for name, away in found.items()), *map("refused {}".format, here.refusals())]
        if world == 2:
            lines += map("fault {}".format, here.faults())
            dist.barrier()
            dist.destroy_process_group()
            begin(rank, world, port + 1, "gloo")
            lines.append(f"value a new group|{here.summed()}")
    end(folder, rank, lines)


@pytest.mark.parametrize("world", [pytest.param(1, marks=pytest.mark.slow), 2, 4])
def test_products_of_the_cpu_are_those_of_the_kernels_and_faults_are_named(world, tmp_path):
    for rank, lines in enumerate(spawn(worker, world, tmp_path)):
        said = {kind: [line.partition(" ")[2] for line in lines if line.startswith(kind)]
                for kind in ("value", "refused", "fault")}  # fmt: skip
        assert len(said["value"]) == {1: 24, 2: 25, 4: 27}[world]
        for line in said["value"]:
            name, away = line.split("|")
            assert float(away) < TOLERANCE, name
        assert len(said["refused"]) == (12 if world == 1 else 14)
        for line in said["refused"]:
            expected, got = line.split(" ", 1)
            assert got == expected
        if world == 2:
            gave_up = ["peer-timeout"] * 2 if rank == 0 else []
            assert said["fault"] == ["peer-call", "peer-call", *gave_up, "in time True", "anew True"]


def test_of_two_calls_what_differs_is_named():
    here, there = ("all_gather_matmul", 4, "K", "push"), ("all_gather_matmul", 6, "K")
    assert symmetric._differences(here, there) == "4 (here) and 6, push (here) and nothing"
