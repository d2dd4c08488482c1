"""The options of `tune` and `explain` that describe a product or attention, and the resulting problem."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from ..errors import ArgumentError, ArgumentTypeError
from ..operators.spec.arguments import BY_NAME

if TYPE_CHECKING:
    from ..operators.spec.problem import Problem

SHAPE = "M, N: rows and columns of the result. K: the dimension that is summed over."
DTYPES = "bf16, f16, f32, e4m3, e5m2, s8"
GROUPS = "Groups of rows, each with its own B, as of `grouped_matmul`; M counts the rows of all."


def _help(name: str) -> str:
    """What an argument of `matmul` does, as a sentence."""
    doc = BY_NAME[name].doc
    return f"{doc[0].upper()}{doc[1:]}."


@dataclass(frozen=True)
class ProblemOptions:
    """The options that `tune` and `explain` share: a product, or attention."""

    shape: Annotated[list[str] | None, typer.Argument(metavar="M N K|MxNxK", help=SHAPE)] = None
    dtype: Annotated[str, typer.Option(help=f"{DTYPES}; f32 is multiplied as tf32.")] = "bf16"
    out: Annotated[str, typer.Option(help=_help("out_dtype"))] = ""
    layout: Annotated[str, typer.Option(help="tn, nn, nt or tt; tn is F.linear, tt is a @ b.")] = "tn"
    scales: Annotated[str, typer.Option(help="For eight-bit floats: tensor, row or block128.")] = ""
    activation: Annotated[str, typer.Option(help=_help("activation"))] = ""
    bias: Annotated[bool, typer.Option("--bias", help=_help("bias"))] = False
    gate: Annotated[bool, typer.Option("--gate", help=_help("gate"))] = False
    residual: Annotated[bool, typer.Option("--residual", help=_help("residual"))] = False
    constant_weights: Annotated[bool, typer.Option("--constant-weights", help=_help("constant_weights"))] = False
    groups: Annotated[int, typer.Option(help=GROUPS)] = 0
    attention: Annotated[str, typer.Option(help="BxHxSxD: attention of bf16 instead of a product.")] = ""
    kv_heads: Annotated[int, typer.Option(help="attention: heads of K and V; by default as many as Q has.")] = 0
    keys: Annotated[int, typer.Option(help="attention: keys of each sequence; as many as queries by default.")] = 0
    causal: Annotated[bool, typer.Option("--causal", help="attention: the last query sees all keys.")] = False

    @property
    def sizes(self) -> tuple[int, ...]:
        """The given ones of M, N, K. Raises ArgumentError for words that are no sizes."""
        return sizes_of(self.shape or ())


def sizes_of(words: Sequence[str]) -> tuple[int, ...]:
    """The sizes in "M", "N", "K" or "MxNxK". Raises ArgumentError for other words."""
    given = words[0].lower().split("x") if len(words) == 1 else words
    try:
        return tuple(int(word) for word in given)
    except ValueError:
        raise ArgumentError("these are no sizes", expected="M N K or MxNxK", got=" ".join(words)) from None


def described(command: Callable[..., None]) -> Callable[..., None]:
    """Give typer a command that takes a `ProblemOptions` and its own options as one with all of these options."""
    shared = {each.name: each.default for each in fields(ProblemOptions)}
    _, *own = inspect.signature(command).parameters.values()

    @wraps(command)
    def run(**given: Any) -> None:
        command(ProblemOptions(**{name: given.pop(name) for name in shared}), **given)

    hints = get_type_hints(ProblemOptions, include_extras=True) | get_type_hints(command, include_extras=True)
    defaults = shared | {each.name: each.default for each in own}
    run.__annotations__ = {name: hints[name] for name in defaults}
    run.__signature__ = inspect.Signature([  # type: ignore[attr-defined]
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[name])
        for name, default in defaults.items()
    ])  # fmt: skip
    return run


def product_problem(given: ProblemOptions, m: int, n: int, k: int) -> Problem:
    """The library's problem. Raises ArgumentError, ArgumentTypeError if `matmul` would refuse it."""
    from dataclasses import replace

    from ..collective.epilogue.spec import Fusion
    from ..isa.dtypes import f32
    from ..operators.spec.problem import Problem
    from ..operators.spec.validation import check_together

    if given.dtype not in DTYPES.split(", "):
        raise ArgumentTypeError(
            f"matmul does not multiply {given.dtype}", expected=DTYPES, got=f"--dtype {given.dtype}",
            hint="fp8 is e4m3 or e5m2" if given.dtype in ("fp8", "f8") else None,
        )  # fmt: skip
    plain = Problem.of(m, n, k, given.dtype, out=given.out or None, layout=given.layout)
    of_bias = plain.product.out if plain.product.out.bits > 8 else f32
    fusion = Fusion(
        scales=given.scales or None, bias="column" if given.bias else None, bias_dtype=of_bias if given.bias else None,
        activation=given.activation or None, gate=given.gate, addend=given.residual,
    )  # fmt: skip
    problem = replace(plain, fusion=fusion, constant_weights=given.constant_weights, groups=given.groups)
    check_together(problem)
    return problem
