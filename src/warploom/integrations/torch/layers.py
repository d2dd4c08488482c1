"""PyTorch: layers that replace `nn.Linear`, and the conversion of a model to them.

    model = warploom.torch.convert(model)                             # every nn.Linear that can be

The numerics remain what the model's author chose. f32 is multiplied as tf32 here, so an f32 layer multiplies as before
if torch itself may not round to tf32 (`torch.get_float32_matmul_precision() == "highest"`, its default) and autocast
is off.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...errors import ArgumentTypeError
from ..torch import linear
from . import transformers
from .fused import bias_of, weight_of
from .models import check_model, fused
from .models import fuse as fuse_modules
from .tracing import constant_result
from .unconverted import unfused

__all__ = ["ConversionWarning", "Linear", "convert", "converted", "fused", "unfused"]

MOST_NAMES = 4
"""Maximum number of names with the same reason that a warning lists individually."""
TYPES = (torch.bfloat16, torch.float16, torch.float32)


class Linear(torch.nn.Linear):
    """`nn.Linear` computed by this library: the same parameters, names and state dict.

    Shapes and types as in `warploom.linear`: bf16 and f16; f32 as tf32 if torch may do so too, otherwise by torch.
    """

    _warploom_linear = True

    def __init_subclass__(cls, **options: Any) -> None:
        """A subclass may do more than multiply."""
        super().__init_subclass__(**options)
        cls._warploom_linear = False

    def forward(self, input: Tensor) -> Tensor:
        """(…, in_features) to (…, out_features)."""
        weight = weight_of(self)
        if weight.dtype is torch.float32 and isinstance(input, Tensor) and exact(input):
            return super().forward(input)
        return linear(input, weight, bias_of(self))


def exact(input: Tensor) -> bool:
    """True for an f32 product that must not be rounded to tf32."""
    if input.dtype is not torch.float32 or torch.is_autocast_enabled(input.device.type):
        return False
    return tf32_forbidden()


@constant_result
def tf32_forbidden() -> bool:
    """True if torch may not round products to tf32; a compiled graph is guarded by that setting anyway."""
    return torch.get_float32_matmul_precision() == "highest"


class ConversionWarning(UserWarning):
    """Layers that `convert` left unchanged, and norms and experts that it did not fuse, with the reason for each."""


def convert(
    model: torch.nn.Module, *, skip: Callable[[str, torch.nn.Linear], bool] | None = None, fuse: bool = True,
) -> torch.nn.Module:  # fmt: skip
    """Make every `nn.Linear` of a model a `Linear` of this library, in place. Returns the model.

    Parameters, hooks and names are kept, so optimizers and state dicts remain valid. `skip(name, layer)` may exclude a
    layer. One ConversionWarning lists what was left out, and why; `converted(model)` lists what was replaced,
    `fused(model)` what was fused, `unfused(model)` which norms and experts were not, and why.

    fuse: if the code of a module's forward allows it, layers of one input become one product (their weights are then
        adjacent in memory), a gate and a residual are applied in the kernel of the product, and a norm is one
        kernel. This applies to 16-bit calls without a gradient; others run the original code. `fused(model)` lists it.
        Models of `transformers` that use SDPA use this library's attention (`attn_implementation` "warploom"): a
        prefill, or a decoding step, by one kernel on Hopper. Padding, windows and everything else stay with SDPA, and a
        model with another attention (with sinks or a softcap, say) keeps it.
        Sums that a kernel keeps in f32 are rounded once, while the model's code rounds each step.

    Raises ArgumentTypeError for anything but a module.
    """
    check_model(model, "convert")
    if skip is not None and not callable(skip):
        raise ArgumentTypeError("skip= is not a function", expected="skip(name, layer) -> bool", got=repr(skip)[:80])
    kept = {}
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.Linear) or isinstance(module, Linear):
            continue
        reason = "excluded by skip=" if skip is not None and skip(name, module) else unfit(module)
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
    parts = [(f"convert left {len(kept)} linear layers unchanged", kept)]
    if fuse:
        attention = {f"attention of {name}": reason for name, reason in transformers.use(model).items()}
        parts += [("convert left to torch, in part or whole", attention), ("convert fused nothing of", unfused(model))]
    said = "\n".join(f"{head}:\n{_listed(some)}" for head, some in parts if some)
    if said:
        warnings.warn(said, ConversionWarning, stacklevel=2)
    return model


def _listed(reasons: dict[str, str]) -> str:
    """One line per reason, with the first of many names and their number."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(name or "the model itself")
    short = {reason: some if len(some) <= MOST_NAMES else [some[0], f"{len(some) - 1} more"]
             for reason, some in names.items()}  # fmt: skip
    return "\n".join(f"  {', '.join(some)}: {reason}" for reason, some in short.items())


def converted(model: torch.nn.Module) -> list[str]:
    """Names of the layers that belong to this library."""
    check_model(model, "converted")
    return [name for name, module in model.named_modules() if isinstance(module, Linear)]


def unfit(module: torch.nn.Linear) -> str:
    """Why a layer should be left unchanged; "" if there is no reason."""
    if type(module) is not torch.nn.Linear:
        return f"it is a {type(module).__name__}, which may do more than multiply"
    weight = module.weight
    if weight.dtype not in TYPES:
        return f"its weight is {weight.dtype}"
    if module.in_features * weight.element_size() % 16:
        return f"rows of {module.in_features} x {weight.dtype} are not a multiple of 16 bytes: each call copies them"
    return ""
