"""`tune`: time the library's candidates for a product, or for attention, on this GPU, and remember the fastest."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import ArgumentError
from .ignored import refuse_ignored
from .output import say, say_json
from .product import ProblemOptions, described, product_problem
from .warm import INTERRUPTED

if TYPE_CHECKING:
    from ..operators.tune import Tuned

TOP, COUNT = 10, 40
"""Candidates of a product that are timed, and products of a fit."""


@described
def tune(
    given: ProblemOptions,
    top: Annotated[int, typer.Option(help="Number of candidates to time.")] = TOP,
    fit: Annotated[
        bool, typer.Option("--fit", help="Time products of public models, and fit the choice to this GPU.")
    ] = False,
    count: Annotated[int, typer.Option(help="fit: number of products.")] = COUNT,
    seed: Annotated[int, typer.Option(help="fit: seed of the draw of products.")] = 0,
    device: Annotated[int, typer.Option(help="Number of the GPU.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find the fastest kernel for a product or attention.

    The best candidates are timed on this GPU; the library uses the fastest afterwards.

    Example: warploom tune 4096 14336 4096 --bias --activation silu

    Example: warploom tune --attention 4x16x4096x128 --causal

    Example: warploom tune --fit --count 60
    """
    if top < 1:
        raise ArgumentError("there would be nothing to time", expected="--top of at least 1", got=top)
    if fit:
        refuse_ignored("a fit times the best of each family", {"--top": (top, TOP)})
        _fit(given, count, seed, device, as_json)
        return
    refuse_ignored("only --fit draws products", {"--count": (count, COUNT), "--seed": (seed, 0)})
    found: Tuned
    if given.attention:
        from ..lab.attention_explanation import problem_of
        from ..operators.attention.tune import tune_attention

        if given.sizes:
            raise ArgumentError("only one problem is timed at a time", expected="M N K, or --attention", got="both")
        problem = problem_of(given.attention, given.kv_heads, given.keys, given.causal)
        found = tune_attention(problem.call, device=device, top=top)
    else:
        from ..operators.tune import tune as tune_problem

        if len(given.sizes) != 3:
            raise ArgumentError(
                "a product has three sizes", expected="M N K, or --attention BxHxSxD",
                got=" ".join(map(str, given.sizes)) or "none",
            )  # fmt: skip
        found = tune_problem(product_problem(given, *given.sizes), device=device, top=top)
    if as_json:
        say_json(
            {
                "problem": found.problem.describe(), "gpu": asdict(found.gpu), "before": found.before.name(),
                "chosen": found.best.name(), "times_us": found.times_us, "failed": found.failed, "kept": found.kept,
            }
        )  # fmt: skip
        return
    say(found.text())


def _fit(given: ProblemOptions, count: int, seed: int, device: int, as_json: bool) -> None:
    """Fit the choice to this GPU."""
    from ..lab.catalogue import draw
    from ..lab.work import GemmWork
    from ..operators.recalibrate import recalibrate

    if given.sizes or given.attention:
        raise ArgumentError("a fit draws its products from the catalogue", expected="no M N K and no --attention",
                            got=" ".join(map(str, given.sizes)) or given.attention)  # fmt: skip
    drawn = draw(seed, count, like=GemmWork(1, 1, 1, dtype=given.dtype, scales=given.scales))
    try:
        found = recalibrate([product_problem(given, each.m, each.n, each.k) for each in drawn], device=device)
    except KeyboardInterrupt:
        typer.echo("interrupted: timings so far are kept, and the same command continues from there", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        say_json(asdict(found))
    else:
        say(found.text())
