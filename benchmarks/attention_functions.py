"""Time attention under functions of scores and masks, and its gradients, next to FlexAttention.

    python -m benchmarks.attention_functions [--out FILE] [--only WORDS] [--seconds 0.3] [--budget S] [--candidates]

"slopes" are one captured number for each head (ALiBi), "bias" is a learned table of relative positions, whose gradient
is computed, too, "documents" adds a mask function to slopes, and "masked" has that mask alone. "warploom" is our
`flex_attention` with torch's block mask, "warploom causal" is `attention(causal=True)` with the functions alone, and
"flex" is torch.compile of FlexAttention with the same block mask. Each has the FLOP of its unmasked scores, gradients
2.5 times as many. --candidates times other tiles, too.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch.nn.attention.flex_attention import create_block_mask
from torch.nn.attention.flex_attention import flex_attention as of_torch

import warploom
import warploom.torch
from benchmarks.attention_backward import OF_FORWARD
from benchmarks.attention_peers import ends_of, scores_seen
from benchmarks.attention_session import Row, Session, Suite, fits
from warploom.errors import WarploomError
from warploom.kernels.hopper.attention_backward_config import BackwardConfig
from warploom.kernels.hopper.attention_config import Config
from warploom.lab.attention_operands import AttentionOperands, make
from warploom.lab.attention_problem import ForwardProblem
from warploom.operators.attention.backward import BackwardChoice
from warploom.operators.attention.gradients import gradients as attention_gradients

SUITE = tuple(ForwardProblem(128, 8192, True, data=data) for data in ("slopes", "documents", "masked", "bias"))
MOST_ERROR = 1e-2
"""Results with a larger relative error are not timed."""
Call = Callable[[], Sequence[torch.Tensor]]


@dataclass
class Functions:
    """The functions of a case.

    Attributes:
        score_mod: of scores, if there is one.
        same, seen: of masks: what there is beside the causal mask, if anything, and both together.
        learned: the captured tensors whose gradients are computed.
    """

    score_mod: Callable[..., Any] | None
    same: Callable[..., Any] | None
    seen: Callable[..., Any]
    learned: tuple[torch.Tensor, ...] = ()


def causal(batch: Any, head: Any, query: Any, key: Any) -> Any:
    """The mask of all cases."""
    return query >= key


def functions(case: ForwardProblem, device: Any) -> Functions:
    """Those of a case; their captured tensors are f32 and int32."""
    heads, length = case.sizes[1:3]
    if case.data == "bias":
        bias = torch.randn(heads, 2 * length - 1, generator=torch.Generator(device).manual_seed(1), device=device)
        return Functions(lambda s, b, h, i, j: s + bias[h, i - j + (length - 1)], None, causal, (bias,))
    slope = 2.0 ** -(8.0 * torch.arange(1, heads + 1, device=device) / heads)
    slopes = lambda s, b, h, i, j: s - slope[h] * (i - j)  # noqa: E731
    if case.data == "slopes":
        return Functions(slopes, None, causal)
    ends = torch.tensor(ends_of(length), device=device)
    document = torch.repeat_interleave(torch.arange(len(ends) - 1, device=device, dtype=torch.int32), ends.diff())
    return Functions(
        None if case.data == "masked" else slopes,
        lambda b, h, i, j: document[i] == document[j],
        lambda b, h, i, j: (i >= j) & (document[i] == document[j]),
    )


def ways(made: AttentionOperands, of: Functions, mask: Any) -> dict[str, Callable[[], torch.Tensor]]:
    """The contenders' forward passes."""
    q, k, v = made.q, made.k, made.v
    compiled: Any = torch.compile(of_torch, dynamic=False)
    return {
        "warploom": lambda: warploom.torch.flex_attention(q, k, v, of.score_mod, mask),
        "warploom causal": lambda: warploom.attention(q, k, v, causal=True, score_mod=of.score_mod, mask_mod=of.same),
        "flex": lambda: compiled(q, k, v, of.score_mod, mask),
    }


def candidates(made: AttentionOperands, of: Functions, mask: Any) -> dict[str, Callable[[], torch.Tensor]]:
    """Forward passes in other tiles."""
    q, k, v = made.q, made.k, made.v
    causal: dict[str, Any] = {"causal": True, "mask_mod": of.same}
    tiles = {
        64: Config(tile_n=64, key_stages=4, value_stages=4, raise_all_maxima=True),
        96: Config(tile_n=96, key_stages=3, value_stages=3, raise_all_maxima=True), 128: Config(raise_all_maxima=True),
    }  # fmt: skip
    options = {f"warploom, {keys} keys": {"block_mask": mask, "config": tiles[keys]} for keys in (64, 128)}
    options |= {f"warploom causal, {keys} keys": causal | {"config": tiles[keys]} for keys in (64, 96)}
    return {
        name: partial(warploom.attention, q, k, v, score_mod=of.score_mod, **each) for name, each in options.items()
    }


def gradient_candidates(made: AttentionOperands, of: Functions, grad: torch.Tensor) -> dict[str, Call]:
    """Gradients of q, k and v under causal=True in other tiles."""
    tensors: dict[str, Any] = {"q": made.q, "k": made.k, "v": made.v}
    seen: dict[str, Any] = {"causal": True, "score_mod": of.score_mod, "mask_mod": of.same}
    with torch.no_grad():
        out, lse = warploom.attention(**tensors, return_lse=True, **seen)

    def call(tile: int) -> Sequence[torch.Tensor]:
        found = attention_gradients(
            tensors, out, lse, grad, scale=None, softcap=None, window=None, layout="bhsd",
            choice=BackwardChoice(BackwardConfig(tile, ds_stages=1)), **seen,
        )  # fmt: skip
        return found.dq, found.dk, found.dv

    return {f"warploom causal, {tile} queries": partial(call, tile) for tile in (32, 48, 64)}


def exact(case: ForwardProblem, made: AttentionOperands, of: Functions, grad: torch.Tensor) -> list[torch.Tensor]:
    """O, dQ, dK and dV of the first head in float64, and the gradients of what it reads of learned tensors."""
    at = torch.arange(case.length, device=made.q.device)
    hidden = ~of.seen(0, 0, at[:, None], at[None, :])
    with torch.enable_grad():
        for each in of.learned:
            each.requires_grad_()
        # a sequence at a time, as the scores of one fill gigabytes
        found: list[list[torch.Tensor]] = []
        sums: Sequence[torch.Tensor] = ()
        for number in range(case.sizes[0]):
            q, k, v = (x[number, 0].double().requires_grad_() for x in (made.q, made.k, made.v))
            score = q @ k.T / math.sqrt(case.head_dim)
            if of.score_mod is not None:
                score = of.score_mod(score, 0, 0, at[:, None], at[None, :])
            o = torch.softmax(score.masked_fill(hidden, -math.inf), -1) @ v
            slopes = torch.autograd.grad(o, (q, k, v, *of.learned), grad[number, 0].double())
            found.append([o.detach(), *slopes[:3]])
            sums = [x + y for x, y in zip(sums, slopes[3:], strict=True)] if sums else slopes[3:]
    return [*map(torch.stack, zip(*found, strict=True)), *(each[0] for each in sums)]


def error(found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> float:
    """The largest relative error of the first head. found: (B, H, …) of results, (H, …) of learned tensors."""
    firsts = (x[:, 0] if x.ndim == 4 else x[0] for x in found)
    pairs = zip(firsts, wanted, strict=False)  # of a candidate without the learned tensors
    return float(f"{max(float((x.double() - y).norm() / y.norm()) for x, y in pairs):.4g}")


def gradients(call: Callable[[], torch.Tensor], of: Sequence[torch.Tensor], grad: torch.Tensor) -> Call:
    """The backward pass of a call."""
    with torch.enable_grad():
        out = call()
    return lambda: torch.autograd.grad(out, of, grad, retain_graph=True)


def forward(call: Callable[[], torch.Tensor]) -> Call:
    """The call, of which no gradient is wanted."""
    return lambda: (call(),)


def right(
    case: ForwardProblem, prepare: Mapping[str, Callable[[], Call]], wanted: Sequence[torch.Tensor], session: Session
) -> dict[str, tuple[Call, float]]:
    """(call, relative error) of each contender that is right."""
    found = {}
    for name, make_call in prepare.items():
        session.watchdog.beat(f"{case.name}: {name}", 180)
        try:
            call = make_call()
            off = error(call(), wanted)
        except (RuntimeError, NotImplementedError, WarploomError) as failure:  # a torch without it
            print(f"    {name}: {str(failure).splitlines()[0][:150]}", flush=True)
            continue
        if off < MOST_ERROR:
            found[name] = call, off
        else:
            print(f"    {name}: relative error {off:.2e}", flush=True)
    return found


def measure(case: ForwardProblem, session: Session, device: str = "cuda") -> Iterator[Row]:
    """Measure a case's forward pass, then its gradients."""
    (made,) = make(replace(case, data="normal"), 1, device)
    of, grad = functions(case, device), torch.randn_like(made.q)
    wanted = exact(case, made, of, grad)
    mask = create_block_mask(of.seen, None, None, case.length, case.length, made.q.device)
    calls = ways(made, of, mask)
    times = scores_seen(case) / case.seen if of.same is not None else 1.0
    others = candidates(made, of, mask) if session.asked.candidates else {}
    prepare = {name: partial(forward, call) for name, call in (calls | others).items()}
    yield from rows(case, right(case, prepare, wanted[:1], session), session, times)
    inputs = [each.requires_grad_() for each in (made.q, made.k, made.v)]
    prepare = {name: partial(gradients, call, [*inputs, *of.learned], grad) for name, call in calls.items()}
    if session.asked.candidates:
        prepare |= {name: lambda call=call: call for name, call in gradient_candidates(made, of, grad).items()}
    last = replace(case, data=f"{case.data}, gradients")
    yield from rows(last, right(last, prepare, wanted[1:], session), session, OF_FORWARD * times)


def rows(
    case: ForwardProblem, found: Mapping[str, tuple[Call, float]], session: Session, times: float
) -> Iterator[Row]:  # fmt: skip
    """Time the contenders. times: the FLOP, as a factor on the case's."""
    spreads = session.sample(case, {name: call for name, (call, _) in found.items()})
    for name, (_, off) in found.items():
        yield session.row(case, name, "alone", spreads, {"relative_error": off}, times)


def told(rows: Sequence[Row]) -> str:
    """A line for each pass."""
    lines = []
    for case in dict.fromkeys(row["case"] for row in rows):
        each = [f"{row['provider']} {row['tflops']['median']:.0f} err {row['relative_error']:.1e}"
                for row in rows if row["case"] == case]  # fmt: skip
        lines.append(f"{case:44} {', '.join(each)}")
    return "\n".join(lines)


def main(words: Sequence[str]) -> int:
    suite = Suite("attention-functions", __doc__, SUITE, fits, measure, told, seconds=0.3)
    parser = suite.parser()
    parser.add_argument("--candidates", action="store_true", help="other tiles, too")
    return suite.run(parser.parse_args(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
