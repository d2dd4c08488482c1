"""JAX: `warploom.jax.attention` under `jit`, with gradients. What XLA calls is `calls`; see `jax`.

XLA owns all memory: the counter of the kernel's queue is an argument of zeros that the kernel resets, and intermediate
arrays of the backward kernels are hidden results. On the CPU the same handler runs the emulator; not run on a GPU yet.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp

from ...errors import ArgumentError
from ...isa import dtypes
from ...operators.attention.backward import arrays_of, backward_choice
from ...operators.attention.calls import outputs, run
from ...operators.attention.gradients import check_differentiable, differentiable, gradients
from ...operators.attention.request import SIXTEEN_BITS, check_types, read, window_of
from ...runtime.arrays import ArrayView
from ...runtime.launch_template import Launched
from ..xla_ffi import Call, Memory
from .calls import Handlers, seen, varying

FORWARD, BACKWARD = "warploom_attention", "warploom_attention_backward"
OPTIONS = ("causal", "scale", "window", "softcap", "layout", "fast_accumulation")
RESULTS = {"out": "O", "lse": "LSE", "grad": "dO", "lse_grad": "dLSE", "q": "Q", "k": "K", "v": "V"}
"""The backward kernels' names of the arguments."""
WORKSPACE = ("lse2", "delta", "sums", "turns")
"""What the backward kernels hand on, in the order of `arrays_of`."""


def attention(
    q: Any, k: Any, v: Any, *, causal: bool | str = False, scale: float | None = None, window: Any = None,
    softcap: float | None = None, sinks: Any = None, layout: str = "bhsd", fast_accumulation: bool = False,
    return_lse: bool = False,
) -> Any:  # fmt: skip
    """`warploom.attention` for JAX arrays and inside of `jit`, `grad` and `vmap`. Raises as it does, at trace time.

    q, k, v and sinks get gradients, also through the log-sum-exp, with the same order of sums in every run. `out=`, and
    score and mask functions are not supported.
    """
    arrays = {"q": q, "k": k, "v": v} | ({} if sinks is None else {"sinks": sinks})
    checked(arrays, (causal, scale, window, softcap, layout, fast_accumulation))
    numbers = [None if each is None else float(each) for each in (scale, softcap)]
    edges = None if window is None else tuple(-1 if edge is None else edge for edge in window_of(window, bool(causal)))
    static = (
        causal if isinstance(causal, str) else bool(causal),
        numbers[0],
        edges,
        numbers[1],
        layout,
        fast_accumulation,
    )
    out, lse = _attention(static, return_lse, varying(arrays))
    return (out, lse) if return_lse else out


def attend(
    q: Any, k: Any, v: Any, *, out: Any = None, lse: Any = None, config: Any = None, score_mod: Any = None,
    mask_mod: Any = None, block_mask: Any = None, **options: Any,
) -> Any:  # fmt: skip
    """A call of `warploom.attention` with JAX arrays."""
    if any(each is not None for each in (score_mod, mask_mod, block_mask)):
        raise ArgumentError(
            "score_mod, mask_mod and block_mask are not supported with JAX arrays",
            expected="causal=, window= and softcap=",
            hint="warploom.attention supports them with NumPy arrays and torch tensors",
        )  # fmt: skip
    if out is not None or lse is not None or config is not None:
        raise ArgumentError(
            "attention of JAX arrays makes its own results", expected="no out=, lse= and config=",
            hint="JAX arrays are immutable; jit with donate_argnums reuses memory",
        )  # fmt: skip
    return attention(q, k, v, **options)


def checked(arrays: dict[str, Any], static: tuple[Any, ...]) -> Any:
    """All checks that need no memory. Raises ArgumentError, ArgumentTypeError."""
    views = {name: seen(Memory(0, tuple(jnp.shape(array)), dtypes.of(jnp.asarray(array).dtype)), name)
             for name, array in arrays.items()}  # fmt: skip
    return read(views, **dict(zip(OPTIONS, static, strict=True)))


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attention(static: tuple[Any, ...], logarithms: bool, arrays: dict[str, Any]) -> tuple[Any, Any]:
    """logarithms: true if they are returned, so that they have a gradient."""
    registered()
    request = checked(arrays, static)
    given = dict(arrays)
    if "sinks" in given:
        given["sinks"] = given["sinks"].astype(jnp.float32)
    shapes = (
        jax.ShapeDtypeStruct(request.shape, jnp.dtype(dtypes.torch_name(request.of.out_dtype))),
        jax.ShapeDtypeStruct(request.lse_shape, jnp.float32), jax.ShapeDtypeStruct((1,), jnp.uint32),
    )  # fmt: skip
    call = jax.ffi.ffi_call(
        FORWARD, shapes, vmap_method="sequential", input_output_aliases={len(given): len(shapes) - 1}
    )  # fmt: skip
    out, lse, _ = call(*given.values(), jnp.zeros((1,), jnp.uint32), call=_text(static, (*given, "counter")))
    result: tuple[Any, Any] = varying((out, lse), arrays)
    return result


def _forward(static: tuple[Any, ...], logarithms: bool, arrays: dict[str, Any]) -> tuple[Any, Any]:
    views = {name: seen(Memory(0, jnp.shape(arrays[name]), dtypes.of(arrays[name].dtype)), name) for name in "qkv"}
    check_types(views, SIXTEEN_BITS)
    check_differentiable("cuda" if jax.default_backend() == "gpu" else "cpu", 0)
    out, lse = _attention(static, logarithms, arrays)
    return (out, lse), (arrays, out, lse)


def _backward(
    static: tuple[Any, ...], logarithms: bool, kept: Any, grads: tuple[Any, Any]
) -> tuple[dict[str, Any]]:  # fmt: skip
    arrays, out, lse = kept
    given = {name: arrays[name] for name in ("q", "k", "v")} | {"out": out, "lse": lse, "grad": grads[0]}
    given |= {"lse_grad": grads[1]} if logarithms else {}
    request = differentiable(checked(arrays, static), dict(zip(OPTIONS, static, strict=True))["softcap"])
    made = arrays_of(request.of, backward_choice(request.of), request.lse_shape, request.keys)
    shapes = (
        *(jax.ShapeDtypeStruct(given[name].shape, out.dtype) for name in ("q", "k", "v")),
        *(jax.ShapeDtypeStruct(shape, jnp.dtype(dtypes.torch_name(dtype))) for shape, dtype in made.values()),
    )
    call = jax.ffi.ffi_call(BACKWARD, shapes, vmap_method="sequential")
    dq, dk, dv, _, delta, *_ = varying(call(*given.values(), call=_text(static, tuple(given))), given)
    found = {"q": dq, "k": dk, "v": dv}
    if "sinks" in arrays:
        sinks = arrays["sinks"].astype(jnp.float32)
        weight = jnp.nan_to_num(jnp.exp(sinks[None, :, None] - lse))  # -inf - -inf: no key, and no sink
        found["sinks"] = -(weight * delta[..., : lse.shape[2]]).sum((0, 2)).astype(arrays["sinks"].dtype)
    return (found,)


_attention.defvjp(_forward, _backward)


def _text(static: tuple[Any, ...], names: tuple[str, ...]) -> str:
    return json.dumps({"names": names, "static": static})


# -- what XLA calls ------------------------------------------------------------------------------------------------


def _described(call: Call) -> tuple[list[str], dict[str, Any]]:
    """Names of the arguments, and the options."""
    told = json.loads(call.text["call"])
    return told["names"], dict(zip(OPTIONS, told["static"], strict=True))


class Forward(Handlers):
    """O, the logarithms, and the counter, which is the last argument, too."""

    def names(self, call: Call) -> tuple[str, ...]:
        return (*_described(call)[0], "out", "lse", "")

    def compute(self, call: Call, device: str, index: int, stream: int | None) -> Sequence[Launched] | None:
        names, options = _described(call)
        views = _views(names, call.arguments, device, index, stream)
        counter = _views(("counter",), call.results[2:], device, index, stream)["counter"]
        results = _views(("out", "lse"), call.results[:2], device, index, stream)
        views.pop("counter")
        request = read(views, **options)
        launched = run(request, *outputs(request, results["out"], results["lse"]), counter=counter)
        return None if launched is None else [launched]


class Backward(Handlers):
    """The gradients of q, k and v, then what the kernels hand on."""

    def names(self, call: Call) -> tuple[str, ...]:
        return (*(RESULTS[name] for name in _described(call)[0]), "dQ", "dK", "dV", *WORKSPACE)

    def compute(self, call: Call, device: str, index: int, stream: int | None) -> Sequence[Launched] | None:
        names, options = _described(call)
        views = _views(names, call.arguments, device, index, stream)
        del options["fast_accumulation"]  # of 8 bits, which have no gradients
        made = _views(("q", "k", "v", *WORKSPACE), call.results, device, index, stream)
        tensors = {name: views[name] for name in ("q", "k", "v")}
        given = views["out"], views["lse"], views["grad"], made, views.get("lse_grad")
        found = gradients(tensors, *given, **options)
        return found.launches


def _views(
    names: Sequence[str], memories: Sequence[Memory], device: str, index: int, stream: int | None
) -> dict[str, ArrayView]:
    return {
        name: seen(memory, name, device, index, writable=True, stream=stream)
        for name, memory in zip(names, memories, strict=True)
    }


@lru_cache(maxsize=1)
def registered() -> tuple[Handlers, ...]:
    """The handlers, registered with XLA once a process."""
    return Forward(FORWARD), Backward(BACKWARD)
