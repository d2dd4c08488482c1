"""The helpers that a rewritten `forward` calls (`forward`): joint products, gating, residuals, rotation, and norms.

Each checks the layers and tensors of the call. If they belong to this library, have 16 bits, no hooks, one device, and
no gradient is required, one kernel computes it; otherwise exactly the model's original code runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks_of_all

from ...operators.norm import MOST_COLUMNS, norm_again, rms_norm
from ...operators.rotary import embedded_again, rotary_embedding, why_not
from ...operators.spec.activations import ACTIVATIONS
from ..torch import linear
from .arguments import SIXTEEN
from .rotary import kind_of

PLAIN = (Tensor, nn.Parameter)
"""Plain tensors with their own memory: not sharded, quantised or wrapped ones, which have their own classes."""


def together(x: Tensor, *layers: nn.Module) -> tuple[Tensor, ...]:
    """The results of several linear layers of one input: one product if their weights are adjacent in memory (`pack`),
    whose results are columns of one array."""
    found = None if torch.compiler.is_compiling() else parameters_of(x, *layers)
    if found is not None:
        weights, biases = zip(*found, strict=True)
        weight = joined(weights)
        bias = joined(biases) if None not in biases else None
        if weight is not None and (bias is not None or not any(each is not None for each in biases)):
            whole = linear(x, weight, bias)
            return torch.split_with_sizes(whole, [each.shape[0] for each in weights], -1)
    return tuple(layer(x) for layer in layers)


def gated(activation: nn.Module, gate: nn.Module, up: nn.Module | None, x: Tensor) -> Tensor:
    """activation(gate(x)) * up(x); without `up`, the halves of gate(x)."""
    name = name_of(activation)
    found = None if name is None else parameters_of(x, gate) if up is None else parameters_of(x, gate, up)
    if found is not None:
        weight, bias = found[0]
        if up is not None:
            return linear(x, weight, bias, activation=name, gate=linear(x, *found[1]))
        middle = weight.shape[0] // 2
        if bias is None:
            return linear(x, weight[:middle], activation=name, gate=linear(x, weight[middle:]))
    if up is not None:
        return activation(gate(x)) * up(x)
    first, second = gate(x).chunk(2, dim=-1)
    return second * activation(first)


def project(layer: nn.Module, x: Tensor, residual: Tensor | Scaled | None) -> Tensor:
    """layer(x) plus a residual; with `Scaled`, a multiple of layer(x) plus the residual."""
    if residual is None:
        return layer(x)
    to, by = residual if isinstance(residual, Scaled) else (residual, 1.0)
    if type(to) in PLAIN and to.dtype is x.dtype and (found := parameters_of(x, layer)) is not None:
        weight, bias = found[0]
        if (by == 1.0 or bias is None) and to.shape == (*x.shape[:-1], weight.shape[0]):
            return linear(x, weight, bias, residual=to, **({} if by == 1.0 else {"alpha": by}))
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


def rotated(
    function: Callable[..., tuple[Tensor, Tensor]], q: Tensor, k: Tensor, cos: Tensor, sin: Tensor
) -> tuple[Tensor, Tensor]:
    """function(q, k, cos, sin) for q and k (B, H, S, D), by one kernel if it is a function that `rotary` knows."""
    given = q, k, cos, sin
    kind = "" if torch.compiler.is_compiling() else kind_of(function)
    if kind and all([type(each) in PLAIN and each.dtype in SIXTEEN for each in given]) and not wanted(*given):
        if q.dim() == k.dim() == 4 and (kind == "partial" or cos.shape[-1] == q.shape[-1]):
            apart = q.transpose(1, 2), k.transpose(1, 2), cos, sin
            found = embedded_again(*apart)
            if found is None and len({each.device for each in given}) == 1 and why_not(*apart) is None:
                found = rotary_embedding(*apart)
            if found is not None:
                return found[0].transpose(1, 2), found[1].transpose(1, 2)
    return function(*given)


def norm(self: Any, x: Tensor, *, residual_: Tensor | Scaled | None = None) -> Tensor:
    """The `forward` of a norm whose code is one of `norms.TEXTS`, plus a residual."""
    weight, what = weight_of(self), self._warploom_norm
    residual, factor = residual_ if isinstance(residual_, Scaled) else (residual_, 1.0)
    if not torch.compiler.is_compiling() and factor == 1.0:
        eps, forms = getattr(self, what.eps), (what.round_first, what.centred, what.unit_offset)
        found: Tensor | None = norm_again(x, weight, eps, *forms, residual)
        if found is not None:
            return found
        given = (x, weight) if residual is None else (x, weight, residual)
        ours = x.dtype in SIXTEEN and all(type(each) in PLAIN and each.dtype is x.dtype for each in given)
        if ours and not wanted(*given) and len({each.device for each in given}) == 1:
            fits = x.shape[-1] % 8 == 0 and 0 < x.shape[-1] <= MOST_COLUMNS and weight.shape == x.shape[-1:]
            alike = residual is None or (residual.shape == x.shape and residual.is_contiguous())
            if fits and alike and x.is_contiguous():
                return rms_norm(
                    x, weight, eps, round_first=forms[0], centred=forms[1], unit_offset=forms[2], residual=residual
                )
    result: Tensor = super(type(self), self).forward(x)
    return result if residual is None else residual + (result if factor == 1.0 else result * factor)


# -- what can be fused ---------------------------------------------------------------------------------------------


def parameters_of(x: Tensor, *layers: nn.Module) -> list[tuple[Tensor, Tensor | None]] | None:
    """Weights and biases of layers, if each is a `Linear` of this library without hooks or gradients and has the
    input's 16-bit type, else None."""
    kind = x.dtype
    if type(x) not in PLAIN or kind not in SIXTEEN or torch.is_autocast_enabled(x.device.type):
        return None
    graded = torch.is_grad_enabled()
    if graded and x.requires_grad:
        return None
    found = []
    for layer in layers:
        if not getattr(type(layer), "_warploom_linear", False) or hooked(layer):
            return None
        weight = weight_of(layer)
        if type(weight) not in PLAIN or weight.dtype is not kind or (graded and weight.requires_grad):
            return None
        found.append((weight, bias_of(layer)))
    return found


def weight_of(module: nn.Module) -> Any:
    """module.weight, without nn.Module's search for it, which costs the host as much as a check of three tensors."""
    own = module._parameters
    return own["weight"] if "weight" in own else module.weight  # which another class, a parametrisation say, may make


def bias_of(module: nn.Module) -> Any:
    """module.bias, found like a weight."""
    own = module._parameters
    return own["bias"] if "bias" in own else module.bias


def hooked(module: nn.Module) -> bool:
    """True if a hook runs before, after or instead of a module's forward: its own, or one of all modules."""
    own = module._forward_hooks or module._forward_pre_hooks or "forward" in module.__dict__
    return bool(own or hooks_of_all._global_forward_hooks or hooks_of_all._global_forward_pre_hooks)


def wanted(*tensors: Tensor) -> bool:
    """True if a gradient is required."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def joined(parts: Sequence[Tensor]) -> Tensor | None:
    """One tensor over several that are adjacent in memory; None if they are not."""
    first = parts[0]
    whole = _adjacent(tuple([(part.data_ptr(), part.shape, part.dtype, part.is_contiguous()) for part in parts]))
    storage = first.untyped_storage()
    if whole is None or storage.data_ptr() + storage.nbytes() < whole[2]:
        return None  # they are not, or they are by accident
    return first.detach().as_strided(whole[0], whole[1])


@lru_cache(maxsize=4096)
def _adjacent(parts: tuple[tuple[int, torch.Size, torch.dtype, bool], ...]) -> Any:
    """Shape, strides and end of a tensor over some, of which address, shape, type and contiguity are given."""
    start, shape, dtype, _ = parts[0]
    step, rows = shape[1:].numel() * dtype.itemsize, 0
    for address, size, kind, contiguous in parts:
        if address != start + rows * step or size[1:] != shape[1:] or not contiguous or kind is not dtype:
            return None
        rows += size[0]
    whole = (rows, *shape[1:])
    return whole, torch.empty(whole, device="meta").stride(), start + rows * step


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
