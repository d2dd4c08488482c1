"""`matmul` and `linear`: the calls people make. What they mean is `reference.matmul`.

A call that was seen before goes from its arguments to the driver by `runtime.launch_cache`, without any of the rest.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError
from ..runtime.arrays import view
from ..runtime.launch_cache import LaunchCache
from ..settings import FIRST_CALLS
from ..settings import config as settings
from . import first_calls
from .dispatch_hook import plugin_for
from .execute import run
from .request import check_linear, read
from .spec.arguments import ARRAYS, DEFAULTS, OF_RESULT_SHAPE, check_names, signature
from .tune import tune_before
from .views import restrided, transposed

CACHE = LaunchCache(differentiable=True)
"""The launches of `matmul`, `linear` and `grouped_matmul`. Keys of hits: what was called (not for a plain `matmul`),
each option's name, type and value or address, then the addresses of a, b and, where it is given, out."""
_HITS = CACHE.hits


def _matmul(a: Any, b: Any, *, out: Any = None, **options: Any) -> Any:
    """D = A B, and what follows it, in one kernel.

        x = alpha * scale_a * scale_b * (A B)
        D = (activation(x + bias) * gate + beta * c) * scale_out        each step in f32, one rounding at the end

    CUDA arrays run on their GPU, on the caller's stream, without waiting; NumPy arrays and CPU tensors in the emulator.

    Args:
        a, b: (…, M, K) and (…, K, N); leading dimensions are broadcast, one launch for each product (one for all where
            `b` is a matrix and the rows of `a` are evenly spaced). bf16, f16, f32 (multiplied as tf32), s8, or any two
            of e4m3 and e5m2. Any strides: what TMA cannot address is copied; a CopyWarning says what that costs.
        out: where D goes; (…, M, N).
        out_dtype: bf16, f16, f32, e4m3, e5m2; s32 for s8. By default a's type, bf16 for fp8.
        c, beta: beta * c is added; c is shaped and typed as D.
        residual: the same with beta = 1.
        alpha: a number.
        bias: (N,), or (M, 1) for one value a row; f32, bf16 or f16.
        activation: "relu", "gelu" (by erf), "gelu_tanh", "silu".
        gate: multiplies what the activation gives, (…, M, N), D's type: silu(a b) * gate is SwiGLU.
        scale_a, scale_b: as in torch._scaled_mm: f32, one number each (or Python numbers); (M, 1) and (1, N); or, for
            blocks of 128, (M, K/128) and (K/128, N/128).
        scale_out: one f32 that multiplies an eight-bit output; amax: one f32 that takes the largest |x| before it.
        accumulate: "default", "fast" (the tensor core's own sums) or "precise" (fp8: promoted to f32 every 128 of k).
        constant_weights: your promise that no kernel that may still run writes `b`: a small-M kernel then loads it
            while the kernel before it in the stream ends.
        config: a configuration instead of the chosen one, or its name as `warploom explain M N K` shows it.

    M or N of 0 gives an empty result; K = 0 gives the fused end of zeros.

    Raises ArgumentError and ArgumentTypeError for what does not fit (nothing was launched then), CostLimitError for an
    emulation that would take too long, DriverError, CompilationError. Tensors that require grad get a result with a
    gradient (`warploom.torch`); with `out=` they are refused.
    """
    if not options:
        try:  # the plain product of tensors that came before, written out: this is all that such a call costs
            if out is not None:
                check, ready, current, launch = _HITS[a.data_ptr(), b.data_ptr(), out.data_ptr()]
                if check(a, b, out):
                    stream = current()
                    if status := ready[stream]():
                        launch.check(status, stream)
                    return out
            else:
                check, _, _, entry = _HITS[a.data_ptr(), b.data_ptr()]
                if check(a, b) and (made := CACHE.fresh(entry)) is not None:
                    return made
        except (AttributeError, KeyError, RuntimeError):  # not tensors, or none that came before
            pass
    return _again("matmul", a, b, out, options)


def _linear(x: Any, weight: Any, bias: Any = None, *, out: Any = None, **options: Any) -> Any:
    """x Wᵀ + bias, as `torch.nn.functional.linear`, and whatever else `matmul` fuses.

    Args:
        x: (…, K).
        weight: (N, K), the layout that is read fastest.
        bias: (N,) or None.
        out: where the result goes, (…, N).
        options: `matmul`'s: activation, residual, gate, out_dtype, scale_a, scale_b, …

    A vector x (K,) gives a vector (N,). Raises as `matmul` does.
    """
    if not options:
        try:
            if bias is not None:
                key = "linear", "bias", type(bias), bias.data_ptr(), x.data_ptr(), weight.data_ptr()
                if out is None:
                    check, _, _, entry = _HITS[key]
                    if check(x, weight, bias) and (made := CACHE.fresh(entry)) is not None:
                        return made
                elif CACHE.hit((*key, out.data_ptr()), (x, weight, bias, out)) is not None:
                    return out
            elif out is not None:
                check, ready, current, launch = _HITS["linear", x.data_ptr(), weight.data_ptr(), out.data_ptr()]
                if check(x, weight, out):
                    stream = current()
                    if status := ready[stream]():
                        launch.check(status, stream)
                    return out
            else:
                check, _, _, entry = _HITS["linear", x.data_ptr(), weight.data_ptr()]
                if check(x, weight) and (made := CACHE.fresh(entry)) is not None:
                    return made
        except (AttributeError, KeyError, RuntimeError):
            pass
    return _again("linear", x, weight, out, options if bias is None else {"bias": bias, **options})


if TYPE_CHECKING:

    def matmul(
        a: Any, b: Any, *, out: Any = None, out_dtype: Any = None, bias: Any = None, c: Any = None, alpha: float = 1.0,
        beta: float = 0.0, activation: str | None = None, residual: Any = None, gate: Any = None, scale_a: Any = None,
        scale_b: Any = None, scale_out: Any = None, amax: Any = None, accumulate: str = "default",
        constant_weights: bool = False, config: Any = None,
    ) -> Any: ...  # fmt: skip

    def linear(x: Any, weight: Any, bias: Any = None, *, out: Any = None, **options: Any) -> Any: ...
else:
    matmul, linear = _matmul, _linear
    matmul.__name__ = matmul.__qualname__ = "matmul"
    linear.__name__ = linear.__qualname__ = "linear"
    matmul.__signature__ = signature()


def _again(what: str, a: Any, b: Any, out: Any, options: dict[str, Any]) -> Any:
    """A call that may have come before: exactly, or with other tensors of the same kind."""
    key: Any = None
    outs = () if out is None else (out,)
    compiling = _compiling()  # then there are no addresses to look up
    if not compiling:
        try:
            key, tensors = _key(what, a, b, outs, options)
            made = CACHE.hit(key, tensors)
            if made is not None:
                return made[0] if made else out
        except (AttributeError, TypeError, RuntimeError):  # not tensors, or an option without a hash
            key = None
    named, static = _split(what, a, b, options)
    if not compiling:
        try:
            made = CACHE.again(static, tuple(named.values()), outs, key)
            if made is not None:
                return made[0]
        except TypeError:  # an option without a hash: the checks will say what is wrong with it
            pass
    given = {name: value for name, value in options.items() if value is not None}
    plugin = plugin_for((*named.values(), out))
    if plugin is not None:
        return plugin.dispatch(what, a, b, out, given)
    return compute(what, named, out, given, static)


def _key(
    what: str, a: Any, b: Any, outs: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], list[Any]]:  # fmt: skip
    """All that a call's launch depends on besides what a guard checks, and its tensors."""
    key: list[Any] = [] if what == "matmul" else [what]
    tensors, types = [a, b], CACHE.tensor_types
    for name, value in options.items():
        kind = type(value)
        if kind in types:
            tensors.append(value)
            key += name, kind, value.data_ptr()
        elif value is not None:
            key += name, kind, value
    key += a.data_ptr(), b.data_ptr()
    for out in outs:
        tensors.append(out)
        key.append(out.data_ptr())
    return tuple(key), tensors


def _split(what: str, a: Any, b: Any, options: dict[str, Any]) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """The arrays of a call by name, and what else its launch depends on. Raises ArgumentTypeError for other names."""
    tensors: dict[str, Any] = {"a": a, "b": b}
    static: list[Any] = [what]
    check_names(what, options)
    for name, value in options.items():
        if value is None or value is DEFAULTS[name]:
            continue
        if name in ARRAYS and not isinstance(value, (int, float)):
            tensors[name] = value
            static.append(name)
        else:
            static.append((name, value))
    return tensors, tuple(static)


def _compiling() -> bool:
    """Whether torch.compile is reading this."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_compiling()


def compute(
    what: str,
    tensors: dict[str, Any],
    out: Any,
    options: dict[str, Any],
    static: tuple[Any, ...] | None = None,
) -> Any:
    """Check, choose and run, whatever the framework would say to it. A plug-in ends here.

    tensors: the arrays of the call by name; options: all of `matmul`'s that are given.
    """
    a, b = tensors["a"], tensors["b"]
    vector = False
    if what == "linear":
        a, b, vector = _linear_operands(a, b)
    result = out
    if vector:
        if out is not None and len(shape := view(out, "out").shape) != 1:
            raise ArgumentError(
                "`out` has the wrong shape", expected="(N,), as x is a vector", got=shape, code="wrong-shape"
            )
        result = None if out is None else out[None, :]
        options = {name: value[None, :] if name in OF_RESULT_SHAPE and getattr(value, "ndim", 0) == 1 else value
                   for name, value in options.items()}  # fmt: skip
    request = read(a, b, {**options, "out": result}, what)
    if settings.autotune == FIRST_CALLS:
        outcome = first_calls.run(request, result)
    else:
        if settings.autotune:
            tune_before(request)
        outcome = run(request, result)
    if outcome.launches and static is not None and not vector:
        named = {"c" if name == "residual" else name: tensor for name, tensor in tensors.items()}
        CACHE.remember(static, named, {"out": outcome.result}, outcome.launches)
    if not vector:
        return outcome.result
    return out if out is not None else outcome.result[0]


def _linear_operands(x: Any, weight: Any) -> tuple[Any, Any, bool]:
    """(…, M, K) and (K, N) of linear's arguments, and whether x is a vector."""
    w, seen = view(weight, "weight"), view(x, "x")
    check_linear(seen.shape, w.shape)
    vector = len(seen.shape) == 1
    if vector:
        seen = restrided(seen, (1, *seen.shape), (seen.strides[0] * max(seen.shape[0], 1), *seen.strides))
    return seen, transposed(w), vector
