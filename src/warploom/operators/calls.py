"""`matmul` and `linear`, the public calls. `reference.matmul` defines their results.

A repeated call goes from its arguments directly to the driver (`runtime.launch_cache`) and skips everything else.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError
from ..runtime.arrays import view
from ..settings import FIRST_CALLS
from ..settings import config as settings
from . import first_calls
from .dispatch_hook import load_torch_plugin, plugin_for
from .execute import run
from .launches import CACHE
from .request import check_linear, read
from .spec.arguments import ARRAYS, DEFAULTS, OF_RESULT_SHAPE, check_names, signature
from .tune import tune_before
from .views import restrided, transposed

_HITS = CACHE.hits


def _matmul(a: Any, b: Any, *, out: Any = None, **options: Any) -> Any:
    """D = A B with a fused epilogue, in one kernel.

        x = alpha * scale_a * scale_b * (A B)
        D = (activation(x + bias) * gate + beta * c) * scale_out        each step in f32, rounded once at the end

    CUDA arrays run on their GPU, on the caller's stream, asynchronously; NumPy arrays and CPU tensors are emulated.

    Args:
        a, b: (…, M, K) and (…, K, N); leading dimensions are broadcast, with one launch for each product (one for all
        if
            `b` is a matrix and the rows of `a` are evenly spaced). bf16, f16, f32 (multiplied as tf32), s8, or any
            combination of e4m3 and e5m2. Any strides: operands that TMA cannot address are copied, with a CopyWarning.
        out: the array that receives D; (…, M, N).
        out_dtype: bf16, f16, f32, e4m3, e5m2; s32 for s8. The default is a's type, and bf16 for fp8.
        c, beta: beta * c is added; c has the shape and type of D.
        residual: c with beta = 1.
        alpha: a number.
        bias: (N,), or (M, 1) for one value per row; f32, bf16 or f16.
        activation: "relu", "gelu" (with erf), "gelu_tanh", "silu".
        gate: multiplies the result of the activation, (…, M, N), D's type: silu(a b) * gate is SwiGLU.
        scale_a, scale_b: as in torch._scaled_mm, f32: one number each (or Python numbers); (M, 1) and (1, N); or, for
            blocks of 128, (M, K/128) and (K/128, N/128).
        scale_out: one f32 that multiplies an eight-bit output; amax: one f32 that receives the largest |x| before
        scaling.
        accumulate: "default", "fast" (accumulate in the tensor core only) or "precise" (fp8: add to f32 every 128 of
        k).
        constant_weights: a promise that no kernel still running writes `b`. A small-M kernel then loads it
            while the preceding kernel in the stream finishes.
        config: a configuration to use instead of the chosen one, or its name as shown by `warploom explain M N K`.

    If M or N is 0, the result is empty; if K is 0, the epilogue is applied to zeros.

    Raises ArgumentError and ArgumentTypeError for invalid arguments (nothing is launched then), CostLimitError if
    the emulation would take too long, DriverError, CompilationError. Tensors that require grad get a result with a
    gradient (`warploom.torch`); with `out=` they are refused.
    """
    if not options:
        try:  # the plain product of known tensors, written out: this is all that a repeated call costs
            if out is not None:
                check, ready, current, launch = _HITS[a.data_ptr(), b.data_ptr(), out.data_ptr()]
                if check(a, b, out):
                    stream = current()
                    if status := ready[stream]():
                        launch.check(status, stream)
                    return out
            elif (made := CACHE.fresh((a.nbytes, b.nbytes), (a, b))) is not None:
                return made[0]
        except (AttributeError, KeyError, RuntimeError, TypeError):  # not tensors, or not seen before
            pass
    return _again("matmul", a, b, out, options)


def _linear(x: Any, weight: Any, bias: Any = None, *, out: Any = None, **options: Any) -> Any:
    """x Wᵀ + bias, like `torch.nn.functional.linear`, with the fused operations of `matmul`.

    Args:
        x: (…, K).
        weight: (N, K), the fastest layout.
        bias: (N,) or None.
        out: the array that receives the result, (…, N).
        options: those of `matmul`: activation, residual, gate, out_dtype, scale_a, scale_b, …

    A vector x (K,) gives a vector (N,). Raises the errors of `matmul`.
    """
    if not options:
        try:
            if bias is not None:
                if out is None:
                    form = "linear", "bias", bias.nbytes, x.nbytes, weight.nbytes
                    if (made := CACHE.fresh(form, (x, weight, bias))) is not None:
                        return made[0]
                else:
                    key = "linear", "bias", bias.data_ptr(), x.data_ptr(), weight.data_ptr(), out.data_ptr()
                    if CACHE.hit(key, (x, weight, bias, out)):
                        return out
            elif out is not None:
                check, ready, current, launch = _HITS["linear", x.data_ptr(), weight.data_ptr(), out.data_ptr()]
                if check(x, weight, out):
                    stream = current()
                    if status := ready[stream]():
                        launch.check(status, stream)
                    return out
            elif (made := CACHE.fresh(("linear", x.nbytes, weight.nbytes), (x, weight))) is not None:
                return made[0]
        except (AttributeError, KeyError, RuntimeError, TypeError):
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


def _compiled_matmul(*arrays: Any, **options: Any) -> Any:
    """What torch.compile traces instead of `matmul` until the PyTorch plug-in is loaded; a function of its own each, as
    torch.compile keeps neither closures nor defaults here."""
    return load_torch_plugin() and matmul._torchdynamo_inline(*arrays, **options)  # type: ignore[attr-defined]


def _compiled_linear(*arrays: Any, **options: Any) -> Any:
    return load_torch_plugin() and linear._torchdynamo_inline(*arrays, **options)  # type: ignore[attr-defined]


matmul._torchdynamo_inline = _compiled_matmul  # type: ignore[attr-defined]
linear._torchdynamo_inline = _compiled_linear  # type: ignore[attr-defined]


def _again(what: str, a: Any, b: Any, out: Any, options: dict[str, Any]) -> Any:
    """Run a call that may be repeated: with the same tensors, or with other tensors of the same kind."""
    key: Any = None
    try:
        key, tensors = _key(what, a, b, out, options)
        if out is not None:
            if CACHE.hit(key, tensors):
                return out
        elif (made := CACHE.fresh(key, tensors)) is not None:
            return made[0]
    except (AttributeError, TypeError, RuntimeError):  # not tensors, none with addresses, or an option without a hash
        key = None
    named, static = _split(what, a, b, options)
    if not _compiling():  # then there would be no addresses
        try:
            which = {"form": key} if out is None else {"key": key}
            made = CACHE.again(static, tuple(named.values()), () if out is None else (out,), **which)
            if made is not None:
                return made[0]
        except TypeError:  # an option without a hash: the checks will report it
            pass
    given = {name: value for name, value in options.items() if value is not None}
    plugin = plugin_for((*named.values(), out))
    if plugin is not None:
        return plugin.dispatch(what, a, b, out, given)
    return compute(what, named, out, given, static)


def _key(what: str, a: Any, b: Any, out: Any, options: dict[str, Any]) -> tuple[tuple[Any, ...], list[Any]]:
    """Everything that a call's launch depends on except what a guard checks, and its tensors: by their addresses with
    `out`, else by their sizes in bytes, which are quicker to ask for than shapes."""
    key: list[Any] = [*options] if what == "matmul" else [what, *options]
    tensors, types = [a, b], CACHE.tensor_types
    for value in options.values():
        kind = type(value)
        if kind in types:
            tensors.append(value)
            key.append(value.nbytes if out is None else value.data_ptr())
        else:
            key.append((kind, value))  # 1, 1.0 and True are different
    if out is None:
        return (*key, a.nbytes, b.nbytes), tensors
    tensors.append(out)
    return (*key, a.data_ptr(), b.data_ptr(), out.data_ptr()), tensors


def _split(what: str, a: Any, b: Any, options: dict[str, Any]) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """The arrays of a call by name, and what else its launch depends on. Raises ArgumentTypeError for unknown names."""
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
    """True while torch.compile traces this."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_compiling()


def compute(
    what: str,
    tensors: dict[str, Any],
    out: Any,
    options: dict[str, Any],
    static: tuple[Any, ...] | None = None,
) -> Any:
    """Check, choose and run, without consulting the framework. Plug-ins end up here.

    tensors: the arrays of the call by name; options: all options of `matmul` that are given.
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
    """(…, M, K) and (K, N) of linear's arguments, and True if x is a vector."""
    w, seen = view(weight, "weight"), view(x, "x")
    check_linear(seen.shape, w.shape)
    vector = len(seen.shape) == 1
    if vector:
        seen = restrided(seen, (1, *seen.shape), (seen.strides[0] * max(seen.shape[0], 1), *seen.strides))
    return seen, transposed(w), vector
