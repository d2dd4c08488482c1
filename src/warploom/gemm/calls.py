"""`matmul` and `linear`: the calls people make. What they mean is `reference.matmul`; how they run is `run`.

A call of a kind that was seen before goes from its arguments to the driver by `eager`, without any of the rest.
"""

from __future__ import annotations

from typing import Any

from ..errors import ArgumentError
from ..runtime.arrays import view
from .eager import launches
from .frameworks import front
from .request import read
from .run import run
from .views import restrided, transposed

_LAUNCHES = launches()
_ENTRIES = _LAUNCHES.entries
_PLAIN, _LINEAR = ("matmul",), ("linear",)
NAMES = ("bias", "c", "residual", "gate", "scale_a", "scale_b", "scale_out", "amax")
"""Arguments that may be arrays, beside a, b and out."""


def matmul(
    a: Any,
    b: Any,
    *,
    out: Any = None,
    out_dtype: Any = None,
    c: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    bias: Any = None,
    activation: str | None = None,
    residual: Any = None,
    gate: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    scale_out: Any = None,
    amax: Any = None,
    accumulate: str = "default",
    config: Any = None,
) -> Any:
    """D = A B, and what follows it, in one kernel.

        x = alpha * scale_a * scale_b * (A B)
        D = (activation(x + bias) * gate + beta * c) * scale_out        each step in f32, one rounding at the end

    CUDA arrays run on their GPU, on the caller's stream, without waiting; NumPy arrays and CPU tensors in the emulator.

    Args:
        a, b: (…, M, K) and (…, K, N); leading dimensions are broadcast, one launch for each product (one for all where
            `b` is a matrix and the rows of `a` lie evenly). bf16, f16, f32 (multiplied as tf32), s8, or any two of
            e4m3 and e5m2. Any strides: what TMA cannot address is copied, with a CopyWarning that says what it costs.
        out: where D goes; (…, M, N).
        out_dtype: bf16, f16, f32, e4m3, e5m2; s32 for s8. By default a's type, bf16 for fp8.
        c, beta: beta * c is added; c is shaped and typed as D.
        residual: the same with beta = 1.
        alpha: a number.
        bias: (N,), or (M, 1) for one value a row; D's type or f32.
        activation: "relu", "gelu" (by erf), "gelu_tanh", "silu".
        gate: multiplies what the activation gives, (…, M, N), D's type: silu(a b) * gate is SwiGLU.
        scale_a, scale_b: as in torch._scaled_mm: f32, one number each (or Python numbers); (M, 1) and (1, N); or, for
            blocks of 128, (M, K/128) and (K/128, N/128).
        scale_out: one f32 that multiplies an eight-bit output; amax: one f32 that takes the largest |x| before it.
        accumulate: "default", "fast" (the tensor core's own sums) or "precise" (fp8: promoted to f32 every 128 of k).
        config: a configuration instead of the chosen one; see `warploom.gemm.explain`.

    M or N of 0 gives an empty result; K = 0 gives the fused end of zeros.

    Raises ArgumentError and ArgumentTypeError for what does not fit (nothing was launched then), CostLimitError for an
    emulation that would take too long, DriverError, CompilationError. Tensors that require grad get a result with a
    gradient (`warploom.torch`); with `out=` they are refused.
    """
    if (
        bias is None and activation is None and scale_a is None and out_dtype is None and c is None and gate is None
        and residual is None and scale_b is None and alpha == 1.0 and config is None and scale_out is None
        and amax is None and accumulate == "default"
    ):  # fmt: skip
        try:  # the plain product of tensors that came before, written out: this is what a call costs
            entry = _ENTRIES.get((_PLAIN, (a.data_ptr(), b.data_ptr())))
            if (
                entry is not None
                and entry.facts
                == (
                    (a.shape, a.dtype, a.is_contiguous() or a.stride()),
                    (b.shape, b.dtype, b.is_contiguous() or b.stride()),
                )
                and not ((a.requires_grad or b.requires_grad) and _LAUNCHES.grad_enabled())
            ):
                result = _LAUNCHES.run(entry, out)
                if result is not None:
                    return result
        except (AttributeError, RuntimeError):
            pass
        return _slowly(_PLAIN, {"a": a, "b": b}, out, {})
    options = {
        "out_dtype": out_dtype, "c": c, "alpha": alpha, "beta": beta, "bias": bias, "activation": activation,
        "residual": residual, "gate": gate, "scale_a": scale_a, "scale_b": scale_b, "scale_out": scale_out,
        "amax": amax, "accumulate": accumulate, "config": config,
    }  # fmt: skip
    return _with_options("matmul", a, b, out, options)


def linear(x: Any, weight: Any, bias: Any = None, *, out: Any = None, **options: Any) -> Any:
    """x Wᵀ + bias, as `torch.nn.functional.linear`, and whatever else `matmul` fuses.

    Args:
        x: (…, K).
        weight: (N, K), the layout that is read fastest.
        bias: (N,) or None.
        out: where the result goes, (…, N).
        options: `matmul`'s: activation, residual, gate, out_dtype, scale_a, scale_b, …

    A vector x (K,) gives a vector (N,). Raises as `matmul` does.
    """
    if not options and bias is None:
        try:
            entry = _ENTRIES.get((_LINEAR, (x.data_ptr(), weight.data_ptr())))
            if (
                entry is not None
                and entry.facts
                == (
                    (x.shape, x.dtype, x.is_contiguous() or x.stride()),
                    (weight.shape, weight.dtype, weight.is_contiguous() or weight.stride()),
                )
                and not ((x.requires_grad or weight.requires_grad) and _LAUNCHES.grad_enabled())
            ):
                result = _LAUNCHES.run(entry, out)
                if result is not None:
                    return result
        except (AttributeError, RuntimeError):
            pass
        return _slowly(_LINEAR, {"a": x, "b": weight}, out, {})
    return _with_options("linear", x, weight, out, {"bias": bias, **options})


def _with_options(what: str, a: Any, b: Any, out: Any, options: dict[str, Any]) -> Any:
    """A call with more than two operands."""
    tensors: dict[str, Any] = {"a": a, "b": b}
    static: list[Any] = [what]
    for name, value in options.items():
        if value is None:
            continue
        if name in NAMES and not isinstance(value, (int, float)):
            tensors[name] = value
            static.append(name)
        else:
            static.append((name, value))
    key = tuple(static)
    try:
        result = _LAUNCHES.again(key, tuple(tensors.values()), out)
    except TypeError:  # an option that cannot be hashed: the checks will say what is wrong with it
        result = None
    if result is not None:
        return result
    return _slowly(key, tensors, out, {name: value for name, value in options.items() if value is not None})


def _slowly(static: tuple[Any, ...], tensors: dict[str, Any], out: Any, options: dict[str, Any]) -> Any:
    """The whole way: kinds that are known at other addresses, frameworks, checks, choice, kernel."""
    a, b, what = tensors["a"], tensors["b"], static[0]
    if not options:
        result = _LAUNCHES.again(static, (a, b), out)
        if result is not None:
            return result
    plugin = front((*tensors.values(), out))
    if plugin is not None:
        return plugin.dispatch(what, a, b, out, options)
    return compute(what, tensors, out, options, static)


def compute(
    what: str, tensors: dict[str, Any], out: Any, options: dict[str, Any], static: tuple[Any, ...] | None = None
) -> Any:
    """Check, choose and run, whatever the framework would say to it. A plug-in ends here.

    tensors: the arrays of the call by name; options: all of `matmul`'s that are given.
    """
    a, b = tensors["a"], tensors["b"]
    vector = False
    if what == "linear":
        a, b, vector = _linear_operands(a, b)
    result = out
    if vector and out is not None:
        result = out[None, :]
    request = read(a, b, {**options, "out": result})
    outcome = run(request, result)
    if outcome.launches and static is not None and not vector:
        _LAUNCHES.remember(static, tensors, outcome.result, outcome.launches)
    if not vector:
        return outcome.result
    return out if out is not None else outcome.result[0]


def _linear_operands(x: Any, weight: Any) -> tuple[Any, Any, bool]:
    """(…, M, K) and (K, N) of linear's arguments, and whether x is a vector."""
    w, seen = view(weight, "weight"), view(x, "x")
    if len(w.shape) != 2:
        raise ArgumentError("`weight` is no matrix", expected="(N, K)", got=f"shape {w.shape}")
    vector = len(seen.shape) == 1
    if vector:
        seen = restrided(seen, (1, *seen.shape), (seen.strides[0] * max(seen.shape[0], 1), *seen.strides))
    return seen, transposed(w), vector
