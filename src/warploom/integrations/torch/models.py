"""Model classes whose forward is rewritten: the same modules, parameters and state dict, with fewer kernels.

A module of a class whose code has something to fuse (`forward`) becomes an instance of a subclass made for it, with the
same name; so does a norm with known code. If a kernel cannot compute a call, forward runs the original code.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

from torch import nn

from ...errors import ArgumentTypeError
from . import fused as pieces
from . import transformers, wrapped
from . import transformers_experts as experts
from .forward import HELPERS, Rewritten, rewrite
from .norms import Norm, norm_of
from .rotary import kind_of


class Fused:
    """The members that are added to a fused class."""

    _warploom_fused = pieces
    _warploom_base: type[nn.Module]
    _warploom_linears: frozenset[str] = frozenset()
    _warploom_found: Rewritten | None = None
    _warploom_norm: Norm | None = None
    _warploom_takes_residual = False

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle by the class it was made from: another process recreates the subclass."""
        return _made, (self._warploom_base, self._warploom_linears), self.__dict__


assert HELPERS == "_warploom_fused"


def _made(base: Any, linears: frozenset[str]) -> nn.Module:
    transformers.register()
    kind: Any = fused_class(base, linears) or base
    made: nn.Module = kind.__new__(kind)
    return made


@lru_cache(maxsize=1024)
def fused_class(base: Any, linears: frozenset[str]) -> type[nn.Module] | None:
    """The subclass of a class of modules, whose attributes `linears` are linear layers; None if nothing is fused."""
    norm = norm_of(base)
    if norm is not None:
        return _subclass(base, linears, pieces.norm, {"_warploom_norm": norm, "_warploom_takes_residual": True}, [])
    outside = wrapped.layers(base.forward)
    text = outside.pop()
    found = rewrite(text, linears, residual=all(map(wrapped.passes_on, outside)), rotates=kind_of)
    if found is None:
        return None
    members = {"_warploom_found": found, "_warploom_takes_residual": found.takes_residual}
    for of_the_class in range(len(outside) + 1):  # wrappers that the class puts around the forward of a subclass
        forward = wrapped.around(outside[of_the_class:], found.forward)
        if forward is not None and (made := _subclass(base, linears, forward, members, outside)) is not None:
            return made
    return None


def _subclass(base: Any, linears: frozenset[str], forward: Any, members: dict[str, Any], outside: list[Any]) -> Any:
    """A class with another forward; None if other wrappers than `outside` would then surround it."""
    members = {"forward": forward, **members, "_warploom_base": base, "_warploom_linears": linears}
    members |= {"__module__": base.__module__, "__qualname__": base.__qualname__, "__doc__": base.__doc__}
    made: Any = type(base.__name__, (Fused, base), members)
    return made if wrapped.alike(wrapped.layers(made.forward)[:-1], outside) else None


def fuse(model: nn.Module) -> None:
    """Turn every module of a model that has something to fuse into one of a fused class, in place."""
    from .layers import Linear

    for module in list(model.modules()):
        if isinstance(module, (Fused, Linear)) or "forward" in module.__dict__ or _compiled(module):
            continue
        linears = frozenset(name for name, child in module.named_children() if type(child) is Linear)
        of: Any = type(module)
        kind: Any = fused_class(of, linears)
        if kind is None or not _complete(module, kind._warploom_norm):
            continue
        module.__class__ = kind
        found: Rewritten | None = kind._warploom_found
        for names in found.together if found is not None else ():
            pieces.pack([getattr(module, name) for name in names])
        for child in module.children() if found is not None and found.gated else ():
            if not isinstance(child, Linear) and (name := pieces.recognised(child)) is not None:
                child._warploom_activation = name


def _complete(module: nn.Module, norm: Norm | None) -> bool:
    """True if a module has the attributes that its norm's code uses."""
    return norm is None or (hasattr(module, norm.eps) and getattr(module, "weight", None) is not None)


def _compiled(module: nn.Module) -> bool:
    script = sys.modules.get("torch.jit")
    return script is not None and isinstance(module, script.ScriptModule)


def check_model(model: object, called: str) -> None:
    """Raise ArgumentTypeError for anything but a module."""
    if not isinstance(model, nn.Module):
        raise ArgumentTypeError(f"{called} takes a model", expected="a torch.nn.Module", got=repr(model)[:80])


def fused(model: nn.Module) -> dict[str, tuple[str, ...]]:
    """What is fused in which module of a converted model, by its name: "together q_proj, k_proj, v_proj", "gate",
    "residual", "rotary", "adds a residual to its result", "norm"; of a model of `transformers` "attention", and
    "experts"."""
    check_model(model, "fused")
    said = {name: _said(module) for name, module in model.named_modules() if isinstance(module, Fused)}
    said |= {name: ("experts",) for name, module in experts.experts_of(model).items() if experts.used(module)}
    return {name: ("attention",) for name in transformers.used(model)} | said


def _said(module: Fused) -> tuple[str, ...]:
    found = module._warploom_found
    if found is None:
        return ("norm",)
    said = [f"together {', '.join(names)}" for names in found.together]
    said += ["gate"] * bool(found.gated) + ["residual"] * bool(found.added) + ["rotary"] * bool(found.rotated)
    return (*said, *(["adds a residual to its result"] if found.takes_residual else []))
