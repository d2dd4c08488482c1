"""A product, or attention, as the options of `tune` and `explain` describe it; the problem that a product's make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..operators.spec.arguments import BY_NAME

if TYPE_CHECKING:
    from ..operators.spec.problem import Problem

DTYPES = "bf16, f16, f32, e4m3, e5m2, s8"


def _help(name: str) -> str:
    """What an argument of `matmul` does, as a sentence."""
    doc = BY_NAME[name].doc
    return f"{doc[0].upper()}{doc[1:]}."


OUT_HELP = _help("out_dtype")
Layout = Annotated[str, typer.Option(help="tn, nn, nt or tt; tn is F.linear, tt is a @ b.")]
Scales = Annotated[str, typer.Option(help="Of eight-bit floats: tensor, row or block128.")]
Activation = Annotated[str, typer.Option(help=_help("activation"))]
Bias = Annotated[bool, typer.Option("--bias", help=_help("bias"))]
Gate = Annotated[bool, typer.Option("--gate", help=_help("gate"))]
Residual = Annotated[bool, typer.Option("--residual", help=_help("residual"))]
ConstantWeights = Annotated[bool, typer.Option("--constant-weights", help=_help("constant_weights"))]
AttentionShape = Annotated[str, typer.Option(help="BxHxSxD: attention of bf16 instead of a product.")]
KvHeads = Annotated[int, typer.Option(help="attention: heads of K and V; those of Q by default.")]
Keys = Annotated[int, typer.Option(help="attention: keys of each sequence; as many as queries by default.")]
Causal = Annotated[bool, typer.Option("--causal", help="attention: the last query sees all keys.")]


def asked(
    m: int, n: int, k: int, dtype: str, out: str, layout: str, scales: str, activation: str, bias: bool, gate: bool,
    residual: bool, constant_weights: bool,
) -> Problem:  # fmt: skip
    """The library's problem. Raises ArgumentError, ArgumentTypeError where `matmul` would refuse it."""
    from dataclasses import replace

    from ..collective.epilogue.spec import Fusion
    from ..isa.dtypes import f32
    from ..operators.spec.problem import Problem
    from ..operators.spec.validation import check_together

    plain = Problem.of(m, n, k, dtype, out=out or None, layout=layout)
    of_bias = plain.product.out if plain.product.out.bits > 8 else f32
    fusion = Fusion(
        scales=scales or None, bias="column" if bias else None, bias_dtype=of_bias if bias else None,
        activation=activation or None, gate=gate, addend=residual,
    )  # fmt: skip
    problem = replace(plain, fusion=fusion, constant_weights=constant_weights)
    check_together(problem)
    return problem
