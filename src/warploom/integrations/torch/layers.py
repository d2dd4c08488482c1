"""PyTorch: layers that take the place of `nn.Linear`, and a model whose layers are replaced by them.

    model = warploom.torch.convert(model)                             # every nn.Linear that can be

Numbers stay what the model's author chose. f32 is multiplied as tf32 here, so a layer of f32 multiplies as before where
torch itself may not round to tf32 (`torch.get_float32_matmul_precision() == "highest"`, its default) and no autocast
is on.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from ...errors import ArgumentTypeError
from ..torch import linear
from . import transformers
from .left import unfused
from .models import fuse as fuse_modules
from .models import fused

__all__ = ["ConversionWarning", "Linear", "convert", "converted", "fused", "unfused"]

MOST_NAMES = 4
"""With the same reason, that a warning lists one by one."""
TYPES = (torch.bfloat16, torch.float16, torch.float32)


class Linear(torch.nn.Linear):
    """`nn.Linear` by this library: the same parameters, names and state dict.

    Shapes and types as `warploom.linear`: bf16 and f16; f32 as tf32 where torch may do so too, else by torch.
    """

    def forward(self, input: Tensor) -> Tensor:
        """(…, in_features) to (…, out_features)."""
        if self.weight.dtype is torch.float32 and isinstance(input, Tensor) and exact(input):
            return super().forward(input)
        return linear(input, self.weight, self.bias)


def exact(input: Tensor) -> bool:
    """Whether products of f32 must not be rounded to tf32, and this one is of f32."""
    if input.dtype is not torch.float32 or torch.is_autocast_enabled(input.device.type):
        return False
    return tf32_forbidden()


@torch.compiler.assume_constant_result
def tf32_forbidden() -> bool:
    """Whether torch may not round products to tf32; a compiled graph is guarded by that setting anyway."""
    return torch.get_float32_matmul_precision() == "highest"


class ConversionWarning(UserWarning):
    """Layers that `convert` left as they are, and norms and experts that it did not fuse, with the reason of each."""


def convert(
    model: torch.nn.Module, *, skip: Callable[[str, torch.nn.Linear], bool] | None = None, fuse: bool = True,
) -> torch.nn.Module:  # fmt: skip
    """Make every `nn.Linear` of a model a `Linear` of this library, in place; gives back the model.

    Parameters, hooks and names stay, so optimizers and state dicts do too. `skip(name, layer)` may keep a layer. What
    is left out, and why, is said in one ConversionWarning; `converted(model)` lists what was replaced, `fused(model)`
    what was fused, `unfused(model)` which norms and experts were not, and why.

    fuse: where the text of a module's forward shows it, layers of one input become one product (their weights then
    follow each other in memory), a gate and a residual are applied in the kernel of the product, and a norm is one
    kernel. It holds for 16-bit calls without a gradient; others do what the text says. `fused(model)` lists them.
    Models of `transformers` that attend by SDPA attend by this library (`attn_implementation` "warploom"): a prefill,
    or a step of decoding, by one kernel on Hopper. Padding, windows and everything else are SDPA's as before, and a
    model with another attention (of sinks or a softcap, say) keeps it.
    Sums that a kernel keeps in f32 are rounded once, where the text of the model rounds each step.

    Raises ArgumentTypeError for what is not a module.
    """
    if not isinstance(model, torch.nn.Module):
        raise ArgumentTypeError("convert takes a model", expected="a torch.nn.Module", got=repr(model)[:80])
    kept = {}
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.Linear) or isinstance(module, Linear):
            continue
        reason = "skip= says so" if skip is not None and skip(name, module) else unfit(module)
        if reason:
            kept[name or "the model itself"] = reason
        else:
            module.__class__ = Linear
            if module.weight.dtype is torch.float32 and tf32_forbidden():
                kept[name or "the model itself"] = (
                    "its weight is f32: it multiplies as before without autocast, or until "
                    'torch.set_float32_matmul_precision("high") lets products be rounded to tf32'
                )
    if fuse:
        fuse_modules(model)
    parts = [(f"convert left {len(kept)} linear layers as they are", kept)]
    if fuse:
        attention = {f"attention of {name}": reason for name, reason in transformers.use(model).items()}
        parts += [("convert left to torch, some of it or all", attention), ("convert fused nothing of", unfused(model))]
    said = "\n".join(f"{head}:\n{_listed(some)}" for head, some in parts if some)
    if said:
        warnings.warn(said, ConversionWarning, stacklevel=2)
    return model


def _listed(reasons: dict[str, str]) -> str:
    """A line for each reason: of many names the first, and how many there are."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(name or "the model itself")
    short = {reason: some if len(some) <= MOST_NAMES else [some[0], f"{len(some) - 1} more"]
             for reason, some in names.items()}  # fmt: skip
    return "\n".join(f"  {', '.join(some)}: {reason}" for reason, some in short.items())


def converted(model: torch.nn.Module) -> list[str]:
    """Names of the layers that are this library's."""
    return [name for name, module in model.named_modules() if isinstance(module, Linear)]


def unfit(module: torch.nn.Linear) -> str:
    """Why a layer is better left as it is; "" where nothing speaks against it."""
    if type(module) is not torch.nn.Linear:
        return f"it is a {type(module).__name__}, which may do more than multiply"
    weight = module.weight
    if weight.dtype not in TYPES:
        return f"its weight is {weight.dtype}"
    if module.in_features * weight.element_size() % 16:
        return f"rows of {module.in_features} x {weight.dtype} are not a multiple of 16 bytes: each call copies them"
    return ""
