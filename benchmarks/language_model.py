"""Time a whole `transformers` language model with random weights next to the same model after `warploom.torch.convert`.

    python benchmarks/language_model.py --model Llama-3-8B --layers 32 --prefill 1x8192,16x1024 --decode 1,16,64,256
        [--contenders eager,graph,compiled] [--weights bf16] [--context 128] [--seconds 100] [--out FILE.json]

Prefill is one call with all tokens and no cache that returns the last token's logits. Decode is one more token per
sequence with a static cache of --context slots, 16 of them free. `eager` calls the model, `graph` replays a CUDA graph
of it, `compiled` is torch.compile(mode="max-autotune") of the plain model, and "warploom-compiled" of the converted
one. Contenders take turns in random order; figures are medians of all rounds. The logits of the two models are compared
first. Results are written after each phase; after --seconds no new phase starts.

--weights e4m3: every linear layer but the last has weights and inputs in e4m3 with scales of rows. Both models quantize
inputs by the same kernel of torch.compile; then torch's has `torch._scaled_mm`, and ours `warploom.matmul`. How far the
logits of each are from those of the same weights in bf16 is in the evidence, too.
"""

from __future__ import annotations

import argparse
import copy
import functools
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import warploom
import warploom.torch
from warploom.cli.warm import problems_of
from warploom.collective.epilogue.spec import Fusion
from warploom.errors import ArgumentError, WarploomError
from warploom.lab import catalogue, evidence
from warploom.operators.spec.gpu import gpu_of
from warploom.operators.spec.problem import Problem
from warploom.operators.warm import warm
from warploom.runtime.benchmark.power import driver_version

SUITE = "language-model"
ROUNDS, SLICE_S = 7, 0.25
LARGEST = 448.0
"""Of e4m3."""
ROOM = 16
"""Cache slots that stay free: max-autotune runs some kernels several times, and each run takes a slot."""
CLASSES = {"Llama": "Llama", "Qwen3": "Qwen3", "Qwen2.5": "Qwen2", "Mistral": "Mistral"}
"""Prefix of a catalogue family's classes in `transformers`."""


def build(name: str, layers: int, device: str, positions: int = 16384) -> Any:
    """The model with random weights. Raises ArgumentError if the catalogue does not have it."""
    models = {each.name: each.facts for each in catalogue.load() if "intermediate" in each.facts}  # without experts
    models = {each: facts for each, facts in models.items() if each.startswith(tuple(CLASSES))}
    if name not in models:
        raise ArgumentError("the catalogue has no such model", expected=", ".join(models), got=name)
    import transformers

    facts, family = models[name], next(each for each in CLASSES if name.startswith(each))
    made, kind = (getattr(transformers, CLASSES[family] + each) for each in ("Config", "ForCausalLM"))
    config = made(
        hidden_size=facts["hidden"], intermediate_size=facts["intermediate"], num_hidden_layers=layers,
        num_attention_heads=facts["heads"], num_key_value_heads=facts["kv_heads"], head_dim=facts["head_dim"],
        vocab_size=facts["vocab"], max_position_embeddings=positions, attn_implementation="sdpa",
        tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            model = kind(config)
    finally:
        torch.set_default_dtype(before)
    return model.eval().requires_grad_(False)


def prefill(model: Any, tokens: torch.Tensor) -> Callable[[], torch.Tensor]:
    """A call with all tokens."""
    return lambda: model(input_ids=tokens, use_cache=False, logits_to_keep=1).logits


def decode(model: Any, tokens: torch.Tensor, context: int) -> Callable[[], torch.Tensor]:
    """A call with one more token after `context` - `ROOM` others, whose keys and values are random. The cache is in the
    same state before every call."""
    from transformers import StaticCache

    cache = StaticCache(config=model.config, max_cache_len=context)
    length = context - ROOM
    positions = torch.full(tokens.shape, length, device=tokens.device)
    model(input_ids=tokens, past_key_values=cache, position_ids=positions, logits_to_keep=1)  # makes the arrays

    def counted() -> list[torch.Tensor]:
        found = [getattr(layer, "cumulative_length", None) for layer in cache.layers]
        return [each for each in found if isinstance(each, torch.Tensor)]

    place = torch.tensor([length], device=tokens.device).reshape(())
    more = {} if counted() else {"cache_position": place.reshape(1)}
    for layer in cache.layers:
        layer.keys.normal_(std=0.5)
        layer.values.normal_(std=0.5)

    def call() -> torch.Tensor:
        if places := counted():
            torch._foreach_copy_(places, [place] * len(places))
        return model(input_ids=tokens, past_key_values=cache, position_ids=positions, logits_to_keep=1, **more).logits

    return call


def captured(call: Callable[[], torch.Tensor]) -> Callable[[], None]:
    """The call as a CUDA graph."""
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


def milliseconds(calls: dict[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, dict[str, float]]:
    """Milliseconds of one call of each, medians of slices in random order."""
    draw, times = random.Random(0), {name: [] for name in calls}
    repeats: dict[str, int] = {}
    for round_ in range(rounds + 1):
        for name in draw.sample(list(calls), len(calls)):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            count = repeats.get(name, 2)
            begin.record()
            for _ in range(count):
                calls[name]()
            end.record()
            end.synchronize()
            each = begin.elapsed_time(end) / count
            if round_ == 0:
                repeats[name] = max(1, min(50, int(SLICE_S * 1e3 / each)))
            else:
                times[name].append(each)
    return {name: {"median": round(statistics.median(each), 4), "min": round(min(each), 4), "max": round(max(each), 4)}
            for name, each in times.items()}  # fmt: skip


@functools.cache
def quantizer() -> Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """x (M, K) to e4m3 and scales (M, 1)."""
    torch._dynamo.config.recompile_limit = 64  # one for each view that a layer gives it: beyond that it runs eagerly

    def quantized(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scale = (x.float().abs().amax(-1, keepdim=True) / LARGEST).clamp(min=1e-12)
        return (x.float() / scale).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn), scale

    return torch.compile(quantized, dynamic=True)


class EightBit(torch.nn.Module):
    """A linear layer without a bias, weights and inputs in e4m3 with scales of rows."""

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        weight, scale = warploom.quantize(linear.weight, "row")
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale.reshape(1, -1))
        self.own = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat, weight = x.reshape(-1, x.shape[-1]), self.weight.t()
        q, scale = quantizer()(flat)
        if self.own:
            made = warploom.matmul(q, weight, scale_a=scale, scale_b=self.scale)
        else:
            made = torch._scaled_mm(
                q, weight, scale_a=scale, scale_b=self.scale, out_dtype=torch.bfloat16, use_fast_accum=True
            )
        return made.reshape(*x.shape[:-1], -1)


def to_eight_bits(model: Any) -> None:
    """Make every linear layer but the last an `EightBit`, in place."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is torch.nn.Linear and name != "lm_head":
                setattr(module, name, EightBit(child))


def products(model: Any, rows: Sequence[int]) -> list[Problem]:
    """The products of its eight-bit layers."""
    sizes = {tuple(each.weight.shape) for each in model.modules() if isinstance(each, EightBit)}
    scaled = Fusion(scales="row")
    return [replace(Problem.of(m, n, k, "e4m3"), fusion=scaled) for m in rows for n, k in sorted(sizes)]


def converted(plain: Any) -> Any:
    """A copy of the model that runs this library's kernels."""
    ours = warploom.torch.convert(copy.deepcopy(plain))
    for module in ours.modules():
        if isinstance(module, EightBit):
            module.own = True
    return ours


@torch.no_grad()
def phase(
    plain: Any, ours: Any, what: str, rows: int, length: int, contenders: Sequence[str], compiled: dict[str, Any],
    exact: Any = None,
) -> dict[str, Any]:  # fmt: skip
    """One row of evidence: times of each contender, how far the logits differ, and how far each differ from those of
    `exact`, a third model."""
    device = plain.device
    tokens = torch.randint(0, plain.config.vocab_size, (rows, length if what == "prefill" else 1), device=device)
    make = (
        (lambda model: prefill(model, tokens)) if what == "prefill" else (lambda model: decode(model, tokens, length))
    )
    calls: dict[str, Callable[[], object]] = {}
    failed: dict[str, str] = {}
    results = {}
    for name, model in (("torch", plain), ("warploom", ours)):
        torch.manual_seed(1)
        call = make(model)
        results[name] = call().float()
        if "eager" in contenders:
            calls[f"{name} eager"] = call
        if "graph" in contenders:
            try:
                calls[f"{name} graph"] = captured(call)
            except Exception as error:  # noqa: BLE001 - a model that cannot be captured
                torch.cuda.synchronize()
                failed[f"{name} graph"] = f"{type(error).__name__}: {str(error)[:200]}"
        if "compiled" in contenders:
            try:
                if name not in compiled:
                    compiled[name] = torch.compile(model, mode="max-autotune-no-cudagraphs", dynamic=False)
                call = make(compiled[name])
                for _ in range(2):
                    call()
                calls[f"{name} compiled"] = call
                if "graph" in contenders:
                    calls[f"{name} compiled graph"] = captured(call)
            except Exception as error:  # noqa: BLE001
                torch.cuda.synchronize()
                failed[f"{name} compiled"] = f"{type(error).__name__}: {str(error)[:200]}"
    made = {"phase": what, "rows": rows, "tokens": length, "difference": away(results["torch"], results["warploom"])}
    if exact is not None:
        torch.manual_seed(1)
        logits = make(exact)().float()
        made["from_bf16"] = {name: away(logits, each) for name, each in results.items()}
    return {**made, "failed": failed, "ms": milliseconds(calls)}


def away(logits: torch.Tensor, others: torch.Tensor) -> float:
    """The largest difference, in terms of the largest logit."""
    return float((logits - others).abs().max() / logits.abs().max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="Llama-3-8B")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--prefill", default="1x8192,16x1024")
    parser.add_argument("--decode", default="1,16,64,256")
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--contenders", default="eager,graph")
    parser.add_argument("--weights", default="bf16", choices=("bf16", "e4m3"))
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    begun, gpu = time.monotonic(), gpu_of(0)
    phases = [("decode", int(each), options.context) for each in options.decode.split(",") if each]
    phases += [("prefill", *map(int, each.split("x"))) for each in options.prefill.split(",") if each]
    rows = sorted({count * (length if what == "prefill" else 1) for what, count, length in phases})
    plain = build(options.model, options.layers, "cuda")
    asked = problems_of(options.model, ",".join(map(str, rows)), "bf16", "", 1, True)
    exact = None
    if options.weights == "e4m3":
        exact = copy.deepcopy(plain)
        to_eight_bits(plain)
        asked = products(plain, rows)
    found = warm(asked, gpu, progress=False)
    print(f"{found.kernels} kernels built, {time.monotonic() - begun:.0f} s", flush=True)
    ours = converted(plain)
    print(f"models made, {time.monotonic() - begun:.0f} s", flush=True)
    head = {**evidence.header(SUITE, gpu=torch.cuda.get_device_name(), driver=driver_version()),
            "protocol": "interleaved", "model": options.model, "layers": options.layers,
            "weights": f"random, {options.weights}",
            "transformers": __import__("transformers").__version__, "fused": warploom.torch.fused(ours)}  # fmt: skip
    head["fused"] = {name: list(what) for name, what in head["fused"].items() if ".1." in name or "." not in name}
    told: list[dict[str, Any]] = []
    compiled: dict[str, Any] = {}
    for what, count, length in phases:
        if time.monotonic() - begun > options.seconds:
            print(f"the time is over before {what} {count}x{length}")
            break
        row = phase(plain, ours, what, count, length, options.contenders.split(","), compiled, exact)
        told.append(row)
        print(f"{what} {count}x{length}: " + ", ".join(f"{n} {t['median']:.3f} ms" for n, t in row["ms"].items())
              + f", difference {row['difference']:.4f} {row['failed'] or ''}", flush=True)  # fmt: skip
        if options.out is not None:
            evidence.write(options.out, head, told)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    try:
        main()
    except (WarploomError, OSError) as failure:
        sys.exit(f"{type(failure).__name__}: {failure}")
