"""PyTorch: gradients, `torch.compile`, autocast. The layers are in `layers`.

    import warploom.torch
    y = warploom.torch.linear(x, weight, bias, activation="silu")     # or warploom.linear, the same

All of them use the same kernel. An eager call without a gradient goes directly to `warploom.operators`, which knows
the tensors by their addresses. With a gradient it goes through an `autograd.Function`; both gradients are products of
this library. Under `torch.compile` it is the operator `warploom::matmul`, which has a fake implementation and a
gradient formula, so that nothing breaks the graph. The operator has all arguments of `matmul` but `scale_out=` and
`amax=`: a call with these breaks the graph, and with fullgraph=True is refused.

A configuration and a promise of constant weights apply to the product they were given with, not to its gradients.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from ...errors import ArgumentError, ArgumentTypeError
from ...operators import calls
from ...operators.spec.activations import ACTIVATIONS
from ...operators.spec.arguments import ARGUMENTS, ARRAYS, BY_NAME, OF_RESULT_SHAPE
from .arguments import (
    check,
    check_sizes,
    end_graph,
    plain,
    result_dtype,
    rows,
    settled,
    spelled,
    traced,
)
from .attention import attend as attend  # `operators` looks it up here
from .attention_varlen import attend_varlen as attend_varlen
from .custom_operator import NAMESPACE, define
from .decode_operator import traced_decode as traced_decode  # registers warploom::attention_decode
from .sharding import check_all_sharded, sharded, sums_apart
from .tracing import untraced

__all__ = ["linear", "matmul"]

# -- gradients -----------------------------------------------------------------------------------------------------


DIFFERENTIABLE = ("a", "b", "bias", "c", "gate")


def gradients(
    needed: tuple[bool, ...], grad: Tensor, a: Tensor, b: Tensor, bias: Tensor | None,
    c: Tensor | None, gate: Tensor | None, alpha: float, beta: float, activation: str | None,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """The gradients of a, b, bias, c and gate if they are `needed`.

    The input of the activation is not kept: it is recomputed with one more product if there is an activation, or a gate
    that requires a gradient. dA = alpha dZ Bᵀ and dB = alpha Aᵀ dZ, both with this library.
    """
    need_a, need_b, need_bias, need_c, need_gate = needed
    inner = grad
    gate_grad = None
    if activation is not None or (gate is not None and need_gate):
        z = product(a, b, alpha=alpha, bias=None if bias is None else bias.float(), out_dtype=torch.float32)
        if need_gate and gate is not None:
            y = ACTIVATIONS[activation].forward(z.float(), torch) if activation is not None else z
            gate_grad = (grad.float() * y).to(gate.dtype)
        if gate is not None:
            inner = grad.float() * gate.float()
        if activation is not None:
            inner = inner.float() * ACTIVATIONS[activation].slope(z.float(), torch)
        inner = inner.to(grad.dtype)
    elif gate is not None:
        inner = (grad.float() * gate.float()).to(grad.dtype)
    inner = inner.to(a.dtype)
    if 0 in inner.stride():  # of a sum, say: one number everywhere
        inner = inner.contiguous()
    a_grad = fit(product(inner, b.mT, alpha=alpha, out_dtype=a.dtype), a) if need_a else None
    b_grad = None
    if need_b:
        left, right = (a, inner) if b.ndim > 2 else (flat(a), flat(inner))
        if b.stride(-2) == 1:  # a weight's transpose: its gradient has the weight's own order
            b_grad = fit(product(right.mT, left, alpha=alpha, out_dtype=b.dtype).mT, b)
        else:
            b_grad = fit(product(left.mT, right, alpha=alpha, out_dtype=b.dtype), b)
    bias_grad = None
    if need_bias and bias is not None:
        bias_grad = sum_to(inner.float(), bias)
    c_grad = (grad.float() * beta).to(c.dtype) if need_c and c is not None else None
    return a_grad, b_grad, bias_grad, c_grad, gate_grad


def flat(x: Tensor) -> Tensor:
    """(…, M, K) as a matrix."""
    return x.reshape(-1, x.shape[-1]) if x.ndim > 2 else x


def fit(grad: Tensor, like: Tensor) -> Tensor:
    """A gradient summed over the leading dimensions along which its tensor was broadcast."""
    return grad if grad.shape == like.shape else grad.sum_to_size(like.shape).to(like.dtype)


def sum_to(grad: Tensor, bias: Tensor) -> Tensor:
    """The gradient of a bias of the columns (N,) or of the rows (M, 1)."""
    if bias.ndim == 2 and bias.shape[1] == 1 and bias.shape[0] == grad.shape[-2]:
        return flat(grad.sum(-1, keepdim=True)).reshape(-1, *bias.shape).sum(0).to(bias.dtype)
    return flat(grad).sum(0).reshape(bias.shape).to(bias.dtype)


def product(a: Tensor, b: Tensor, **options: Any) -> Tensor:
    """A product without gradient: the operator while tracing, otherwise the library itself."""
    if torch.compiler.is_compiling() or traced(a) or traced(b):
        return operator(a, b, options)
    with torch.no_grad():
        return calls.matmul(a, b, **options)


class Product(torch.autograd.Function):
    """D = activation(alpha A B + bias) * gate + beta C, with its gradients."""

    @staticmethod
    def forward(
        ctx: Any, a: Tensor, b: Tensor, bias: Tensor | None, c: Tensor | None, gate: Tensor | None,
        options: dict[str, Any],
    ) -> Tensor:  # fmt: skip
        """`options`: alpha, beta, activation, out_dtype, config, accumulate, constant_weights. The last is a promise
        about this product; the gradient's products use neither it nor the configuration."""
        ctx.save_for_backward(a, b, bias, c, gate)
        ctx.options = options
        tensors = {"bias": bias, "c": c, "gate": gate}
        given = {name: tensor.detach() for name, tensor in tensors.items() if tensor is not None}
        return calls.matmul(a.detach(), b.detach(), **given, **options)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        """See `gradients`."""
        a, b, bias, c, gate = ctx.saved_tensors
        options = ctx.options
        found = gradients(
            ctx.needs_input_grad[:5], grad, a, b, bias, c, gate, options.get("alpha", 1.0), options.get("beta", 0.0),
            options.get("activation"),
        )  # fmt: skip
        return (*found, None)


# -- the operator --------------------------------------------------------------------------------------------------

POSITIONAL = tuple(name for name in ARRAYS if BY_NAME[name].in_graph)
"""Tensors are positional: torch registers gradients only for such operators."""
_TYPES = {
    "number": "float", "word": "str", "type": "ScalarType?", "flag": "bool", "config": "str?",
}  # fmt: skip
_NAMED = ", ".join(
    f"{_TYPES[each.kind]}{'?' * (each.kind == 'word' and each.default is None)} {each.name}={each.default!r}"
    for each in ARGUMENTS
    if each.in_graph and not each.may_be_array
)
SCHEMA = (
    f"matmul(Tensor a, Tensor b, {', '.join(f'Tensor? {name}=None' for name in POSITIONAL)}, *, {_NAMED}) -> Tensor"
)
OUT_SCHEMA = (
    SCHEMA.replace("matmul(", "matmul_out(").replace("*, ", "*, Tensor(a!) out, ").replace("-> Tensor", "-> ()")
)
"""`config` is the result of `spelled`."""


def operator(a: Tensor, b: Tensor, options: dict[str, Any]) -> Tensor:
    """A call of `warploom::matmul`. Raises ArgumentTypeError for anything that the operators do not support."""
    check_sizes(a, b)
    if sharded(a, b):
        if not torch.compiler.is_compiling():
            check_all_sharded({"a": a, "b": b, **options})
        if options.get("bias") is not None and sums_apart(a, b, options):
            bias = options["bias"]
            return operator(a, b, {name: value for name, value in options.items() if name != "bias"}) + bias
    given = settled(options)
    for name in given:
        if name in BY_NAME and not BY_NAME[name].in_graph:
            end_graph(f"{name}= is not an argument of the operator warploom::matmul")
            raise ArgumentTypeError(
                f"{name}= is not an argument of the operator warploom::matmul, which replaces matmul in a graph",
                expected="a, b, residual, " + ", ".join(each.name for each in ARGUMENTS if each.in_graph),
                hint="call it outside the graph",
            )
    for name in ("activation", "accumulate"):
        if not isinstance(given.get(name, ""), str):
            end_graph(f"{name}= is not a known choice")
            raise ArgumentTypeError(f"{name}= is not a known choice", expected="a name", got=type(given[name]).__name__)
    if "out_dtype" in given:
        given["out_dtype"] = result_dtype(given["out_dtype"])
    if "config" in given:
        given["config"] = spelled(given["config"])
    if "constant_weights" in given:
        given["constant_weights"] = bool(given["constant_weights"])
    out = given.pop("out", None)
    if out is not None:
        torch.ops.warploom.matmul_out(a, b, out=out, **given)
        return out
    return torch.ops.warploom.matmul(a, b, **given)


def _run(a: Tensor, b: Tensor, *tensors: Tensor | None, **options: Any) -> Tensor:
    everything = {**dict(zip(POSITIONAL, tensors, strict=False)), **options}
    given = {name: plain(value) for name, value in everything.items() if value is not None}
    kind = a.device.type
    cast_before = torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()
    with torch.no_grad(), cast_before:
        return calls.matmul(plain(a), plain(b), **given)


def _run_out(a: Tensor, b: Tensor, *tensors: Tensor | None, **options: Any) -> None:
    _run(a, b, *tensors, **options)


def _fake(a: Tensor, b: Tensor, *rest: Any, out_dtype: torch.dtype | None = None, **options: Any) -> Tensor:
    """Shape and type of the result; the checks that need no memory."""
    check_sizes(a, b)
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return a.new_empty((*batch, a.shape[-2], b.shape[-1]), dtype=out_dtype or result_type(a))


def result_type(a: Tensor) -> torch.dtype:
    """The type of a product of tensors of a's type."""
    if a.dtype is torch.int8:
        return torch.int32
    return torch.bfloat16 if a.element_size() == 1 else a.dtype


def _fake_out(a: Tensor, b: Tensor, *rest: Any, out: Tensor, **options: Any) -> None:
    return None


def _setup(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Tensor) -> None:
    given = keyword_only_inputs
    tensors = dict(zip(("a", "b", *POSITIONAL), inputs, strict=True))
    if tensors["scale_a"] is not None or tensors["scale_b"] is not None:
        raise no_gradient_of_fp8()
    ctx.save_for_backward(*(tensors[name] for name in DIFFERENTIABLE))
    ctx.options = given["alpha"], given["beta"], given["activation"]


def _backward(ctx: Any, grad: Tensor) -> Any:
    a, b, bias, c, gate = ctx.saved_tensors
    names = ("a", "b", *POSITIONAL)[: len(ctx.needs_input_grad)]  # trailing arguments may be omitted
    wanted = dict(zip(names, ctx.needs_input_grad, strict=True))
    needed = tuple(wanted.get(name, False) for name in DIFFERENTIABLE)
    found = dict(zip(DIFFERENTIABLE, gradients(needed, grad, a, b, bias, c, gate, *ctx.options), strict=True))
    return tuple(found.get(name) for name in names)


def no_gradient_of_fp8() -> ArgumentTypeError:
    """The error of a gradient through eight-bit operands."""
    return ArgumentTypeError(
        "gradients of products with eight-bit operands or tensor scales are not supported",
        expected="tensors without requires_grad",
        hint="call it under torch.no_grad(), or multiply bf16, with a number for the scale",
    )


def _register() -> Any:
    """Define the operators; the library object must stay alive."""
    library = torch.library.Library(NAMESPACE, "DEF")
    define(library, SCHEMA, _run, _fake, _backward, _setup)
    define(library, OUT_SCHEMA, _run_out, _fake_out)
    return library


_LIBRARY = _register()


# -- calls ---------------------------------------------------------------------------------------------------------


def dispatch(what: str, a: Tensor, b: Tensor, out: Tensor | None, options: dict[str, Any]) -> Tensor:
    """A call of "matmul" or "linear" that needs more than a product: a gradient, autocast, or a tracer.

    Tensors of a subclass without `__torch_dispatch__` are treated as the plain tensors they are, and give one.
    Raises ArgumentError for `out` if a gradient is required.
    """
    options = {name: value for name, value in options.items() if value is not None}
    check(what, a, b, out, options)
    given = out
    a, b, out, options = plain(a), plain(b), plain(out), {name: plain(value) for name, value in options.items()}
    a, b, options = cast(a, b, options)
    vector = False
    if what == "linear":
        a, b, out, options, vector = rows(a, b, out, options)
    tensors = [a, b, *(options[name] for name in ARRAYS if isinstance(options.get(name), Tensor))]
    wanted = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (*tensors, out) if tensor is not None)
    if wanted and out is not None:
        raise ArgumentError(
            "a product that requires a gradient cannot be written into `out`",
            expected="no out=, or tensors without requires_grad",
            hint="call it under torch.no_grad()",
            code="not-writable",
        )
    if any(map(traced, tensors)):
        result = operator(a, b, {**options, "out": out})
    elif wanted:
        result = with_gradient(a, b, options)
    else:
        result = calls.compute("matmul", {"a": a, "b": b}, out, options)
    if given is not None:
        return given
    return result[0] if vector else result


def with_gradient(a: Tensor, b: Tensor, options: dict[str, Any]) -> Tensor:
    """An eager product with its gradients."""
    given = settled(options)
    if any(name in given for name in ("scale_a", "scale_b")) or 1 in (a.element_size(), b.element_size()):
        raise no_gradient_of_fp8()
    if given.get("scale_out") is not None or given.get("amax") is not None:
        raise ArgumentTypeError("gradients of eight-bit outputs are not supported", expected="no scale_out=, amax=")
    bias, c, gate = (given.pop(name, None) for name in ("bias", "c", "gate"))
    return Product.apply(a, b, bias, c, gate, given)


def cast(a: Tensor, b: Tensor, options: dict[str, Any]) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Under autocast, f32 operands get the requested type, and addends and factors follow the result.

    A promise of constant weights does not cover the copy of them that is made then.
    """
    kind = a.device.type
    if kind not in ("cuda", "cpu") or not torch.is_autocast_enabled(kind):
        return a, b, options
    wanted, weights = torch.get_autocast_dtype(kind), b.dtype
    a, b = (tensor.to(wanted) if tensor.dtype is torch.float32 else tensor for tensor in (a, b))
    if a.dtype is not b.dtype and {a.dtype, b.dtype} <= {torch.float16, torch.bfloat16}:
        a, b = a.to(wanted), b.to(wanted)
    if b.dtype is not weights:
        options = {name: value for name, value in options.items() if name != "constant_weights"}
    if options.get("out_dtype") is None:
        changed = {name: options[name].to(result_type(a)) for name in OF_RESULT_SHAPE if options.get(name) is not None}
        options = {**options, **changed}
    return a, b, options


def traced_matmul(a: Tensor, b: Tensor, *, out: Tensor | None = None, **options: Any) -> Tensor:
    """`warploom.matmul` as torch.compile sees it: one operator."""
    options = {name: value for name, value in options.items() if value is not None}
    check("matmul", a, b, out, options)
    a, b, options = cast(a, b, options)
    return operator(a, b, {**options, "out": out})


def traced_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None, **options: Any
) -> Tensor:
    """`warploom.linear` as torch.compile sees it."""
    options = {name: value for name, value in {"bias": bias, **options}.items() if value is not None}
    check("linear", x, weight, out, options)
    given = out
    a, b, out, options, vector = rows(x, weight, out, options)
    result = traced_matmul(a, b, out=out, **options)
    if given is not None:
        return given
    return result[0] if vector else result


matmul, linear = calls.matmul, calls.linear
# Dynamo follows this attribute instead of the function's own code, whose tables of addresses it could not trace; an
# eager call does not see it.
matmul._torchdynamo_inline = traced_matmul  # type: ignore[attr-defined]
linear._torchdynamo_inline = traced_linear  # type: ignore[attr-defined]
untraced(calls.matmul)
untraced(calls.linear)
