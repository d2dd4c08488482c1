"""`tune`: time the library's candidates for a product, or for attention, on this GPU, and remember the fastest."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import ArgumentError
from .output import say, say_json
from .product import (
    DTYPES,
    OUT_HELP,
    Activation,
    AttentionShape,
    Bias,
    Causal,
    ConstantWeights,
    Gate,
    Keys,
    KvHeads,
    Layout,
    Residual,
    Scales,
    asked,
)

if TYPE_CHECKING:
    from ..operators.tune import Tuned


def tune(
    m: Annotated[int | None, typer.Argument(help="Rows of A and of the result.")] = None,
    n: Annotated[int | None, typer.Argument(help="Columns of the result.")] = None,
    k: Annotated[int | None, typer.Argument(help="What is summed over.")] = None,
    dtype: Annotated[str, typer.Option(help=f"{DTYPES}.")] = "bf16",
    out: Annotated[str, typer.Option(help=OUT_HELP)] = "",
    layout: Layout = "tn",
    scales: Scales = "",
    activation: Activation = "",
    bias: Bias = False,
    gate: Gate = False,
    residual: Residual = False,
    constant_weights: ConstantWeights = False,
    attention: AttentionShape = "",
    kv_heads: KvHeads = 0,
    keys: Keys = 0,
    causal: Causal = False,
    top: Annotated[int, typer.Option(help="How many candidates are timed.")] = 10,
    device: Annotated[int, typer.Option(help="Number of the GPU.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Time the best candidates for a product, or for attention, on this GPU; the library runs the fastest from then on.

    Example: warploom tune 4096 14336 4096 --bias --activation silu

    Example: warploom tune --attention 4x16x4096x128 --causal
    """
    if top < 1:
        raise ArgumentError("nothing would be timed", expected="--top of at least 1", got=top)
    found: Tuned
    if attention:
        from ..lab.attention_explanation import problem_of
        from ..operators.attention.tune import tune_attention

        if (m, n, k) != (None, None, None):
            raise ArgumentError("one thing is timed at a time", expected="M N K, or --attention", got="both")
        found = tune_attention(problem_of(attention, kv_heads, keys, causal).call, device=device, top=top)
    else:
        from ..operators.tune import tune as tune_problem

        if m is None or n is None or k is None:
            given = " ".join(str(size) for size in (m, n, k) if size is not None)
            raise ArgumentError(
                "a product has three sizes", expected="M N K, or --attention BxHxSxD", got=given or "none"
            )
        problem = asked(m, n, k, dtype, out, layout, scales, activation, bias, gate, residual, constant_weights)
        found = tune_problem(problem, device=device, top=top)
    if as_json:
        say_json(
            {
                "problem": found.problem.describe(), "gpu": asdict(found.gpu), "before": found.before.name(),
                "chosen": found.best.name(), "times_us": found.times_us, "failed": found.failed, "kept": found.kept,
            }
        )  # fmt: skip
        return
    say(found.text())
