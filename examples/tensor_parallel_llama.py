"""Layers of a Llama split over the GPUs of one host: PyTorch with NCCL, and products that communicate themselves.

Idea       In a tensor-parallel layer each GPU has some heads and some columns of the feed-forward part, and the results
           of the last product of each part are summed over the GPUs. The plan is torch's; only the styles are ours,
           whose products send their partial sums themselves:

               plan = {"layers.*.mlp.down_proj": RowwiseParallel(), ...}        torch's, or warploom.torch.distributed's

Model      `transformers`' Llama if installed, else layers with the same parts and names; random weights
Runs       prefill (one long sequence) and decode (one token of each of many sequences, without a cache, so that mainly
           the layers' products are timed), as CUDA graphs unless --eager; results of both models must agree

    python examples/tensor_parallel_llama.py                                   one GPU; without one, a small shape
    torchrun --nproc-per-node 2 examples/tensor_parallel_llama.py --out llama-2.json

The first run builds the kernels, one after the other. Runs of one layer and one phase each, at the same time, build
them in parallel: `--layers 1 --decode ""`, `--layers 1 --prefill 0 --decode 16`, ... A rank that makes no progress for
`--patience` seconds prints where it is and ends.
"""

from __future__ import annotations

import argparse
import copy
import faulthandler
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import warploom.torch
from warploom.torch import distributed

F = nn.functional
LLAMA_3_70B = {"hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64, "num_key_value_heads": 8}
SMALL = {"hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 8, "num_key_value_heads": 4}
COLUMNS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
ROWS = ("self_attn.o_proj", "mlp.down_proj")
WORSE = 1.05
"""How much farther than the plain model ours may be from a model in f32."""
COMPARED = 512
"""Tokens of a sequence that are compared: in f32, attention is not fused and needs memory for all scores."""
WINDOWS, REPEATS = 7, 5
BEGAN = time.perf_counter()


class Attention(nn.Module):
    """Causal attention without positional encoding; the projections determine the number of heads."""

    def __init__(self, shape: dict[str, int]) -> None:
        super().__init__()
        self.head = shape["hidden_size"] // shape["num_attention_heads"]
        hidden, narrow = shape["hidden_size"], shape["num_key_value_heads"] * self.head
        self.q_proj, self.o_proj = (nn.Linear(hidden, hidden, bias=False) for _ in range(2))
        self.k_proj, self.v_proj = (nn.Linear(hidden, narrow, bias=False) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            layer(x).unflatten(-1, (-1, self.head)).transpose(1, 2) for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=x.shape[1] > 1, enable_gqa=True)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """The gated feed-forward part."""

    def __init__(self, shape: dict[str, int]) -> None:
        super().__init__()
        hidden, inner = shape["hidden_size"], shape["intermediate_size"]
        self.gate_proj, self.up_proj = (nn.Linear(hidden, inner, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Attention and the feed-forward part, each after a norm."""

    def __init__(self, shape: dict[str, int]) -> None:
        super().__init__()
        self.self_attn, self.mlp = Attention(shape), FeedForward(shape)
        self.input_layernorm, self.post_attention_layernorm = (nn.RMSNorm(shape["hidden_size"]) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Layers(nn.Module):
    """A stack of layers on embedded tokens."""

    def __init__(self, shape: dict[str, int], count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(shape) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def build(shape: dict[str, int], count: int, own: bool) -> tuple[nn.Module, Callable[[nn.Module, Tensor], Tensor], str]:
    """The model, a function that calls it with embedded tokens, and its origin."""
    torch.manual_seed(0)
    if not own:
        try:
            from transformers import LlamaConfig, LlamaModel
        except ImportError:
            pass
        else:
            config = LlamaConfig(**shape, num_hidden_layers=count, vocab_size=32, attn_implementation="sdpa")
            return LlamaModel(config), lambda model, x: model(inputs_embeds=x, use_cache=False)[0], "transformers"
    return Layers(shape, count), lambda model, x: model(x), "this file"


def split(model: nn.Module, columns: type, rows: type) -> nn.Module:
    """Split the layers of a model over all ranks, with the styles of torch or of this library."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import parallelize_module

    mesh = init_device_mesh("cuda" if torch.cuda.is_available() else "cpu", (dist.get_world_size(),))
    plan: dict[str, Any] = {f"layers.*.{name}": columns() for name in COLUMNS}
    plan |= {f"layers.*.{name}": rows() for name in ROWS}
    return parallelize_module(model, mesh, plan)


def models(model: nn.Module, ranks: int) -> dict[str, nn.Module]:
    """The plain model and ours, on one GPU or split."""
    ours = warploom.torch.convert(copy.deepcopy(model))
    if ranks == 1:
        return {"plain": model, "warploom": ours}
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

    return {
        "plain": split(model, ColwiseParallel, RowwiseParallel),
        "warploom": split(ours, distributed.ColwiseParallel, distributed.RowwiseParallel),
    }


def progress(what: str, patience_s: float) -> None:
    """Say what begins, with the seconds since the start; one of several ranks has `patience_s` for it."""
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        faulthandler.dump_traceback_later(patience_s, exit=True)
    if int(os.environ.get("RANK", 0)) == 0:
        print(f"{time.perf_counter() - BEGAN:6.1f} s: {what}", flush=True)


def captured(call: Callable[[], Tensor], eager: bool) -> Callable[[], object]:
    """A call as a CUDA graph; unchanged with --eager and on a CPU."""
    if eager or not torch.cuda.is_available():
        return call
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        call()
    return graph.replay


def seconds(calls: dict[str, Callable[[], object]], ranks: int) -> dict[str, float]:
    """Seconds per call of each: medians of alternating windows, of the slowest rank."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    on_gpu = torch.cuda.is_available()
    repeats = REPEATS if on_gpu else 1
    for _ in range(WINDOWS if on_gpu else 1):
        for name, call in calls.items():
            if ranks > 1:
                dist.barrier()
            wait()
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            wait()
            spent = torch.tensor((time.perf_counter() - start) / repeats, device="cuda" if on_gpu else "cpu")
            if ranks > 1:
                dist.all_reduce(spent, op=dist.ReduceOp.MAX)
            times[name].append(float(spent))
    return {name: statistics.median(each) for name, each in times.items()}


def wait() -> None:
    """Wait for the GPU, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def inputs(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Embedded tokens of a phase, the same on all ranks."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(like.device, like.dtype)


def in_float(model: nn.Module, call: Any, phases: list[tuple[str, tuple[int, ...]]]) -> list[Tensor]:
    """The f32 model's results for the first tokens of each phase, which do not depend on later tokens."""
    like, exact = next(iter(model.parameters())), copy.deepcopy(model).float()
    with torch.no_grad():
        return [call(exact, inputs(size, like)[:, :COMPARED].float()) for _, size in phases]


def phase(
    name: str, shape: tuple[int, ...], both: dict[str, nn.Module], call: Any, right: Tensor, ranks: int,
    eager: bool = False, patience_s: float = 300,
) -> dict[str, Any]:  # fmt: skip
    """One phase: check that ours is no farther from `right` than the plain model, then measure tokens per second of
    each."""
    x = inputs(shape, next(iter(both["warploom"].parameters())))
    away = {}
    with torch.no_grad():
        for which, each in both.items():
            progress(f"{name}: first call of {which}", patience_s)
            found = call(each, x)
            found = found.full_tensor() if hasattr(found, "full_tensor") else found
            away[which] = float((found[:, :COMPARED].float() - right).norm() / right.norm())
        assert away["warploom"] <= WORSE * away["plain"], f"{name}: errors against f32 are {away}"
        ready = {}
        for which, each in both.items():
            progress(f"{name}: graph of {which}", patience_s)
            ready[which] = captured(lambda each=each: call(each, x), eager)  # type: ignore[misc]
        progress(f"{name}: times", patience_s)
        times = seconds(ready, ranks)
    tokens = shape[0] * shape[1]
    return {"phase": name, "tokens": tokens, "error_against_f32": away,
            "ms": {key: 1e3 * each for key, each in times.items()},
            "tokens_per_second": {key: tokens / each for key, each in times.items()}}  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--prefill", type=int, default=2048, help="tokens; 0: no such phase")
    parser.add_argument("--decode", default="16,64", help="sequences of each such phase; empty: none")
    parser.add_argument("--own", action="store_true", help="the layers of this file, with transformers installed too")
    parser.add_argument("--eager", action="store_true", help="no CUDA graphs")
    parser.add_argument("--patience", type=float, default=300, help="seconds")
    parser.add_argument("--out", default="")
    options = parser.parse_args(arguments)
    ranks, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    progress("process group", options.patience)
    if ranks > 1:
        dist.init_process_group(*(("nccl",) if on_gpu else ("gloo",)), **({"device_id": device} if on_gpu else {}))
    shape = LLAMA_3_70B if on_gpu else SMALL
    progress("model", options.patience)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with device:
            model, call, whose = build(shape, options.layers if on_gpu else 1, options.own)
    finally:
        torch.set_default_dtype(before)
    prefill, hidden = options.prefill if on_gpu else min(options.prefill, 8), shape["hidden_size"]
    phases: list[tuple[str, tuple[int, ...]]] = [("prefill", (1, prefill, hidden))] if prefill else []
    phases += [(f"decode {count}", (int(count), 1, hidden)) for count in options.decode.split(",") if count]
    progress("model in f32", options.patience)
    exact = in_float(model.eval().requires_grad_(False), call, phases)
    progress("splitting", options.patience)
    both, rows = models(model, ranks), []
    for (name, size), right in zip(phases, exact, strict=True):
        rows.append(phase(name, size, both, call, right, ranks, options.eager, options.patience))
        if rank == 0:
            speeds = ", ".join(f"{key} {value:,.0f}" for key, value in rows[-1]["tokens_per_second"].items())
            errors = ", ".join(f"{value:.4f}" for value in rows[-1]["error_against_f32"].values())
            print(f"{ranks} x {device.type}, {name}: tokens/s {speeds}; errors {errors}", flush=True)
    progress("check", options.patience)
    if ranks > 1 and on_gpu:
        distributed.check()
    if rank == 0 and options.out:
        gpu, program = torch.cuda.get_device_name() if on_gpu else "cpu", "examples/tensor_parallel_llama.py"
        found = {"suite": "tensor-parallel-llama", "gpu": gpu, "ranks": ranks, "model": whose, "shape": shape,
                 "layers": options.layers, "eager": options.eager, "date": time.strftime("%Y-%m-%d"),
                 "command": program, "versions": {"torch": torch.__version__}, "rows": rows}  # fmt: skip
        Path(options.out).write_text(json.dumps(found, indent=1) + "\n")
    faulthandler.cancel_dump_traceback_later()
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
