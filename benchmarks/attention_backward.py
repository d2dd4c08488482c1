"""Time gradients of attention next to cuDNN through autograd's scaled_dot_product_attention.

    python -m benchmarks.attention_backward [--out FILE] [--only WORDS] [--seconds 0.5] [--budget S]
    python -m benchmarks.attention_backward --candidates --seconds 0.15

FLOP are 2.5 times those of the forward pass, regardless of recomputation. --candidates times other configurations
(`backward_candidates`), each after a comparison with float64. All kernels are built by several processes before
anything is timed. cuDNN has no windows, and no gradients of heads wider than 128.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import warploom
from benchmarks.attention_session import Row, Session, Suite, fits
from warploom.kernels.hopper import attention_backward, attention_backward_sums
from warploom.kernels.hopper.attention_backward_config import backward_config, values_config
from warploom.lab import evidence
from warploom.lab.attention_contenders import subject
from warploom.lab.attention_operands import AttentionOperands, make
from warploom.lab.attention_problem import ForwardProblem
from warploom.lab.recipe import recipe
from warploom.operators.attention.backward import CHOSEN, BackwardChoice
from warploom.operators.attention.gradients import gradients

SUITE = (
    *(ForwardProblem(d, n, causal) for d in (128, 64) for n in (4096, 16384) for causal in (False, True)),
    *(ForwardProblem(d, 16384, True, window=(1024, 0)) for d in (128, 64)),
    *(
        ForwardProblem(d, 4096, causal, value_dim=e)
        for d, e in ((96, 0), (192, 128), (256, 0))
        for causal in (False, True)
    ),
)
OF_FORWARD = 2.5
MOST_COLUMNS = 320
"""Most columns of dK and dV together that a thread's registers hold."""
MOST_ERROR = 1e-2
"""Results with a larger relative error are not timed."""
Call = Callable[[], tuple[torch.Tensor, ...]]


def backward_candidates(case: ForwardProblem) -> dict[str, BackwardChoice]:
    """Configurations of the kernel, by name."""
    first = backward_config(subject(case))
    unordered = replace(first, deterministic=False)
    found = {"five": BackwardChoice(first), "five, any order": BackwardChoice(unordered)}
    for section in (1, 4, 8, 16) if case.head_dim in (64, 128) and not case.window else ():
        found[f"five, {section} together"] = BackwardChoice(first, section)
        found[f"five, {section} together, any order"] = BackwardChoice(unordered, section)
    others: dict[str, dict[str, Any]]
    if case.head_dim > 128:
        parts = first.parts(subject(case))
        once = {"ds_stages": 1, "parts_per_add": parts}
        whole = {"tile_m": 32, "parts_per_add": parts, "compute_dv": True}
        others = {"one addition": once, "one addition, any order": once | {"deterministic": False}}
        others |= {"one dS": {"ds_stages": 1}, "one stage": {"stages": 1}, "32 queries": {"tile_m": 32}}
        others |= {"32 queries, one addition": once | {"tile_m": 32}, "one stage, one addition": once | {"stages": 1}}
        others |= {f"one kernel, {n} stages": whole | {"stages": n} for n in (2, 3)}
        others |= {"one kernel, one dS": whole | {"stages": 3, "ds_stages": 1}}
        others |= {"one kernel, early dV": whole | {"stages": 3, "dv_overlaps_ds": True}}
    elif case.head_dim > 64:
        early = {"ds_stages": 2, "dv_overlaps_ds": True}
        others = {"two dS": {"ds_stages": 2}, "64 queries, early dV": {"tile_m": 64, **early}}
    else:
        others = {"one dS": {"ds_stages": 1}, "96 queries": {"tile_m": 96}, "64 queries": {"tile_m": 64}}
        others |= {"96 queries, early dV": {"tile_m": 96, "dv_overlaps_ds": True}}
        others |= {"64 queries, 4 stages": {"tile_m": 64, "stages": 4}}
    for name, fields in others.items():
        found[f"five, {name}"] = BackwardChoice(replace(first, **fields))
    return {name: each for name, each in found.items() if each.config.fits(subject(case)) and builds(case, each)}


def builds(case: ForwardProblem, choice: BackwardChoice) -> bool:
    """True if registers hold what the kernel adds up: both gradients of a key only in narrow enough heads."""
    of = subject(case)
    return not (choice.config.compute_dv and choice.config.compute_dk_dq) or of.depth + of.columns <= MOST_COLUMNS


def build(case: ForwardProblem, candidates: bool) -> None:
    """Build the choice of a case, or its candidates, into the cache."""
    of = subject(case)
    configs = {each.config for each in backward_candidates(case).values()} if candidates else {backward_config(of)}
    for config in configs:
        attention_backward_sums.build_convert(of, config).resources()
        for each in (config, values_config(config)):
            if each is not None:
                attention_backward.build(of, each).resources()


def ours(
    case: ForwardProblem, made: AttentionOperands, grad: torch.Tensor, choice: BackwardChoice | str = CHOSEN
) -> Call:  # fmt: skip
    tensors = {"q": made.q, "k": made.k, "v": made.v}
    seen: dict[str, Any] = {"causal": case.causal, "window": case.window}
    out, lse = warploom.attention(**tensors, return_lse=True, **seen)

    def call() -> tuple[torch.Tensor, ...]:
        found = gradients(tensors, out, lse, grad, layout="bhsd", choice=choice, scale=None, softcap=None, **seen)
        return found.dq, found.dk, found.dv

    return call


def cudnns(case: ForwardProblem, made: AttentionOperands, grad: torch.Tensor) -> Call:
    tensors = [each.detach().requires_grad_() for each in (made.q, made.k, made.v)]
    with torch.enable_grad(), sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
        out = F.scaled_dot_product_attention(*tensors, is_causal=case.causal)
    return lambda: torch.autograd.grad(out, tensors, grad, retain_graph=True)


def exact(case: ForwardProblem, made: AttentionOperands, grad: torch.Tensor) -> list[torch.Tensor]:
    """dQ, dK, dV of the first head in float64, without autograd's copies."""
    q, k, v, g = (x[0, 0].double() for x in (made.q, made.k, made.v, grad))
    p = q @ k.T / math.sqrt(case.head_dim)
    if case.causal:
        p.masked_fill_(torch.ones_like(p, dtype=torch.bool).triu_(1), -math.inf)
    if case.window:
        p.masked_fill_(torch.ones_like(p, dtype=torch.bool).tril_(-case.window[0] - 1), -math.inf)
    p = torch.softmax(p, -1)
    dv, dp = p.T @ g, g @ v.T
    dp -= (dp * p).sum(-1, keepdim=True)
    p *= dp / math.sqrt(case.head_dim)
    return [p @ k, p.T @ q, dv]


def error(found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> float:
    """The largest of the three relative errors."""
    return max(float((x[0, 0].double() - y).norm() / y.norm()) for x, y in zip(found, wanted, strict=True))


def measure(case: ForwardProblem, session: Session) -> Iterator[Row]:
    """Measure the rows of one case."""
    (made,) = make(case, 1)
    grad = torch.randn_like(made.q[..., :1].expand(*made.q.shape[:3], case.columns).contiguous())
    calls: dict[str, Call] = {"warploom": ours(case, made, grad)}
    if case.head_dim <= 128 and not case.window:
        calls["cudnn"] = cudnns(case, made, grad)
    if session.asked.candidates:
        calls |= {name: ours(case, made, grad, choice) for name, choice in backward_candidates(case).items()}
    wanted = exact(case, made, grad)
    errors, same = {}, {}
    for name, call in calls.items():
        session.watchdog.beat(f"{case.name}: {name}", 60)
        first = call()
        errors[name] = error(first, wanted)
        same[name] = all(torch.equal(a, b) for a, b in zip(first, call(), strict=True))
    del wanted
    for name in [name for name in calls if not errors[name] < MOST_ERROR]:
        print(f"    {name}: wrong, relative error {errors[name]:.2e}", flush=True)
        del calls[name]
    spreads = session.sample(case, calls)
    for name in calls:
        more: dict[str, Any] = {"relative_error": errors[name]}
        if name != "cudnn":
            more |= {"same_in_every_run": same[name]}
        if name == "warploom":
            more |= {"kernel": "attention_backward", **facts(case)}
        yield session.row(case, name, "alone", spreads, more, OF_FORWARD)


def told(rows: Sequence[Row]) -> str:
    """A summary of a case: one line, or with candidates one for each."""
    lines = []
    for row in rows:
        speed = f"{row['tflops']['median']:.0f} ({row['ratio_to'].get('cudnn', 0):.3f} of cuDNN)"
        same = f" same {row['same_in_every_run']}" if "same_in_every_run" in row else ""
        lines.append(f"{row['case']:32} {row['provider']:32} {speed} err {row['relative_error']:.2e}{same}")
    return "\n".join(lines)


def facts(case: ForwardProblem) -> dict[str, Any]:
    """The configuration of the kernel of all gradients."""
    of, builder = subject(case), attention_backward.build
    return evidence.facts(builder(of), recipe(builder, of))


def main(words: Sequence[str]) -> int:
    suite = Suite("attention-backward", __doc__, SUITE, fits, measure, told)
    parser = suite.parser()
    parser.add_argument("--candidates", action="store_true", help="what may become the choice, beside it")
    asked = parser.parse_args(words)

    def prepare(cases: Sequence[ForwardProblem]) -> None:
        with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
            list(pool.map(partial(build, candidates=asked.candidates), cases))

    return suite.run(asked, prepare)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
