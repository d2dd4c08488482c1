"""Time our gradients of packed sequences, of a function of scores and of a softcap next to those of plain attention.

    python -m benchmarks.attention_gradients [--out FILE] [--only WORDS] [--seconds 0.3] [--budget S] [--candidates]

The packed sequences are the batch of the plain case, so all three have the same FLOP, counted as in
`attention_backward`. The function subtracts a multiple of the distance between query and key from each score.
--candidates times other tiles of queries, too.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

import warploom
from benchmarks.attention_backward import OF_FORWARD, Call, error
from benchmarks.attention_backward import ours as plain
from benchmarks.attention_session import Row, Session, Suite, fits
from warploom.kernels.hopper.attention_backward_config import BackwardConfig
from warploom.lab.attention_operands import AttentionOperands, make
from warploom.lab.attention_problem import ForwardProblem
from warploom.operators.attention.backward import CHOSEN, BackwardChoice
from warploom.operators.attention.gradients import gradients, varlen_gradients

SUITE = tuple(ForwardProblem(128, n, causal) for n in (4096, 16384) for causal in (False, True))
SLOPE = 2.0**-10
SOFTCAP = 30.0


def distance(score: Any, batch: Any, head: Any, query: Any, key: Any) -> Any:
    """The function of scores."""
    return score - SLOPE * (query - key)


def of_scores(
    case: ForwardProblem, made: AttentionOperands, grad: torch.Tensor, tile: int = 0, softcap: float | None = None
) -> Call:  # fmt: skip
    """tile: queries per tile, if not those of the choice. softcap: instead of the function of scores."""
    tensors = {"q": made.q, "k": made.k, "v": made.v}
    given: dict[str, Any] = {"causal": case.causal, "score_mod": None if softcap else distance, "softcap": softcap}
    out, lse = warploom.attention(**tensors, return_lse=True, **given)
    choice = BackwardChoice(BackwardConfig(tile, ds_stages=1)) if tile else CHOSEN

    def call() -> tuple[torch.Tensor, ...]:
        found = gradients(tensors, out, lse, grad, scale=None, window=None, layout="bhsd", choice=choice, **given)
        return found.dq, found.dk, found.dv

    return call


def of_sequences(case: ForwardProblem, made: AttentionOperands, grad: torch.Tensor) -> Call:
    """Return the gradients in the layout of the plain case."""
    batch, _, length, _ = made.q.shape

    def rows(array: torch.Tensor) -> torch.Tensor:
        return array.transpose(1, 2).reshape(batch * length, *array.shape[1::2]).contiguous()

    ends = torch.arange(batch + 1, device=made.q.device, dtype=torch.int32) * length
    tensors = {name: rows(array) for name, array in (("q", made.q), ("k", made.k), ("v", made.v))}
    tensors |= {"cu_seqlens_q": ends, "cu_seqlens_k": ends}
    out, lse = warploom.attention_varlen(**tensors, causal=case.causal, return_lse=True)
    of_rows = rows(grad)

    def call() -> tuple[torch.Tensor, ...]:
        found = varlen_gradients(tensors, out, lse, of_rows, causal=case.causal, scale=None, softcap=None, window=None)
        each = (found.dq, found.dk, found.dv)
        return tuple(x.view(batch, length, *x.shape[1:]).transpose(1, 2) for x in each)

    return call


WAYS: dict[str, Callable[[ForwardProblem, AttentionOperands, torch.Tensor], Call]] = {
    "warploom": plain, "warploom varlen": of_sequences, "warploom score_mod": of_scores,
    "warploom softcap": partial(of_scores, softcap=SOFTCAP),
}  # fmt: skip
CANDIDATES = {f"warploom score_mod, {tile} queries": partial(of_scores, tile=tile) for tile in (32, 48, 80)}


def exact(case: ForwardProblem, made: AttentionOperands, grad: torch.Tensor, name: str) -> list[torch.Tensor]:
    """dQ, dK, dV of the first head in float64, for one of `WAYS`."""
    slope, cap = SLOPE if "score_mod" in name else 0.0, SOFTCAP if "softcap" in name else None
    q, k, v, g = (x[0, 0].double() for x in (made.q, made.k, made.v, grad))
    p = q @ k.T / math.sqrt(case.head_dim)
    at = torch.arange(len(q), device=q.device)
    p -= slope * (at[:, None] - at[None, :])
    slopes = 1.0 - torch.tanh(p / cap) ** 2 if cap else 1.0
    if cap:
        p = cap * torch.tanh(p / cap)
    if case.causal:
        p.masked_fill_(at[None, :] > at[:, None], -math.inf)
    p = torch.softmax(p, -1)
    dv, dp = p.T @ g, g @ v.T
    dp -= (dp * p).sum(-1, keepdim=True)
    p *= slopes * dp / math.sqrt(case.head_dim)
    return [p @ k, p.T @ q, dv]


def measure(case: ForwardProblem, session: Session) -> Iterator[Row]:
    """Measure the rows of one case."""
    (made,) = make(case, 1)
    grad = torch.randn_like(made.q)
    ways = WAYS | (CANDIDATES if session.asked.candidates else {})
    calls = {name: way(case, made, grad) for name, way in ways.items()}
    errors = {}
    for name, call in calls.items():
        session.watchdog.beat(f"{case.name}: {name}", 60)
        errors[name] = error(call(), exact(case, made, grad, name))
    spreads = session.sample(case, calls)
    for name in calls:
        more = {"relative_error": errors[name], "kernel": "attention_backward"}
        yield session.row(case, name, "alone", spreads, more, OF_FORWARD)


def told(rows: Sequence[Row]) -> str:
    """A summary line of a case."""
    each = [f"{row['provider']} {row['tflops']['median']:.0f} err {row['relative_error']:.1e}" for row in rows]
    return f"{rows[0]['case']:24} {', '.join(each)}"


def main(words: Sequence[str]) -> int:
    suite = Suite("attention-gradients", __doc__, SUITE, fits, measure, told, seconds=0.3)
    parser = suite.parser()
    parser.add_argument("--candidates", action="store_true", help="other tiles of queries, too")
    return suite.run(parser.parse_args(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
