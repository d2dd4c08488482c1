"""Experts for models of `transformers`: the implementation "warploom", which `convert` selects instead of "grouped_mm".

    rows of each expert together   ->   grouped product (gate and up, bias)   ->   the model's own gate
                                   ->   grouped product (down, bias)          ->   weights, rows back to their tokens

Two launches of this library for all experts of a layer, rounded where `transformers` rounds. "grouped_mm" computes as
before what the kernels do not support (gradients, a tracer, another GPU, experts split over processes, weights stored
transposed).
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn

from ...collective.tile.sizes import MOST_GROUPS
from ...operators.grouped import grouped_matmul
from .arguments import SIXTEEN
from .attention import runs_on
from .fused import PLAIN, wanted

NAME, REPLACED = "warploom", "grouped_mm"
_VECTOR = 8
"""Number of elements in 16 bytes."""


def register() -> None:
    """Register the implementation with `transformers`, if it supports this."""
    if (found := _interface()) is not None:
        found.ExpertsInterface.register(NAME, multiply)


def _interface() -> Any:
    """The module of `transformers` for it; None if there is none."""
    if "transformers" not in sys.modules:
        return None
    try:
        from transformers.integrations import moe
    except ImportError:
        return None
    return moe if hasattr(moe, "ExpertsInterface") else None


def use(part: Any) -> bool:
    """Let a model of `transformers` multiply its experts with this library if it uses "grouped_mm". True if it does
    so afterwards."""
    can = getattr(part, "_can_set_experts_implementation", None)
    if _interface() is None or can is None or not can():
        return False
    now = getattr(part.config, "_experts_implementation", None)
    if now == NAME:  # it shares its configuration with a model that contains it
        return True
    if now != REPLACED or not any(map(fitting, part.modules())):
        return False
    part.set_experts_implementation({"": NAME})
    return True


def experts_of(model: nn.Module) -> dict[str, nn.Module]:
    """The modules of a model whose experts are one tensor, by name."""
    return {name: module for name, module in model.named_modules() if _are_experts(module)}


def _are_experts(module: Any) -> bool:
    """True if `transformers` lets an implementation be chosen for this module's experts."""
    return hasattr(module, "has_gate") and hasattr(module, "is_transposed")


def _parallel(module: Any) -> bool:
    """True if other processes have some of the experts. Versions of `transformers` such as 5.17 do not say which
    modules."""
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    return bool(getattr(module, "_is_expert_parallel", distributed))


def used(module: Any) -> bool:
    """True if a module's experts are multiplied by this library."""
    return getattr(module.config, "_experts_implementation", None) == NAME and fitting(module)


def fitting(module: Any) -> bool:
    """True if a module has experts that the grouped kernels can read in place."""
    return _are_experts(module) and not unfit(module)


def unfit(module: Any) -> str:
    """Why experts are not multiplied by this library; "" if there is no reason."""
    if module.is_transposed:
        return "its experts are stored (experts, in, out), which no grouped kernel of 16 bits reads"
    up, down = _weights(module)
    if type(up) not in PLAIN or type(down) not in PLAIN:
        return f"its experts are a {type(up).__name__}"
    if up.dtype not in SIXTEEN or down.dtype is not up.dtype:
        return f"its experts are {up.dtype}"
    sizes = (*up.shape[1:], *down.shape[1:])
    if any(size % _VECTOR for size in sizes) or up.shape[0] > MOST_GROUPS:
        return f"its experts are {tuple(up.shape)}: sizes of multiples of {_VECTOR}, at most {MOST_GROUPS} experts"
    return ""


def _weights(module: Any) -> tuple[Tensor, Tensor]:
    return module.gate_up_proj if module.has_gate else module.up_proj, module.down_proj


def multiply(module: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """The function for a module of experts: tokens (T, K), the experts of each (T, topk) and their weights."""
    if not computable(module, hidden_states):
        found: Tensor = _interface().grouped_mm_experts_forward(module, hidden_states, top_k_index, top_k_weights)
        return found
    up, down = _weights(module)
    topk = top_k_index.shape[-1]
    chosen, order = torch.sort(top_k_index.reshape(-1), stable=True)
    groups = torch.arange(up.shape[0], device=chosen.device, dtype=chosen.dtype)
    offsets = torch.searchsorted(chosen, groups, right=True, out_int32=True)

    def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        result: Tensor = grouped_matmul(x.contiguous(), weight.mT, offsets=offsets, bias=bias)
        return result

    of_up = module.gate_up_proj_bias if module.has_gate and module.has_bias else None
    if module.has_bias and not module.has_gate:
        of_up = module.up_proj_bias
    inner = product(hidden_states[order // topk], up, of_up)
    inner = module._apply_gate(inner) if module.has_gate else module.act_fn(inner)
    rows = product(inner, down, module.down_proj_bias if module.has_bias else None)
    if getattr(module, "has_post_expert_norm", False):
        rows = module.post_expert_norm(rows)
    weighted = rows * top_k_weights.reshape(-1)[order].unsqueeze(-1)
    back = torch.empty_like(weighted)
    back[order] = weighted
    return back.view(*top_k_index.shape, -1).sum(dim=1).to(hidden_states.dtype)


def computable(module: Any, x: Tensor) -> bool:
    """True if the kernels accept these experts and tokens, on a supported GPU, and nothing observes the operators."""
    if torch.compiler.is_compiling() or not runs_on(x.device) or _parallel(module) or unfit(module):
        return False
    up, down = _weights(module)
    alike = type(x) in PLAIN and x.dtype is up.dtype and x.device == up.device == down.device and x.numel() > 0
    laid = up.is_contiguous() and down.is_contiguous() and not torch.is_autocast_enabled(x.device.type)
    return alike and laid and not wanted(x, up, down)
