"""The experts and norms of a model that `convert` could not fuse, by name, with reasons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from . import transformers_experts as experts
from .norms import norm_of


def unfused(model: nn.Module) -> dict[str, str]:
    """The reason for each norm, and each module of experts, that computes as it did before `convert`."""
    from .models import check_model

    check_model(model, "unfused")
    return dict(_norms(model)) | dict(_experts(model))


def _experts(model: nn.Module) -> Iterator[tuple[str, str]]:
    for name, module in experts.experts_of(model).items():
        if not experts.used(module):
            implementation = getattr(module.config, "_experts_implementation", None)
            yield (
                name,
                experts.unfit(module) or f"its model multiplies experts by {implementation!r}, not by 'grouped_mm'",
            )


def _norms(model: nn.Module) -> Iterator[tuple[str, str]]:
    from .models import Fused

    for name, module in model.named_modules():
        kind: Any = type(module)
        scaled = getattr(module, "weight", None) is not None and module.weight.dim() == 1  # type: ignore[operator,union-attr]
        if not scaled or kind.__module__.startswith("torch.") or isinstance(module, Fused):
            continue
        if ("RMSNorm" in kind.__name__ or "LayerNorm" in kind.__name__) and norm_of(kind) is None:
            yield name, f"the code of {kind.__name__}.forward is none of the norms that are one kernel"
