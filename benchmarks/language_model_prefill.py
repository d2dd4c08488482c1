"""Time the prefill of a `transformers` language model with random weights next to all ways that torch has.

    python -m benchmarks.language_model_prefill [--model Llama-3-8B] [--layers 4] [--tokens 16384] [--out FILE.json]

"torch" is the model as `transformers` makes it, "torch flash" and "torch cudnn" call FlashAttention-2 and cuDNN
themselves, causal and without a mask; "compiled" is torch.compile(mode="max-autotune") of these.
`transformers` makes a mask of all scores while torch.compile traces, with which no fast backend works, so it is not
compiled as it is. "warploom" is the model after `warploom.torch.convert`, compiled without that mask, too. Layers are
alike; the embedding and the last token's logits are computed once. Contenders take turns in random order. The row is
written before each compilation and after it. Each contender has the attention kernels that torch's profiler names.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import warploom.torch
from benchmarks.language_model import build, milliseconds, prefill
from warploom.errors import WarploomError
from warploom.lab import evidence
from warploom.operators.spec.gpu import gpu_of
from warploom.runtime.benchmark.power import driver_version

SUITE = "language-model-prefill"
WORDS = ("attention", "flash", "fmha", "sdpa", "cudnn")
"""Parts of the names of attention kernels."""
Call = Callable[[], torch.Tensor]


def flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    """Causal attention by torch's FlashAttention-2. Shapes (B, H, S, D), (B, G, S, D)."""
    out: torch.Tensor = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True, False, scale=scale)[0]
    return out


def cudnn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    """Causal attention by cuDNN. Shapes (B, H, S, D), (B, G, S, D)."""
    found = torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, False, 0.0, True, False, scale=scale)
    out: torch.Tensor = found[0]
    return out


BACKENDS = {"cudnn": cudnn, "flash": flash}


def make_no_mask(attention: str) -> None:
    """Let `transformers` make no mask for models with an attention of that name."""
    import transformers

    transformers.AttentionMaskInterface.register(attention, lambda **_: None)


def without_mask(model: Any, attend: Callable[..., torch.Tensor]) -> Any:
    """The same model with the same weights, whose layers call `attend`, and which makes no mask."""
    import transformers

    def layer(
        module: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any, scaling: float, **_: Any
    ) -> tuple[torch.Tensor, None]:
        return attend(q, k, v, scaling).transpose(1, 2).contiguous(), None

    name = f"without mask {id(attend)}"  # a name with "flash" would be looked for among packages
    transformers.AttentionInterface.register(name, layer)
    make_no_mask(name)
    weights = (*model.parameters(), *model.buffers())
    other = copy.deepcopy(model, {id(each): each for each in weights})
    other.set_attn_implementation(name)
    return other


def attention_kernels(call: Call) -> list[str]:
    """Names of the attention kernels of a call."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    names = {event.name for event in profile.events() if "CUDA" in str(event.device_type)}
    return sorted(name[:100] for name in names if any(word in name.lower() for word in WORDS))


class Comparison:
    """Contenders, their differences to the model's logits, and a row of evidence."""

    def __init__(self, options: argparse.Namespace, head: dict[str, Any], wanted: torch.Tensor) -> None:
        self.options, self.head, self.wanted = options, head, wanted
        self.calls: dict[str, Call] = {}
        self.facts: dict[str, dict[str, Any]] = {}
        self.failed: dict[str, str] = {}

    def add(self, name: str, call: Call) -> None:
        """Run a contender twice; if it fails, it is left out and the reason kept."""
        begun = time.monotonic()
        try:
            call()
            found = call().float()
        except Exception as error:  # noqa: BLE001 - a backend, or a compilation, that fails
            self.failed[name] = f"{type(error).__name__}: {str(error)[:200]}"
            print(f"{name}: {self.failed[name]}", flush=True)
            return
        off = float((found - self.wanted).abs().max() / self.wanted.abs().max())
        self.facts[name] = {"difference": off, "first_calls_s": round(time.monotonic() - begun, 1)}
        if torch.cuda.is_available():
            self.facts[name]["kernels"] = attention_kernels(call)
        self.calls[name] = call
        print(f"{name}: {self.facts[name]}", flush=True)

    def measure(self) -> None:
        """Time all contenders, and write the row."""
        row = {"phase": "prefill", "rows": 1, "tokens": self.options.tokens, "layers": self.options.layers,
               "failed": self.failed, "facts": self.facts, "ms": milliseconds(self.calls)}  # fmt: skip
        print(", ".join(f"{name} {each['median']:.3f} ms" for name, each in row["ms"].items()), flush=True)
        if self.options.out is not None:
            evidence.write(self.options.out, self.head, [row])


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="Llama-3-8B")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--seconds", type=float, default=100.0, help="after which nothing more is compiled")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    evidence.check_place(options.out)
    gpu_of(0)  # refuses a machine without a GPU
    begun = time.monotonic()
    plain = build(options.model, options.layers, "cuda", options.tokens)
    ours = warploom.torch.convert(copy.deepcopy(plain))
    others = {name: without_mask(plain, attend) for name, attend in BACKENDS.items()}
    head = {**evidence.header(SUITE, gpu=torch.cuda.get_device_name(), driver=driver_version()),
            "protocol": "interleaved", "model": options.model, "layers": options.layers, "weights": "random, bf16",
            "transformers": __import__("transformers").__version__}  # fmt: skip
    print(f"models made, {time.monotonic() - begun:.0f} s", flush=True)
    tokens = torch.randint(0, plain.config.vocab_size, (1, options.tokens), device="cuda")
    call = prefill(plain, tokens)
    compared = Comparison(options, head, call().float())
    compared.add("torch", call)
    compared.add("warploom", prefill(ours, tokens))
    for name, other in others.items():
        compared.add(f"torch {name}", prefill(other, tokens))
    compared.measure()
    make_no_mask(ours.config._attn_implementation)
    for name, other in {"warploom": ours, "torch cudnn": others["cudnn"], "torch flash": others["flash"]}.items():
        if time.monotonic() - begun > options.seconds:
            print(f"the time is over before {name} is compiled")
            break
        compiled = torch.compile(other, mode="max-autotune", dynamic=False)
        compared.add(f"{name} compiled", prefill(compiled, tokens))
        compared.measure()


if __name__ == "__main__":
    try:
        main()
    except (WarploomError, OSError) as failure:
        sys.exit(f"{type(failure).__name__}: {failure}")
