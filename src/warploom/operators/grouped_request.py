"""The checked arguments of `grouped_matmul`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..collective.epilogue.spec import BIAS_TYPES
from ..collective.tile.sizes import MOST_GROUPS
from ..errors import ArgumentError, ArgumentTypeError
from ..isa import dtypes
from ..isa.dtypes import f32, s32, s64
from ..kernels.hopper.description import Fusion, Product
from ..runtime.arrays import ArrayView, view
from .spec.problem import Problem, product_of
from .spec.validation import check_activation, check_integers


@dataclass(frozen=True)
class Grouped:
    """A call whose arguments were checked.

    Attributes:
        views: its arrays, by name; "marks" are the offsets or the sizes, depending on `what`.
        rows, groups, k, n: `rows` counts the rows of all groups, valid or not.
        shape: of the result.
    """

    views: dict[str, ArrayView]
    what: str
    product: Product
    fusion: Fusion
    rows: int
    groups: int
    k: int
    n: int
    shape: tuple[int, ...]

    @property
    def problem(self) -> Problem:
        """The problem, for which a kernel is chosen."""
        sizes = self.rows, self.n, self.k
        return Problem(*sizes, self.product, self.fusion, groups=self.groups, limits=self.what)


def read(tensors: dict[str, Any], what: str, out: Any, out_dtype: Any, activation: str | None) -> Grouped:
    """Check the arguments. Raises ArgumentError, ArgumentTypeError."""
    views = {name: view(value, what if name == "marks" else name) for name, value in tensors.items()}
    left, right, marks = views["a"], views["b"], views["marks"]
    rank = 2 if what == "offsets" else 3
    if len(left.shape) != rank or len(right.shape) != 3:
        form = "(Rows, K)" if rank == 2 else "(Groups, MaxRows, K)"
        raise ArgumentError(
            "the operands have wrong ranks", expected=f"a {form}, b (Groups, K, N)", got=f"{left.shape}, {right.shape}"
        )
    groups, k, n = right.shape
    if left.shape[-1] != k:
        raise ArgumentError(
            "the inner sizes of `a` and `b` differ",
            expected=f"b of shape ({groups}, {left.shape[-1]}, N)",
            got=right.shape,
            hint="pass a weight stored as (Groups, N, K) as w.mT",
        )  # fmt: skip
    wanted = None if out_dtype is None else dtypes.of(out_dtype)
    product = product_of(left.dtype, right.dtype, wanted or (view(out, "out").dtype if out is not None else None))
    if product.out.bits == 8:
        raise ArgumentTypeError(
            "grouped_matmul has no eight-bit output", expected="out_dtype bf16, f16 or f32", got=str(product.out),
            hint="it would need a scale for each group in advance",
        )  # fmt: skip
    if groups > MOST_GROUPS:
        raise ArgumentError("there are too many groups for one launch", expected=f"at most {MOST_GROUPS}", got=groups)
    _check_marks(marks, what, groups, left.shape[-2])
    if len({(each.device, each.index) for each in views.values()}) > 1:
        raise ArgumentError(
            "the arguments of grouped_matmul are on different devices",
            expected="all on one GPU, or all on the CPU",
            got=f"`a` on {left.place}, `b` on {right.place}, the groups on {marks.place}",
            code="wrong-device",
        )
    if rank == 3 and left.shape[0] != groups:
        raise ArgumentError("`a` and `b` have different numbers of groups", expected=groups, got=left.shape[0])
    check_activation(activation)
    scales = _scales(views, product, left, groups, n)
    bias = views.get("bias")
    if bias is not None and (bias.shape != (groups, n) or bias.dtype not in BIAS_TYPES):
        raise ArgumentError(
            "`bias` has the wrong shape or type",
            expected=f"({groups}, {n}) f32, bf16 or f16",
            got=bias.describe(),
            code="wrong-shape",
        )
    fusion = Fusion(
        scales=scales, bias=None if bias is None else "column", bias_dtype=None if bias is None else bias.dtype,
        activation=activation,
    )  # fmt: skip
    check_integers(product, fusion)
    rows = left.size // k if k else 0
    return Grouped(views, what, product, fusion, rows, groups, k, n, (*left.shape[:-1], n))


def _scales(views: dict[str, ArrayView], product: Product, left: ArrayView, groups: int, n: int) -> str | None:
    """The kind of the scales; `views` gets them in the kernel's layout."""
    given = [views[name] for name in ("scale_a", "scale_b") if name in views]
    if not given:
        return None
    rows = (*left.shape[:-1], 1)
    if len(given) == 2 and all(each.dtype is f32 for each in given):
        a, b = given
        if a.size == b.size == 1 and (a.shape != rows or b.shape != (groups, 1, n)):
            return "tensor"
        if a.shape in (rows, rows[:-1]) and b.shape in ((groups, 1, n), (groups, n)):
            return "row"
    raise ArgumentError(
        "`scale_a` and `scale_b` do not match the operands",
        expected=f"two f32 arrays: one number each, or {rows} and {(groups, 1, n)}",
        got=", ".join(each.describe() for each in given),
    )


def _check_marks(marks: ArrayView, name: str, groups: int, rows: int) -> None:
    if marks.dtype not in (s32, s64):
        raise ArgumentTypeError(f"`{name}` has the wrong type", expected="s32", got=marks.describe(), code="wrong-type")
    if marks.shape != (groups,):
        raise ArgumentError(
            f"the length of `{name}` is not the number of groups", expected=f"({groups},)", got=marks.shape
        )
    if marks.device != "cpu" or marks.host is None or not groups:
        return  # reading them would synchronise with the GPU; the kernel skips rows outside `a`
    given = marks.host
    if name == "offsets" and np.any(np.diff(given, prepend=0) < 0):
        raise ArgumentError("`offsets` descend", expected="the end of each group, ascending", got=given.tolist())
    if given.min() < 0 or given.max() > rows:
        room = "rows of `a`" if name == "offsets" else "rows of a group"
        raise ArgumentError(f"`{name}` are outside `a`", expected=f"0 to {rows}, the {room}", got=given.tolist())
