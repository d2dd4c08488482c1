"""`tune`: time the library's candidates for a product on this GPU, and remember the fastest."""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import ArgumentError
from .output import say, say_json
from .product import DTYPES, OUT_HELP, Activation, Bias, ConstantWeights, Gate, Layout, Residual, Scales, asked


def tune(
    m: Annotated[int, typer.Argument(help="Rows of A and of the result.")],
    n: Annotated[int, typer.Argument(help="Columns of the result.")],
    k: Annotated[int, typer.Argument(help="What is summed over.")],
    dtype: Annotated[str, typer.Option(help=f"{DTYPES}.")] = "bf16",
    out: Annotated[str, typer.Option(help=OUT_HELP)] = "",
    layout: Layout = "tn",
    scales: Scales = "",
    activation: Activation = "",
    bias: Bias = False,
    gate: Gate = False,
    residual: Residual = False,
    constant_weights: ConstantWeights = False,
    top: Annotated[int, typer.Option(help="How many candidates are timed.")] = 10,
    device: Annotated[int, typer.Option(help="Number of the GPU.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Time the best candidates for a product on this GPU; matmul runs the fastest from then on.

    Example: warploom tune 4096 14336 4096 --bias --activation silu
    """
    from dataclasses import asdict

    from ..operators.tune import tune as tune_problem

    if top < 1:
        raise ArgumentError("nothing would be timed", expected="--top of at least 1", got=top)
    problem = asked(m, n, k, dtype, out, layout, scales, activation, bias, gate, residual, constant_weights)
    found = tune_problem(problem, device=device, top=top)
    if as_json:
        say_json(
            {
                "problem": problem.describe(), "gpu": asdict(found.gpu), "before": found.before.name(),
                "chosen": found.best.name(), "times_us": found.times_us, "failed": found.failed, "kept": found.kept,
            }
        )  # fmt: skip
        return
    say(found.text())
