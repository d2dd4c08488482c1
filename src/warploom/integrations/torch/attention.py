"""PyTorch: attention with gradients, under `torch.compile` and autocast, and as a replacement of torch's own.

    y = warploom.attention(q, k, v, causal=True)                                     # also with requires_grad
    y = warploom.torch.scaled_dot_product_attention(q, k, v, is_causal=True)         # torch's signature

An eager call without a gradient goes straight to `warploom.operators`. Any other call is the operator
`warploom::attention`, which has a fake implementation and a gradient, so that there is no graph break. `out=`, `lse=`
and `config=` are for calls without gradients. Score and mask functions cannot be arguments of an operator: such a call
is an autograd function, and in a graph of `torch.compile` what `attention_graphs` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor

from ...errors import ArgumentError, ArgumentTypeError
from ...operators.attention import calls, gradients
from ...operators.attention.gradient_calls import attention_backward
from ...operators.attention.request import check_options, fits_head
from .arguments import SIXTEEN, end_graph, plain
from .attention_forms import fake_gradients, fake_results, options_of, window_pair
from .attention_functions import modified
from .attention_gradients import check_gradient, check_setup, of_result, spread, sunken
from .attention_graphs import in_graphs, traced
from .custom_operator import define_both
from .tracing import constant_result, untraced
from .transforms import folded, looped, transformable

__all__ = ["attend", "flex_attention", "scaled_dot_product_attention"]

SCHEMA = (
    "attention"
    "(Tensor q, Tensor k, Tensor v, Tensor? sinks, str causal, float? scale, int left, int right, float? softcap, "
    "str layout, bool fast_accumulation=False) -> (Tensor, Tensor)"
)
BACKWARD_SCHEMA = (
    "attention_backward"
    "(Tensor q, Tensor k, Tensor v, Tensor? sinks, Tensor out, Tensor lse, Tensor grad, Tensor? lse_grad, str causal, "
    "float? scale, int left, int right, float? softcap, str layout) -> (Tensor, Tensor, Tensor, Tensor)"
)


def attend(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool | str = False, scale: float | None = None, window: Any = None,
    softcap: float | None = None, sinks: Tensor | None = None, score_mod: Any = None, mask_mod: Any = None,
    block_mask: Any = None, layout: str = "bhsd", fast_accumulation: bool = False, return_lse: bool = False,
    out: Any = None, lse: Any = None, config: Any = None,
) -> Any:  # fmt: skip
    """Run `warploom.attention` with gradients, autocast or tracing. Raises ArgumentError as it does."""
    refuse_outputs(out, lse, config)
    if not torch.compiler.is_compiling():
        check_tensors({"q": q, "k": k, "v": v} | ({} if sinks is None else {"sinks": sinks}))
        check_options(causal, scale, window, softcap, layout)
    check_gradient((q, k, v, sinks))
    q, k, v = sixteen_bits(q, k, v)
    functions = {"score_mod": score_mod, "mask_mod": mask_mod, "block_mask": block_mask}
    if any(each is not None for each in functions.values()):
        if torch.compiler.is_compiling() and in_graphs():
            result, sums = traced(
                plain(q), plain(k), plain(v), plain(sinks), causal, scale, window, softcap, layout, **functions
            )
            return (result, sums) if return_lse else result
        end_graph("functions of scores and masks are in graphs since torch 2.13")
        options = {"causal": causal, "scale": scale, "window": window, "softcap": softcap, "layout": layout}
        result, sums = modified(plain(q), plain(k), plain(v), plain(sinks), options | functions)
        return (result, sums) if return_lse else result
    left, right = window_pair(window, bool(causal))
    scale = None if scale is None else float(scale)
    result, sums = _operator(
        plain(q),
        plain(k),
        plain(v),
        plain(sinks),
        named(causal),
        scale,
        left,
        right,
        softcap,
        layout,
        fast_accumulation,
    )
    return (result, sums) if return_lse else result


def traced_backward(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, grad: Tensor, *, causal: bool | str = False,
    scale: float | None = None, window: Any = None, softcap: float | None = None, sinks: Tensor | None = None,
    score_mod: Any = None, mask_mod: Any = None, block_mask: Any = None, layout: str = "bhsd",
    lse_grad: Tensor | None = None, deterministic: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """`warploom.attention_backward` in a graph."""
    if not (score_mod is mask_mod is block_mask is None and deterministic is True):
        end_graph("attention_backward is an operator without functions of scores and masks, in a fixed order")
    left, right = window_pair(window, bool(causal))
    dq, dk, dv, _ = torch.ops.warploom.attention_backward(
        plain(q), plain(k), plain(v), plain(sinks), plain(out), plain(lse), plain(grad), plain(lse_grad),
        named(causal), None if scale is None else float(scale), left, right, softcap, layout,
    )  # fmt: skip
    return dq, dk, dv


def named(causal: bool | str) -> str:
    """The mask as an operator takes it."""
    return causal if isinstance(causal, str) else "bottom-right" if causal else ""


def refuse_outputs(out: Any, lse: Any, config: Any) -> None:
    """Raise ArgumentError for arguments of calls without gradients."""
    if out is not None or lse is not None or config is not None:
        raise ArgumentError(
            "attention with a gradient, or in a graph, makes its own results", expected="no out=, lse= and config=",
            hint="call it under torch.no_grad()",
        )  # fmt: skip


def check_tensors(arrays: Mapping[str, Any]) -> None:
    """Raise ArgumentTypeError for what is not a tensor."""
    for name, array in arrays.items():
        if not isinstance(array, Tensor):
            raise ArgumentTypeError(f"argument `{name}` is not a torch tensor", expected="torch tensors, all of them",
                                    got=type(array).__name__)  # fmt: skip


def sixteen_bits(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """Convert f32 tensors to autocast's type, if it is enabled."""
    kind = q.device.type
    if kind not in ("cuda", "cpu") or not torch.is_autocast_enabled(kind):
        return q, k, v
    wanted = torch.get_autocast_dtype(kind)
    return tuple(x.to(wanted) if x.dtype is torch.float32 else x for x in (q, k, v))


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """torch's `scaled_dot_product_attention`, computed by this library if it has a kernel, else by torch.

    torch computes calls with a mask or dropout, other types, ranks other than (B, H, S, D), broadcast sizes, strided
    head dimensions, head dimensions other than multiples of 8 up to 256, and devices other than Hopper. If queries lie
    in memory as (B, S, H, D), so does the result.
    """
    if not computes(query, key, value, attn_mask, dropout_p, scale, enable_gqa):
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    tokens_first = tokens_before_heads(query)
    q, k, v = (x.transpose(1, 2) for x in (query, key, value)) if tokens_first else (query, key, value)
    found: Tensor = calls.attention(
        q, k, v, causal="top-left" if is_causal else False, scale=scale, layout="bshd" if tokens_first else "bhsd"
    )
    return found.transpose(1, 2) if tokens_first else found


def computes(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Any, dropout_p: float, scale: float | None, enable_gqa: bool
) -> bool:
    """True if a kernel computes such a call of scaled_dot_product_attention."""
    return (
        attn_mask is None and dropout_p == 0.0 and runs_on(query.device) and fit(query, key, value)
        and (scale is None or scale > 0) and (enable_gqa or query.shape[1] == key.shape[1])
    )  # fmt: skip


def tokens_before_heads(query: Tensor) -> bool:
    """True if queries (B, H, S, D) lie in memory as (B, S, H, D). The result does then, too, as torch's."""
    return query.dim() == 4 and bool(query.stride(1) < query.stride(2))


def fit(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """True if a kernel takes them in place as (B, H, S, D), (B, G, T, D) and (B, G, T, E)."""
    three = (query, key, value)
    if any(each.is_nested or each.dim() != 4 or each.stride(3) != 1 for each in three):
        return False
    alike = query.dtype is key.dtype is value.dtype and query.device == key.device == value.device
    together = query.shape[::3] == key.shape[::3] and key.shape[:3] == value.shape[:3]
    grouped = query.shape[1] % max(1, key.shape[1]) == 0
    return alike and together and grouped and has_kernel(query, value)


def has_kernel(query: Tensor, value: Tensor) -> bool:
    """True if there is a kernel for 16-bit tensors of these types and head dimensions."""
    return query.dtype in SIXTEEN and all(fits_head(x.shape[-1], query.dtype.itemsize) for x in (query, value))


@constant_result  # a graph belongs to its device
def runs_on(device: torch.device) -> bool:
    """True if the device is a Hopper GPU, on which these kernels run without an `UnprovenWarning`."""
    return device.type == "cuda" and _is_hopper(device)


@lru_cache(maxsize=64)
def _is_hopper(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device)[0] == 9


def flex_attention(
    query: Tensor, key: Tensor, value: Tensor, score_mod: Any = None, block_mask: Any = None,
    scale: float | None = None, enable_gqa: bool = False, return_lse: bool = False, kernel_options: Any = None,
    *, return_aux: Any = None,
) -> Any:  # fmt: skip
    """torch's `flex_attention`, in one kernel of this library and without torch.compile.

    Args:
        query, key, value: (B, H, S, D), (B, G, T, D), (B, G, T, E); with a block mask of B batches, key and value may
            have a single batch.
        score_mod: (score, batch, head, query, key) -> score; see `warploom.attention`.
        block_mask: a mask from torch's `create_block_mask`, or a `mask_mod`, which is applied to every score.
        scale, enable_gqa, return_lse: as in torch. kernel_options: for torch's own kernels; ignored.
        return_aux: torch's AuxRequest; only `lse` is supported.

    Tensors that require gradients get them, also through the log-sum-exp, and so do those that score_mod captures.
    Raises ArgumentError and ArgumentTypeError as `warploom.attention` does.
    """
    check_tensors({"query": query, "key": key, "value": value})
    if not enable_gqa and query.ndim == key.ndim == 4 and query.shape[1] != key.shape[1]:
        raise ArgumentError(
            "query and key have other numbers of heads", expected=f"{query.shape[1]} key heads, or enable_gqa=True",
            got=key.shape[1],
        )  # fmt: skip
    wants = return_lse if return_aux is None else return_aux.lse
    if return_aux is not None and (return_lse or return_aux.max_scores):
        raise ArgumentError(
            "flex_attention gives the logarithms of the sums, once", expected="return_aux=AuxRequest(lse=True)",
            got=f"return_lse={return_lse}, return_aux={return_aux}", hint="largest scores are not kept by the kernel"
        )  # fmt: skip
    blocks = hasattr(block_mask, "kv_indices")
    if blocks and key.ndim == value.ndim == 4 and key.shape[0] == value.shape[0] == 1 < query.shape[0]:
        key, value = (x.expand(query.shape[0], *x.shape[1:]).contiguous() for x in (key, value))
    mask = {"block_mask" if blocks else "mask_mod": block_mask}
    found = calls.attention(query, key, value, score_mod=score_mod, scale=scale, return_lse=wants, **mask)
    if return_aux is None:
        return found
    from torch.nn.attention.flex_attention import AuxOutput  # older versions have none, and cannot request it

    out, lse = found if wants else (found, None)
    return out, AuxOutput(lse=lse)


# -- the operator ------------------------------------------------------------------------------------------------------


def _run(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, causal: str, scale: float | None, left: int, right: int,
    softcap: float | None, layout: str, fast_accumulation: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    with torch.no_grad(), torch.autocast(q.device.type, enabled=False):
        found: tuple[Tensor, Tensor] = calls.attention(
            q,
            k,
            v,
            sinks=sinks,
            return_lse=True,
            fast_accumulation=fast_accumulation,
            **options_of(causal, scale, left, right, softcap, layout),
        )
    return found


def _fake(q: Tensor, k: Tensor, v: Tensor, *more: Any) -> tuple[Tensor, Tensor]:
    return fake_results(q, v, more[6])


def _run_backward(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, out: Tensor, lse: Tensor, grad: Tensor,
    lse_grad: Tensor | None, causal: str, scale: float | None, left: int, right: int, softcap: float | None,
    layout: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    tensors = {"q": q, "k": k, "v": v}
    grad, lse_grad = spread(grad), spread(lse_grad)
    with torch.no_grad(), torch.autocast(q.device.type, enabled=False):
        options = options_of(causal, scale, left, right, softcap, layout)
        found = gradients.gradients(tensors, out, lse, grad, lse_grad=lse_grad, **options)
        sunk = q.new_zeros(0, dtype=torch.float32) if sinks is None else sunken(sinks, lse, found.delta)
    return found.dq, found.dk, found.dv, sunk


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, sinks, *options, _ = inputs
    check_setup(ctx, q)
    out, lse = output
    ctx.save_for_backward(q, k, v, sinks, out, lse)
    ctx.options = options
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, lse_grad: Tensor | None) -> Any:
    q, k, v, sinks, out, lse = ctx.saved_tensors
    grad = of_result(grad, out)
    dq, dk, dv, sunk = _gradient(q, k, v, sinks, out, lse, grad, lse_grad, *ctx.options)
    return dq, dk, dv, None if sinks is None else sunk, *(None,) * 7


def _of_samples(call: Any, samples: int, in_dims: Any, arguments: Any) -> Any:
    """One call for all, unless there are sinks, which have no batch."""
    return (folded if arguments[3] is None else looped)(call, samples, in_dims, arguments)


_LIBRARY = define_both((SCHEMA, _run, _fake, _backward, _setup), (BACKWARD_SCHEMA, _run_backward, fake_gradients))
_operator = transformable(torch.ops.warploom.attention, _of_samples, _setup, _backward)
_gradient = transformable(torch.ops.warploom.attention_backward, _of_samples)
calls.attention._torchdynamo_inline = attend  # type: ignore[attr-defined]
untraced(calls.attention)
attention_backward._torchdynamo_inline = traced_backward  # type: ignore[attr-defined]
untraced(attention_backward)
