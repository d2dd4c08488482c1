"""Further products that communicate, for `benchmarks.tensor_parallel`: 8-bit operands, and experts on several GPUs.

8-bit operands have per-tensor scales; NCCL has an all-gather of bytes and torch._scaled_mm, or the latter and a
reduce-scatter of bf16. Experts: NCCL's side knows the routing beforehand, ours does not. NCCL's side sends rows in the
order of their experts with all_to_all_single, multiplies with torch._grouped_mm, sends results back the same way, and
computes the weighted sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

TOLERANCE = 0.03
KINDS = ("all-gather-e4m3", "reduce-scatter-e4m3", "experts")
EXPERTS = [(4096, 768, 2048, 128, 8), (4096, 14336, 4096, 8, 2), (1024, 2048, 7168, 256, 8), (64, 2048, 7168, 256, 8)]
"""Tokens per GPU, N, K, total experts, experts per token."""
Calls = dict[str, Callable[[], Any]]


def cases(shapes: list[tuple[int, int, int]]) -> list[tuple[Any, ...]]:
    """Kind and sizes of each case."""
    return [*((kind, *shape) for shape in shapes for kind in KINDS[:2]), *(("experts", *sizes) for sizes in EXPERTS)]


def calls(
    kind: str, sizes: tuple[int, ...], rank: int, world: int, device: Any, forms: Sequence[str] = ()
) -> tuple[Calls, Any]:
    """What is timed, and the expected result of all but "mm" and "collective". forms: our forms other than the default;
    those of the all-gather do not return A."""
    place = (*sizes, rank, world, device)
    if kind == "experts":
        return experts(*place)
    return gather(*place, forms) if kind == "all-gather-e4m3" else scatter(*place)


def _drawn(rank: int, device: Any) -> Callable[..., Any]:
    import torch

    generator = torch.Generator(device).manual_seed(rank + 1)

    def normal(*shape: int, dtype: Any = torch.float8_e4m3fn) -> Any:
        return torch.randn(shape, device=device, dtype=torch.bfloat16, generator=generator).to(dtype)

    return normal


def gather(m: int, n: int, k: int, rank: int, world: int, device: Any, forms: Sequence[str] = ()) -> tuple[Calls, Any]:
    """All-gather and product."""
    import torch
    import torch.distributed as dist

    from warploom.integrations.torch import distributed as ours
    from warploom.integrations.torch import peer_launch
    from warploom.integrations.torch.peer_epilogue import PeerEpilogue
    from warploom.settings import GATHERS

    normal, group = _drawn(rank, device), dist.group.WORLD.group_name
    a, b = normal(m // world, k), normal(n // world, k).mT
    one = torch.tensor([0.5], device=device)
    whole = torch.empty(m, k, device=device, dtype=a.dtype)

    def product() -> Any:
        return torch._scaled_mm(whole, b, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)

    def collective() -> Any:
        dist.all_gather_into_tensor(whole.view(torch.uint8), a.view(torch.uint8))

    def fused(of: Any) -> Any:
        return of(a, [b], one, [one], 0, group, [None], [None], [torch.bfloat16], [True])[1][0]

    def by(form: str) -> Any:
        return peer_launch.all_gather_matmul(peer_launch.ranks_of(None), a, b, end=end, by=form)

    end = PeerEpilogue(one, one, out_dtype=torch.bfloat16)
    collective()
    return {
        "warploom": lambda: fused(ours.fused_all_gather_scaled_matmul), "nccl": lambda: (collective(), product())[1],
        "torch fused": lambda: fused(torch.ops.symm_mem.fused_all_gather_scaled_matmul), "mm": product,
        "collective": collective,
        **{f"warploom {form}": lambda form=form: by(form) for form in GATHERS if form in forms},  # type: ignore[misc]
    }, whole.float() @ b.float() * 0.25  # fmt: skip


def scatter(m: int, n: int, k: int, rank: int, world: int, device: Any) -> tuple[Calls, Any]:
    """Product and reduce-scatter."""
    import torch
    import torch.distributed as dist

    from warploom.integrations.torch import distributed as ours

    normal, group = _drawn(rank, device), dist.group.WORLD.group_name
    a, b = normal(m, k // world), normal(n, k // world).mT
    one = torch.tensor([0.5], device=device)
    part = torch.empty(m, n, device=device, dtype=torch.bfloat16)
    out = torch.empty(m // world, n, device=device, dtype=torch.bfloat16)

    def product() -> Any:
        return torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16, use_fast_accum=True, out=part)

    def collective() -> Any:
        dist.reduce_scatter_tensor(out, part)
        return out

    def fused(of: Any) -> Any:
        return of(a, b, one, one, "sum", 0, 0, group, [m, n], None, None, torch.bfloat16, True)

    expected = torch.empty(m // world, n, device=device)
    dist.reduce_scatter_tensor(expected, a.float() @ b.float() * 0.25)
    return {
        "warploom": lambda: fused(ours.fused_scaled_matmul_reduce_scatter),
        "nccl": lambda: (product(), collective())[1],
        "torch fused": lambda: fused(torch.ops.symm_mem.fused_scaled_matmul_reduce_scatter), "mm": product,
        "collective": collective,
    }, expected  # fmt: skip


def experts(
    tokens: int, n: int, k: int, count: int, topk: int, rank: int, world: int, device: Any
) -> tuple[Calls, Any]:
    """Rows to experts, products, rows back, sums."""
    import torch
    import torch.distributed as dist

    from warploom.integrations.torch import distributed as ours

    normal, local = _drawn(rank, device), count // world
    x, w = normal(tokens, k, dtype=torch.bfloat16), normal(local, n, k, dtype=torch.bfloat16) / k**0.5
    scores = torch.randn(tokens, count, device=device, generator=torch.Generator(device).manual_seed(rank + 1))
    weights, chosen = scores.softmax(1).topk(topk, 1)
    weights, chosen = weights.contiguous(), chosen.int().contiguous()
    order = chosen.flatten().argsort(stable=True)
    sent = torch.bincount(chosen.flatten(), minlength=count)
    everyone = [torch.empty_like(sent) for _ in range(world)]
    dist.all_gather(everyone, sent)
    mine = torch.stack(everyone)[:, rank * local : (rank + 1) * local]  # from each rank, of each expert here
    out_splits, in_splits = mine.sum(1).tolist(), sent.view(world, local).sum(1).tolist()
    of_row = torch.cat([torch.arange(local, device=device).repeat_interleave(each) for each in mine])
    by_expert, ends = of_row.argsort(stable=True), mine.sum(0).cumsum(0).int()
    back = by_expert.argsort()

    def there(rows: Any) -> Any:
        came = rows.new_empty(sum(out_splits), rows.shape[1])
        dist.all_to_all_single(came, rows, out_splits, in_splits)
        return came

    def product(came: Any) -> Any:
        return torch._grouped_mm(came[by_expert], w.mT, offs=ends)[back]

    def home(done: Any) -> Any:
        rows = done.new_empty(sum(in_splits), done.shape[1])
        dist.all_to_all_single(rows, done, in_splits, out_splits)
        placed = torch.empty_like(rows)
        placed[order] = rows
        return torch.einsum("tjn,tj->tn", placed.view(tokens, topk, n).float(), weights).to(x.dtype)

    rows = x[order // topk]
    came = there(rows)
    done = product(came)
    every = [torch.empty_like(w) for _ in range(world)]
    dist.all_gather(every, w)
    whole, expected = torch.cat(every), torch.zeros(tokens, n, device=device)
    for expert in range(count):
        token, number = (chosen == expert).nonzero(as_tuple=True)
        expected[token] += weights[token, number, None] * (x[token].float() @ whole[expert].float().mT)
    del whole, every
    return {
        "warploom": lambda: ours.experts_matmul(x, chosen, weights, w),
        "nccl": lambda: home(product(there(x[order // topk]))),
        "mm": lambda: product(came), "collective": lambda: (there(rows), home(done)),
    }, expected  # fmt: skip
