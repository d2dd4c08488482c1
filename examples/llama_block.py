"""One transformer block of Llama-3-8B's shape in PyTorch, with `warploom.torch.convert`, against plain PyTorch.

Idea       A model gets faster without being rewritten: `convert` makes every nn.Linear multiply with this library. Both
           models have the same random weights and input; the results must agree within the rounding of bf16.
Shapes     hidden 4096, 32 heads of 128, 8 key-value heads, feed-forward 14336, as in the 8B model
Runs       prefill (many tokens at once) and decode (one new token for each sequence), eager and as CUDA graphs

    python examples/llama_block.py                     on a GPU: the real shape; without one: 1/32 of it, emulated
    python examples/llama_block.py --sequences 16 --prompt 2048 --out llama-block.json
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

import warploom.torch
from warploom.lab import evidence

F = nn.functional


@dataclass(frozen=True)
class Shape:
    """Sizes of a block."""

    hidden: int = 4096
    heads: int = 32
    groups: int = 8
    """Key-value heads."""
    inner: int = 14336
    """Width of the feed-forward part."""

    @property
    def head(self) -> int:
        """Elements per head."""
        return self.hidden // self.heads


LLAMA_3_8B = Shape()
SMALL = Shape(hidden=128, heads=4, groups=1, inner=448)
"""1/32 of the shape, for the emulator."""


class Block(nn.Module):
    """Attention with a cache of keys and values, and the gated feed-forward part, each after a norm."""

    def __init__(self, shape: Shape, sequences: int, length: int) -> None:
        super().__init__()
        self.shape = shape
        head, kv = shape.head, shape.groups * shape.head
        self.norm, self.norm_inner = nn.RMSNorm(shape.hidden, eps=1e-5), nn.RMSNorm(shape.hidden, eps=1e-5)
        self.query = nn.Linear(shape.hidden, shape.hidden, bias=False)
        self.key, self.value = nn.Linear(shape.hidden, kv, bias=False), nn.Linear(shape.hidden, kv, bias=False)
        self.project = nn.Linear(shape.hidden, shape.hidden, bias=False)
        self.gate, self.up = (nn.Linear(shape.hidden, shape.inner, bias=False) for _ in range(2))
        self.down = nn.Linear(shape.inner, shape.hidden, bias=False)
        angles = torch.outer(torch.arange(length), 500000.0 ** (-torch.arange(0, head, 2) / head))
        self.register_buffer("cos", angles.cos().repeat(1, 2))
        self.register_buffer("sin", angles.sin().repeat(1, 2))
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(sequences, shape.groups, length, head))

    def forward(self, x: Tensor, position: int) -> Tensor:
        """x: (sequences, tokens, hidden), the tokens starting at `position`."""
        x = x + self.attend(self.norm(x), position)
        y = self.norm_inner(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))

    def attend(self, x: Tensor, position: int) -> Tensor:
        """Causal attention, up to each token's own position."""
        sequences, tokens, hidden = x.shape
        end, shape = position + tokens, self.shape
        query, key, value = (
            layer(x).view(sequences, tokens, -1, shape.head).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        self.keys[:, :, position:end] = self.turned(key, position, end)
        self.values[:, :, position:end] = value
        mixed = F.scaled_dot_product_attention(
            self.turned(query, position, end), self.keys[:, :, :end], self.values[:, :, :end],
            is_causal=tokens > 1, enable_gqa=True,
        )  # fmt: skip
        return self.project(mixed.transpose(1, 2).reshape(sequences, tokens, hidden))

    def turned(self, x: Tensor, position: int, end: int) -> Tensor:
        """Rotary embedding."""
        low, high = x.chunk(2, dim=-1)
        return x * self.cos[position:end] + torch.cat([-high, low], -1) * self.sin[position:end]


WINDOWS = 5


def per_second(calls: dict[str, Callable[[], object]], tokens: int, device: torch.device) -> dict[str, float]:
    """Tokens per second of each, the median of alternating windows, because the first to run finds a cooler GPU."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    repeats = 20 if device.type == "cuda" else 1
    for _ in range(WINDOWS if device.type == "cuda" else 1):
        for name, call in calls.items():
            synchronize(device)
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            synchronize(device)
            times[name].append((time.perf_counter() - start) / repeats)
    return {name: tokens / statistics.median(each) for name, each in times.items()}


def synchronize(device: torch.device) -> None:
    """Wait for a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def captured(call: Callable[[], Tensor]) -> Callable[[], None]:
    """The call as a CUDA graph; it has run before, so its kernels are loaded."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def compare(plain: Block, ours: Block, x: Tensor, position: int) -> float:
    """The largest difference, relative to the largest element. Raises AssertionError above the rounding of bf16."""
    expected, found = plain(x, position).float(), ours(x, position).float()
    difference = ((expected - found).abs().max() / expected.abs().max()).item()
    assert difference < 2.0**-6, f"the two models differ by {difference:.4f} of the largest element"
    return difference


@torch.no_grad()
def run(shape: Shape, sequences: int, prompt: int, device: torch.device) -> dict[str, dict[str, float]]:
    """Both models through prefill and decode: tokens per second, and how far they differ."""
    torch.manual_seed(0)
    plain = Block(shape, sequences, prompt + 1).to(device, torch.bfloat16).eval()
    ours = warploom.torch.convert(copy.deepcopy(plain))
    print(f"converted: {', '.join(warploom.torch.converted(ours))}")
    found: dict[str, dict[str, float]] = {}
    for phase, tokens, position in (("prefill", prompt, 0), ("decode", 1, prompt)):
        x = torch.randn(sequences, tokens, shape.hidden, device=device).bfloat16()
        row = {"difference": compare(plain, ours, x, position)}
        calls: dict[str, Callable[[], object]] = {}
        for name, model in (("torch", plain), ("warploom", ours)):
            calls[f"{name} eager"] = partial(model, x, position)
            if device.type == "cuda":
                calls[f"{name} graph"] = captured(partial(model, x, position))
        found[phase] = row | per_second(calls, sequences * tokens, device)
    return found


def main() -> None:
    """Read the arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    on_gpu = torch.cuda.is_available()
    parser.add_argument("--sequences", type=int, default=16 if on_gpu else 2)
    parser.add_argument("--prompt", type=int, default=1024 if on_gpu else 12, help="tokens of each sequence")
    parser.add_argument("--out", type=Path, help="write the figures as an evidence file")
    options = parser.parse_args()
    device = torch.device("cuda" if on_gpu else "cpu")
    shape = LLAMA_3_8B if on_gpu else SMALL
    where = torch.cuda.get_device_name() if on_gpu else "the CPU, emulated: its speed says nothing"
    print(f"{shape}\n{options.sequences} sequences of {options.prompt} tokens, bf16, on {where}")
    found = run(shape, options.sequences, options.prompt, device)
    for phase, row in found.items():
        print(f"{phase}: the models differ by {row['difference']:.5f} of the largest element")
        for name, rate in row.items():
            if name != "difference":
                print(f"  {name:16} {rate:14,.0f} tokens/s")
    if options.out is not None:
        head = evidence.header("llama-block", gpu=torch.cuda.get_device_name() if on_gpu else "")
        sizes = asdict(shape) | {"sequences": options.sequences, "prompt": options.prompt}
        rows = [{"phase": phase, **sizes, **{name.replace(" ", "_"): rate for name, rate in row.items()}}
                for phase, row in found.items()]  # fmt: skip
        evidence.write(options.out, head, rows)


if __name__ == "__main__":
    main()
