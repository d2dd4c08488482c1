"""PyTorch: attention with functions of scores and masks in graphs of torch.compile, without a break.

    traced      in the caller's graph: `flex_attention`, with the functions as graphs that take what they capture
    compiled    `warploom::attention_modified`, with their names and the tensors that they capture (`graph_functions`)

torch.compile traces the functions as it does those of torch's own flex_attention: numbers that they capture are
guarded, tensors are inputs of the graph. The operator has a gradient. What torch cannot trace breaks the graph, and
the call is an eager one; with fullgraph=True torch says why.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator

from ...operators.attention import calls, gradients
from ...operators.attention.blocks import MASK_TENSORS
from .arguments import end_graph
from .attention_forms import fake_gradients, fake_results, options_of, window_pair
from .attention_gradients import check_setup, of_result, spread, sunken
from .custom_operator import define_both
from .graph_functions import Untraceable, function_named, learn
from .tracing import constant_result

SINCE = (2, 13)
"""The oldest torch with which `Traced` was tried."""
_FUNCTIONS = (
    "str score_mod, Tensor[] score_arrays, str mask_mod, Tensor[] mask_arrays, Tensor[] blocks, int[] block_sizes, "
    "str causal, float? scale, int left, int right, float? softcap, str layout"
)
SCHEMA = f"attention_modified(Tensor q, Tensor k, Tensor v, Tensor? sinks, {_FUNCTIONS}) -> (Tensor, Tensor)"
BACKWARD_SCHEMA = (
    "attention_modified_backward(Tensor q, Tensor k, Tensor v, Tensor? sinks, Tensor out, Tensor lse, Tensor grad, "
    f"Tensor? lse_grad, {_FUNCTIONS}) -> (Tensor, Tensor, Tensor, Tensor)"
)


# -- in the caller's graph ---------------------------------------------------------------------------------------------


@constant_result
def in_graphs() -> bool:
    """True if this torch traces functions of scores and masks."""
    return tuple(int(part) for part in torch.__version__.split(".")[:2]) >= SINCE


def traced(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, causal: bool | str, scale: float | None, window: Any,
    softcap: float | None, layout: str, score_mod: Any, mask_mod: Any, block_mask: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The result and the logarithms, while torch.compile traces the call."""
    blocks: tuple[Any, ...] = ()
    if block_mask is not None:
        if mask_mod is not None or causal or window is not None or not hasattr(block_mask, "kv_indices"):
            end_graph("a block mask says all that is seen")  # the call refuses it
        mask_mod = block_mask.mask_mod
        blocks = (
            *block_mask.BLOCK_SIZE, *block_mask.seq_lengths, block_mask.kv_num_blocks, block_mask.kv_indices,
            block_mask.full_kv_num_blocks, block_mask.full_kv_indices,
        )  # fmt: skip
    left, right = window_pair(window, bool(causal))
    named = causal if isinstance(causal, str) else "bottom-right" if causal else ""
    options = {"causal": named, "left": left, "right": right, "softcap": softcap, "layout": layout,
               "scored": score_mod is not None, "masked": mask_mod is not None}  # fmt: skip
    score = torch.empty((), dtype=torch.float32, device=q.device)  # scores are f32
    found: tuple[Tensor, Tensor] = flex_attention(
        score, k, v, _unchanged if score_mod is None else score_mod, (q, sinks, *blocks, mask_mod or _all_seen),
        None if scale is None else float(scale), options,
    )  # fmt: skip
    return found


def _unchanged(score: Any, *_: Any) -> Any:
    return score


def _all_seen(batch: Any, head: Any, query: Any, key: Any) -> Any:
    return key >= 0


class Traced(HigherOrderOperator):
    """What torch.compile takes for torch's flex_attention, and so traces the functions that it is given.

    It is never dispatched: a call becomes one of the operator, also while torch propagates shapes.
    """

    def __init__(self) -> None:
        super().__init__("warploom_attention")
        self.__name__ = "flex_attention"  # by which torch._dynamo decides how to trace its arguments
        self.__module__ = __name__

    def __call__(
        self, score: Tensor, k: Tensor, v: Tensor, score_mod: Any, given: tuple[Any, ...], scale: float | None,
        options: dict[str, Any], of_scores: tuple[Any, ...] = (), of_masks: tuple[Any, ...] = (),
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Raises torch's error for what fake tensors do not support if a function cannot become part of a kernel."""
        q, sinks, *blocks, mask_mod = given
        try:
            score_name, score_arrays = _learned(options["scored"], score_mod, "score_mod", of_scores, q)
            mask_name, mask_arrays = _learned(options["masked"], mask_mod, "mask_mod", of_masks, q)
        except Untraceable as error:
            from torch._subclasses.fake_tensor import UnsupportedFakeTensorException

            raise UnsupportedFakeTensorException(f"warploom: {error}") from None
        found: tuple[Tensor, Tensor] = torch.ops.warploom.attention_modified(
            q, k, v, sinks, score_name, score_arrays, mask_name, mask_arrays,
            [each for each in blocks[4:] if each is not None], [int(each) for each in blocks[:4]], options["causal"],
            scale, options["left"], options["right"], options["softcap"], options["layout"],
        )  # fmt: skip
        return found


def _learned(given: bool, graph: Any, kind: str, captured: tuple[Any, ...], q: Tensor) -> tuple[str, list[Tensor]]:
    """The name of a function, and what it captures; "" if there is none."""
    if not given:
        return "", []
    if torch.is_grad_enabled() and any(isinstance(each, Tensor) and each.requires_grad for each in captured):
        raise Untraceable(f"a tensor that {kind} captures requires a gradient, which a graph does not compute")
    return learn(graph, kind, captured, q.device)


flex_attention = Traced()  # under the name by which the text of a graph refers to it

# -- the operator ------------------------------------------------------------------------------------------------------


def _functions(
    score_mod: str, score_arrays: list[Tensor], mask_mod: str, mask_arrays: list[Tensor], blocks: list[Tensor],
    block_sizes: list[int],
) -> dict[str, Any]:  # fmt: skip
    """The functions and the mask of a call, as `warploom.attention` takes them."""
    score = function_named(score_mod).contents(score_arrays) if score_mod else None
    mask = function_named(mask_mod).contents(mask_arrays) if mask_mod else None
    if not blocks:
        return {"score_mod": score, "mask_mod": mask, "block_mask": None}
    tensors = dict(zip(MASK_TENSORS, (*blocks, None, None), strict=False))
    height, width, *lengths = block_sizes
    found = SimpleNamespace(**tensors, BLOCK_SIZE=(height, width), seq_lengths=tuple(lengths), mask_mod=mask)
    return {"score_mod": score, "mask_mod": None, "block_mask": found}


def _run(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, *more: Any) -> tuple[Tensor, Tensor]:
    functions, options = _functions(*more[:6]), options_of(*more[6:])
    with torch.no_grad(), torch.autocast(q.device.type, enabled=False):
        found: tuple[Tensor, Tensor] = calls.attention(q, k, v, sinks=sinks, return_lse=True, **options, **functions)
    return found


def _fake(q: Tensor, k: Tensor, v: Tensor, *more: Any) -> tuple[Tensor, Tensor]:
    return fake_results(q, v, more[-1])


def _run_backward(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, out: Tensor, lse: Tensor, grad: Tensor,
    lse_grad: Tensor | None, *more: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    functions, options = _functions(*more[:6]), options_of(*more[6:])
    grad, lse_grad = spread(grad), spread(lse_grad)
    with torch.no_grad(), torch.autocast(q.device.type, enabled=False):
        tensors = {"q": q, "k": k, "v": v}
        found = gradients.gradients(tensors, out, lse, grad, lse_grad=lse_grad, **options, **functions)
        sunk = q.new_zeros(0, dtype=torch.float32) if sinks is None else sunken(sinks, lse, found.delta)
    return found.dq, found.dk, found.dv, sunk


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, sinks, *more = inputs
    check_setup(ctx, q)
    lists = [each if isinstance(each, (list, tuple)) else None for each in more[:5]]
    ctx.save_for_backward(q, k, v, sinks, *output, *[tensor for each in lists for tensor in each or ()])
    ctx.counts = [None if each is None else len(each) for each in lists]
    ctx.more = more
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, lse_grad: Tensor | None) -> Any:
    q, k, v, sinks, out, lse, *saved = ctx.saved_tensors
    more: list[Any] = list(ctx.more)
    missing: list[Any] = []
    for at, count in enumerate(ctx.counts):
        if count is not None:
            more[at], saved = saved[:count], saved[count:]
        missing.append(None if count is None else [None] * count)
    missing.append(None if more[len(missing)] else [])  # torch takes an empty list for one of tensors
    grad = of_result(grad, out)
    run: Callable[..., Any] = torch.ops.warploom.attention_modified_backward
    dq, dk, dv, sunk = run(q, k, v, sinks, out, lse, grad, lse_grad, *more)
    return dq, dk, dv, None if sinks is None else sunk, *missing, *[None] * (len(more) - len(missing))


_LIBRARY = define_both((SCHEMA, _run, _fake, _backward, _setup), (BACKWARD_SCHEMA, _run_backward, fake_gradients))
