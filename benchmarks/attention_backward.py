"""Gradients of attention beside cuDNN's: our three launches against autograd's of scaled_dot_product_attention.

    python -m benchmarks.attention_backward [--out FILE] [--seconds 0.5] [--budget S]

FLOP are 2.5 times those of the forward pass, however often something is computed anew.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import warploom
from benchmarks.attention import Case, Tensors, make, subject
from warploom.kernels.hopper import attention_backward_keys
from warploom.lab import evidence
from warploom.lab.recipe import recipe
from warploom.operators.attention.gradients import gradients
from warploom.runtime.benchmark import protocols
from warploom.runtime.benchmark.gpu import Gpu
from warploom.runtime.benchmark.power import PowerMeter, driver_version
from warploom.runtime.benchmark.watchdog import Watchdog

SUITE = tuple(Case(d, n, causal) for d in (128, 64) for n in (4096, 16384) for causal in (False, True))
Call = Callable[[], tuple[torch.Tensor, ...]]


def ours(case: Case, made: Tensors, grad: torch.Tensor) -> Call:
    q, k, v = (made[name] for name in "qkv")
    out, lse = warploom.attention(q, k, v, causal=case.causal, return_lse=True)

    def call() -> tuple[torch.Tensor, ...]:
        found = gradients(
            {"q": q, "k": k, "v": v}, out, lse, grad, causal=case.causal, scale=None, window=None, layout="bhsd"
        )  # fmt: skip
        return found.dq, found.dk, found.dv

    return call


def cudnns(case: Case, made: Tensors, grad: torch.Tensor) -> Call:
    tensors = [made[name].detach().requires_grad_() for name in "qkv"]
    with torch.enable_grad(), sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
        out = F.scaled_dot_product_attention(*tensors, is_causal=case.causal)
    return lambda: torch.autograd.grad(out, tensors, grad, retain_graph=True)


def exact(case: Case, made: Tensors, grad: torch.Tensor) -> list[torch.Tensor]:
    """dQ, dK, dV of the first head, in float64, without autograd's copies."""
    q, k, v, g = (x[0, 0].double() for x in (made["q"], made["k"], made["v"], grad))
    p = q @ k.T / math.sqrt(case.head_dim)
    if case.causal:
        p.masked_fill_(torch.ones_like(p, dtype=torch.bool).triu_(1), -math.inf)
    p = torch.softmax(p, -1)
    dv, dp = p.T @ g, g @ v.T
    dp -= (dp * p).sum(-1, keepdim=True)
    p *= dp / math.sqrt(case.head_dim)
    return [p @ k, p.T @ q, dv]


def error(found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> float:
    """The largest of the three relative errors."""
    return max(float((x[0, 0].double() - y).norm() / y.norm()) for x, y in zip(found, wanted, strict=True))


def measure(case: Case, gpu: Gpu, watchdog: Watchdog, seconds: float) -> list[dict[str, Any]]:
    """The rows of one case."""
    watchdog.beat(case.name, 60)
    made = make(case)
    grad = torch.randn_like(made["q"])
    calls: dict[str, Call] = {"warploom": ours(case, made, grad), "cudnn": cudnns(case, made, grad)}
    wanted = exact(case, made, grad)
    errors = {name: error(call(), wanted) for name, call in calls.items()}
    del wanted
    again = all(torch.equal(a, b) for a, b in zip(calls["warploom"](), calls["warploom"](), strict=True))
    spreads = protocols.sample("alone", calls, 2 * seconds, gpu.timer, watch=lambda who, _: watchdog.beat(who))
    flops, rows = 2.5 * case.flops, []
    for name, spread in spreads.items():
        row = {
            "case": case.name, "head_dim": case.head_dim, "length": case.length, "causal": case.causal,
            "dtype": case.dtype, "provider": name, "protocol": "alone",
            "us": spread.as_dict(lambda s: s * 1e6, 2), "tflops": spread.as_dict(lambda s: flops / s / 1e12, 1),
            "ratio_to": {"cudnn": round(spreads["cudnn"].median / spread.median, 4)},
            "relative_error": errors[name],
        }  # fmt: skip
        if name == "warploom":
            row |= {"kernel": "attention_backward_keys", "same_in_every_run": again, **facts(case)}
        rows.append(row)
    speeds = [row["tflops"]["median"] for row in rows]
    print(f"{case.name:24} ours {speeds[0]:.0f} ({rows[0]['ratio_to']['cudnn']:.3f}) cudnn {speeds[1]:.0f}", end=" ")
    print(f"err {errors['warploom']:.2e} ({errors['cudnn']:.2e}) same {again}", flush=True)
    return rows


def facts(case: Case) -> dict[str, Any]:
    """Of the kernel for dK and dV; the one for dQ is built with the same arguments."""
    of, builder = subject(case), attention_backward_keys.build
    return evidence.facts(builder(of), recipe(builder, of))


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attention_backward")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--seconds", type=float, default=0.5, help="of a block")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no case is begun")
    asked = parser.parse_args(words)
    evidence.check_place(asked.out)
    torch.set_grad_enabled(False)
    gpu = Gpu(0, 20.0)
    rows: list[dict[str, Any]] = []
    head, begun = evidence.header("attention-backward", gpu=gpu.name, driver=driver_version()), gpu.timer.now()

    def keep(who: str = "") -> None:
        print(f"HANG {who}" if who else "", end="\n" if who else "", flush=True)
        if asked.out is not None:
            evidence.write(asked.out, {**head, **meter.header()}, rows)

    with PowerMeter(gpu.uuid) as meter, Watchdog(keep) as watchdog:
        for case in SUITE:
            if gpu.timer.now() - begun > asked.budget:
                print(f"left out: {case.name}", flush=True)
                continue
            rows += measure(case, gpu, watchdog, asked.seconds)
            keep()
            torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
