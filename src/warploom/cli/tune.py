"""`tune`: time the library's candidates for a product, or for attention, on this GPU, and remember the fastest."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import ArgumentError
from .output import say, say_json
from .product import Described, asked, described

if TYPE_CHECKING:
    from ..operators.tune import Tuned


@described
def tune(
    given: Described,
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
    if given.attention:
        from ..lab.attention_explanation import problem_of
        from ..operators.attention.tune import tune_attention

        if given.sizes:
            raise ArgumentError("one thing is timed at a time", expected="M N K, or --attention", got="both")
        problem = problem_of(given.attention, given.kv_heads, given.keys, given.causal)
        found = tune_attention(problem.call, device=device, top=top)
    else:
        from ..operators.tune import tune as tune_problem

        if len(given.sizes) != 3:
            raise ArgumentError(
                "a product has three sizes", expected="M N K, or --attention BxHxSxD",
                got=" ".join(map(str, given.sizes)) or "none",
            )  # fmt: skip
        found = tune_problem(asked(given, *given.sizes), device=device, top=top)
    if as_json:
        say_json(
            {
                "problem": found.problem.describe(), "gpu": asdict(found.gpu), "before": found.before.name(),
                "chosen": found.best.name(), "times_us": found.times_us, "failed": found.failed, "kept": found.kept,
            }
        )  # fmt: skip
        return
    say(found.text())
