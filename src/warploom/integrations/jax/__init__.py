"""JAX: `warploom.jax.matmul` under `jit`, with gradients, through XLA's foreign function interface.

    import warploom.jax
    y = jax.jit(lambda x, w: warploom.jax.matmul(x, w, activation="silu"))(x, w)

XLA calls a Python handler through its C ABI (`xla_ffi`); nothing is compiled on the user's machine. On a GPU the
kernel is launched on XLA's own stream; on the CPU the emulator runs it. Tests run the same handler on the CPU;
`benchmarks/jax_on_gpu.py` tests stream order, donation and calls in flight on a GPU.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache, partial
from numbers import Real
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import ArgumentError, ArgumentTypeError
from ...isa import dtypes
from ...isa.dtypes import bf16, f16
from ...operators.execute import run
from ...operators.request import Request, check_linear, read
from ...operators.spec.activations import ACTIVATIONS
from ...operators.spec.arguments import ARRAYS, BY_NAME, DEFAULTS, OF_RESULT_SHAPE, check_names, signature
from ...operators.views import transposed
from ...runtime.arrays import ArrayView, view
from ...runtime.launch_template import Launched
from ..xla_ffi import Call, Memory
from .attention import attend as attend  # `operators` looks it up here
from .calls import ALIGNED, Handlers, seen, varying

__all__ = ["linear", "matmul"]

TARGET = "warploom_matmul"
HINTS = {
    "config": "leave it to the library", "scale_out": "multiply the result and convert it",
    "amax": "jax.numpy.abs(result).max()",
}  # fmt: skip

JAX = SimpleNamespace(where=jnp.where, exp=jnp.exp, tanh=jnp.tanh, erf=jax.scipy.special.erf)

# -- the call ------------------------------------------------------------------------------------------------------


def matmul(a: Any, b: Any, **options: Any) -> Any:
    """Like `warploom.matmul`, for JAX arrays and inside `jit`, `grad` and `vmap`. Raises its errors, at trace time.

    There is no `out=` (XLA owns memory; donate an argument instead), and `config=`, `scale_out=` and `amax=` are
    refused. `constant_weights=` has no effect: XLA may move `b` right before the product, so a promise about your array
    says nothing about what the kernel reads. NumPy arrays become JAX arrays, as in jax.numpy. Arrays are row-major to
    XLA: a b of eight bits or f32 is transposed first, which costs nothing if it is a transpose itself (`w.T`).
    """
    check_names("matmul", options)
    options = {name: value for name, value in options.items() if value is not None and name != "constant_weights"}
    for name, hint in HINTS.items():
        if name in options:
            raise ArgumentTypeError(
                f"{name}= is not supported with JAX arrays", expected="the other arguments of matmul",
                got=f"{name}={type(options[name]).__name__}", hint=hint,
            )  # fmt: skip
    arrays = {"a": accepted(a, "a"), "b": accepted(b, "b")}
    for name in ARRAYS:
        if name in options and not (BY_NAME[name].may_be_number and isinstance(options[name], Real)):
            arrays[name] = accepted(options.pop(name), name)
    request = checked(arrays, options)
    if "residual" in arrays:
        arrays["c"] = arrays.pop("residual")
    arrays = varying({name: arrays[name] for name in ("a", "b", *ARRAYS) if name in arrays})
    wanted = options.get("out_dtype")
    out = None if wanted is None else dtypes.of(wanted).name
    accumulate = options.get("accumulate", DEFAULTS["accumulate"])
    return _product((out, request.alpha, request.beta, options.get("activation"), accumulate), arrays)


matmul.__signature__ = signature(out=False)  # type: ignore[attr-defined]


def linear(x: Any, weight: Any, bias: Any = None, **options: Any) -> Any:
    """x Wᵀ + bias with W (N, K); options as in `matmul`. A vector x (K,) gives a vector (N,)."""
    x, weight = accepted(x, "x"), accepted(weight, "weight")
    check_linear(x.shape, weight.shape)
    if x.ndim != 1:
        return matmul(x, weight.T, bias=bias, **options)
    for name in OF_RESULT_SHAPE:
        if options.get(name) is not None:
            array = accepted(options[name], name)
            options[name] = array[None] if array.ndim == 1 else array
    return matmul(x[None], weight.T, bias=bias, **options)[0]


def accepted(value: Any, name: str) -> Any:
    """A JAX array, or a NumPy array as one. Raises ArgumentTypeError for anything else."""
    if isinstance(value, jax.Array):
        return value
    other = view(value, name)
    if other.framework == "numpy":
        return jnp.asarray(value)
    raise ArgumentTypeError(
        f"argument `{name}` is not a JAX array, but others of the call are",
        expected="a jax.Array or a NumPy array",
        got=other.describe(),
        hint="jax.dlpack.from_dlpack and torch.from_dlpack convert one to the other, in the same memory",
    )


def dispatch(what: str, a: Any, b: Any, out: Any, options: dict[str, Any]) -> Any:
    """A call of `warploom.matmul` or `warploom.linear` with JAX arrays."""
    if out is not None:
        raise ArgumentError(
            "JAX arrays are immutable", expected="no out=", hint="jit with donate_argnums reuses memory"
        )
    options = {name: value for name, value in options.items() if value is not None}
    return linear(a, b, **options) if what == "linear" else matmul(a, b, **options)


def options_of(static: tuple[Any, ...]) -> dict[str, Any]:
    """The arguments that are not arrays, by name."""
    out, alpha, beta, activation, accumulate = static
    return {
        "out_dtype": out, "alpha": alpha, "beta": beta, "activation": activation, "accumulate": accumulate,
    }  # fmt: skip


def checked(arrays: dict[str, Any], options: dict[str, Any]) -> Request:
    """All checks that need no memory. Raises ArgumentError, ArgumentTypeError."""
    views = {name: seen(Memory(0, array.shape, dtypes.of(array.dtype)), name) for name, array in arrays.items()}
    return read(views.pop("a"), views.pop("b"), {**options, **views})


# -- gradients -----------------------------------------------------------------------------------------------------


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _product(static: tuple[Any, ...], arrays: dict[str, Any]) -> Any:
    return _call(static, arrays)


def _forward(static: tuple[Any, ...], arrays: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return _call(static, arrays), arrays


def _backward(static: tuple[Any, ...], arrays: dict[str, Any], grad: Any) -> tuple[dict[str, Any]]:
    """Gradients of all arrays; both products use this library. The input of an activation is recomputed."""
    if "scale_a" in arrays or 1 in (arrays["a"].dtype.itemsize, arrays["b"].dtype.itemsize):
        raise ArgumentError(
            "gradients of products with eight-bit operands or array scales are not supported",
            expected="operands of 16 or 32 bits, and numbers for scales", hint="jax.lax.stop_gradient keeps it out",
        )  # fmt: skip
    _, alpha, beta, activation, accumulate = static
    a, b = arrays["a"], arrays["b"]
    found: dict[str, Any] = {}
    if "c" in arrays:
        found["c"] = (grad * beta).astype(arrays["c"].dtype)
    inner = grad.astype(jnp.float32)
    if activation is not None or "gate" in arrays:
        given = {name: arrays[name].astype(jnp.float32) for name in ("bias",) if name in arrays}
        z = _product(("f32", alpha, 0.0, None, accumulate), {"a": a, "b": b, **given})
        kind = ACTIVATIONS.get(activation)
        y = z if kind is None else kind.forward(z, JAX)
        if "gate" in arrays:
            found["gate"] = (inner * y).astype(arrays["gate"].dtype)
            inner = inner * arrays["gate"].astype(jnp.float32)
        if kind is not None:
            inner = inner * kind.slope(z, JAX)
    if "bias" in arrays:
        found["bias"] = _summed(inner, arrays["bias"])
    inner = inner.astype(a.dtype)
    plain = (dtypes.of(a.dtype).name, alpha, 0.0, None, "default")
    found["a"] = _fit(_product(plain, {"a": inner, "b": jnp.swapaxes(b, -1, -2)}), a)
    if b.ndim == 2 and a.ndim > 2:
        left, inner = a.reshape(-1, a.shape[-1]), inner.reshape(-1, inner.shape[-1])
    else:
        left = a
    found["b"] = _fit(_product(plain, {"a": jnp.swapaxes(left, -1, -2), "b": inner}), b)
    return (found,)


_product.defvjp(_forward, _backward)


def _summed(inner: Any, bias: Any) -> Any:
    flat = inner.reshape(-1, *inner.shape[-2:])
    if bias.ndim == 2 and bias.shape[1] == 1 and bias.shape[0] == inner.shape[-2]:
        return flat.sum((0, 2)).reshape(bias.shape).astype(bias.dtype)
    return flat.sum((0, 1)).reshape(bias.shape).astype(bias.dtype)


def _fit(grad: Any, like: Any) -> Any:
    """Summed over the leading dimensions along which the array was broadcast."""
    extra = grad.ndim - like.ndim
    axes = tuple(range(extra)) + tuple(
        extra + axis for axis, length in enumerate(like.shape) if length != grad.shape[extra + axis]
    )
    return grad.sum(axes, keepdims=True).reshape(like.shape).astype(like.dtype) if axes else grad


# -- what XLA calls ------------------------------------------------------------------------------------------------


def _call(static: tuple[Any, ...], arrays: dict[str, Any]) -> Any:
    registered()
    problem = checked(arrays, options_of(static)).problem
    a, b, out = arrays["a"], arrays["b"], problem.product.out
    names = tuple(arrays)
    by_rows = dtypes.of(b.dtype) not in (bf16, f16)
    given = {**arrays, "b": jnp.swapaxes(b, -1, -2) if by_rows else b}
    n, k = b.shape[-1], a.shape[-1]
    wide = -n % (ALIGNED // out.bytes) if 0 not in (n, k) else 0
    given = {name: _padded(array, name, n, wide, by_rows) for name, array in given.items()}
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = jax.ShapeDtypeStruct((*batch, a.shape[-2], n + wide), jnp.dtype(dtypes.torch_name(out)))
    options = json.dumps({"names": names, "transposed": by_rows, "options": options_of(static)})
    result = jax.ffi.ffi_call(TARGET, shape, vmap_method="sequential")(*given.values(), call=options)
    result = varying(result, given)
    return result[..., :n] if wide else result


def _padded(array: Any, name: str, n: int, wide: int, by_rows: bool) -> Any:
    """An array whose rows start at multiples of 16 bytes: zero-padded along K, and along N if D needs it."""
    if name in ("a", "b"):
        step = ALIGNED // np.dtype(array.dtype).itemsize
        k_axis = -1 if name == "a" or by_rows else -2
        array = _pad(array, k_axis, -array.shape[k_axis] % step)
        return _pad(array, -2 if by_rows else -1, wide) if name == "b" else array
    if (
        name in ("c", "gate")
        or (name == "bias" and array.shape in ((n,), (1, n)))
        or (name == "scale_b" and array.size > 1)
    ):
        return _pad(array, -1, wide)
    return array


def _pad(array: Any, axis: int, more: int) -> Any:
    if not more:
        return array
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, more)
    return jnp.pad(array, widths)


class Products(Handlers):
    """Products."""

    def names(self, call: Call) -> tuple[str, ...]:
        return (*json.loads(call.text["call"])["names"], "out")

    def compute(self, call: Call, device: str, index: int, stream: int | None) -> Sequence[Launched] | None:
        request, out = self.request(call, device, index)
        return run(request, out, stream).launches

    def request(self, call: Call, device: str, index: int) -> tuple[Request, ArrayView]:
        """The call as a checked request, and its output."""
        described = json.loads(call.text["call"])
        views = {
            name: seen(memory, name, device, index)
            for name, memory in zip(described["names"], call.arguments, strict=True)
        }
        out = seen(call.results[0], "out", device, index, writable=True)
        if described["transposed"]:
            views["b"] = transposed(views["b"])
        options = {name: value for name, value in described["options"].items() if value is not None}
        options["out_dtype"] = out.dtype
        return read(views.pop("a"), views.pop("b"), {**options, **views, "out": out}), out


@lru_cache(maxsize=1)
def registered() -> Products:
    """The handlers, registered with XLA once per process."""
    return Products(TARGET)
