"""Time windows, packed sequences and block masks, which cuDNN through torch does not have, next to what torch has.

    python -m benchmarks.attention_peers [--out FILE] [--only WORDS] [--seconds 0.3] [--budget S]

"flash" is torch's own FlashAttention-2 (aten::_flash_attention_forward), "flex" is torch.compile of FlexAttention with
the same block mask. The sequences of a case with a batch are cut at places that are drawn, and packed; a case of one
sequence with a block mask has documents, cut likewise. Each has the FLOP of its unmasked scores.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch.nn.attention.flex_attention import create_block_mask
from torch.nn.attention.flex_attention import flex_attention as of_torch

import warploom
import warploom.torch
from benchmarks.attention_session import Row, Session, Suite, fits
from warploom.lab.attention_operands import AttentionOperands, make
from warploom.lab.attention_problem import ForwardProblem

SUITE = (
    *(ForwardProblem(d, 16384, True, window=window) for d in (128, 64) for window in ((1024, 0), (4096, 0))),
    *(ForwardProblem(d, 16384, causal, data=data) for d in (128, 64) for data in ("packed", "documents")
      for causal in (False, True)),
)  # fmt: skip
MEAN_LENGTH = 2048
"""Of the packed sequences and the documents."""
MOST_ERROR = 1e-2
"""Results with a larger relative error are not timed."""
Call = Callable[[], torch.Tensor]


def ends_of(length: int, seed: int = 7) -> list[int]:
    """Where sequences begin and end: places that are drawn, the same in each run."""
    draw = random.Random(seed)
    return [0, *sorted(draw.sample(range(1, length), length // MEAN_LENGTH - 1)), length]


def scores_seen(case: ForwardProblem) -> int:
    """Unmasked scores of a head."""
    if case.window is not None:
        return case.seen
    parts = [end - start for start, end in pairwise(ends_of(case.length))]
    return sum(n * (n + 1) // 2 if case.causal else n * n for n in parts)


def flash(made: AttentionOperands, case: ForwardProblem, ends: torch.Tensor | None) -> Call:
    """torch's FlashAttention-2, (B, S, H, D) or packed rows."""
    q, k, v = (x.transpose(1, 2).contiguous() for x in (made.q, made.k, made.v))
    if ends is not None:
        q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    left, right = case.window or (None, None)
    longest = case.length if ends is None else int((ends[1:] - ends[:-1]).max())

    def call() -> torch.Tensor:
        found: torch.Tensor = torch.ops.aten._flash_attention_forward(
            q, k, v, ends, ends, longest, longest, 0.0, case.causal and case.window is None, False,
            window_size_left=left, window_size_right=right,
        )[0]  # fmt: skip
        return (found if ends is None else found[None]).transpose(1, 2)

    return call


def block_mask(mask_mod: Callable[..., Any], case: ForwardProblem) -> Any:
    """FlexAttention's block mask of a function, the same for all heads."""
    return create_block_mask(mask_mod, None, None, case.length, case.length, "cuda")


def ways(case: ForwardProblem, made: AttentionOperands) -> dict[str, Call]:
    """The contenders."""
    q, k, v = made.q, made.k, made.v
    if case.window is not None:
        left = case.window[0]
        band = block_mask(lambda b, h, q_at, k_at: (k_at <= q_at) & (q_at - k_at <= left), case)
        compiled: Any = torch.compile(of_torch)
        return {
            "warploom": lambda: warploom.attention(q, k, v, causal=True, window=case.window),
            "flash": flash(made, case, None), "flex": lambda: compiled(q, k, v, block_mask=band),
        }  # fmt: skip
    ends = torch.tensor(ends_of(case.length), device="cuda", dtype=torch.int32)
    if case.data == "packed":
        rows = [x.transpose(1, 2).flatten(0, 1).contiguous() for x in (q, k, v)]
        return {
            "warploom": lambda: warploom.attention_varlen(*rows, ends, ends, causal=case.causal)[None].transpose(1, 2),
            "flash": flash(made, case, ends),
        }
    document = torch.repeat_interleave(torch.arange(len(ends) - 1, device="cuda"), (ends[1:] - ends[:-1]).long())
    same = lambda b, h, q_at, k_at: document[q_at] == document[k_at]  # noqa: E731
    causal = lambda b, h, q_at, k_at: (document[q_at] == document[k_at]) & (q_at >= k_at)  # noqa: E731
    mask = block_mask(causal if case.causal else same, case)
    compiled = torch.compile(of_torch)
    return {
        "warploom": lambda: warploom.torch.flex_attention(q, k, v, block_mask=mask),
        "flex": lambda: compiled(q, k, v, block_mask=mask),
    }


def exact(case: ForwardProblem, made: AttentionOperands) -> torch.Tensor:
    """O of the first head in float64, a slice of queries at a time."""
    q, k, v = (x[0, 0].double() for x in (made.q, made.k, made.v))
    at = torch.arange(case.length, device=q.device)
    cuts = torch.tensor(ends_of(case.length)[1:-1], device=q.device)
    of = torch.bucketize(at, cuts, right=True)
    found = []
    for rows in at.split(2048):
        p = q[rows] @ k.T / math.sqrt(case.head_dim)
        hidden = (at[None] > rows[:, None]) if case.causal else torch.zeros_like(p, dtype=torch.bool)
        if case.window is not None:
            hidden |= rows[:, None] - at[None] > case.window[0]
        else:
            hidden |= of[rows][:, None] != of[None]
        found.append(torch.softmax(p.masked_fill_(hidden, -math.inf), -1) @ v)
    return torch.cat(found)


def measure(case: ForwardProblem, session: Session) -> Iterator[Row]:
    """Measure the rows of one case."""
    made = operands(case)
    wanted, calls, errors = exact(case, made), ways(case, made), {}
    for name, call in list(calls.items()):
        session.watchdog.beat(f"{case.name}: {name}", 180)
        try:
            errors[name] = float((call()[0, 0].double() - wanted).norm() / wanted.norm())
        except (RuntimeError, NotImplementedError) as failure:  # a torch without it
            print(f"    {name}: {str(failure).splitlines()[0][:150]}", flush=True)
            del calls[name]
            continue
        if not errors[name] < MOST_ERROR:
            print(f"    {name}: relative error {errors[name]:.2e}", flush=True)
            del calls[name]
    spreads = session.sample(case, calls)
    for name in calls:
        times = scores_seen(case) / case.seen
        yield session.row(case, name, "alone", spreads, {"relative_error": float(f"{errors[name]:.3g}")}, times)


def operands(case: ForwardProblem) -> AttentionOperands:
    """Random normal Q, K and V of one sequence."""
    (made,) = make(ForwardProblem(case.head_dim, case.length, case.causal, batch=1, heads=2048 // case.head_dim), 1)
    return made


def told(rows: Sequence[Row]) -> str:
    """A summary line of a case."""
    each = [f"{row['provider']} {row['tflops']['median']:.0f} err {row['relative_error']:.1e}" for row in rows]
    return f"{rows[0]['case']:36} {', '.join(each)}"


def main(words: Sequence[str]) -> int:
    suite = Suite("attention-peers", __doc__, SUITE, fits, measure, told, seconds=0.3)
    return suite.run(suite.parser().parse_args(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
