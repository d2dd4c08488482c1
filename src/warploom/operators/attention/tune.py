"""`tune_attention(call)`: time configurations of an attention kernel on this GPU, and store the fastest.

The method is that of `operators.tune` for products: random normal arrays, in several sets so that they do not all fit
in L2; every candidate in each round, in random order; medians. The choice is kept on disk and used by later calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import ArgumentError
from ...isa.dtypes import torch_name
from ...kernels.hopper.attention_config import Attention
from ..spec.gpu import HOPPER, Gpu, check_gpu
from ..tune import MOST_SETS, ROTATED_BYTES, ROUNDS, TOP, Tuned, fastest, gpu_to_tune, timed
from .calls import CACHE, attention
from .choice import Call, candidates, chosen
from .decode import attention_decode


def tune_attention(
    call: Call, *, device: int = 0, top: int = TOP, rounds: int = ROUNDS, progress: bool = True,
    timer: Callable[[Call, list[Any], int, int, Callable[[], None]], Any] | None = None, gpu: Gpu | None = None,
) -> Tuned:  # fmt: skip
    """Time the first `top` candidates of a call on a GPU, and keep the fastest.

    Args:
        device: number of the GPU; torch makes the arrays.
        rounds: how often each candidate is timed; the medians count.
        progress: show a bar on stderr.
        timer: (call, configurations, device, rounds, step) -> times and failures, instead of timing on the GPU.
        gpu: the GPU, instead of querying the driver.

    Raises ArgumentError if there is nothing to time, NoGpuError without a GPU.
    """
    where = gpu or gpu_to_tune(device, "`warploom explain --attention BxHxSxD` shows the rule's choice")
    check_gpu(where, "attention's tuning", HOPPER)
    if isinstance(call.of, Attention) and call.of.fp8:
        raise ArgumentError("attention of eight bits is not tuned yet", expected="bf16 or f16", got=call.of.dtype)
    tuned = fastest(
        call, call.describe(), where, chosen(call, where).config, candidates(call)[: max(1, top)], device=device,
        rounds=rounds, progress=progress, timer=timer or time_on_gpu,
    )  # fmt: skip
    CACHE.clear()  # it holds launches of the previous configuration
    return tuned


def time_on_gpu(
    call: Call, configs: list[Any], device: int, rounds: int, step: Callable[[], None]
) -> tuple[dict[Any, float], dict[str, str]]:
    """Return median microseconds by configuration, and the reasons of failures. Needs torch with CUDA."""
    sets = arrays(call, f"cuda:{device}")
    return timed({config: caller(call, config, sets) for config in configs}, len(sets), device, rounds, step)


def arrays(call: Call, device: str, most: int = MOST_SETS) -> list[dict[str, Any]]:
    """Return sets of random arguments, together larger than L2, at most `most` sets."""
    import torch

    of, kind = call.of, getattr(torch, torch_name(call.of.dtype))
    width = of.head_dim + of.value_dim
    size = call.batch * width * of.dtype.bytes * (call.heads * call.queries + call.kv_heads * call.keys)
    found = []
    for _ in range(max(2, min(most, int(ROTATED_BYTES / max(size, 1)) + 1))):

        def normal(heads: int, length: int, columns: int) -> Any:
            return torch.randn((call.batch, heads, length, columns), device=device).to(kind)

        q = normal(call.heads, call.queries, of.head_dim)
        one = {"q": q, "k": normal(call.kv_heads, call.keys, of.head_dim)}
        one |= {"v": normal(call.kv_heads, call.keys, of.value_dim)}
        one |= {"out": q.new_empty((*q.shape[:3], of.value_dim)), "lse": torch.empty(q.shape[:3], device=device)}
        if not isinstance(of, Attention):
            one["lengths"] = torch.full((call.batch,), call.keys, dtype=torch.int32, device=device)
        found.append(one)
    return found


def caller(call: Call, config: Any, sets: list[dict[str, Any]]) -> Callable[[int], Any]:
    """Return a function that computes the n-th set with a configuration."""
    if isinstance(call.of, Attention):
        causal = call.of.window_right
        return lambda at: attention(**sets[at], causal=causal, config=config)
    return lambda at: attention_decode(**sets[at], config=config)


__all__ = ["arrays", "caller", "time_on_gpu", "tune_attention"]
