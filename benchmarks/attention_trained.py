"""Time attention next to cuDNN on queries, keys and values of models that were trained for this purpose.

    python -m benchmarks.attention_trained [--out FILE] [--only WORDS] [--seconds 0.3] [--budget S] [--training 90]

Each case is a model (`byte_model`) with heads of that dimension, trained for --training seconds. The operands are those
of its layers on held-out text, and the errors those of all heads of the first text. The masks are causal, as in
training.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace

import torch

from benchmarks.attention_session import Row, Session, Suite, fits
from benchmarks.byte_model import Shape, captured, texts, trained
from warploom.lab.attention_contenders import TorchAttention, choice, gpu, ours
from warploom.lab.attention_operands import AttentionOperands
from warploom.lab.attention_problem import ForwardProblem
from warploom.lab.contender import Prepared, result

SUITE = tuple(ForwardProblem(d, 4096, True, batch=8, heads=1024 // d) for d in (128, 64))
MOST_ERROR = 1e-2
"""Results with a larger relative error are not timed."""
QKV = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def shape(case: ForwardProblem) -> Shape:
    """Sizes of a case's model."""
    _, heads, length, width = case.sizes
    return Shape(width, heads, length=length)


def operands(qkv: QKV) -> AttentionOperands:
    """Those of a layer, with room for the results."""
    q, _, v = qkv
    out = torch.empty((*q.shape[:3], v.shape[-1]), device=q.device, dtype=q.dtype)
    return AttentionOperands(*qkv, out=out, lse=torch.empty(out.shape[:3], device=q.device))


def ways(case: ForwardProblem, one: AttentionOperands) -> dict[str, Prepared]:
    """The contenders: what the library chooses, and cuDNN."""
    return {
        "warploom": ours(case, [one], choice(case, gpu([one])), pinned=False),
        "cudnn": TorchAttention("cudnn").prepare(case, [one], lambda who, seconds: None),
    }


def exact(qkv: QKV, head: int) -> tuple[torch.Tensor, dict[str, float]]:
    """(O of a head of the first text in float64, facts about its scores)."""
    q, k, v = (each[0, head].double() for each in qkv)
    scores = q @ k.T / math.sqrt(q.shape[-1])
    hidden = torch.ones_like(scores, dtype=torch.bool).triu_(1)
    seen = scores[~hidden]
    p = torch.softmax(scores.masked_fill_(hidden, -math.inf), -1)
    found = {"largest": float(seen.abs().max()), "deviation": float(seen.std()), "first": float(p[:, 0].mean())}
    return p @ v, found


def looked_at(one: AttentionOperands, contenders: Mapping[str, Prepared]) -> tuple[dict[str, float], Row]:
    """(relative error of O of each contender, facts about the scores), of all heads of the first text."""
    found = {}
    for name, each in contenders.items():
        one.clear()
        each.calls[0]()
        found[name] = result(each.calls[0], one)[0].double()
    off, norm, facts = dict.fromkeys(found, 0.0), 0.0, []
    for head in range(one.q.shape[1]):
        wanted, of_head = exact((one.q, one.k, one.v), head)
        facts.append(of_head)
        norm += float(wanted.square().sum())
        for name, out in found.items():
            off[name] += float((out[head] - wanted).square().sum())
    errors = {name: float(f"{math.sqrt(each / norm):.4g}") for name, each in off.items()}
    of_first = [each["first"] for each in facts]
    scores = {
        "largest_score": round(max(each["largest"] for each in facts), 2),
        "deviation_of_scores": round(max(each["deviation"] for each in facts), 2),
        "weight_of_first_key": {"mean": round(sum(of_first) / len(of_first), 4), "largest": round(max(of_first), 4)},
    }
    return errors, scores


def measure(case: ForwardProblem, session: Session, device: str = "cuda") -> Iterator[Row]:
    """Train a model, then measure the rows of its layers."""
    of = texts()
    beat = session.watchdog.beat
    model, learned = trained(shape(case), of, session.asked.training, device, lambda how: beat(how, 60))
    print(f"{case.name}: {learned}", flush=True)
    beat("held-out text", 60)
    layers = captured(model, of[1], case.batch)
    del model
    for number, qkv in enumerate(layers):
        layer, one = replace(case, data=f"layer {number}"), operands(qkv)
        beat(layer.name, 120)
        contenders = ways(layer, one)
        errors, scores = looked_at(one, contenders)
        for name in [name for name in contenders if not errors[name] < MOST_ERROR]:
            print(f"    {layer.name}, {name}: relative error {errors[name]:.2e}", flush=True)
            del contenders[name]
        spreads = session.sample(layer, {name: each.calls[0] for name, each in contenders.items()})
        for name, each in contenders.items():
            more: Row = {"relative_error": errors[name], **scores, "training": asdict(learned), **each.facts}
            more |= {"kernel": each.kernel, "config": each.config} if name == "warploom" else {}
            yield session.row(layer, name, "alone", spreads, more)


def told(rows: Sequence[Row]) -> str:
    """A line for each layer."""
    lines = []
    for case in dict.fromkeys(row["case"] for row in rows):
        each = [row for row in rows if row["case"] == case]
        speeds = [f"{row['provider']} {row['tflops']['median']:.0f} err {row['relative_error']:.1e}" for row in each]
        ratio = each[0]["ratio_to"].get("cudnn", 0)
        scores = f"score {each[0]['largest_score']}, first key {each[0]['weight_of_first_key']}"
        lines.append(f"{case:44} {', '.join(speeds)}, {ratio:.3f}, {scores}")
    return "\n".join(lines)


def main(words: Sequence[str]) -> int:
    suite = Suite("attention-trained", __doc__, SUITE, fits, measure, told, seconds=0.3)
    parser = suite.parser()
    parser.add_argument("--training", type=float, default=90, help="seconds for which a model is trained")
    return suite.run(parser.parse_args(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
