"""Time small `transformers` Llama models, where the host is the limit, before and after `warploom.torch.convert`.

    python benchmarks/eager_model.py [--models 4x2048,8x4096] [--batches 1,16] [--caches dynamic,static]
        [--prefill 2048] [--compiled] [--seconds 150] [--out FILE.json]

Models are LAYERSxHIDDEN with random bf16 weights. A decoding step is one token for each sequence; its time is the wall
clock of `STEPS` steps in a row, each with the previous one's most probable token, divided by their number. "host" is
the same until the last step has been enqueued. Contenders take turns; figures are medians. Each continues after a
prompt of `PROMPT` tokens from round to round, so that every step has a cache of a length that is new.
`--compiled` adds `generate` with a static cache and torch.compile(mode="reduce-overhead"). "launches" are the kernels
of one step, "operators" the host and GPU microseconds of each operator in it (torch.profiler). In "torch, no cuDNN",
SDPA may not use cuDNN, which prepares each new length of a cache for milliseconds.

"error" is the distance of the logits from those of the model in f32, of torch's and of ours, over the same tokens.
"""

from __future__ import annotations

import argparse
import copy
import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

import warploom.torch
from warploom.lab import evidence
from warploom.runtime.benchmark.power import driver_version

SUITE = "eager-model"
PROMPT, STEPS, ROUNDS, MOST_OPERATORS = 128, 48, 5, 30
SIZES = {2048: (16, 8, 5632, 32000), 4096: (32, 8, 14336, 32000)}
"""Heads, key heads, intermediate size and vocabulary by hidden size: the proportions of TinyLlama and Llama-3-8B."""


def build(layers: int, hidden: int, device: str, dtype: torch.dtype = torch.bfloat16) -> Any:
    """A Llama with random weights."""
    import transformers

    heads, groups, intermediate, words = SIZES.get(hidden, (hidden // 64, hidden // 128, 2 * hidden, 512))
    config = transformers.LlamaConfig(
        hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=groups, vocab_size=words, max_position_embeddings=4096, attn_implementation="sdpa",
        tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device(device):
        return transformers.LlamaForCausalLM(config).to(dtype).eval().requires_grad_(False)


class Decoding:
    """A model with a cache after a prompt."""

    def __init__(self, model: Any, prompt: torch.Tensor, cache: str) -> None:
        from transformers import DynamicCache, StaticCache

        kind = {"dynamic": DynamicCache, "static": StaticCache}[cache]
        more = {} if cache == "dynamic" else {"max_cache_len": prompt.shape[1] + STEPS * (ROUNDS + 2)}
        self.model, self.cache = model, kind(config=model.config, **more)
        self.tokens = self._step(prompt)

    def _step(self, tokens: torch.Tensor) -> torch.Tensor:
        found = self.model(input_ids=tokens, past_key_values=self.cache, logits_to_keep=1)
        self.logits = found.logits
        return self.logits[:, -1:].argmax(-1)

    def steps(self, count: int, given: torch.Tensor | None = None) -> list[torch.Tensor]:
        """Decode some tokens, or those that are given, (B, count). Returns the logits."""
        said = []
        for at in range(count):
            self.tokens = self._step(self.tokens if given is None else given[:, at : at + 1])
            said.append(self.logits)
        return said


def spent(call: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds until a call has returned, and until the GPU has finished."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    returned = time.perf_counter()
    torch.cuda.synchronize()
    return (returned - start) * 1e3, (time.perf_counter() - start) * 1e3


def alternating(calls: dict[str, Callable[[], object]], per: int, rounds: int = ROUNDS) -> dict[str, Any]:
    """Milliseconds of one of `per` parts of each call; medians of alternating rounds, after one that is not timed."""
    draw, times = random.Random(0), {name: [] for name in calls}
    for round_ in range(rounds + 1):
        for name in draw.sample(list(calls), len(calls)):
            both = [each / per for each in spent(calls[name])]
            if round_:
                times[name].append(both)
    found = {}
    for name, both in times.items():
        host, whole = ([each[at] for each in both] for at in (0, 1))
        found[name] = {"median": round(statistics.median(whole), 4), "min": round(min(whole), 4),
                       "max": round(max(whole), 4), "host": round(statistics.median(host), 4)}  # fmt: skip
    return found


def operators(call: Callable[[], object]) -> dict[str, Any]:
    """The kernels that a call launches, and its operators with host and GPU microseconds."""
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        call()
        torch.cuda.synchronize()
    averages = seen.key_averages()
    kernels = [each for each in averages if str(each.device_type).endswith("CUDA")]
    listed = sorted(averages, key=lambda each: -(each.self_cpu_time_total + each.self_device_time_total))
    return {
        "launches": sum(each.count for each in kernels),
        "operators": [
            [each.key[:80], each.count, round(each.self_cpu_time_total, 1), round(each.self_device_time_total, 1)]
            for each in listed[:MOST_OPERATORS]
        ],
    }


def errors(models: dict[str, Any], exact: Any, prompt: torch.Tensor, cache: str) -> dict[str, float]:
    """Distances of logits from the f32 model's, relative to their size, and the share of equal tokens."""
    steps = 8
    given = torch.randint(0, exact.config.vocab_size, (prompt.shape[0], steps), device=prompt.device)

    def logits(model: Any) -> torch.Tensor:
        return torch.cat(Decoding(model, prompt, cache).steps(steps, given), 1).double()

    wanted = logits(exact)
    said = {name: logits(model) for name, model in models.items()}
    found = {name: float((each - wanted).norm() / wanted.norm()) for name, each in said.items()}
    first, second = said.values()
    return {**found, "equal tokens": float((first.argmax(-1) == second.argmax(-1)).double().mean())}


@torch.no_grad()
def decoding(models: dict[str, Any], exact: Any, batch: int, cache: str) -> dict[str, Any]:
    """One row of evidence: a decoding step."""
    device = exact.device
    prompt = torch.randint(0, exact.config.vocab_size, (batch, PROMPT), device=device)
    differ = errors(models, exact, prompt, cache)
    decoders = {name: Decoding(model, prompt, cache) for name, model in models.items()}
    plain = Decoding(models["torch"], prompt, cache)

    def without_cudnn() -> None:
        torch.backends.cuda.enable_cudnn_sdp(False)
        plain.steps(STEPS)
        torch.backends.cuda.enable_cudnn_sdp(True)

    calls = {name: partial(each.steps, STEPS) for name, each in decoders.items()}
    times = alternating({**calls, "torch, no cuDNN": without_cudnn}, STEPS)
    inside = {name: operators(partial(each.steps, 1)) for name, each in decoders.items()}
    return {"phase": "decode", "cache": cache, "rows": batch, "error": differ, "ms": times, **{
        key: {name: each[key] for name, each in inside.items()} for key in ("launches", "operators")
    }}  # fmt: skip


@torch.no_grad()
def prefill(models: dict[str, Any], tokens: int) -> dict[str, Any]:
    """One row of evidence: a prompt."""
    some = next(iter(models.values()))
    prompt = torch.randint(0, some.config.vocab_size, (1, tokens), device=some.device)

    def call(model: Any) -> None:
        for _ in range(4):
            model(input_ids=prompt, use_cache=False, logits_to_keep=1)

    times = alternating({name: partial(call, model) for name, model in models.items()}, 4)
    return {"phase": "prefill", "rows": 1, "tokens": tokens, "ms": times}


@torch.no_grad()
def compiled(models: dict[str, Any], batch: int) -> dict[str, Any]:
    """One row of evidence: `generate` with a static cache, each step in a CUDA graph of torch.compile."""
    from transformers import CompileConfig

    some = next(iter(models.values()))
    prompt = torch.randint(0, some.config.vocab_size, (batch, PROMPT), device=some.device)
    how = {"cache_implementation": "static", "compile_config": CompileConfig(mode="reduce-overhead"),
           "do_sample": False, "attention_mask": torch.ones_like(prompt)}  # fmt: skip
    calls, failed = {}, {}
    for name, model in models.items():

        def call(model: Any = model) -> object:
            return model.generate(prompt, max_new_tokens=STEPS, min_new_tokens=STEPS, **how)

        try:
            for _ in range(3):
                call()
            calls[name] = call
        except Exception as error:  # noqa: BLE001 - of a compiler
            failed[name] = f"{type(error).__name__}: {str(error)[:300]}"
    return {"phase": "generate, reduce-overhead", "cache": "static", "rows": batch, "failed": failed,
            "ms": alternating(calls, STEPS, 3)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="4x2048,8x4096")
    parser.add_argument("--batches", default="1,16")
    parser.add_argument("--caches", default="dynamic,static")
    parser.add_argument("--prefill", type=int, default=2048)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    begun, told = time.monotonic(), []
    head = {**evidence.header(SUITE, gpu=torch.cuda.get_device_name(), driver=driver_version()),
            "protocol": "alternating", "weights": "random, bf16", "prompt": PROMPT, "steps": STEPS,
            "transformers": __import__("transformers").__version__}  # fmt: skip
    for name in options.models.split(","):
        layers, hidden = map(int, name.split("x"))
        plain = build(layers, hidden, options.device)
        models = {"torch": plain, "warploom": warploom.torch.convert(copy.deepcopy(plain))}
        exact = copy.deepcopy(plain).float()
        batches = [int(each) for each in options.batches.split(",")]
        phases = [partial(decoding, models, exact, batch, cache)
                  for cache in options.caches.split(",") for batch in batches]  # fmt: skip
        phases += [partial(prefill, models, options.prefill)] * bool(options.prefill)
        phases += [partial(compiled, models, batches[0])] * options.compiled
        for phase in phases:
            if time.monotonic() - begun > options.seconds:
                print("the time is over", flush=True)
                break
            row = {"model": name, **phase()}
            told.append(row)
            shown = {key: row.get(key) for key in ("error", "launches", "failed") if row.get(key)}
            print(*(str(row.get(key, "")) for key in ("model", "phase", "cache", "rows")), row["ms"], shown,
                  f"{time.monotonic() - begun:.0f} s", flush=True)  # fmt: skip
            if options.out is not None:
                evidence.write(options.out, head, told)


if __name__ == "__main__":
    main()
