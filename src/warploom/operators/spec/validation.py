"""Checks the combination of a product's types, epilogue, scales and accumulation.

`matmul` applies it to its arguments, `warploom tune` and `warploom explain` to their options: one rule for all.
"""

from __future__ import annotations

from ...annotated import shown
from ...collective.epilogue.spec import ACTIVATIONS, EIGHT_BIT_FLOATS, Fusion, Product
from ...collective.tile.sizes import MOST_GROUPS
from ...errors import ArgumentError, ArgumentTypeError
from ...isa.dtypes import s8
from .problem import Problem
from .scales import SCALES, check_blocks


def check_activation(activation: object) -> None:
    """Raise ArgumentError for anything but the name of an activation, or None."""
    if activation is not None and not (isinstance(activation, str) and activation in ACTIVATIONS):
        raise ArgumentError(
            f"unknown activation {shown(activation)}",
            expected=", ".join(ACTIVATIONS) + ", or None",
            got=shown(activation),
        )


def check_integers(product: Product, fusion: Fusion) -> None:
    """Raise ArgumentTypeError if an epilogue is fused into integer sums."""
    if product.a is s8 and fusion != Fusion():
        raise ArgumentTypeError(
            "s8 x s8 gives exact s32 sums, which do not support an epilogue",
            expected="only a, b and out",
            hint="do the rest on the s32 result",
        )


def check_groups(problem: Problem) -> None:
    """Raise ArgumentError for groups of rows that no kernel computes."""
    if not 0 <= problem.groups <= MOST_GROUPS:
        raise ArgumentError("this is no number of groups of one launch", expected=f"1 to {MOST_GROUPS}, or 0 for none",
                            got=problem.groups)  # fmt: skip
    fusion = problem.fusion
    beside = fusion.bias == "row" or fusion.gate or fusion.addend or fusion.scale_out or fusion.amax
    if problem.groups and (beside or fusion.scales == "block128" or problem.constant_weights or problem.layout != "tn"):
        raise ArgumentError(
            "no grouped kernel computes this", got=problem.describe(),
            expected="layout tn, and of what is fused: tensor or row scales, a bias of the column, an activation",
        )  # fmt: skip


def check_together(problem: Problem) -> None:
    """Raise ArgumentError or ArgumentTypeError if a product does not support its epilogue."""
    product, fusion = problem.product, problem.fusion
    check_activation(fusion.activation)
    if fusion.scales not in (None, *SCALES):
        raise ArgumentError(
            f"unknown scales {fusion.scales!r}", expected=", ".join(SCALES), got=repr(fusion.scales)
        )  # fmt: skip
    check_integers(product, fusion)
    check_groups(problem)
    if fusion.scale_out and product.out not in EIGHT_BIT_FLOATS:
        raise ArgumentTypeError(
            "scale_out= scales eight-bit outputs", expected="out_dtype e4m3 or e5m2", got=f"out_dtype {product.out}"
        )
    if fusion.scales == "block128" and product.a not in EIGHT_BIT_FLOATS:
        raise ArgumentTypeError("scales of blocks of 128 need eight-bit operands", got=str(product.a))
    if not problem.promoted:
        return
    check_blocks(fusion.scales)
    more = (fusion.alpha, fusion.bias, fusion.activation, fusion.gate, fusion.addend, fusion.scale_out, fusion.amax)
    if any(more) or product.out.bits == 8 or problem.batch:
        raise ArgumentError(
            "the kernel that promotes eight-bit sums every 128 of k supports no epilogue and no batch",
            expected="a, b, scale_a and scale_b (arrays, no numbers), and a 16- or 32-bit result",
            hint='accumulate="fast" supports all of them, for tensor or row scales',
        )
