"""The contenders of `benchmarks.tensor_parallel`: one product each, as every library does it, and what is right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.tensor_parallel_machine import Call, Gpus
from warploom.collective.reduce.peers import FORMS
from warploom.settings import GATHERS

TOLERANCE = 0.02
SAME_BITS = 100
"""Runs of a product that must give the same bits."""


@dataclass
class Contest:
    """What takes turns, "mm" and "collective" among it, which have no result; what the others compute.

    more: what a row says besides. out: where results are, to be spoiled before a check. bits: runs that must give the
    same bits, on all ranks if `alike`.
    """

    calls: dict[str, Call]
    expected: Any
    more: dict[str, Any] = field(default_factory=dict)
    out: Any = None
    bits: int = 0
    alike: bool = False

    def error_of(self, name: str, machine: Gpus) -> float:
        """Relative error of a contender's result, the largest of all ranks' being looked at by each."""
        for _ in range(3):
            if self.out is not None:
                self.out.fill_(float("nan"))
            found = self.calls[name]()
        machine.synchronize()
        return float((found.float() - self.expected).norm() / self.expected.norm())

    def unsteady(self, name: str, machine: Gpus) -> str:
        """What is wrong with the bits of `bits` runs, or nothing."""
        if not self.bits:
            return ""
        torch, first = machine.torch, self.calls[name]().clone()
        same = True
        if self.alike:
            everyone = [torch.empty_like(first) for _ in range(machine.world)]
            machine.dist.all_gather(everyone, first)
            same = all(torch.equal(each, first) for each in everyone)
        for _ in range(self.bits):
            same = same and torch.equal(self.calls[name](), first)
        return "" if same else "the bits differ"


def _drawn(machine: Gpus) -> Callable[..., Any]:
    torch, device = machine.torch, machine.device
    generator = torch.Generator(device).manual_seed(machine.rank + 1)

    def normal(*shape: int) -> Any:
        return torch.randn(shape, device=device, dtype=torch.bfloat16, generator=generator)

    return normal


def _ours(calls: dict[str, Call], known: Sequence[str], forms: Sequence[str], call: Callable[..., Any]) -> None:
    """The forms of ours that are timed beside what a call does by default."""
    for form in known:
        if form in forms:
            calls[f"warploom {form}"] = lambda form=form: call(by=form)  # type: ignore[misc]


def _steady(
    machine: Gpus, calls: dict[str, Call], expected: Any, out: Any, alike: bool = False, **more: Any
) -> Contest:
    """A contest in which every run of ours must give the same bits."""
    runs = SAME_BITS if machine.fused else 2
    return Contest(calls, expected, {**more, "same_bits": runs}, out, runs, alike)


def _symmetric(machine: Gpus, shape: tuple[int, ...]) -> Any:
    """Memory that PyTorch's operators reach into."""
    import torch.distributed._symmetric_memory as symmetric

    shared = symmetric.empty(shape, dtype=machine.torch.bfloat16, device=machine.device)
    symmetric.rendezvous(shared, machine.dist.group.WORLD.group_name)
    return shared


def all_gather(machine: Gpus, m: int, n: int, k: int, forms: Sequence[str]) -> Contest:
    """All-gather and product."""
    from warploom.integrations.torch import distributed as ours

    torch, dist, world, normal = machine.torch, machine.dist, machine.world, _drawn(machine)
    group = dist.group.WORLD.group_name
    a, weight = normal(m // world, k), normal(n // world, k)
    b, whole, out = weight.mT, a.new_empty(m, k), a.new_empty(m, n // world)

    def gather() -> Any:
        return dist.all_gather_into_tensor(whole, a)

    calls: dict[str, Call] = {
        "warploom": lambda: ours.all_gather_matmul(a, b, out=out),
        "nccl": lambda: (gather(), torch.mm(whole, b, out=out))[1],
        "mm": lambda: torch.mm(whole, b, out=out), "collective": gather,
    }  # fmt: skip
    _ours(calls, GATHERS, forms, lambda by: ours.all_gather_matmul(a, b, out=out, by=by))
    if machine.fused:
        shared = _symmetric(machine, tuple(a.shape)).copy_(a)
        fused = torch.ops.symm_mem.fused_all_gather_matmul
        calls["torch fused"] = lambda: fused(shared, [b], 0, group)[1][0]
    gather()
    return _steady(machine, calls, whole.float() @ b.float(), out)


def reduce_scatter(machine: Gpus, m: int, n: int, k: int, _: Sequence[str]) -> Contest:
    """Product and reduce-scatter."""
    from warploom.integrations.torch import distributed as ours

    torch, dist, world, normal = machine.torch, machine.dist, machine.world, _drawn(machine)
    group = dist.group.WORLD.group_name
    a, weight = normal(m, k // world), normal(n, k // world)
    b, part, out = weight.mT, a.new_empty(m, n), a.new_empty(m // world, n)

    def scatter() -> Any:
        dist.reduce_scatter_tensor(out, part)
        return out

    calls: dict[str, Call] = {
        "warploom": lambda: ours.matmul_reduce_scatter(a, b, out=out),
        "nccl": lambda: (torch.mm(a, b, out=part), scatter())[1],
        "mm": lambda: torch.mm(a, b, out=part), "collective": scatter,
    }  # fmt: skip
    if machine.fused:
        fused = torch.ops.symm_mem.fused_matmul_reduce_scatter
        calls["torch fused"] = lambda: fused(a, b, "sum", 0, group)
    expected = torch.empty(m // world, n, device=machine.device)
    dist.reduce_scatter_tensor(expected, a.float() @ b.float())
    return _steady(machine, calls, expected, out)


def all_reduce(machine: Gpus, m: int, n: int, k: int, forms: Sequence[str]) -> Contest:
    """Product of few rows and all-reduce."""
    from warploom.integrations.torch import distributed as ours
    from warploom.kernels.hopper import gemm_all_reduce

    torch, dist, world, normal = machine.torch, machine.dist, machine.world, _drawn(machine)
    group = dist.group.WORLD.group_name
    a, weight = normal(m, k // world), normal(n, k // world)
    b = weight.mT
    outs = {name: a.new_zeros(m, n) for name in ("warploom", "nccl", "mm", "collective")}

    def nccl() -> Any:
        torch.mm(a, b, out=outs["nccl"])
        dist.all_reduce(outs["nccl"])
        return outs["nccl"]

    calls: dict[str, Call] = {
        "warploom": lambda: ours.matmul_all_reduce(a, b, out=outs["warploom"]), "nccl": nccl,
        "mm": lambda: torch.mm(a, b, out=outs["mm"]), "collective": lambda: dist.all_reduce(outs["collective"]),
    }  # fmt: skip
    if machine.fused:
        shared = _symmetric(machine, (m, n))

        def of_symmetric(reduce: Callable[..., Any]) -> Any:
            torch.mm(a, b, out=shared)
            return reduce(shared, "sum", group)

        calls["torch one-shot"] = lambda: of_symmetric(torch.ops.symm_mem.one_shot_all_reduce)
        calls["torch two-shot"] = lambda: of_symmetric(torch.ops.symm_mem.two_shot_all_reduce_)
    _ours(calls, FORMS, forms, lambda by: ours.matmul_all_reduce(a, b, out=outs["warploom"], by=by))
    expected = a.float() @ b.float()
    dist.all_reduce(expected)
    config = gemm_all_reduce.choose(m, n, k // world, machine.sms(), ranks=world)
    return _steady(machine, calls, expected, outs["warploom"], alike=True, config=config.name())
