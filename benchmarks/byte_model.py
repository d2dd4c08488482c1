"""A decoder-only language model of bytes, trained for a while on Python's standard library: real queries and keys.

Plain torch, like Llama: root mean squares, rotary positions, gated linear units. Every machine with Python has the
text, and each sixteenth file is held out.
"""

from __future__ import annotations

import math
import sysconfig
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

BYTES = 256
HELD_OUT = 16
"""One of as many files is not trained on."""
RATE, WARM_UP, LEAST_RATE = 1e-3, 0.03, 0.1
"""Learning rate; the share of the time in which it rises; the share of it that is left at the end."""
Texts = tuple[torch.Tensor, torch.Tensor]
"""(to train on, held out), each (bytes,) uint8."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a model.

    Attributes:
        length: tokens of a text, in training as in measurements.
        batch: texts of a training step.
    """

    head_dim: int = 128
    heads: int = 8
    layers: int = 8
    length: int = 4096
    batch: int = 4

    @property
    def width(self) -> int:
        return self.heads * self.head_dim


@dataclass(frozen=True)
class Learned:
    """What a training did: steps, and the loss in nats for each byte of the first and last steps, and held out."""

    steps: int
    first_loss: float
    last_loss: float
    held_out_loss: float


def texts() -> Texts:
    """The standard library's sources, in order of their names; packages that users install are left out."""
    parts: tuple[list[bytes], list[bytes]] = [], []
    root = Path(sysconfig.get_paths()["stdlib"])
    files = (path for path in root.rglob("*.py") if "-packages" not in str(path.relative_to(root)))
    for number, path in enumerate(sorted(files)):
        parts[number % HELD_OUT == 0].append(path.read_bytes())
    train, held_out = (torch.frombuffer(bytearray(b"".join(part)), dtype=torch.uint8) for part in parts)
    return train, held_out


class Attention(nn.Module):
    """Causal attention with rotary positions. `seen` receives (q, k, v), each (B, H, S, D), as SDPA takes them."""

    seen: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None] | None = None

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.into = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        q, k, v = self.into(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = (turned(each, angles).to(v.dtype) for each in (q, k))
        if self.seen is not None:
            self.seen(q, k, v)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(o.transpose(1, 2).flatten(2))


def turned(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """x (B, H, S, D) with rotary positions; angles: (S, D / 2)."""
    a, b = x.float().chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


class Block(nn.Module):
    """Attention, then a gated linear unit, each added to the residual stream."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(shape.width, eps=1e-5) for _ in range(2))
        self.attention = Attention(shape)
        self.up = nn.Linear(shape.width, 6 * shape.width, bias=False)
        self.down = nn.Linear(3 * shape.width, shape.width, bias=False)

    def forward(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norms[0](x), angles)
        gate, value = self.up(self.norms[1](x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * value)


class Model(nn.Module):
    """Logits (B, S, 256) of the next byte."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedded = nn.Embedding(BYTES, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=1e-5)
        self.logits = nn.Linear(shape.width, BYTES, bias=False)
        for each in self.parameters():
            if each.ndim == 2:
                nn.init.normal_(each, std=0.02)
        for block in self.blocks:
            for last in (block.attention.out, block.down):
                nn.init.normal_(last.weight, std=0.02 / math.sqrt(2 * shape.layers))

    def forward(self, tokens: torch.Tensor) -> Any:
        half = self.shape.head_dim // 2
        rates = 10000.0 ** -(torch.arange(half, device=tokens.device) / half)
        angles = torch.arange(tokens.shape[1], device=tokens.device)[:, None] * rates
        x = self.embedded(tokens)
        for block in self.blocks:
            x = block(x, angles)
        return self.logits(self.norm(x))


def loss(model: Model, drawn: torch.Tensor) -> torch.Tensor:
    """Mean nats for each byte. drawn: (B, S + 1)."""
    tokens = drawn.long()
    with torch.autocast(drawn.device.type, torch.bfloat16):
        logits = model(tokens[:, :-1])
    return F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())


def draw(text: torch.Tensor, shape: Shape, generator: torch.Generator) -> torch.Tensor:
    """Texts from random places, (B, S + 1)."""
    begins = torch.randint(len(text) - shape.length, (shape.batch, 1), generator=generator)
    places = begins + torch.arange(shape.length + 1)
    return text[places.to(text.device)]


@torch.enable_grad()
def trained(
    shape: Shape, of: Texts, seconds: float, device: str = "cuda", told: Callable[[str], object] = print
) -> tuple[Model, Learned]:  # fmt: skip
    """A model that was trained for some seconds. told: called every second or so with the progress."""
    torch.manual_seed(0)
    train, held_out = (each.to(device) for each in of)
    model = Model(shape).to(device)
    adam = torch.optim.AdamW(model.parameters(), RATE, (0.9, 0.95), weight_decay=0.1, fused=device == "cuda")
    generator, losses, begun, said = torch.Generator().manual_seed(0), [], time.perf_counter(), 0.0
    while (share := (time.perf_counter() - begun) / seconds) < 1:
        falling = LEAST_RATE + (1 - LEAST_RATE) * (1 + math.cos(math.pi * share)) / 2
        adam.param_groups[0]["lr"] = RATE * min(share / WARM_UP, 1.0) * falling
        found = loss(model, draw(train, shape, generator))
        adam.zero_grad()
        found.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        losses.append(found.item())  # waits for the GPU, so that the time is that of the steps
        if time.perf_counter() - said > 1:
            said = time.perf_counter()
            told(f"step {len(losses)}, loss {losses[-1]:.3f}")
    with torch.no_grad():
        after = float(loss(model, draw(held_out, shape, generator)))
    few = max(1, len(losses) // 20)
    return model, Learned(len(losses), losses[0], sum(losses[-few:]) / few, after)


@torch.no_grad()
def captured(model: Model, text: torch.Tensor, count: int) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Contiguous q, k and v in bf16 of every layer, on `count` texts that lie evenly in `text` (bytes,)."""
    shape, found = model.shape, []
    begins = torch.linspace(0, len(text) - shape.length - 1, count).long()[:, None]
    drawn = text[begins + torch.arange(shape.length + 1)].to(next(model.parameters()).device)
    for block in model.blocks:
        block.attention.seen = lambda *each: found.append(tuple(x.bfloat16().contiguous() for x in each))
    loss(model, drawn)
    for block in model.blocks:
        block.attention.seen = None
    return found  # type: ignore[return-value]
