"""Reads and checks the arguments of one call of `matmul`; a wrong argument is refused here with an explanation.

A `Request` has the views of all arrays, in the orientation in which they were passed, and the resulting `Problem`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np

from ..collective.epilogue.spec import BIAS_TYPES, Fusion
from ..errors import ArgumentError, ArgumentTypeError
from ..isa import dtypes
from ..isa.dtypes import DType, f32
from ..runtime.arrays import ArrayView, view
from ..runtime.validate import same_memory
from .outputs import check_apart, check_output
from .spec.arguments import ACCUMULATE, ARRAYS
from .spec.problem import Problem, product_of
from .spec.scales import as_float, read_scales, with_majors
from .spec.validation import check_integers, check_together
from .views import merged, restrided, stored, transposed


@dataclass(frozen=True)
class Request:
    """The checked arguments of a call.

    Attributes:
        problem: what is computed.
        a, b: (…, M, K) and (…, K, N), with leading dimensions as passed, or merged into the rows of `a`.
        shape: of the result.
        out, c, gate: (…, M, N) or None.
        bias: (N,), or (M,) for a row bias.
        scale_a, scale_b, scale_out, amax: f32.
        alpha, beta: numbers.
        config: the configuration that the caller pinned.
        called: "matmul" or "linear"; messages use its names for `a` and `b`.
    """

    problem: Problem
    a: ArrayView
    b: ArrayView
    shape: tuple[int, ...]
    out: ArrayView | None = None
    c: ArrayView | None = None
    gate: ArrayView | None = None
    bias: ArrayView | None = None
    scale_a: ArrayView | None = None
    scale_b: ArrayView | None = None
    scale_out: ArrayView | None = None
    amax: ArrayView | None = None
    alpha: float = 1.0
    beta: float = 0.0
    config: Any = None
    called: str = "matmul"

    def said(self, name: str) -> str:
        """The caller's name for an array of the call."""
        return {"a": "x", "b": "weight"}.get(name, name) if self.called == "linear" else name

    @property
    def in_place(self) -> bool:
        """True if C is the memory of the result: the product is added in place, as for gradients."""
        return self.c is not None and self.out is not None and same_memory(self.c, self.out)

    @property
    def named(self) -> list[tuple[str, ArrayView]]:
        """All arrays of the call, by name."""
        names = ("a", "b", "out", *(name for name in ARRAYS if name != "residual"))
        return [(name, getattr(self, name)) for name in names if getattr(self, name) is not None]


def check_residual(addend: Any, beta: float) -> None:
    """Raise ArgumentError if `residual=` is given together with `c=` or another factor."""
    if addend is not None:
        raise ArgumentError(
            "`c` and `residual` are both given, but only one array can be added",
            expected="one of them",
            hint="residual=r is c=r, beta=1",
        )
    if beta not in (0.0, 1.0):
        raise ArgumentError(
            "`residual` is added without a factor, but beta= is given", expected="no beta=", got=f"beta={beta}",
            hint="c=r, beta=… scales it",
        )  # fmt: skip


def check_linear(x: tuple[int, ...], weight: tuple[int, ...]) -> None:
    """Raise ArgumentError if arrays of these shapes cannot be `x` and `weight` of `linear`."""
    if len(weight) != 2:
        raise ArgumentError("`weight` is not a matrix", expected="(N, K)", got=f"shape {weight}")
    if not x:
        raise ArgumentError("`x` needs at least one dimension", expected="(…, K), or (K,) for a vector", got="shape ()")
    if x[-1] != weight[1]:
        raise ArgumentError(
            "the inner sizes of `x` and `weight` differ",
            expected=f"weight of shape (N, {x[-1]}), for x is {x}",
            got=f"weight of shape {weight}",
            hint="pass a weight stored as (K, N) as weight.T, or call matmul(x, weight)"
            if x[-1] == weight[0]
            else None,
        )


def read(a: Any, b: Any, options: Mapping[str, Any], called: str = "matmul") -> Request:
    """Check the arguments. `options`: those of `matmul`, by name; called: "matmul" or "linear", for messages.

    Raises ArgumentError or ArgumentTypeError that name the argument, the expectation and what was passed.
    """
    left, right = view(a, "a"), view(b, "b")
    m, n, k, batch = _sizes(left, right)
    out = _optional(options, "out")
    wanted = options.get("out_dtype")
    out_dtype = dtypes.of(wanted) if wanted is not None else out.dtype if out is not None else None
    product = product_of(left.dtype, right.dtype, out_dtype)
    alpha, beta = _number(options.get("alpha", 1.0), "alpha"), _number(options.get("beta", 0.0), "beta")
    shape = (*batch, m, n)

    addend, residual = _optional(options, "c"), _optional(options, "residual")
    if residual is not None:
        check_residual(addend, beta)
        addend, beta = residual, 1.0
    elif addend is None and beta != 0.0:
        raise ArgumentError("beta= is given without the matrix it multiplies", expected="c=", got=f"beta={beta}")
    elif addend is not None and beta == 0.0:
        raise ArgumentError(
            "`c` is given and beta is 0, so it would not be read", expected="a beta", hint="beta=1 adds it unchanged"
        )
    what = "residual" if residual is not None else "c"
    addend = _matrix(addend, what, shape, product.out)
    gate = _matrix(_optional(options, "gate"), "gate", shape, product.out)
    bias, along = _bias(_optional(options, "bias"), m, n)
    activation = options.get("activation")
    accumulate = options.get("accumulate", "default")
    if not isinstance(accumulate, str) or accumulate not in ACCUMULATE:
        raise ArgumentError("accumulate= is not a known choice", expected=", ".join(ACCUMULATE), got=repr(accumulate))
    fused = Fusion(
        alpha=alpha != 1.0, bias=along, bias_dtype=bias.dtype if bias is not None else None, activation=activation,
        gate=gate is not None, addend=addend is not None,
    )  # fmt: skip
    check_integers(product, fused)

    scale_a, scale_b, scales, factor = read_scales(options, product.a, m, n, k, accumulate == "precise")
    alpha *= factor
    scale_out = _one(options.get("scale_out"), "scale_out", left)
    amax = _optional(options, "amax")
    if amax is not None and (amax.dtype is not f32 or amax.size != 1):
        raise ArgumentTypeError("amax= takes a buffer of one f32", got=amax.describe())
    if amax is not None:
        check_output(amax, "amax", amax.shape, f32)
    fusion = replace(
        fused, alpha=alpha != 1.0, scales=scales, scale_out=scale_out is not None, amax=amax is not None
    )  # fmt: skip
    out = None if out is None else check_output(out, "out", shape, product.out)
    promise = options.get("constant_weights", False)
    if type(promise) is not bool:
        raise ArgumentTypeError("constant_weights= is a promise", expected="True or False", got=repr(promise)[:80])
    problem = Problem(m, n, k, product, fusion, batch, accumulate, promise)
    check_together(problem)
    if problem.promoted:
        problem = replace(problem, fusion=replace(fusion, scales="block128"))
    elif accumulate == "precise" and product.a.bits != 8:  # the tensor core already adds 16-bit products in f32
        problem = replace(problem, accumulate="default")
    request = Request(
        problem, left, right, shape, out, addend, gate, bias,
        scale_a, scale_b, scale_out, amax, alpha, beta, options.get("config"), called,
    )  # fmt: skip
    _one_place(request)
    if request.out is not None:
        inputs = ((name, array) for name, array in request.named if name != "out")
        apart = ((request.said(name), array) for name, array in inputs if name != "c" or not request.in_place)
        check_apart(request.out, "out", apart, allowed="c")
    return _with_layouts(_flattened(request))


# -- sizes ---------------------------------------------------------------------------------------------------------


def _sizes(a: ArrayView, b: ArrayView) -> tuple[int, int, int, tuple[int, ...]]:
    for name, array in (("a", a), ("b", b)):
        if len(array.shape) < 2:
            raise ArgumentError(
                f"`{name}` is not a matrix",
                expected="(M, K) and (K, N), with the same leading dimensions or none",
                got=f"shape {array.shape}",
                hint="a single row is x[None, :], a column x[:, None]",
            )
    (m, k), (other, n) = a.shape[-2:], b.shape[-2:]
    if k != other:
        hint = "pass a weight stored as (N, K) as w.T, or call linear(x, w)" if b.shape[-1] == k else None
        raise ArgumentError(
            "the inner sizes of `a` and `b` differ",
            expected=f"b of shape (…, {k}, N), as a is {a.shape}",
            got=f"b of shape {b.shape}",
            hint=hint,
        )
    try:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ArgumentError(
            "the leading dimensions of `a` and `b` do not match",
            expected="equal, or 1, or missing",
            got=f"{a.shape} and {b.shape}",
        ) from None
    return m, n, k, batch


def _flattened(request: Request) -> Request:
    """(…, M, K) times one (K, N) becomes one product of more rows, if the rows of `a`, and of everything that is added
    row by row, are evenly spaced."""
    problem = request.problem
    if not problem.batch or any(length != 1 for length in request.b.shape[:-2]) or problem.fusion.bias == "row":
        return request
    if request.a.shape[:-2] != problem.batch or problem.fusion.scales not in (None, "tensor"):
        return request
    rows: dict[str, ArrayView | None] = {name: getattr(request, name) for name in ("a", "out", "c", "gate")}
    flat = {name: None if array is None else merged(array) for name, array in rows.items()}
    if any(array is not None and flat[name] is None for name, array in rows.items()):
        return request
    b = restrided(request.b, request.b.shape[-2:], request.b.strides[-2:])
    count = problem.count * problem.m
    return replace(
        request, problem=replace(problem, m=count, batch=()), a=flat["a"] or request.a, b=b, out=flat["out"],
        c=flat["c"], gate=flat["gate"],
    )  # fmt: skip


def _with_layouts(request: Request) -> Request:
    """The problem with the layouts in which its operands will be read."""
    problem, sixteen = request.problem, request.a.dtype.bits == 16
    if 0 in (problem.m, problem.n, problem.k, *problem.batch):
        return request
    first_a = restrided(request.a, request.a.shape[-2:], request.a.strides[-2:])
    first_b = transposed(restrided(request.b, request.b.shape[-2:], request.b.strides[-2:]))
    product = replace(problem.product, a_major=stored(first_a, sixteen).major, b_major=stored(first_b, sixteen).major)
    problem = replace(problem, product=product)
    if problem.promoted:
        problem = with_majors(problem, request.scale_a, request.scale_b)
    return replace(request, problem=problem)


# -- arguments -----------------------------------------------------------------------------------------------------


def _optional(options: Mapping[str, Any], name: str) -> ArrayView | None:
    value = options.get(name)
    return None if value is None else view(value, name)


def _number(value: Any, name: str) -> float:
    if isinstance(value, Real) and not isinstance(value, bool):
        return as_float(value, name)
    raise ArgumentTypeError(
        f"{name}= is not a number", expected="an int or a float", got=type(value).__name__, hint="for a factor on "
        "the GPU use scale_a=" if name == "alpha" else None,
    )  # fmt: skip


def _matrix(array: ArrayView | None, name: str, shape: tuple[int, ...], dtype: DType) -> ArrayView | None:
    if array is None:
        return None
    if array.dtype is not dtype:
        raise ArgumentTypeError(
            f"`{name}` has a different type from the result", expected=dtype, got=array.describe(), hint="convert it"
        )
    if array.shape != shape:
        raise ArgumentError(f"`{name}` has a different shape from the result", expected=shape, got=array.shape)
    return array


def _bias(bias: ArrayView | None, m: int, n: int) -> tuple[ArrayView | None, str | None]:
    if bias is None:
        return None, None
    if bias.dtype not in BIAS_TYPES:
        raise ArgumentTypeError(
            "`bias` has the wrong type",
            expected=", ".join(map(str, BIAS_TYPES)),
            got=bias.describe(),
            code="wrong-type",
        )
    if bias.shape in ((n,), (1, n)):
        return restrided(bias, (n,), (bias.strides[-1],)), "column"
    if bias.shape == (m, 1):
        return restrided(bias, (m,), (bias.strides[0],)), "row"
    raise ArgumentError(
        "`bias` has the wrong length",
        expected=f"shape ({n},), one value per column, or ({m}, 1), one per row",
        got=f"shape {bias.shape}",
    )


def _one(value: Any, name: str, model: ArrayView) -> ArrayView | None:
    """One f32 in the memory of the machine that runs the product."""
    if value is None:
        return None
    if isinstance(value, Real):
        if model.device != "cpu":
            raise ArgumentTypeError(
                f"{name}= is a number, but the kernel reads it from the GPU's memory",
                expected="an array of one f32 there",
                got=repr(value),
            )
        return view(np.array([value], np.float32), name)
    array = view(value, name)
    if array.dtype is not f32 or array.size != 1:
        raise ArgumentTypeError(f"{name}= is not one f32", got=array.describe())
    return restrided(array, (1,), (4,))


def _one_place(request: Request) -> None:
    if len({(array.device, array.index) for _, array in request.named}) > 1:
        raise ArgumentError(
            f"the arguments of {request.called} are on different devices",
            expected="all on one GPU, or all on the CPU",
            got=", ".join(f"`{request.said(name)}` on {array.place}" for name, array in request.named),
            hint="move them with .to(device)",
            code="wrong-device",
        )
