"""The helpers that a rewritten `forward` calls (`forward`): joint products, gating, residuals, and norms.

Each checks the layers and tensors of the call. If they belong to this library, have 16 bits, no hooks, one device, and
no gradient is required, one kernel computes it; otherwise exactly the model's original code runs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...operators.norm import MOST_COLUMNS, rms_norm
from ...operators.spec.activations import ACTIVATIONS
from ..torch import linear
from .arguments import SIXTEEN

PLAIN = (Tensor, nn.Parameter)
"""Plain tensors with their own memory: not sharded, quantised or wrapped ones, which have their own classes."""


def together(x: Tensor, *layers: nn.Module) -> tuple[Tensor, ...]:
    """The results of several linear layers of one input: one product if their weights are adjacent in memory (`pack`),
    whose results are columns of one array."""
    if not torch.compiler.is_compiling() and all(usable(layer, x) for layer in layers):
        weight = joined([layer.weight for layer in layers])
        biases = [layer.bias for layer in layers]
        bias = joined(biases) if all(each is not None for each in biases) else None
        if weight is not None and (bias is not None or all(each is None for each in biases)):
            whole = linear(x, weight, bias)
            return whole.split([layer.weight.shape[0] for layer in layers], dim=-1)
    return tuple(layer(x) for layer in layers)


def gated(activation: nn.Module, gate: nn.Module, up: nn.Module | None, x: Tensor) -> Tensor:
    """activation(gate(x)) * up(x); without `up`, the halves of gate(x)."""
    name = name_of(activation)
    if name is not None and usable(gate, x) and (up is None or usable(up, x)):
        if up is not None:
            return linear(x, gate.weight, gate.bias, activation=name, gate=linear(x, up.weight, up.bias))
        middle = gate.weight.shape[0] // 2
        if gate.bias is None:
            other = linear(x, gate.weight[middle:])
            return linear(x, gate.weight[:middle], activation=name, gate=other)
    if up is not None:
        return activation(gate(x)) * up(x)
    first, second = gate(x).chunk(2, dim=-1)
    return second * activation(first)


def project(layer: nn.Module, x: Tensor, residual: Tensor | Scaled | None) -> Tensor:
    """layer(x) plus a residual; with `Scaled`, a multiple of layer(x) plus the residual."""
    if residual is None:
        return layer(x)
    to, by = residual if isinstance(residual, Scaled) else (residual, 1.0)
    fits = type(to) in PLAIN and to.dtype is x.dtype and (by == 1.0 or getattr(layer, "bias", None) is None)
    if fits and usable(layer, x) and to.shape == (*x.shape[:-1], layer.weight.shape[0]):
        return linear(x, layer.weight, layer.bias, residual=to, **({} if by == 1.0 else {"alpha": by}))
    return to + (layer(x) if by == 1.0 else layer(x) * by)


class Scaled(NamedTuple):
    """A residual, and the factor of the value added to it."""

    to: Tensor
    by: float


def onto(residual: Tensor, part: nn.Module, *given: Any, **named: Any) -> Any:
    """part(...) plus a residual, added to its result or to the first of them; by the part itself if it can."""
    if getattr(part, "_warploom_takes_residual", False) and not hooked(part):
        return part(*given, residual_=residual, **named)
    result = part(*given, **named)
    if isinstance(result, tuple):
        return residual + result[0], *result[1:]
    return residual + result


def onto_scaled(residual: Tensor, factor: Any, part: nn.Module, *given: Any, **named: Any) -> Any:
    """Like `onto`, if the result is multiplied by a number before the addition."""
    number = type(factor) in (int, float)
    if number and getattr(part, "_warploom_takes_residual", False) and not hooked(part):
        return part(*given, residual_=Scaled(residual, float(factor)), **named)
    result = part(*given, **named)
    if isinstance(result, tuple):
        return residual + result[0] * factor, *result[1:]
    return residual + result * factor


def onto_through(residual: Tensor, between: nn.Module, part: nn.Module, *given: Any, **named: Any) -> Any:
    """Like `onto`, if the result goes through a dropout before the addition."""
    if type(between) is nn.Dropout and not hooked(between) and (between.p == 0 or not between.training):
        return onto(residual, part, *given, **named)
    result = part(*given, **named)
    if isinstance(result, tuple):
        return residual + between(result[0]), *result[1:]
    return residual + between(result)


def norm(self: Any, x: Tensor) -> Tensor:
    """The `forward` of a norm whose code is one of `norms.TEXTS`."""
    weight, what = self.weight, self._warploom_norm
    ours = type(x) in PLAIN and type(weight) in PLAIN and x.dtype in SIXTEEN and weight.dtype is x.dtype
    if ours and not torch.compiler.is_compiling() and not wanted(x, weight):
        fits = x.shape[-1] % 8 == 0 and 0 < x.shape[-1] <= MOST_COLUMNS and weight.shape == x.shape[-1:]
        if fits and x.is_contiguous() and x.device == weight.device:
            return rms_norm(
                x, weight, getattr(self, what.eps), round_first=what.round_first, centred=what.centred,
                unit_offset=what.unit_offset,
            )  # fmt: skip
    return super(type(self), self).forward(x)


# -- what can be fused ---------------------------------------------------------------------------------------------


def usable(layer: nn.Module, x: Tensor) -> bool:
    """True if a layer is a `Linear` of this library without hooks or gradients, with the input's 16-bit type."""
    from .layers import Linear

    if type(layer) is not Linear or hooked(layer):
        return False
    weight = layer.weight
    if type(x) not in PLAIN or type(weight) not in PLAIN:
        return False
    if x.dtype not in SIXTEEN or weight.dtype is not x.dtype or torch.is_autocast_enabled(x.device.type):
        return False
    return not wanted(x, weight)


def hooked(module: nn.Module) -> bool:
    """True if a hook runs before, after or instead of a module's forward."""
    return bool(module._forward_hooks or module._forward_pre_hooks) or "forward" in module.__dict__


def wanted(*tensors: Tensor) -> bool:
    """True if a gradient is required."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def joined(parts: list[Tensor]) -> Tensor | None:
    """One tensor over several that are adjacent in memory; None if they are not."""
    first, rows = parts[0], 0
    start, step = first.data_ptr(), first.stride(0) * first.element_size()
    for part in parts:
        if part.data_ptr() != start + rows * step or part.shape[1:] != first.shape[1:] or not part.is_contiguous():
            return None
        if part.dtype is not first.dtype:
            return None
        rows += part.shape[0]
    storage = first.untyped_storage()
    if storage.data_ptr() + storage.nbytes() < start + rows * step:
        return None  # they are adjacent by accident
    return first.detach().as_strided((rows, *first.shape[1:]), first.stride())


def pack(layers: list[nn.Module]) -> bool:
    """Make the weights, and the biases, of linear layers adjacent in memory. The parameters remain the same objects."""
    done = False
    for name in ("weight", "bias"):
        parts = [getattr(layer, name) for layer in layers]
        if any(type(part) not in PLAIN for part in parts) or joined(parts) is not None:
            continue
        alike = {(part.dtype, part.device, part.shape[1:], part.requires_grad) for part in parts}
        if len(alike) > 1 or any(part.is_meta or not part.is_contiguous() for part in parts):
            continue
        if len({part.untyped_storage().data_ptr() for part in parts}) < len(parts):
            continue  # tied to something
        whole = torch.cat([part.detach() for part in parts])
        for part, piece in zip(parts, whole.split([part.shape[0] for part in parts]), strict=True):
            part.data = piece
        done = True
    return done


def name_of(activation: Any) -> str | None:
    """The library's activation for a module, as `convert` determined by its values; None for others."""
    if not isinstance(activation, nn.Module) or hooked(activation):
        return None
    return getattr(activation, "_warploom_activation", None)


def recognised(activation: nn.Module) -> str | None:
    """The library's activation that a module computes, tested on numbers; None if it is none of them."""
    if list(activation.parameters()) or list(activation.buffers()) or activation.training and _random(activation):
        return None
    x = torch.cat([torch.linspace(-9, 9, 181), torch.tensor([0.0, -30.0, 30.0])]).double()
    try:
        with torch.no_grad():
            found = activation(x)
    except Exception:  # noqa: BLE001 - somebody's module
        return None
    if not isinstance(found, Tensor) or found.shape != x.shape:
        return None
    for name, each in ACTIVATIONS.items():
        if torch.allclose(found.double(), each.forward(x, torch), rtol=1e-6, atol=1e-7):
            return name
    return None


def _random(activation: nn.Module) -> bool:
    return any(isinstance(each, nn.modules.dropout._DropoutNd) or "RReLU" in type(each).__name__
               for each in activation.modules())  # fmt: skip
