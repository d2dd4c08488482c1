"""Time gradients of attention: our three launches next to cuDNN through autograd's scaled_dot_product_attention.

    python -m benchmarks.attention_backward [--out FILE] [--only WORDS] [--seconds 0.5] [--budget S]

FLOP are 2.5 times those of the forward pass, regardless of recomputation.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import warploom
from benchmarks.attention_session import Row, Session, Suite, fits
from warploom.kernels.hopper import attention_backward_keys
from warploom.lab import evidence
from warploom.lab.attention_contenders import subject
from warploom.lab.attention_operands import AttentionOperands, make
from warploom.lab.attention_problem import ForwardProblem
from warploom.lab.recipe import recipe
from warploom.operators.attention.gradients import gradients

SUITE = tuple(ForwardProblem(d, n, causal) for d in (128, 64) for n in (4096, 16384) for causal in (False, True))
OF_FORWARD = 2.5
Call = Callable[[], tuple[torch.Tensor, ...]]


def ours(case: ForwardProblem, made: AttentionOperands, grad: torch.Tensor) -> Call:
    tensors = {"q": made.q, "k": made.k, "v": made.v}
    out, lse = warploom.attention(**tensors, causal=case.causal, return_lse=True)

    def call() -> tuple[torch.Tensor, ...]:
        options = {"causal": case.causal, "scale": None, "softcap": None, "window": None}
        found = gradients(tensors, out, lse, grad, layout="bhsd", **options)
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
    grad = torch.randn_like(made.q)
    calls: dict[str, Call] = {"warploom": ours(case, made, grad), "cudnn": cudnns(case, made, grad)}
    wanted = exact(case, made, grad)
    errors = {name: error(call(), wanted) for name, call in calls.items()}
    del wanted
    again = all(torch.equal(a, b) for a, b in zip(calls["warploom"](), calls["warploom"](), strict=True))
    spreads = session.sample(case, calls)
    for name in calls:
        more: dict[str, Any] = {"relative_error": errors[name]}
        if name == "warploom":
            more |= {"kernel": "attention_backward_keys", "same_in_every_run": again, **facts(case)}
        yield session.row(case, name, "alone", spreads, more, OF_FORWARD)


def told(rows: Sequence[Row]) -> str:
    """A summary line of a case."""
    ours, theirs = rows
    speeds = (
        f"ours {ours['tflops']['median']:.0f} ({ours['ratio_to']['cudnn']:.3f}) cudnn {theirs['tflops']['median']:.0f}"
    )
    off = f"err {ours['relative_error']:.2e} ({theirs['relative_error']:.2e}) same {ours['same_in_every_run']}"
    return f"{ours['case']:24} {speeds} {off}"


def facts(case: ForwardProblem) -> dict[str, Any]:
    """The configuration of the dK, dV kernel; the dQ kernel is built with the same arguments."""
    of, builder = subject(case), attention_backward_keys.build
    return evidence.facts(builder(of), recipe(builder, of))


def main(words: Sequence[str]) -> int:
    suite = Suite("attention-backward", __doc__, SUITE, fits, measure, told)
    return suite.run(suite.parser().parse_args(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
